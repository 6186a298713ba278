package bgp

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/speaker"
)

var bgpReport = speaker.Report{
	Node: "h1", AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Advertised: 2, Learned: 3, Kernel: 3, Problems: []string{"resource x"},
	Sessions: []speaker.Session{
		{Peer: netip.MustParseAddr("192.0.2.2"), PeerNode: "h2", From: "mesh", AS: 64512, State: speaker.Established, Since: noon.Add(-time.Minute), Received: 1, Accepted: 1, Advertised: 2, Client: true, BFD: bfd.Status{State: "Up", Since: noon.Add(-time.Second), Interval: bfd.Period(300 * time.Millisecond), Detection: bfd.Period(900 * time.Millisecond)}},
		{Peer: netip.MustParseAddr("2001:db8::9"), From: "BGPPeer tor", AS: 65001, State: "Active", Since: noon.Add(-time.Hour), Why: "no sign of life within the hold time", BFD: bfd.Status{State: "Down", Since: noon.Add(-time.Minute), Why: "no packet yet"}},
	},
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestSessionsAreShownWithWhyTheyAreDown(t *testing.T) {
	for _, tt := range []struct {
		name  string
		print func(*bytes.Buffer)
		want  string
	}{
		{"peers", func(b *bytes.Buffer) { printSessions(b, bgpReport, noon, false) }, `
node h1, AS 64512, router id 192.0.2.1: 2 prefixes originated, 3 learned, 3 installed
PEER         NODE  FROM         AS     STATE        SINCE   RECEIVED  ACCEPTED  ADVERTISED  BFD   NOTE
192.0.2.2    h2    mesh         64512  Established  1m0s    1         1         2           Up    client
2001:db8::9        BGPPeer tor  65001  Active       1h0m0s  0         0         0           Down  no sign of life within the hold time
wrong: resource x
`},
		{"peers -o wide", func(b *bytes.Buffer) { printSessions(b, bgpReport, noon, true) }, `
node h1, AS 64512, router id 192.0.2.1: 2 prefixes originated, 3 learned, 3 installed
PEER         NODE  FROM         AS     STATE        SINCE   RECEIVED  ACCEPTED  ADVERTISED  BFD   BFD SINCE  BFD INTERVAL  BFD DETECTION TIME  BFD NOTE       NOTE
192.0.2.2    h2    mesh         64512  Established  1m0s    1         1         2           Up    1s         300ms         900ms                              client
2001:db8::9        BGPPeer tor  65001  Active       1h0m0s  0         0         0           Down  1m0s                                         no packet yet  no sign of life within the hold time
wrong: resource x
`},
		{"while stale routes are retained", func(b *bytes.Buffer) {
			printSessions(b, speaker.Report{Node: "h1", AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Holding: noon.Add(90 * time.Second)}, noon, false)
		}, `
node h1, AS 64512, router id 192.0.2.1: 0 prefixes originated, 0 learned, 0 installed
restarting: stale routes are retained until all peers have sent End-of-RIB, at most 1m30s more
`},
		{"peers of a node that is off", func(b *bytes.Buffer) { printSessions(b, speaker.Report{Node: "h1", Off: "no address"}, noon, false) }, `
node h1 does not speak BGP: no address
`},
		{"node status", func(b *bytes.Buffer) { printNodeStatus(b, bgpReport) }, `
Calico process is running.

IPv4 BGP status
PEER ADDRESS  PEER TYPE          STATE  SINCE                INFO
192.0.2.2     node-to-node mesh  up     2026-01-02 11:59:00  Established

IPv6 BGP status
PEER ADDRESS  PEER TYPE    STATE  SINCE                INFO
2001:db8::9   BGPPeer tor  start  2026-01-02 11:00:00  Active: no sign of life within the hold time
`},
		{"why", func(b *bytes.Buffer) {
			printExplanation(b, speaker.Explanation{
				Asked: netip.MustParsePrefix("10.65.1.5/32"), Dst: netip.MustParsePrefix("10.65.1.0/26"),
				Paths: []speaker.Route{{From: netip.MustParseAddr("192.0.2.2"), NextHop: netip.MustParseAddr("192.0.2.3"), ASPath: []uint32{65001, 65002}, Best: true, Kernel: "installed"}},
				Peers: []speaker.PeerVerdict{{Peer: netip.MustParseAddr("192.0.2.9"), PeerNode: "h9", Why: "IPPool a (disableBGPExport) rejects"}},
			})
		}, `
10.65.1.0/26 (longest match for 10.65.1.5/32)
  learned from 192.0.2.2, next hop 192.0.2.3, AS path 65001 65002: best; kernel: installed
  not advertised to 192.0.2.9 h9: IPPool a (disableBGPExport) rejects
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			tt.print(&b)
			if got, want := trimLines(b.String()), strings.TrimPrefix(tt.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
	if allUp(bgpReport) == nil {
		t.Error("a session that is down is no failure")
	}
}

// trimLines takes away spaces at the ends of lines.
func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
