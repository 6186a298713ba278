package crds

import (
	"testing"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

func TestEachKindThatACustomResourceHoldsHasADefinition(t *testing.T) {
	for _, g := range []form.Group{form.V3, form.V1} {
		seen := map[string]bool{}
		for _, d := range Definitions(g) {
			name := d["metadata"].(map[string]any)["name"].(string)
			if seen[name] {
				t.Errorf("%s: %s is there twice", g, name)
			}
			seen[name] = true
			spec := d["spec"].(map[string]any)
			if spec["names"].(map[string]any)["kind"] == "" {
				t.Errorf("%s: %s has no kind", g, name)
			}
		}
		for _, k := range form.Kinds(g) {
			if custom := len(k.Path) > 6 && k.Path[6:] == string(g) || k.Path[6:] == string(form.Own); custom && !seen[k.Plural+"."+groupName(k.Path)] {
				t.Errorf("%s: %s has no definition", g, k.Plural)
			}
		}
	}
}

func groupName(path string) string {
	path = path[len("/apis/"):]
	for i := range path {
		if path[i] == '/' {
			return path[:i]
		}
	}
	return path
}
