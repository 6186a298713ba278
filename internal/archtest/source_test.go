package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	maxFileLines = 499
	maxFuncLines = 59
	maxTestLines = 75   // of a test's function, without its tables
	maxCLILines  = 2500 // of a package of the command line, its tests and all
)

// longFiles and longFuncs are over the limit for a reason, given here.
var (
	longFiles = map[string]string{}
	longFuncs = map[string]string{
		"internal/datastore/etcdstore/roles_test.go:TestTheRolesOfTheGuideAreEnough": "what each role may do and may not, in the order of the guide",
	}
)

// maySkip says why a package may leave a test out by itself.
var (
	skips   = map[string]bool{"Skip": true, "Skipf": true, "SkipNow": true}
	maySkip = map[string]string{
		"internal/kernel/machinetest":  "the one place that decides what a lack of the machine means",
		"internal/datastore/storetest": "a store says which parts of the contract it has",
	}
)

// generated reports whether protoc makes a file.
func generated(file string) bool { return strings.HasSuffix(file, ".pb.go") }

func TestFilesAndFunctionsAreShort(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range append(p.GoFiles, append(p.TestGoFiles, p.XTestGoFiles...)...) {
			if generated(f) {
				continue
			}
			path := filepath.Join(p.Dir, f)
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			rel := strings.TrimPrefix(p.ImportPath+"/"+f, module)
			if n := bytes.Count(src, []byte("\n")); n > maxFileLines && longFiles[rel] == "" {
				t.Errorf("%s has %d lines; split it by idea, or give a reason in longFiles", rel, n)
			}
			checkSource(t, rel, src)
		}
	}
}

// TestPackagesOfTheCommandLineAreSmall: a command line grows with every feature, and what is at hand goes into the package that is open.
func TestPackagesOfTheCommandLineAreSmall(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		if rel := strings.TrimPrefix(p.ImportPath, module); rel != "internal/cli" && !strings.HasPrefix(rel, "internal/cli/") {
			continue
		}
		found++
		lines := 0
		for _, f := range append(p.GoFiles, append(p.TestGoFiles, p.XTestGoFiles...)...) {
			src, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(src, []byte("\n"))
		}
		if lines > maxCLILines {
			t.Errorf("%s has %d lines, more than %d: split it by task", p.ImportPath, lines, maxCLILines)
		}
	}
	if found < 8 {
		t.Errorf("the command line has %d packages; want one for each task", found)
	}
}

// TestOnlyTheTerminalPackageKnowsItsLanguage: an escape sequence (ECMA-48) anywhere else would be in a pipe, too, and a colour would
// not be of the palette; tables of text/tabwriter count its bytes as columns.
func TestOnlyTheTerminalPackageKnowsItsLanguage(t *testing.T) {
	for _, p := range packages(t) {
		rel := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			if imp == "text/tabwriter" {
				t.Errorf("a test of %s imports text/tabwriter; use terminal.Table", rel)
			}
		}
		if rel == "internal/terminal" {
			continue
		}
		for _, f := range p.GoFiles {
			if generated(f) {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, escape := range escapes(file) {
				t.Errorf("%s/%s has the escape sequence %s; package terminal has the palette", rel, f, escape)
			}
		}
	}
}

// escapes are the literals of a file that hold the character ESC or CSI.
func escapes(file *ast.File) (out []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING && lit.Kind != token.CHAR {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err == nil && strings.ContainsAny(text, "\x1b\u009b") {
			out = append(out, lit.Value)
		}
		return true
	})
	return out
}

func TestEscapesAreFound(t *testing.T) {
	const src = "package p\nvar a = \"\\x1b[1m\"\nvar b = `\\x1b`\nvar c = '\\033'\nvar d = \"\\u009b0m\"\nvar e = \"[1m\"\n"
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(escapes(file), " "); got != `"\x1b[1m" '\033' "\u009b0m"` {
		t.Errorf("found %s", got)
	}
}

// checkLength counts a function's lines; of a test's, those of values that it writes out do not count.
func checkLength(t *testing.T, fset *token.FileSet, rel, name string, n ast.Node) {
	t.Helper()
	more := func(n ast.Node) int { return fset.Position(n.End()).Line - fset.Position(n.Pos()).Line }
	lines, limit := more(n)+1, maxFuncLines
	if strings.HasSuffix(rel, "_test.go") {
		limit = maxTestLines
		ast.Inspect(n, func(x ast.Node) bool {
			switch x.(type) {
			case *ast.CompositeLit, *ast.BasicLit:
				lines -= more(x)
				return false
			}
			return true
		})
	}
	if lines > limit && longFuncs[rel+":"+name] == "" {
		t.Errorf("%s: %s has %d lines, at most %d are allowed", fset.Position(n.Pos()), name, lines, limit)
	}
}

func checkSource(t *testing.T, rel string, src []byte) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, rel, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	test := strings.HasSuffix(rel, "_test.go")
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			checkLength(t, fset, rel, n.Name.Name, n)
			if n.Name.Name == "init" && n.Recv == nil {
				t.Errorf("%s: init: a package that is imported must do nothing", rel)
			}
		case *ast.FuncLit: // it may be a variable's
			checkLength(t, fset, rel, "a function without a name", n)
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && test && x.Name == "time" && sel.Sel.Name == "Sleep" {
					t.Errorf("%s: time.Sleep in a test: wait for the event", fset.Position(n.Pos()))
				}
				if skips[sel.Sel.Name] && maySkip[path.Dir(rel)] == "" {
					t.Errorf("%s: a test skips through machinetest, which knows when it must not", fset.Position(n.Pos()))
				}
			}
		}
		return true
	})
}
