package kube_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// TestWhatControllersNeedIsPrinted: each document is an object, and the Deployment is there if an image is.
func TestWhatControllersNeedIsPrinted(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	kinds := func(args ...string) (out []string) {
		for doc := range strings.SplitSeq(c.Want(0, "", append([]string{"kube", "controllers", "-n", "calico-system"}, args...)...), "---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Name, Namespace string }
			}
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatal(err)
			}
			if doc != "" && (o.Metadata.Name != "twill-kube-controllers" || o.Metadata.Namespace != "" && o.Metadata.Namespace != "calico-system") {
				t.Errorf("%+v", o)
			}
			out = append(out, o.Kind)
		}
		return out
	}
	const account = " ServiceAccount ClusterRole ClusterRoleBinding Role RoleBinding"
	if got := strings.Join(kinds(), " "); got != account {
		t.Errorf("got %q", got)
	}
	if got := strings.Join(kinds("--image", "twill:1", "--group", "crd.projectcalico.org/v1"), " "); got != account+" Deployment" {
		t.Errorf("got %q", got)
	}
	c.Want(2, "", "kube", "controllers", "--group", "projectcalico.org/v2")
	if got := strings.Join(kinds("--with-etcd"), " "); got != account {
		t.Errorf("got %q", got)
	}
	c.Want(2, "", "kube", "controllers", "--with-etcd", "--image", "twill:1")
}

// TestWhatGuardsAClusterIsPrinted: definitions, and policies of the API server with what puts them in force, which can be left out in part.
func TestWhatGuardsAClusterIsPrinted(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	policies := func(args ...string) (out []string) {
		for doc := range strings.SplitSeq(c.Want(0, "", append([]string{"kube", "crds"}, args...)...), "---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(o.Kind, "Validating") {
				out = append(out, o.Kind+" "+o.Metadata.Name)
			}
		}
		return out
	}
	const (
		tiers = "ValidatingAdmissionPolicy builtin-tiers.twill.net, ValidatingAdmissionPolicyBinding builtin-tiers.twill.net"
		rbac  = ", ValidatingAdmissionPolicy tiered-rbac.twill.net, ValidatingAdmissionPolicyBinding tiered-rbac.twill.net"
	)
	for want, args := range map[string][]string{tiers + rbac: nil, tiers: {"--tiered-rbac=false"}, "": {"--group", "crd.projectcalico.org/v1"}} {
		if got := strings.Join(policies(args...), ", "); got != want {
			t.Errorf("%v: got %q, want %q", args, got, want)
		}
	}
	c.Want(2, "", "kube", "crds", "--group", "crd.projectcalico.org/v1", "--tiered-rbac")
}

func TestAProbeAsksTheControllers(t *testing.T) {
	c, code := clitest.New(t, cli.Execute), http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte("answer of " + r.URL.Path + "\n"))
	}))
	at := strings.TrimPrefix(s.URL, "http://")
	if got := c.Want(0, "", "kube-controllers", "check", "--health", at); got != "answer of /readiness\n" {
		t.Errorf("got %q", got)
	}
	if got := c.Want(0, "", "kube-controllers", "check", "--live", "--health", at); got != "answer of /liveness\n" {
		t.Errorf("got %q", got)
	}
	code = http.StatusServiceUnavailable
	if got := c.Want(1, "", "kube-controllers", "check", "--health", at); got != "twill: answer of /readiness\n" {
		t.Errorf("got %q", got)
	}
	s.Close()
	if got := c.Want(1, "", "kube-controllers", "check", "--health", at); !strings.Contains(got, "the controllers do not answer") {
		t.Errorf("got %q", got)
	}
}

// TestControllersAreRefusedByName: without a cluster, and with a variable that is wrong.
func TestControllersAreRefusedByName(t *testing.T) {
	clitest.ClearStoreEnv(t)
	c := clitest.New(t, cli.Execute)
	if got := c.Want(1, "", "kube-controllers"); !strings.Contains(got, "no cluster is named") {
		t.Errorf("got %q", got)
	}
	t.Setenv("DATASTORE_TYPE", "kubernetes")
	t.Setenv("ENABLED_CONTROLLERS", "pods")
	if got := c.Want(1, "", "kube-controllers"); !strings.Contains(got, "ENABLED_CONTROLLERS") {
		t.Errorf("got %q", got)
	}
}
