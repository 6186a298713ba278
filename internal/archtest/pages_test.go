package archtest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPagesNameWhatExists: a page that names a test (package.TestName, or TestName alone), a scenario, or another page with a
// heading of it, names one that is there; and so does the source that names a page.
func TestPagesNameWhatExists(t *testing.T) {
	tests, pages := testsByPackage(t), readAll(t, ".md")
	for page, text := range pages {
		for _, missing := range deadNames(page, text, pages, tests) {
			t.Errorf("%s names %s, which does not exist", page, missing)
		}
	}
	for file, text := range readAll(t, ".go") {
		for _, m := range pageName.FindAllStringSubmatch(text, -1) {
			if body, ok := pages[m[1]]; !ok || !hasHeading(body, m[2]) {
				t.Errorf("%s names %s, which does not exist", file, m[0])
			}
		}
	}
}

// elsewhere are documents by which this was planned, and which a reader of the repository does not have; docs/design has what
// became of them. The classes of one letter keep the expression from finding itself.
var elsewhere = regexp.MustCompile(`\b(SEMANTIC[S]|DESIG[N]|DATAMODE[L]|CONSTANT-COS[T]|GOAL[S]|LIBRARIE[S])\b`)

func TestNothingNamesDocumentsThatAreElsewhere(t *testing.T) {
	for _, ext := range []string{".go", ".md"} {
		for file, text := range readAll(t, ext) {
			for _, name := range elsewhere.FindAllString(text, -1) {
				t.Errorf("%s names %s, which is not in the repository: name a page of docs", file, name)
			}
		}
	}
}

func TestNamesOfPagesThatDoNotExistAreFound(t *testing.T) {
	tests := map[string]bool{"calc.TestA": true, "nft.BenchmarkB": true}
	pages := map[string]string{
		"guide/other.md": "# Other\n\n## Routes, links and `ip rule`\n",
		"ROOT.md":        "",
	}
	for _, tt := range []struct{ name, text, want string }{
		{"all there", "`calc.TestA`, `TestA`, `BenchmarkB` and [it](other.md#routes-links-and-ip-rule), [up](../ROOT.md), [web](https://example.net/x.md)", ""},
		{"a test of another package", "`nft.TestA`", "nft.TestA"},
		{"a test alone", "TestGone", "TestGone"},
		{"a kind of tests", "`testdata/script/bgp_*.txt`", ""},
		{"a scenario", "`testdata/script/gone.txt`", "testdata/script/gone.txt"},
		{"a page", "[it](gone.md)", "gone.md"},
		{"a heading", "[it](other.md#gone)", "other.md#gone"},
		{"a heading of its own", "# Here\n[it](#here), [that](#there)", "#there"},
		{"what a program printed", "```\n[it](gone.md) TestGone\n```\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pages["guide/page.md"] = tt.text
			if got := strings.Join(deadNames("guide/page.md", tt.text, pages, tests), ", "); got != tt.want {
				t.Errorf("dead are %q, want %q", got, tt.want)
			}
		})
	}
}

var (
	fenced   = regexp.MustCompile("(?ms)^```.*?^```")
	named    = regexp.MustCompile(`(?:\b([a-z][\w/]*)\.)?\b((?:Test|Fuzz|Benchmark)[A-Z]\w*)`)
	script   = regexp.MustCompile(`testdata/script/[\w*]+\.txt`)
	pageLink = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	pageName = regexp.MustCompile(`\b(docs/[\w./-]+\.md)(?:#([\w-]+))?`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	slugLess = regexp.MustCompile(`[^\w\- ]`)
)

// deadNames are the names in a page of tests, scenarios, pages and headings that are not there.
func deadNames(page, text string, pages map[string]string, tests map[string]bool) (dead []string) {
	text = fenced.ReplaceAllString(text, "")
	alone := map[string]bool{}
	for name := range tests {
		alone[name[strings.Index(name, ".")+1:]] = true
	}
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		if m[1] == "" && !alone[m[2]] || m[1] != "" && !tests[m[1]+"."+m[2]] {
			dead = append(dead, m[0])
		}
	}
	for _, s := range script.FindAllString(text, -1) {
		if found, err := filepath.Glob(root + s); err != nil || len(found) == 0 {
			dead = append(dead, s)
		}
	}
	for _, m := range pageLink.FindAllStringSubmatch(text, -1) {
		to, at := path.Join(path.Dir(page), m[1]), m[2]
		if m[1] == "" {
			to = page
		}
		switch body, known := pages[to]; {
		case strings.Contains(m[1], "://"):
		case known && hasHeading(body, at):
		case !known && !strings.HasSuffix(to, ".md") && isThere(to):
		default:
			dead = append(dead, strings.TrimSuffix(m[1]+"#"+at, "#"))
		}
	}
	return dead
}

// hasHeading reports whether a page has the heading of an anchor, as GitHub makes these; it has that of an empty one.
func hasHeading(body, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(body, ""), -1) {
		slug := strings.ReplaceAll(slugLess.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if slug == anchor {
			return true
		}
	}
	return anchor == ""
}

func isThere(file string) bool {
	_, err := os.Stat(root + file)
	return err == nil
}

// readAll reads the repository's files whose names end so, by their paths.
func readAll(t *testing.T, ext string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(file) != ext:
			return nil
		}
		text, err := os.ReadFile(file)
		out[filepath.ToSlash(strings.TrimPrefix(file, filepath.Clean(root)+"/"))] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
