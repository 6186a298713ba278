package api

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of times that messages of BGP can say.
const (
	MaxBGPRestart   = 4095 * time.Second  // RFC 4724: twelve bits
	MaxBGPKeepalive = 21845 * time.Second // a third of the hold time, which is 16 bits (RFC 4271, 4.2)
)

// Limits of BGP's own.
const (
	communityParts  = 2
	largeCommunity  = 3
	maxFilterOps    = 10
	nodeConfigBegin = "node."
)

func (v *validator) bgpConfiguration(r *BGPConfiguration) {
	s := &r.Spec
	if r.Metadata.Name != "default" {
		v.onlyDefault(s)
	}
	v.anyCase("spec.logSeverityScreen", s.LogSeverityScreen, "Trace", "Debug", "Info", "Warning", "Error", "Fatal")
	if s.ASNumber != nil && *s.ASNumber == 0 {
		v.fail("spec.asNumber", "is 0: want 1 to 4294967295")
	}
	for _, l := range []struct {
		path   string
		blocks []BGPServiceBlock
	}{{"spec.serviceLoadBalancerIPs", s.ServiceLoadBalancerIPs}, {"spec.serviceExternalIPs", s.ServiceExternalIPs}, {"spec.serviceClusterIPs", s.ServiceClusterIPs}} {
		for i, b := range l.blocks {
			v.masked(fmt.Sprintf("%s[%d].cidr", l.path, i), b.CIDR)
		}
	}
	v.optionally("spec.serviceLoadBalancerAggregation", s.ServiceLoadBalancerAggregation, "Enabled", "Disabled")
	v.optionally("spec.programClusterRoutes", s.ProgramClusterRoutes, Enabled, Disabled, EnabledNoEncapOnly, EnabledIPIPOnly)
	v.peeringAddress("spec.localWorkloadPeeringIPV4", s.LocalWorkloadPeeringIPv4, true)
	v.peeringAddress("spec.localWorkloadPeeringIPV6", s.LocalWorkloadPeeringIPv6, false)
	v.communities(s)
	v.bgpPassword("spec.nodeMeshPassword", s.NodeMeshPassword)
	v.bgpTime("spec.nodeMeshMaxRestartTime", s.NodeMeshMaxRestartTime, MaxBGPRestart)
	v.routePriority("spec.ipv4NormalRoutePriority", s.IPv4NormalRoutePriority)
	v.routePriority("spec.ipv6NormalRoutePriority", s.IPv6NormalRoutePriority)
	v.optionally("spec.bindMode", s.BindMode, "None", "NodeIP")
	for i, n := range s.IgnoredInterfaces {
		v.check(fmt.Sprintf("spec.ignoredInterfaces[%d]", i), badPattern(n))
	}
	v.unique("spec.ignoredInterfaces", s.IgnoredInterfaces)
}

// routePriority is the priority of a route.
func (v *validator) routePriority(path string, p *int32) {
	if p != nil && (*p < 1 || *p > MaxBGPRoutePriority) {
		v.fail(path, fmt.Sprintf("is %d: want 1 to %d; larger ones, which Calico takes, cannot be told from the LOCAL_PREF of other networks", *p, MaxBGPRoutePriority))
	}
}

// badPattern says what is wrong with a pattern of interfaces' names.
func badPattern(n string) string {
	if stem := strings.TrimSuffix(n, "*"); n == "" || stem != "" && badInterface(stem) != "" {
		return fmt.Sprintf("is %q: want the name of an interface, perhaps with * at the end", n)
	}
	return ""
}

// Values of programClusterRoutes, in addition to Enabled and Disabled.
const (
	EnabledIPIPOnly    = "EnabledIPIPOnly"
	EnabledNoEncapOnly = "EnabledNoEncapOnly"
)

// peeringAddress is an address that hosts have for their workloads.
func (v *validator) peeringAddress(path, s string, four bool) {
	if s == "" {
		return
	}
	switch a, reason := addrOf(s); {
	case reason != "":
		v.fail(path, reason)
	case a.Is4() != four:
		v.fail(path, s+" is of the other family")
	case !a.IsGlobalUnicast() && !a.IsLinkLocalUnicast():
		v.fail(path, s+" is an address that no workload can call")
	}
}

// onlyDefault refuses what one node cannot have otherwise than all.
func (v *validator) onlyDefault(s *BGPConfigurationSpec) {
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"spec.nodeToNodeMeshEnabled", s.NodeToNodeMeshEnabled != nil},
		{"spec.asNumber", s.ASNumber != nil},
		{"spec.nodeMeshPassword", s.NodeMeshPassword != nil},
		{"spec.nodeMeshMaxRestartTime", s.NodeMeshMaxRestartTime != ""},
		{"spec.programClusterRoutes", s.ProgramClusterRoutes != ""},
		{"spec.localWorkloadPeeringIPV4", s.LocalWorkloadPeeringIPv4 != ""},
		{"spec.localWorkloadPeeringIPV6", s.LocalWorkloadPeeringIPv6 != ""},
		{"spec.ipv4NormalRoutePriority", s.IPv4NormalRoutePriority != nil},
		{"spec.ipv6NormalRoutePriority", s.IPv6NormalRoutePriority != nil},
		{"spec.communities", len(s.Communities) > 0 && len(s.PrefixAdvertisements) == 0},
	} {
		if f.set {
			v.fail(f.path, `is possible in "default" only`)
		}
	}
}

func (v *validator) communities(s *BGPConfigurationSpec) {
	names := map[string]bool{}
	for i, c := range s.Communities {
		path := fmt.Sprintf("spec.communities[%d]", i)
		v.check(path+".name", badName(c.Name))
		v.check(path+".value", badCommunity(c.Value))
		if names[c.Name] {
			v.fail(path+".name", fmt.Sprintf("%q is there twice", c.Name))
		}
		names[c.Name] = true
	}
	for i, a := range s.PrefixAdvertisements {
		path := fmt.Sprintf("spec.prefixAdvertisements[%d]", i)
		v.masked(path+".cidr", a.CIDR)
		if len(a.Communities) == 0 {
			v.fail(path+".communities", "is missing: want names of spec.communities, or values")
		}
		for j, c := range a.Communities {
			if reason := badCommunity(c); !names[c] && reason != "" {
				v.fail(fmt.Sprintf("%s.communities[%d]", path, j), fmt.Sprintf("is %q, which spec.communities does not name; %s", c, reason))
			}
		}
	}
}

// badCommunity says what is wrong with a community's value.
func badCommunity(s string) string {
	parts := strings.Split(s, ":")
	bits := 16
	switch len(parts) {
	case communityParts:
	case largeCommunity:
		bits = 32
	default:
		return fmt.Sprintf("is %q: want aa:nn of 16 bits each, or aa:nn:mm of 32", s)
	}
	for _, p := range parts {
		if n, err := strconv.ParseUint(p, 10, bits); err != nil || strconv.FormatUint(n, 10) != p {
			return fmt.Sprintf("is %q: want aa:nn of 16 bits each, or aa:nn:mm of 32", s)
		}
	}
	return ""
}

// masked is a prefix without bits beyond its length.
func (v *validator) masked(path, s string) netip.Prefix {
	p, reason := prefixOf(s)
	switch {
	case s == "":
		v.fail(path, "is missing")
	case reason != "":
		v.fail(path, reason)
	case p != p.Masked():
		v.suggest(path, s+" has bits beyond its length", p.Masked().String())
	}
	return p
}

func (v *validator) bgpPassword(path string, p *BGPPassword) {
	if p == nil {
		return
	}
	if p.SecretKeyRef == nil {
		v.fail(path+".secretKeyRef", "is missing")
		return
	}
	v.check(path+".secretKeyRef.name", badName(p.SecretKeyRef.Name))
	if k := p.SecretKeyRef.Key; k == "" || !only(k, word) || k == "." || k == ".." {
		v.fail(path+".secretKeyRef.key", fmt.Sprintf("is %q: want letters, digits, dashes, dots and underscores", k))
	}
}

// bgpTime is a duration of whole seconds.
func (v *validator) bgpTime(path, s string, most time.Duration) {
	if s == "" {
		return
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d > most || d%time.Second != 0 {
		v.fail(path, fmt.Sprintf("is %q: want whole seconds, 1s to %s", s, most))
	}
}

func (v *validator) bgpPeer(s *BGPPeerSpec) {
	if s.Node != "" && s.NodeSelector != "" {
		v.fail("spec.nodeSelector", "and spec.node cannot both be set")
	}
	if s.Node != "" {
		v.check("spec.node", badName(s.Node))
	}
	v.selector("spec.nodeSelector", s.NodeSelector, false)
	v.selector("spec.peerSelector", s.PeerSelector, false)
	v.selector("spec.localWorkloadSelector", s.LocalWorkloadSelector, false)
	switch {
	case s.LocalWorkloadSelector != "" && (s.PeerIP != "" || s.PeerSelector != ""):
		v.fail("spec.localWorkloadSelector", "cannot be set beside spec.peerIP or spec.peerSelector: the peers are workloads then")
	case s.LocalWorkloadSelector != "" && s.ASNumber == 0:
		v.fail("spec.asNumber", "is missing: beside spec.localWorkloadSelector it is that of the workloads")
	case s.LocalWorkloadSelector != "":
	case s.PeerSelector != "" && (s.PeerIP != "" || s.ASNumber != 0):
		v.fail("spec.peerSelector", "cannot be set beside spec.peerIP or spec.asNumber: the nodes that it selects say both")
	case s.PeerSelector != "":
	case s.PeerIP == "":
		v.fail("spec.peerIP", "is missing, and so is spec.peerSelector: give one of them")
	default:
		if _, ok := PeerAddress(s.PeerIP); !ok {
			v.fail("spec.peerIP", fmt.Sprintf("is %q: want an address, perhaps with a port: 192.0.2.1:179 or [2001:db8::1]:179", s.PeerIP))
		}
	}
	v.reachableBy(s)
	if s.LocalASNumber != nil && *s.LocalASNumber == 0 {
		v.fail("spec.localASNumber", "is 0: want 1 to 4294967295")
	}
	v.optionally("spec.nextHopMode", s.NextHopMode, "Auto", "Self", "Keep")
	if s.KeepOriginalNextHop && s.NextHopMode != "" {
		v.fail("spec.keepOriginalNextHop", "and spec.nextHopMode cannot both be set: nextHopMode is the newer")
	}
	v.optionally("spec.sourceAddress", s.SourceAddress, "UseNodeIP", "None")
	v.optionally("spec.reversePeering", s.ReversePeering, "Auto", "Manual")
	v.bgpPassword("spec.password", s.Password)
	v.bgpTime("spec.maxRestartTime", s.MaxRestartTime, MaxBGPRestart)
	v.bgpTime("spec.keepaliveTime", s.KeepaliveTime, MaxBGPKeepalive)
	if n := s.NumAllowedLocalASNumbers; n != nil && (*n < 0 || *n > 255) {
		v.fail("spec.numAllowedLocalASNumbers", fmt.Sprintf("is %d: want 0 to 255", *n))
	}
	if s.TTLSecurity != nil && *s.TTLSecurity == 0 {
		v.fail("spec.ttlSecurity", "is 0: want the number of hops to the peer, 1 to 255")
	}
	for i, f := range s.Filters {
		v.check(fmt.Sprintf("spec.filters[%d]", i), badName(f))
	}
	v.unique("spec.filters", s.Filters)
}

// reachableBy is a gateway to one peer.
func (v *validator) reachableBy(s *BGPPeerSpec) {
	if s.ReachableBy == "" {
		return
	}
	gateway, reason := addrOf(s.ReachableBy)
	peer, ok := PeerAddress(s.PeerIP)
	switch {
	case reason != "":
		v.fail("spec.reachableBy", reason)
	case s.PeerIP == "":
		v.fail("spec.reachableBy", "is possible beside spec.peerIP only: it is the way to that peer")
	case ok && (peer.Addr().Is4() != gateway.Is4() || peer.Addr() == gateway):
		v.fail("spec.reachableBy", s.ReachableBy+" is no gateway to "+peer.Addr().String()+": want another address of its family")
	}
}

// PeerAddress reads the address of a peer; the port is 0 if there is none.
func PeerAddress(s string) (netip.AddrPort, bool) {
	if a, reason := addrOf(s); reason == "" {
		return netip.AddrPortFrom(a, 0), true
	}
	ap, err := netip.ParseAddrPort(s)
	return ap, err == nil && ap.Port() != 0 && ap.Addr().Zone() == ""
}

func (v *validator) bgpFilter(s *BGPFilterSpec) {
	for _, l := range bgpRules(s) {
		for i, r := range l.rules {
			v.bgpRule(fmt.Sprintf("%s[%d]", l.path, i), r, l)
		}
	}
}

func (v *validator) bgpRule(path string, r BGPFilterRule, of bgpRuleList) {
	four := of.four
	v.oneOf(path+".action", r.Action, "Accept", "Reject")
	v.optionally(path+".source", r.Source, "RemotePeers")
	v.optionally(path+".peerType", r.PeerType, "eBGP", "iBGP")
	switch name := strings.NewReplacer("*", "x", "?", "x").Replace(r.Interface); {
	case r.Interface == "":
	case !of.export:
		v.fail(path+".interface", "is possible in exportV4 and exportV6 only: through which interface a route leads is looked up after it was accepted")
	case r.Source != "":
		v.fail(path+".interface", "is not possible beside source: it is that of a route of the node's own, and no route from a peer has one")
	case badInterface(name) != "":
		v.fail(path+".interface", fmt.Sprintf("is %q: want the name of an interface, in which * and ? may stand for others", r.Interface))
	}
	switch {
	case r.CIDR == "" && (r.MatchOperator != "" || r.PrefixLength != nil):
		v.fail(path+".cidr", "is missing, although there is a matchOperator or prefixLength")
	case r.CIDR == "":
	default:
		if p := v.masked(path+".cidr", r.CIDR); p.IsValid() && p.Addr().Is4() != four {
			v.fail(path+".cidr", r.CIDR+" is of the other family")
		}
		v.oneOf(path+".matchOperator", r.MatchOperator, "Equal", "NotEqual", "In", "NotIn")
	}
	v.prefixLength(path+".prefixLength", r.PrefixLength, four)
	if c := r.Communities; c != nil {
		if len(c.Values) != 1 {
			v.fail(path+".communities.values", fmt.Sprintf("has %d communities: want one", len(c.Values)))
		}
		for i, value := range c.Values {
			v.check(fmt.Sprintf("%s.communities.values[%d]", path, i), badCommunity(value))
		}
	}
	if slices.Contains(r.ASPathPrefix, 0) {
		v.fail(path+".asPathPrefix", "has 0, which is no AS number")
	}
	v.routePriority(path+".priority", r.Priority)
	v.bgpOperations(path+".operations", r)
}

func (v *validator) prefixLength(path string, l *BGPPrefixLength, four bool) {
	if l == nil {
		return
	}
	most, low, high := int32(128), int32(0), int32(0)
	if four {
		most = 32
	}
	if l.Min != nil {
		low = *l.Min
	}
	if high = most; l.Max != nil {
		high = *l.Max
	}
	if low < 0 || high > most || low > high {
		v.fail(path, fmt.Sprintf("is %d to %d: want 0 to %d, the lower first", low, high, most))
	}
}

func (v *validator) bgpOperations(path string, r BGPFilterRule) {
	if len(r.Operations) > 0 && r.Action != "Accept" {
		v.fail(path, "are possible with action Accept only")
	}
	if len(r.Operations) > maxFilterOps {
		v.fail(path, fmt.Sprintf("has %d: at most %d are possible", len(r.Operations), maxFilterOps))
	}
	for i, o := range r.Operations {
		p := fmt.Sprintf("%s[%d]", path, i)
		given := 0
		for _, set := range []bool{o.AddCommunity != nil, o.PrependASPath != nil, o.SetPriority != nil} {
			if set {
				given++
			}
		}
		switch {
		case given != 1:
			v.fail(p, "want one of addCommunity, prependASPath and setPriority")
		case o.AddCommunity != nil:
			v.check(p+".addCommunity.value", badCommunity(o.AddCommunity.Value))
		case o.SetPriority != nil:
			v.routePriority(p+".setPriority.value", &o.SetPriority.Value)
		case len(o.PrependASPath.Prefix) == 0 || slices.Contains(o.PrependASPath.Prefix, 0):
			v.fail(p+".prependASPath.prefix", "want AS numbers, none of them 0")
		}
	}
}

// closeBGPFilter closes rules that are not understood: one that accepts matches nothing, one that rejects keeps what
// is understood of it.
func (d *decoder) closeBGPFilter(s *BGPFilterSpec) {
	v := validator{r: d.Resource}
	for _, l := range bgpRules(s) {
		for i := range l.rules {
			r, path := &l.rules[i], fmt.Sprintf("%s[%d]", l.path, i)
			v.errs = nil
			v.bgpRule(path, *r, l)
			for _, e := range v.errs {
				d.problem(e.Path, e.Reason)
			}
			odd := slices.ContainsFunc(d.found, func(f finding) bool { return within(f.path, path) }) ||
				slices.ContainsFunc(d.notices, func(n Notice) bool { return within(n.Path, path) })
			switch {
			case !odd && len(v.errs) == 0:
			case r.Action == "Accept":
				r.Void = true
			default:
				r.keepUnderstood(v.errs, path)
			}
		}
	}
}

// keepUnderstood drops the conditions that are wrong; an action that is none rejects.
func (r *BGPFilterRule) keepUnderstood(errs FieldErrors, path string) {
	r.Action, r.Operations = "Reject", nil
	for _, e := range errs {
		switch field, _, _ := strings.Cut(strings.TrimPrefix(e.Path, path+"."), "."); field {
		case "cidr", "matchOperator", "prefixLength":
			r.CIDR, r.MatchOperator, r.PrefixLength = "", "", nil
		case "source":
			r.Source = ""
		case "interface":
			r.Interface = ""
		case "peerType":
			r.PeerType = ""
		case "communities":
			r.Communities = nil
		case "asPathPrefix":
			r.ASPathPrefix = nil
		case "priority":
			r.Priority = nil
		}
	}
}

// idle is what is right in a resource, and keeps it from being of use: upstream takes it too.
func idle(r Resource) FieldErrors {
	v := validator{r: r}
	if c, is := r.(*BGPConfiguration); is {
		v.check("metadata.name", ofNoNode(c.Metadata.Name))
	}
	return v.errs
}

// ofNoNode says that no node goes by a BGPConfiguration of this name.
func ofNoNode(name string) string {
	if node, own := strings.CutPrefix(name, nodeConfigBegin); name == "default" || own && node != "" {
		return ""
	}
	return fmt.Sprintf("is %q, by which no node goes: nodes go by default and node.<name of the node>", name)
}
