package api

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// repeatedLetter is how the page writes long texts: a×64.
var repeatedLetter = regexp.MustCompile(`(\w)×(\d+)`)

// TestThePageOfValidationIsTrue runs the rows of docs/validation.md: each example is accepted, or refused at the field
// that the row names.
func TestThePageOfValidationIsTrue(t *testing.T) {
	page, err := os.ReadFile("../docs/validation.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for line := range strings.Lines(string(page)) {
		row := strings.Split(strings.TrimSpace(line), "|")
		if len(row) < 2 || strings.HasPrefix(row[1], "---") || strings.TrimSpace(row[1]) == "what" {
			continue
		}
		if len(row) != 7 {
			t.Errorf("%s: want five columns", line)
			continue
		}
		example, ours := strings.Trim(row[2], " `"), strings.TrimSpace(row[4])
		ran++
		t.Run(strings.TrimSpace(row[1]), func(t *testing.T) {
			path, refused := strings.CutPrefix(ours, "refused at ")
			if !refused && ours != "accepted" {
				t.Fatalf("the row says %q: want accepted, or refused at a field", ours)
			}
			if errs := judged(t, example); !refused && len(errs) > 0 || refused && !hasPath(errs, path) {
				t.Errorf("%s: %v; the page says %s", example, errs, ours)
			}
		})
	}
	if ran < 40 {
		t.Errorf("%d rows were found: has the page another form now?", ran)
	}
}

// judged reads, defaults and validates an example of the page: a kind, and the rest of the document in braces.
func judged(t *testing.T, example string) FieldErrors {
	t.Helper()
	kind, rest, _ := strings.Cut(example, " ")
	rest = repeatedLetter.ReplaceAllStringFunc(rest, func(s string) string {
		m := repeatedLetter.FindStringSubmatch(s)
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Repeat(m[1], n)
	})
	document := "{apiVersion: projectcalico.org/v3, kind: " + kind + ", "
	if !strings.Contains(rest, "metadata:") {
		document += "metadata: {name: default}, "
	}
	docs, err := Decode([]byte(document + strings.TrimPrefix(rest, "{")))
	var errs FieldErrors
	if errors.As(err, &errs) {
		return errs
	}
	if err != nil || len(docs) != 1 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	Default(docs[0].Resource)
	return Validate(docs[0].Resource)
}

func hasPath(errs FieldErrors, path string) bool {
	for _, e := range errs {
		if e.Path == path && e.Reason != "" {
			return true
		}
	}
	return false
}
