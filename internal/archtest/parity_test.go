package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../"

// TestWhatIsDoneNamesTestsThatExist holds docs/parity.tsv to the tree. A row that is done names what would fail without
// it: PACKAGE.TestName by the last element of the package's path, TestName alone in the package named before it, or a
// scenario by its file.
func TestWhatIsDoneNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile(root + "docs/parity.tsv")
	if err != nil {
		t.Fatal(err)
	}
	tests := testsByPackage(t)
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[1:] {
		row := strings.Split(line, "\t")
		if len(row) != 4 {
			t.Errorf("%s: %d columns, want 4", row[0], len(row))
			continue
		}
		id, state, named := row[0], row[1], row[2]
		if state != "no" && named == "" {
			t.Errorf("%s is %s and names no test", id, state)
		}
		for _, missing := range unknownTests(named, tests) {
			t.Errorf("%s names %s, which does not exist", id, missing)
		}
	}
}

func TestNamesOfTestsThatDoNotExistAreFound(t *testing.T) {
	tests := map[string]bool{"calc.TestA": true, "calc.TestB": true, "nft.TestC": true}
	for _, tt := range []struct{ name, named, want string }{
		{"there", "calc.TestA, TestB, nft.TestC, docs/parity.tsv", ""},
		{"in another package", "nft.TestC, TestA", "nft.TestA"},
		{"a word", "calc tests", "calc tests"},
		{"a package", "calc", "calc"},
		{"no package", "TestA", "TestA"},
		{"no such file", "testdata/script/no.txt", "testdata/script/no.txt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(unknownTests(tt.named, tests), ", "); got != tt.want {
				t.Errorf("%q: unknown are %q, want %q", tt.named, got, tt.want)
			}
		})
	}
}

var testName = regexp.MustCompile(`^(?:(\w+)\.)?((?:Test|Fuzz)\w+)$`)

// unknownTests are those of a row's tests that are neither a test nor a file.
func unknownTests(named string, tests map[string]bool) (unknown []string) {
	if named == "" {
		return nil
	}
	pkg := ""
	for _, entry := range strings.Split(named, ",") {
		entry = strings.TrimSpace(entry)
		if m := testName.FindStringSubmatch(entry); m != nil {
			if m[1] != "" {
				pkg = m[1] + "."
			}
			if entry = pkg + m[2]; tests[entry] {
				continue
			}
		} else if strings.Contains(entry, "/") {
			if st, err := os.Stat(root + entry); err == nil && st.Mode().IsRegular() {
				continue
			}
		}
		unknown = append(unknown, entry)
	}
	return unknown
}

// testsByPackage are all tests of the module, as PACKAGE.TestName.
func testsByPackage(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	for _, p := range packages(t) {
		for _, f := range append(p.TestGoFiles, p.XTestGoFiles...) {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					tests[path.Base(p.ImportPath)+"."+f.Name.Name] = true
				}
			}
		}
	}
	return tests
}
