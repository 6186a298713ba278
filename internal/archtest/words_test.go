package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// ownWords are words that say in a language of our own what the field has a term for. GLOSSARY.md has the terms; it names these, too.
var ownWords = map[string]string{
	"told": "advertised, sent, published, logged", "untold": "pending", "believe": "accept, trust", "believed": "accepted, trusted",
	"hear": "receive, observe", "hears": "receives", "heard": "received, observed", "unheard": "unobserved", "heed": "on…, handle", "heeded": "supported",
	"unheeded": "without effect", "deaf": "what it does not receive, and why", "rose": "established", "fell": "went down",
	"blame": "what is at fault", "beside": "other, extra", "anew": "again, restart", "amiss": "error, problem", "whose": "owner",
	"whom": "peer, owner, selected", "farewell": "the message that is sent", "farewells": "the messages that are sent",
	"goodbye": "the message that is sent", "goodbyes": "the messages that are sent", "youth": "age", "thaw": "free", "breath": "delay",
	"draft": "txn, builder, planner", "doorway": "handlers, server", "decider": "calcLoop", "keeper": "controller, supervisor, cache",
	"understudy": "standby", "lineage": "parents", "letgo": "release", "said": "logged, found", "mend": "fix, repair",
}

// inOwnWords are the trees that are still to follow the glossary, with the words that are left in them.
var inOwnWords = map[string][]string{}

// TestNamesAreTheFieldsOwn: a name that a network engineer or a developer of Kubernetes knows needs no explanation.
func TestNamesAreTheFieldsOwn(t *testing.T) {
	left := map[string]bool{}
	for _, p := range packages(t) {
		rel := strings.TrimPrefix(p.ImportPath, module)
		for _, f := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range declared(file) {
				for _, word := range wordsOf(name) {
					if tree := leftIn(rel, word); tree != "" {
						left[tree+" "+word] = true
					} else if term, is := ownWords[word]; is {
						t.Errorf("%s/%s: %s: the field does not say %q; use one of its terms (GLOSSARY.md), such as: %s", rel, f, name, word, term)
					}
				}
			}
		}
	}
	for tree, words := range inOwnWords {
		for _, word := range words {
			if !left[tree+" "+word] {
				t.Errorf("%s has no name with %q any more: take it off inOwnWords", tree, word)
			}
		}
	}
}

// leftIn returns the tree of inOwnWords by which a word is still allowed in a package; empty: it is not.
func leftIn(rel, word string) string {
	for tree, words := range inOwnWords {
		if (rel == tree || strings.HasPrefix(rel, tree+"/")) && slices.Contains(words, word) {
			return tree
		}
	}
	return ""
}

// declared are the names that a file declares, each once: of types, functions, fields, variables and parameters.
func declared(file *ast.File) (out []string) {
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if !slices.Contains(out, id.Name) {
				out = append(out, id.Name)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.Field:
			add(n.Names...)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(id)
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(id)
				}
			}
		}
		return true
	})
	return out
}

// wordsOf splits a Go name into its words, in lower case: toldTo is told, to.
func wordsOf(name string) (out []string) {
	runes, start := []rune(name), 0
	for i := 1; i < len(runes); i++ {
		if unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			out = append(out, strings.ToLower(string(runes[start:i])))
			start = i
		}
	}
	return append(out, strings.ToLower(string(runes[start:])))
}

// plainWords are those of ownWords that are plain English in a sentence, and no term of this project there.
var plainWords = []string{"whose", "whom", "said", "rose", "fell", "draft", "breath"}

// TestPagesSayItInTheFieldsWords: a stranger who knows BGP or Kubernetes reads them. Code and what programs printed are quoted as
// they are; docs/decisions are records of their time, and GLOSSARY.md may explain a word.
func TestPagesSayItInTheFieldsWords(t *testing.T) {
	for page, text := range readAll(t, ".md") {
		if page == "GLOSSARY.md" || strings.HasPrefix(page, "docs/decisions/") {
			continue
		}
		for _, found := range ownWordsOf(text) {
			t.Errorf("%s: %q: use a term of the field, such as: %s", page, found, ownWords[strings.ToLower(found)])
		}
	}
}

var (
	quoted = regexp.MustCompile("(?ms)^```.*?^```|^(?: {4}|\t)[^\n]*|`[^`\n]*`|\\]\\([^)]*\\)")
	word   = regexp.MustCompile(`\pL+`)
)

// ownWordsOf returns the words in the sentences of a page that are not the field's.
func ownWordsOf(page string) (found []string) {
	for _, w := range word.FindAllString(quoted.ReplaceAllString(page, ""), -1) {
		if lower := strings.ToLower(w); ownWords[lower] != "" && !slices.Contains(plainWords, lower) {
			found = append(found, w)
		}
	}
	return found
}

func TestOwnWordsOfAPageAreFound(t *testing.T) {
	for _, tt := range []struct{ name, page, want string }{
		{"in sentences", "Each host told its peers.\nNobody hears, but I hear\n", "told hears hear"},
		{"at the begin of one, and in a table", "Told is not said.\n| a | believed |\n", "Told believed"},
		{"not in code", "see `told` and\n\n    # who told it\n\n```\ntold\n```\nit is so\n", ""},
		{"not where a link leads", "[so](told.md#anew)\n", ""},
		{"but in its text", "[anew](a.md)\n", "anew"},
		{"after a code span", "`a` told `b`\n", "told"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(ownWordsOf(tt.page), " "); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOwnWordsAreFound(t *testing.T) {
	const src = "package p\ntype keeperOf struct{ toldTo, Advertised int }\nfunc (k keeperOf) Heed(whose string) {\n\tfor said := range 3 {\n\t\tanew, _ := said, 1\n\t\t_ = anew\n\t}\n}\nvar BGPTold, retold int\n"
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range declared(file) {
		for _, word := range wordsOf(name) {
			if ownWords[word] != "" {
				found = append(found, name)
			}
		}
	}
	if got := strings.Join(found, " "); got != "keeperOf toldTo Heed whose said anew BGPTold" {
		t.Errorf("found %s", got)
	}
}
