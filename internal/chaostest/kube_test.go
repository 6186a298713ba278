package chaostest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/lab"
	"github.com/twillnet/twill/internal/outagetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m.Run, kubetest.Config{})) }

// The faults of a run that is not asked for any, always the same: those of which an agent must read all again, and an outage.
const (
	sampleSeed  = 17
	sampleKinds = "api-expired,api-watches-broken,api-lists-old,api-answers-garbled,api-killed,store-hung"
)

// TestChaosOnAPIServer breaks a network whose resources are in a real API server: what lies before the server, its answers, the server itself.
func TestChaosOnAPIServer(t *testing.T) {
	s := kubetest.New(t, kubetest.Config{})
	if *length == 0 && *kinds == "" {
		*seed, *kinds = sampleSeed, sampleKinds
	}
	chaos(t, s, "make kube-chaos")
}

// kube is the API server of a network.
type kube struct {
	server  *kubetest.Server
	wrong   *kubetest.Proxy // what can answer wrongly
	onHosts string          // kubeconfig
	via     string          // who answers the hosts now: the server, or wrong

	levers []lever
	off    map[string]bool // by name of a lever
	rng    *rand.Rand      // which one is taken
}

// lever is one of the things that must all be so for toggled flows to be allowed.
type lever struct {
	name    string
	objects []string // paths
	on, off string   // merge patches
}

// onAPIServer is where the lab keeps its resources, behind a proxy.
func (n *network) onAPIServer(t *testing.T, s *kubetest.Server) *lab.Cluster {
	t.Helper()
	definitions, err := exec.CommandContext(t.Context(), n.exe, "kube", "crds").Output()
	must(t, err)
	s.Apply(t, string(definitions))
	k := &kube{server: s, wrong: s.Proxy(t, "3"), off: map[string]bool{}, rng: rand.New(rand.NewPCG(*seed, 1<<40))}
	n.kube, k.via = k, k.direct()
	return &lab.Cluster{
		Kubeconfig: s.Kubeconfig,
		At: func(address string) string {
			k.onHosts = s.KubeconfigAt(t, address)
			return k.onHosts
		},
		Forward:     func(l net.Listener) { n.proxy = outagetest.Serve(l, "http://"+k.via) },
		Apply:       func(manifests string) { s.Apply(t, manifests) },
		ApplyStatus: func(manifests string) { s.ApplyStatus(t, manifests) },
		Stop:        func() { s.Kill(t) },
		Start:       func() { s.Restart(t) },
	}
}

// direct is the server's own address.
func (k *kube) direct() string { return strings.TrimPrefix(k.server.URL, "https://") }

// through has hosts reach the server by another way, and waits until all works again: between two faults.
func (w *world) through(ctx context.Context, address string) error {
	if w.kube.via == address {
		return nil
	}
	w.kube.via = address
	w.proxy.To("http://" + address)
	_, err := w.settled(ctx, *patience)
	return err
}

// isolation is Kubernetes' own policy of toggled flows, after one of Calico's that passes them on.
const isolation = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: toggle, namespace: default}
spec: {podSelector: {matchLabels: {app: toggle}}, policyTypes: [Ingress]}
`

// prepare has toggled flows depend on policies of both kinds and on labels of pods and of their namespace, and allows them.
func (k *kube) prepare(t *testing.T, toggle string) {
	t.Helper()
	k.server.Apply(t, isolation)
	var clients []string
	for _, h := range hosts {
		clients = append(clients, "/api/v1/namespaces/default/pods/c"+h[1:])
	}
	calico := "/apis/projectcalico.org/v3/globalnetworkpolicies/" + toggle[strings.LastIndexByte(toggle, '/')+1:]
	from := `{"podSelector":{"matchLabels":{"app":"client","trusted":"yes"}},"namespaceSelector":{"matchLabels":{"open":"yes"}}}`
	labels := func(text string) string { return `{"metadata":{"labels":{` + text + `}}}` }
	k.levers = []lever{
		{"a policy of Calico's", []string{calico}, `{"spec":{"ingress":[{"action":"Pass"}]}}`, `{"spec":{"ingress":[{"action":"Deny"}]}}`},
		{"a policy of Kubernetes'", []string{"/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/toggle"}, `{"spec":{"ingress":[{"from":[` + from + `]}]}}`, `{"spec":{"ingress":[]}}`},
		{"labels of pods", clients, labels(`"trusted":"yes"`), labels(`"trusted":null`)},
		{"a label of the namespace", []string{"/api/v1/namespaces/default"}, labels(`"open":"yes"`), labels(`"open":null`)},
	}
	for _, l := range k.levers {
		must(t, k.pull(t.Context(), l, false))
	}
}

// pull has a lever on or off.
func (k *kube) pull(ctx context.Context, l lever, off bool) error {
	body := l.on
	if off {
		body = l.off
	}
	for _, path := range l.objects {
		if err := k.patch(ctx, path, "application/merge-patch+json", body); err != nil {
			return err
		}
	}
	k.off[l.name] = off
	return nil
}

// patch changes an object, past all proxies.
func (k *kube) patch(ctx context.Context, path, contentType, body string) error {
	resp, err := k.server.Admin().Do(ctx, http.MethodPatch, path, contentType, []byte(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("patch %s: %s: %s", path, resp.Status, answer)
	}
	return err
}

// write allows toggled flows, or denies them by one of what they depend on.
func (k *kube) write(ctx context.Context, allow bool) error {
	if !allow {
		return k.pull(ctx, k.levers[k.rng.IntN(len(k.levers))], true)
	}
	for _, l := range k.levers {
		if k.off[l.name] {
			if err := k.pull(ctx, l, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// decided is what the server has of toggled flows.
type decided struct {
	allowed bool
	off     map[string]bool
}

func (w *world) decided() decided { return decided{w.allowed, maps.Clone(w.kube.off)} }

// became notes that the server has what it had before.
func (w *world) became(s decided) {
	w.allowed, w.kube.off = s.allowed, maps.Clone(s.off)
	w.logf("  policy of toggled flows as it was: allow %v", s.allowed)
}

// churned is what changes all the time beside toggled flows: paths with a number, NAME, and bodies with another, VALUE.
var churned = []struct{ path, body string }{
	{
		"/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/churn-NAME",
		`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"churn-NAME"},"spec":{"podSelector":{"matchLabels":{"app":"server"}},"policyTypes":["Ingress"],"ingress":[{"from":[{"ipBlock":{"cidr":"198.51.100.VALUE/32"}}]}]}}`,
	},
	{
		"/apis/projectcalico.org/v3/globalnetworksets/churn-NAME",
		`{"apiVersion":"projectcalico.org/v3","kind":"GlobalNetworkSet","metadata":{"name":"churn-NAME","labels":{"net":"burst"}},"spec":{"nets":["198.51.100.VALUE/32"]}}`,
	},
	{"/api/v1/namespaces/churn-NAME", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"churn-NAME","labels":{"open":"VALUE"}}}`},
	{"/api/v1/namespaces/default/pods/POD", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"POD","labels":{"churn":"VALUE"}}}`},
}

// churn changes policies, namespaces, sets and labels of pods until it is ended, on which no verdict about flows depends. What the server cannot
// take while it is away is left out. Of an etcd there is none.
func (w *world) churn(ctx context.Context, seed uint64) (end func()) {
	if w.kube == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	rng := rand.New(rand.NewPCG(seed, 1))
	var work sync.WaitGroup
	made := 0
	work.Go(func() {
		for ctx.Err() == nil {
			if w.kube.change(ctx, rng) == nil {
				made++
			}
			wait(ctx, span(rng, 20*time.Millisecond, 200*time.Millisecond))
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		work.Wait()
		w.logf("  %d other changes", made)
	})
}

// change makes or changes one of what is churned, or deletes it.
func (k *kube) change(ctx context.Context, rng *rand.Rand) error {
	c := churned[rng.IntN(len(churned))]
	pod := []string{"s", "j", "x"}[rng.IntN(3)] + anyHost(rng)[1:]
	names := strings.NewReplacer("NAME", fmt.Sprint(rng.IntN(8)), "VALUE", fmt.Sprint(rng.IntN(256)), "POD", pod)
	path := names.Replace(c.path)
	if strings.HasPrefix(path, "/apis/") && rng.IntN(4) == 0 {
		return k.server.Admin().Call(ctx, http.MethodDelete, path, nil, nil)
	}
	return k.patch(ctx, path+"?force=true&fieldManager=churn", "application/apply-patch+yaml", names.Replace(c.body))
}

// says awaits that every agent says of the datastore what is wanted.
func (w *world) says(ctx context.Context, patience time.Duration, want func(state string) bool) error {
	return until(ctx, patience, func() error {
		for _, h := range hosts {
			var report struct{ Datastore struct{ State string } }
			if err := askInto(ctx, w.AgentSocket(h), "/status", &report); err != nil {
				return err
			}
			if !want(report.Datastore.State) {
				return fmt.Errorf("agent of %s says that the datastore is %s", h, report.Datastore.State)
			}
		}
		return nil
	})
}

var errUnharmed = errors.New("no request was answered wrongly")

// harmed awaits that requests were answered wrongly, and says how many.
func (w *world) harmed(ctx context.Context, before int) error {
	return until(ctx, proof, func() error {
		if w.kube.wrong.Harmed() == before {
			return errUnharmed
		}
		return nil
	})
}

// of are the faults with these kinds.
func of(all []fault, kinds ...string) (out []fault) {
	for _, f := range all {
		if slices.Contains(kinds, f.kind) {
			out = append(out, f)
		}
	}
	return out
}
