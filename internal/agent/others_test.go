package agent

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/wg"
	"github.com/twillnet/twill/internal/metrics"
)

// fakeDevices are devices of WireGuard by their names.
type fakeDevices struct {
	states   map[string]wg.State
	err      error
	threaded bool
}

func (f *fakeDevices) Read(name, _ string) (wg.State, error) { return f.states[name], f.err }
func (f *fakeDevices) Threaded(string) (bool, error)         { return f.threaded, nil }
func prefixOf(s string) netip.Prefix                         { return netip.MustParsePrefix(s) }
func to(dst, node string, kind intent.RouteKind) intent.Route {
	return intent.Route{Dst: prefixOf(dst), Kind: kind, Node: node}
}

var otherKeys = [2]wg.Key{{1}, {2}}

// wireguardReporter is one whose settings want both families, on a host with the devices.
func wireguardReporter(f *fakeDevices, kinds ...string) *reporter {
	r := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, memstore.New(), metrics.New(prometheus.NewRegistry()))
	r.wireguard = f
	r.links = func() (out []rtnl.Link, _ error) {
		for i, k := range kinds {
			out = append(out, rtnl.Link{Name: []string{"wireguard.cali", "wg-v6.cali"}[i], Kind: k})
		}
		return out, nil
	}
	s := config.Settings{WireGuard: config.WireGuard{Enabled: [2]bool{true, true}, Link: [2]string{"wireguard.cali", "wg-v6.cali"}, Metrics: true, Threads: true}}
	r.configure(s)
	return r
}

// TestHowOtherHostsAreReached is said of each host and family: by which tunnel, or in clear, and what is wrong with it.
func TestHowOtherHostsAreReached(t *testing.T) {
	at := time.Unix(1700000000, 0)
	f := &fakeDevices{states: map[string]wg.State{"wireguard.cali": {Public: wg.Key{9}, Port: 51820, Peers: []wg.Peer{
		{Key: otherKeys[0], Host: netip.MustParseAddrPort("192.0.2.2:51820"), Handshake: at, Received: 10, Sent: 20},
		{Key: otherKeys[1], Host: netip.MustParseAddrPort("192.0.2.3:51820"), Sent: 148},
	}}}}
	r := wireguardReporter(f, wg.Kind)
	direct, vxlan, lost := to("10.65.5.0/26", "h5", intent.RouteDirect), to("10.65.6.0/26", "h6", intent.RouteTunnel), to("10.65.7.0/26", "h7", intent.RouteTunnel)
	direct.Via, vxlan.Link, vxlan.Via, lost.Link = netip.MustParseAddr("192.0.2.5"), intent.LinkVXLAN, netip.MustParseAddr("10.65.6.0"), intent.LinkIPIP
	peer := func(node, host string, key wg.Key) intent.TunnelPeer {
		return intent.TunnelPeer{Node: node, Kind: intent.WireGuard, Host: netip.MustParseAddr(host), Key: key.String()}
	}
	r.decided(intent.Batch{
		Routes: []intent.Route{
			{Dst: prefixOf("10.65.1.0/26"), Kind: intent.RouteBlackhole},
			to("10.65.2.0/26", "h2", intent.RouteEncrypted), to("10.65.2.64/26", "h2", intent.RouteEncrypted),
			to("10.65.3.0/26", "h3", intent.RouteEncrypted), to("10.65.4.0/26", "h4", intent.RouteEncrypted), to("10.65.8.0/26", "h8", intent.RouteEncrypted),
			to("fd65::/122", "h2", intent.RouteEncrypted), direct, vxlan, lost, to("10.65.9.0/26", "h9", intent.RouteEncrypted),
		},
		Peers: []intent.TunnelPeer{
			peer("h2", "192.0.2.2", otherKeys[0]), peer("h3", "192.0.2.3", otherKeys[1]), peer("h8", "192.0.2.8", wg.Key{8}),
			{Node: "h2", Kind: intent.WireGuard6, Host: netip.MustParseAddr("2001:db8::2"), Key: otherKeys[0].String()},
			{Node: "h6", Kind: intent.VXLAN, Host: netip.MustParseAddr("192.0.2.6"), Addr: netip.MustParseAddr("10.65.6.0")},
		},
	}, time.Now())
	r.decided(intent.Batch{Removed: []intent.Key{intent.RouteID{Prefix: prefixOf("10.65.9.0/26")}}}, time.Now())
	got := r.report()
	var lines []string
	for _, o := range got.Others {
		hand := "never"
		if o.Handshake != nil {
			hand = "shook"
		}
		lines = append(lines, strings.TrimSpace(strings.Join([]string{o.Node, o.Family, o.By, o.Address, hand, o.Problem}, " ")))
	}
	want := []string{
		"h2 IPv4 WireGuard 192.0.2.2 shook", "h2 IPv6 WireGuard 2001:db8::2 never unreachable: this host has no device of WireGuard",
		"h3 IPv4 WireGuard 192.0.2.3 never no handshake: nothing answers at 192.0.2.3:51820, UDP",
		"h4 IPv4 WireGuard  never unreachable: it or this host has no key of WireGuard, and wireguardAllowUnencrypted is false",
		"h5 IPv4 direct 192.0.2.5 never in clear: it has no key of WireGuard, and wireguardAllowUnencrypted is true",
		"h6 IPv4 VXLAN 192.0.2.6 never in clear: it has no key of WireGuard, and wireguardAllowUnencrypted is true",
		"h7 IPv4 IPIP  never unreachable: h7 or this host has no end of IPIP",
		"h8 IPv4 WireGuard 192.0.2.8 never unreachable: the device wireguard.cali does not have its key yet",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if o := got.Others[0]; o.Blocks != 2 || o.Received != 10 || o.Sent != 20 || !o.Handshake.Equal(at) || !o.Encrypted || o.Key != otherKeys[0].String() {
		t.Errorf("h2: %+v", o)
	}
	if w := got.WireGuard; len(w) != 2 || w[0].By != "kernel" || w[0].Peers != 2 || w[0].Key != (wg.Key{9}).String() || !strings.HasPrefix(w[0].Problem, "wireguardThreadingEnabled has no effect") || w[1].By != "" || w[1].Problem == "" {
		t.Errorf("devices: %+v", w)
	}
	f.threaded = true
	if w := r.report().WireGuard; w[0].Problem != "" {
		t.Errorf("threads are at work: %+v", w[0])
	}
	f.err = errors.New("netlink")
	if o := r.report().Others[0]; o.Problem != "its device cannot be read: netlink" {
		t.Errorf("%+v", o)
	}
	r.configure(config.Settings{})
	if got := r.report(); len(got.WireGuard) != 0 || got.Others[4].Problem != "" {
		t.Errorf("nobody wants encryption: %+v", got)
	}
}

// TestWireGuardIsCounted under upstream's names, unless settings do not want it.
func TestWireGuardIsCounted(t *testing.T) {
	f := &fakeDevices{states: map[string]wg.State{"wg-v6.cali": {Public: wg.Key{9}, Port: 51821, Peers: []wg.Peer{
		{Key: otherKeys[0], Host: netip.MustParseAddrPort("[2001:db8::2]:51821"), Handshake: time.Unix(1700000000, 0), Received: 10, Sent: 20}, {Key: otherKeys[1]},
	}}}}
	r := wireguardReporter(f, "dummy", wg.Userspace)
	reg := prometheus.NewRegistry()
	metrics.New(reg).WireGuard(r.encrypted)
	names := []string{"wireguard_meta", "wireguard_bytes_rcvd", "wireguard_bytes_sent", "wireguard_latest_handshake_seconds"}
	if n, err := testutil.GatherAndCount(reg, names...); err != nil || n != 7 {
		t.Errorf("%d series, %v", n, err)
	}
	want := `# HELP wireguard_bytes_rcvd Bytes that came from another host, since the device has its key.
# TYPE wireguard_bytes_rcvd counter
wireguard_bytes_rcvd{hostname="h1",peer_endpoint="[2001:db8::2]:51821",peer_key="` + otherKeys[0].String() + `"} 10
wireguard_bytes_rcvd{hostname="h1",peer_endpoint="",peer_key="` + otherKeys[1].String() + `"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names[1]); err != nil {
		t.Error(err)
	}
	r.configure(config.Settings{WireGuard: config.WireGuard{Enabled: [2]bool{true, true}, Link: [2]string{"wireguard.cali", "wg-v6.cali"}}})
	if n, err := testutil.GatherAndCount(reg, names...); err != nil || n != 0 {
		t.Errorf("settings want none: %d series, %v", n, err)
	}
}
