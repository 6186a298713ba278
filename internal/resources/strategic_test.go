package resources

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestStrategicPatch: what k8s.io/apimachinery v0.37.2 makes of the same, decision 123 says how that was compared.
func TestStrategicPatch(t *testing.T) {
	const doc = `{"metadata":{"name":"n","labels":{"a":"1","b":"2"},"finalizers":["x","y","z"],` +
		`"ownerReferences":[{"uid":"1","kind":"Pod","name":"p"},{"uid":"2","kind":"Node"}]},"spec":{"nets":["10.0.0.0/8","11.0.0.0/8"],"rules":[{"action":"Allow"}],"bgp":{"as":1,"ip":"2"}}}`
	for _, tt := range []struct{ name, patch, want string }{
		{"a field", `{"spec":{"bgp":{"as":7}}}`, `spec.bgp={"as":7,"ip":"2"}`},
		{"null removes", `{"spec":{"bgp":{"as":null,"no":null}}}`, `spec.bgp={"ip":"2"}`},
		{"a list is replaced", `{"spec":{"nets":["12.0.0.0/8"]}}`, `spec.nets=["12.0.0.0/8"]`},
		{"a new object has no nulls", `{"spec":{"new":{"a":null,"b":{"c":null}}}}`, `spec.new={"b":{}}`},
		{"another type is taken as it is", `{"spec":{"nets":{"a":1}}}`, `spec.nets={"a":1}`},

		{"finalizers are added", `{"metadata":{"finalizers":["w","y"]}}`, `metadata.finalizers=["w","x","y","z"]`},
		{"first ones", `{"metadata":{"finalizers":["w"]}}`, `metadata.finalizers=["w","x","y","z"]`},
		{"none", `{"metadata":{"finalizers":[]}}`, `metadata.finalizers=["x","y","z"]`},
		{"all go", `{"metadata":{"finalizers":null}}`, `metadata.finalizers=<nil>`},
		{"some go", `{"metadata":{"$deleteFromPrimitiveList/finalizers":["x","no"]}}`, `metadata.finalizers=["y","z"]`},
		{"one comes, one goes", `{"metadata":{"finalizers":["w"],"$deleteFromPrimitiveList/finalizers":["x"]}}`, `metadata.finalizers=["w","y","z"]`},
		{"of a list that is replaced, too", `{"spec":{"$deleteFromPrimitiveList/nets":["10.0.0.0/8"]}}`, `spec.nets=["11.0.0.0/8"]`},
		{"of a list that is not there", `{"spec":{"$deleteFromPrimitiveList/none":["a"]}}`, `spec.none=<nil>`},
		{"order alone", `{"metadata":{"$setElementOrder/finalizers":["z","x"]}}`, `metadata.finalizers=["y","z","x"]`},
		{"order and change", `{"metadata":{"$setElementOrder/finalizers":["z","w","x"],"finalizers":["w"]}}`, `metadata.finalizers=["y","z","w","x"]`},
		{"order of what is not there", `{"spec":{"$setElementOrder/none":["a"]}}`, `spec.none=<nil>`},
		{"order of a list that is replaced", `{"spec":{"$setElementOrder/nets":["b","a"],"nets":["b","a"]}}`, `spec.nets=["b","a"]`},

		{"an owner is changed", `{"metadata":{"ownerReferences":[{"uid":"1","name":"q"}]}}`, `metadata.ownerReferences=[{"kind":"Pod","name":"q","uid":"1"},{"kind":"Node","uid":"2"}]`},
		{"an owner is added", `{"metadata":{"ownerReferences":[{"uid":"3"}]}}`, `metadata.ownerReferences=[{"uid":"3"},{"kind":"Pod","name":"p","uid":"1"},{"kind":"Node","uid":"2"}]`},
		{"an owner goes", `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"1"}]}}`, `metadata.ownerReferences=[{"kind":"Node","uid":"2"}]`},
		{"all owners are replaced", `{"metadata":{"ownerReferences":[{"uid":"9"},{"$patch":"replace"}]}}`, `metadata.ownerReferences=[{"uid":"9"}]`},
		{"owners in order", `{"metadata":{"$setElementOrder/ownerReferences":[{"uid":"2"},{"uid":"1"}]}}`, `metadata.ownerReferences=[{"kind":"Node","uid":"2"},{"kind":"Pod","name":"p","uid":"1"}]`},

		{"an object is replaced", `{"spec":{"bgp":{"$patch":"replace","as":5}}}`, `spec.bgp={"as":5}`},
		{"an object is emptied", `{"spec":{"bgp":{"$patch":"delete"}}}`, `spec.bgp={}`},
		{"one that is not there is not made", `{"spec":{"none":{"$patch":"delete"}}}`, `spec.none=<nil>`},
		{"keys are retained", `{"spec":{"bgp":{"$retainKeys":["ip"],"ip":"3"}}}`, `spec.bgp={"ip":"3"}`},
		{"labels too", `{"metadata":{"labels":{"$retainKeys":["b","c"],"c":"3"}}}`, `metadata.labels={"b":"2","c":"3"}`},

		{"keys that the patch sets must be retained", `{"spec":{"bgp":{"$retainKeys":["ip"],"as":3}}}`, "spec.bgp.$retainKeys: as is not in it, and the patch sets it"},
		{"what is no list retains nothing", `{"spec":{"bgp":{"$retainKeys":"ip"}}}`, "spec.bgp.$retainKeys: it is ip: want a list of fields"},
		{"a directive that is none", `{"spec":{"bgp":{"$patch":"remove"}}}`, "spec.bgp.$patch: it is remove: want delete or replace"},
		{"merge, which upstream refuses, too", `{"metadata":{"ownerReferences":[{"$patch":"merge","uid":"1"}]}}`, "metadata.ownerReferences.$patch: it is merge"},
		{"an owner without uid", `{"metadata":{"ownerReferences":[{"name":"q"}]}}`, "an element has no uid"},
		{"an owner without uid cannot go", `{"metadata":{"ownerReferences":[{"$patch":"delete"}]}}`, "an element has no uid"},
		{"an owner that is none", `{"metadata":{"ownerReferences":["q"]}}`, "an element is q: want an object with uid"},
		{"a finalizer that is none", `{"metadata":{"finalizers":[{"a":1}]}}`, "is no scalar"},
		{"no list to delete", `{"metadata":{"$deleteFromPrimitiveList/finalizers":"x"}}`, "want a list of elements"},
		{"objects are not deleted so", `{"spec":{"$deleteFromPrimitiveList/rules":[{"action":"Allow"}]}}`, "is no scalar"},
		{"objects without a key have no order", `{"spec":{"$setElementOrder/rules":[{"action":"Allow"}]}}`, "is no scalar"},
		{"no order", `{"metadata":{"$setElementOrder/finalizers":7}}`, "want a list of elements in their order"},
		{"no list to order", `{"metadata":{"$setElementOrder/name":["n"]}}`, "n is no list, and has no order"},
		{"a change outside of the order", `{"metadata":{"$setElementOrder/finalizers":["x"],"finalizers":["w"]}}`, "metadata.finalizers: w is not in $setElementOrder"},
		{"a change in another order", `{"metadata":{"$setElementOrder/finalizers":["x","w"],"finalizers":["w","x"]}}`, "x is not in $setElementOrder, or at another place"},
		{"a directive in a list that is replaced", `{"spec":{"rules":[{"$patch":"delete","action":"Allow"}]}}`, "spec.rules.$patch: there is nothing here that it could be done to"},
		{"a directive to what is not there", `{"spec":{"new":{"$retainKeys":["a"],"a":1}}}`, "spec.new.$retainKeys: there is nothing"},
		{"no object", `[1]`, "want an object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			was, patch := tree(t, doc), tree(t, tt.patch)
			now, err := StrategicPatch(was, patch)
			path, want, ok := strings.Cut(tt.want, "=")
			if !ok {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, %v, want %q", now, err, tt.want)
				}
				return
			}
			for name := range strings.SplitSeq(path, ".") {
				m, _ := now.(map[string]any)
				now = m[name]
			}
			got, _ := json.Marshal(now)
			if now == nil {
				got = []byte("<nil>")
			}
			if err != nil || string(got) != want {
				t.Errorf("got  %s, %v\nwant %s", got, err, want)
			}
			if a, b := must(json.Marshal(was)), must(json.Marshal(tree(t, doc))); string(a) != string(b) {
				t.Errorf("the document was changed: %s", a)
			}
			if a, b := must(json.Marshal(patch)), must(json.Marshal(tree(t, tt.patch))); string(a) != string(b) {
				t.Errorf("the patch was changed: %s", a)
			}
		})
	}
}

func tree(t *testing.T, text string) any {
	t.Helper()
	v, err := Tree([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func must(b []byte, _ error) []byte { return b }
