package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../"

// TestWhatIsDoneNamesTestsThatExist holds docs/parity.tsv to the tree. A row that is done names what would fail without
// it: PACKAGE.TestName (see namesOfPackages), TestName alone in the package named before it, or a scenario by its file.
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
	tests := map[string]bool{"calc.TestA": true, "calc.TestB": true, "nft.TestC": true, "ipam.TestD": true, "cli/ipam.TestE": true}
	for _, tt := range []struct{ name, named, want string }{
		{"there", "calc.TestA, TestB, nft.TestC, docs/parity.tsv", ""},
		{"in another package", "nft.TestC, TestA", "nft.TestA"},
		{"of two packages with one name", "ipam.TestD, cli/ipam.TestE", ""},
		{"of the other of two packages with one name", "ipam.TestE, cli/ipam.TestD", "ipam.TestE, cli/ipam.TestD"},
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

var testName = regexp.MustCompile(`^(?:([\w/]+)\.)?((?:Test|Fuzz)\w+)$`)

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

// namesOfPackages are the names that pages and tables give to packages, by their import paths: the last element, or, where
// several end alike, the path below internal: ipam is internal/ipam, and cli/ipam the other.
func namesOfPackages(all []pkg) map[string]string {
	count, names := map[string]int{}, map[string]string{}
	for _, p := range all {
		count[path.Base(p.ImportPath)]++
	}
	for _, p := range all {
		last := path.Base(p.ImportPath)
		if names[p.ImportPath] = last; count[last] > 1 {
			names[p.ImportPath] = strings.TrimPrefix(p.ImportPath, module+"internal/")
		}
	}
	return names
}

func TestPackagesThatEndAlikeAreNamedByTheirPaths(t *testing.T) {
	want := map[string]string{"internal/ipam": "ipam", "internal/cli/ipam": "cli/ipam", "internal/bgp/plan": "plan", "api": "api"}
	var all []pkg
	for p := range want {
		all = append(all, pkg{ImportPath: module + p})
	}
	got := map[string]string{}
	for p, name := range namesOfPackages(all) {
		got[strings.TrimPrefix(p, module)] = name
	}
	if !maps.Equal(got, want) {
		t.Errorf("named %v, want %v", got, want)
	}
}

// testsByPackage are all tests of the module, as PACKAGE.TestName.
func testsByPackage(t *testing.T) map[string]bool {
	t.Helper()
	tests, all := map[string]bool{}, packages(t)
	names := namesOfPackages(all)
	for _, p := range all {
		for _, f := range append(p.TestGoFiles, p.XTestGoFiles...) {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					tests[names[p.ImportPath]+"."+f.Name.Name] = true
				}
			}
		}
	}
	return tests
}
