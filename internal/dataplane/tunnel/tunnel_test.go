package tunnel_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

var (
	own  = intent.Tunnel{Host: netip.MustParseAddr("192.0.2.1"), Addr: netip.MustParseAddr("10.65.1.1"), MAC: "66:00:00:00:00:01"}
	own6 = intent.Tunnel{Host: netip.MustParseAddr("2001:db8::1"), Addr: netip.MustParseAddr("fd65::1:1"), MAC: "66:00:00:00:00:61"}
	h2   = intent.TunnelPeer{Node: "h2", Host: netip.MustParseAddr("192.0.2.2"), Addr: netip.MustParseAddr("10.65.2.1"), MAC: "66:00:00:00:00:02"}
	h3   = intent.TunnelPeer{Node: "h3", Host: netip.MustParseAddr("192.0.2.3"), Addr: netip.MustParseAddr("10.65.3.1"), MAC: "66:00:00:00:00:03"}
)

// rig is a driver in a namespace whose uplink carries packets of 1400 bytes.
type rig struct {
	*testing.T
	ns *netnstest.NS
	d  *tunnel.Driver
}

func newRig(t *testing.T) rig {
	ns := netnstest.New(t)
	ns.Veth("eth0", "peer")
	ns.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64")
	ns.Run("ip", "link", "set", "eth0", "mtu", "1400")
	return rig{t, ns, tunnel.New(ns.Rtnl(), tunnel.Config{})}
}

func (r rig) apply(b intent.Batch) map[string]intent.Outcome {
	r.Helper()
	r.d.Merge(b)
	out, err := r.d.Apply(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	m := map[string]intent.Outcome{}
	for _, o := range out {
		m[o.Key.String()] = o
	}
	return m
}

func wanted(v4, v6 intent.Tunnel) *intent.HostSettings {
	return settingsOf(intent.Tunnels{intent.VXLAN: v4, intent.VXLAN6: v6})
}

// settingsOf wants the tunnels, of the size that interfaces eth… allow.
func settingsOf(ts intent.Tunnels) *intent.HostSettings {
	h := &intent.HostSettings{Tunnels: ts, Prefixes: []string{"cali"}, MTU: intent.MTUSettings{Links: "^eth", Own: [2]netip.Addr{own.Host, own6.Host}}}
	for k, t := range ts {
		h.MTU.Wanted[k] = t != intent.Tunnel{}
	}
	return h
}

// knows compares what the IPv4 device forwards and resolves, each as "MAC host" and "addr MAC".
func (r rig) knows(what string, want ...string) {
	r.Helper()
	got := r.ns.Run("bridge", "fdb", "show", "dev", intent.LinkVXLAN) + r.ns.Run("ip", "neigh", "show", "dev", intent.LinkVXLAN)
	for _, w := range want {
		if !strings.Contains(got, w) {
			r.Errorf("%s: no %q in\n%s", what, w, got)
		}
	}
	if n := strings.Count(strings.TrimSpace(got), "\n") + 1; n != len(want) && got != "" {
		r.Errorf("%s: %d entries, want %d:\n%s", what, n, len(want), got)
	}
}

func (r rig) verified(what string, want int) {
	r.Helper()
	if found, err := r.d.Differences(r.Context()); err != nil || len(found) != want {
		r.Errorf("%s: differences %q, %v; want %d", what, found, err, want)
	}
}

func TestADeviceFollowsTheIntents(t *testing.T) {
	r := newRig(t)
	if o := r.apply(intent.Batch{Peers: []intent.TunnelPeer{h2}})["h2 VXLAN"]; o.Err != nil || !strings.Contains(o.Reason, "no device") {
		t.Errorf("a peer before the device: %+v", o)
	}
	if o := r.apply(intent.Batch{Host: wanted(own, own6), Peers: []intent.TunnelPeer{h3}, InSync: true}); o["h2 VXLAN"].Reason != "" || o["h3 VXLAN"].Err != nil || len(o) != 2 {
		t.Errorf("outcomes %+v", o)
	}
	r.verified("made", 0)
	l, is, err := r.ns.Rtnl().VXLAN(intent.LinkVXLAN)
	if want := (rtnl.VXLAN{Name: intent.LinkVXLAN, VNI: 4096, Port: 4789, Local: own.Host, MAC: own.MAC, MTU: 1350}); err != nil || is != want || !l.Up || l.Alias != kernel.TunnelAlias {
		t.Errorf("device %+v %+v, %v; want %+v", l, is, err, want)
	}
	if _, is, err := r.ns.Rtnl().VXLAN(intent.LinkVXLAN6); err != nil || is.Local != own6.Host || is.MTU != 1330 {
		t.Errorf("device of IPv6: %+v, %v", is, err)
	}
	if got := r.ns.Run("ip", "-o", "addr", "show", "dev", intent.LinkVXLAN); !strings.Contains(got, "10.65.1.1/32") {
		t.Errorf("its addresses are %s", got)
	}
	of := func(p intent.TunnelPeer) []string {
		return []string{p.MAC + " dst " + p.Host.String(), p.Addr.String() + " lladdr " + p.MAC}
	}
	r.knows("two peers", append(of(h2), of(h3)...)...)

	moved := h2
	moved.Host, moved.MAC = h3.Host, h3.MAC
	swapped := h3
	swapped.Host, swapped.MAC = h2.Host, h2.MAC
	r.apply(intent.Batch{Peers: []intent.TunnelPeer{moved, swapped}})
	r.knows("swapped", append(of(moved), of(swapped)...)...)
	r.apply(intent.Batch{Removed: []intent.Key{h3.ID()}})
	r.knows("one is gone", of(moved)...)

	other := own
	other.Addr, other.MAC = netip.MustParseAddr("10.65.1.9"), "66:00:00:00:00:09"
	r.apply(intent.Batch{Host: wanted(other, intent.Tunnel{})})
	r.verified("another address", 0)
	if got := r.ns.Run("ip", "-o", "addr", "show", "dev", intent.LinkVXLAN); strings.Contains(got, "10.65.1.1/32") || !strings.Contains(got, "10.65.1.9/32") {
		t.Errorf("another address: %s", got)
	}
	if now := r.ns.Link(intent.LinkVXLAN); now.Index != l.Index || now.MAC != other.MAC {
		t.Errorf("the device was made again for an address: %+v", now)
	}
	r.knows("another address", of(moved)...)
	r.apply(intent.Batch{Host: wanted(intent.Tunnel{}, intent.Tunnel{}), Removed: []intent.Key{h2.ID()}})
	for _, name := range []string{intent.LinkVXLAN, intent.LinkVXLAN6} {
		if _, err := r.ns.Rtnl().Link(name); err == nil {
			t.Errorf("%s is there, and nobody wants it", name)
		}
	}
}

// TestSettingsSayWhatADeviceIs, changed while it carries packets: one that must be made again knows what it knew.
func TestSettingsSayWhatADeviceIs(t *testing.T) {
	r := newRig(t)
	r.apply(intent.Batch{Host: wanted(own, own6), Peers: []intent.TunnelPeer{h2}, InSync: true})
	knows := []string{h2.MAC + " dst 192.0.2.2", "10.65.2.1 lladdr " + h2.MAC}
	was := r.ns.Link(intent.LinkVXLAN).Index
	none := [intent.TunnelKinds]int{}
	for _, tt := range []struct {
		name      string
		as        intent.VXLANSettings
		sizes     [intent.TunnelKinds]int
		vni, port int
		mtu       [2]int
		again     bool
	}{
		{"sizes", intent.VXLANSettings{}, [intent.TunnelKinds]int{1300, 1290}, 4096, 4789, [2]int{1300, 1290}, false},
		{"one size", intent.VXLANSettings{}, [intent.TunnelKinds]int{0, 1290}, 4096, 4789, [2]int{1350, 1290}, false},
		{"a port", intent.VXLANSettings{Port: 8472}, none, 4096, 8472, [2]int{1350, 1330}, true},
		{"an identifier", intent.VXLANSettings{VNI: 77, Port: 8472}, none, 77, 8472, [2]int{1350, 1330}, true},
		{"none", intent.VXLANSettings{}, none, 4096, 4789, [2]int{1350, 1330}, true},
	} {
		h := wanted(own, own6)
		h.VXLAN, h.MTU.Tunnels = tt.as, tt.sizes
		r.apply(intent.Batch{Host: h})
		r.verified(tt.name, 0)
		r.knows(tt.name, knows...)
		for f, name := range []string{intent.LinkVXLAN, intent.LinkVXLAN6} {
			l, is, err := r.ns.Rtnl().VXLAN(name)
			if err != nil || is.VNI != tt.vni || is.Port != tt.port || is.MTU != tt.mtu[f] || !l.Up {
				t.Errorf("%s: %s is %+v, up %v, %v", tt.name, name, is, l.Up, err)
			}
		}
		now := r.ns.Link(intent.LinkVXLAN).Index
		if (now != was) != tt.again {
			t.Errorf("%s: made again %v, want %v", tt.name, now != was, tt.again)
		}
		was = now
	}
}

func TestWhoFillsInChecksums(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name string
		as   intent.Checksums
		by   string // who switches it off or on before
		want bool
	}{
		{name: "the device", want: true},
		{name: "it does it wrong", as: intent.ChecksumsByKernel},
		{name: "somebody else thinks otherwise", as: intent.ChecksumsByKernel, by: "on"},
		{name: "no setting", want: true},
		{name: "no setting, and somebody turned it off", by: "off"},
		{name: "it does it right", as: intent.ChecksumsByDevice, want: true},
		{name: "and somebody thinks otherwise", as: intent.ChecksumsByDevice, by: "off", want: true},
	} {
		if tt.by != "" {
			for _, name := range []string{intent.LinkVXLAN, intent.LinkVXLAN6} {
				if err := r.ns.Rtnl().SetTxChecksum(name, tt.by == "on"); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.d.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		h := wanted(own, own6)
		h.Checksums = tt.as
		want := tt.want && (tt.as != 0 || kernel.AtLeast(5, 7))
		r.apply(intent.Batch{Host: h, InSync: true})
		for _, name := range []string{intent.LinkVXLAN, intent.LinkVXLAN6} {
			if got, err := r.ns.Rtnl().TxChecksum(name); err != nil || got != want {
				t.Errorf("%s: of %s: %t, %v; want %t", tt.name, name, got, err, want)
			}
		}
	}
}

func TestWhatOthersDoToADeviceIsUndone(t *testing.T) {
	r := newRig(t)
	r.apply(intent.Batch{Host: wanted(own, intent.Tunnel{}), Peers: []intent.TunnelPeer{h2}, InSync: true})
	want := []string{h2.MAC + " dst 192.0.2.2", "10.65.2.1 lladdr " + h2.MAC}
	r.knows("at first", want...)
	for _, do := range [][]string{
		{"bridge", "fdb", "del", h2.MAC, "dev", intent.LinkVXLAN},
		{"bridge", "fdb", "replace", h2.MAC, "dev", intent.LinkVXLAN, "dst", "203.0.113.9"},
		{"bridge", "fdb", "add", "66:00:00:00:00:99", "dev", intent.LinkVXLAN, "dst", "203.0.113.9"},
		{"ip", "neigh", "replace", "10.65.2.1", "lladdr", "66:00:00:00:00:99", "dev", intent.LinkVXLAN},
		{"ip", "neigh", "add", "10.65.9.9", "lladdr", "66:00:00:00:00:99", "dev", intent.LinkVXLAN},
		{"ip", "addr", "add", "10.99.0.1/24", "dev", intent.LinkVXLAN},
		{"ip", "link", "set", intent.LinkVXLAN, "down"},
		{"ip", "link", "set", intent.LinkVXLAN, "mtu", "1000"},
		{"ip", "link", "del", intent.LinkVXLAN},
	} {
		r.ns.Run(do[0], do[1:]...)
		if err := r.d.Resync(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.apply(intent.Batch{})
		what := strings.Join(do, " ")
		r.verified(what, 0)
		r.knows(what, want...)
		if got := r.ns.Run("ip", "-o", "addr", "show", "dev", intent.LinkVXLAN); strings.Contains(got, "10.99.0.1") || !strings.Contains(got, "10.65.1.1/32") {
			t.Errorf("%s: addresses are %s", what, got)
		}
		if got := r.ns.Run("ip", "-o", "link", "show", "dev", intent.LinkVXLAN); !strings.Contains(got, "mtu 1350") {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// TestADeviceThatIsDeletedIsMadeAgain by the event alone.
func TestADeviceThatIsDeletedIsMadeAgain(t *testing.T) {
	r := newRig(t)
	r.apply(intent.Batch{Host: wanted(own, intent.Tunnel{}), Peers: []intent.TunnelPeer{h2}, InSync: true})
	r.ns.Delete(intent.LinkVXLAN)
	r.d.Links([]ifmon.Change{{Link: ifmon.Link{Name: intent.LinkVXLAN}, Gone: true}})
	r.apply(intent.Batch{})
	r.knows("made again", h2.MAC+" dst 192.0.2.2", "10.65.2.1 lladdr "+h2.MAC)
	if got := r.d.Repairs(); len(got) != 1 || got[0] != (intent.Repair{What: "device " + intent.LinkVXLAN, Cause: intent.ByEvent}) {
		t.Errorf("repairs %+v", got)
	}
}

// TestAnUpstreamAgentsDeviceIsTakenOverWhereOneIsWanted, and left alone where none is; what is right of it stays.
func TestAnUpstreamAgentsDeviceIsTakenOverWhereOneIsWanted(t *testing.T) {
	r := newRig(t)
	r.ns.Run("ip", "link", "add", intent.LinkVXLAN, "address", own.MAC, "type", "vxlan", "id", "4096", "dstport", "4789", "local", "192.0.2.1", "nolearning")
	r.ns.Up(intent.LinkVXLAN)
	r.ns.Run("bridge", "fdb", "add", h2.MAC, "dev", intent.LinkVXLAN, "dst", "192.0.2.2")
	r.ns.Run("bridge", "fdb", "add", h3.MAC, "dev", intent.LinkVXLAN, "dst", "192.0.2.3")
	was := r.ns.Link(intent.LinkVXLAN)
	r.apply(intent.Batch{Host: wanted(intent.Tunnel{}, intent.Tunnel{}), InSync: true})
	if now := r.ns.Link(intent.LinkVXLAN); now.Index != was.Index {
		t.Error("a device that nobody wants was upstream's, and is gone")
	}
	r.apply(intent.Batch{Host: wanted(own, intent.Tunnel{}), Peers: []intent.TunnelPeer{h2}})
	if now := r.ns.Link(intent.LinkVXLAN); now.Index != was.Index || now.Alias != kernel.TunnelAlias {
		t.Errorf("it was %+v, and is %+v", was, now)
	}
	r.knows("taken over", h2.MAC+" dst 192.0.2.2", "10.65.2.1 lladdr "+h2.MAC)

	again := newRig(t)
	again.ns.Run("ip", "link", "add", intent.LinkVXLAN, "type", "vxlan", "id", "77", "dstport", "4789", "local", "192.0.2.1")
	again.apply(intent.Batch{Host: wanted(own, intent.Tunnel{}), InSync: true})
	again.verified("one of another network", 0)
}

// TestNothingGoesBeforeAllIsKnown: what an agent left carries packets while it starts again.
func TestNothingGoesBeforeAllIsKnown(t *testing.T) {
	r := newRig(t)
	r.apply(intent.Batch{Host: wanted(own, intent.Tunnel{}), Peers: []intent.TunnelPeer{h2, h3}, InSync: true})
	was := r.ns.Link(intent.LinkVXLAN)
	r.d = tunnel.New(r.ns.Rtnl(), tunnel.Config{})
	r.apply(intent.Batch{Host: wanted(intent.Tunnel{}, intent.Tunnel{})})
	r.apply(intent.Batch{Host: wanted(own, intent.Tunnel{}), Peers: []intent.TunnelPeer{h2}})
	r.knows("not in sync", h2.MAC+" dst 192.0.2.2", "10.65.2.1 lladdr "+h2.MAC, h3.MAC+" dst 192.0.2.3", "10.65.3.1 lladdr "+h3.MAC)
	r.apply(intent.Batch{InSync: true})
	r.knows("in sync", h2.MAC+" dst 192.0.2.2", "10.65.2.1 lladdr "+h2.MAC)
	if now := r.ns.Link(intent.LinkVXLAN); now.Index != was.Index {
		t.Error("the device was made again")
	}
}
