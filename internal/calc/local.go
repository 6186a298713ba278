package calc

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/route"
	"github.com/twillnet/twill/internal/intent"
)

// local is an endpoint of this node.
type local struct {
	key       string
	created   string // the resource's creationTimestamp; empty: unknown
	id        intent.EndpointID
	ident     api.WorkloadEndpointIdentifier // of a workload, as migrations name it
	label     string
	link, mac string
	addrs     []netip.Addr
	shared    []netip.Addr // those of them that are allowed address pairs, which others may have, too
	spoofable []netip.Prefix
	nats      []intent.NAT // that it asks for
	qos       intent.QoS
	profiles  []string
	closed    string
}

// shut reports whether it is a host endpoint of which nothing is known but that it is there.
func (l *local) shut() bool { return l.id.Kind == intent.Host && l.closed != "" }

func (g *Graph) putWorkload(key string, s api.Stored, w *api.WorkloadEndpoint) {
	own := forced(forced(w.Metadata.Labels, api.LabelNamespace, w.Metadata.Namespace), api.LabelServiceAccount, w.Spec.ServiceAccountName)
	src := sourceOf(w.Spec.IPNetworks, workloadPorts(w))
	nats := natsOf(w, s.Closed)
	g.floats.owns(key, g.sources.Get(key), src.Addrs)
	g.floats.claim(claim{w.Metadata.CreationTimestamp, key, w.Spec.Orchestrator == api.OrchestratorOpenStack}, nats)
	g.putSource(key, own, w.Spec.Profiles, src)
	if w.Spec.Node != g.node {
		g.removeLocal(key)
		return
	}
	l := &local{
		key: key, created: w.Metadata.CreationTimestamp, ident: w.Identifier(), id: intent.EndpointID{Kind: intent.Workload, Namespace: w.Metadata.Namespace, Name: w.Metadata.Name},
		label: w.Metadata.Namespace + "/" + cmp.Or(w.Spec.Pod, w.Spec.Workload, w.Metadata.Name), link: w.Spec.InterfaceName, mac: w.Spec.MAC,
		spoofable: prefixes(w.Spec.AllowSpoofedSourcePrefixes), profiles: w.Spec.Profiles, closed: s.Closed, nats: nats, qos: qosOf(w.Spec.QoSControls),
	}
	src.Addrs.Each(func(p netip.Prefix) { l.addrs = append(l.addrs, p.Addr()) })
	for _, p := range prefixes(w.Spec.AllowedIPs) {
		l.shared = append(l.shared, p.Addr())
	}
	if len(l.addrs) == 0 && l.closed == "" {
		l.closed = "it has no address"
	}
	if old := g.locals.Get(key); old != nil {
		g.unclaim(old.Value)
	}
	g.claim(l)
	g.locals.Put(key, own, w.Spec.Profiles, l)
}

func (g *Graph) putHost(key string, s api.Stored, h *api.HostEndpoint) {
	src := sourceOf(h.Spec.ExpectedIPs, hostPorts(h))
	g.putSource(key, h.Metadata.Labels, h.Spec.Profiles, src)
	if h.Spec.Node != g.node {
		g.removeLocal(key)
		return
	}
	l := &local{
		key: key, id: intent.EndpointID{Kind: intent.Host, Name: s.Ref.Name}, label: s.Ref.Name, link: h.Spec.InterfaceName,
		profiles: h.Spec.Profiles, closed: s.Closed, qos: intent.QoS{DSCP: dscpOf(api.DSCP(h.Metadata.Annotations[api.AnnotationDSCP]))},
	}
	src.Addrs.Each(func(p netip.Prefix) { l.addrs = append(l.addrs, p.Addr()) })
	g.dirtyLocals[key] = true
	g.locals.Put(key, h.Metadata.Labels, h.Spec.Profiles, l)
}

// newer orders claims to an interface: the newest workload's first, since a host gives the name of an interface that is gone to the
// next one, while the resource of the former may be there still. One without a time is older than all that have one; of two that
// are equally new the first by key.
func (a claim) newer(b claim) int {
	return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(a.key, b.key))
}

// claim adds a workload that names an interface.
func (g *Graph) claim(l *local) {
	c := claim{created: l.created, key: l.key}
	at, _ := slices.BinarySearchFunc(g.links[l.link], c, claim.newer)
	g.links[l.link] = slices.Insert(g.links[l.link], at, c)
	g.linkChanged(l.link)
}

func (g *Graph) removeLocal(key string) {
	if item := g.locals.Remove(key); item != nil {
		g.dirtyLocals[key] = true
		g.unclaim(item.Value)
	}
}

// unclaim removes it.
func (g *Graph) unclaim(l *local) {
	if l.id.Kind == intent.Host {
		return // several may name one interface: see verdict
	}
	at, _ := slices.BinarySearchFunc(g.links[l.link], claim{created: l.created, key: l.key}, claim.newer)
	if g.links[l.link] = slices.Delete(g.links[l.link], at, at+1); len(g.links[l.link]) == 0 {
		delete(g.links, l.link)
	}
	g.linkChanged(l.link)
}

// linkChanged marks the endpoints that name an interface: which of them owns it may have changed.
func (g *Graph) linkChanged(link string) {
	for _, c := range g.links[link] {
		g.dirtyLocals[c.key] = true
	}
}

// endpoint computes the intent of a local endpoint.
func (g *Graph) endpoint(l *local, of *group) intent.Endpoint {
	e := intent.Endpoint{ID: l.id, Label: l.label, Link: l.link, MAC: l.mac, Addrs: l.addrs, Closed: l.closed, QoS: l.qos, Group: of.Group}
	if g.config.Settings.AllowSourceSpoofing {
		e.Spoofable = l.spoofable
	}
	e.NATs = g.floats.held(l)
	if l.id.Kind == intent.Host {
		if l.shut() {
			return intent.Endpoint{ID: e.ID, Label: e.Label, Link: e.Link, Addrs: e.Addrs, Closed: e.Closed}
		}
		return e
	}
	refused := g.refused(l.link)
	switch owner := g.links[l.link][0].key; {
	case l.link == "":
		e.Closed = "it names no interface"
	case refused != "":
		e.Closed, e.Link = refused, "" // no driver may touch the interface
	case owner != l.key:
		e.Closed = g.taken(l, g.locals.Get(owner).Value)
		e.Link = "" // it must not close the owner's
	}
	return e
}

// taken says why a workload does not have the interface that it names.
func (g *Graph) taken(l, by *local) string {
	why := "which is newer"
	if l.created == by.created {
		why = "which is as old as it, and before it in the order of keys"
	}
	return fmt.Sprintf("its interface %s is that of WorkloadEndpoint %s/%s, %s", l.link, by.id.Namespace, by.id.Name, why)
}

// owner is what decides which of several endpoints has an address.
func (l *local) owner() route.Owner {
	return route.Owner{Created: l.created, Endpoint: l.id, Shared: l.shared}
}

// routesOf returns the routes to an endpoint that is not closed.
func routesOf(e intent.Endpoint, m intent.Move) []intent.Route {
	if e.Closed != "" || e.ID.Kind == intent.Host {
		return nil
	}
	out := make([]intent.Route, 0, len(e.Addrs)+len(e.NATs))
	for _, a := range e.Addrs {
		out = append(out, intent.Route{Dst: netip.PrefixFrom(a, a.BitLen()), Kind: intent.RouteLink, Link: e.Link, MAC: e.MAC, Move: m})
	}
	for _, n := range e.NATs { // by it others learn where the address is; what is sent to it has another destination before it is routed
		out = append(out, intent.Route{Dst: netip.PrefixFrom(n.External, n.External.BitLen()), Kind: intent.RouteLink, Link: e.Link, Move: m})
	}
	return out
}

func sameEndpoint(a, b intent.Endpoint) bool {
	return a.ID == b.ID && a.Label == b.Label && a.Link == b.Link && a.MAC == b.MAC && a.Closed == b.Closed && a.QoS == b.QoS &&
		slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Spoofable, b.Spoofable) && slices.Equal(a.NATs, b.NATs) && a.Policies().ID == b.Policies().ID
}

// dscpOf returns a code point as intents have it.
func dscpOf(d api.DSCP) intent.DSCP {
	if n, set := d.Value(); set {
		return intent.DSCP(n + 1)
	}
	return 0
}

// qosOf returns the limits of a workload, which [api.DecodeStored] has checked.
func qosOf(q *api.QoSControls) (out intent.QoS) {
	if q == nil {
		return out
	}
	packets := func(rate, burst int64) (r, b uint32) {
		if rate == 0 {
			return 0, 0
		}
		return uint32(rate), uint32(cmp.Or(burst, api.DefaultPacketBurst))
	}
	out.In.PacketRate, out.In.PacketBurst = packets(q.IngressPacketRate, q.IngressPacketBurst)
	out.Out.PacketRate, out.Out.PacketBurst = packets(q.EgressPacketRate, q.EgressPacketBurst)
	out.DSCP = dscpOf(q.DSCP)
	for dir, b := range [2][4]int64{
		intent.Ingress: {q.IngressBandwidth, q.IngressBurst, q.IngressPeakrate, q.IngressMinburst}, intent.Egress: {q.EgressBandwidth, q.EgressBurst, q.EgressPeakrate, q.EgressMinburst},
	} {
		out.Bandwidth[dir] = intent.Bandwidth{Rate: uint64(b[0]), Burst: uint64(b[1]), Peak: uint64(b[2]), PeakBurst: uint64(b[3])}
	}
	out.In.Connections, out.Out.Connections = uint32(q.IngressMaxConnections), uint32(q.EgressMaxConnections)
	return out
}
