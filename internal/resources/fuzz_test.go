package resources

import (
	"encoding/json"
	"testing"
)

const fuzzed = `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","namespace":"prod","uid":"u1","stamp":"s"},` +
	`"spec":{"tier":"default","order":5,"ingress":[{"action":"Allow","http":{"methods":["GET"]},"later":[1]}],"selector":"all()","types":["Ingress"],"newer":7}}`

// FuzzPatch: no patch panics, and what is written says what was meant.
func FuzzPatch(f *testing.F) {
	f.Add(fuzzed, `{"spec":{"order":null,"newer":[1,{"a":2}]}}`)
	f.Add(fuzzed, `[{"op":"copy","from":"/spec","path":"/spec/in"},{"op":"move","from":"/spec/ingress/0","path":"/metadata/x~1y"},{"op":"test","path":"","value":1}]`)
	f.Add(`[1,{"a":[]},null]`, `[{"op":"add","path":"/1/a/-","value":1e400},{"op":"remove","path":""}]`)
	f.Add(`{"a":1,"a":2}`, `{}`)
	f.Add(`{"metadata":{"finalizers":["a","b"],"ownerReferences":[{"uid":"1"},{"uid":"2"}]}}`, `{"metadata":{"finalizers":["c"],"$setElementOrder/finalizers":["c","a"],"$deleteFromPrimitiveList/finalizers":["b"],`+
		`"ownerReferences":[{"uid":"1","$patch":"delete"}],"$retainKeys":["finalizers","ownerReferences"]},"spec":{"$patch":"replace"}}`)
	f.Fuzz(func(t *testing.T, doc, patch string) {
		was, err := Tree([]byte(doc))
		if err != nil || !json.Valid([]byte(doc)) {
			return
		}
		if ops, err := ParseOps([]byte(patch)); err == nil {
			if now, err := ApplyOps(was, ops); err == nil {
				check(t, doc, now)
			}
		}
		was, _ = Tree([]byte(doc))
		if p, err := Tree([]byte(patch)); err == nil {
			check(t, doc, MergePatch(was, p))
			was, _ = Tree([]byte(doc))
			if now, err := StrategicPatch(was, p); err == nil {
				check(t, doc, now)
			}
		}
	})
}

func check(t *testing.T, like string, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if got := InOrderOf([]byte(like), v); !sameJSON(got, text) {
		t.Errorf("wrote %s, meant %s", got, text)
	}
}
