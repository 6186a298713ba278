package kubecluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// The cluster that all tests share: the first starts it.
var shared struct {
	sync.Once
	cluster *Cluster
	began   bool // and not taken down
	before  map[string]bool
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.began { // unless TestNothingIsLeft did it
		shared.cluster.Out = os.Stdout // the first test's is closed
		if err := shared.cluster.Down(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// theCluster is it. One that is up already is no cluster of tests: its nodes may run another twill.
func theCluster(t *testing.T) *Cluster {
	t.Helper()
	machinetest.Cluster(t)
	shared.Do(func() {
		bin, err := filepath.Abs("../../bin")
		if err != nil {
			shared.err = err
			return
		}
		shared.before = traces(t)
		shared.cluster = &Cluster{Twill: filepath.Join(bin, "twill"), Probe: filepath.Join(bin, "kube", "probe"), Exe: filepath.Join(bin, "kube", "kubecluster"), Out: t.Output()}
		shared.began = true
		shared.err = shared.cluster.Up(t.Context())
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// patience bounds the wait for what should become so.
const patience = 2 * time.Minute

// awaits waits until something is so.
func awaits(t *testing.T, what string, is func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := await(ctx, is); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// space is a namespace of a test.
type space struct {
	*testing.T
	c    *Cluster
	name string
}

func newSpace(t *testing.T) space {
	t.Helper()
	s := space{t, theCluster(t), fmt.Sprintf("test-%08x", rand.Uint32())}
	s.run("create", "namespace", s.name)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := s.c.Run(ctx, "delete", "namespace", s.name, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	awaits(t, "the account of pods", func(ctx context.Context) error {
		_, err := s.c.Run(ctx, "-n", s.name, "get", "serviceaccount", "default")
		return err
	})
	return s
}

// run is kubectl in the namespace; it must succeed.
func (s space) run(args ...string) string {
	s.Helper()
	out, err := s.c.Run(s.Context(), append([]string{"-n", s.name}, args...)...)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

func (s space) apply(manifest string) {
	s.Helper()
	if _, err := s.c.kubectl(s.Context(), manifest, "-n", s.name, "apply", "-f", "-"); err != nil {
		s.Fatalf("%v\n%s", err, manifest)
	}
}

// pod starts a pod on a node, which serves, and has the label app with its name's first word; await waits for it.
func (s space) pod(name, node string) {
	s.Helper()
	app, _, _ := strings.Cut(name, "-")
	s.apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %q, labels: {app: %q}}
spec:
  nodeName: %q
  terminationGracePeriodSeconds: 0
  containers: [{name: probe, image: %q, imagePullPolicy: Never, args: [serve]}]
`, name, app, node, ProbeImage))
}

func (s space) awaitPods() {
	s.Helper()
	s.run("wait", "--for=condition=Ready", "pods", "--all", "--timeout=120s")
}

func (s space) address(pod string) string {
	s.Helper()
	return s.run("get", "pod", pod, "-o", "jsonpath={.status.podIP}")
}

// exec runs the probe in a pod.
func (s space) exec(ctx context.Context, pod string, args ...string) (string, error) {
	return s.c.Run(ctx, append([]string{"-n", s.name, "exec", pod, "--", "/probe"}, args...)...)
}

// reaches is an error unless a pod gets an answer of another.
func (s space) reaches(ctx context.Context, from, to, by string) error {
	out, err := s.exec(ctx, from, "get", "http://"+by)
	if err == nil && !strings.HasPrefix(out, to) {
		err = fmt.Errorf("%s answers in the place of %s", out, to)
	}
	return err
}

// refused is an error if a pod gets an answer. That a packet was dropped, and not an exec that failed, is in the text.
func (s space) refused(ctx context.Context, from, by string) error {
	out, err := s.exec(ctx, from, "get", "http://"+by)
	if err == nil {
		return fmt.Errorf("%s gets an answer: %s", from, out)
	}
	if !strings.Contains(err.Error(), "Timeout") && !strings.Contains(err.Error(), "deadline exceeded") {
		return fmt.Errorf("%s does not run into a timeout: %w", from, err)
	}
	return nil
}

func TestPodsOfTwoNodesReachEachOther(t *testing.T) {
	s := newSpace(t)
	for _, n := range s.c.workers() {
		s.pod("pod-"+n, n)
	}
	s.awaitPods()
	for _, from := range s.c.workers() {
		for _, to := range s.c.workers() {
			addr := s.address("pod-" + to)
			awaits(t, from+" to "+to, func(ctx context.Context) error {
				if _, err := s.exec(ctx, "pod-"+from, "ping", addr); err != nil {
					return err
				}
				return s.reaches(ctx, "pod-"+from, "pod-"+to, addr+":8080")
			})
		}
	}
}

const closed = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec: {podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress]}
`

const allowed = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: allowed}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 8080}]}]
`

func TestANetworkPolicyDecides(t *testing.T) {
	s := newSpace(t)
	s.pod("server", "n1")
	s.pod("client", "n2")
	s.pod("stranger", "n3")
	s.pod("stranger-here", "n1") // of the server's own node
	s.awaitPods()
	at := s.address("server") + ":8080"
	all := []string{"client", "stranger", "stranger-here"}
	for _, from := range all {
		awaits(t, "without policy", func(ctx context.Context) error { return s.reaches(ctx, from, "server", at) })
	}
	s.apply(closed)
	for _, from := range all {
		awaits(t, "closed", func(ctx context.Context) error { return s.refused(ctx, from, at) })
	}
	s.apply(allowed)
	awaits(t, "allowed", func(ctx context.Context) error { return s.reaches(ctx, "client", "server", at) })
	for _, from := range all[1:] {
		if err := s.refused(t.Context(), from, at); err != nil {
			t.Errorf("who is not allowed: %v", err)
		}
	}
}

// TestAPortOfANodeIsAPods: hostPort, by the plugin portmap, which comes with the image; policy decides about the pod all the same.
func TestAPortOfANodeIsAPods(t *testing.T) {
	s := newSpace(t)
	s.apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: server, labels: {app: server}}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 0
  containers: [{name: probe, image: %q, imagePullPolicy: Never, args: [serve], ports: [{containerPort: 8080, hostPort: 18080}]}]
`, ProbeImage))
	s.pod("client", "n2")
	s.pod("stranger", "n3")
	s.awaitPods()
	at := address(1).String() + ":18080"
	for _, from := range []string{"client", "stranger"} {
		awaits(t, "by the node's address", func(ctx context.Context) error { return s.reaches(ctx, from, "server", at) })
	}
	s.apply(closed)
	s.apply(fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: from-n2}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress: [{from: [{ipBlock: {cidr: %s/32}}], ports: [{port: 8080}]}]
`, address(2))) // what leaves the pools has its node's address
	awaits(t, "closed for a stranger", func(ctx context.Context) error { return s.refused(ctx, "stranger", at) })
	awaits(t, "allowed for a client", func(ctx context.Context) error { return s.reaches(ctx, "client", "server", at) })
}

func TestAServiceIsReached(t *testing.T) {
	s := newSpace(t)
	s.pod("server", "n1")
	s.pod("client", "n2")
	s.pod("stranger", "n3")
	s.run("expose", "pod", "server", "--port=80", "--target-port=8080")
	s.awaitPods()
	at := s.run("get", "service", "server", "-o", "jsonpath={.spec.clusterIP}")
	for _, from := range []string{"client", "stranger"} {
		awaits(t, "by its address", func(ctx context.Context) error { return s.reaches(ctx, from, "server", at) })
	}
	s.apply(closed)
	s.apply(allowed)
	awaits(t, "closed for a stranger", func(ctx context.Context) error { return s.refused(ctx, "stranger", at) })
	awaits(t, "allowed for a client", func(ctx context.Context) error { return s.reaches(ctx, "client", "server", at) })
}
