package calc

import (
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/policy"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/intent"
)

func profileID(name string) intent.PolicyID { return policy.ProfileID(name) }

// profileChanged follows a profile's rules and labels; without labels or when it is gone, labels is nil.
func (g *Graph) profileChanged(name string, labels map[string]string) {
	g.dirtyPolicies[profileID(name)] = true
	g.sources.SetParent(name, labels)
	g.locals.SetParent(name, labels)
}

// OnProfile has f called by Update with each profile that was put or removed, and the labels that it gives to its endpoints, which f must not keep. It is
// set before the first Update.
func (g *Graph) OnProfile(f func(profile string, labels map[string]string, there bool)) {
	g.inherits = f
}

func (g *Graph) inherit(profile string, labels map[string]string, there bool) {
	if g.inherits != nil {
		g.inherits(profile, labels, there)
	}
}

func (g *Graph) putPolicy(key string, s api.Stored) {
	p := policy.Of(s)
	if p == nil {
		ref, _ := api.ParseKey(key)
		g.removePolicy(intent.PolicyID{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
		return
	}
	p.Replaced = g.isReplaced(p)
	defer g.replaced(policy.Counterpart(p.ID))
	old := g.policies[p.ID]
	g.dirtyPolicies[p.ID] = true
	switch {
	case old == nil:
		g.addPolicy(p)
	case !old.SameEndpoints(p):
		g.removePolicy(p.ID)
		g.addPolicy(p)
	case !old.SamePlace(p):
		g.order.Remove(old.Policy)
		g.order.Add(p)
		old.Policy = p
		g.reordered(old)
	default: // only rules have changed: no endpoint has
		g.order.Replace(old.Policy, p)
		old.Policy = p
	}
	g.assume(g.policies[p.ID], p.Everywhere)
}

// assume counts a policy as used, or not any more, whether an endpoint of this node has it or not: then its sets are there
// before the first endpoint needs them.
func (g *Graph) assume(a *active, used bool) {
	if a.assumed == used {
		return
	}
	a.assumed = used
	g.count([]intent.PolicyID{a.ID}, map[bool]int{true: 1, false: -1}[used])
}

func (g *Graph) addPolicy(p *policy.Policy) {
	g.order.Add(p)
	a := &active{Policy: p, id: g.locals.Add(p.Selector)}
	g.policies[p.ID], g.applied[a.id] = a, a
}

func (g *Graph) removePolicy(id intent.PolicyID) {
	a := g.policies[id]
	if a == nil {
		return
	}
	g.dirtyPolicies[id] = true
	g.assume(a, false)
	g.order.Remove(a.Policy)
	g.locals.Drop(a.id)
	delete(g.policies, id)
	defer g.replaced(policy.Counterpart(id))
	delete(g.applied, a.id)
	clear(g.stacks) // the ID may be given to another
}

// isReplaced reports whether a staged policy would replace an enforced one.
func (g *Graph) isReplaced(p *policy.Policy) bool {
	return slices.ContainsFunc(policy.StagedFor(p.ID), func(id intent.PolicyID) bool { a := g.policies[id]; return a != nil && a.Replaces(p) })
}

// replaced notes whether a staged policy would replace the enforced one of that name, if there is one.
func (g *Graph) replaced(id intent.PolicyID) {
	a := g.policies[id]
	if a == nil {
		return
	}
	if is := g.isReplaced(a.Policy); is != a.Replaced {
		a.Replaced = is
		g.reordered(a)
	}
}

// reordered marks the endpoints to which a policy applies.
func (g *Graph) reordered(a *active) {
	clear(g.stacks)
	g.locals.Selected(a.id, func(l localItem) { g.dirtyLocals[l.Value.key] = true })
}

// setTier marks all endpoints that have a policy of that tier.
func (g *Graph) setTier(name string, r *api.Tier) {
	if !g.order.SetTier(name, r) {
		return
	}
	clear(g.stacks)
	for key, x := range g.sent.groups {
		lists := x.Lists()
		all := lists[:]
		if x.Staged != nil {
			staged := x.Staged.Lists()
			all = append(all, staged[:]...)
		}
		for _, tiers := range all {
			if slices.ContainsFunc(tiers, func(t intent.Tier) bool { return t.Name == name }) {
				g.dirtyLocals[key] = true
			}
		}
	}
}

// configure takes over changed settings. The order of their sources is config's.
func (g *Graph) configure() {
	was := g.config.Settings
	g.config = g.resolver.Resolve()
	g.dirtyHost = true
	now := g.config.Settings
	g.floats.all = g.floats.all || was.FloatingIPs != now.FloatingIPs
	g.reach.TurnOff(intent.VXLAN, !now.VXLAN.Enabled)
	g.reach.TurnOff(intent.IPIP, !now.IPIP.Enabled)
	g.reach.SetDirect(now.Routes.Direct())
	g.reach.SetExternal(now.ExternalNodes)
	g.reach.TurnOff(intent.WireGuard, !now.WireGuard.Enabled[0])
	g.reach.TurnOff(intent.WireGuard6, !now.WireGuard.Enabled[1])
	g.reach.AllowClear(now.WireGuard.Clear)
	if was.AllowSourceSpoofing != now.AllowSourceSpoofing || !slices.Equal(was.InterfacePrefixes, now.InterfacePrefixes) {
		for key := range g.sent.endpoints {
			g.dirtyLocals[key] = true
		}
	}
}

var toHost = map[string]intent.ToHost{"Drop": intent.ToHostDrop, "Return": intent.ToHostReturn, "Accept": intent.ToHostAccept}

var serviceLoops = map[string]intent.ServiceLoops{"Drop": intent.LoopsDrop, "Reject": intent.LoopsReject, "Disabled": intent.LoopsPass}

// host computes the settings of this node, from the configuration, the pools, all nodes' addresses, the prefixes of services, and whether a staged
// policy is in use. A change of one of these must set dirtyHost.
func (g *Graph) host() intent.HostSettings {
	s := g.config.Settings
	hosts := g.hostsEncrypted()
	return intent.HostSettings{
		EndpointToHost: toHost[s.EndpointToHost], Prefixes: slices.Sorted(slices.Values(s.InterfacePrefixes)), Exclude: s.InterfaceExclude, NoForwarding: s.Forwarding == "Disabled", NoIPv6: !s.IPv6,
		AllowVXLAN: s.AllowVXLAN, AllowIPIP: s.AllowIPIP, AllowInvalid: s.SkipInvalidCheck, KeepDenied: !s.RevokeFlows, OwnTable: s.OwnTable, Compiled: s.PolicyRendering == "Compiled",
		ReportAllowed: s.ReportFlows == "Enabled" || s.EvaluateStaged == "Continuous" && g.sent.staged > 0,
		FailsafeIn:    failsafes(s.FailsafeIn), FailsafeOut: failsafes(s.FailsafeOut),
		Log:         intent.LogSettings(s.Log),
		Refresh:     intent.Refresh{Policy: shorter(policyRefresh(s), s.SetsRefresh), Routes: s.RouteRefresh, Interfaces: s.InterfaceRefresh},
		LocalSubnet: g.localSubnet(),
		Services:    g.advertised(), ServiceLoops: serviceLoops[s.ServiceLoops],
		NAT: g.natOutgoing(), Metadata: s.Target(), DNS: s.OpenStack(), Inside: g.inside(),
		Tunnels: g.reach.Tunnels(),
		VXLAN:   intent.VXLANSettings{VNI: s.VXLAN.VNI, Port: uint16(s.VXLAN.Port)},
		Routes:  intent.RouteSettings{Off: s.Routes.Off, KeepExternal: !s.Routes.RemoveExternal, Source: s.Routes.Source, Metric: s.Routes.Metric, Elevated: s.Routes.Elevated, Settle: s.Routes.Settle, Protocol: routeProtocol(s.Routes.Protocol)},
		IPTables: intent.IPTablesSettings{
			Append: s.IPTables.InsertMode == "Append", FilterReturn: s.IPTables.FilterAllow == "Return", MangleReturn: s.IPTables.MangleAllow == "Return", Reject: s.IPTables.FilterDeny == "Reject",
		},
		MarkMask:  markMask(s),
		Checksums: map[string]intent.Checksums{"true": intent.ChecksumsByKernel, "false": intent.ChecksumsByDevice}[s.ChecksumsBroken],
		WireGuard: intent.WireGuardSettings{
			On: s.WireGuard.Enabled, Link: s.WireGuard.Link, Port: [2]uint16{uint16(s.WireGuard.Port[0]), uint16(s.WireGuard.Port[1])}, Priority: s.WireGuard.Priority,
			KeepAlive: s.WireGuard.KeepAlive.Truncate(time.Second), Userspace: s.WireGuard.Userspace, Threads: s.WireGuard.Threads,
			Hosts: hosts, InClear: inClear(s, hosts), Tables: tables(s.Routes.Tables),
		},
		MTU: intent.MTUSettings{
			Links: s.MTULinks, Own: g.reach.Own(), Wanted: g.reach.Wanted(),
			Tunnels: [intent.TunnelKinds]int{
				intent.VXLAN: s.VXLAN.MTU[0], intent.VXLAN6: s.VXLAN.MTU[1], intent.IPIP: s.IPIP.MTU, intent.WireGuard: s.WireGuard.MTU[0], intent.WireGuard6: s.WireGuard.MTU[1],
			},
		},
	}
}

// markMask is the mask of where settings want policy.
func markMask(s config.Settings) uint32 {
	if s.Nftables == "Disabled" {
		return s.MarkMask.Iptables
	}
	return s.MarkMask.Nftables
}

// policyRefresh is how often that is read back in which settings want policy.
func policyRefresh(s config.Settings) time.Duration {
	if s.Nftables == "Disabled" {
		return s.IPTables.Refresh
	}
	return s.PolicyRefresh
}

// routeProtocol is that of routes to workloads; zero: the agent's own.
func routeProtocol(n int) int {
	if n == api.RouteProtocol {
		return 0
	}
	return n
}

// shorter is the shorter of two intervals, of which zero is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func failsafes(in []config.Failsafe) []intent.Failsafe {
	var out []intent.Failsafe
	for _, f := range in {
		out = append(out, intent.Failsafe(f))
	}
	return out
}

// Settings returns those in effect, as of the last Update.
func (g *Graph) Settings() config.Effective { return g.config }

// Readiness is what the datastore says of itself.
func (g *Graph) Readiness() api.Readiness { return g.ready }

// Lost notes that the datastore once had something, though it was blank from the start.
func (g *Graph) Lost() { g.ready = api.Gone }
