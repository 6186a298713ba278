package nft

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

const strangerVXLAN = "VXLAN of no host of the tunnel"

// tunnelled is a host with a tunnel of both families, whose host endpoint has no policy or profile, so that it denies, and the party out, which
// may be at the other end. There are sockets at the host, at out and in workload a, by the port and the number of the family.
type tunnelled struct {
	*testing.T
	*hosted
	settings intent.HostSettings
	peers    intent.IPSet
}

func newTunnelled(t *testing.T) *tunnelled {
	h := &tunnelled{T: t, hosted: newHosted(t), peers: intent.IPSet{ID: intent.SetVXLANPeers}}
	h.ns.KeepFlows()
	h.settings = intent.HostSettings{EndpointToHost: intent.ToHostAccept, AllowVXLAN: true}
	for f, end := range []string{"10.65.1.1", "fd65::1"} {
		out := netip.MustParseAddr(addrs["out"][f])
		h.peers.Members = append(h.peers.Members, intent.Member{Prefix: netip.PrefixFrom(out, out.BitLen())})
		h.settings.Tunnels[f] = intent.Tunnel{Host: netip.MustParseAddr(addrs["host"][f]), Addr: netip.MustParseAddr(end), MAC: "66:00:00:00:00:01"}
	}
	b := pair(nil)
	b.IPSets, b.Endpoints = append(b.IPSets, intent.IPSet{ID: h.peers.ID}), append(b.Endpoints, hep("up0"))
	h.is(b)
	return h
}

// is applies a batch, with the settings as they are now.
func (h *tunnelled) is(b intent.Batch) {
	h.Helper()
	settings := h.settings
	b.Host = &settings
	h.d.Merge(b)
	apply(h.T, h.d)
}

func (h *tunnelled) joins() {
	h.Helper()
	h.is(intent.Batch{Members: []intent.MemberDelta{{Set: h.peers.ID, Added: h.peers.Members}}})
}

func (h *tunnelled) leaves() {
	h.Helper()
	h.is(intent.Batch{Members: []intent.MemberDelta{{Set: h.peers.ID, Removed: h.peers.Members}}})
}

func (h *tunnelled) listen(party string, f, port int) (c *net.UDPConn) {
	h.Helper()
	h.party(party).Do(func() {
		var err error
		if c, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(addrs[party][f]), Port: port}); err != nil {
			h.Fatal(err)
		}
	})
	h.Cleanup(func() { _ = c.Close() })
	return c
}

func (h *tunnelled) send(from *net.UDPConn, to string, f, port int) {
	h.Helper()
	if _, err := from.WriteToUDP([]byte("x"), &net.UDPAddr{IP: net.ParseIP(addrs[to][f]), Port: port}); err != nil {
		h.Fatal(err)
	}
}

func (h *tunnelled) arrives(what string, at *net.UDPConn, from string, f int) {
	h.Helper()
	_ = at.SetReadDeadline(time.Now().Add(netnstest.Patience))
	if _, a, err := at.ReadFromUDP(make([]byte, 16)); err != nil || !a.IP.Equal(net.ParseIP(addrs[from][f])) {
		h.Fatalf("%s: from %v, %v; want from %s", what, a, err, from)
	}
}

// isDropped sends to the host what nobody may.
func (h *tunnelled) isDropped(what string, from *net.UDPConn, f, port int) {
	h.Helper()
	before := h.dropped(h.T, strangerVXLAN)
	h.send(from, "host", f, port)
	for began := time.Now(); h.dropped(h.T, strangerVXLAN) != before+1; runtime.Gosched() {
		if time.Since(began) > netnstest.Patience {
			h.Fatalf("%s: %d packets were dropped, want 1", what, h.dropped(h.T, strangerVXLAN)-before)
		}
	}
}

// connections counts those of UDP to a port.
func (h *tunnelled) connections(port uint16) (n int) {
	h.Helper()
	h.ns.Do(func() {
		c, err := conntrack.Open()
		if err == nil {
			err = c.Each(func(f conntrack.Flow) {
				if f.Original.Proto == 17 && f.Original.DstPort == port {
					n++
				}
			})
		}
		if err != nil {
			h.Fatal(err)
		}
		_ = c.Close()
	})
	return n
}

// TestWhatIsEncapsulatedIsTakenFromHostsOfTheTunnelAlone: from these whatever the policy of the host's endpoint says, as what the host
// sends to them, and without a connection; of both families.
func TestWhatIsEncapsulatedIsTakenFromHostsOfTheTunnelAlone(t *testing.T) {
	h := newTunnelled(t)
	const port = intent.PortVXLAN
	for f, family := range []string{"IPv4", "IPv6"} {
		host, out, workload := h.listen("host", f, port), h.listen("out", f, port), h.listen("a", f, port)
		h.isDropped("there is no other host", out, f, port)
		h.joins()
		h.send(out, "host", f, port)
		h.arrives(family, host, "out", f)
		h.send(host, "out", f, port)
		h.arrives(family, out, "host", f)
		if n := h.connections(port); n != 0 {
			t.Errorf("%s: the hosts have %d connections, want none", family, n)
		}
		h.isDropped("a workload, which a setting lets send it", workload, f, port)
		h.send(workload, "out", f, port)
		h.arrives("what a workload sends to another host is no tunnel's", out, "a", f)
		if n := h.connections(port); n != 1 {
			t.Errorf("%s: %d connections, want that of a workload alone", family, n)
		}
		h.leaves()
		h.isDropped("no host of the tunnel any more", out, f, port)
		near := []intent.Member{{Prefix: prefix([]string{"192.0.2.0/24", "fd00::/64"}[f])}, {Prefix: prefix([]string{"192.0.0.0/16", "fd00::/16"}[f])}}
		h.is(intent.Batch{Members: []intent.MemberDelta{{Set: h.peers.ID, Added: near}}})
		h.send(out, "host", f, port)
		h.arrives(family+", from networks that settings name", host, "out", f)
		h.is(intent.Batch{Members: []intent.MemberDelta{{Set: h.peers.ID, Removed: near}}})
		h.isDropped("and they name it no more", out, f, port)
		h.joins()
		h.send(out, "host", f, port)
		h.arrives(family, host, "out", f)
		h.leaves()
		h.ns.Do(func() {
			if c, err := conntrack.Open(); err == nil {
				var all []conntrack.Flow
				_ = c.Each(func(f conntrack.Flow) { all = append(all, f) })
				_, _ = c.Forget(all)
				_ = c.Close()
			}
		})
		if f == 1 {
			h.settings.Tunnels = intent.Tunnels{}
			h.is(intent.Batch{Removed: []intent.Key{h.peers.ID, hep("up0").ID}})
			h.send(workload, "host", f, port)
			h.arrives("nobody is asked where there is no tunnel", host, "a", f)
		}
	}
}

// TestEncapsulatedPacketsAreThoseToThePortOfTheSettings, which may change.
func TestEncapsulatedPacketsAreThoseToThePortOfTheSettings(t *testing.T) {
	h := newTunnelled(t)
	h.settings.VXLAN.Port = 8472
	h.is(intent.Batch{Removed: []intent.Key{hep("up0").ID}})
	was, now := h.listen("host", 0, intent.PortVXLAN), h.listen("host", 0, 8472)
	out := h.listen("out", 0, 9)
	h.isDropped("to the port of the settings", out, 0, 8472)
	h.send(out, "host", 0, intent.PortVXLAN)
	h.arrives("the port without a setting is like any other", was, "out", 0)
	h.joins()
	h.send(out, "host", 0, 8472)
	h.arrives("of a host of the tunnel", now, "out", 0)
	if tracked, not := h.connections(intent.PortVXLAN), h.connections(8472); tracked != 1 || not != 0 {
		t.Errorf("%d connections to another port, %d to that of the settings; want 1 and 0", tracked, not)
	}
	h.settings.AllowVXLAN = false
	h.is(intent.Batch{})
	h.check(t, "!a>out udp/8472", "a>out udp/4789")
}
