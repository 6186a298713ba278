package tunnel_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/wg"
)

// TestMain is also the process of a device.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "serve" {
		if err := wg.Serve(context.Background(), os.Args[2], os.Args[3], wg.Started()); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// guarded is a rig with a door to WireGuard.
type guarded struct {
	rig
	wg  *wg.Handle
	cfg tunnel.Config
	key *string
}

func newGuarded(t *testing.T) guarded {
	r := guarded{rig: newRig(t), key: new(string)}
	r.wg = wg.New(r.ns.Handle(), wg.Config{Dir: filepath.Join(t.TempDir(), "wg"), Command: []string{"/proc/self/exe", "serve"}, Patience: netnstest.Patience})
	r.cfg = tunnel.Config{WireGuard: r.wg, Keys: func(k intent.TunnelKind, public string) {
		if k == intent.WireGuard {
			*r.key = public
		}
	}}
	r.d = tunnel.New(r.ns.Rtnl(), r.cfg)
	return r
}

// encrypting are settings that want WireGuard of IPv4.
func encrypting(change func(*intent.HostSettings)) *intent.HostSettings {
	h := settingsOf(intent.Tunnels{intent.WireGuard: {Host: own.Host, Addr: netip.MustParseAddr("10.65.1.9")}})
	h.WireGuard = intent.WireGuardSettings{On: [2]bool{true, false}, Link: [2]string{"wg-test", "wg-test6"}, Port: [2]uint16{51820, 51821}, Priority: 99, Userspace: true}
	if change != nil {
		change(h)
	}
	return h
}

func peerOf(t *testing.T, node, host string) intent.TunnelPeer {
	k, err := wg.NewPrivate()
	if err != nil {
		t.Fatal(err)
	}
	return intent.TunnelPeer{Node: node, Kind: intent.WireGuard, Host: netip.MustParseAddr(host), Key: k.Public().String()}
}

func toBlock(node, dst string) intent.Route {
	return intent.Route{Dst: netip.MustParsePrefix(dst), Kind: intent.RouteEncrypted, Node: node}
}

// TestTheMarkOfWhatIsEncryptedFollowsTheMask: the device's, and that of the one rule; what looks for the way of encrypted packets finds it there.
func TestTheMarkOfWhatIsEncryptedFollowsTheMask(t *testing.T) {
	r := newGuarded(t)
	b := intent.Batch{Host: encrypting(nil), Peers: []intent.TunnelPeer{peerOf(t, "h2", "192.0.2.2")}, Routes: []intent.Route{toBlock("h2", "10.65.2.0/26")}, InSync: true}
	for _, c := range []struct{ mask, want uint32 }{{0, kernel.MarkEncrypted}, {0xff000000, 0x10000000}, {0x0000ff00, 0x00001000}} {
		b.Host.MarkMask = c.mask
		r.apply(b)
		rules, _, err := r.ns.Rtnl().MarkRules(kernel.RouteProtocolHosts)
		if err != nil || len(rules) != 1 || rules[0].Mark != c.want || r.state().Mark != c.want {
			t.Errorf("mask %#08x: rules %+v, %v, and the device has %#08x, want %#08x", c.mask, rules, err, r.state().Mark, c.want)
		}
		if is, err := r.ns.Rtnl().EncryptedMark(); err != nil || is != c.want {
			t.Errorf("mask %#08x: encrypted packets have %#08x, %v, want %#08x", c.mask, is, err, c.want)
		}
		r.verified("with another mask", 0)
	}
}

// table returns the routes of the table, one in a line.
func (r guarded) table() string {
	all, err := r.ns.Rtnl().Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolHosts, Table: 1})
	if err != nil {
		r.Fatal(err)
	}
	var out []string
	for _, a := range all {
		out = append(out, map[rtnl.RouteKind]string{rtnl.Unicast: "to ", rtnl.Unreachable: "not ", rtnl.Throw: "throw "}[a.Kind]+a.Dst.String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (r guarded) state() wg.State {
	r.Helper()
	s, err := r.wg.Read("wg-test", r.ns.Link("wg-test").Kind)
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func TestWireGuardFollowsTheIntents(t *testing.T) {
	r := newGuarded(t)
	a, b := peerOf(t, "h2", "192.0.2.2"), peerOf(t, "h3", "192.0.2.3")
	local := intent.Route{Dst: netip.MustParsePrefix("10.65.2.7/32"), Kind: intent.RouteLink, Link: "cali1"}
	out := r.apply(intent.Batch{Host: encrypting(nil), Peers: []intent.TunnelPeer{a}, Routes: []intent.Route{toBlock("h2", "10.65.2.0/26"), toBlock("h3", "10.65.3.0/26"), local}, InSync: true})
	if o := out["10.65.3.0/26"]; o.Err == nil || !o.Final || !strings.Contains(o.Err.Error(), "h3") {
		t.Errorf("what is for a host without a key: %+v", o)
	}
	if o := out["10.65.2.0/26"]; o.Err != nil || o.Reason != "" {
		t.Errorf("what is for a host with a key: %+v", o)
	}
	if got, want := r.table(), "not 10.65.2.0/26, not 10.65.3.0/26, throw 10.65.2.7/32, to 10.65.2.0/26"; got != want {
		t.Errorf("routes %s; want %s", got, want)
	}
	rules, _, err := r.ns.Rtnl().MarkRules(kernel.RouteProtocolHosts)
	if err != nil || len(rules) != 1 || rules[0] != (rtnl.MarkRule{Priority: 99, Table: 1, Mark: kernel.MarkEncrypted}) {
		t.Errorf("rules %v, %v", rules, err)
	}
	if l := r.ns.Link("wg-test"); !l.Up || l.Alias != kernel.TunnelAlias || l.MTU != 1340 {
		t.Errorf("device %+v", l)
	}
	if text := r.ns.Run("ip", "addr", "show", "wg-test"); !strings.Contains(text, "10.65.1.9/32") {
		t.Errorf("addresses\n%s", text)
	}
	s := r.state()
	if s.Public.String() != *r.key || s.Port != 51820 || s.Mark != kernel.MarkEncrypted || len(s.Peers) != 1 || s.Peers[0].Host.String() != "192.0.2.2:51820" || len(s.Peers[0].Allowed) != 2 {
		t.Errorf("the device has %+v, and this host's key is %s", s, *r.key)
	}
	r.verified("made", 0)

	// The other host has a key, and an address moves from one to the other.
	r.apply(intent.Batch{Peers: []intent.TunnelPeer{b}, Routes: []intent.Route{toBlock("h3", "10.65.2.9/32")}})
	if s := r.state(); len(s.Peers) != 2 || !strings.Contains(r.table(), "to 10.65.3.0/26") {
		t.Errorf("the device has %+v, the table %s", s, r.table())
	}
	// It starts again, with another key.
	again := peerOf(t, "h3", "192.0.2.3")
	r.apply(intent.Batch{Peers: []intent.TunnelPeer{again}})
	for _, p := range r.state().Peers {
		if p.Key.String() == b.Key {
			t.Errorf("the old key is still there: %+v", p)
		}
	}
	r.verified("changed", 0)

	// It goes.
	r.apply(intent.Batch{Removed: []intent.Key{again.ID(), intent.RouteID{Prefix: netip.MustParsePrefix("10.65.2.9/32")}, intent.RouteID{Prefix: netip.MustParsePrefix("10.65.3.0/26")}, intent.RouteID{Prefix: local.Dst}}})
	if got, want := r.table(), "not 10.65.2.0/26, to 10.65.2.0/26"; got != want || len(r.state().Peers) != 1 {
		t.Errorf("routes %s; want %s", got, want)
	}

	// Nobody wants it any more.
	r.apply(intent.Batch{Host: settingsOf(intent.Tunnels{}), Removed: []intent.Key{intent.RouteID{Prefix: netip.MustParsePrefix("10.65.2.0/26")}, a.ID()}})
	if _, err := r.ns.Rtnl().Link("wg-test"); err == nil || r.table() != "" || *r.key != "" {
		t.Errorf("left: %v, %q, key %q", err, r.table(), *r.key)
	}
	if rules, _, _ := r.ns.Rtnl().MarkRules(kernel.RouteProtocolHosts); len(rules) != 0 {
		t.Errorf("rules are left: %v", rules)
	}
	r.verified("removed", 0)
}

// TestARestartKeepsTheKey, and the peers with what they agreed on.
func TestARestartKeepsTheKey(t *testing.T) {
	r := newGuarded(t)
	a := peerOf(t, "h2", "192.0.2.2")
	b := intent.Batch{Host: encrypting(nil), Peers: []intent.TunnelPeer{a}, Routes: []intent.Route{toBlock("h2", "10.65.2.0/26")}, InSync: true}
	r.apply(b)
	key, index := *r.key, r.ns.Link("wg-test").Index
	*r.key = ""
	r.d = tunnel.New(r.ns.Rtnl(), r.cfg)
	r.apply(intent.Batch{})
	r.apply(b)
	if *r.key != key || r.ns.Link("wg-test").Index != index || len(r.d.Repairs()) != 0 {
		t.Errorf("the key is %s, was %s", *r.key, key)
	}
	r.verified("again", 0)
}

// TestWhatBecomesOfAWireGuardDevice that somebody deletes: there is another, with another key, and meanwhile nothing leaves in clear.
func TestWhatBecomesOfAWireGuardDevice(t *testing.T) {
	r := newGuarded(t)
	a := peerOf(t, "h2", "192.0.2.2")
	r.apply(intent.Batch{Host: encrypting(nil), Peers: []intent.TunnelPeer{a}, Routes: []intent.Route{toBlock("h2", "10.65.2.0/26")}, InSync: true})
	key := *r.key
	r.ns.Delete("wg-test")
	if got, want := r.table(), "not 10.65.2.0/26"; got != want {
		t.Errorf("without the device: %s, want %s", got, want)
	}
	r.verified("deleted", 2) // the device, and the route
	r.d.Links([]ifmon.Change{{Link: ifmon.Link{Name: "wg-test"}, Gone: true}})
	r.apply(intent.Batch{})
	if got, want := r.table(), "not 10.65.2.0/26, to 10.65.2.0/26"; got != want || *r.key == key || *r.key == "" {
		t.Errorf("routes %s, want %s; the key is %s, was %s", got, want, *r.key, key)
	}
	r.ns.Run("ip", "rule", "del", "priority", "99")
	r.ns.Run("ip", "route", "flush", "table", "1")
	if err := r.d.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.apply(intent.Batch{})
	r.verified("repaired", 0)
}

// TestSettingsSayWhatAWireGuardDeviceIs, also while it runs.
// TestARuleThatSomebodyDeletesIsNoticed, as systemd-networkd does when it starts: until it is back packets go as they are.
func TestARuleThatSomebodyDeletesIsNoticed(t *testing.T) {
	r := newGuarded(t)
	r.apply(intent.Batch{Host: encrypting(nil), Peers: []intent.TunnelPeer{peerOf(t, "h2", "192.0.2.2")}, Routes: []intent.Route{toBlock("h2", "10.65.2.0/26")}, InSync: true})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.d.Run(ctx) }()
	for deadline := time.Now().Add(netnstest.Patience); ; {
		r.ns.Run("ip", "rule", "del", "priority", "99")
		select {
		case note := <-r.d.Drift():
			note()
		case <-time.After(time.Second): // it was deleted before anybody watched
			if time.Now().After(deadline) {
				t.Fatal("nobody noticed")
			}
			r.ns.Run("ip", "rule", "add", "priority", "99", "table", "1", "protocol", "81")
			continue
		}
		break
	}
	r.apply(intent.Batch{})
	if rules, _, err := r.ns.Rtnl().MarkRules(kernel.RouteProtocolHosts); err != nil || len(rules) != 1 {
		t.Errorf("rules %v, %v", rules, err)
	}
	end()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestSettingsSayWhatAWireGuardDeviceIs(t *testing.T) {
	r := newGuarded(t)
	a := peerOf(t, "h2", "192.0.2.2")
	r.apply(intent.Batch{Host: encrypting(nil), Peers: []intent.TunnelPeer{a}, Routes: []intent.Route{toBlock("h2", "10.65.2.0/26")}, InSync: true})
	key := *r.key
	r.apply(intent.Batch{Host: encrypting(func(h *intent.HostSettings) {
		h.WireGuard.Port[0], h.WireGuard.Priority, h.WireGuard.KeepAlive, h.MTU.Tunnels[intent.WireGuard] = 51900, 7, 25*time.Second, 1300
	})})
	s := r.state()
	if s.Port != 51900 || s.Peers[0].Host.Port() != 51900 || s.Peers[0].KeepAlive != 25*time.Second || r.ns.Link("wg-test").MTU != 1300 || *r.key != key {
		t.Errorf("the device has %+v, %+v", s, r.ns.Link("wg-test"))
	}
	rules, _, _ := r.ns.Rtnl().MarkRules(kernel.RouteProtocolHosts)
	if len(rules) != 1 || rules[0].Priority != 7 {
		t.Errorf("rules %v", rules)
	}
	r.apply(intent.Batch{Host: encrypting(func(h *intent.HostSettings) { h.WireGuard.Link[0] = "wg-next" })})
	if _, err := r.ns.Rtnl().Link("wg-test"); err == nil || *r.key == key || r.ns.Link("wg-next").Index == 0 {
		t.Errorf("under another name: %v", err)
	}
	r.verified("under another name", 0)
}

// TestWithoutAWireGuardOfAnyKind nothing leaves.
func TestWithoutAWireGuardOfAnyKind(t *testing.T) {
	r := newGuarded(t)
	if err := r.ns.Rtnl().AddWireGuard("wg-probe"); err == nil { // this kernel has WireGuard: it is the case of TestWireGuardFollowsTheIntents
		return
	}
	r.d.Merge(intent.Batch{
		Host: encrypting(func(h *intent.HostSettings) { h.WireGuard.Userspace = false }), Peers: []intent.TunnelPeer{peerOf(t, "h2", "192.0.2.2")},
		Routes: []intent.Route{toBlock("h2", "10.65.2.0/26")}, InSync: true,
	})
	if _, err := r.d.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "wireguardUserspaceEnabled") {
		t.Errorf("error %v", err)
	}
	if got, want := r.table(), "not 10.65.2.0/26"; got != want {
		t.Errorf("routes %s, want %s", got, want)
	}
	if rules, _, _ := r.ns.Rtnl().MarkRules(kernel.RouteProtocolHosts); len(rules) != 1 {
		t.Errorf("rules %v", rules)
	}
}

// TestADeviceOfAnotherKindIsLeftAlone where WireGuard's belongs.
func TestADeviceOfAnotherKindIsLeftAlone(t *testing.T) {
	r := newGuarded(t)
	r.ns.Veth("wg-test", "other")
	r.d.Merge(intent.Batch{Host: encrypting(nil), Routes: []intent.Route{toBlock("h2", "10.65.2.0/26")}, InSync: true})
	if _, err := r.d.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "veth") {
		t.Errorf("error %v", err)
	}
	if l := r.ns.Link("wg-test"); l.Kind != "veth" || l.Alias != "" || r.table() != "not 10.65.2.0/26" {
		t.Errorf("it is %+v, and the routes are %s", l, r.table())
	}
}

// TestThreadsOfAWireGuardDevice of the kernel's are as settings say; a process has its own, and nothing fails.
func TestThreadsOfAWireGuardDevice(t *testing.T) {
	r := newGuarded(t)
	a := peerOf(t, "h2", "192.0.2.2")
	for _, want := range []bool{true, false, true} {
		r.apply(intent.Batch{Host: encrypting(func(h *intent.HostSettings) { h.WireGuard.Threads = want }), Peers: []intent.TunnelPeer{a}, InSync: true})
		r.verified("threads", 0)
		if r.ns.Link("wg-test").Kind != wg.Kind {
			continue
		}
		if is, err := r.ns.Rtnl().Threaded("wg-test"); err != nil || is != want {
			t.Errorf("Threaded = %t, %v; want %t", is, err, want)
		}
	}
}

// TestOneAddressIsOnePeers where the Node of a host that had it before is still there: of two peers with one allowed address a device keeps it
// at one. It is that of the Node with destinations, and then of the first by name.
func TestOneAddressIsOnePeers(t *testing.T) {
	r := newGuarded(t)
	before, now := peerOf(t, "h0", "192.0.2.2"), peerOf(t, "h2", "192.0.2.2")
	who := func() string {
		t.Helper()
		r.verified("one address", 0)
		var out []string
		for _, p := range r.state().Peers {
			for _, a := range p.Allowed {
				if a == netip.MustParsePrefix("192.0.2.2/32") {
					out = append(out, map[string]string{before.Key: "h0", now.Key: "h2"}[p.Key.String()])
				}
			}
		}
		return strings.Join(out, " ")
	}
	block, old := toBlock("h2", "10.65.2.0/26"), toBlock("h0", "10.65.9.0/26")
	for _, tt := range []struct {
		name string
		b    intent.Batch
		want string
	}{
		{"alone", intent.Batch{Host: encrypting(nil), Peers: []intent.TunnelPeer{now}, InSync: true}, "h2"},
		{"two without destinations", intent.Batch{Peers: []intent.TunnelPeer{before}}, "h0"},
		{"one has some", intent.Batch{Routes: []intent.Route{block}}, "h2"},
		{"both have", intent.Batch{Routes: []intent.Route{old}}, "h0"},
		{"the other has none any more", intent.Batch{Removed: []intent.Key{intent.RouteID{Prefix: old.Dst}}}, "h2"},
		{"neither has", intent.Batch{Removed: []intent.Key{intent.RouteID{Prefix: block.Dst}}}, "h0"},
		{"the first goes", intent.Batch{Removed: []intent.Key{before.ID()}}, "h2"},
	} {
		r.apply(tt.b)
		if got := who(); got != tt.want {
			t.Errorf("%s: the address is that of %q, want %s", tt.name, got, tt.want)
		}
	}
}
