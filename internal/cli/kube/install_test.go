package kube_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
)

// container is what a test reads of one.
type container struct {
	Name, Image string
	Env         []struct{ Name, Value string }
}

// object is what a test reads of a document.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Spec struct {
				ServiceAccountName         string
				HostNetwork                bool
				InitContainers, Containers []container
			}
		}
	}
}

// TestOneManifestInstalls: the definitions come first, then accounts, and then what uses them; a namespace and an image are those of all.
func TestOneManifestInstalls(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	var kinds []string
	all := map[string]object{}
	for doc := range strings.SplitSeq(c.Want(0, "", "kube", "install", "--image", "twill:7", "--pool", "10.244.0.0/16,fd00::/56", "--mtu", "1400", "--backend", "vxlan", "-n", "calico-system"), "---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if o.Metadata.Namespace != "" && o.Metadata.Namespace != "calico-system" {
			t.Errorf("%s %s is in %s", o.Kind, o.Metadata.Name, o.Metadata.Namespace)
		}
		if o.Kind != "" && (len(kinds) == 0 || kinds[len(kinds)-1] != o.Kind) {
			kinds = append(kinds, o.Kind)
		}
		all[o.Kind+" "+o.Metadata.Name] = o
	}
	if last := slices.Index(kinds, "DaemonSet"); kinds[0] != "CustomResourceDefinition" || slices.Index(kinds, "ServiceAccount") > last || slices.Index(kinds, "ConfigMap") > last {
		t.Errorf("in the order %v", kinds)
	}
	if got := all["ConfigMap twill-config"].Data; got["calico_backend"] != "vxlan" || got["veth_mtu"] != "1400" || got["cni_network_config"] != "" {
		t.Errorf("the ConfigMap has %v", got)
	}
	pod := all["DaemonSet twill-node"].Spec.Template.Spec
	if !pod.HostNetwork || pod.ServiceAccountName != "twill-node" || len(pod.InitContainers) != 1 || pod.InitContainers[0].Image != "twill:7" || pod.Containers[0].Image != "twill:7" {
		t.Errorf("the DaemonSet runs %+v", pod)
	}
	var env []string
	for _, e := range pod.Containers[0].Env {
		env = append(env, e.Name+"="+e.Value)
	}
	for _, want := range []string{"DATASTORE_TYPE=kubernetes", "CALICO_IPV4POOL_CIDR=10.244.0.0/16", "CALICO_IPV6POOL_CIDR=fd00::/56", "CALICO_API_GROUP=projectcalico.org/v3", "FELIX_DEFAULTENDPOINTTOHOSTACTION=Accept"} {
		if !slices.Contains(env, want) {
			t.Errorf("its environment has no %s: %v", want, env)
		}
	}
	if got := all["Deployment twill-kube-controllers"].Spec.Template.Spec; got.Containers[0].Image != "twill:7" {
		t.Errorf("the Deployment runs %+v", got)
	}
}

// TestWithoutDefinitionsTheRestIsThere: deleted, it leaves the resources.
func TestWithoutDefinitionsTheRestIsThere(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	all := c.Want(0, "", "kube", "install", "--image", "x")
	rest := c.Want(0, "", "kube", "install", "--image", "x", "--definitions=false")
	if definitions := c.Want(0, "", "kube", "crds"); definitions+rest != all || strings.Contains(rest, "CustomResourceDefinition") || !strings.Contains(rest, "kind: DaemonSet") {
		t.Errorf("%d bytes of definitions and %d of the rest, of %d", len(definitions), len(rest), len(all))
	}
}

// TestMonitoringIsPrintedWholeOrInParts: what it asks for is tested with Prometheus' own parser, in test/monitoring.
func TestMonitoringIsPrintedWholeOrInParts(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	all := c.Want(0, "", "kube", "monitoring", "-n", "calico-system")
	for _, want := range []string{"kind: PodMonitor", "kind: PrometheusRule", "kind: ConfigMap", "namespace: calico-system", "twill_dataplane_settled == 0"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if board := c.Want(0, "", "kube", "monitoring", "--dashboard"); !strings.HasPrefix(board, "{") {
		t.Errorf("the dashboard is %.40s", board)
	}
	if rules := c.Want(0, "", "kube", "monitoring", "--rules"); !strings.HasPrefix(rules, "groups:") {
		t.Errorf("the alerts are %.40s", rules)
	}
	c.Want(2, "", "kube", "monitoring", "--dashboard", "--rules")
}

// TestAChartIsWrittenOnce: what its files say is tested with Helm's own code, in test/conformance/chart.
func TestAChartIsWrittenOnce(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	if one, other := c.Want(0, "", "kube", "chart"), c.Want(0, "", "kube", "chart"); one != other || !strings.HasPrefix(one, "\x1f\x8b") {
		t.Errorf("two charts of one version: %d and %d bytes, from %x", len(one), len(other), one[:2])
	}
	dir := filepath.Join(t.TempDir(), "deploy", "twill")
	c.Want(0, "", "kube", "chart", "--dir", dir)
	if text, err := os.ReadFile(filepath.Join(dir, "templates", "projectcalico.org-v3.yaml")); err != nil || !strings.Contains(string(text), "{{ .Values.image | quote }}") {
		t.Errorf("%v in %.100s", err, text)
	}
	c.Want(2, "", "kube", "chart", "--dir", dir)
}

func TestANetworkOfAFileIsInTheConfigMap(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	path := filepath.Join(t.TempDir(), "network")
	for text, code := range map[string]int{`{"name": "k8s-pod-network", "plugins": [{"type": "calico"}]}`: 0, `{"name": `: 2} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out := c.Want(code, "", "kube", "install", "--image", "x", "--cni-network-config", path)
		if code == 0 && !strings.Contains(out, `cni_network_config: '`+text+`'`) {
			t.Errorf("%s is not in the ConfigMap", text)
		}
	}
	c.Want(1, "", "kube", "install", "--image", "x", "--cni-network-config", path+".missing")
}

// TestWithAnotherPluginOursIsNotInstalled: nothing of the manifest would take its place.
func TestWithAnotherPluginOursIsNotInstalled(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	const installs = "name: install-cni"
	if out := c.Want(0, "", "kube", "install", "--image", "x", "--pool", "10.0.0.0/16"); !strings.Contains(out, installs) || strings.Contains(out, "FELIX_INTERFACEPREFIX") {
		t.Error("without the flag no plugin is installed, or interfaces have other names")
	}
	out := c.Want(0, "", "kube", "install", "--image", "x", "--pod-links", "eni")
	clitest.Contains(t, out, "name: FELIX_INTERFACEPREFIX\n          value: eni\n", "calico_backend: none\n", "initContainers: []\n")
	if strings.Contains(out, installs) {
		t.Error("the plugin is installed")
	}
}

func TestAManifestThatWouldNotDoIsRefused(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	for _, args := range [][]string{
		{},
		{"--image", "x", "--group", "projectcalico.org/v2"},
		{"--image", "x", "--backend", "gossip"},
		{"--image", "x", "--mtu", "-1"},
		{"--image", "x", "--pool", "10.0.0.0"},
		{"--image", "x", "--pool", "10.0.0.0/16,10.1.0.0/16"},
		{"--image", "x", "--pod-links", "a name"},
		{"--image", "x", "--pod-links", "cali"},
		{"--image", "x", "--pod-links", "eni", "--pool", "10.0.0.0/16"},
		{"--image", "x", "--pod-links", "eni", "--backend", "vxlan"},
	} {
		c.Want(2, "", append([]string{"kube", "install"}, args...)...)
	}
	c.Want(2, "", "kube", "uninstall")
}
