package plan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
)

// brief is a session in one line.
func brief(s plan.Session) string {
	out := fmt.Sprintf("%s as %d", netip.AddrPortFrom(s.Peer, s.Port), s.AS)
	add := func(is bool, words string, args ...any) {
		if is {
			out += " " + fmt.Sprintf(words, args...)
		}
	}
	add(s.LocalAS != plan.DefaultAS, "local %d", s.LocalAS)
	add(!s.Source.IsValid(), "from any")
	add(s.Passive, "passive")
	add(s.Via.IsValid(), "via %s", s.Via)
	add(s.Client, "client of %s", s.Cluster)
	add(s.NextHop != "", "next hop %s", s.NextHop)
	add(s.Hops > 0, "within %d", s.Hops)
	add(s.Password != nil, "password")
	add(s.Restart != plan.DefaultRestart, "restart %s", s.Restart)
	add(s.Keepalive != plan.DefaultKeepalive, "alive %s/%s", s.Keepalive, s.Hold)
	add(s.AllowLocalAS > 0, "own AS %d", s.AllowLocalAS)
	add(s.BFD != plan.BFD{BFD: api.DefaultBFD}, "BFD %sx%d asked %t", s.BFD.Interval, s.BFD.Multiplier, s.BFD.Asked)
	return out
}

func TestSessions(t *testing.T) {
	for _, tt := range []struct {
		name, world, node string
		want              []string
	}{
		{"a full mesh of both families; who calls has the greater text", three, "h2", []string{
			"192.0.2.1:179 as 64512", "192.0.2.3:179 as 64512 passive", "[2001:db8::1]:179 as 64512",
		}},
		{"a node has no session of a family that the other lacks", three, "h3", []string{"192.0.2.1:179 as 64512", "192.0.2.2:179 as 64512"}},
		{"the mesh can be off", three + "BGPConfiguration default {nodeToNodeMeshEnabled: false}", "h1", nil},
		{"the cluster's AS number, and one node's own", three + "BGPConfiguration default {asNumber: 65000}\nNode h3 {bgp: {ipv4Address: 192.0.2.3, asNumber: 65003}}", "h1", []string{
			"192.0.2.2:179 as 65000 local 65000 passive", "192.0.2.3:179 as 65003 local 65000 passive", "[2001:db8::2]:179 as 65000 local 65000 passive",
		}},
		{"another port, of all and of one", three + "BGPConfiguration default {listenPort: 1790}\nBGPConfiguration node.h3 {listenPort: 1791}", "h1", []string{
			"192.0.2.2:1790 as 64512 passive", "192.0.2.3:1791 as 64512 passive", "[2001:db8::2]:1790 as 64512 passive",
		}},
		{"the mesh's password and restart time", three + "BGPConfiguration default {nodeMeshPassword: {secretKeyRef: {name: a, key: b}}, nodeMeshMaxRestartTime: 5s}", "h3", []string{
			"192.0.2.1:179 as 64512 password restart 5s", "192.0.2.2:179 as 64512 password restart 5s",
		}},
		{"a reflector is not of the mesh", three + "Node h2 {bgp: {ipv4Address: 192.0.2.2, routeReflectorClusterID: 244.0.0.1}}", "h1", []string{"192.0.2.3:179 as 64512 passive"}},
		{"a reflector alone has no sessions", three + "Node h2 {bgp: {ipv4Address: 192.0.2.2, routeReflectorClusterID: 244.0.0.1}}", "h2", nil},
		{"clients of a reflector", reflector, "h1", []string{"192.0.2.2:179 as 64512 passive"}},
		{"the reflector has them without a BGPPeer of its own", reflector, "h2", []string{
			"192.0.2.1:179 as 64512 client of 244.0.0.1", "192.0.2.3:179 as 64512 passive client of 244.0.0.1",
		}},
		{"nodes that a selector names are peers in both families", alone + "BGPPeer rr {nodeSelector: 'rack == \"a\"', peerSelector: has(rr)}", "h1", []string{
			"192.0.2.2:179 as 64512 passive", "[2001:db8::2]:179 as 64512 passive",
		}},
		{"unless peering is one way", reflector + "BGPPeer rr {nodeSelector: 'rack == \"b\"', peerSelector: has(rr), reversePeering: Manual}", "h2", nil},
		{"two reflectors of one cluster are no clients", reflector + "Node h3 {labels: {rr: one}} {bgp: {ipv4Address: 192.0.2.3, routeReflectorClusterID: 244.0.0.1}}", "h2", []string{
			"192.0.2.1:179 as 64512 client of 244.0.0.1", "192.0.2.3:179 as 64512 passive",
		}},
		{"reflectors of other clusters are clients", reflector + "Node h3 {labels: {rr: one}} {bgp: {ipv4Address: 192.0.2.3, routeReflectorClusterID: 244.0.0.2}}", "h2", []string{
			"192.0.2.1:179 as 64512 client of 244.0.0.1", "192.0.2.3:179 as 64512 passive client of 244.0.0.1",
		}},
		{"a peer of all nodes", alone + "BGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009}", "h3", []string{"192.0.2.9:179 as 65009"}},
		{"a peer that says of no AS number is of the cluster's", alone + "BGPConfiguration default {nodeToNodeMeshEnabled: false, asNumber: 65000}\nNode h3 {bgp: {ipv4Address: 192.0.2.3, asNumber: 65003}}\nBGPPeer tor {node: h3, peerIP: 192.0.2.9}", "h3", []string{"192.0.2.9:179 as 65000 local 65003"}},
		{"which is 64512", alone + "BGPPeer tor {peerIP: 192.0.2.9}", "h1", []string{"192.0.2.9:179 as 64512"}},
		{"a peer of one node", alone + "BGPPeer tor {node: h1, peerIP: '192.0.2.9:1799', asNumber: 65009}", "h1", []string{"192.0.2.9:1799 as 65009"}},
		{"a peer behind a gateway", alone + "BGPPeer tor {node: h1, peerIP: 198.51.100.9, asNumber: 65009, reachableBy: 192.0.2.9}", "h1", []string{"198.51.100.9:179 as 65009 via 192.0.2.9"}},
		{"is not of another", alone + "BGPPeer tor {node: h1, peerIP: 192.0.2.9, asNumber: 65009}", "h2", nil},
		{"a peer of some nodes", alone + "BGPPeer tor {nodeSelector: 'rack == \"a\"', peerIP: 192.0.2.9, asNumber: 65009}", "h2", []string{"192.0.2.9:179 as 65009"}},
		{"is not of others", alone + "BGPPeer tor {nodeSelector: 'rack == \"a\"', peerIP: 192.0.2.9, asNumber: 65009}", "h3", nil},
		{"an external peer is never a client", strings.Replace(reflector, "BGPPeer rr", "BGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009}\nBGPPeer rr", 1), "h2", []string{
			"192.0.2.1:179 as 64512 client of 244.0.0.1", "192.0.2.3:179 as 64512 passive client of 244.0.0.1", "192.0.2.9:179 as 65009",
		}},
		{"nobody peers with itself", alone + "BGPPeer h1 {node: h1, peerIP: 192.0.2.1, asNumber: 64512}", "h1", nil},
		{"a node whose address is a peerIP has the sessions of all who peer with it", alone + "BGPPeer h1 {peerIP: 192.0.2.1, asNumber: 64512}", "h1", []string{"192.0.2.2:179 as 64512 passive", "192.0.2.3:179 as 64512 passive"}},
		{"with the same settings, at their ports, of the family of the address", alone + "BGPConfiguration node.h1 {listenPort: 1790}\nBGPPeer h2 {nodeSelector: 'rack == \"a\"', peerIP: '2001:db8::2', password: {secretKeyRef: {name: a, key: b}}, keepaliveTime: 1s}", "h2", []string{"[2001:db8::1]:1790 as 64512 password alive 1s/3s"}},
		{"and reflects to them", alone + "Node h2 {bgp: {ipv4Address: 192.0.2.2, routeReflectorClusterID: 244.0.0.1}}\nBGPPeer rr {peerIP: 192.0.2.2}", "h2", []string{"192.0.2.1:179 as 64512 client of 244.0.0.1", "192.0.2.3:179 as 64512 passive client of 244.0.0.1"}},
		{"who have theirs, and one end calls", alone + "BGPPeer rr {peerIP: 192.0.2.2}", "h1", []string{"192.0.2.2:179 as 64512 passive"}},
		{"unless peering is one way", alone + "BGPPeer rr {peerIP: 192.0.2.2, reversePeering: Manual}", "h2", nil},
		{"and then who has it calls", alone + "BGPPeer rr {peerIP: 192.0.2.2, reversePeering: Manual}", "h1", []string{"192.0.2.2:179 as 64512"}},
		{"unless the AS number is another", alone + "BGPPeer rr {peerIP: 192.0.2.2, asNumber: 65001}", "h2", nil},
		{"and then the other end is no node's", alone + "BGPPeer rr {peerIP: 192.0.2.2, asNumber: 65001}", "h1", []string{"192.0.2.2:179 as 65001"}},
		{"unless the port is another", alone + "BGPPeer rr {peerIP: '192.0.2.2:1790'}", "h2", nil},
		{"or the port is the same", alone + "BGPConfiguration node.h2 {listenPort: 1790}\nBGPPeer rr {node: h3, peerIP: '192.0.2.2:1790'}", "h2", []string{"192.0.2.3:179 as 64512 passive"}},
		{"what the node's own BGPPeer says goes before", alone + "BGPPeer a {node: h1, peerIP: 192.0.2.2, maxRestartTime: 7s}\nBGPPeer b {peerIP: 192.0.2.1, maxRestartTime: 9s}", "h2", []string{"192.0.2.1:179 as 64512 restart 9s"}},
		{"an AS number of one's own is the other end's peer's", alone + "BGPPeer rr {node: h1, peerIP: 192.0.2.2, localASNumber: 65001}", "h2", []string{"192.0.2.1:179 as 65001"}},
		{"by selectors, too", alone + "BGPPeer rr {node: h1, peerSelector: has(rr), localASNumber: 65001}", "h2", []string{"192.0.2.1:179 as 65001", "[2001:db8::1]:179 as 65001"}},
		{"and by selectors in both directions", alone + "BGPPeer all {nodeSelector: 'rack == \"a\"', peerSelector: 'rack == \"a\"', localASNumber: 65001}", "h2", []string{"192.0.2.1:179 as 65001 local 65001", "[2001:db8::1]:179 as 65001 local 65001"}},
		{"a peer that is a node listens where that node does", alone + "BGPConfiguration node.h1 {listenPort: 1790}\nBGPPeer h1 {node: h2, peerIP: 192.0.2.1, asNumber: 64512}", "h2", []string{"192.0.2.1:1790 as 64512"}},
		{"what a peer says goes before the mesh", three + "BGPPeer h1 {node: h3, peerIP: 192.0.2.1, asNumber: 64512, maxRestartTime: 7s}", "h3", []string{"192.0.2.1:179 as 64512 restart 7s", "192.0.2.2:179 as 64512"}},
		{"BFD off for all", three + "BGPConfiguration default {annotations: {twill.net/bfd: 'off'}} {}", "h3", []string{
			"192.0.2.1:179 as 64512 BFD 0sx0 asked false", "192.0.2.2:179 as 64512 BFD 0sx0 asked false",
		}},
		{"and asked for on one node", three + "BGPConfiguration default {annotations: {twill.net/bfd: 'off'}} {}\nBGPConfiguration node.h3 {annotations: {twill.net/bfd: 300ms}} {}", "h3", []string{
			"192.0.2.1:179 as 64512 BFD 300msx3 asked true", "192.0.2.2:179 as 64512 BFD 300msx3 asked true",
		}},
		{"and otherwise with one peer", three + "BGPPeer h1 {annotations: {twill.net/bfd: 1sx5}} {node: h3, peerIP: 192.0.2.1, asNumber: 64512}", "h3", []string{
			"192.0.2.1:179 as 64512 BFD 1sx5 asked true", "192.0.2.2:179 as 64512",
		}},
		{"what is of the node goes before what is of all", alone + "BGPPeer a {peerIP: 192.0.2.9, asNumber: 1}\nBGPPeer z {node: h1, peerIP: 192.0.2.9, asNumber: 2}", "h1", []string{"192.0.2.9:179 as 2"}},
		{"all that can be said", alone + "BGPPeer tor {peerIP: 192.0.2.9, asNumber: 1, localASNumber: 2, sourceAddress: None, nextHopMode: Keep, ttlSecurity: 1, password: {secretKeyRef: {name: a, key: b}}, maxRestartTime: 9s, keepaliveTime: 1s, numAllowedLocalASNumbers: 3}", "h1", []string{
			"192.0.2.9:179 as 1 local 2 from any next hop keep within 1 password restart 9s alive 1s/3s own AS 3",
		}},
		{"itself as the next hop", alone + "BGPPeer tor {peerIP: 192.0.2.9, asNumber: 1, nextHopMode: Self}", "h1", []string{"192.0.2.9:179 as 1 next hop self"}},
		{"a client by its address", alone + "Node h2 {bgp: {ipv4Address: 192.0.2.2, routeReflectorClusterID: 244.0.0.1}}\nBGPPeer tor {node: h2, peerIP: 192.0.2.9, asNumber: 64512}", "h2", []string{
			"192.0.2.9:179 as 64512 client of 244.0.0.1",
		}},
		{"the older way to keep the next hop", alone + "BGPPeer tor {peerIP: 192.0.2.9, asNumber: 1, keepOriginalNextHop: true}", "h1", []string{"192.0.2.9:179 as 1 next hop keep"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, s := range world(t, tt.world).Plan(tt.node).Sessions {
				got = append(got, brief(s))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("sessions of %s:\n got %s\nwant %s", tt.node, strings.Join(got, "\n     "), strings.Join(tt.want, "\n     "))
			}
		})
	}
}

const (
	alone     = three + "BGPConfiguration default {nodeToNodeMeshEnabled: false}\n"
	reflector = alone + "Node h2 {labels: {rr: one}} {bgp: {ipv4Address: 192.0.2.2, routeReflectorClusterID: 244.0.0.1}}\nBGPPeer rr {nodeSelector: all(), peerSelector: has(rr)}\n"
)

// TestASessionOfTwoBGPPeersIsNoProblem: each end has a BGPPeer for the other, of which each is the other's end, too.
func TestASessionOfTwoBGPPeersIsNoProblem(t *testing.T) {
	w := world(t, alone+"BGPPeer a {node: h1, peerIP: 192.0.2.2}\nBGPPeer b {node: h2, peerIP: 192.0.2.1}")
	for node, passive := range map[string]bool{"h1": true, "h2": false} {
		if p := w.Plan(node); len(p.Sessions) != 1 || p.Sessions[0].Passive != passive || len(p.Problems) != 0 {
			t.Errorf("%s: %+v", node, p)
		}
	}
}

// TestTimesThatNoMessageCanSayAreNotThere, of resources that nobody has validated: BIRD takes no configuration with such a hold time.
func TestTimesThatNoMessageCanSayAreNotThere(t *testing.T) {
	w := world(t, alone)
	w.Update(api.Update{Key: api.KeyPrefix(api.KindBGPPeer, "") + "p", Value: []byte(`{"spec":{"peerIP":"192.0.2.9","asNumber":65009,"keepaliveTime":"30000s","maxRestartTime":"5000s"}}`)})
	if s := w.Plan("h1").Sessions[0]; s.Keepalive != plan.DefaultKeepalive || s.Hold != 3*plan.DefaultKeepalive || s.Restart != plan.DefaultRestart {
		t.Errorf("keepalive %s, hold %s, restart %s", s.Keepalive, s.Hold, s.Restart)
	}
	w.Update(api.Update{Key: api.KeyPrefix(api.KindBGPPeer, "") + "p", Value: []byte(`{"spec":{"peerIP":"192.0.2.9","asNumber":65009,"keepaliveTime":"21845s","maxRestartTime":"4095s"}}`)})
	if s := w.Plan("h1").Sessions[0]; s.Hold != 65535*time.Second || s.Restart != 4095*time.Second {
		t.Errorf("hold %s, restart %s", s.Hold, s.Restart)
	}
}

// TestNoASIsZero, which no speaker starts with, of resources that nobody has validated.
func TestNoASIsZero(t *testing.T) {
	const own = "BGPConfiguration default {asNumber: 65000}\n"
	for _, tt := range []struct {
		world, kind, name, value string
		want                     uint32
	}{
		{"", api.KindBGPConfiguration, "default", `{"spec":{"asNumber":0}}`, plan.DefaultAS},
		{own, api.KindBGPConfiguration, "default", `{"spec":{"asNumber":0}}`, 65000}, // the earlier version stays
		{own, api.KindNode, "h1", `{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24","asNumber":0}}}`, 65000},
		{own, api.KindBGPPeer, "tor", `{"spec":{"peerIP":"192.0.2.9","asNumber":65009,"localASNumber":0}}`, 65000}, // so does that
	} {
		w := world(t, three+tt.world+"BGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009}\n")
		w.Update(api.Update{Key: api.KeyPrefix(tt.kind, "") + tt.name, Value: []byte(tt.value)})
		p := w.Plan("h1")
		if s, _ := p.Session(netip.MustParseAddr("192.0.2.9")); p.AS != tt.want || s.LocalAS != tt.want {
			t.Errorf("%s %s: AS %d, in the session %d, want %d", tt.kind, tt.value, p.AS, s.LocalAS, tt.want)
		}
	}
}
