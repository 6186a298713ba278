package manifests_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/manifests"
)

// TestAPatchIsOneDocument, of JSON or YAML, however it is written; what stands behind it, or a field twice, is an error.
func TestAPatchIsOneDocument(t *testing.T) {
	for _, tt := range []struct{ name, text, want, err string }{
		{name: "JSON", text: `{"spec":{"a":1}}`, want: `{"spec":{"a":1}}`},
		{name: "JSON in lines", text: "{\n\"spec\":\n{\"a\":1}\n}\n", want: `{"spec":{"a":1}}`},
		{name: "YAML", text: "spec:\n  a: 1\n  b: |\n    two\n    lines\n  c:\n  - 1\n", want: `{"spec":{"a":1,"b":"two\nlines\n","c":[1]}}`},
		{name: "with a mark before it, and comments", text: "---\n# a comment\nspec: {a: 1} # another\n\n", want: `{"spec":{"a":1}}`},
		{name: "a licence before the mark", text: "# a licence\n\n---  \nspec: {a: 1}\n", want: `{"spec":{"a":1}}`},
		{name: "lines that end as on Windows", text: "---\r\nspec:\r\n  a: 1\r\n", want: `{"spec":{"a":1}}`},
		{name: "a mark that ends it", text: "spec: {a: 1}\n...\n", want: `{"spec":{"a":1}}`},
		{name: "a mark behind which is nothing", text: "spec: {a: 1}\n---\n\n", want: `{"spec":{"a":1}}`},
		{name: "comments alone before it", text: "# a comment\n\nspec: {a: 1}", want: `{"spec":{"a":1}}`},
		{name: "a large number", text: `{"a":1767323045000000004}`, want: `{"a":1767323045000000004}`},
		{name: "two documents of JSON", text: `{"spec":{"a":1}} {"spec":{"a":2}}`, err: "neither JSON nor YAML"},
		{name: "in two lines", text: "{\"spec\":{\"a\":1}}\n{\"spec\":{\"a\":2}}", err: "neither JSON nor YAML"},
		{name: "two documents of YAML", text: "spec: {a: 1}\n---\nspec: {a: 2}", err: "neither JSON nor YAML"},
		{name: "a brace too many", text: `{"spec":{"a":1}}}`, err: "neither JSON nor YAML"},
		{name: "a field twice", text: `{"spec":{"a":1},"spec":{"a":2}}`, err: "already set"},
		{name: "nothing", text: "", err: "the patch is nothing"},
		{name: "a list", text: "- a\n- b", err: "needs --type json"},
		{name: "a word", text: "spec", err: "the patch is spec"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			edit, err := manifests.ParsePatch("merge", []byte(tt.text))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			doc, err := edit(map[string]any{})
			got, _ := json.Marshal(doc)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}
