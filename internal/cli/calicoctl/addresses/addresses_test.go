package addresses_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/calicoctl/addresses"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/ipam/report"
)

const version = "v1"

// world is a cluster with two pools and a node; addresses are of the block 10.0.0.0/29, by their last number.
type world struct {
	*testing.T
	s   *memstore.Store
	dir string
}

// attribute is what is kept with an address.
type attribute struct {
	handle string
	owner  map[string]string
}

// pods is what upstream's plugin keeps with an address of a pod.
func pods(name string) attribute {
	return attribute{"k8s-pod-network." + name, map[string]string{"namespace": "default", "pod": name, "node": "node-a"}}
}

// proven is what our plugin keeps, long ago: an endpoint would have it.
func proven(name string) attribute {
	a := pods(name)
	a.owner["note"], a.owner["timestamp"] = "container", "2020-01-01T00:00:00Z"
	return a
}

func at(a attribute, when time.Time) attribute {
	a.owner["timestamp"] = when.UTC().Format(time.RFC3339Nano)
	return a
}

func newWorld(t *testing.T, locked bool) *world {
	w := &world{t, memstore.New(), t.TempDir()}
	w.put("clusterinformations/default", "ClusterInformation", "default", fmt.Sprintf(`{"clusterGUID":"g1","clusterType":"k8s","datastoreReady":%t}`, !locked))
	w.put("ippools/a", "IPPool", "a", `{"cidr":"10.0.0.0/24","blockSize":29,"nodeSelector":"all()"}`)
	w.put("ippools/off", "IPPool", "off", `{"cidr":"10.9.0.0/24","blockSize":29,"disabled":true,"nodeSelector":"all()"}`)
	w.put("nodes/node-a", "Node", "node-a", `{"ipv4VXLANTunnelAddr":"10.0.0.5"}`)
	return w
}

func (w *world) raw(key, value string) {
	w.Helper()
	if err := datastore.Put(w.Context(), w.s, api.Update{Key: key, Value: []byte(value)}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) put(key, kind, name, spec string) {
	w.Helper()
	w.raw(api.Root+"resources/v3/projectcalico.org/"+key, `{"kind":"`+kind+`","apiVersion":"projectcalico.org/v3","metadata":{"name":"`+name+`"},"spec":`+spec+`}`)
}

// endpoint has an address.
func (w *world) endpoint(name, address string) {
	w.raw(api.Root+"resources/v3/projectcalico.org/workloadendpoints/default/"+name, `{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"`+name+`","namespace":"default"},"spec":{"node":"node-a","orchestrator":"k8s","pod":"`+name+`","endpoint":"eth0","interfaceName":"cali1","ipNetworks":["`+address+`/32"]}}`)
}

// block writes the block with these addresses, each with a sequence number of 100 and more, and their handles.
func (w *world) block(of map[int]attribute) {
	const size = 8
	var allocations []any
	var free []int
	attributes, sequence := []any{}, map[string]any{}
	for ord := range size {
		a, ok := of[ord]
		if !ok {
			allocations, free = append(allocations, nil), append(free, ord)
			continue
		}
		allocations = append(allocations, len(attributes))
		attributes = append(attributes, map[string]any{"handle_id": a.handle, "secondary": a.owner})
		sequence[fmt.Sprint(ord)] = 100 + ord
		if strings.HasPrefix(a.handle, "windows") {
			continue // these have none
		}
		w.raw(api.HandleKey(a.handle), `{"handleID":"`+a.handle+`","block":{"10.0.0.0/29":1},"deleted":false}`)
	}
	text, err := json.Marshal(map[string]any{"cidr": "10.0.0.0/29", "affinity": "host:node-a", "allocations": allocations, "unallocated": free, "attributes": attributes, "deleted": false, "sequenceNumber": 200, "sequenceNumberForAllocation": sequence})
	if err != nil {
		w.Fatal(err)
	}
	w.raw(api.IPAMPrefix+"assignment/ipv4/block/10.0.0.0-29", string(text))
	w.raw(api.IPAMPrefix+"host/node-a/ipv4/block/10.0.0.0-29", `{"state":"confirmed","deleted":false}`)
}

func (w *world) check(all bool) string {
	w.Helper()
	var b strings.Builder
	if err := addresses.Check(w.Context(), &b, w.s, addresses.Checking{All: all, Problems: true, File: filepath.Join(w.dir, "ours.json"), Version: version}); err != nil {
		w.Fatal(err)
	}
	return b.String()
}

// file writes a report as it was given, and returns its name.
func (w *world) file(name, text string) string {
	w.Helper()
	name = filepath.Join(w.dir, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	return name
}

// upstreams is a report as calicoctl's source has it, with the present revision of the ClusterInformation; leaks are by number.
func (w *world) upstreams(name string, handles string, leaks ...string) string {
	w.Helper()
	c, err := report.ClusterOf(w.Context(), w.s)
	if err != nil {
		w.Fatal(err)
	}
	return w.file(name, `{"version":"`+version+`","clusterGUID":"g1","datastoreLocked":true,"clusterInformationRevision":"`+c.Revision.String()+`","clusterType":"k8s","allocations":{`+strings.Join(leaks, ",")+`},"leakedHandles":[`+handles+`]}`)
}

// leak is an allocation of calicoctl's report that nobody has.
func leak(n, sequence int, handle string) string {
	return fmt.Sprintf(`"10.0.0.%d":[{"ip":"10.0.0.%d","handle":"%s","sequenceNumber":%d,"node":"node-a","inUse":false,"owners":null}]`, n, n, handle, sequence)
}

func (w *world) release(force bool, files ...string) (string, error) {
	var b strings.Builder
	err := addresses.Release(w.Context(), &b, w.s, addresses.Releasing{Files: files, Force: force, Version: version})
	return b.String(), err
}

// allocated are the last numbers of the addresses that the block has.
func (w *world) allocated() string {
	w.Helper()
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^  10\.0\.0\.(\d) allocated`).FindAllStringSubmatch(w.check(true), -1) {
		out = append(out, m[1])
	}
	return strings.Join(out, "")
}

func (w *world) want(text string, parts ...string) {
	w.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			w.Errorf("%q is not in\n%s", p, text)
		}
	}
}

// TestACheckPrintsWhatCalicoctlPrints, line by line, of every address.
func TestACheckPrintsWhatCalicoctlPrints(t *testing.T) {
	w := newWorld(t, true)
	borrowed := pods("other")
	borrowed.owner["node"] = "node-b"
	w.block(map[int]attribute{
		0: {"windows-reserved-ipam-handle", map[string]string{"note": "windows host rsvd"}},
		1: pods("web"), 2: proven("gone"), 3: pods("unproven"), 4: borrowed,
		5: {"vxlan-tunnel-addr-node-a", map[string]string{"node": "node-a", "type": "vxlanTunnelAddress"}},
		6: at(proven("young"), time.Now()),
	})
	w.endpoint("web", "10.0.0.1")
	w.endpoint("other", "10.0.0.4")
	w.endpoint("twin", "10.0.0.4")
	w.endpoint("outside", "192.0.2.1")
	w.endpoint("lost", "10.0.0.9")
	w.endpoint("closed", "10.9.0.1") // its pool gives no addresses
	w.raw(api.HandleKey("left"), `{"handleID":"left","block":{"10.0.0.0/29":1},"deleted":false}`)
	if err := w.s.Delete(t.Context(), api.HandleKey("k8s-pod-network.web"), api.Revision{}); err != nil {
		t.Fatal(err)
	}
	const want = `Checking IPAM for inconsistencies...

Loading all IPAM blocks...
Found 1 IPAM blocks.
 IPAM block 10.0.0.0/29 affinity=host:node-a:
  10.0.0.0 allocated; attrs Main:windows-reserved-ipam-handle Extra:note=windows host rsvd
  10.0.0.1 allocated; attrs Main:k8s-pod-network.web Extra:namespace=default,node=node-a,pod=web
  10.0.0.2 allocated; attrs Main:k8s-pod-network.gone Extra:namespace=default,node=node-a,note=container,pod=gone,timestamp=2020-01-01T00:00:00Z
  10.0.0.3 allocated; attrs Main:k8s-pod-network.unproven Extra:namespace=default,node=node-a,pod=unproven
  10.0.0.4 allocated; attrs Main:k8s-pod-network.other Extra:namespace=default,node=node-b,pod=other
  10.0.0.5 allocated; attrs Main:vxlan-tunnel-addr-node-a Extra:node=node-a,type=vxlanTunnelAddress
  10.0.0.6 allocated; attrs Main:k8s-pod-network.young Extra:namespace=default,node=node-a,note=container,pod=young,timestamp=NOW
IPAM blocks record 7 allocations.

Loading all IPAM pools...
  10.0.0.0/24
Found 1 active IP pools.

Loading all nodes.
  10.0.0.5 belongs to Node(node-a)
Found 1 node tunnel IPs.

Loading all workload endpoints.
  10.0.0.1 belongs to Workload(default/web)
  10.0.0.4 belongs to Workload(default/other)
  10.0.0.4 belongs to Workload(default/twin)
  10.0.0.9 belongs to Workload(default/lost)
  10.9.0.1 belongs to Workload(default/closed)
  192.0.2.1 belongs to Workload(default/outside)
Found 6 workload IPs.
Workloads and nodes are using 6 IPs.

Loading all handles
Looking for top (up to 20) nodes by allocations...
  node-a has 6 allocations
  node-b has 1 allocations
Node with most allocations has 6; median is 1

Scanning for IPs that are allocated but not actually in use...
  10.0.0.2 leaked; attrs Main:k8s-pod-network.gone Extra:namespace=default,node=node-a,note=container,pod=gone,timestamp=2020-01-01T00:00:00Z
Found 1 IPs that are allocated in IPAM but not actually in use.
Scanning for IPs that are in use by a workload or node but not allocated in IPAM...
  10.0.0.4 has multiple owners.
  10.0.0.9 in use by Workload(default/lost) and in active IPAM pool but has no IPAM allocation.
  10.9.0.1 in use by Workload(default/closed) is not in any active IP pool.
  192.0.2.1 in use by Workload(default/outside) is not in any active IP pool.
Found 2 in-use IPs that are not in active IP pools.
Found 1 in-use IPs that are in active IP pools but have no corresponding IPAM allocation.

Scanning for IPAM handles with no matching IPs...
  left doesn't have any active IPs.
Found 1 handles with no matching IPs (and 5 handles with matches).
Scanning for IPs with missing handle...
  k8s-pod-network.web is in use in a block but doesn't exist.
Found 1 handles mentioned in blocks with no matching handle resource.
Check complete; found 5 problems.
`
	got := regexp.MustCompile(`(young,timestamp=).*`).ReplaceAllString(w.check(true), "${1}NOW")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if quiet := w.check(false); strings.Contains(quiet, "allocated; attrs") || strings.Contains(quiet, "belongs to") || !strings.Contains(quiet, "10.0.0.2 leaked") {
		t.Errorf("problems alone:\n%s", quiet)
	}
}

// TestKubernetesSaysWhichPodsThereAre: what upstream's plugin gave to a pod that is gone is a leak then; of a pod that is there, or
// if it does not answer, it is none.
func TestKubernetesSaysWhichPodsThereAre(t *testing.T) {
	old := time.Now().Add(-time.Hour)
	w := newWorld(t, true)
	w.block(map[int]attribute{1: at(pods("gone"), old), 2: at(pods("there"), old), 4: at(pods("young"), time.Now()), 5: pods("undated")})
	for _, tt := range []struct {
		name  string
		ask   addresses.AskPod
		want  string
		asked int
	}{
		{"nobody is asked", nil, "Found 0 IPs that are allocated in IPAM but not actually in use.", 0},
		{"it answers", func(_ context.Context, _, name string) (apiserver.Pod, bool, error) {
			return apiserver.Pod{}, name == "there", nil
		}, "Extra:namespace=default,node=node-a,pod=gone,", 4},
		{"it says that one is in its host's network", func(_ context.Context, _, name string) (apiserver.Pod, bool, error) {
			return apiserver.Pod{HostNetwork: name == "there"}, true, nil
		}, "Extra:namespace=default,node=node-a,pod=there,", 4},
		{"it does not", func(context.Context, string, string) (apiserver.Pod, bool, error) {
			return apiserver.Pod{}, false, datastore.ErrUnavailable
		}, "Kubernetes does not say which pods it has", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			asked := 0
			ask := tt.ask
			if ask != nil {
				ask = func(ctx context.Context, namespace, name string) (apiserver.Pod, bool, error) {
					asked++
					return tt.ask(ctx, namespace, name)
				}
			}
			err := addresses.Check(t.Context(), &b, w.s, addresses.Checking{Problems: true, Version: version, Pod: ask})
			leaks := 0
			if strings.HasPrefix(tt.want, "Extra") {
				leaks = 1
			}
			if err != nil || !strings.Contains(b.String(), tt.want) || asked != tt.asked || strings.Count(b.String(), " leaked; ") != leaks {
				t.Errorf("%v, asked %d times\n%s", err, asked, &b)
			}
		})
	}
}

// TestAnEndpointOfANodeThatIsGoneIsAProblem, though to calicoctl the address is in use by it.
func TestAnEndpointOfANodeThatIsGoneIsAProblem(t *testing.T) {
	w := newWorld(t, true)
	w.block(map[int]attribute{1: proven("web")})
	w.endpoint("web", "10.0.0.1")
	w.put("nodes/node-b", "Node", "node-b", `{}`)
	w.raw("/calico/felix/v2/no-region/host/node-a/last_reported_status", `{}`) // without the lease of an agent that lives
	if err := w.s.Delete(t.Context(), api.ResourcesPrefix+"nodes/node-a", api.Revision{}); err != nil {
		t.Fatal(err)
	}
	out := w.check(false)
	w.want(out, "Found 0 IPs that are allocated in IPAM but not actually in use.", "10.0.0.1 is the address of an endpoint on a node that is gone: ")
	if strings.Contains(out, "found 0 problems") {
		t.Error(out)
	}
}

// TestAReportIsOfCalicoctlsForm: its fields by their names, and inUse false of what is proven alone.
func TestAReportIsOfCalicoctlsForm(t *testing.T) {
	w := newWorld(t, true)
	w.block(map[int]attribute{1: pods("web"), 2: proven("gone"), 3: pods("unproven")})
	w.endpoint("web", "10.0.0.1")
	w.raw(api.HandleKey("left"), `{"handleID":"left","block":{},"deleted":false}`)
	w.check(false)
	text, err := os.ReadFile(filepath.Join(w.dir, "ours.json"))
	if err != nil {
		t.Fatal(err)
	}
	// As calicoctl declares it.
	var r struct {
		Version                    string
		ClusterGUID, ClusterType   string
		DatastoreLocked            bool
		ClusterInformationRevision string
		Allocations                map[string][]struct {
			IP, Handle, Pod, Namespace, Node string
			SequenceNumber                   *uint64
			InUse, Borrowed                  bool
			Owners                           []string
		}
		LeakedHandles []struct {
			ID       string
			UID      *string
			Revision string
		}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	c, err := report.ClusterOf(t.Context(), w.s)
	if err != nil || r.ClusterInformationRevision != c.Revision.String() || r.Version != version || r.ClusterGUID != "g1" || r.ClusterType != "k8s" || !r.DatastoreLocked {
		t.Errorf("%v: %s", err, text)
	}
	for ip, want := range map[string]string{
		"10.0.0.1": `k8s-pod-network.web default/web node-a 101 true [Workload(default/web)]`,
		"10.0.0.2": `k8s-pod-network.gone default/gone node-a 102 false []`,
		"10.0.0.3": `k8s-pod-network.unproven default/unproven node-a 103 true []`,
	} {
		if a := r.Allocations[ip]; len(a) != 1 || a[0].IP != ip || a[0].SequenceNumber == nil ||
			fmt.Sprintf("%s %s/%s %s %d %t %v", a[0].Handle, a[0].Namespace, a[0].Pod, a[0].Node, *a[0].SequenceNumber, a[0].InUse, a[0].Owners) != want {
			t.Errorf("%s: got %+v, want %s", ip, a, want)
		}
	}
	if len(r.Allocations) != 3 || len(r.LeakedHandles) != 1 || r.LeakedHandles[0].ID != "left" || r.LeakedHandles[0].Revision == "" {
		t.Errorf("%s", text)
	}
}
