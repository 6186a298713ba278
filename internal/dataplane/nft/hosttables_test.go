package nft

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
)

// TestAHostEndpointThatTablesCannotHoldGoesByChains: at that stage alone, in that direction.
func TestAHostEndpointThatTablesCannotHoldGoesByChains(t *testing.T) {
	h := newHosted(t)
	var much []intent.Rule
	for port := range uint16(100) {
		much = append(much, tcpFrom(intent.Deny, port+1))
	}
	much = append(much, tcp(intent.Allow, 80))
	p, all := pol("p", much, nil), pol("all", nil, []intent.Rule{{Action: intent.Allow}})
	e := hep("up0")
	intenttest.Normal(&e, intent.Tier{Name: "t", Ingress: ids("p"), Egress: ids("all")})
	b := pair(nil, p, all)
	b.Endpoints = append(b.Endpoints, e)
	h.d.Merge(compiledBatch(b))
	apply(t, h.d)
	h.check(t, "out>host tcp/80", "!out>host tcp/81", "host>out tcp/81")
	plain := h.d.state.Plain()
	if text := h.canonical(t); len(plain) != 1 || !strings.Contains(plain[e.ID], "source ports") || !strings.Contains(text, "chain pol-in-prod.p") || strings.Contains(text, "chain pol-eg-prod.all") {
		t.Errorf("by chains, and why: %v\n%s", plain, text)
	}
	h.d.Merge(intent.Batch{Policies: []intent.Policy{pol("p", []intent.Rule{tcp(intent.Allow, 81)}, nil)}})
	apply(t, h.d)
	h.check(t, "out>host tcp/81", "!out>host tcp/80")
	rested(t, h.d)
	if plain, text := h.d.state.Plain(), h.canonical(t); len(plain) != 0 || strings.Contains(text, "chain pol-") {
		t.Errorf("by chains, and why: %v\n%s", plain, text)
	}
	if out, err := h.d.Differences(t.Context()); err != nil || len(out) > 0 {
		t.Errorf("differences: %v, %v", out, err)
	}
}

// TestWhatAHostSendsKeepsItsPriority: its process chose it, and nothing in the packet says which it was.
func TestWhatAHostSendsKeepsItsPriority(t *testing.T) {
	const port = 4000
	count := func(compiled bool) string {
		h := newHosted(t)
		b := pair(nil, pol("raw", []intent.Rule{{Action: intent.Allow}}, []intent.Rule{{Action: intent.Pass}}), pol("all", nil, []intent.Rule{{Action: intent.Allow}}))
		e := hep("up0")
		intenttest.Untracked(&e, ask(b.Policies[len(b.Policies)-2], in, out)...)
		intenttest.Normal(&e, ask(b.Policies[len(b.Policies)-1], out)...)
		b.Endpoints, b.Host = append(b.Endpoints, e), &intent.HostSettings{Compiled: compiled}
		h.d.Merge(b)
		apply(t, h.d)
		var rules strings.Builder
		for prio := range 16 {
			fmt.Fprintf(&rules, "udp dport %d meta mark & 0x000f0000 == 0 meta priority 0:%x counter\n", port, prio)
		}
		h.ns.Run("nft", fmt.Sprintf("table inet priorities { chain c { type filter hook postrouting priority 500; %s }; }", rules.String()))
		for prio := range 16 {
			for range prio + 1 {
				h.ns.Do(func() {
					sendWith(t, addrs["out"][0], port, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, prio) })
				})
			}
		}
		return h.ns.Run("nft", "list", "table", "inet", "priorities")
	}
	if chains, tables := count(false), count(true); chains != tables || !strings.Contains(chains, "packets 16 ") || !strings.Contains(chains, "packets 1 ") {
		t.Errorf("with chains:\n%s\nwith tables:\n%s", chains, tables)
	}
}
