// Package chart holds tests of the Helm chart by Helm's own code.
package chart

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
)

// twill is what the command prints; it must succeed.
func twill(t *testing.T, args ...string) string {
	t.Helper()
	return clitest.New(t, cli.Execute).Want(0, "", args...)
}

// render has Helm render the chart with values, as JSON.
func render(t *testing.T, namespace, values string) (string, error) {
	t.Helper()
	c, err := loader.LoadArchive(strings.NewReader(twill(t, "kube", "chart")))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	var set map[string]any
	if err := json.Unmarshal([]byte(values), &set); err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, set, chartutil.ReleaseOptions{Name: "twill", Namespace: namespace, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	var out strings.Builder
	for name, text := range files {
		if path.Ext(name) == ".yaml" {
			out.WriteString("---\n" + text)
		}
	}
	return out.String(), err
}

// objects are the documents of a manifest, as JSON by kind, namespace and name. What Helm is told of definitions is no part of them.
func objects(t *testing.T, manifest string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for doc := range strings.SplitSeq(manifest, "---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(o) == 0 {
			continue
		}
		meta, _ := o["metadata"].(map[string]any)
		if notes, is := meta["annotations"].(map[string]any); is && o["kind"] == "CustomResourceDefinition" {
			delete(notes, "helm.sh/resource-policy")
			if len(notes) == 0 {
				delete(meta, "annotations")
			}
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint(o["kind"], " ", meta["namespace"], " ", meta["name"])
		if out[name] != "" {
			t.Errorf("%s is there twice", name)
		}
		out[name] = string(text)
	}
	return out
}

// TestTheChartIsTheManifest: with the same values, Helm renders what `twill kube install` prints.
func TestTheChartIsTheManifest(t *testing.T) {
	for values, flags := range map[string][]string{
		`{"image": "twill:7"}`: nil,
		`{"image": "registry.example:5000/twill@sha256:0123", "group": "crd.projectcalico.org/v1", "backend": "none"}`:                         {"--image", "registry.example:5000/twill@sha256:0123", "--group", "crd.projectcalico.org/v1", "--backend", "none"},
		`{"image": "twill:7", "mtu": 1400, "backend": "vxlan", "pools": ["10.244.0.0/16", "fd00:10:244::/56"]}`:                                {"--mtu", "1400", "--backend", "vxlan", "--pool", "10.244.0.0/16,fd00:10:244::/56"},
		`{"image": "twill:7", "mtu": 65535, "pools": ["fd00::/48"], "bgpSecrets": ["tor", "bgp"]}`:                                             {"--mtu", "65535", "--pool", "fd00::/48", "--bgp-secrets", "tor,bgp"},
		`{"image": "twill:7", "podLinks": "eni"}`:                                                                                              {"--pod-links", "eni"},
		`{"image": "twill:7", "podLinks": "azv", "mtu": 1400, "group": "crd.projectcalico.org/v1", "bgpSecrets": ["tor"]}`:                     {"--pod-links", "azv", "--mtu", "1400", "--group", "crd.projectcalico.org/v1", "--bgp-secrets", "tor"},
		`{"image": "twill:7", "group": "crd.projectcalico.org/v1", "bgpSecrets": ["bgp"], "global": {"other": true}, "pools": ["10.0.0.0/8"]}`: {"--group", "crd.projectcalico.org/v1", "--bgp-secrets", "bgp", "--pool", "10.0.0.0/8"},
	} {
		if !slices.Contains(flags, "--image") {
			flags = append(flags, "--image", "twill:7")
		}
		for _, namespace := range []string{"kube-system", "calico-system"} {
			manifest, err := render(t, namespace, values)
			if err != nil {
				t.Errorf("%s: %v", values, err)
				continue
			}
			got, want := objects(t, manifest), objects(t, twill(t, append([]string{"kube", "install", "-n", namespace}, flags...)...))
			for name := range want {
				if got[name] != want[name] {
					t.Errorf("%s: %s\n is   %s\n want %s", values, name, got[name], want[name])
				}
				delete(got, name)
			}
			for name := range got {
				t.Errorf("%s: %s is in the chart alone", values, name)
			}
		}
	}
}

// TestANetworkIsTakenOver word for word, with what Calico's manifest has in it.
func TestANetworkIsTakenOver(t *testing.T) {
	network := "{\n  \"name\": \"k8s-pod-network\", \"plugins\": [{\"type\": \"calico\", \"mtu\": __CNI_MTU__, \"kubernetes\": {\"kubeconfig\": \"__KUBECONFIG_FILEPATH__\"}}, {\"note\": \"{{ 'quotes' }}\"}]\n}\n"
	values, err := json.Marshal(map[string]any{"image": "twill:7", "cniNetworkConfig": network})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := render(t, "kube-system", string(values))
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(objects(t, manifest)["ConfigMap kube-system twill-config"]), &config); err != nil || config.Data["cni_network_config"] != network {
		t.Errorf("%v, %q", err, config.Data["cni_network_config"])
	}
}

// TestHelmRefusesValuesThatMeanNothing, by name.
func TestHelmRefusesValuesThatMeanNothing(t *testing.T) {
	for values, want := range map[string]string{
		`{}`: "image",
		`{"image": "x", "imagePullPolicy": "Always"}`:                 "imagePullPolicy",
		`{"image": "x", "backend": "gossip"}`:                         "backend",
		`{"image": "x", "mtu": -1}`:                                   "mtu",
		`{"image": "x", "pools": ["everything"]}`:                     "pools",
		`{"image": "x", "pools": ["10.0.0.0/16", "10.1.0.0/16"]}`:     "one of each family",
		`{"image": "x", "group": "projectcalico.org/v2"}`:             "group",
		`{"image": "x", "bgpSecrets": "bgp"}`:                         "bgpSecrets",
		`{"image": "x", "podLinks": "cali"}`:                          "podLinks",
		`{"image": "x", "podLinks": "a name"}`:                        "podLinks",
		`{"image": "x", "podLinks": "eni", "backend": "vxlan"}`:       "leave out pools",
		`{"image": "x", "podLinks": "eni", "pools": ["10.0.0.0/16"]}`: "leave out pools",
	} {
		if _, err := render(t, "kube-system", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error that says %q", values, err, want)
		}
	}
}

// TestAnUninstallLeavesResources: without its definition, a resource is gone.
func TestAnUninstallLeavesResources(t *testing.T) {
	manifest, err := render(t, "kube-system", `{"image": "twill:7"}`)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for doc := range strings.SplitSeq(manifest, "---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Annotations map[string]string }
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind != "CustomResourceDefinition" {
			continue
		}
		if n++; o.Metadata.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("Helm would delete a definition:\n%.200s", doc)
		}
	}
	if n < 20 {
		t.Errorf("%d definitions", n)
	}
}
