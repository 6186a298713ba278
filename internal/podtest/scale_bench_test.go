package podtest

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kubetest"
)

var (
	scalePods     = flag.Int("pods", 10_000, "pods of BenchmarkAgentOfALargeCluster on other nodes")
	scalePolicies = flag.Int("policies", 500, "policies of BenchmarkAgentOfALargeCluster")
	scaleChanges  = flag.Int("changes", 5_000, "changes of labels of BenchmarkAgentOfALargeCluster")
	scaleRest     = flag.Duration("rest", time.Minute, "how long BenchmarkAgentOfALargeCluster counts what an agent asks for while nothing changes")
)

const (
	podsPerNamespace = 200
	localPods        = 50
	apps             = 10 // of each namespace; one policy selects one of them, and lets another in
)

// BenchmarkAgentOfALargeCluster has an agent start, with a role's rights alone, among many pods and policies of a real API server, and
// then follow pods whose labels change as fast as the server takes that. Run it with -benchtime 1x.
//
//   - s-first, s-ready: from the program's start until a pod of this node reaches another as a policy says, and until the agent says that
//     all is in force. Until then nothing reaches a pod.
//   - MB-peak, MB-then: resident memory, at most until it was ready, and after the changes; MB-heap, MB-heap-then: Go's heap in use, when it
//     was ready and after the changes.
//   - kB-in, watches: what the API server sent to this node, encrypted, and what it has open more than before.
//   - requests-start, watch-requests: what the agent asked for until it was ready, by the audit log; requests-changes: during the changes, which
//     are others'; requests-refused: of all of them (goal 0).
//   - requests/min, watch-requests/min, kB-in/min: while nothing changes.
//   - changes/s, ms-behind: how many the server took, and how much later than its answer to the last of them a packet saw that one.
func BenchmarkAgentOfALargeCluster(b *testing.B) {
	s, log := audited(b, "--max-requests-inflight=800", "--max-mutating-requests-inflight=400")
	n := newNode(b, s, "n1")
	n.define()
	c := large{s: s, node: n}
	c.fill(b)
	web, client, other := n.run(c.namespace(0), "web", "app: a0", "10.65.0.2"), n.run(c.namespace(0), "client", "app: a1", "10.65.0.3"), n.run(c.namespace(0), "other", "app: a2", "10.65.0.4")
	for i := range localPods {
		n.run(c.namespace(i%c.namespaces()), fmt.Sprintf("local-%d", i), fmt.Sprintf("app: a%d", i%apps), fmt.Sprintf("10.65.1.%d", i))
	}
	account := n.account("agent")

	watches, in, began := c.watches(b), n.received.Load(), time.Now()
	n.agent(account)
	client.await(b, web, true)
	b.ReportMetric(time.Since(began).Seconds(), "s-first")
	n.ready()
	b.ReportMetric(time.Since(began).Seconds(), "s-ready")
	other.await(b, web, false)
	b.ReportMetric(float64(n.received.Load()-in)/1e3, "kB-in")
	b.ReportMetric(n.memory("VmHWM"), "MB-peak")
	b.ReportMetric(n.heap(), "MB-heap")
	b.ReportMetric(n.processor(), "cpu-s-start")
	asked := loadOf(b, log)
	b.ReportMetric(float64(asked.total()), "requests-start")
	b.ReportMetric(float64(asked.requests["watch"]), "watch-requests")

	in, used, began := n.received.Load(), n.processor(), time.Now()
	c.change(b, *scaleChanges)
	took := time.Since(began)
	b.ReportMetric(float64(*scaleChanges)/took.Seconds(), "changes/s")
	last := time.Now()
	n.patch("/api/v1/namespaces/"+c.namespace(0)+"/pods/other", map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "a1"}}})
	other.await(b, web, true)
	b.ReportMetric(float64(time.Since(last).Milliseconds()), "ms-behind")
	b.ReportMetric((n.processor()-used)*1e6/float64(*scaleChanges), "cpu-us/change")
	b.ReportMetric(float64(n.received.Load()-in)/float64(*scaleChanges), "B-in/change")
	b.ReportMetric(n.memory("VmRSS"), "MB-then")
	b.ReportMetric(n.heap(), "MB-heap-then")
	changed := loadOf(b, log)
	b.ReportMetric(float64(changed.since(asked).total()), "requests-changes")
	b.ReportMetric(float64(s.MemoryKiB(b))/1024, "MB-apiserver")
	b.ReportMetric(c.watches(b)-watches, "watches")

	in, began = n.received.Load(), time.Now()
	changed = loadOf(b, log)
	<-time.After(*scaleRest)
	rested, minutes := loadOf(b, log), time.Since(began).Minutes()
	b.ReportMetric(float64(rested.since(changed).total())/minutes, "requests/min")
	b.ReportMetric(float64(rested.since(changed).requests["watch"])/minutes, "watch-requests/min")
	b.ReportMetric(float64(n.received.Load()-in)/1e3/minutes, "kB-in/min")
	b.ReportMetric(float64(rested.refused), "requests-refused")
	b.Logf("all that the agent asked for, by verb: %v", rested.requests)
}

// large is a cluster with many pods and policies.
type large struct {
	s    *kubetest.Server
	node *node
}

func (c large) namespaces() int { return max(1, *scalePods/podsPerNamespace) }

func (c large) namespace(i int) string { return fmt.Sprintf("team-%d", i) }

func (c large) pod(i int) (namespace, name string) {
	return c.namespace(i % c.namespaces()), fmt.Sprintf("pod-%d", i)
}

// fill makes all of it.
func (c large) fill(b *testing.B) {
	post := func(path string, body map[string]any) kubetest.Request {
		return kubetest.Request{Method: "POST", Path: path, Body: body}
	}
	named := func(name string) map[string]any { return map[string]any{"name": name} }
	c.s.Many(b, c.namespaces(), func(i int) kubetest.Request {
		return post("/api/v1/namespaces", map[string]any{"metadata": named(c.namespace(i))})
	})
	c.s.Many(b, c.namespaces(), func(i int) kubetest.Request {
		return post("/api/v1/namespaces/"+c.namespace(i)+"/serviceaccounts", map[string]any{"metadata": named("sa")})
	})
	c.s.Many(b, *scalePolicies, func(i int) kubetest.Request {
		app := i / c.namespaces()
		labels := func(a int) map[string]any {
			return map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": fmt.Sprintf("a%d", a%apps)}}}
		}
		spec := labels(app)
		spec["ingress"] = []any{map[string]any{"from": []any{labels(app + 1)}, "ports": []any{map[string]any{"port": 8080 + app/apps}}}}
		return post("/apis/networking.k8s.io/v1/namespaces/"+c.namespace(i%c.namespaces())+"/networkpolicies", map[string]any{"metadata": named(fmt.Sprintf("p%d", i)), "spec": spec})
	})
	c.s.Many(b, *scalePods, func(i int) kubetest.Request {
		ns, name := c.pod(i)
		return post("/api/v1/namespaces/"+ns+"/pods", map[string]any{
			"metadata": map[string]any{"name": name, "labels": map[string]any{"app": fmt.Sprintf("a%d", i/c.namespaces()%apps), "pod-template-hash": fmt.Sprintf("%08x", i)}},
			"spec": map[string]any{
				"serviceAccountName": "sa", "automountServiceAccountToken": false, "nodeName": fmt.Sprintf("other-%d", i%1000),
				"containers": []any{map[string]any{"name": "c", "image": "registry.example/team/app:1.2.3", "ports": []any{map[string]any{"name": "http", "containerPort": 8080}}}},
			},
		})
	})
	c.s.Many(b, *scalePods, func(i int) kubetest.Request {
		ns, name := c.pod(i)
		addr := netip.AddrFrom4([4]byte{10, byte(100 + i>>16), byte(i >> 8), byte(i)}).String()
		status := map[string]any{"phase": "Running", "podIP": addr, "podIPs": []any{map[string]any{"ip": addr}}}
		return kubetest.Request{Method: "PATCH", Path: "/api/v1/namespaces/" + ns + "/pods/" + name + "/status", Body: map[string]any{"status": status}}
	})
}

// change gives pods of other nodes other labels, one after the other: each leaves a policy's peers and becomes another's.
func (c large) change(b *testing.B, n int) {
	c.s.Many(b, n, func(i int) kubetest.Request {
		ns, name := c.pod(i % *scalePods)
		app := fmt.Sprintf("a%d", (i/c.namespaces()+1 + i / *scalePods)%apps)
		return kubetest.Request{Method: "PATCH", Path: "/api/v1/namespaces/" + ns + "/pods/" + name, Body: map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": app}}}}
	})
}

// watches are those that the API server has open, its own too.
func (c large) watches(b *testing.B) (watches float64) {
	resp, err := c.s.Admin().Do(b.Context(), "GET", "/metrics", "", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `verb="WATCH"`) {
			fields := strings.Fields(line)
			v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				b.Fatal(err)
			}
			watches += v
		}
	}
	return watches
}

// memory is a line of the agent's /proc/PID/status (proc(5)), in MB.
func (n *node) memory(line string) float64 {
	n.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.Pid))
	if err != nil {
		n.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), line+":")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		n.t.Fatal(err)
	}
	return float64(kb) / 1024
}

// processor is what the agent has used of processors, in seconds (proc_pid_stat(5), fields 14 and 15, in ticks of 10 ms).
func (n *node) processor() float64 {
	n.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.process.Pid))
	if err != nil {
		n.t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the third of all is the first of these
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		n.t.Fatal(err1, err2)
	}
	return float64(user+system) / 100
}
