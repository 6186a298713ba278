package show_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/resources"
)

// TestEveryKindTakesEveryCommand walks documents as upstream's tools store
// them through all commands; each kind must be among them.
func TestEveryKindTakesEveryCommand(t *testing.T) {
	const dir = "../../api/testdata/golden"
	docs := map[string]string{ // and those of which there is no golden form
		"stagedglobalnetworkpolicies/try":        `{"kind":"StagedGlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"try"},"spec":{"stagedAction":"Set","tier":"default","selector":"all()","types":["Ingress"]}}`,
		"kubecontrollersconfigurations/default":  `{"kind":"KubeControllersConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled"}}}},"status":{}}`,
		"kubernetesendpointslices/prod/db-1":     `{"kind":"KubernetesEndpointSlice","apiVersion":"projectcalico.org/v3","metadata":{"name":"db-1","namespace":"prod","labels":{"kubernetes.io/service-name":"db"}},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.2"],"conditions":{"ready":true}}],"ports":[{"name":"sql","protocol":"TCP","port":5432}]}`,
		"kubernetesservices/prod/db":             `{"kind":"KubernetesService","apiVersion":"projectcalico.org/v3","metadata":{"name":"db","namespace":"prod"},"spec":{"type":"ClusterIP","clusterIPs":["10.96.0.9"]},"status":{}}`,
		"stagedkubernetesnetworkpolicies/prod/k": `{"kind":"StagedKubernetesNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"k","namespace":"prod"},"spec":{"stagedAction":"Set","podSelector":{},"policyTypes":["Ingress"]}}`,
	}
	left := map[string]bool{}
	for _, k := range api.Kinds() {
		left[k.Kind] = !k.View && k.Kind != api.KindIPAMConfiguration // see TestViewsOfAddressManagement
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		value, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		docs[strings.TrimSuffix(strings.TrimPrefix(path, dir+"/"), ".json")] = string(value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range docs {
		st, err := api.DecodeStored(api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)})
		if err != nil {
			t.Fatal(err)
		}
		delete(left, st.Ref.Kind)
		t.Run(key, func(t *testing.T) { everyCommand(t, key, value, st) })
	}
	for kind, missing := range left {
		if missing {
			t.Errorf("no document of kind %s", kind)
		}
	}
}

func everyCommand(t *testing.T, key, value string, st api.Stored) {
	ref := st.Ref
	from := newCLI(t)
	from.Raw(key, value)
	args := func(verb string, more ...string) []string {
		out := append([]string{verb, strings.ToLower(ref.Kind), ref.Name}, more...)
		if ref.Namespace != "" {
			out = append(out, "-n", ref.Namespace)
		}
		return out
	}
	doc := from.Want(0, "", args("get", "--export", "-o", "yaml")...)
	c := newCLI(t)
	if tier := resources.TierName(st.Resource); tier != "" && tier != api.TierDefault {
		c.Want(0, "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: "+tier+"}\nspec: {order: 7}", "apply", "-f", "-")
	}
	name := resources.Short(ref)
	for _, s := range []struct {
		in, want string
		args     []string
	}{
		{doc, "valid", []string{"validate", "-f", "-"}},
		{doc, name + " created", []string{"create", "-f", "-"}},
		{doc, name + " unchanged", []string{"apply", "-f", "-"}},
		{"", name + " labeled", args("label", "own=label")},
		{"", name + " patched", args("patch", "-p", "metadata: {annotations: {own: note}}")},
		{doc, name + " replaced", []string{"replace", "-f", "-"}},
		{"", "Findings:", args("describe")},
		{"", ref.Name, args("get", "-o", "wide")},
	} {
		clitest.Contains(t, c.Want(0, s.in, s.args...), s.want)
	}
	out, errs, stop := watching(c, "get "+strings.ToLower(ref.Kind)+" -A -w")
	go discard(errs)
	next(t, out, "CHANGE")
	for out.Scan() && !strings.Contains(out.Text(), ref.Name) { // those of which there are some in every cluster
		continue
	}
	clitest.Contains(t, out.Text(), "added", ref.Name)
	if code := stop(); code != 0 {
		t.Errorf("a watch ends with %d", code)
	}
	clitest.Contains(t, c.Want(0, "", args("delete")...), name+" deleted")
}
