package ctl

import (
	"encoding/json"
	"testing"
)

// FuzzPatch: no patch panics, and what is written says what was meant.
func FuzzPatch(f *testing.F) {
	f.Add(newer, `{"spec":{"order":null,"newer":[1,{"a":2}]}}`)
	f.Add(newer, `[{"op":"copy","from":"/spec","path":"/spec/in"},{"op":"move","from":"/spec/ingress/0","path":"/metadata/x~1y"},{"op":"test","path":"","value":1}]`)
	f.Add(`[1,{"a":[]},null]`, `[{"op":"add","path":"/1/a/-","value":1e400},{"op":"remove","path":""}]`)
	f.Add(`{"a":1,"a":2}`, `{}`)
	f.Fuzz(func(t *testing.T, doc, patch string) {
		was, err := tree([]byte(doc))
		if err != nil || !json.Valid([]byte(doc)) {
			return
		}
		if ops, err := parseOps([]byte(patch)); err == nil {
			if now, err := applyOps(was, ops); err == nil {
				check(t, doc, now)
			}
		}
		was, _ = tree([]byte(doc))
		if p, err := tree([]byte(patch)); err == nil {
			check(t, doc, mergePatch(was, p))
		}
	})
}

func check(t *testing.T, like string, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if got := inOrderOf([]byte(like), v); !sameJSON(got, text) {
		t.Errorf("wrote %s, meant %s", got, text)
	}
}

// FuzzPaths: whatever is given as a path, selector or format is read or refused.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{".a[0].b", `{.a\.b[*]}`, "a=b,c in (d,e),!f", "x[", "custom-columns=A:.b,C:.d[*]", `jsonpath={.a}{"\n"}x`, "a.b!=c"} {
		f.Add(s)
	}
	doc, err := tree([]byte(newer))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		if path, err := parsePath(s); err == nil {
			_ = at(doc, path)
		}
		_, _ = parseLabels(s)
		_, _ = parseFields(s)
		_, _ = parseJSONPath(s)
		_, _ = parseColumns(s)
	})
}
