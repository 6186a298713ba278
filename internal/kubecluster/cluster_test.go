package kubecluster

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
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

// TestARolloutLosesNoPacket: the DaemonSet is replaced on all nodes under a stream between two of them, which policy allows.
func TestARolloutLosesNoPacket(t *testing.T) {
	s := newSpace(t)
	s.pod("server", "n1")
	s.pod("client", "n2")
	s.awaitPods()
	s.apply(closed)
	s.apply(strings.Replace(allowed, "{port: 8080}", "{port: 8080, protocol: UDP}", 1))
	at := s.address("server") + ":8080"
	awaits(t, "UDP alone is allowed", func(ctx context.Context) error { return s.refused(ctx, "client", at) })
	awaits(t, "a first stream", func(ctx context.Context) error {
		if sent, lost, err := s.stream(at, func() error { s.run("get", "pods"); return nil }); err != nil || lost > 0 || sent == 0 {
			return fmt.Errorf("sent %d, lost %d: %w", sent, lost, err)
		}
		return nil
	})
	sent, lost, err := s.stream(at, func() error {
		for _, args := range [][]string{{"rollout", "restart", "daemonset/twill-node"}, {"rollout", "status", "daemonset/twill-node", "--timeout=120s"}} {
			if _, err := s.c.Run(t.Context(), append([]string{"-n", "kube-system"}, args...)...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || lost > 0 || sent == 0 {
		t.Errorf("sent %d, lost %d: %v", sent, lost, err)
	}
	t.Logf("sent %d, lost %d", sent, lost)
	s.pod("late", "n3") // and who comes afterwards is attached
	s.awaitPods()
}

// stream sends numbers from the pod client until do returns.
func (s space) stream(to string, do func() error) (sent, lost int, err error) {
	ctx, cancel := context.WithTimeout(s.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.c.Kubectl(), "--kubeconfig="+s.c.Kubeconfig(), "-n", s.name, "exec", "-i", "client", "--", "/probe", "stream", to)
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	failed := do()
	if err := in.Close(); err != nil {
		return 0, 0, err
	}
	if err := cmd.Wait(); err != nil {
		return 0, 0, fmt.Errorf("%w: %s", err, &out)
	}
	if _, err := fmt.Sscanf(out.String(), "sent %d, lost %d", &sent, &lost); err != nil {
		return 0, 0, fmt.Errorf("%w: %s", err, &out)
	}
	return sent, lost, failed
}

// places are where a cluster could leave something; of others' namespaces and mounts, those of pods and of its own machines.
var places = []string{
	"/run/*", "/run/netns/cni-*", "/run/netns/" + nsPrefix + "*", "/etc/cni/*", "/etc/cni/*/*", "/etc/kubernetes/*", "/opt/*", "/opt/cni/*", "/opt/cni/bin/*", "/usr/libexec/kubernetes/*",
	"/var/lib/*", "/var/lib/cni/*", "/var/lib/twill/*", "/var/log/*", "/sys/class/net/" + userLink, cgroups + "/*/*kube*", cgroups + "/*/k8s.io*",
}

// global are settings of the whole machine that kubelets and proxies of others change.
var global = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max"}

// traces are what is in these places, and mounted there, and the settings' values.
func traces(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, pattern := range places {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			out[n] = true
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] != "nsfs" { // namespaces are in the list above
			out["mount "+f[1]] = true
		}
	}
	for _, name := range global {
		if text, err := os.ReadFile("/proc/sys/" + name); err == nil {
			out[name+" is "+string(text)] = true
		}
	}
	delete(out, "/run/twill-lab") // of make up, which others may run meanwhile
	return out
}

// TestNothingIsLeft takes the cluster down that tests began, as the last test of this file.
func TestNothingIsLeft(t *testing.T) {
	c := theCluster(t)
	if during := traces(t); !during[DefaultDir] || !during["/run/netns/"+controlNS] || !during["/sys/class/net/"+userLink] || shared.before[DefaultDir] {
		t.Fatalf("a cluster is not seen where it is: %v", during)
	}
	pids := map[string]int{}
	for _, name := range append(c.workers(), "control") {
		pid, err := c.Pid(name)
		if err != nil {
			t.Fatal(err)
		}
		pids[name] = pid
	}
	inside := processesOf(t, pids)
	if len(inside) < 4*len(pids) {
		t.Fatalf("only %d processes are seen in %d machines", len(inside), len(pids))
	}
	c.Out = io.Discard
	if err := c.Down(); err != nil {
		t.Fatal(err)
	}
	shared.began = false
	for ns := range inside {
		if _, err := os.Stat(ns); err == nil {
			if text, _ := os.ReadFile(ns + "/cmdline"); strings.Contains(string(text), "twill") || strings.Contains(string(text), "containerd") {
				t.Errorf("%s runs still: %q", ns, text)
			}
		}
	}
	for what := range traces(t) {
		if !shared.before[what] {
			t.Errorf("left: %s", what)
		}
	}
}

// processesOf are the directories below /proc of all that is in the PID namespaces of machines.
func processesOf(t *testing.T, machines map[string]int) map[string]bool {
	t.Helper()
	namespaces := map[string]bool{}
	for name, pid := range machines {
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		namespaces[ns] = true
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, p := range all {
		for ns := range namespaces {
			// A pod's processes have a namespace below their machine's; its shim has the machine's.
			if at, err := os.Readlink(p + "/ns/pid"); err == nil && at == ns {
				out[p] = true
			}
		}
	}
	return out
}
