package archtest

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mayBeLeftOut are tests that docs/parity.tsv or docs/fields.md names although the source has a way around them, each with why CI takes the other way.
var mayBeLeftOut = map[string]string{
	"agreetest.TestKernelAgrees":                     "all is compared before -brief leaves out the table; make test does not set it",
	"agreetest.TestIptablesAgrees":                   "likewise; what only many worlds show is left out with the table",
	"kubestore.TestContractOfRecords":                "what it leaves out Kubernetes has not: keys that expire, transactions, compaction; lists in pieces are run",
	"kubestore.TestContractOfResources":              "likewise; lists in pieces are of the store itself, see TestContractOfRecords",
	"etcdstore.TestContract":                         "etcd has all parts of the contract that a store may lack: keys that expire, transactions, compaction",
	"etcdproxy.TestContract":                         "likewise: it is etcd behind a proxy",
	"lab.TestScript":                                 "it leaves out ipip.txt alone, if the kernel has no module for it; make vm runs that in a machine whose kernel has",
	"metrics.TestTheReferencePageIsWhatIsRegistered": "-write is for who writes the page anew",
	"nft.TestTheSettingChangesWhoMayChangeTheTable":  "tables have owners from Linux 6.9 on; of older kernels TestAKernelWithoutOwnersHasAPlainTable says what is so",
	"nflog.TestAReportSaysWhichRuleAndWhichWay":      "NFLOG is in every kernel that Linux distributions make; without it TestWhatLogRulesMatchIsShownAndPrinted fails",
}

// TestWhatIsDoneIsTestedInCI looks for ways around the tests that docs/parity.tsv and docs/fields.md name: a call of Skip, or an end that hangs
// on a flag or a variable of the environment, in a test or in what it calls. What a machine lacks is a failure in CI, since it sets
// REQUIRE_ROOT=1 (package machinetest).
func TestWhatIsDoneIsTestedInCI(t *testing.T) {
	text, err := os.ReadFile(root + "docs/parity.tsv")
	if err != nil {
		t.Fatal(err)
	}
	funcs := testFuncs(t)
	named := map[string]string{} // test → a row
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[1:] {
		row := strings.Split(line, "\t")
		for _, test := range testsOf(row[2]) {
			named[test] = cmp.Or(named[test], row[0])
		}
	}
	for _, p := range proofs {
		for _, test := range testsOf(p.test) {
			named[test] = cmp.Or(named[test], "docs/fields.md")
		}
	}
	used := map[string]bool{}
	for _, test := range slices.Sorted(maps.Keys(named)) {
		for _, way := range funcs.waysAround(test) {
			if used[test] = true; mayBeLeftOut[test] == "" {
				t.Errorf("%s names %s, which CI may leave out: %s; if it does not, say why in mayBeLeftOut", named[test], test, way)
			}
		}
	}
	for test := range mayBeLeftOut {
		if !used[test] {
			t.Errorf("mayBeLeftOut has %s, which no row names or nothing leaves out", test)
		}
	}
}

// TestCIRunsAllTests holds the two files that say what CI does to what the check above takes for granted.
func TestCIRunsAllTests(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{".ci/run", `(?m)^suites="[^"]*\btest:\d+`},
		{".ci/run", `make "\$name"`},
		{"Makefile", `(?m)^test:.*\n(\t.*\n)*\tREQUIRE_ROOT=1 go test -count=1 -timeout \w+ (-p \$\(TEST_PACKAGES\) )?(\./[\w/]+ )*\./\.\.\.\n`},
	} {
		text, err := os.ReadFile(root + tt.file)
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(tt.want).Match(text) {
			t.Errorf("%s has nothing that matches %s", tt.file, tt.want)
		}
	}
}

// testsOf are the tests that a row names, as PACKAGE.TestName. A scenario is run by one of them.
func testsOf(named string) (tests []string) {
	pkg := ""
	for entry := range strings.SplitSeq(named, ",") {
		entry = strings.TrimSpace(entry)
		if m := testName.FindStringSubmatch(entry); m != nil {
			if m[1] != "" {
				pkg = m[1] + "."
			}
			tests = append(tests, pkg+m[2])
		} else if strings.HasPrefix(entry, "testdata/script/") {
			tests = append(tests, "lab.TestScript")
		}
	}
	return tests
}

// codeOfTests is what tests consist of: the functions of test files, and those of packages that are for tests alone.
type codeOfTests struct {
	names map[string][]ast.Node // PACKAGE.Name: bodies of functions, values of variables; methods by their name alone, so that one name may be several
	flags map[string]bool       // PACKAGE.name of variables that are flags
}

var forTests = regexp.MustCompile(`^internal/.*test$`)

func testFuncs(t *testing.T) codeOfTests {
	t.Helper()
	c := codeOfTests{map[string][]ast.Node{}, map[string]bool{}}
	all := packages(t)
	names := namesOfPackages(all)
	for _, p := range all {
		files := slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		if forTests.MatchString(strings.TrimPrefix(p.ImportPath, module)) {
			files = slices.Concat(files, p.GoFiles)
		}
		for _, f := range files {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			c.add(names[p.ImportPath], file)
		}
	}
	return c
}

func (c codeOfTests) add(pkg string, file *ast.File) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if at := pkg + "." + d.Name.Name; d.Body != nil {
				c.names[at] = append(c.names[at], d.Body)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				v, ok := s.(*ast.ValueSpec)
				for i := 0; ok && i < len(v.Values); i++ {
					at := pkg + "." + v.Names[i].Name
					c.names[at] = append(c.names[at], v.Values[i])
					if call, isCall := v.Values[i].(*ast.CallExpr); isCall && selector(call.Fun) == "flag."+nameOf(call.Fun) {
						c.flags[at] = true
					}
				}
			}
		}
	}
}

// waysAround says how a test might end before it has tested.
func (c codeOfTests) waysAround(test string) (ways []string) {
	seen := map[string]bool{}
	var visit func(pkg, name string)
	visit = func(pkg, name string) {
		at := pkg + "." + name
		if seen[at] {
			return
		}
		seen[at] = true
		for _, body := range c.names[at] {
			ast.Inspect(body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if way := leavesOut(n); way != "" {
						ways = append(ways, at+" calls "+way)
					}
				case *ast.SelectorExpr: // a function of another package
					if x, ok := n.X.(*ast.Ident); ok && x.Name != "machinetest" && c.names[x.Name+"."+n.Sel.Name] != nil {
						visit(x.Name, n.Sel.Name)
					}
				case *ast.Ident: // of this one: called, or handed to something that calls it
					visit(pkg, n.Name)
				case *ast.IfStmt:
					if what := c.hangsOn(pkg, n); what != "" && ends(n.Body) {
						ways = append(ways, at+" may end because of "+what)
					}
				}
				return true
			})
		}
	}
	pkg, name, _ := strings.Cut(test, ".")
	visit(pkg, name)
	return ways
}

// leavesOut says which call leaves a test out, if this one does.
func leavesOut(call *ast.CallExpr) (way string) {
	name, full := nameOf(call.Fun), selector(call.Fun)
	switch {
	case full == "machinetest.Installed", full == "machinetest.Supported": // REQUIRE_ROOT=1 does not forbid these
		return full
	case full != name && skips[name]:
		return full
	}
	return ""
}

// hangsOn says on which flag or variable of the environment a condition hangs, if on one.
func (c codeOfTests) hangsOn(pkg string, s *ast.IfStmt) (what string) {
	look := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if c.flags[pkg+"."+n.Name] {
				what = "the flag " + n.Name
			}
		case *ast.CallExpr:
			if f := selector(n.Fun); f == "os.Getenv" || f == "os.LookupEnv" || f == "testing.Short" {
				what = f
			}
		}
		return true
	}
	ast.Inspect(s.Cond, look)
	if s.Init != nil {
		ast.Inspect(s.Init, look)
	}
	return what
}

// ends reports whether a block returns.
func ends(b *ast.BlockStmt) bool {
	return slices.ContainsFunc(b.List, func(s ast.Stmt) bool { _, ok := s.(*ast.ReturnStmt); return ok })
}

// selector is a function as it is called, if that is by a name or by x.name.
func selector(fun ast.Expr) string {
	if s, ok := fun.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
		return "." + s.Sel.Name
	}
	return nameOf(fun)
}

func nameOf(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func TestWaysAroundATestAreFound(t *testing.T) {
	const before = "package x\nvar deep = flag.Bool(`deep`, false, ``)\nfunc TestX(t *testing.T) {"
	for _, tt := range []struct{ name, body, want string }{
		{"none", "if err != nil { return }", ""},
		{"a skip", `t.Skip("no")`, "x.TestX calls t.Skip"},
		{"a skip of a subtest", `t.Run("a", func(t *testing.T) { if bad { t.Skipf("no") } })`, "x.TestX calls t.Skipf"},
		{"in a helper's helper", "one(t) }\nfunc one(t *testing.T) { two(t) }\nfunc two(t *testing.T) { t.SkipNow()", "x.two calls t.SkipNow"},
		{"in a function that is handed over", "all(t, []func(*testing.T){one}) }\nfunc one(t *testing.T) { t.Skip()", "x.one calls t.Skip"},
		{"in a table of functions", "for _, f := range all { f(t) } }\nvar all = []func(*testing.T){one}\nfunc one(t *testing.T) { t.Skip()", "x.one calls t.Skip"},
		{"in a method", "f.one() }\nfunc (f *fixture) one() { f.Skip()", "x.one calls f.Skip"},
		{"a flag", "if !*deep { return }", "x.TestX may end because of the flag deep"},
		{"a flag that changes something else", "if *deep { n = 9 }", ""},
		{"the environment", `if e := os.Getenv("DEEP"); e == "" { return }`, "x.TestX may end because of os.Getenv"},
		{"-short", `if testing.Short() { return }`, "x.TestX may end because of testing.Short"},
		{"what the machine lacks, which is a failure in CI", `machinetest.Root(t); machinetest.Program(t, "nft")`, ""},
		{"what the machine may lack", `machinetest.Installed(t, "etcd")`, "x.TestX calls machinetest.Installed"},
		{"a package of tests", "storetest.Run(t)", "storetest.Run calls t.Skip"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := codeOfTests{map[string][]ast.Node{}, map[string]bool{}}
			for pkg, src := range map[string]string{"x": before + tt.body + "}", "storetest": "package storetest\nfunc Run(t *testing.T) { t.Skip() }"} {
				f, err := parser.ParseFile(token.NewFileSet(), "x.go", src, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				c.add(pkg, f)
			}
			if got := strings.Join(c.waysAround("x.TestX"), "; "); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
