package podtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kubetest"
)

var (
	scalePods     = flag.Int("pods", 10_000, "pods of BenchmarkAgentOfALargeCluster on other nodes")
	scalePadding  = flag.Int("padding", 0, "bytes of an annotation of each of those pods, which no agent needs")
	scalePolicies = flag.Int("policies", 500, "policies of BenchmarkAgentOfALargeCluster")
	scaleStarts   = flag.Int("starts", 1, "how many agents BenchmarkAgentOfALargeCluster starts, one after the other, each on a node of its own")
	scaleAgents   = flag.String("agents", "", "programs that BenchmarkAgentOfALargeCluster starts in turn, to be compared, with commas between; empty: this source's")
	scaleRates    = flag.String("rates", "100,300,1000", "changes of labels a second in BenchmarkAgentOfALargeCluster, one rate after the other")
	scaleFor      = flag.Duration("for", 20*time.Second, "how long each rate of BenchmarkAgentOfALargeCluster lasts")
	scaleBacklog  = flag.Int("backlog", 5_000, "changes that an agent of BenchmarkAgentOfALargeCluster finds when it was stopped")
	scaleRest     = flag.Duration("rest", time.Minute, "how long BenchmarkAgentOfALargeCluster counts what an agent asks for while nothing changes")
)

const (
	podsPerNamespace = 200
	localPods        = 97 // with three more that packets are sent between
	apps             = 10 // of each namespace; one policy selects one of them, and lets another in
)

// BenchmarkAgentOfALargeCluster has agents start, with a role's rights alone, among many pods and policies of a real API server, and the last of them
// follow pods whose labels change. Run it with -benchtime 1x. A figure that was measured more than once is the median; all are logged.
//
//   - s-first, s-ready: from the program's start until a pod of this node reaches another as a policy says, and until the agent says that
//     all is in force. Until then nothing reaches a pod. cpu-s-start, cpu-s-apiserver: of processors in that, the agent and the API server.
//   - MB-peak, MB-then: resident memory, at most until it was ready, and after all changes. MB-heap-most: Go's heap at most until it was ready,
//     garbage included; MB-live-most: what of it was in use at a collection of garbage; MB-live, MB-live-then: at the last one before it was ready, and after all changes.
//   - kB-in, watches: what the API server sent to this node, encrypted, and what it has open more than before.
//   - requests-start, watch-requests: what the agent asked for until it was ready, by the audit log; requests-changes: during the changes, which
//     are others'; requests-refused: of all of them (goal 0).
//   - RATE/…: with so many changes a second wanted: changes/s that there were; ms-p50, ms-p99, ms-last: how much later than the API server's answer
//     to it a change of a label let a packet pass, half of them, 99 of 100, and the median of the last quarter, which is more than that of all if it falls behind;
//     agent-ms-…: of that, how much later than another watch of the API server had the change.
//   - frozen-…: an agent that was stopped (SIGSTOP) meanwhile goes on: how many changes a second it takes until the last is in force.
//   - kubestore-…: as many changes, and all pods, read by the store alone.
//   - requests/min, watch-requests/min, kB-in/min: while nothing changes.
func BenchmarkAgentOfALargeCluster(b *testing.B) {
	s, log := audited(b, "--max-requests-inflight=800", "--max-mutating-requests-inflight=400")
	c := &large{b: b, s: s, log: log, figures: figures{b: b}}
	newNode(b, s, "n0").define()
	c.fill()
	var l *local
	for i := range *scaleStarts {
		if l != nil {
			l.kill()
		}
		l = c.node(i + 1)
		c.start(l)
	}
	before := loadOf(b, log)
	for rate := range strings.SplitSeq(*scaleRates, ",") {
		c.follow(l, number(b, rate))
	}
	c.replay(l)
	c.freeze(l)
	c.add("MB-then", l.memory("VmRSS"))
	c.add("MB-live-then", l.collections().live)
	c.add("requests-changes", float64(loadOf(b, log).since(before).total()))
	c.add("MB-apiserver", float64(s.MemoryKiB(b))*1024/1e6)
	c.rest(l)
	c.report()
}

// local is a node with its pods.
type local struct {
	*node
	web, client, other pod // the second may reach the first, the third may if its label says so
}

// kill ends the agent at once.
func (l *local) kill() {
	l.t.Helper()
	if err := l.process.Kill(); err != nil {
		l.t.Fatal(err)
	}
}

// node makes one, without an agent.
func (c *large) node(i int) *local {
	c.b.Helper()
	n := newNode(c.b, c.s, fmt.Sprintf("n%d", i))
	if *scaleAgents != "" {
		agents := strings.Split(*scaleAgents, ",")
		n.twill = agents[(i-1)%len(agents)]
	}
	run := func(name string, ns, app, host int) pod {
		return n.run(c.namespace(ns%c.namespaces()), name+"-"+n.name, fmt.Sprintf("app: a%d", app), fmt.Sprintf("10.65.%d.%d", i, host))
	}
	l := &local{node: n, web: run("web", 0, 0, 2), client: run("client", 0, 1, 3), other: run("other", 0, 2, 4)}
	for j := range localPods {
		run(fmt.Sprintf("local-%d", j), j, j%apps, 5+j)
	}
	return l
}

// start is all that is measured of a start.
func (c *large) start(l *local) {
	c.b.Helper()
	account := l.account("agent")
	before, watches, in, apiserver, began := loadOf(c.b, c.log), c.watches(), l.received.Load(), c.s.Processor(c.b), time.Now()
	l.node.start("agent", account, "GODEBUG=gctrace=1")
	l.client.await(c.b, l.web, true)
	c.add("s-first", time.Since(began).Seconds())
	l.ready()
	c.add("s-ready", time.Since(began).Seconds())
	c.add("cpu-s-start", l.processor())
	c.add("cpu-s-apiserver", (c.s.Processor(c.b) - apiserver).Seconds())
	c.add("MB-peak", l.memory("VmHWM"))
	gc := l.collections()
	c.add("MB-heap-most", gc.most)
	c.add("MB-live-most", gc.mostLive)
	c.add("MB-live", gc.live)
	c.add("kB-in", float64(l.received.Load()-in)/1e3)
	c.add("watches", c.watches()-watches)
	asked := loadOf(c.b, c.log).since(before)
	c.add("requests-start", float64(asked.total()))
	c.add("watch-requests", float64(asked.requests["watch"]))
	l.other.await(c.b, l.web, false)
}

// rest counts while nothing changes.
func (c *large) rest(l *local) {
	c.b.Helper()
	in, began, before := l.received.Load(), time.Now(), loadOf(c.b, c.log)
	<-time.After(*scaleRest)
	all, minutes := loadOf(c.b, c.log), time.Since(began).Minutes()
	c.add("requests/min", float64(all.since(before).total())/minutes)
	c.add("watch-requests/min", float64(all.since(before).requests["watch"])/minutes)
	c.add("kB-in/min", float64(l.received.Load()-in)/1e3/minutes)
	c.add("requests-refused", float64(all.refused))
	c.b.Logf("all that agents asked for, by verb: %v; refused: %q", all.requests, all.why)
}

// large is a cluster with many pods and policies.
type large struct {
	b   *testing.B
	s   *kubetest.Server
	log string // of what was asked of it
	figures

	etcd    datastore.Transactional
	pod0    map[string]any // as the API server has made it
	changed int            // labels so far
}

func (c *large) namespaces() int { return max(1, *scalePods/podsPerNamespace) }

func (c *large) namespace(i int) string { return fmt.Sprintf("team-%d", i) }

func (c *large) pod(i int) (namespace, name string) {
	return c.namespace(i % c.namespaces()), fmt.Sprintf("pod-%d", i)
}

// fill makes all of it: one of each kind as users do, the others as copies of that one in etcd.
func (c *large) fill() {
	c.b.Helper()
	post := func(path string, body map[string]any) kubetest.Request {
		return kubetest.Request{Method: "POST", Path: path, Body: body}
	}
	named := func(name string) map[string]any { return map[string]any{"name": name} }
	c.s.Many(c.b, c.namespaces(), func(i int) kubetest.Request {
		return post("/api/v1/namespaces", map[string]any{"metadata": named(c.namespace(i))})
	})
	c.s.Many(c.b, c.namespaces(), func(i int) kubetest.Request {
		return post("/api/v1/namespaces/"+c.namespace(i)+"/serviceaccounts", map[string]any{"metadata": named("sa")})
	})
	began := time.Now()
	store, err := stores.Open(c.b.Context(), datastore.Config{Endpoints: []string{c.s.Etcd()}, RequestTimeout: time.Minute})
	if err != nil {
		c.b.Fatal(err)
	}
	c.b.Cleanup(func() { _ = store.Close() })
	c.etcd = store.(datastore.Transactional)
	c.put("networkpolicies", c.made("/apis/networking.k8s.io/v1", "networkpolicies", c.policy(0)), *scalePolicies-1, func(i int) (int, map[string]any) { return i + 1, c.policy(i + 1) })
	c.pod0 = c.made("/api/v1", "pods", c.far(0, 0))
	c.put("pods", c.pod0, *scalePods-1, func(i int) (int, map[string]any) { return i + 1, c.far(i+1, 0) })
	c.b.Logf("%d policies and %d pods in %v", *scalePolicies, *scalePods, time.Since(began))
}

// policy is one of the policies.
func (c *large) policy(i int) map[string]any {
	app := i / c.namespaces()
	labels := func(a int) map[string]any {
		return map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": fmt.Sprintf("a%d", a%apps)}}}
	}
	ports := []any{map[string]any{"port": port + app/apps, "protocol": "TCP"}}
	if i == 0 { // packets are sent by which one sees when it lets who in
		ports = append(ports, map[string]any{"port": port, "protocol": "UDP"})
	}
	spec := labels(app)
	spec["policyTypes"], spec["ingress"] = []any{"Ingress"}, []any{map[string]any{"from": []any{labels(app + 1)}, "ports": ports}}
	return map[string]any{"metadata": map[string]any{"name": fmt.Sprintf("p%d", i), "namespace": c.namespace(i % c.namespaces())}, "spec": spec}
}

// far is one of the pods on other nodes, whose label has changed so often.
func (c *large) far(i, changes int) map[string]any {
	ns, name := c.pod(i)
	addr := netip.AddrFrom4([4]byte{10, byte(100 + i>>16), byte(i >> 8), byte(i)}).String()
	return map[string]any{
		"metadata": map[string]any{"name": name, "namespace": ns, "annotations": map[string]any{"padding": strings.Repeat("-", *scalePadding)}, "labels": map[string]any{"app": fmt.Sprintf("a%d", (i/c.namespaces()+changes)%apps), "pod-template-hash": fmt.Sprintf("%08x", i)}},
		"spec": map[string]any{
			"serviceAccountName": "sa", "automountServiceAccountToken": false, "nodeName": fmt.Sprintf("other-%d", i%1000),
			"containers": []any{map[string]any{"name": "c", "image": "registry.example/team/app:1.2.3", "ports": []any{map[string]any{"name": "http", "containerPort": 8080}}}},
		},
		"status": map[string]any{"phase": "Running", "podIP": addr, "podIPs": []any{map[string]any{"ip": addr}}},
	}
}

// made has the API server make an object, and is that with all that it added.
func (c *large) made(path, plural string, first map[string]any) (whole map[string]any) {
	c.b.Helper()
	at := path + "/namespaces/" + c.namespace(0) + "/" + plural
	c.s.Many(c.b, 1, func(int) kubetest.Request { return kubetest.Request{Method: "POST", Path: at, Body: first} })
	at += "/" + first["metadata"].(map[string]any)["name"].(string)
	if status := first["status"]; status != nil {
		c.s.Many(c.b, 1, func(int) kubetest.Request {
			return kubetest.Request{Method: "PATCH", Path: at + "/status", Body: map[string]any{"status": status}}
		})
	}
	if err := c.s.Admin().Call(c.b.Context(), "GET", at, nil, &whole); err != nil {
		c.b.Fatal(err)
	}
	delete(whole["metadata"].(map[string]any), "resourceVersion") // which etcd says
	return whole
}

// put writes n copies of an object into etcd, each with a number and what is its own, as JSON, which the API server reads as it does its own form: it takes
// thousands a second so, and admits a few hundred.
func (c *large) put(plural string, whole map[string]any, n int, object func(i int) (number int, own map[string]any)) {
	c.b.Helper()
	for i := 0; i < n; i += datastore.MostChanges {
		var txn datastore.Txn
		for j := i; j < min(n, i+datastore.MostChanges); j++ {
			number, own := object(j)
			o := merged(whole, own)
			meta := o["metadata"].(map[string]any)
			meta["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012x", number)
			value, err := json.Marshal(o)
			if err != nil {
				c.b.Fatal(err)
			}
			txn.Put = append(txn.Put, api.Update{Key: fmt.Sprintf("/registry/%s/%s/%s", plural, meta["namespace"], meta["name"]), Value: value})
		}
		if _, err := c.etcd.Transact(c.b.Context(), txn); err != nil {
			c.b.Fatal(err)
		}
	}
}

// merged is a with what b has in its place; lists are b's, but those of objects, which are merged one by one.
func merged(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	for name, v := range b {
		switch was := a[name].(type) {
		case map[string]any:
			out[name] = merged(was, v.(map[string]any))
		case []any:
			list := slices.Clone(v.([]any))
			for i := range list {
				if o, ok := list[i].(map[string]any); ok && i < len(was) {
					list[i] = merged(was[i].(map[string]any), o)
				}
			}
			out[name] = list
		default:
			out[name] = v
		}
	}
	return out
}

// change gives n pods of other nodes other labels: each leaves a policy's peers and becomes another's.
func (c *large) change(n int) {
	c.b.Helper()
	from := c.changed
	c.changed += n
	c.put("pods", c.pod0, n, func(i int) (int, map[string]any) {
		others := *scalePods - 1 // all but the one that is whole
		pod := 1 + (from+i)%others
		return pod, c.far(pod, 1+(from+i)/others)
	})
}

// watches are those that the API server has open, its own too.
func (c *large) watches() (watches float64) {
	b := c.b
	b.Helper()
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
	return float64(kb) * 1024 / 1e6
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
