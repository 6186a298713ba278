package attach

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
)

// older puts down what an older version made of an attachment: each interface, whatever its name, under the one handle of its container, and
// without the network in the attributes. It returns the attachment's addresses.
func (b *bed) older(r wire.Request, attributes map[string]string) []netip.Addr {
	b.Helper()
	owner := map[string]string{"node": "h1", "timestamp": "2026-11-20T10:00:00Z", "note": "container", "interface": r.Ifname, "mac": r.MAC}
	workload, namespace, orchestrator, profile := r.ContainerID, "default", `"orchestrator":"cni"`, r.Network
	if r.Pod != nil {
		owner["namespace"], owner["pod"] = r.Pod.Namespace, r.Pod.Name
		workload, namespace, profile = r.Pod.Name, r.Pod.Namespace, "kns."+r.Pod.Namespace
		orchestrator = fmt.Sprintf(`"orchestrator":"k8s","pod":%q`, r.Pod.Name)
	}
	maps.Copy(owner, attributes)
	maps.DeleteFunc(owner, func(_, v string) bool { return v == "" })
	addrs, err := b.cfg.Addresses.Assign(b.Context(), AddressRequest{Handle: r.Network + "." + r.ContainerID, Want: r.IPAM, About: owner})
	b.must(err)
	name := fmt.Sprintf("h1-%s-%s-%s", map[bool]string{true: "k8s", false: "cni"}[r.Pod != nil], workload, r.Ifname)
	value := fmt.Sprintf(`{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"namespace":%q,"labels":{"app":"web"},"annotations":{"twill.net/cni-network":%q}},
		"spec":{%s,"node":"h1","containerID":%q,"endpoint":%q,"ipNetworks":["%s/32","%s/128"],"profiles":[%q],"interfaceName":%q,"mac":%q}}`,
		name, namespace, r.Network, orchestrator, r.ContainerID, r.Ifname, addrs[0], addrs[1], profile, r.Link, r.MAC)
	key := api.KeyPrefix(api.KindWorkloadEndpoint, "") + namespace + "/" + name
	b.known.Store(key, true)
	b.must(second(b.store.InMemory.Create(b.Context(), api.Update{Key: key, Value: []byte(value)})))
	return addrs
}

// What an older version attached, whatever it called the interface, goes on: it is checked, gets company, and goes by DEL, by GC, and by a note that the
// older plugin left.
func TestAttachmentsOfOlderVersionsGoOn(t *testing.T) {
	for _, tt := range []struct {
		name       string
		had, added wire.Request
	}{
		{"the first of a container", request("c1"), other(request("c1"), "net1", "net")},
		{"the first of a pod", ofPod("c1", "web"), other(ofPod("c1", "web"), "net1", "net")},
		{"one of a pod that is not the first, in another network than the first", other(ofPod("c1", "web"), "net1", "two"), ofPod("c1", "web")},
		{"one of a pod that is not the first, in the network of the first", other(ofPod("c1", "web"), "net1", "net"), ofPod("c1", "web")},
	} {
		for name, detach := range map[string]func(*bed) error{
			"DEL": func(b *bed) error { return second(b.Detach(t.Context(), tt.had.Ref)) },
			"GC": func(b *bed) error {
				return second(b.Collect(t.Context(), wire.Valid{Network: tt.had.Network, Refs: []wire.Ref{tt.added.Ref}}))
			},
			"a note": func(b *bed) error {
				text := fmt.Sprintf(`{"network":%q,"containerID":"c1","ifname":%q}`, tt.had.Network, tt.had.Ifname)
				if tt.had.Pod != nil {
					text = strings.TrimSuffix(text, "}") + `,"pod":{"namespace":"prod","name":"web"}}`
				}
				b.must(os.WriteFile(filepath.Join(b.cfg.Notes, tt.had.Network+".c1."+tt.had.Ifname+".json"), []byte(text), 0o600))
				return b.processNotes(t.Context())
			},
		} {
			for _, alone := range []bool{true, false} {
				b := newBed(t)
				addrs := b.older(tt.had, nil)
				was := b.left()
				b.must(second(b.Check(t.Context(), withAddrs(tt.had, addrs))))
				var want []string
				if !alone {
					b.attach(tt.added)
					b.must(second(b.Check(t.Context(), withAddrs(tt.had, addrs))))
					want = without(b.left(), was)
				}
				b.must(detach(b))
				if left := b.left(); !slices.Equal(left, want) {
					t.Errorf("%s, by %s, alone %v: left %v, want %v", tt.name, name, alone, left, want)
				}
				b.must(second(b.Detach(t.Context(), tt.added.Ref)))
				if left := b.left(); len(left) > 0 {
					t.Errorf("%s, by %s, alone %v: in the end %v", tt.name, name, alone, left)
				}
			}
		}
	}
}

// The last container of a pod was attached by an older version and not detached: what it had goes when the next one takes its place.
func TestANewContainerTakesThePlaceOfAnOlderVersions(t *testing.T) {
	b := newBed(t)
	b.older(ofPod("old", "web"), nil)
	b.older(other(ofPod("old", "web"), "net1", "net"), nil)
	was := b.left()
	b.attach(ofPod("new", "web"))
	if left := b.left(); len(left) != 6 || len(without(was, left)) != 2 {
		t.Errorf("with a new first interface: %v", left)
	}
	b.attach(other(ofPod("new", "web"), "net1", "net"))
	if left := b.left(); len(left) != 6 || strings.Contains(strings.Join(left, " "), "old") {
		t.Errorf("with both: %v", left)
	}
}

// Addresses that say nothing of their interface are released with the endpoint that had them, or with the first interface if there is no other:
// nothing says whose they are.
func TestAddressesOfNobodyKnowsWhichInterfaceAreReleasedOnProof(t *testing.T) {
	b := newBed(t)
	nothing := map[string]string{"interface": "", "mac": "", "note": ""}
	one, two := ofPod("c1", "web"), other(ofPod("c1", "web"), "net1", "net")
	b.older(one, nothing)
	first := b.left()
	b.older(two, nothing)
	b.must(second(b.Release(t.Context(), two.Ref))) // as IPAM of another main plugin, without an endpoint
	if left := b.left(); len(left) != 6 {
		t.Errorf("without proof: %v", left)
	}
	for range 2 {
		b.must(second(b.Detach(t.Context(), two.Ref)))
		if left := b.left(); !slices.Equal(left, first) {
			t.Errorf("without the second: %v, want %v", left, first)
		}
	}
	b.must(second(b.Detach(t.Context(), one.Ref)))
	if left := b.left(); len(left) > 0 {
		t.Errorf("in the end: %v", left)
	}
}

// Names of networks and containers may have dots, so that handles of different ones are alike.
func TestGCLeavesWhatMayBeAnotherNetworks(t *testing.T) {
	b := newBed(t)
	dotted := request("c1")
	dotted.Network = "net.blue"
	alike := request("blue.c1")
	alike.Link = "calialike"
	b.attach(dotted)
	b.attach(alike)
	want := b.left()
	if !strings.Contains(strings.Join(want, " "), "of net.blue.c1") {
		t.Fatalf("there is %v", want)
	}
	b.must(second(b.Collect(t.Context(), wire.Valid{Network: "net", Refs: []wire.Ref{alike.Ref}})))
	if left := b.left(); !slices.Equal(left, want) {
		t.Errorf("GC of net took from net.blue: %v, want %v", left, want)
	}
	b.must(second(b.Detach(t.Context(), alike.Ref)))
	left := b.left()
	b.must(second(b.Check(t.Context(), withAddrs(dotted, b.addrs("default/h1-cni-c1-eth0")))))
	if len(left) != 3 {
		t.Errorf("left %v, want the endpoint and the addresses of net.blue", left)
	}
	b.must(second(b.Detach(t.Context(), dotted.Ref)))

	// An older version did not record the network.
	owner := map[string]string{"node": "h1", "interface": "eth0"}
	for _, handle := range []string{"net.blue.c2", "net.c2"} {
		b.must(second(b.cfg.Addresses.Assign(t.Context(), AddressRequest{Handle: handle, Want: wire.IPAM{V4: true}, About: owner})))
	}
	b.must(second(b.Collect(t.Context(), wire.Valid{Network: "net"})))
	if left := b.left(); len(left) != 1 || !strings.HasSuffix(left[0], " of net.blue.c2") {
		t.Errorf("left %v, want what may be of net.blue", left)
	}
}

// addrs are those of an endpoint in the store.
func (b *bed) addrs(name string) []netip.Addr {
	b.Helper()
	u, err := b.store.InMemory.Get(b.Context(), api.KeyPrefix(api.KindWorkloadEndpoint, "")+name)
	b.must(err)
	var w api.WorkloadEndpoint
	b.must(json.Unmarshal(u.Value, &w))
	return addrsOf(&w)
}

// The same name for two attachments would have the note of one overwrite the other's.
func TestNotesOfDifferentAttachmentsHaveDifferentNames(t *testing.T) {
	seen := map[string]wire.Ref{}
	for _, r := range []wire.Ref{
		{Network: "a.b", ContainerID: "c", Ifname: "eth0"},
		{Network: "a", ContainerID: "b.c", Ifname: "eth0"},
		{Network: "a", ContainerID: "b", Ifname: "c.eth0"},
		{Network: "a", ContainerID: "b", Ifname: "c+eth0"},
		{Network: "a", ContainerID: "b", Ifname: "eth0"},
	} {
		if other, taken := seen[r.NoteName()]; taken {
			t.Errorf("%v and %v have the note %s", r, other, r.NoteName())
		}
		seen[r.NoteName()] = r
	}
}
