package wording

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/speaker"
)

// TestSessionsAreShownAsCalicoctlShowsThem: of one family, with why there is a session, and since when.
func TestSessionsAreShownAsCalicoctlShowsThem(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.Local)
	session := func(peer, from string, global bool, state, why string, since time.Duration) speaker.Session {
		return speaker.Session{Peer: netip.MustParseAddr(peer), From: from, Global: global, State: state, Why: why, Since: now.Add(-since)}
	}
	r := speaker.Report{Sessions: []speaker.Session{
		session("172.17.8.102", "mesh", false, speaker.Established, "", time.Hour),
		session("172.17.8.1", "rack", true, "Active", "refused", 48*time.Hour),
		session("172.17.8.2", "tor", false, "Connect", "", time.Minute),
	}}
	var b strings.Builder
	Peers(&b, r, "4", now)
	Peers(&b, r, "6", now)
	const want = `
IPv4 BGP status
+--------------+-------------------+-------+------------+----------------+
| PEER ADDRESS |     PEER TYPE     | STATE |   SINCE    |      INFO      |
+--------------+-------------------+-------+------------+----------------+
| 172.17.8.102 | node-to-node mesh | up    | 11:00:00   | Established    |
| 172.17.8.1   | global            | start | 2026-05-02 | Active refused |
| 172.17.8.2   | node specific     | start | 11:59:00   | Connect        |
+--------------+-------------------+-------+------------+----------------+

IPv6 BGP status
No IPv6 peers found.
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}
