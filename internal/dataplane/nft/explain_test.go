package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
)

// TestAnExplanationIsWhatPacketsMeet: what is said of the table is what the kernel does with a packet, and names what decides.
func TestAnExplanationIsWhatPacketsMeet(t *testing.T) {
	h := newHosted(t)
	out := netip.MustParseAddr(addrs["out"][0])
	in := []intent.Tier{{Name: "t", Ingress: ids("p"), Default: intent.Deny}}
	with := func(port uint16, src intent.Peer) intent.Rule {
		r := tcp(intent.Allow, port)
		r.Src = src
		return r
	}
	from := intent.Peer{Ports: []intent.PortRange{{Min: 1, Max: 65000}}}
	b := compiledBatch(pair(in, pol("p", []intent.Rule{with(80, inSet("out")), with(82, from), with(83, inSet("all"))}, nil)))
	b.IPSets = append(b.IPSets, intent.IPSet{ID: "out", Comment: "role == 'out\x1b[31m\"'", Members: []intent.Member{member(addrs["out"][0] + "/32"), member(addrs["out"][1] + "/128")}},
		intent.IPSet{ID: "all", Comment: "all()", Members: []intent.Member{member("0.0.0.0/1"), member("128.0.0.0/1"), member("fd00::/8")}})
	h.d.Merge(b)
	apply(t, h.d)
	explain := func(peer netip.Addr, flow *Flow) map[string]Way {
		t.Helper()
		rs, err := h.List(kernel.TableName)
		if err != nil {
			t.Fatal(err)
		}
		ways, err := Explain(rs, peer, flow)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]Way{}
		for _, w := range ways {
			for _, link := range w.Interfaces {
				found[strings.Join([]string{link, w.Direction, w.Packets}, " ")] = w
			}
		}
		return found
	}
	for _, tt := range []struct {
		port          uint16
		answer, by, m string
	}{
		{80, wayAllows, "prod/p ingress[0]", "class4"}, {81, wayDenies, "end of tier t", "class4"}, {82, wayAsks, "prod/p ingress[1]", "class4"}, {83, wayAllows, "prod/p ingress[2]", "class4"},
	} {
		probe := fmt.Sprintf("out>a tcp/%d", tt.port)
		if tt.answer == wayDenies {
			probe = "!" + probe
		}
		h.check(t, probe)
		w := explain(out, &Flow{Proto: 6, Port: tt.port})[fmt.Sprintf("calia receives tcp/%d", tt.port)]
		if w.Answer != tt.answer || !strings.Contains(strings.Join(w.By, ";"), tt.by) || w.ClassMap != tt.m {
			t.Errorf("%s: %+v", probe, w)
		}
		if want := "all(); role == 'out'[31m''"; w.Addresses != want {
			t.Errorf("the class has %q, want %q", w.Addresses, want)
		}
	}
	all := explain(netip.MustParseAddr("203.0.113.77"), nil)
	if w := all["calia receives tcp/83"]; w.Answer != wayAllows || w.ClassMap != "class4-1" || w.Addresses != "all()" {
		t.Errorf("an address of a prefix: %+v", w)
	}
	if w := all["calia receives all else"]; w.Answer != wayDenies || w.By[0] != "end of tier t" {
		t.Errorf("all else: %+v", w)
	}
	if w := explain(netip.MustParseAddr("2001:db8::77"), nil)["calia receives all else"]; w.Class != "" || w.Addresses != "all other addresses" {
		t.Errorf("an address in no set: %+v", w)
	}
	h.d.Merge(intent.Batch{Host: &intent.HostSettings{}})
	apply(t, h.d)
	if w := explain(out, nil)["calia receives all"]; len(w.ByChains) != 2 || !strings.HasPrefix(w.ByChains[0], "pol-in-prod.p-") {
		t.Errorf("by chains: %+v", w)
	}
}

// TestAnExplanationHasHostEndpoints: each at its stages, by tables, by chains, and closed, as packets meet it.
func TestAnExplanationHasHostEndpoints(t *testing.T) {
	h := newHosted(t)
	out := netip.MustParseAddr(addrs["out"][0])
	deny := func(port uint16) []intent.Rule { return []intent.Rule{tcp(intent.Deny, port), {Action: intent.Allow}} }
	// What an early stage allows is asked about no more.
	early, p, fw := pol("early", []intent.Rule{tcp(intent.Deny, 79), {Action: intent.Pass}}, nil), pol("p", deny(81), deny(82)), pol("fw", deny(83), deny(84))
	with := func(closed string) intent.Batch {
		b := pair(nil, early, p, fw)
		e := hep("up0")
		e.Closed = closed
		intenttest.PreDNAT(&e, ask(early, intent.Ingress)...)
		intenttest.Normal(&e, ask(p, intent.Ingress, intent.Egress)...)
		intenttest.Forward(&e, ask(fw, intent.Ingress, intent.Egress)...)
		b.Endpoints = append(b.Endpoints, e)
		return b
	}
	explain := func(port uint16) map[string]Way {
		t.Helper()
		rs, err := h.List(kernel.TableName)
		if err != nil {
			t.Fatal(err)
		}
		ways, err := Explain(rs, out, &Flow{Proto: 6, Port: port})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]Way{}
		for _, w := range ways {
			if w.Host != "" {
				found[w.Stage+" "+w.Direction] = w
			}
		}
		return found
	}
	h.d.Merge(compiledBatch(with("")))
	apply(t, h.d)
	for _, tt := range []struct {
		stage, probe, by string
		port             uint16
	}{
		{"host-pre-dnat receives", "out>host", "prod/early ingress[0]", 79},
		{"host-in receives", "out>host", "prod/p ingress[0]", 81},
		{"host-out sends", "host>out", "prod/p egress[0]", 82},
		{"host-forward-in receives", "out>a", "prod/fw ingress[0]", 83},
		{"host-forward-out sends", "a>out", "prod/fw egress[0]", 84},
	} {
		h.check(t, fmt.Sprintf("!%s tcp/%d", tt.probe, tt.port), fmt.Sprintf("%s tcp/%d", tt.probe, tt.port+10))
		for port, allowed := range map[uint16]bool{tt.port: false, tt.port + 10: true} {
			w := explain(port)[tt.stage]
			if (w.Answer == wayAllows) != allowed && w.Answer != wayAsks || w.Host != "h" || w.Interfaces[0] != "up0" || !allowed && !strings.Contains(strings.Join(w.By, ";"), tt.by) {
				t.Errorf("%s, %d: %+v", tt.stage, port, w)
			}
		}
	}
	h.d.Merge(intent.Batch{Host: &intent.HostSettings{}})
	apply(t, h.d)
	if w := explain(81)["host-in receives"]; len(w.ByChains) != 1 || !strings.HasPrefix(w.ByChains[0], "pol-in-prod.p") {
		t.Errorf("by chains: %+v", w)
	}
	h.d.Merge(intent.Batch{Endpoints: with("no such policy").Endpoints})
	apply(t, h.d)
	if w := explain(81)["host-in receives"]; len(w.ByChains) > 0 || w.Program != "" || len(w.By) == 0 {
		t.Errorf("closed: %+v", w)
	}
}
