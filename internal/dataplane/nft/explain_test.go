package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/intent"
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
