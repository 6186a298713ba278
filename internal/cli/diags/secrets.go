package diags

import (
	"bytes"
	"cmp"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/agent"
)

// secretWords are what names of secrets end in.
const secretWords = `(?:passw(?:or)?d|passphrase|secret|token|private[ _-]?key|preshared[ _-]?key|psk|client-key-data)`

// patterns hide secrets by what is around them. Each keeps its first group.
var patterns = []*regexp.Regexp{
	regexp.MustCompile(`(?s)()-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`),
	regexp.MustCompile(`(?s)\A().*-----END [A-Z0-9 ]*PRIVATE KEY-----`),                                                    // whose beginning was left out
	regexp.MustCompile(`(?im)^([ \t]*[\w."'-]*` + secretWords + `["']?:[ \t]*[|>][-+0-9]*)[ \t]*\n(?:[ \t]+.*(?:\n|\z))+`), // a block of YAML
	regexp.MustCompile(`(?i)([\w.-]*` + secretWords + `["']?[ \t]*[:=][ \t]*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}"'|>{\[][^\s,;}]*)`),
	regexp.MustCompile(`(?i)(` + secretWords + `[ \t]+)"[^"]*"`), // BIRD's
	regexp.MustCompile(`(?i)(--[\w-]*` + secretWords + `[ =])\S+`),
	regexp.MustCompile(`(://)[^/\s"'@]*:[^/\s"'@]*@`),
	regexp.MustCompile(`(?i)(authorization["']?[:=]?[ \t]*["']?(?:bearer|basic)[ \t]+)[^\s"']+`),
	regexp.MustCompile(`()eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+`), // a token of JSON, RFC 7519
}

// secrets are what must not be in the archive.
type secrets struct{ values [][]byte } // the longest first

// secretName matches what names of secrets are.
var secretName = regexp.MustCompile(`(?i)` + secretWords + `$`)

// shortest is the length of the shortest value that is looked for wherever it stands. A shorter one would hide other words.
const shortest = 4

// knownSecrets are those of the environment, of files of settings, and of files that are secrets themselves.
func knownSecrets(environ, files []string, dirs ...string) secrets {
	found := map[string]bool{}
	add := func(value string) {
		if value = strings.Trim(strings.TrimSpace(value), `"'`); len(value) >= shortest {
			found[value], found[url.QueryEscape(value)] = true, true
		}
	}
	pairs := slices.Clone(environ)
	for _, pattern := range files {
		names, _ := filepath.Glob(pattern) // patterns are good
		for _, name := range names {
			text, _ := os.ReadFile(name) // what cannot be read is not collected either
			pairs = append(pairs, strings.Split(string(text), "\n")...)
		}
	}
	for _, p := range pairs {
		if name, value, is := strings.Cut(strings.TrimSpace(p), "="); is && secretName.MatchString(strings.TrimSpace(name)) {
			add(value)
		}
	}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				if text, err := readTail(name, 4096); err == nil {
					add(string(text))
				}
			}
			return nil
		})
	}
	var out secrets
	for value := range found {
		out.values = append(out.values, []byte(value))
	}
	slices.SortFunc(out.values, func(a, b []byte) int { return cmp.Or(cmp.Compare(len(b), len(a)), bytes.Compare(a, b)) })
	return out
}

// hide returns a text without secrets.
func (s secrets) hide(text []byte) []byte {
	for _, v := range s.values {
		text = bytes.ReplaceAll(text, v, []byte(agent.Hidden))
	}
	for _, p := range patterns {
		text = p.ReplaceAll(text, []byte("${1}"+agent.Hidden))
	}
	return text
}
