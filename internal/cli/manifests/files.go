package manifests

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/cli/console"
)

// Source is one file of resources.
type Source struct {
	Name string
	Data []byte
}

// Read reads files without decoding them.
func Read(c console.Stdio, o Files) ([]Source, error) { return readSources(c, o.Paths, o.Recursive) }

var manifestEndings = []string{".yaml", ".yml", ".json"}

// readSources reads files, directories (their .yaml, .yml and .json files, sorted) and standard input ("-").
func readSources(c console.Stdio, paths []string, recursive bool) ([]Source, error) {
	if len(paths) == 0 {
		return nil, console.Usage("no file given: name files or directories with -f, or - for standard input")
	}
	var out []Source
	for _, p := range paths {
		if p == "-" {
			data, err := io.ReadAll(io.LimitReader(c.In, console.MaxManifest))
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			out = append(out, Source{"standard input", data})
			continue
		}
		files, err := manifests(p, recursive)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			data, err := console.ReadFile(f)
			if err != nil {
				return nil, err
			}
			out = append(out, Source{f, data})
		}
	}
	return out, nil
}

func manifests(path string, recursive bool) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return []string{path}, nil
	}
	var out []string
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != path && !recursive:
			return filepath.SkipDir
		case !d.IsDir() && slices.Contains(manifestEndings, strings.ToLower(filepath.Ext(p))):
			out = append(out, p)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = &EmptyError{fmt.Sprintf("%s: no %s file in this directory", path, strings.Join(manifestEndings, ", "))}
	}
	return out, err
}
