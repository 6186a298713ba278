package calc

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// TestIntentsAreWhatTheResourcesSay compares with calctest.Expect, which shares no index, order or set with this package.
func TestIntentsAreWhatTheResourcesSay(t *testing.T) {
	seed := seedtest.New(t)
	for i := range 25 {
		rng := rand.New(rand.NewPCG(seed, uint64(2000+i)))
		w := calctest.Random(rng, calctest.Config{Blocks: 6, Pools: 3})
		g, good := New("h1"), calctest.LastGood{}
		take := func(us []api.Update) {
			good.Keep(us)
			g.Update(us)
			g.Flush()
		}
		take(w.State())
		for step := range 12 {
			proxied := w.Proxied(rng)
			g.Proxied(idsOf(proxied))
			g.Flush()
			got, want := linesOf(g.Intents()), calctest.Expect("h1", good.State(), proxied...)
			if !slices.Equal(got, want) {
				t.Fatalf("world %d step %d:\n%s", i, step, differences(got, want))
			}
			for range 1 + rng.IntN(5) {
				take([][]api.Update{w.Step(), w.Move(), w.Undo()}[rng.IntN(3)])
			}
		}
	}
}

// idsOf are workloads by their names.
func idsOf(names []string) map[intent.EndpointID]bool {
	out := map[intent.EndpointID]bool{}
	for _, name := range names {
		parts := strings.Split(name, "/")
		out[intent.EndpointID{Namespace: parts[1], Name: parts[2]}] = true
	}
	return out
}

func differences(got, want []string) string {
	var out strings.Builder
	for _, l := range got {
		if !slices.Contains(want, l) {
			fmt.Fprintln(&out, " got", l)
		}
	}
	for _, l := range want {
		if !slices.Contains(got, l) {
			fmt.Fprintln(&out, "want", l)
		}
	}
	return out.String()
}

// linesOf are intents in the form of calctest.Expect.
func linesOf(s State) []string {
	var out []string
	for _, r := range s.Routes {
		moves := map[intent.Move]string{intent.Comes: " comes", intent.Goes: " goes"}
		to := "dev " + r.Link + " mac " + r.MAC + moves[r.Move]
		for _, c := range r.Claims {
			to += fmt.Sprintf(" | %s shared %v: dev %s mac %s%s", c.Endpoint, c.Shared, c.Link, c.MAC, moves[c.Move])
		}
		switch {
		case r.Kind == intent.RouteBlackhole:
			to = "blackhole"
		case r.Kind == intent.RouteDirect:
			to = "direct " + r.Via.String()
		case r.Kind == intent.RouteTunnel && r.Via.IsValid():
			to = "tunnel " + r.Via.String()
		case r.Kind == intent.RouteTunnel:
			to = "unreachable"
		case r.Kind == intent.RouteEncrypted:
			to = "encrypted to " + r.Node
		}
		out = append(out, fmt.Sprintf("route %s %s", r.Dst, to))
	}
	for _, p := range s.Peers {
		out = append(out, fmt.Sprintf("peer %s %d %s %s %s", p.Node, p.Kind, p.Host, p.Addr, p.MAC+p.Key))
	}
	for f, own := range s.Host.Tunnels {
		text := fmt.Sprintf("tunnel %d none", f)
		if own != (intent.Tunnel{}) {
			text = fmt.Sprintf("tunnel %d %s %s %s", f, own.Host, own.Addr, own.MAC)
		}
		out = append(out, text)
	}
	for _, e := range s.Endpoints {
		out = append(out, endpointLines(e)...)
	}
	sets := map[intent.SetID][]string{}
	for _, set := range s.IPSets {
		sets[set.ID] = []string{}
		for _, m := range set.Members {
			text := m.Prefix.String()
			if set.Kind == intent.SetPorts {
				text = fmt.Sprintf("%s:%d:%d", m.Prefix, m.Proto, m.Port)
			}
			sets[set.ID] = append(sets[set.ID], text)
		}
		slices.Sort(sets[set.ID])
		if set.ID == intent.SetVXLANPeers || set.ID == intent.SetIPIPPeers || set.ID == intent.SetWireGuardPeers {
			out = append(out, string(set.ID)+" "+strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(sets[set.ID]), "/32", ""), "/128", ""))
		}
	}
	for _, p := range s.Policies {
		if !p.ID.Staged() {
			out = append(out, policyLines(p, sets)...)
		}
	}
	out = append(out, hostLines(s.Host)...)
	slices.Sort(out)
	return out
}

func hostLines(h intent.HostSettings) []string {
	failsafe := func(list []intent.Failsafe) string {
		var out []string
		for _, f := range list {
			text := fmt.Sprintf("%d:%d", f.Protocol, f.Port)
			if f.Net.IsValid() {
				text += "@" + f.Net.String()
			}
			out = append(out, text)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	texts := func(list []netip.Prefix) []string {
		out := []string{}
		for _, p := range list {
			out = append(out, p.String())
		}
		slices.Sort(out)
		return out
	}
	var own [2]string
	for f, a := range h.MTU.Own {
		if a.IsValid() {
			own[f] = a.String()
		}
	}
	metadata := "none"
	if h.Metadata.IsValid() {
		metadata = h.Metadata.String()
	}
	nat := "none"
	if n := h.NAT; len(n.From) > 0 {
		addr := ""
		if n.Addr.IsValid() {
			addr = n.Addr.String()
		}
		nat = fmt.Sprint(texts(n.From), texts(n.Pool), " as ", addr, " ", fmt.Sprintf("%d:%d", n.Ports.Min, n.Ports.Max))
	}
	hosts := "none"
	if w := h.WireGuard; w.Hosts != [2]bool{} {
		hosts = fmt.Sprint(w.Hosts, " but ", strings.Fields(failsafe(w.InClear)))
	}
	return []string{
		"endpoint to host " + map[intent.ToHost]string{intent.ToHostDrop: "Drop", intent.ToHostReturn: "Return", intent.ToHostAccept: "Accept"}[h.EndpointToHost],
		fmt.Sprint("vxlan ", h.AllowVXLAN), fmt.Sprint("ipip ", h.AllowIPIP), fmt.Sprint("tunnels ", h.VXLAN.VNI, h.VXLAN.Port, h.MTU.Tunnels[0], h.MTU.Tunnels[1], h.MTU.Tunnels[2]), fmt.Sprint("sizes by ", h.MTU.Links, " for ", h.MTU.Wanted[0], h.MTU.Wanted[1], h.MTU.Wanted[2], h.MTU.Wanted[3], h.MTU.Wanted[4], " of ", own), fmt.Sprint("prefixes ", h.Prefixes),
		"failsafe in " + failsafe(h.FailsafeIn), "failsafe out " + failsafe(h.FailsafeOut), "nat " + nat, "metadata " + metadata, fmt.Sprint("DNS ", h.DNS), fmt.Sprint("inside ", texts(h.Inside)),
		"hosts encrypted " + hosts,
		fmt.Sprint("local subnet ", texts(h.LocalSubnet.Pools), " ", texts(h.LocalSubnet.Except)),
		"services " + fmt.Sprint(map[intent.ServiceLoops]string{intent.LoopsDrop: "Drop", intent.LoopsReject: "Reject", intent.LoopsPass: "Disabled"}[h.ServiceLoops], " ", texts(h.Services.Cluster), " ", texts(h.Services.External), " ", texts(h.Services.Balancer)),
	}
}

func endpointLines(e intent.Endpoint) []string {
	out := []string{fmt.Sprintf("%s at %q closed %v", e.ID, e.Link, e.Closed != "")}
	if e.ID.Kind == intent.Host && e.Closed != "" {
		return out
	}
	for way, l := range map[string]intent.Limits{"receives": e.QoS.In, "sends": e.QoS.Out} {
		if l != (intent.Limits{}) {
			out = append(out, fmt.Sprintf("%s %s packets %d burst %d connections %d", e.ID, way, l.PacketRate, l.PacketBurst, l.Connections))
		}
	}
	if d := e.QoS.DSCP; d != 0 {
		out = append(out, fmt.Sprintf("%s DSCP %d", e.ID, d-1))
	}
	for dir, b := range e.QoS.Bandwidth {
		if b != (intent.Bandwidth{}) {
			out = append(out, fmt.Sprintf("%s %s bits %d burst %d peak %d at once %d", e.ID, intent.Direction(dir), b.Rate, b.Burst, b.Peak, b.PeakBurst))
		}
	}
	for _, n := range e.NATs {
		out = append(out, fmt.Sprintf("%s floating %s for %s", e.ID, n.External, n.Internal))
	}
	profiles := []string{}
	for _, p := range e.Policies().Profiles {
		profiles = append(profiles, p.Name)
	}
	out = append(out, fmt.Sprintf("%s profiles %q", e.ID, profiles))
	for _, s := range []struct {
		name  string
		tiers []intent.Tier
	}{{"untracked", e.Policies().Untracked}, {"pre-DNAT", e.Policies().PreDNAT}, {"normal", e.Policies().Normal}, {"forward", e.Policies().Forward}} {
		if e.ID.Kind == intent.Workload && s.name != "normal" {
			continue
		}
		in, eg := e.ID.String()+" "+s.name+" Ingress", e.ID.String()+" "+s.name+" Egress"
		for _, t := range s.tiers {
			for _, p := range t.Ingress {
				in += fmt.Sprintf(" %s(pass %v):%s", t.Name, t.Default == intent.Pass, p)
			}
			for _, p := range t.Egress {
				eg += fmt.Sprintf(" %s(pass %v):%s", t.Name, t.Default == intent.Pass, p)
			}
		}
		out = append(out, in, eg)
	}
	return out
}

func policyLines(p intent.Policy, sets map[intent.SetID][]string) []string {
	if p.Closed != "" {
		return []string{p.ID.String() + " closed"}
	}
	var out []string
	for d, rules := range map[string][]intent.Rule{"Ingress": p.Ingress, "Egress": p.Egress} {
		for i, r := range rules {
			out = append(out, fmt.Sprintf("%s %s %d %s", p.ID, d, i, ruleLine(r, sets)))
		}
	}
	return out
}

func ruleLine(r intent.Rule, sets map[intent.SetID][]string) string {
	text := r.Action.String()
	if r.Void {
		return text + " void"
	}
	for _, side := range []struct {
		name string
		p    intent.Peer
	}{{"source", r.Src}, {"destination", r.Dst}} {
		for _, l := range []struct {
			what string
			ids  []intent.SetID
		}{{"in", side.p.Sets}, {"not in", side.p.NotSets}, {"ports", side.p.PortSets}, {"not ports", side.p.NotPortSets}} {
			for _, id := range l.ids {
				what := l.what
				if strings.HasPrefix(string(id), "svc:") {
					what = "service"
				}
				text += fmt.Sprintf(" %s %s %v", side.name, what, sets[id])
			}
		}
	}
	return text
}
