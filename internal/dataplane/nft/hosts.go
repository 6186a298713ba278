package nft

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// hostStage is a base chain of host endpoints. It is there only while some host endpoint needs it.
type hostStage struct {
	name     string
	stage    rules.Stage
	dir      intent.Direction
	hook     nftables.HookNum
	priority int32
}

// hostStages are in the order of a packet's way. The input stage comes after those of workloads. What a process of the
// host sends is judged in postrouting: before it, the interface that a translated packet leaves by is not known.
var hostStages = []hostStage{
	{"host-untracked-in", rules.Untracked, intent.Ingress, nftables.HookPrerouting, -300},
	{"host-untracked-out", rules.Untracked, intent.Egress, nftables.HookOutput, -300},
	{"host-pre-dnat", rules.PreDNAT, intent.Ingress, nftables.HookPrerouting, -150},
	{"host-forward-in", rules.HostForward, intent.Ingress, nftables.HookForward, -3},
	{"host-forward-out", rules.HostForward, intent.Egress, nftables.HookForward, 0},
	{"host-in", rules.HostNormal, intent.Ingress, nftables.HookInput, 2},
	{"host-out", rules.HostNormal, intent.Egress, nftables.HookPostrouting, -150},
}

// everyLink is the interface of the host endpoint for all of a host's own.
const everyLink = "*"

// hostsKey owns the chains of host endpoints: until the source is in sync, those of an earlier agent stay.
var hostsKey = intent.Key{Kind: intent.KeyHost, ID: "host endpoints"}

// Links takes note of the addresses by which those host endpoints are found that name no interface.
func (d *Driver) Links(changes []ifmon.Change) {
	for _, c := range changes {
		var addrs []netip.Addr
		for _, p := range c.Addrs {
			addrs = append(addrs, p.Addr())
		}
		if slices.Equal(addrs, d.hosts.addrs[c.Name]) && !c.Gone {
			continue
		}
		if d.hosts.addrs[c.Name] = addrs; c.Gone {
			delete(d.hosts.addrs, c.Name)
		}
		d.hosts.dirty = true
	}
}

// hosts is what is known of host endpoints besides their intents.
type hosts struct {
	dirty   bool
	addrs   map[string][]netip.Addr         // of interfaces
	exclude []*regexp.Regexp                // interfaces that no endpoint has by an address
	links   map[string]intent.EndpointID    // which endpoint each is under, everyLink included
	chains  map[string]struct{}             // that were wanted
	early   map[intent.PolicyID]rules.Stage // policies that are asked before conntrack or DNAT
	mute    map[intent.PolicyID]bool        // policies that are asked in postrouting, which cannot reject
}

// refreshHosts makes all chains of host endpoints anew. There are few of them, and they change seldom.
func (d *Driver) refreshHosts() {
	d.hosts.dirty = false
	d.hosts.links = d.hostLinks()
	wanted := map[string]struct{}{}
	names := d.hostNames()
	for _, s := range hostStages {
		var ask []nftables.Rule
		for _, link := range d.linksInOrder() {
			e := d.endpoints[d.hosts.links[link]]
			if link == everyLink && s.stage == rules.Untracked {
				continue
			}
			c := rules.HostEndpoint(d.shutIfBroken(e), s.stage, s.dir)
			if s.hook == nftables.HookPostrouting {
				d.askSilently(c, e)
			}
			if len(c.Rules) == 0 {
				if link != everyLink { // it is under an endpoint of its own, which says nothing
					ask = append(ask, rule("", join(matchLink(s.dir, link), exprs{nftables.Accept()})...))
				}
				continue
			}
			if names[c.Name] != e.ID {
				ask = append(ask, d.closeHost(s, e, names[c.Name], link)...)
				continue
			}
			d.renderChain(c, hostsKey)
			wanted[c.Name] = struct{}{}
			ask = append(ask, rule(e.ID.Name, join(matchLink(s.dir, link), exprs{nftables.Goto(c.Name)})...))
		}
		if !slices.ContainsFunc(ask, func(r nftables.Rule) bool { return r.Comment != "" }) {
			continue // nobody is asked at this stage
		}
		rs := append(d.beforeHosts(s), ask...)
		policy := nftables.VerdictAccept
		if s.hook == nftables.HookForward {
			policy, rs = nftables.VerdictDrop, append(rs, rule("not a host endpoint's", nftables.Accept()))
		}
		d.setChain(nftables.Chain{Name: s.name, Base: &nftables.Hook{Type: nftables.TypeFilter, Hook: s.hook, Priority: s.priority, Policy: policy}}, rs, hostsKey)
		wanted[s.name] = struct{}{}
	}
	for name := range d.hosts.chains {
		if _, ok := wanted[name]; !ok {
			d.dropChain(name, hostsKey)
		}
	}
	d.hosts.chains = wanted
}

// hostNames says which host endpoint has the name of a chain: of two whose names collide, the first by its own name.
func (d *Driver) hostNames() map[string]intent.EndpointID {
	out := map[string]intent.EndpointID{}
	for id, e := range d.endpoints {
		if id.Kind != intent.Host {
			continue
		}
		if key := endpointKey(id); d.faults[key].err != nil { // a collision: nothing else is a host endpoint's fault
			delete(d.faults, key)
			d.touched[key] = struct{}{}
		}
		for _, s := range hostStages {
			name := rules.HostChain(id, s.stage, s.dir)
			if other, taken := out[name]; !taken || e.ID.Name < other.Name {
				out[name] = id
			}
		}
	}
	return out
}

// closeHost stands for the chain of a host endpoint whose name is another's.
func (d *Driver) closeHost(s hostStage, e *endpoint, other intent.EndpointID, link string) []nftables.Rule {
	d.fail(endpointKey(e.ID), collision(rules.HostChain(e.ID, s.stage, s.dir), endpointKey(other)))
	if s.stage >= rules.PreDNAT { // as one that is closed: later stages drop
		return nil
	}
	return []nftables.Rule{rule(e.ID.Name, join(matchLink(s.dir, link), d.drop(intent.ReasonClosed))...)}
}

// askSilently leads a chain that is called from postrouting to the silent chains of policies that reject: the kernel refuses
// the whole transaction if a chain that rejects can be reached from there.
func (d *Driver) askSilently(c rules.Chain, e *endpoint) {
	for _, id := range e.policies {
		if p := d.policies[id]; p == nil || !rules.Rejects(d.within(p.Policy), intent.Egress) {
			continue
		}
		loud, silent := rules.PolicyChain(id, intent.Egress), rules.SilentChain(id, intent.Egress)
		for i := range c.Rules {
			if c.Rules[i].Target == loud {
				c.Rules[i].Target = silent
			}
		}
	}
}

// linksInOrder puts the one for all others last.
func (d *Driver) linksInOrder() []string {
	var out []string
	for l := range d.hosts.links {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b string) int {
		if (a == everyLink) != (b == everyLink) {
			return map[bool]int{true: 1, false: -1}[a == everyLink]
		}
		return strings.Compare(a, b)
	})
	return out
}

// hostLinks finds the host endpoint of each interface: one that names it before one that has an address of it; of
// several, an open one, then the smallest name.
func (d *Driver) hostLinks() map[string]intent.EndpointID {
	out := map[string]intent.EndpointID{}
	named := map[string]bool{}
	put := func(link string, e *endpoint, byName bool) {
		old, taken := out[link]
		if !taken || byName && !named[link] || byName == named[link] && better(e, d.endpoints[old]) {
			out[link], named[link] = e.ID, byName
		}
	}
	for _, e := range d.endpoints {
		switch {
		case e.ID.Kind != intent.Host || len(e.Link) > maxLink:
		case e.Link != "":
			put(e.Link, e, true)
		default:
			for link, addrs := range d.hosts.addrs {
				if !excluded(d.hosts.exclude, link) && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return slices.Contains(e.Addrs, a) }) {
					put(link, e, false)
				}
			}
		}
	}
	return out
}

// exclusions makes of the words of settings what names of interfaces are held against. Who made the settings has refused
// what is no regular expression.
func exclusions(words []string) (out []*regexp.Regexp) {
	for _, w := range words {
		pattern := "^" + regexp.QuoteMeta(w) + "$"
		if inner, ok := strings.CutPrefix(w, "/"); ok {
			pattern = strings.TrimSuffix(inner, "/")
		}
		if re, err := regexp.Compile(pattern); err == nil {
			out = append(out, re)
		}
	}
	return out
}

func excluded(by []*regexp.Regexp, link string) bool {
	return slices.ContainsFunc(by, func(re *regexp.Regexp) bool { return re.MatchString(link) })
}

func better(a, b *endpoint) bool {
	if (a.Closed == "") != (b.Closed == "") {
		return a.Closed == ""
	}
	return a.ID.Name < b.ID.Name
}

// shutIfBroken closes an endpoint whose policies cannot all be asked.
func (d *Driver) shutIfBroken(e *endpoint) intent.Endpoint {
	out := e.Endpoint
	if err := d.needs(e); err != nil && out.Closed == "" {
		out.Closed = err.Error()
	}
	return out
}

// matchLink matches an interface in the direction of an endpoint; the one for all others matches whatever is left.
func matchLink(dir intent.Direction, link string) exprs {
	switch {
	case link == everyLink:
		return nil
	case dir == intent.Ingress:
		return nftables.MatchIIFName(link)
	}
	return nftables.MatchOIFName(link)
}

// beforeHosts is what passes a stage of host endpoints without being asked.
func (d *Driver) beforeHosts(s hostStage) []nftables.Rule {
	pass := func(comment string, match exprs) nftables.Rule {
		return rule(comment, join(match, exprs{nftables.Accept()})...)
	}
	var rs []nftables.Rule
	local := s.dir == intent.Egress && s.stage == rules.HostNormal
	if local {
		// Established flows first: they need no look at the routes.
		rs = append(rs, pass("", nftables.MatchCTState(nftables.StateEstablished|nftables.StateRelated)), pass("forwarded", forwarded()))
	}
	rs = append(rs, pass("", matchLink(s.dir, "lo")),
		pass("neighbour discovery, multicast listeners", join(nftables.MatchNFProto(nftables.FamilyIPv6), icmpv6Types(130, 136))))
	if s.stage != rules.HostNormal || local {
		for _, p := range d.cfg.Prefixes {
			rs = append(rs, pass("workload", matchLink(s.dir, p+everyLink)))
		}
		key := nftables.MetaIIFName
		if s.dir == intent.Egress {
			key = nftables.MetaOIFName
		}
		for _, links := range []string{setLinks, setClosed} { // those of any other name that the node attached itself
			rs = append(rs, pass("workload", exprs{nftables.Meta{Key: key}, nftables.Lookup{Set: links}}))
		}
	}
	if s.stage == rules.Untracked {
		return append(append(rs, d.failsafes(s.dir, false)...), d.failsafes(1-s.dir, true)...)
	}
	switch {
	case local:
		rs = append(rs, pass("untracked", nftables.MatchMark(kernel.MarkUntracked, kernel.MarkUntracked)))
	case s.dir == intent.Ingress && s.stage != rules.PreDNAT:
		rs = append(rs, pass("allowed early", nftables.MatchMark(kernel.MarkHostPassed, kernel.MarkHostPassed)))
	}
	if !local {
		rs = append(rs, pass("", nftables.MatchCTState(nftables.StateEstablished|nftables.StateRelated)))
	}
	if s.stage == rules.HostNormal && !local {
		rs = append(rs, rule("", nftables.Meta{Key: nftables.MetaIIFName}, nftables.Lookup{Set: setLinks}, nftables.Jump(chainServices)))
		if d.host.EndpointToHost != intent.ToHostReturn { // the setting has decided
			rs = append(rs, pass("workload", exprs{nftables.Meta{Key: nftables.MetaIIFName}, nftables.Lookup{Set: setLinks}}))
		}
	}
	if s.stage != rules.HostForward {
		rs = append(rs, d.failsafes(s.dir, false)...)
	}
	return rs
}

// forwarded matches in postrouting what came in by an interface, and not from the host. A packet that a tunnel device made of one
// that was forwarded has an incoming interface, too, since ip_output takes that from skb->dev, which is the tunnel's; but its
// source is an address of the host. This is before source NAT, so what is forwarded has none.
func forwarded() exprs {
	const local = 2 // RTN_LOCAL of rtnetlink(7)
	return exprs{
		nftables.Meta{Key: nftables.MetaIIFName},
		nftables.Cmp{Op: nftables.Neq, Data: make([]byte, 16)},
		nftables.Fib{Flags: nftables.FibSaddr, Result: nftables.FibResultAddrType},
		nftables.Cmp{Op: nftables.Neq, Data: nftables.U32(local)},
	}
}

// failsafes are ports that no policy closes. Where nothing is tracked replies are seen too: then the ports are turned
// round. The other end is the source of what comes in, and the destination of what goes out.
func (d *Driver) failsafes(dir intent.Direction, reply bool) []nftables.Rule {
	list := d.host.FailsafeIn
	if dir == intent.Egress {
		list = d.host.FailsafeOut
	}
	other, at := nftables.MatchSrc, nftables.DstPort()
	if (dir == intent.Egress) != reply {
		other = nftables.MatchDst
	}
	if reply {
		at = nftables.SrcPort()
	}
	var rs []nftables.Rule
	for _, f := range list {
		match := nftables.MatchL4Proto(f.Protocol)
		if f.Net.IsValid() {
			match = append(other(f.Net.Masked(), false), match...)
		}
		rs = append(rs, rule("failsafe", join(match, nftables.MatchPorts(at, [][2]uint16{{f.Port, f.Port}}, false), count(nftables.Accept()))...))
	}
	return rs
}

// noteStages says at which early stage policies are asked, so that what they allow is known later on, and which are asked
// where nothing can be rejected.
func (d *Driver) noteStages() {
	early, mute := map[intent.PolicyID]rules.Stage{}, map[intent.PolicyID]bool{}
	for _, e := range d.endpoints {
		if e.ID.Kind != intent.Host {
			continue
		}
		for _, s := range []rules.Stage{rules.PreDNAT, rules.Untracked} {
			for _, t := range s.Tiers(e.Endpoint) {
				for _, id := range slices.Concat(t.Ingress, t.Egress) {
					early[id] = s
				}
			}
		}
		for _, id := range egressOf(e.Normal, e.Profiles) {
			mute[id] = true
		}
	}
	for id := range d.policies {
		if early[id] != d.hosts.early[id] || mute[id] != d.hosts.mute[id] {
			d.dirtyPolicies[id] = struct{}{}
		}
	}
	d.hosts.early, d.hosts.mute = early, mute
}

func egressOf(tiers []intent.Tier, profiles []intent.PolicyID) []intent.PolicyID {
	out := slices.Clone(profiles)
	for _, t := range tiers {
		out = append(out, t.Egress...)
	}
	return out
}

// earlyActions are those of a policy that is asked early. Before conntrack nothing is answered: the answer would be of no
// connection, and policy of the other direction would decide about it.
func earlyActions(c rules.Chain, s rules.Stage) rules.Chain {
	if s == rules.Untracked {
		c = rules.Mute(c)
	}
	for i := range c.Rules {
		switch {
		case c.Rules[i].Action != rules.Allow:
		case s == rules.Untracked:
			c.Rules[i].Action = rules.AllowUntracked
		case s == rules.PreDNAT:
			c.Rules[i].Action = rules.AllowEarly
		}
	}
	return c
}
