package clustercheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var errGone = errors.New("not found")

// cluster is a fake of an API server, for its faults: the real one is in internal/kubecluster.
type cluster struct {
	mu      sync.Mutex
	nodes   []string          // Ready
	others  []string          // nodes that are not
	noAddr  bool              // nodes have no InternalIP
	image   string            // of the DaemonSet
	sick    map[string]string // pods that do not become Ready, and why
	answers func(pod string, try Try) Tried
	made    map[string]object
	refuse  string // paths that are refused when something is made there
}

func (f *cluster) Read(_ context.Context, path string, params map[string]string, into any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var doc any = object{}
	switch {
	case path == "/api/v1/nodes":
		var items []any
		for i, n := range slices.Concat(f.nodes, f.others) {
			status := "True"
			if i >= len(f.nodes) {
				status = "False"
			}
			items = append(items, object{"metadata": object{"name": n}, "status": object{
				"conditions": []any{object{"type": "Ready", "status": status}}, "addresses": f.addresses(n, i),
			}})
		}
		doc = object{"items": items}
	case path == "/apis/apps/v1/daemonsets" && f.image != "" && params["labelSelector"] == "k8s-app=twill-node":
		doc = object{"items": []any{object{"spec": object{"template": object{"spec": object{"containers": []any{object{"name": "calico-node", "image": f.image}}}}}}}}
	case strings.HasSuffix(path, "/pods"):
		doc = f.pods(path)
	case strings.HasSuffix(path, "/services/b"), strings.HasSuffix(path, "/services/kubernetes"), strings.HasSuffix(path, "/services/kube-dns"):
		doc = object{"spec": object{"clusterIP": "10.96.0.7"}}
	case strings.HasPrefix(path, "/api/v1/namespaces/"):
		if f.made[path] == nil {
			return fmt.Errorf("read %s: %w", path, errGone)
		}
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

func (f *cluster) addresses(node string, i int) []any {
	out := []any{object{"type": "Hostname", "address": node}}
	if !f.noAddr {
		out = append(out, object{"type": "InternalIP", "address": fmt.Sprintf("192.0.2.%d", i+1)})
	}
	return out
}

// pods are those that were made, each with two addresses.
func (f *cluster) pods(path string) any {
	var items []any
	for i, p := range slices.Sorted(maps.Keys(f.made)) {
		name, is := strings.CutPrefix(p, path+"/")
		if !is {
			continue
		}
		status := object{"podIPs": []any{object{"ip": fmt.Sprintf("10.65.0.%d", i)}, object{"ip": fmt.Sprintf("fd00::%d", i)}}, "conditions": []any{object{"type": "Ready", "status": "True"}}}
		if why, is := f.sick[name]; is {
			status = object{"conditions": []any{object{"type": "Ready", "status": "False"}}, "containerStatuses": []any{object{"state": object{"waiting": object{"reason": why}}}}}
		}
		items = append(items, object{"metadata": object{"name": name}, "status": status})
	}
	return object{"items": items}
}

func (f *cluster) Create(_ context.Context, path string, o any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != "" && strings.Contains(path, f.refuse) {
		return errors.New("forbidden")
	}
	f.made[path+"/"+o.(object)["metadata"].(object)["name"].(string)] = o.(object)
	return nil
}

func (f *cluster) Delete(_ context.Context, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, namespace, _ := strings.Cut(path, "/namespaces/")
	maps.DeleteFunc(f.made, func(k string, _ object) bool { return k == path || strings.Contains(k, "/namespaces/"+namespace+"/") })
	return nil
}

func (f *cluster) Exec(_ context.Context, _, pod string, command []string) ([]byte, error) {
	var try Try
	if err := json.Unmarshal([]byte(command[len(command)-1]), &try); err != nil {
		return nil, err
	}
	done := f.answers(pod, try)
	if done.Error == "no exec" {
		return nil, errors.New("pod is not there")
	}
	if done.Error == "nonsense" {
		return []byte("panic"), nil
	}
	return json.Marshal(done)
}

func (f *cluster) Gone(err error) bool { return errors.Is(err, errGone) }

// well answers as a network does on which all is as it should be. Who is asked is known by the address's last digits alone, so any name will do.
func (f *cluster) well(_ string, try Try) Tried {
	done := Tried{As: true, Answer: "twill", Took: time.Millisecond}
	if strings.HasPrefix(try.To, "tcp://") {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, p := range slices.Sorted(maps.Keys(f.made)) {
			if strings.Contains(try.To, fmt.Sprintf("10.65.0.%d:", i)) || strings.Contains(try.To, fmt.Sprintf("fd00::%d]", i)) {
				done.Answer = p[strings.LastIndexByte(p, '/')+1:]
			}
		}
	}
	return done
}

func run(t *testing.T, f *cluster, change func(*Config)) (map[string][]Result, error) {
	t.Helper()
	f.made = map[string]object{}
	if f.answers == nil {
		f.answers = f.well
	}
	cfg := Config{API: f, Start: time.Nanosecond, Settle: time.Second}
	if change != nil {
		change(&cfg)
	}
	found, err := Run(t.Context(), cfg)
	by := map[string][]Result{}
	for _, r := range found {
		by[r.Result] = append(by[r.Result], r)
	}
	if len(f.made) > 0 && !cfg.Keep {
		t.Errorf("left: %v", slices.Sorted(maps.Keys(f.made)))
	}
	return by, err
}

func TestAClusterOnWhichAllIsWell(t *testing.T) {
	f := &cluster{nodes: []string{"n1", "n2", "n3"}, others: []string{"n4"}, image: "registry.example/twill:1"}
	kept := 0
	by, err := run(t, f, func(c *Config) {
		c.Egress, c.Keep = "203.0.113.9:443", true
		c.Now = func(string) { kept++ }
	})
	if err != nil || len(by[Failed]) > 0 || kept == 0 {
		t.Fatalf("%+v, error %v", by[Failed], err)
	}
	if len(by[Skipped]) != 1 || by[Skipped][0].From != "n4" {
		t.Errorf("skipped: %+v, want the node that is not Ready", by[Skipped])
	}
	tests := map[string]int{}
	for _, r := range by[OK] {
		tests[r.Test]++
	}
	for test, n := range map[string]int{
		"pods start, and their node reaches them": 3, "pod to pod on its node, TCP IPv4": 3, "pod to pod on another node, UDP IPv6": 3, "packets of full size to another node, IPv6": 3,
		"pod to a service": 3, "names of services": 3, "pod to the outside": 3, "policy denies ingress, IPv4": 3, "policy denies who has no label, IPv6": 3, "kubelet reaches pods under policies": 3,
	} {
		if tests[test] != n {
			t.Errorf("%s: tried %d times, want %d", test, tests[test], n)
		}
	}
	for path, o := range f.made {
		if strings.Contains(path, "/pods/") && !strings.Contains(fmt.Sprint(o), f.image) {
			t.Errorf("%s does not run the image of the nodes: %v", path, o)
		}
	}
}

// TestWhatIsNotAsItShould: each fault is told where it is, and nothing is left.
func TestWhatIsNotAsItShould(t *testing.T) {
	three := []string{"n1", "n2", "n3"}
	of := func(part string, bad Tried) func(*cluster) {
		return func(f *cluster) {
			f.answers = func(pod string, try Try) Tried {
				if strings.Contains(try.To, part) && !try.Silent || part == "silent" && try.Silent {
					return bad
				}
				return f.well(pod, try)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		break_ func(*cluster)
		test   string // of each result that failed
		detail string
		failed int
		err    string
	}{
		{"a pod does not start", func(f *cluster) { f.sick = map[string]string{"b-1": "ErrImagePull"} }, "pods start", "pod b-1 is not Ready after 1ns: ErrImagePull", 1, ""},
		{"no packet by UDP", of("udp://", Tried{Error: "i/o timeout"}), "UDP", "i/o timeout", 12, ""},
		{"no large packets", of("whole://", Tried{Error: "1500 bytes to 10.65.0.1: no answer"}), "packets of full size", "1500 bytes", 6, ""},
		{"policies do not hold", of("silent", Tried{Answer: "b-1", After: time.Second}), "policy denies", "is answered still, 1s after the policy was made", 18, ""},
		{"another pod answers", of("tcp://10.65", Tried{As: true, Answer: "stranger"}), "", "stranger answered, and not b-", 12, ""},
		{"a pod cannot be asked", of("open://", Tried{Error: "no exec"}), "pod to", "pod is not there", 9, ""},
		{"a pod speaks nonsense", of("open://", Tried{Error: "nonsense"}), "pod to", `said "panic"`, 9, ""},
		{"no nodes", func(f *cluster) { f.nodes, f.others = nil, three }, "", "", 0, "no node of the cluster is Ready"},
		{"no image", func(f *cluster) { f.image = "" }, "", "", 0, ErrNoImage.Error()},
		{"another's image", func(f *cluster) { f.image = "quay.example/calico/node:v3" }, "", "", 0, ErrNoImage.Error()},
		{"pods are refused", func(f *cluster) { f.refuse = "/pods" }, "", "", 0, "forbidden"},
		{"policies are refused", func(f *cluster) { f.refuse = "networkpolicies" }, "", "", 0, "make a NetworkPolicy: forbidden"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &cluster{nodes: three, image: "twill"}
			tt.break_(f)
			by, err := run(t, f, nil)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if len(by[Failed]) != tt.failed {
				t.Errorf("%d failed, want %d: %+v", len(by[Failed]), tt.failed, by[Failed])
			}
			for _, r := range by[Failed] {
				if !strings.Contains(r.Test, tt.test) || !strings.Contains(r.Detail, tt.detail) {
					t.Errorf("%+v, want %q, %q", r, tt.test, tt.detail)
				}
			}
		})
	}
}

// TestSilenceOfABrokenWayIsNoPolicy: that nothing is answered where nothing was answered before says nothing of a policy.
func TestSilenceOfABrokenWayIsNoPolicy(t *testing.T) {
	f := &cluster{nodes: []string{"n1", "n2", "n3"}, image: "twill"}
	f.answers = func(pod string, try Try) Tried {
		if pod == "a-1" && strings.HasPrefix(try.To, "tcp://") && !try.Silent {
			return Tried{Error: "i/o timeout"}
		}
		return f.well(pod, try)
	}
	by, err := run(t, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range by[Skipped] {
		if strings.HasPrefix(r.Test, "policy denies") {
			n++
			if r.From != "n2" || !strings.HasPrefix(r.Detail, "pod a-1 does not reach tcp://") {
				t.Errorf("%+v", r)
			}
		}
	}
	if n != 4 { // ingress and egress, in two families
		t.Errorf("%d are skipped, want 4: %+v", n, by[Skipped])
	}
	for _, r := range by[OK] {
		if r.From == "n2" && (strings.HasPrefix(r.Test, "policy denies ingress") || strings.HasPrefix(r.Test, "policy denies egress")) {
			t.Errorf("%+v is said to be right, and nothing is known of it", r)
		}
	}
}

func TestAClusterOfOneNode(t *testing.T) {
	by, err := run(t, &cluster{nodes: []string{"n1"}, image: "twill"}, nil)
	if err != nil || len(by[Failed]) > 0 {
		t.Errorf("%+v, error %v", by[Failed], err)
	}
	if !slices.ContainsFunc(by[Skipped], func(r Result) bool { return r.Test == "pod to pod on another node" }) {
		t.Errorf("skipped: %+v", by[Skipped])
	}
}

func TestNodesWithoutAnAddress(t *testing.T) {
	by, err := run(t, &cluster{nodes: []string{"n1", "n2"}, image: "twill", noAddr: true}, nil)
	if err != nil || len(by[Failed]) > 0 || len(by[Skipped]) != 4+1 { // two for each node, and the outside
		t.Errorf("failed %+v, skipped %+v, error %v", by[Failed], by[Skipped], err)
	}
}

// TestSomeNodesTakePart where not all are asked for.
func TestSomeNodesTakePart(t *testing.T) {
	by, err := run(t, &cluster{nodes: []string{"n1", "n2", "n3", "n4", "n5"}, image: "twill"}, func(c *Config) { c.Nodes = 2 })
	if n := len(slices.DeleteFunc(slices.Clone(by[OK]), func(r Result) bool { return r.Test != "pod to a service" })); err != nil || n != 2 {
		t.Errorf("%d nodes took part, error %v", n, err)
	}
}

// TestWhatIsKeptIsAsItWasWhenItFailed: policies that come later would answer for what failed without them.
func TestWhatIsKeptIsAsItWasWhenItFailed(t *testing.T) {
	for _, tt := range []struct {
		name, fails string // part of what is tried; silent: what a policy denies
		keep        bool
		why         string // of the first that failed, after its namespace
		policies    string // that are there afterwards
		skipped     string
	}{
		{"a way without policies", "udp://", true, "a-0 NS/b-0 udp/8080", "", "policies"},
		{"to a node", "open://192.0.2.", true, "a-0 192.0.2.2 tcp/10250", "", "policies"},
		{"to a service", "open://10.96.", true, "", "", "policies"},
		{"a policy", "silent", true, "a-0 NS/b-1 tcp/8080", "deny", "a policy that allows by a label"},
		{"nothing is kept", "udp://", false, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &cluster{nodes: []string{"n1", "n2"}, image: "twill"}
			f.answers = func(pod string, try Try) Tried {
				if strings.Contains(try.To, tt.fails) && !try.Silent || tt.fails == "silent" && try.Silent {
					return Tried{Error: "i/o timeout"}
				}
				return f.well(pod, try)
			}
			by, err := run(t, f, func(c *Config) { c.Keep = tt.keep })
			if err != nil || len(by[Failed]) == 0 {
				t.Fatalf("%+v, error %v", by, err)
			}
			var namespace string
			var policies []string
			for path := range f.made {
				if name, is := strings.CutPrefix(path, "/api/v1/namespaces/"); is && !strings.Contains(name, "/") {
					namespace = name
				}
				if i := strings.Index(path, "/networkpolicies/"); i >= 0 {
					policies = append(policies, path[i+len("/networkpolicies/"):])
				}
			}
			want := ""
			if tt.why != "" {
				want = "twill why " + namespace + "/" + strings.ReplaceAll(tt.why, "NS", namespace)
			}
			if got := by[Failed][0].Why; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if got := strings.Join(policies, " "); got != tt.policies {
				t.Errorf("policies %q are left, want %q", got, tt.policies)
			}
			if is := slices.ContainsFunc(by[Skipped], func(r Result) bool { return r.Test == tt.skipped }); is == (tt.skipped == "") {
				t.Errorf("skipped: %+v, want %q", by[Skipped], tt.skipped)
			}
		})
	}
}
