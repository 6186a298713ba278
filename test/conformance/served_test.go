package conformance

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/resources"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m.Run, kubetest.Config{})) }

var each = flag.Int("each", 1, "with more than 1, run a fixed sample on the API server: one of so many cases, and those of several steps, in two of the four ways")

// TestCyclonusOnAPIServer runs cyclonus' cases with all that they make in a real API server. There is one cluster for all of them.
func TestCyclonusOnAPIServer(t *testing.T) {
	k := newServed(t, kubetest.New(t, kubetest.Config{}))
	for _, k.form = range forms {
		for family, name := range []string{"IPv4", "IPv6"} {
			if *each > 1 && (k.form == "Chains") != (name == "IPv6") {
				continue
			}
			t.Log(k.form, name)
			k.runAll(family, *each)
			k.inForm(k.form)
			k.realised()
		}
	}
}

// served is a cluster that is in an API server. Agents learn it there, with the rights of their role and no others.
type served struct {
	*cluster
	server *kubetest.Server
	store  datastore.Client // as an administrator
	form   string           // policyRendering
	is     []document       // what cyclonus has put there
}

// document is an object of the API server, at its path there.
type document struct{ path, text string }

func newServed(t *testing.T, s *kubetest.Server) *served {
	k := &served{cluster: newCluster(t), server: s}
	k.enforcer = k
	twill := filepath.Join(t.TempDir(), "twill")
	output(t, "go", "build", "-C", "../..", "-o", twill, "./cmd/twill")
	s.Apply(t, output(t, twill, "kube", "crds"))
	s.Apply(t, output(t, twill, "kube", "agent", "--namespace", "kube-system"))
	account := s.KubeconfigFor(t, "kube-system", "twill-agent")
	var err error
	k.store, err = stores.Open(t.Context(), datastore.Config{Type: "kubernetes", Kubeconfig: s.Kubeconfig, QPS: 10_000, RequestTimeout: time.Minute})
	must(t, err)
	t.Cleanup(func() { must(t, k.store.Close()) })
	for _, h := range k.hosts {
		s.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: "+h.name+"}\n")
		k.start(h, twill, account)
	}
	return k
}

func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, said.String())
	}
	return string(out)
}

// start runs a host's agent until the test ends. Reports of drops come to this test, which has had their group before it: the agent does
// without, and says so.
func (k *served) start(h *host, twill, account string) {
	t := k.t
	u, err := url.Parse(k.server.URL)
	must(t, err)
	l, err := h.ListenTCP(netip.MustParseAddrPort(u.Host))
	must(t, err)
	go k.server.Forward(l)
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	cmd := exec.Command(twill, "agent", "--node", h.name, "--data-dir", dir)
	cmd.Env = append(os.Environ(), "DATASTORE_TYPE=kubernetes", "KUBECONFIG="+account, "TWILL_SOCKET="+filepath.Join(dir, "agent.sock"))
	cmd.Stdout, cmd.Stderr = log, log
	h.Do(func() { err = cmd.Start() })
	must(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s said:\n%s", h.name, text)
		}
	})
}

// joined has nothing to do: the pod's agent makes its routes.
func (k *served) joined(*pod) {}

// documents are what the API server is to have, what others need first.
func (k *served) documents(s *connectivity.TestCaseState) (out []document) {
	put := func(path string, o any) {
		text, err := yaml.Marshal(o)
		must(k.t, err)
		out = append(out, document{path, string(text)})
	}
	kind := func(version, name string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: version, Kind: name} }
	form := "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: {policyRendering: " + k.form + "}\n"
	out = append(out, document{"/apis/projectcalico.org/v3/felixconfigurations/default", form})
	for _, name := range slices.Sorted(maps.Keys(s.Resources.Namespaces)) {
		ns := probe.KubeNamespace(name, s.Resources.Namespaces[name])
		ns.TypeMeta = kind("v1", "Namespace")
		put("/api/v1/namespaces/"+name, ns)
		account := &corev1.ServiceAccount{TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
		put("/api/v1/namespaces/"+name+"/serviceaccounts/default", account)
	}
	for _, p := range s.Resources.Pods {
		o, no := k.kubePod(p), false
		o.TypeMeta, o.Spec.AutomountServiceAccountToken = kind("v1", "Pod"), &no
		put("/api/v1/namespaces/"+p.Namespace+"/pods/"+p.Name, o)
	}
	for _, p := range s.Policies {
		o := p.DeepCopy()
		o.TypeMeta = kind("networking.k8s.io/v1", "NetworkPolicy")
		put("/apis/networking.k8s.io/v1/namespaces/"+p.Namespace+"/networkpolicies/"+p.Name, o)
	}
	return out
}

// program changes in the API server what is to be other than it is there, and returns when both kernels are as an agent that starts now
// would make them.
func (k *served) program(s *connectivity.TestCaseState) []api.Update {
	k.t.Helper()
	want, is := k.documents(s), map[string]string{}
	for _, d := range slices.Backward(k.is) {
		if is[d.path] = d.text; !slices.ContainsFunc(want, func(w document) bool { return w.path == d.path }) {
			k.remove(d.path)
		}
	}
	for _, d := range want {
		old, there := is[d.path]
		if old != d.text {
			k.server.Apply(k.t, d.text)
		}
		if !there && strings.Contains(d.path, "/pods/") {
			k.server.ApplyStatus(k.t, d.text)
		}
	}
	k.is = want
	return k.settle()
}

func (k *served) remove(path string) {
	k.t.Helper()
	if name, is := strings.CutPrefix(path, "/api/v1/namespaces/"); is && !strings.Contains(name, "/") {
		must(k.t, k.server.RemoveNamespace(k.t.Context(), name))
		return
	}
	// A pod would else wait for its kubelet to say that it has ended.
	now := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
	must(k.t, k.server.Admin().Call(k.t.Context(), http.MethodDelete, path, now, nil))
}

// fixed is what a store had at one moment, by prefix.
type fixed struct {
	datastore.Store
	had map[string]datastore.Snapshot
}

func (f fixed) List(_ context.Context, prefix string) (datastore.Snapshot, error) {
	had, ok := f.had[prefix]
	if !ok {
		return had, fmt.Errorf("nobody was asked for %s", prefix)
	}
	return had, nil
}

// settle waits until the kernels are what the API server asks for now.
func (k *served) settle() []api.Update {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 3*time.Minute)
	defer cancel()
	now := fixed{had: map[string]datastore.Snapshot{}}
	for _, prefix := range []string{api.ResourcesPrefix, api.BlockPrefix} {
		var err error
		now.had[prefix], err = k.store.List(ctx, prefix)
		must(k.t, err)
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for _, h := range k.hosts {
		for {
			var is agent.Verified
			var err error
			h.Do(func() { is, err = agent.Verify(k.t.Context(), agent.Config{Node: h.name}, now) })
			if err == nil && len(is.Differences) == 0 {
				break
			}
			select {
			case <-look.C:
			case <-ctx.Done():
				k.t.Fatalf("%s: %v; its kernel is not what the API server asks for: %v", h.name, err, is.Differences)
			}
		}
	}
	return now.had[api.ResourcesPrefix].Items
}

// realised makes a policy, and waits until both agents say that all policies are in force as they are stored.
func (k *served) realised() {
	k.t.Helper()
	state := fresh(k.cluster)
	state.Policies = []*networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "last"}}}
	k.program(state)
	ctx, cancel := context.WithTimeout(k.t.Context(), 3*time.Minute)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		all, err := resources.Realised(ctx, k.store)
		late := 0
		for _, r := range all {
			if r.Nodes != len(k.hosts) || r.Where != r.Nodes {
				late++
			}
		}
		if err == nil && late == 0 && len(all) > 0 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			k.t.Fatalf("of %d policies %d are not in force on both nodes, by what their agents say: %v", len(all), late, err)
		}
	}
}
