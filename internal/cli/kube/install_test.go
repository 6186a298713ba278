package kube_test

import (
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
	for _, want := range []string{"DATASTORE_TYPE=kubernetes", "CALICO_IPV4POOL_CIDR=10.244.0.0/16", "CALICO_IPV6POOL_CIDR=fd00::/56", "CALICO_API_GROUP=projectcalico.org/v3"} {
		if !slices.Contains(env, want) {
			t.Errorf("its environment has no %s: %v", want, env)
		}
	}
	if got := all["Deployment twill-kube-controllers"].Spec.Template.Spec; got.Containers[0].Image != "twill:7" {
		t.Errorf("the Deployment runs %+v", got)
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
	} {
		c.Want(2, "", append([]string{"kube", "install"}, args...)...)
	}
}
