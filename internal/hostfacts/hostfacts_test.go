package hostfacts

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

func TestSocketsThatListenAreRead(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:00B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1001 1 0000000000000000 100 0 0 10 0
   1: 0200000A:00B3 0300000A:D431 01 00000000:00000000 00:00000000 00000000     0        0 1002 1 0000000000000000 20 4 30 10 -1
   2: B80D0120000000000000000001000000:00B3 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1003 1 0 100 0 0 10 0
   3: bad:00B3 00000000:0000 0A 0 0 0 0 0 1004
`
	got := listening(table)
	want := map[string]string{"1001": "127.0.0.1:179", "1003": "[2001:db8::1]:179"}
	for inode, at := range want {
		if got[inode].String() != at {
			t.Errorf("%s is %s, want %s", inode, got[inode], at)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}

// open reads a namespace of a test.
func open(t *testing.T, ns *netnstest.NS) *Host {
	t.Helper()
	var h *Host
	var err error
	ns.Do(func() { h, err = Open() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func node(f *doctor.Facts, name, v4 string) {
	n := api.New(api.KindNode).(*api.Node)
	n.Metadata.Name, n.Spec.BGP = name, &api.NodeBGPSpec{IPv4Address: v4}
	key, _ := api.Key(n)
	value, _ := api.EncodeStored(n)
	f.Nodes.Update(api.Update{Key: key, Value: value})
}

func TestAHostIsReadAndOthersAreAsked(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	a.VethTo(b, "eth0", "eth0")
	a.Veth("cali1", "far")
	a.Addr("eth0", "192.0.2.1/24", "192.0.2.9/24")
	b.Addr("eth0", "192.0.2.2/24", "192.0.2.9/24")
	a.Route("10.65.2.0/26 via 192.0.2.2 proto bird")
	a.Sysctl("ipv4/conf/eth0/rp_filter", "1")
	b.Run("ip", "link", "set", "eth0", "mtu", "1300")
	h := open(t, a)
	h.dialWithin = netnstest.Patience
	f := &doctor.Facts{Node: "h1", BGP: doctor.BGP{
		Listen:   []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:179")},
		Wanted:   []netip.AddrPort{netip.MustParseAddrPort("192.0.2.2:179"), netip.MustParseAddrPort("192.0.2.2:1790")},
		Sessions: []doctor.Session{{Peer: netip.MustParseAddr("192.0.2.2"), Node: "h2"}, {Peer: netip.MustParseAddr("192.0.2.9"), Up: true}},
	}}
	node(f, "h1", "192.0.2.9/24")
	node(f, "h2", "192.0.2.2/24")
	sleep, _ := a.Called("calico-felix")
	if err := h.Read(f, []string{"cali"}); err != nil {
		t.Fatal(err)
	}
	h.Listeners(f)
	h.Ask(f)
	if i := slices.IndexFunc(f.Links, func(l doctor.Link) bool { return l.Name == "eth0" }); i < 0 || f.Links[i].MTU != 1500 || !f.Links[i].Up || f.Links[i].Workload || len(f.Links[i].Addrs) < 2 {
		t.Errorf("links: %+v", f.Links)
	}
	if i := slices.IndexFunc(f.Links, func(l doctor.Link) bool { return l.Workload }); i < 0 || f.Links[i].Name != "cali1" {
		t.Errorf("links: %+v", f.Links)
	}
	if f.Sysctl["ipv4/ip_forward"] != "0" || f.Sysctl["ipv4/conf/eth0/rp_filter"] != "1" || f.Sysctl["netfilter/nf_conntrack_max"] == "" {
		t.Errorf("settings: %v", f.Sysctl)
	}
	if !slices.Contains(f.Routes, doctor.Route{Dst: netip.MustParsePrefix("10.65.2.0/26"), Gateway: netip.MustParseAddr("192.0.2.2"), Protocol: 12, Link: "eth0"}) {
		t.Errorf("routes: %+v", f.Routes)
	}
	if want := []doctor.Process{{Name: "calico-felix", PID: sleep}}; !slices.Equal(f.Processes, want) {
		t.Errorf("processes of the namespace: %+v, want %+v", f.Processes, want)
	}
	if len(f.Duplicates) != 1 || f.Duplicates[0].MAC != b.Link("eth0").MAC {
		t.Errorf("192.0.2.9 is that of %+v, want %s", f.Duplicates, b.Link("eth0").MAC)
	}
	if len(f.Paths) != 1 || f.Paths[0].Largest < 1300 || f.Paths[0].Largest > 1304 { // veth lets a VLAN tag more through
		t.Errorf("ways: %+v, want 1300 bytes", f.Paths)
	}
	if want := []doctor.Peer{{At: netip.MustParseAddrPort("192.0.2.2:179"), Node: "h2", Result: doctor.PortRefused}}; !slices.Equal(f.Peers, want) {
		t.Errorf("ports: %+v, want %+v", f.Peers, want)
	}
}

// TestFromWhereAHostSendsToItsWorkloads: the kernel says, for a route that does not.
func TestFromWhereAHostSendsToItsWorkloads(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("first", "f")
	ns.Veth("eth0", "peer")
	ns.Veth("cali1", "c")
	ns.Addr("eth0", "192.0.2.1/24")
	h := open(t, ns)
	for _, tt := range []struct {
		name, do string
		want     netip.Addr
	}{
		{"no workload", "true", netip.Addr{}},
		{"the only address", "ip route add 10.65.0.5 dev cali1 scope global", netip.MustParseAddr("192.0.2.1")},
		{"the first of two", "ip addr add 172.17.0.1/16 dev first", netip.MustParseAddr("172.17.0.1")},
		{"the route says it", "ip route replace 10.65.0.5 dev cali1 scope global src 192.0.2.1", netip.Addr{}},
		{"no address at all", "ip addr flush dev first; ip addr flush dev eth0; ip route replace 10.65.0.5 dev cali1 scope global", netip.IPv4Unspecified()},
	} {
		ns.Run("sh", "-c", tt.do)
		f := &doctor.Facts{}
		if err := h.Read(f, []string{"cali"}); err != nil || f.Source != tt.want {
			t.Errorf("%s: from %s, %v; want %s", tt.name, f.Source, err, tt.want)
		}
	}
}

func TestWhoHasBGPsPortIsFound(t *testing.T) {
	ns := netnstest.New(t)
	var l net.Listener
	var err error
	ns.Do(func() { l, err = net.Listen("tcp", "127.0.0.1:179") })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := open(t, ns)
	f := &doctor.Facts{BGP: doctor.BGP{Listen: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:179")}}}
	f.Processes = []doctor.Process{{Name: "somebody", PID: os.Getpid()}} // this process is elsewhere; its socket is not
	h.Listeners(f)
	want := doctor.Listener{At: netip.MustParseAddrPort("127.0.0.1:179"), Process: "somebody", PID: os.Getpid(), Ours: true}
	if !slices.Equal(f.Listeners, []doctor.Listener{want}) {
		t.Errorf("got %+v, want %+v", f.Listeners, want)
	}
	f.Listeners, f.Processes = nil, []doctor.Process{{Name: "init", PID: 1}}
	if h.Listeners(f); len(f.Listeners) != 1 || f.Listeners[0].Ours {
		t.Errorf("a socket of nobody's: %+v", f.Listeners)
	}
}

func TestTheKernelIsTriedInANamespaceOfItsOwn(t *testing.T) {
	ns := netnstest.New(t)
	ns.Do(func() {
		if k := Kernel(func() error { return nil }); k.Err != "" || k.Release == "" {
			t.Errorf("%+v", k)
		}
		if k := Kernel(func() error { return errors.New("no nftables") }); k.Err != "no nftables" {
			t.Errorf("%+v", k)
		}
	})
	if _, err := ns.Rtnl().Link("a"); !errors.Is(err, rtnl.ErrNotFound) {
		t.Errorf("what was tried is left here: %v", err)
	}
}

// TestAProcessOfThisBinaryIsTwill, whatever it was called by; another has its own name.
func TestAProcessOfThisBinaryIsTwill(t *testing.T) {
	if got := nameOf("/proc/self"); got != "twill" {
		t.Errorf("this process is %q", got)
	}
	ns := netnstest.New(t)
	pid, _ := ns.Called("calico-felix")
	if got := nameOf(fmt.Sprintf("/proc/%d", pid)); got != "calico-felix" {
		t.Errorf("another is %q", got)
	}
}
