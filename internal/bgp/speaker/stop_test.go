package speaker_test

import (
	"testing"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// TestWhoSpeaksNoMoreTellsAllPeersSo: a peer that reads no notification before the end takes it for a restart, and keeps the routes. The
// library that is stopped closes all connections, and writes what ends them meanwhile: with many threads and some rounds, one of
// them loses.
func TestWhoSpeaksNoMoreTellsAllPeersSo(t *testing.T) {
	const peers, rounds, threads = 10, 16, 64
	h := hostileNetwork(t, peers)
	h.ask(request{Processors: threads})
	p := planOf()
	addrs := make([]string, peers)
	for i := range addrs {
		addrs[i] = hostileAddr(i)
		s := session(addrs[i], 64512)
		s.Passive = true
		p.Sessions = append(p.Sessions, s)
	}
	for range rounds {
		h.plan(p)
		h.active(addrs...)
		raws := make([]*raw, peers)
		for i := range raws {
			raws[i] = h.connect(t, i)
		}
		h.up(addrs...)
		h.plan(plan.Plan{Node: "h1", Off: "its Node is gone"})
		for i, r := range raws {
			cease, err := r.ended(patience)
			if err != nil {
				t.Fatal(err)
			}
			if len(cease) < 2 || cease[0] != 6 {
				t.Fatalf("%s read %v before the end, want a Cease notification (RFC 4486)", addrs[i], cease)
			}
		}
	}
}
