package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/nodeaddr"
)

const (
	millisecond = time.Millisecond
	slowStore   = 200 * time.Millisecond
)

func global4(p netip.Prefix) bool {
	return p.Addr().Is4() && p.Addr().IsGlobalUnicast() && !p.Addr().IsLinkLocalUnicast()
}

// Own are the addresses in this host's Node.
func (f *Facts) Own() []netip.Addr { return nodeaddr.Addrs(f.Nodes.Node(f.Node)) }

// linkOf is the interface that has an address; nil if none has.
func (f *Facts) linkOf(a netip.Addr) *Link {
	for i, l := range f.Links {
		if slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return &f.Links[i]
		}
	}
	return nil
}

// unknown is what there is to say of what only the datastore knows.
func unknown() []Finding {
	return one(Warn, "see the check of the store", "not known: the datastore does not answer")
}

func nodeHas(f *Facts) (out []Finding) {
	if f.Store.Err != "" {
		return unknown()
	}
	own := f.Own()
	switch why := f.Nodes.NodeProblem(f.Node); {
	case why != "":
		return one(Fail, "give this node another name with --node (NODENAME)", "the datastore has no Node %s, and it can have none: metadata.name %s", f.Node, why)
	case f.Nodes.Node(f.Node) == nil:
		return one(Fail, "start `twill node`, which writes it, or name this node as the datastore does (NODENAME); `twill node address` says what would be found",
			"the datastore has no Node %s", f.Node)
	case len(own) == 0:
		return one(Fail, "`twill node address` says what is found; give it with IP or IP_AUTODETECTION_METHOD", "Node %s has no address: no BGP, no routes to its workloads", f.Node)
	}
	for _, a := range own {
		switch l := f.linkOf(a); {
		case l == nil:
			out = append(out, one(Fail, "`twill node address` says what is found; start `twill node` with IP=autodetect, or correct the Node", "Node %s says %s, which no interface of this host has", f.Node, a)...)
		case !l.Up:
			out = append(out, one(Fail, "ip link set "+l.Name+" up", "%s is on %s, which is down", a, l.Name)...)
		default:
			out = append(out, one(OK, "", "%s on %s", a, l.Name)...)
		}
	}
	return out
}

func duplicates(f *Facts) (out []Finding) {
	if f.Store.Err != "" {
		return unknown()
	}
	for _, o := range f.Nodes.Clashes(f.Node) {
		out = append(out, one(Fail, o.Fix(), "%s", o)...)
	}
	asked := 0
	for _, d := range f.Duplicates {
		switch {
		case d.MAC != "":
			out = append(out, one(Fail, "find that host (its switch port, or its MAC's maker), and give one of the two another address", "%s is also that of %s on %s", d.Addr, d.MAC, d.Link)...)
		case d.Err != "":
			out = append(out, one(Warn, "run this as root", "%s: nobody on %s could be asked: %s", d.Addr, d.Link, d.Err)...)
		default:
			asked++
		}
	}
	if len(out) == 0 {
		return one(OK, "", "%d Nodes compared, %d addresses asked for on their links", len(f.Nodes.Nodes()), asked)
	}
	return out
}

// source is about which of its addresses the host has to its workloads. The kernel takes the first that it finds, interface by interface, and that is
// a tunnel's or a bridge's where their device was made before the uplink (decision 121).
func source(f *Facts) []Finding {
	if f.Store.Err != "" {
		return unknown()
	}
	n := f.Nodes.Node(f.Node)
	if n == nil || !f.Source.IsValid() {
		return one(OK, "", "not asked: no workload is here, or settings say from where it is asked")
	}
	own := n.AddressOf(false).Addr()
	if f.linkOf(own) == nil || own == f.Source { // what is on no interface can be no source: see the check of the node
		return one(OK, "", "%s", f.Source)
	}
	at := f.Source.String()
	if l := f.linkOf(f.Source); l != nil {
		at += " on " + l.Name
	}
	return one(Warn, fmt.Sprintf("set deviceRouteSourceAddress to %s for this host alone: in FelixConfiguration node.%s, or FELIX_DEVICEROUTESOURCEADDRESS of its agent", own, f.Node),
		"the host sends to its workloads from %s, and Node %s is %s: policy and lists of trusted addresses that name the Node's do not mean what workloads get from it", at, f.Node, own)
}

func bgpUp(f *Facts) (out []Finding) {
	b := f.BGP
	switch {
	case b.Mode == "off":
		return one(OK, "", "nobody is to speak BGP here (TWILL_BGP=off)")
	case b.byBIRD() && !f.runs("bird"):
		return one(Fail, "apt install bird2; `twill node --bgp="+b.Mode+"` runs it: journalctl -u twill-node says why it does not stay up", "BIRD is to speak here, and does not run")
	case b.Err != "":
		return one(Fail, "start `twill node`, without --bgp=off (TWILL_BGP); journalctl -u twill-node says why it does not stay up", "%s", b.Err)
	case b.Off != "":
		return one(Fail, "see the check of the node", "%s", b.Off)
	}
	up := 0
	for _, s := range b.Sessions {
		if s.Up {
			up++
			continue
		}
		out = append(out, one(Fail, "see the checks of the port and of the way there; `twill bgp peers` on both ends", "%s: %s: %s", withNode(s.Peer.String(), s.Node), s.State, s.Why)...)
	}
	for _, p := range b.Problems {
		out = append(out, one(Warn, "correct that resource", "wrong: %s", p)...)
	}
	if len(out) == 0 {
		return one(OK, "", "%d of %d sessions are up", up, len(b.Sessions))
	}
	return out
}

func withNode(addr, node string) string {
	if node == "" {
		return addr
	}
	return fmt.Sprintf("%s (%s)", node, addr)
}

func ports(f *Facts) (out []Finding) {
	ours, wanted := 0, f.speaks()
	if wanted && f.Store.Err != "" {
		return unknown()
	}
	for _, l := range f.Listeners {
		if l.Ours {
			ours++
		} else if wanted {
			out = append(out, one(Fail, fmt.Sprintf("stop it (kill %d; systemctl disable --now its service), or have BIRD speak: TWILL_BGP=bird", l.PID), "%s is %s's (pid %d)", l.At, l.Process, l.PID)...)
		}
	}
	if wanted && ours == 0 && len(out) == 0 {
		out = append(out, one(Fail, "journalctl -u twill-node says why `twill bgp` does not listen", "nobody listens on %v", f.BGP.Listen)...)
	}
	for _, p := range f.Peers {
		who := withNode(p.At.String(), p.Node)
		switch p.Result {
		case PortRefused:
			out = append(out, one(Warn, "start `twill node` there, or see what listens there and on which port (listenPort of BGPConfiguration)", "%s: nobody listens", who)...)
		case PortSilent:
			out = append(out, one(Warn, "see that the host is up, and that no firewall or policy is between", "%s: no answer", who)...)
		}
	}
	switch {
	case len(out) > 0:
		return out
	case !wanted:
		return one(OK, "", "not needed: see the check of BGP")
	}
	return one(OK, "", "ours here; %d peers without a session tried", len(f.Peers))
}

// speaks reports whether our own speaker is at work.
func (f *Facts) speaks() bool {
	return f.BGP.Mode != "off" && !f.BGP.byBIRD() && f.BGP.Err == "" && f.BGP.Off == ""
}

func pathMTU(f *Facts) (out []Finding) {
	if f.Store.Err != "" {
		return unknown()
	}
	whole, mute := 0, 0
	for _, p := range f.Paths {
		switch {
		case p.Largest >= p.MTU:
			whole++
		case p.Largest == 0:
			mute++ // policy may deny echo; what else is wrong there, other checks find
		}
		out = append(out, f.path(p)...)
	}
	if len(out) == 0 {
		text := fmt.Sprintf("%d ways tried, whole on %d", len(f.Paths), whole)
		if mute > 0 {
			text += fmt.Sprintf("; %d nodes do not answer to an echo", mute)
		}
		return one(OK, "", "%s", text)
	}
	return out
}

// protocols are names of route protocols (rtnetlink(7), /etc/iproute2/rt_protos).
var protocols = map[int]string{2: "the kernel, for an address of an interface", 3: "boot scripts", 4: "an administrator", 11: "FRR (zebra)", 12: "BIRD", 16: "DHCP", 80: "Calico's agent", 186: "another BGP daemon"}

func foreignRoutes(f *Facts) (out []Finding) {
	if f.Store.Err != "" {
		return unknown()
	}
	left := f.Leftovers().Routes
	for _, r := range f.Routes {
		i := f.pool(r.Dst)
		if i < 0 || f.ours(r) || r.Blackhole {
			continue
		}
		by := protocols[r.Protocol]
		if by == "" {
			by = fmt.Sprintf("protocol %d", r.Protocol)
		}
		fix := fmt.Sprintf("stop what makes it, or: ip route del %s dev %s proto %d", r.Dst, r.Link, r.Protocol)
		if slices.Contains(left, r) {
			fix += "; or: " + FixLeftovers
		}
		switch {
		case r.Protocol == protocolKernel:
			fix = "take another range for the pool, or another network for the interface"
		case r.Protocol == protocolBIRD && f.BGP.byBIRD():
			continue // the expected speaker
		case r.Protocol == protocolBIRD && f.runs("bird"):
			fix = "stop BIRD, or have it alone: TWILL_BGP=bird"
		}
		out = append(out, one(Warn, fix, "%s dev %s is within pool %s, and made by %s", r.Dst, r.Link, f.Pools[i], by)...)
		if len(out) == 10 {
			return append(out, one(Warn, "ip route show", "and perhaps more")...)
		}
	}
	if len(out) == 0 {
		return one(OK, "", "%d routes, none of others within %d pools", len(f.Routes), len(f.Pools))
	}
	return out
}

const (
	protocolKernel = 2
	protocolBIRD   = 12
)

// ours reports whether a route has the marks of one that our daemons make.
func (f *Facts) ours(r Route) bool {
	if p := f.Agent.RouteProtocol; p != 0 && r.Protocol == p && r.Dst.IsSingleIP() && !r.Gateway.IsValid() && f.workload(r.Link) {
		return true
	}
	return r.Protocol == kernel.RouteProtocolAgent && !r.Gateway.IsValid() || r.Protocol == kernel.RouteProtocolHosts ||
		kernel.SpeakerRoute(r.Protocol, r.Metric)
}
