package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/kernel"
)

// Leftovers are what an upstream agent (Calico's Felix, and its BIRD) left in the kernel.
type Leftovers struct {
	Chains []Chain  // of iptables, of both backends
	Tables []Table  // its own, of nftables
	Sets   []string // IP sets
	Routes []Route  // of main; what it left to our own workloads, the agent has taken over
	Links  []string // its tunnels
}

// upstreamChains begin the names of its chains: of today, of early releases of version 2, and of version 1.
var upstreamChains = []string{"cali-", "califw-", "calitw-", "califh-", "calith-", "calipi-", "calipo-", "felix-"}

// upstreamSets begin the names of its IP sets: a prefix, then the family.
var upstreamSets = []string{"cali4", "cali6", "felix-"}

// upstreamTable is the name of its tables of nftables, one for each family.
const upstreamTable = "calico"

// upstreamLinks are its devices. Tunl0 is the kernel's, and stays when it goes.
var upstreamLinks = []string{"vxlan.calico", "vxlan-v6.calico", "wireguard.cali", "wg-v6.cali", "bpfin.cali", "bpfout.cali"}

const tunl0 = "tunl0"

// upstreamAgents are names of its processes.
var upstreamAgents = []string{"calico-felix", "calico-node"}

// UpstreamAgents are the names of processes of upstream's agent.
func UpstreamAgents() []string { return slices.Clone(upstreamAgents) }

func begins(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// UpstreamAgent is the name of one that runs here; empty: there is none.
func (f *Facts) UpstreamAgent() string {
	for _, p := range f.Processes {
		if slices.Contains(upstreamAgents, p.Name) {
			return p.Name
		}
	}
	return ""
}

// Leftovers finds them. While the upstream agent runs they are none.
func (f *Facts) Leftovers() (out Leftovers) {
	for _, c := range f.Chains {
		if begins(c.Name, upstreamChains) && c.Table != kernel.TableName && c.Table != upstreamTable {
			out.Chains = append(out.Chains, c)
		}
	}
	for _, t := range f.Tables {
		if t.Name == upstreamTable {
			out.Tables = append(out.Tables, t)
		}
	}
	for _, s := range f.Sets {
		if begins(s, upstreamSets) {
			out.Sets = append(out.Sets, s)
		}
	}
	for _, l := range f.Links {
		if slices.Contains(upstreamLinks, l.Name) && !l.Ours || l.Name == tunl0 && !l.Ours && (l.Up || len(l.Addrs) > 0) { // the kernel makes it, down and bare, with the module
			out.Links = append(out.Links, l.Name)
		}
	}
	for _, r := range f.Routes {
		if f.upstreams(r, out.Links) {
			out.Routes = append(out.Routes, r)
		}
	}
	return out
}

// Guard reports whether rules are among them that decide about what workloads send and get.
func (l Leftovers) Guard() bool {
	return len(l.Tables) > 0 || slices.ContainsFunc(l.Chains, func(c Chain) bool { return c.Table == "filter" && strings.HasSuffix(c.Name, "FORWARD") })
}

// upstreams reports whether a route is one that an upstream agent or its BIRD made.
func (f *Facts) upstreams(r Route, links []string) bool {
	switch {
	case r.Protocol == protocolKernel || f.ours(r):
		return false
	case slices.Contains(links, r.Link):
		return true
	case r.Protocol == kernel.RouteProtocolAgent: // to other nodes; our agent makes none of it with a gateway
		return true
	case r.Protocol == protocolBoot:
		return r.Dst.IsSingleIP() && !r.Gateway.IsValid() && f.workload(r.Link)
	case r.Protocol == protocolBIRD:
		return !f.BGP.byBIRD() && !f.runs("bird") && !f.runs("bird6") && f.pool(r.Dst) >= 0
	}
	return false
}

const protocolBoot = 3

func (f *Facts) workload(link string) bool {
	return slices.ContainsFunc(f.Links, func(l Link) bool { return l.Name == link && l.Workload })
}

// pool is the index of that which a prefix is part of; -1: of none.
func (f *Facts) pool(p netip.Prefix) int {
	return slices.IndexFunc(f.Pools, func(pool netip.Prefix) bool { return pool.Bits() <= p.Bits() && pool.Contains(p.Addr()) })
}

// Needed reports whether a leftover route is all that leads to its destination, so that packets would be lost without it.
func (f *Facts) Needed(r Route) bool {
	if r.Blackhole || f.workload(r.Link) { // no endpoint there; our own endpoints have our routes
		return false
	}
	return !slices.ContainsFunc(f.Routes, func(o Route) bool {
		return f.ours(o) && !o.Blackhole && o.Protocol != kernel.RouteProtocolAgent && o.Dst.Bits() <= r.Dst.Bits() && o.Dst.Contains(r.Dst.Addr())
	})
}

// Lines say what there is, one line for each kind.
func (l Leftovers) Lines() []string {
	out := l.chains()
	for _, t := range l.Tables {
		out = append(out, fmt.Sprintf("table %s %s", t.Family, t.Name))
	}
	if len(l.Sets) > 0 {
		out = append(out, fmt.Sprintf("%s: %s", Counted(len(l.Sets), "ipset"), list(l.Sets, 3)))
	}
	if len(l.Routes) > 0 {
		var routes []string
		for _, r := range l.Routes {
			routes = append(routes, r.String())
		}
		out = append(out, fmt.Sprintf("%s: %s", Counted(len(routes), "route"), list(routes, 3)))
	}
	if len(l.Links) > 0 {
		out = append(out, "devices "+list(l.Links, 6))
	}
	return out
}

// Counted is a number of things whose plural has an s.
func Counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// chains has a line for each backend and family.
func (l Leftovers) chains() (out []string) {
	chains, tables := map[string]int{}, map[string]map[string]bool{}
	for _, c := range l.Chains {
		backend := "iptables-nft"
		if c.Legacy {
			backend = "iptables-legacy"
		}
		where := backend + ", " + c.Family
		if tables[where] == nil {
			tables[where] = map[string]bool{}
		}
		chains[where]++
		tables[where][c.Table] = true
	}
	for _, where := range slices.Sorted(maps.Keys(chains)) {
		out = append(out, fmt.Sprintf("%s of %s (%s)", Counted(chains[where], "chain"), where, strings.Join(slices.Sorted(maps.Keys(tables[where])), ", ")))
	}
	return out
}

// Obstacles say why leftovers must not be removed now; none: they may.
func (f *Facts) Obstacles() (out []string) {
	for _, p := range f.Processes {
		if slices.Contains(upstreamAgents, p.Name) {
			out = append(out, fmt.Sprintf("%s runs here (pid %d): what it made is no leftover; stop it, and keep it from starting again", p.Name, p.PID))
		}
	}
	for _, l := range f.Health {
		if !l.Ours && l.PID == 0 {
			out = append(out, fmt.Sprintf("somebody whose process cannot be seen from here listens on %s, as an upstream agent does: stop it, or run this where processes of the host can be seen", l.At))
		}
	}
	switch {
	case f.Agent.Err != "":
		out = append(out, "nothing else guards workloads: "+f.Agent.Err)
	case len(f.Agent.NotReady) > 0:
		out = append(out, "nothing else guards workloads: the agent is not ready: "+strings.Join(f.Agent.NotReady, "; "))
	}
	return out
}

func leftovers(f *Facts) (out []Finding) {
	left := f.Leftovers()
	left.Routes = slices.DeleteFunc(left.Routes, func(r Route) bool { return !r.Blackhole && f.pool(r.Dst) >= 0 }) // the check of routes names them
	for _, line := range left.Lines() {
		out = append(out, Finding{Verdict: Warn, Found: line, Fix: FixLeftovers})
	}
	switch {
	case f.UpstreamAgent() != "":
		return one(OK, "", "not known: the upstream agent runs, see the check of writers")
	case len(out) == 0:
		return one(OK, "", "nothing")
	}
	return out
}

// FixLeftovers removes them.
const FixLeftovers = "twill doctor --fix leftovers"
