package tunneladdr

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/syncer"
)

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// bench is a controller of node h1 on a store in memory, fed by a real syncer, in virtual time.
type bench struct {
	*testing.T
	store storetest.InMemory
	k     *Controller
	ipip  string // what the Node had when want was last called
}

func run(t *testing.T, stored map[string]string, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, store: storetest.New(t)}
		for key, value := range stored {
			b.put(key, value)
		}
		source := syncer.New(b.store, syncer.Config{Logger: slog.New(slog.DiscardHandler)})
		k := New(Config{Node: "h1", Store: b.store, Know: source.Know, Log: slog.New(slog.DiscardHandler)})
		b.k = k
		ctx, cancel := context.WithCancel(t.Context())
		go source.Run(ctx)
		go k.Run(ctx)
		go func() {
			for batch := range source.Batches() {
				k.Update(batch.Updates, batch.InSync)
			}
		}()
		test(b)
		cancel()
		synctest.Wait()
	})
}

func (b *bench) put(key, value string) {
	b.Helper()
	if err := datastore.Put(b.Context(), b.store, api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)}); err != nil {
		b.Fatal(err)
	}
}

// want compares the addresses in the Node of VXLAN of IPv4 and IPv6, "-" for none, with those that are assigned to its tunnels, and does so for IPIP.
func (b *bench) want(what string, ok func(v4, v6 string) bool) {
	b.Helper()
	<-time.After(time.Minute) // virtual
	synctest.Wait()
	u, err := b.store.Get(b.Context(), api.ResourcesPrefix+"nodes/h1")
	if err != nil {
		b.Fatal(err)
	}
	var n struct {
		Spec map[string]any
	}
	if err := json.Unmarshal(u.Value, &n); err != nil || n.Spec["future"] != 1.0 {
		b.Errorf("%s: what another version wrote is lost: %s, %v", what, u.Value, err)
	}
	got := [3]string{"-", "-", "-"}
	bgp, _ := n.Spec["bgp"].(map[string]any)
	for f, a := range []any{n.Spec["ipv4VXLANTunnelAddr"], n.Spec["ipv6VXLANTunnelAddr"], bgp["ipv4IPIPTunnelAddr"]} {
		if text, is := a.(string); is {
			got[f] = text
		}
	}
	if b.ipip = got[2]; !ok(got[0], got[1]) {
		b.Errorf("%s: the Node has %q", what, got)
	}
	all := ipam.New(b.store, ipam.Config{})
	for f, handle := range []string{"vxlan-tunnel-addr-h1", "vxlan-v6-tunnel-addr-h1", "ipip-tunnel-addr-h1"} {
		as, err := all.Addresses(b.Context(), handle)
		if text := fmt.Sprint(as); err != nil || got[f] == "-" && len(as) > 0 || got[f] != "-" && text != "["+got[f]+"]" {
			b.Errorf("%s: handle %s has %s, %v; the Node has %s", what, handle, text, err, got[f])
		}
		for _, a := range as {
			l, err := all.QueryIP(b.Context(), a)
			if kind := []string{"vxlanTunnelAddress", "vxlanV6TunnelAddress", "ipipTunnelAddress"}[f]; err != nil || l.Owner[api.AttributeNode] != "h1" || l.Owner[api.AttributeType] != kind {
				b.Errorf("%s: %s is of %v, %v", what, a, l.Owner, err)
			}
		}
	}
}

func in(cidr string) func(string) bool {
	return func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && netip.MustParsePrefix(cidr).Contains(a)
	}
}

const node = `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1","labels":{"rack":"a"}},"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"},"future":1},"status":{}}`

func pool(spec string) string {
	return `{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"p"},"spec":{` + spec + `}}`
}

func none(v4, v6 string) bool { return v4 == "-" && v6 == "-" }

func TestANodeHasAnAddressWhileAPoolWantsATunnel(t *testing.T) {
	run(t, map[string]string{"nodes/h1": node, "ippools/p": pool(`"cidr":"10.65.0.0/24"`)}, func(b *bench) {
		b.want("no tunnel", none)
		b.put("ippools/p", pool(`"cidr":"10.65.0.0/24","vxlanMode":"Always"`))
		first := ""
		b.want("a tunnel", func(v4, v6 string) bool { first = v4; return in("10.65.0.0/24")(v4) && v6 == "-" })
		b.put("ippools/p", pool(`"cidr":"10.65.0.0/24","vxlanMode":"CrossSubnet"`))
		b.put("ippools/q", strings.ReplaceAll(pool(`"cidr":"fd65::/64","blockSize":122,"vxlanMode":"Always"`), `"p"`, `"q"`))
		b.want("of IPv6, too", func(v4, v6 string) bool { return v4 == first && in("fd65::/64")(v6) })
		b.put("ippools/p", pool(`"cidr":"10.65.0.0/24","vxlanMode":"CrossSubnet","disabled":true`))
		b.want("a pool that gives nothing new", func(v4, _ string) bool { return v4 == first })
		b.put("ippools/p", pool(`"cidr":"10.65.0.0/24","vxlanMode":"CrossSubnet","nodeSelector":"rack == 'b'"`))
		b.want("a pool for others", func(v4, v6 string) bool { return v4 == "-" && v6 != "-" })
		b.put("ippools/p", pool(`"cidr":"10.65.0.0/24","vxlanMode":"CrossSubnet","allowedUses":["Workload"]`))
		b.want("a pool for workloads alone", func(v4, _ string) bool { return v4 == "-" })
		b.put("ippools/r", strings.ReplaceAll(pool(`"cidr":"10.66.0.0/24","vxlanMode":"Always"`), `"p"`, `"r"`))
		b.want("another pool", func(v4, _ string) bool { return in("10.66.0.0/24")(v4) })
		for _, name := range []string{"p", "q", "r"} {
			if err := b.store.Delete(b.Context(), api.ResourcesPrefix+"ippools/"+name, api.Revision{}); err != nil {
				b.Fatal(err)
			}
		}
		b.want("no pool", none)
	})
}

// TestTheAddressOfATunnelIsOfThePoolThatHasTheRange: of pools with one CIDR hosts go by the first by name, and another may be the one that gives addresses.
func TestTheAddressOfATunnelIsOfThePoolThatHasTheRange(t *testing.T) {
	made := func(day int, more string) string {
		return fmt.Sprintf(`{"metadata":{"creationTimestamp":"2026-01-%02dT00:00:00Z"},"spec":{"cidr":"10.65.0.0/16"%s}}`, day, more)
	}
	run(t, map[string]string{
		"nodes/h1":  `{"metadata":{"name":"h1"},"spec":{"future":1}}`,
		"ippools/a": made(2, `,"vxlanMode":"Always","ipipMode":"Always"`), "ippools/b": made(1, ""),
	}, func(b *bench) {
		b.want("the first by name asks for tunnels, and the second gives addresses", in4("10.65.0.0/16"))
		if !in("10.65.0.0/16")(b.ipip) {
			b.Errorf("the address of IPIP is %q", b.ipip)
		}
	})
}

// TestADisabledPoolGivesNoAddress, so that none is tried; one that it gave stays until another pool gives one, since workloads are reached through it.
func TestADisabledPoolGivesNoAddress(t *testing.T) {
	enabled := pool(`"cidr":"10.65.0.0/24","vxlanMode":"Always"`)
	disabled := strings.Replace(enabled, `"cidr"`, `"disabled":true,"cidr"`, 1)
	k := New(Config{Node: "h1", Store: storetest.New(t), Log: slog.New(slog.DiscardHandler)})
	k.observe(api.Update{Key: api.ResourcesPrefix + "nodes/h1", Value: []byte(node)})
	k.observe(api.Update{Key: api.ResourcesPrefix + "ippools/p", Value: []byte(disabled)})
	if _, err := k.reconcile(t.Context(), "h1"); err != nil {
		t.Errorf("of a disabled pool alone: %v", err)
	}
	run(t, map[string]string{"nodes/h1": node, "ippools/p": disabled}, func(b *bench) {
		first := ""
		b.want("disabled", none)
		b.put("ippools/p", enabled)
		b.want("enabled", func(v4, _ string) bool { first = v4; return in("10.65.0.0/24")(v4) })
		b.put("ippools/p", disabled)
		b.want("disabled again", func(v4, _ string) bool { return v4 == first })
		b.put("ippools/q", strings.NewReplacer(`"p"`, `"q"`, ".65.", ".66.").Replace(enabled))
		b.want("another", in4("10.66.0.0/24"))
	})
}

// TestTheAddressOfAPoolThatIsBeingDeleted is kept while no other pool wants the tunnel: workloads of the pool are reached through it.
func TestTheAddressOfAPoolThatIsBeingDeleted(t *testing.T) {
	vxlan := `"cidr":"10.65.0.0/24","vxlanMode":"Always"`
	deleted := strings.Replace(pool(vxlan), `"name"`, `"deletionTimestamp":"2026-01-02T03:04:05Z","name"`, 1)
	run(t, map[string]string{"nodes/h1": node, "ippools/p": pool(vxlan)}, func(b *bench) {
		first := ""
		b.want("a tunnel", func(v4, _ string) bool { first = v4; return in("10.65.0.0/24")(v4) })
		b.put("ippools/p", deleted)
		b.want("no other pool", func(v4, _ string) bool { return v4 == first })
		b.put("ippools/r", strings.NewReplacer(`"p"`, `"r"`, ".65.", ".66.").Replace(strings.Replace(pool(vxlan), `"cidr"`, `"disabled":true,"cidr"`, 1)))
		b.want("another that gives none", func(v4, _ string) bool { return v4 == first })
		b.put("ippools/r", strings.NewReplacer(`"p"`, `"r"`, ".65.", ".66.").Replace(pool(vxlan)))
		<-time.After(time.Hour) // virtual: it is tried again
		b.want("another", in4("10.66.0.0/24"))
	})
	run(t, map[string]string{"nodes/h1": node, "ippools/p": pool(vxlan)}, func(b *bench) {
		b.want("a tunnel", in4("10.65.0.0/24"))
		b.put("ippools/p", deleted)
		if _, left, err := ipam.New(b.store, ipam.Config{}).RetireBlocks(b.Context(), netip.MustParsePrefix("10.65.0.0/24")); err != nil || left > 0 {
			t.Errorf("%d blocks keep the pool, %v", left, err)
		}
		b.want("what the controllers do", in4("10.65.0.0/24"))
		if err := b.store.Delete(b.Context(), api.ResourcesPrefix+"ippools/p", api.Revision{}); err != nil {
			t.Fatal(err)
		}
		b.want("it is gone", none)
		if blocks, err := b.store.List(b.Context(), api.BlockPrefix); err != nil || len(blocks.Items) > 0 {
			t.Errorf("blocks are left: %v, %v", blocks.Items, err)
		}
	})
}

// TestANodeHasAnAddressWhileAPoolWantsIPIP, beside that of VXLAN, if it is a Node whose own address is not known yet, too.
func TestANodeHasAnAddressWhileAPoolWantsIPIP(t *testing.T) {
	for _, first := range []string{node, strings.Replace(node, `"bgp":{"ipv4Address":"192.0.2.1/24"},`, "", 1)} {
		run(t, map[string]string{"nodes/h1": first, "ippools/p": pool(`"cidr":"10.65.0.0/24"`)}, func(b *bench) {
			b.want("no tunnel", none)
			if b.ipip != "-" {
				t.Errorf("no tunnel: %s", b.ipip)
			}
			for _, tt := range []struct{ p, q string }{{"Always", "Never"}, {"CrossSubnet", "Always"}, {"Never", "Always"}, {"Never", "Never"}} {
				b.put("ippools/p", pool(`"cidr":"10.65.0.0/24","ipipMode":"`+tt.p+`"`))
				b.put("ippools/q", strings.ReplaceAll(pool(`"cidr":"10.66.0.0/24","vxlanMode":"`+tt.q+`"`), `"p"`, `"q"`))
				b.want("IPIP "+tt.p+", VXLAN "+tt.q, func(v4, v6 string) bool { return in("10.66.0.0/24")(v4) == (tt.q != "Never") && v6 == "-" })
				if in("10.65.0.0/24")(b.ipip) != (tt.p != "Never") {
					t.Errorf("IPIP %s, VXLAN %s: IPIP has %s", tt.p, tt.q, b.ipip)
				}
			}
		})
	}
}

// TestWhatIsStoredIsKeptIfItFits: an upstream node wrote it, or this one before it died.
func TestWhatIsStoredIsKeptIfItFits(t *testing.T) {
	stored := func(addr string) string {
		return strings.Replace(node, `"future"`, `"ipv4VXLANTunnelAddr":"`+addr+`","future"`, 1)
	}
	vxlan := pool(`"cidr":"10.65.0.0/24","vxlanMode":"Always"`)
	run(t, map[string]string{"nodes/h1": stored("10.65.0.77"), "ippools/p": vxlan}, func(b *bench) {
		b.want("nobody has it", func(v4, _ string) bool { return v4 == "10.65.0.77" })
		b.put("nodes/h1", node)
		b.want("somebody took it out of the Node", func(v4, _ string) bool { return v4 == "10.65.0.77" })
	})
	run(t, map[string]string{"nodes/h1": stored("10.99.0.1"), "ippools/p": vxlan}, func(b *bench) {
		b.want("of no pool", in4("10.65.0.0/24"))
	})
	run(t, map[string]string{"nodes/h1": stored("10.65.0.77")}, func(b *bench) { b.want("there is no pool", none) })
}

// TestAnAddressOfBeforeThereWereHandlesIsTakenOver: old versions of Calico assigned addresses to tunnels without a handle and attributes. One that
// only its handle does not know is the same. Neither is left behind.
func TestAnAddressOfBeforeThereWereHandlesIsTakenOver(t *testing.T) {
	const handle = "vxlan-tunnel-addr-h1"
	vxlan := pool(`"cidr":"10.65.0.0/24","vxlanMode":"Always"`)
	other := strings.NewReplacer(`"p"`, `"r"`, ".65.", ".66.").Replace(vxlan)
	for _, tt := range []struct {
		name  string
		attr  api.BlockAttribute
		pools []string
		want  func(v4, v6 string) bool
		stays bool
	}{
		{"it fits", api.BlockAttribute{}, []string{vxlan}, func(v4, _ string) bool { return v4 == "10.65.0.77" }, true},
		{"only its handle does not know it", api.BlockAttribute{Handle: ptr(handle)}, []string{vxlan}, func(v4, _ string) bool { return v4 == "10.65.0.77" }, true},
		{"its pool is gone", api.BlockAttribute{}, []string{other}, in4("10.66.0.0/24"), false},
		{"no pool wants a tunnel", api.BlockAttribute{}, nil, none, false},
		{"it has a handle: it is a workload's", api.BlockAttribute{Handle: ptr("k8s-pod-network.a")}, []string{vxlan}, func(v4, _ string) bool { return in("10.65.0.0/24")(v4) && v4 != "10.65.0.77" }, true},
		{"it has attributes: it is a workload's", api.BlockAttribute{Owner: map[string]string{api.AttributePod: "web"}}, nil, none, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stored := map[string]string{} // before the Node: while no pool wants a tunnel, it takes the address away
			for i, p := range tt.pools {
				stored["ippools/"+map[bool]string{true: "r", false: "p"}[p == other]] = tt.pools[i]
			}
			run(t, stored, func(b *bench) {
				b.oldBlock(netip.MustParseAddr("10.65.0.77"), tt.attr)
				b.put("nodes/h1", strings.Replace(node, `"future"`, `"ipv4VXLANTunnelAddr":"10.65.0.77","future"`, 1))
				b.want(tt.name, tt.want)
				if l, err := ipam.New(b.store, ipam.Config{}).QueryIP(b.Context(), netip.MustParseAddr("10.65.0.77")); err != nil || l.Assigned != tt.stays {
					t.Errorf("it is %+v, %v", l, err)
				}
			})
		})
	}
}

func ptr(s string) *string { return &s }

// oldBlock stores a block of h1 in which an address is assigned, with no handle beside it.
func (b *bench) oldBlock(a netip.Addr, attr api.BlockAttribute) {
	b.Helper()
	own := "host:h1"
	block := api.Block{CIDR: netip.PrefixFrom(a, 26).Masked(), Affinity: &own, Attributes: []api.BlockAttribute{attr}}
	block.Allocations = make([]*int, block.Size())
	for i := range block.Allocations {
		if block.Addr(i) == a {
			block.Allocations[i] = new(int)
		} else {
			block.Unallocated = append(block.Unallocated, i)
		}
	}
	value, err := json.Marshal(&block)
	if err != nil {
		b.Fatal(err)
	}
	for key, value := range map[string]string{
		api.BlockKey(block.CIDR): string(value), api.AffinityKey(api.Owner{Type: api.OwnerHost, Name: "h1"}, block.CIDR): `{"state":"confirmed"}`,
	} {
		if err := datastore.Put(b.Context(), b.store, api.Update{Key: key, Value: []byte(value)}); err != nil {
			b.Fatal(err)
		}
	}
}

func in4(cidr string) func(v4, v6 string) bool {
	return func(v4, _ string) bool { return in(cidr)(v4) }
}

// TestAnotherUsersAddressIsNotTaken: two Nodes may say that they have the same.
func TestAnotherUsersAddressIsNotTaken(t *testing.T) {
	stored := strings.Replace(node, `"future"`, `"ipv4VXLANTunnelAddr":"10.65.0.7","future"`, 1)
	run(t, map[string]string{"ippools/p": pool(`"cidr":"10.65.0.0/24","vxlanMode":"Always"`)}, func(b *bench) {
		if _, err := ipam.New(b.store, ipam.Config{}).AssignIP(b.Context(), ipam.IPArgs{Addr: netip.MustParseAddr("10.65.0.7"), Node: "h2", Handle: "a"}); err != nil {
			t.Fatal(err)
		}
		b.put("nodes/h1", stored)
		b.want("assigned to a workload", func(v4, _ string) bool { return in("10.65.0.0/24")(v4) && v4 != "10.65.0.7" })
	})
}

// TestWhatFailsIsTriedAgain, and loses no address.
func TestWhatFailsIsTriedAgain(t *testing.T) {
	run(t, map[string]string{"nodes/h1": node}, func(b *bench) {
		b.store.Fail(func(op memstore.Op) error {
			if strings.Contains(op.Key, "nodes/h1") && slices.Contains([]string{"update", "create"}, op.Verb) {
				return datastore.ErrUnavailable
			}
			return nil
		})
		b.put("ippools/p", pool(`"cidr":"10.65.0.0/24","vxlanMode":"Always"`))
		<-time.After(5 * time.Minute) // virtual
		b.store.Fail(nil)
		b.want("the Node could not be written", in4("10.65.0.0/24"))
	})
}

// TestAnAddressThatIsFreedIsAssignedAgain, or if somebody else has it by then, another: nothing tells the agent.
func TestAnAddressThatIsFreedIsAssignedAgain(t *testing.T) {
	run(t, map[string]string{"nodes/h1": node, "ippools/p": pool(`"cidr":"10.65.0.0/24","vxlanMode":"Always"`)}, func(b *bench) {
		first := ""
		b.want("a tunnel", func(v4, _ string) bool { first = v4; return in("10.65.0.0/24")(v4) })
		all := ipam.New(b.store, ipam.Config{})
		free := func() {
			t.Helper()
			if got, err := all.ReleaseByHandle(b.Context(), "vxlan-tunnel-addr-h1"); err != nil || len(got) != 1 {
				t.Fatalf("released %v, %v", got, err)
			}
		}
		free()
		<-time.After(10 * time.Minute) // virtual
		b.want("nobody has it", func(v4, _ string) bool { return v4 == first })
		free()
		if _, err := all.AssignIP(b.Context(), ipam.IPArgs{Addr: netip.MustParseAddr(first), Node: "h2", Handle: "a"}); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Minute) // virtual
		b.want("another has it", func(v4, _ string) bool { return in("10.65.0.0/24")(v4) && v4 != first })
		writes := b.store.Revision()
		<-time.After(24 * time.Hour) // virtual
		if b.store.Revision() != writes {
			t.Error("there are writes although nothing changes")
		}
	})
}

// TestANodeSaysItsKeyOfWireGuard, and has an address, while settings want it.
func TestANodeSaysItsKeyOfWireGuard(t *testing.T) {
	const key = "lIZGNy2QqzQ6DyrAvSsQFQRqVK2W2qPLZkqkOQ3a9lw="
	six := strings.ReplaceAll(pool(`"cidr":"fd65::/64","blockSize":122`), `"p"`, `"q"`)
	run(t, map[string]string{"nodes/h1": node, "ippools/p": pool(`"cidr":"10.65.0.0/24"`), "ippools/q": six}, func(b *bench) {
		says := func(what, v4, v6 string, address bool) {
			t.Helper()
			b.want(what, none)
			u, err := b.store.Get(b.Context(), api.ResourcesPrefix+"nodes/h1")
			if err != nil {
				t.Fatal(err)
			}
			s, err := api.Admit(u)
			if err != nil {
				t.Fatal(err)
			}
			n := s.Resource.(*api.Node)
			if n.Status.WireguardPublicKey != v4 || n.Status.WireguardPublicKeyV6 != v6 {
				t.Errorf("%s: the Node says %+v", what, n.Status)
			}
			w := n.Spec.Wireguard
			if (w != nil) != address || address && (!in("10.65.0.0/24")(w.InterfaceIPv4Address) || (w.InterfaceIPv6Address != "") != (v6 != "")) {
				t.Errorf("%s: the Node has %+v", what, w)
			}
			for handle, has := range map[string]bool{"wireguard-tunnel-addr-h1": address, "wireguard-v6-tunnel-addr-h1": v6 != ""} {
				if as, err := ipam.New(b.store, ipam.Config{}).Addresses(b.Context(), handle); err != nil || (len(as) == 1) != has {
					t.Errorf("%s: %s has %v, %v", what, handle, as, err)
				}
			}
		}
		b.k.Want([2]bool{})
		says("nobody wants it", "", "", false)
		b.k.Want([2]bool{true, false})
		says("settings want it", "", "", true)
		b.k.Key(intent.WireGuard, key)
		says("the device has a key", key, "", true)
		b.k.Want([2]bool{true, true})
		b.k.Key(intent.WireGuard6, key)
		says("of both families", key, key, true)
		b.k.Key(intent.WireGuard6, "")
		b.k.Want([2]bool{true, false})
		says("of one", key, "", true)
		b.k.Key(intent.WireGuard, "")
		b.k.Want([2]bool{})
		says("of none", "", "", false)
	})
	stored := strings.Replace(node, `"status":{}`, `"status":{"wireguardPublicKey":"`+key+`"}`, 1)
	run(t, map[string]string{"nodes/h1": stored, "ippools/p": pool(`"cidr":"10.65.0.0/24"`)}, func(b *bench) {
		b.want("an agent that knows nothing yet", none)
		if u, err := b.store.Get(b.Context(), api.ResourcesPrefix+"nodes/h1"); err != nil || !strings.Contains(string(u.Value), key) {
			t.Errorf("it took the key away: %s, %v", u.Value, err)
		}
	})
}
