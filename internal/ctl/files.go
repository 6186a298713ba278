package ctl

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is one file of resources.
type source struct {
	name string
	data []byte
}

var manifestEndings = []string{".yaml", ".yml", ".json"}

// maxManifest bounds what one file may hold, so that a wrong path cannot eat the memory.
const maxManifest = 256 << 20

// readSources reads files, directories (their .yaml, .yml and .json files, sorted) and standard input ("-").
func (c *command) readSources(paths []string, recursive bool) ([]source, error) {
	if len(paths) == 0 {
		return nil, usage("no file given: name files or directories with -f, or - for standard input")
	}
	var out []source
	for _, p := range paths {
		if p == "-" {
			data, err := io.ReadAll(io.LimitReader(c.stdio.In, maxManifest))
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			out = append(out, source{"standard input", data})
			continue
		}
		files, err := manifests(p, recursive)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			data, err := readFile(f)
			if err != nil {
				return nil, err
			}
			out = append(out, source{f, data})
		}
	}
	return out, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if len(data) > maxManifest {
		return nil, fmt.Errorf("%s: larger than %d MiB", name, maxManifest>>20)
	}
	return data, err
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
		err = &emptyError{fmt.Sprintf("%s: no %s file in this directory", path, strings.Join(manifestEndings, ", "))}
	}
	return out, err
}
