package decommission

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/ipam"
)

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// cluster has nodes n1 and n2 with all that can hang on them. Both have blocks, and n2 borrows an address of n1's.
func cluster(t *testing.T) storetest.InMemory {
	t.Helper()
	s := storetest.New(t)
	put := func(key, value string) {
		if err := datastore.Put(t.Context(), s, api.Update{Key: key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	resource := func(key, spec string) { put(api.ResourcesPrefix+key, `{"metadata":{},"spec":{`+spec+`}}`) }
	resource("ippools/p", `"cidr":"10.0.0.0/28","blockSize":30`)
	a := ipam.New(s, ipam.Config{})
	for _, n := range []string{"n1", "n2"} {
		resource("nodes/"+n, ``)
		put(api.ResourcesPrefix+"hostendpoints/"+n+"-auto-hep",
			`{"metadata":{"labels":{"projectcalico.org/created-by":"calico-kube-controllers"}},"spec":{"node":"`+n+`","interfaceName":"*"}}`)
		resource("hostendpoints/"+n+"-eth0", `"node":"`+n+`","interfaceName":"eth0"`)
		resource("bgppeers/"+n+"-tor", `"node":"`+n+`","peerIP":"192.0.2.1","asNumber":64512`)
		resource("caliconodestatuses/"+n, `"node":"`+n+`","classes":["BGP"]`)
		resource("bgpconfigurations/node."+n, ``)
		resource("felixconfigurations/node."+n, ``)
		put("/calico/felix/v2/no-region/host/"+n+"/last_reported_status", `{}`)
		put("/calico/felix/v2/no-region/host/"+n+"/workload/k8s/prod%2fweb/endpoint/eth0", `{}`)
		put("/calico/felix/v1/host/"+n+"/endpoint/eth0", `{}`)
		for _, pod := range []string{"web", "api"} {
			got, err := a.Assign(t.Context(), ipam.AutoArgs{Node: n, Handle: "pod." + n + pod, Num4: 1, Attributes: map[string]string{
				api.AttributeNode: n, api.AttributePod: pod, api.AttributeNamespace: "prod",
			}})
			if err != nil {
				t.Fatal(err)
			}
			resource("workloadendpoints/prod/"+n+"-k8s-"+pod+"-eth0",
				fmt.Sprintf(`"orchestrator":"k8s","node":"%s","pod":"%s","endpoint":"eth0","interfaceName":"cali%s","ipNetworks":["%s/32"]`, n, pod, n+pod, got[0].Addr))
		}
		if _, err := a.Assign(t.Context(), ipam.AutoArgs{Node: n, Handle: "tunnel." + n, Num4: 1, Attributes: map[string]string{api.AttributeNode: n, api.AttributeType: "ipipTunnelAddress"}}); err != nil {
			t.Fatal(err)
		}
	}
	borrow(t, a, resource)
	resource("bgppeers/all", `"peerIP":"192.0.2.1","asNumber":64512`)
	return s
}

// borrow gives n2 an address of n1's block, and an endpoint with it.
func borrow(t *testing.T, a *ipam.Allocator, resource func(key, spec string)) {
	t.Helper()
	v, err := a.ReadSurvey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	block := netip.MustParsePrefix(v.BlocksOfNode("n1")[0])
	last := block.Addr().Next().Next().Next()
	if _, err := a.AssignIP(t.Context(), ipam.IPArgs{Addr: last, Node: "n2", Handle: "pod.n2far", Attributes: map[string]string{api.AttributeNode: "n2", api.AttributePod: "far", api.AttributeNamespace: "prod"}}); err != nil {
		t.Fatal(err)
	}
	resource("workloadendpoints/prod/n2-k8s-far-eth0", fmt.Sprintf(`"orchestrator":"k8s","node":"n2","pod":"far","endpoint":"eth0","interfaceName":"califar","ipNetworks":["%s/32"]`, last))
}

// keys is the store without revisions and sequence numbers.
func keys(t *testing.T, s storetest.InMemory) (out []string) {
	t.Helper()
	snap, err := s.List(t.Context(), api.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range snap.Sorted() {
		out = append(out, u.Key)
	}
	return out
}

func deleteNode(t *testing.T, s storetest.InMemory, node string) error {
	t.Helper()
	h, err := Look(t.Context(), s, node)
	if err != nil {
		return err
	}
	return h.Delete(t.Context(), s, func(api.Ref, string) {})
}

// leaks are what a check finds. Only the tunnels of our nodes, which have no tunnel in their spec, are to be expected.
func leaks(t *testing.T, s storetest.InMemory) (out []string) {
	t.Helper()
	v, err := ipam.New(s, ipam.Config{}).ReadSurvey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range v.Check(ipam.CheckOptions{Now: time.Now()}) {
		if !strings.Contains(f.Owner, "type=ipipTunnelAddress") {
			out = append(out, f.Kind+" "+f.Address.String()+" "+f.Block+" "+f.Handle+": "+f.Problem+" ("+f.Proof+")")
		}
	}
	return out
}

func TestWithANodeGoesAllThatHangsOnIt(t *testing.T) {
	s := cluster(t)
	before := keys(t, s)
	if err := deleteNode(t, s, "n1"); err != nil {
		t.Fatal(err)
	}
	var want []string // what names n1 is gone, but for the block of which n2 has an address
	var kept string
	for _, k := range before {
		if p, ok := api.ParseBlockKey(k); ok && p == netip.MustParsePrefix("10.0.0.0/30") {
			kept = k
		}
		if !strings.Contains(k, "n1") {
			want = append(want, k)
		}
	}
	if got := keys(t, s); !slices.Equal(got, want) {
		t.Errorf("left are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	u, err := s.Get(t.Context(), kept)
	if b, derr := api.DecodeBlock(u); err != nil || derr != nil {
		t.Errorf("the block: %v, %v", err, derr)
	} else if _, owned := b.Owner(); owned || len(ipam.Allocations(b)) != 1 {
		t.Errorf("the block in which n2 has an address has %d in use, and an owner: %v", len(ipam.Allocations(b)), owned)
	}
	if found := leaks(t, s); len(found) > 0 {
		t.Errorf("a check finds %q", found)
	}
}

func TestWhatIsTheNodesOwnIsNoLoss(t *testing.T) {
	s := cluster(t)
	h, err := Look(t.Context(), s, "n1")
	if err != nil {
		t.Fatal(err)
	}
	what, refs := h.Loss()
	var got []string
	for _, r := range refs {
		got = append(got, r.String())
	}
	want := []string{
		"WorkloadEndpoint prod/n1-k8s-api-eth0", "WorkloadEndpoint prod/n1-k8s-web-eth0", "HostEndpoint n1-eth0", "BGPPeer n1-tor", "CalicoNodeStatus n1",
		"BGPConfiguration node.n1", "FelixConfiguration node.n1",
	}
	if !slices.Equal(got, want) || len(what) != 2 {
		t.Errorf("lost would be %q and %q", got, what)
	}
	if !h.Exists || h.Alive || h.Empty() {
		t.Errorf("%+v", h)
	}
	report := fmt.Sprintf(`{"expires":%q}`, time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
	if err := datastore.Put(t.Context(), s, api.Update{Key: "/calico/felix/v2/region-eu/host/n1/status", Value: []byte(report)}); err != nil {
		t.Fatal(err)
	}
	if h, err := Look(t.Context(), s, "n1"); err != nil || !h.Alive {
		t.Errorf("its agent reported, and it is taken for dead: %v", err)
	}
	if h, err := Look(t.Context(), s, "n9"); err != nil || !h.Empty() {
		t.Errorf("nothing is known of n9, and it has %+v, %v", h, err)
	}
}

// TestACrashAtAnyCallLeavesWhatIsFoundAndRepeated fails each call of a deletion in turn.
func TestACrashAtAnyCallLeavesWhatIsFoundAndRepeated(t *testing.T) {
	whole := cluster(t)
	if err := deleteNode(t, whole, "n1"); err != nil {
		t.Fatal(err)
	}
	want := keys(t, whole)
	died := errors.New("died")
	for k, done := 1, false; !done; k++ {
		s := cluster(t)
		n := 0
		s.Fail(func(memstore.Op) error {
			if n++; n >= k {
				return died // and is dead from then on
			}
			return nil
		})
		err := deleteNode(t, s, "n1")
		s.Fail(nil)
		if done = n < k; done != (err == nil) {
			t.Fatalf("dead from call %d on: %v", k, err)
		}
		h, err := Look(t.Context(), s, "n1")
		if err != nil {
			t.Fatal(err)
		}
		if left := !slices.Equal(keys(t, s), want); left && (!h.Exists || h.Empty()) {
			t.Errorf("dead from call %d on: something is left, and not found", k)
		}
		for _, l := range leaks(t, s) {
			if strings.Contains(l, "not allocated") {
				t.Errorf("dead from call %d on: %s", k, l)
			}
		}
		if err := deleteNode(t, s, "n1"); err != nil {
			t.Errorf("dead from call %d on, repeated: %v", k, err)
		}
		if storetest.IsPoor() {
			repairHandles(t, s)
		}
		if got := keys(t, s); !slices.Equal(got, want) {
			t.Errorf("dead from call %d on, repeated: left are\n%s\nwant\n%s", k, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if found := leaks(t, s); len(found) > 0 {
			t.Errorf("dead from call %d on, repeated: a check finds %q", k, found)
		}
	}
}

// repairHandles does what ipam check --fix does to handles: where there are no transactions, one may count an address that was
// freed, and does not say of which node it was.
func repairHandles(t *testing.T, s datastore.Store) {
	t.Helper()
	a := ipam.New(s, ipam.Config{})
	v, err := a.ReadSurvey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	handles := slices.DeleteFunc(v.Check(ipam.CheckOptions{Now: time.Now()}), func(f ipam.Finding) bool { return f.Kind != ipam.FoundHandle })
	for _, r := range a.Repair(t.Context(), handles) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
}

func TestWhatOthersLeftOfANodeGoes(t *testing.T) {
	s := cluster(t)
	if err := s.Delete(t.Context(), api.ResourcesPrefix+"nodes/n1", api.Revision{}); err != nil {
		t.Fatal(err)
	}
	if err := deleteNode(t, s, "n1"); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys(t, s) {
		if strings.Contains(k, "n1") {
			t.Errorf("%s is left", k)
		}
	}
}

func TestAnEndpointThatMovedMeanwhileStays(t *testing.T) {
	s := cluster(t)
	h, err := Look(t.Context(), s, "n1")
	if err != nil {
		t.Fatal(err)
	}
	key := api.ResourcesPrefix + "hostendpoints/n1-eth0"
	if err := datastore.Put(t.Context(), s, api.Update{Key: key, Value: []byte(`{"metadata":{},"spec":{"node":"n2","interfaceName":"eth0"}}`)}); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(t.Context(), s, func(api.Ref, string) {}); !errors.Is(err, datastore.ErrConflict) || !strings.Contains(err.Error(), "n1-eth0") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Get(t.Context(), key); err != nil {
		t.Error(err)
	}
}
