package nft

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// asks reports whether a party that connects to the address of metadata, or a port of it, reaches a server.
func (h *hosted) asks(t *testing.T, from string, port uint16, server string, at netip.AddrPort, within time.Duration) bool {
	t.Helper()
	l, err := h.party(server).ListenTCP(at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := h.party(from).DialTCP(netip.AddrPort{}, netip.AddrPortFrom(intent.MetadataService.Addr(), port), time.Now().Add(within))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// TestRequestsForMetadataArriveAtTheServer: on the host, which needs no policy, also at an address of loopback, and elsewhere, which needs one; and
// nothing else is translated or let in.
func TestRequestsForMetadataArriveAtTheServer(t *testing.T) {
	here, inside, there := netip.MustParseAddrPort("192.0.2.1:8775"), netip.MustParseAddrPort("127.0.0.1:8775"), netip.MustParseAddrPort("192.0.2.2:8775")
	for _, action := range []intent.ToHost{intent.ToHostDrop, intent.ToHostReturn, intent.ToHostAccept} {
		h := newHosted(t)
		h.ns.Run("sysctl", "-qw", "net.ipv4.conf.calia.route_localnet=1") // package host does that
		closed, early, all := pol("closed", nil, []intent.Rule{tcp(intent.Deny, 8775), anything}), pol("early", []intent.Rule{tcp(intent.Deny, 80), tcp(intent.Deny, 8775)}, nil), hep("*")
		intenttest.PreDNAT(&all, ask(early, in)...)
		b := pair([]intent.Tier{tier("t", intent.Deny, nil, ids("closed"))}, closed, early)
		b.Endpoints = append(b.Endpoints, all)
		for _, tt := range []struct {
			from   string
			to     netip.AddrPort // of the settings
			port   uint16         // that is asked for
			server string
			want   bool
		}{
			{"a", netip.AddrPort{}, 80, "host", false},
			{"a", here, 80, "host", true},
			{"a", here, 81, "host", false},
			{"out", here, 80, "host", false},
			{"a", inside, 80, "host", true},
			{"a", there, 80, "out", false}, // a's policy
			{"b", there, 80, "out", true},
			{"b", there, 8775, "out", false},
		} {
			b.Host = &intent.HostSettings{EndpointToHost: action, Metadata: tt.to}
			h.d.Merge(b)
			apply(t, h.d)
			at := tt.to
			if !at.IsValid() {
				at = here
			}
			within := netnstest.Silence
			if tt.want {
				within = netnstest.Patience
			}
			if got := h.asks(t, tt.from, tt.port, tt.server, at, within); got != tt.want {
				t.Errorf("to host %v: %s asks for metadata at port %d, which is at %s: reached %v, want %v", action, tt.from, tt.port, tt.to, got, tt.want)
			}
		}
		if action == intent.ToHostDrop { // the host lets in that alone
			b.Host = &intent.HostSettings{Metadata: here}
			h.d.Merge(b)
			apply(t, h.d)
			h.check(t, "!b>host tcp/8776", "!b>host udp/8775")
		}
	}
}

// TestTheWayToMetadataStaysAsItIsUntilAllIsKnown, and goes when settings name no server.
func TestTheWayToMetadataStaysAsItIsUntilAllIsKnown(t *testing.T) {
	h := newHosted(t)
	b := pair(nil)
	b.Host = &intent.HostSettings{Metadata: netip.MustParseAddrPort("192.0.2.1:8775")}
	h.d.Merge(b)
	apply(t, h.d)
	table := func() string { return h.ns.Run("nft", "-s", "list", "table", "inet", "twill") }
	before := table()
	if strings.Count(before, "dnat ip to 192.0.2.1:8775") != 1 {
		t.Fatalf("want destination NAT once:\n%s", before)
	}
	again := New(h.kernelConn, Config{}) // the agent restarts, and knows nothing yet
	again.Merge(intent.Batch{})
	apply(t, again)
	if after := table(); after != before {
		t.Errorf("changed before all was known:\n%s\nto\n%s", before, after)
	}
	b.Host = &intent.HostSettings{}
	again.Merge(b)
	apply(t, again)
	if after := table(); strings.Contains(after, "8775") {
		t.Errorf("no server is named any more:\n%s", after)
	}
}
