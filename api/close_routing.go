package api

import (
	"fmt"
	"slices"
	"strings"
)

// What of these kinds cannot be missing without taking routes away: what is of the wrong type there, or means nothing,
// closes the resource, and [Admit] has its caller keep what it understood last.
var (
	nodeFatal = []string{
		"spec", "metadata", "metadata.labels*", "spec.bgp*", "spec.addresses*", "spec.ipv4VXLANTunnelAddr", "spec.ipv6VXLANTunnelAddr",
	}
	nodeValues = []string{"spec.bgp.ipv4Address", "spec.bgp.ipv6Address", "spec.bgp.routeReflectorClusterID"}
)

// closeRouting does to the kinds that make routes, and to the word whether any are to be made, what wrong input must do.
func (d *decoder) closeRouting() {
	switch r := d.Resource.(type) {
	case *IPPool:
		d.findings("spec*")
		if _, reason := prefixOf(r.Spec.CIDR); reason != "" && d.Closed == "" {
			d.shut("spec.cidr", reason)
		}
	case *Node:
		d.closeNode(r)
	case *ClusterInformation:
		d.findings("spec", "spec.datastoreReady")
	case *BGPConfiguration:
		d.closeBGPConfiguration(r)
	case *BGPPeer:
		d.closeBGPPeer(r)
	case *BGPFilter:
		d.findings("spec", "spec.exportV4", "spec.importV4", "spec.exportV6", "spec.importV6")
		d.closeBGPFilter(&r.Spec)
	}
}

// closeNode closes a node whose addresses cannot be read: without them nobody would have a session with it.
func (d *decoder) closeNode(r *Node) {
	d.findings(nodeFatal...)
	v := validator{r: r}
	v.node(&r.Spec)
	for _, e := range v.errs {
		if slices.Contains(nodeValues, e.Path) {
			d.shut(e.Path, e.Reason)
		}
	}
}

// closeBGPPeer closes a peer of which it is not known who it is. A password that cannot be read closes its sessions
// alone, see [BGPPassword].
func (d *decoder) closeBGPPeer(r *BGPPeer) {
	password := d.take("spec.password")
	d.findings("spec*")
	v := validator{r: r}
	v.bgpPeer(&r.Spec)
	unknown := whoIsUnknown(&r.Spec)
	for _, e := range v.errs {
		switch {
		case within(e.Path, "spec.password"):
			password = append(password, finding{path: e.Path, reason: e.Reason})
		case unknown[e.Path]:
			d.shut(e.Path, e.Reason)
		default:
			d.problem(e.Path, e.Reason)
		}
	}
	d.closePassword(&r.Spec.Password, password)
}

// whoIsUnknown are the fields without which it cannot be known with whom a peer's sessions are, or of whom.
func whoIsUnknown(s *BGPPeerSpec) map[string]bool {
	_, isAddress := PeerAddress(s.PeerIP)
	_, gateway := addrOf(s.ReachableBy)
	return map[string]bool{
		"spec.peerIP":                s.PeerSelector == "" && !isAddress,
		"spec.localASNumber":         true,
		"spec.nodeSelector":          checkSelector(s.NodeSelector, false) != "",
		"spec.peerSelector":          checkSelector(s.PeerSelector, false) != "",
		"spec.localWorkloadSelector": s.LocalWorkloadSelector != "",
		"spec.asNumber":              s.LocalWorkloadSelector != "",
		"spec.reachableBy":           gateway != "",
	}
}

// closeBGPConfiguration takes settings one by one: what means nothing is as if it were not there. What is of the wrong
// type closes the whole, but for the mesh's password, which closes the mesh's sessions alone.
func (d *decoder) closeBGPConfiguration(r *BGPConfiguration) {
	s := &r.Spec
	password := d.take("spec.nodeMeshPassword")
	d.findings("spec*")
	v := validator{r: r}
	v.bgpConfiguration(r)
	for _, e := range append(v.errs, idle(r)...) {
		switch field, _, _ := strings.Cut(strings.TrimPrefix(e.Path, "spec."), "["); {
		case within(e.Path, "spec.nodeMeshPassword"):
			password = append(password, finding{path: e.Path, reason: e.Reason})
			continue
		case field == "asNumber":
			d.shut(e.Path, e.Reason)
			continue
		case field == "nodeMeshMaxRestartTime":
			s.NodeMeshMaxRestartTime = ""
		case field == "bindMode":
			s.BindMode = ""
		case field == "programClusterRoutes":
			s.ProgramClusterRoutes = ""
		case field == "logSeverityScreen":
			s.LogSeverityScreen = ""
		case field == "localWorkloadPeeringIPV4":
			s.LocalWorkloadPeeringIPv4 = ""
		case field == "localWorkloadPeeringIPV6":
			s.LocalWorkloadPeeringIPv6 = ""
		case field == "ipv4NormalRoutePriority":
			s.IPv4NormalRoutePriority = nil
		case field == "ipv6NormalRoutePriority":
			s.IPv6NormalRoutePriority = nil
		}
		d.problem(e.Path, e.Reason)
	}
	bad := func(reason string) bool { return reason != "" }
	s.Communities = slices.DeleteFunc(s.Communities, func(c Community) bool { return bad(badCommunity(c.Value)) })
	s.IgnoredInterfaces = slices.DeleteFunc(s.IgnoredInterfaces, func(n string) bool { return bad(badPattern(n)) })
	for i := range s.PrefixAdvertisements {
		a := &s.PrefixAdvertisements[i]
		a.Communities = slices.DeleteFunc(a.Communities, func(c string) bool { return strings.Contains(c, ":") && bad(badCommunity(c)) })
	}
	d.closePassword(&s.NodeMeshPassword, password)
}

// take removes the findings about a field from those that are looked at as a whole.
func (d *decoder) take(path string) (out []finding) {
	d.found = slices.DeleteFunc(d.found, func(f finding) bool {
		is := within(f.path, path)
		if is {
			out = append(out, f)
		}
		return is
	})
	return out
}

// closePassword notes why a password cannot be had. There is to be one: no session may do without.
func (d *decoder) closePassword(p **BGPPassword, found []finding) {
	for _, f := range found {
		if f.unknown && *p != nil && (*p).SecretKeyRef != nil {
			d.problem(f.path, "unknown field; kept, but not honoured")
			continue
		}
		d.problem(f.path, f.reason)
		if *p == nil {
			*p = &BGPPassword{}
		}
		if (*p).Unread == "" {
			(*p).Unread = fmt.Sprintf("%s: %s", clip(f.path), clip(f.reason))
		}
	}
}

// lasting are the kinds of which what was understood last stays in force if a value must be closed: those that make routes, those
// that say how or whether anything is done at all, and those that would open what they deny if they applied to nothing.
var lasting = []string{
	KindIPPool, KindNode, KindBGPConfiguration, KindBGPPeer, KindBGPFilter, KindFelixConfiguration, KindClusterInformation,
	KindGlobalNetworkPolicy, KindNetworkSet, KindGlobalNetworkSet,
}

// closing are the kinds that close more if they are closed. It stays in force of them what was understood last if a value is
// nothing of its kind.
var closing = []string{KindNetworkPolicy, KindTier, KindProfile, KindStagedNetworkPolicy, KindStagedGlobalNetworkPolicy, KindStagedKubernetesNetworkPolicy}

// Admit reads a value as [DecodeStored] does, for those that act on resources while these change. It is also an error if
// the value is of a kind that makes routes or speaks of policy and cannot be understood as a whole: the caller keeps what it had,
// since a value that means nothing does not mean that routes are to go, or that what was denied is allowed. What could be read of
// it is returned all the same, closed, for a caller that had nothing.
func Admit(u Update) (Stored, error) { return AdmitInto(u, nil) }

// Scratch is memory for workload endpoints that are read one after the other: that of the last one, and texts that many have, which
// then are kept once. Zero is ready to use; one goroutine may use it.
type Scratch struct {
	workload WorkloadEndpoint
	labels   map[string]string
	texts    texts
}

// AdmitInto is Admit, and makes the resource in w if it is a workload endpoint, of which there are many. Nil: in memory of its own. What
// w had before is overwritten, the map of its labels too, but nothing else that its fields referred to.
func AdmitInto(u Update, w *Scratch) (Stored, error) {
	s, err := decodeStored(u, w)
	if err == nil && s.Closed != "" && (slices.Contains(lasting, s.Ref.Kind) || s.NoObject && slices.Contains(closing, s.Ref.Kind)) {
		err = fmt.Errorf("%s: %s", u.Key, s.Closed)
	}
	return s, err
}
