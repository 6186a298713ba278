package tunnel_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// hosted are settings that want what is for other hosts' own addresses encrypted, too.
func hosted(h *intent.HostSettings) {
	h.WireGuard.Hosts[0] = true
	h.WireGuard.InClear = []intent.Failsafe{{Protocol: 6, Port: 2379}, {Protocol: 17, Port: 51820}, {Protocol: 6, Port: 22, Net: netip.MustParsePrefix("192.0.2.2/32")}, {Protocol: 6, Port: 23, Net: netip.MustParsePrefix("2001:db8::/64")}}
}

// way is the interface by which the host sends to an address; empty: none.
func (r guarded) way(words string) string {
	out := r.ns.Run("sh", "-c", "ip route get "+words+" 2>&1 || true")
	if _, after, ok := strings.Cut(out, "dev "); ok {
		return strings.Fields(after)[0] + map[bool]string{true: " from its address"}[strings.Contains(out, "src "+own.Host.String())]
	}
	return ""
}

// ways wants them all.
func (r guarded) ways(when string, want map[string]string) {
	r.Helper()
	for words, dev := range want {
		if got := r.way(words); got != dev {
			r.Errorf("%s: the way to %s is by %q, want %q", when, words, got, dev)
		}
	}
}

func TestWhatIsForHostsIsEncrypted(t *testing.T) {
	r := newGuarded(t)
	up := r.ns.Run("sh", "-c", "ip -o addr show to "+own.Host.String()+" | awk '{print $2}'")
	uplink := strings.TrimSpace(up) + " from its address"
	const device = "wg-test from its address"
	a, b := peerOf(t, "h2", "192.0.2.2"), peerOf(t, "h3", "192.0.2.3")
	block := toBlock("h2", "10.65.2.0/26")
	r.apply(intent.Batch{Host: encrypting(nil), Peers: []intent.TunnelPeer{a}, Routes: []intent.Route{block}, InSync: true})
	r.ways("for workloads alone", map[string]string{"192.0.2.2": uplink, "10.65.2.7": "wg-test"})

	r.apply(intent.Batch{Host: encrypting(hosted)})
	all := map[string]string{
		"192.0.2.2": device, "192.0.2.2 ipproto tcp dport 80": device, "192.0.2.2 ipproto tcp dport 23": device, "192.0.2.3": uplink, "192.0.2.2 mark 0x100000": uplink,
		"192.0.2.2 ipproto tcp dport 2379": uplink, "192.0.2.2 ipproto tcp sport 2379 dport 9": uplink, "192.0.2.2 ipproto tcp dport 22": uplink, "192.0.2.2 ipproto udp dport 2379": device,
		"192.0.2.2 oif " + strings.Fields(uplink)[0]: uplink, "10.65.2.7 ipproto tcp dport 2379": "wg-test", "10.65.2.7 ipproto tcp sport 22 dport 9": "wg-test",
	}
	r.ways("for hosts", all)
	r.verified("for hosts", 0)
	r.apply(intent.Batch{Peers: []intent.TunnelPeer{b}})
	all["192.0.2.3"], all["192.0.2.3 ipproto tcp dport 22"] = device, device
	r.ways("another host has a key", all)

	// Somebody takes rules away, and adds one. An agent that begins takes nothing away before it knows what is wanted.
	r.ns.Run("sh", "-c", "ip rule del priority 102; ip rule del priority 101; ip rule add priority 100 iif lo ipproto tcp dport 80 goto 102 protocol 81")
	r.verified("rules were changed", 3)
	r.d = tunnel.New(r.ns.Rtnl(), r.cfg)
	r.apply(intent.Batch{Host: encrypting(nil)})
	all["192.0.2.2 ipproto tcp dport 80"] = uplink
	r.ways("an agent that does not know this host's key yet", map[string]string{"192.0.2.2 ipproto tcp dport 80": uplink})
	r.apply(intent.Batch{Host: encrypting(hosted), Peers: []intent.TunnelPeer{a, b}, Routes: []intent.Route{block}, InSync: true})
	all["192.0.2.2 ipproto tcp dport 80"] = device
	r.ways("it does", all)
	r.verified("put right", 0)

	// The device is lost: nothing goes in clear.
	r.ns.Run("ip", "link", "del", "wg-test")
	r.ways("without a device", map[string]string{"192.0.2.2": "", "192.0.2.2 ipproto tcp dport 22": uplink})
	r.d.Retry()
	r.apply(intent.Batch{})
	r.ways("it is back", all)

	// A key is withdrawn; and settings want it no more.
	r.apply(intent.Batch{Removed: []intent.Key{b.ID()}})
	r.ways("a host has no key any more", map[string]string{"192.0.2.3": uplink, "192.0.2.2": device})
	r.apply(intent.Batch{Host: encrypting(nil)})
	r.ways("for workloads alone again", map[string]string{"192.0.2.2": uplink, "10.65.2.7": "wg-test"})
	r.verified("for workloads alone again", 0)
	if skips, err := r.ns.Rtnl().SkipRules(kernel.RouteProtocolHosts); err != nil || len(skips) > 0 {
		t.Errorf("rules are left: %v, %v", skips, err)
	}
	r.apply(intent.Batch{Host: encrypting(hosted)})
	r.apply(intent.Batch{Host: settingsOf(intent.Tunnels{}), Removed: []intent.Key{intent.RouteID{Prefix: block.Dst}, a.ID()}})
	if rules := r.ns.Run("ip", "rule"); strings.Count(rules, "\n") > 3 {
		t.Errorf("nobody wants any more:\n%s", rules)
	}
	r.ways("without WireGuard", map[string]string{"192.0.2.2": uplink})
}

// TestTablesAreOfTheRanges: the first tables that nobody else has, of those that settings allow; others when these change.
func TestTablesAreOfTheRanges(t *testing.T) {
	r := newGuarded(t)
	in := func(ranges ...intent.TableRange) *intent.HostSettings {
		return encrypting(func(h *intent.HostSettings) {
			hosted(h)
			h.WireGuard.Tables = ranges
		})
	}
	tables := func(when string, want ...int) {
		t.Helper()
		rules, _, err := r.ns.Rtnl().MarkRules(kernel.RouteProtocolHosts)
		if err != nil || len(rules) != 2 || rules[0].Table != want[0] || rules[1].Table != want[1] {
			t.Errorf("%s: rules %+v, %v; want tables %v", when, rules, err, want)
		}
		for table, n := range map[int]int{1: 0, 2: 0, 254: 0, 300: 0, 301: 0, 302: 0, want[0]: 2, want[1]: 2} {
			all, err := r.ns.Rtnl().Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolHosts, Table: table})
			if err != nil || len(all) != n {
				t.Errorf("%s: table %d has %+v, %v; want %d routes", when, table, all, err, n)
			}
		}
		r.verified(when, 0)
	}
	r.ns.Run("sh", "-c", "ip route add unreachable 203.0.113.0/24 table 301")
	r.apply(intent.Batch{Host: in(), Peers: []intent.TunnelPeer{peerOf(t, "h2", "192.0.2.2")}, Routes: []intent.Route{toBlock("h2", "10.65.2.0/26")}, InSync: true})
	tables("no ranges", 1, 2)
	r.apply(intent.Batch{Host: in(intent.TableRange{Min: 254, Max: 254}, intent.TableRange{Min: 300, Max: 310})})
	tables("others, of which one is somebody's", 300, 302)
	r.d = tunnel.New(r.ns.Rtnl(), r.cfg)
	r.apply(intent.Batch{Host: in(intent.TableRange{Min: 2, Max: 310}), Peers: []intent.TunnelPeer{peerOf(t, "h2", "192.0.2.2")}, Routes: []intent.Route{toBlock("h2", "10.65.2.0/26")}, InSync: true})
	tables("a range that these are in", 300, 302)
	r.apply(intent.Batch{Host: in(intent.TableRange{Min: 2, Max: 300})})
	tables("one that one of them is in", 300, 2)
	r.d.Merge(intent.Batch{Host: in(intent.TableRange{Min: 301, Max: 301})})
	if _, err := r.d.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "routeTableRanges") {
		t.Errorf("a range of which somebody has every table: %v", err)
	}
}
