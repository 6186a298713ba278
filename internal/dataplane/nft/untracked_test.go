package nft

import (
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/conntrack"
)

// TestWhatUntrackedPolicyAllowsHasNoConnection: it is asked about packet by packet, so that a flood of them fills no table; no
// verdict on a single packet shows it.
func TestWhatUntrackedPolicyAllowsHasNoConnection(t *testing.T) {
	h := newHosted(t)
	e := hep("up0")
	raw := pol("raw", []intent.Rule{tcp(intent.Allow, 80), tcpFrom(intent.Allow, 81)}, []intent.Rule{tcpFrom(intent.Allow, 80), tcp(intent.Allow, 81)})
	web := pol("web", []intent.Rule{tcp(intent.Allow, 82)}, []intent.Rule{tcp(intent.Allow, 83)})
	intenttest.Untracked(&e, ask(raw, in, out)...)
	intenttest.Normal(&e, ask(web, in, out)...)
	b := pair(nil, raw, web)
	b.Endpoints = append(b.Endpoints, e)
	h.d.Merge(b)
	apply(t, h.d)
	h.check(t, "out>host tcp/80", "host>out tcp/81", "out>host tcp/82", "host>out tcp/83", "!out>host tcp/84")
	tracked := map[uint16]bool{}
	h.ns.Do(func() {
		c, err := conntrack.Open()
		if err == nil {
			err = c.Each(func(f conntrack.Flow) { tracked[f.Original.DstPort], tracked[f.Reply.DstPort] = true, true })
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	})
	for port, want := range map[uint16]bool{80: false, 81: false, 82: true, 83: true} {
		if tracked[port] != want {
			t.Errorf("port %d has a connection: %v, want %v", port, tracked[port], want)
		}
	}
}
