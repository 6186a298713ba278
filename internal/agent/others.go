package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/wg"
	"github.com/twillnet/twill/internal/metrics"
)

// others is how other hosts are reached, as calc's batches say.
type others struct {
	settings config.WireGuard
	routes   map[netip.Prefix]*passage // those to other hosts
	passages map[passageID]*passage
	peers    map[intent.PeerID]intent.TunnelPeer
}

// passageID is one way to another host.
type passageID struct {
	node string
	six  bool
	kind intent.RouteKind
	link string // of a RouteTunnel
	lost bool   // a RouteTunnel without an end there
}

type passage struct {
	id     passageID
	host   netip.Addr // of a RouteDirect, the other host's address
	blocks int        // how many destinations it leads to
}

func newOthers() *others {
	return &others{routes: map[netip.Prefix]*passage{}, passages: map[passageID]*passage{}, peers: map[intent.PeerID]intent.TunnelPeer{}}
}

func (o *others) onBatch(b intent.Batch) {
	for _, k := range b.Removed {
		switch id := k.(type) {
		case intent.RouteID:
			o.forget(id.Prefix)
		case intent.PeerID:
			delete(o.peers, id)
		}
	}
	for _, r := range b.Routes {
		o.forget(r.Dst)
		if r.Node == "" {
			continue
		}
		id := passageID{node: r.Node, six: r.Dst.Addr().Is6(), kind: r.Kind}
		if r.Kind == intent.RouteTunnel {
			id.link, id.lost = r.Link, !r.Via.IsValid()
		}
		p := o.passages[id]
		if p == nil {
			p = &passage{id: id}
			o.passages[id] = p
		}
		if r.Kind == intent.RouteDirect {
			p.host = r.Via
		}
		p.blocks++
		o.routes[r.Dst] = p
	}
	for _, p := range b.Peers {
		o.peers[p.ID()] = p
	}
}

func (o *others) forget(dst netip.Prefix) {
	p := o.routes[dst]
	if p == nil {
		return
	}
	delete(o.routes, dst)
	if p.blocks--; p.blocks == 0 {
		delete(o.passages, p.id)
	}
}

// wireguardKinds are those of WireGuard, by family.
var wireguardKinds = [2]intent.TunnelKind{intent.WireGuard, intent.WireGuard6}

// tunnelOf is the kind of tunnel of a way; false: it is straight.
func (p passageID) tunnel() (intent.TunnelKind, bool) {
	if p.kind == intent.RouteEncrypted {
		return wireguardKinds[familyOf(p.six)], true
	}
	for _, k := range []intent.TunnelKind{intent.VXLAN, intent.VXLAN6, intent.IPIP} {
		if p.kind == intent.RouteTunnel && p.link == k.Link() {
			return k, true
		}
	}
	return 0, false
}

func familyOf(six bool) int { return map[bool]int{true: 1}[six] }

// families are those of an index of settings.
var families = [2]string{"IPv4", "IPv6"}

// wgDevice is a device of WireGuard as it is.
type wgDevice struct {
	Link  string
	Kind  string // of the link; empty: there is none
	State wg.State
	Err   error // it could not be read
	Slow  error // why no threads take what it receives, though settings want them
}

// wgReader reads devices of WireGuard.
type wgReader interface {
	Read(name, kind string) (wg.State, error)
	Threaded(link string) (bool, error)
}

// wgDoor is the doors to such devices.
type wgDoor struct {
	devices *wg.Handle
	links   *rtnl.Handle
}

// Read reads a device.
func (d wgDoor) Read(name, kind string) (wg.State, error) { return d.devices.Read(name, kind) }

// Threaded reports whether threads take what it receives.
func (d wgDoor) Threaded(link string) (bool, error) { return d.links.Threaded(link) }

// devices reads those that settings want; nil: settings want none of the family.
func devices(s config.WireGuard, links []rtnl.Link, from wgReader) (out [2]*wgDevice) {
	for f, on := range s.Enabled {
		if !on || from == nil {
			continue
		}
		d := &wgDevice{Link: s.Link[f], Err: wg.ErrNoDevice}
		for _, l := range links {
			if l.Name == d.Link && (l.Kind == wg.Kind || l.Kind == wg.Userspace) {
				d.Kind = l.Kind
				d.State, d.Err = from.Read(l.Name, l.Kind)
				if on, err := from.Threaded(l.Name); s.Threads && l.Kind == wg.Kind && !on && len(d.State.Peers) > 0 { // without a peer it has none
					d.Slow = cmp.Or(err, errors.New("the kernel did not take it"))
				}
			}
		}
		out[f] = d
	}
	return out
}

// wireguardReport says of each family that settings want encrypted what the device has.
func wireguardReport(s config.WireGuard, ds [2]*wgDevice) (out []WireGuardReport) {
	for f, d := range ds {
		if d == nil {
			continue
		}
		r := WireGuardReport{Family: families[f], Interface: d.Link, AllowUnencrypted: s.Clear}
		if d.Err != nil {
			r.Problem = d.Err.Error()
		} else {
			if d.Slow != nil {
				r.Problem = "wireguardThreadingEnabled has no effect: " + d.Slow.Error()
			}
			r.By, r.Port, r.Peers = map[bool]string{true: "kernel", false: "process"}[d.Kind == wg.Kind], d.State.Port, len(d.State.Peers)
			if d.State.Public != (wg.Key{}) {
				r.Key = d.State.Public.String()
			}
		}
		out = append(out, r)
	}
	return out
}

// report says by which way each other host is reached to which routes of the agent's lead, sorted by node.
func (o *others) report(ds [2]*wgDevice) (out []OtherReport) {
	known := [2]map[string]wg.Peer{}
	for f, d := range ds {
		known[f] = map[string]wg.Peer{}
		if d != nil {
			for _, p := range d.State.Peers {
				known[f][p.Key.String()] = p
			}
		}
	}
	for id, p := range o.passages {
		f := familyOf(id.six)
		r := OtherReport{Node: id.node, Family: families[f], By: Direct, Blocks: p.blocks}
		if p.host.IsValid() {
			r.Address = p.host.String()
		}
		if k, is := id.tunnel(); is {
			r.By = k.Encapsulation()
			peer, is := o.peers[intent.PeerID{Node: id.node, Kind: k}]
			if is {
				r.Address, r.Key = peer.Host.String(), peer.Key
			}
			if id.kind == intent.RouteEncrypted {
				r.Encrypted = true
				r.peer(is, ds[f], known[f])
			} else if id.lost {
				r.wrong(doctor.Unreachable, "%s or this host has no end of %s", id.node, k)
			}
		}
		if o.settings.Enabled[f] && !r.Encrypted && r.State == "" {
			r.wrong(doctor.InClear, "it has no key of WireGuard, and wireguardAllowUnencrypted is true")
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b OtherReport) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Family, b.Family), cmp.Compare(a.By, b.By))
	})
	return out
}

// peer fills in what the device has of a peer of WireGuard; keyed: the other host has a key.
func (r *OtherReport) peer(keyed bool, d *wgDevice, known map[string]wg.Peer) {
	p, is := known[r.Key]
	switch {
	case !keyed:
		r.wrong(doctor.Unreachable, "it or this host has no key of WireGuard, and wireguardAllowUnencrypted is false")
		return
	case d == nil || d.Err != nil:
		r.wrong(doctor.Unreachable, "this host has no device of WireGuard")
		if d != nil && !errors.Is(d.Err, wg.ErrNoDevice) {
			r.Problem = "its device cannot be read: " + d.Err.Error()
		}
		return
	case !is:
		r.wrong(doctor.Unreachable, "the device %s does not have its key yet", d.Link)
		return
	}
	r.Received, r.Sent = p.Received, p.Sent
	if !p.Handshake.IsZero() {
		r.Handshake = &p.Handshake
	} else if p.Sent > 0 {
		r.wrong(doctor.NoHandshake, "nothing answers at %s, UDP", p.Host)
	}
}

// wrong says what is wrong with a way.
func (r *OtherReport) wrong(is doctor.OtherState, format string, args ...any) {
	r.State, r.Problem = is, string(is)+": "+fmt.Sprintf(format, args...)
}

// encryption is the report's part about other hosts. The caller has the lock.
func (r *reporter) encryption(out *Report, ds [2]*wgDevice) {
	out.WireGuard, out.Others = wireguardReport(r.others.settings, ds), r.others.report(ds)
}

// encrypting reads the devices of WireGuard.
func (r *reporter) encrypting() [2]*wgDevice {
	r.mu.Lock()
	s := r.others.settings
	r.mu.Unlock()
	if r.links == nil || r.wireguard == nil || !s.Enabled[0] && !s.Enabled[1] {
		return [2]*wgDevice{}
	}
	links, _ := r.links() // what cannot be read is absent
	return devices(s, links, r.wireguard)
}

// measure has metrics of traffic and of WireGuard served.
func (r *reporter) measure(t tally) {
	r.metrics.Traffic(t.traffic)
	r.metrics.WireGuard(r.encrypted)
}

// encrypted are the numbers of WireGuard, for metrics; none while settings want none.
func (r *reporter) encrypted() (out []metrics.WireGuard) {
	r.mu.Lock()
	wanted := r.others.settings.Metrics
	r.mu.Unlock()
	if !wanted {
		return nil
	}
	for _, d := range r.encrypting() {
		if d == nil || d.Err != nil {
			continue
		}
		m := metrics.WireGuard{Node: r.identity.Node, Interface: d.Link, Key: d.State.Public.String(), Port: d.State.Port}
		for _, p := range d.State.Peers {
			m.Peers = append(m.Peers, metrics.WireGuardPeer{Key: p.Key.String(), Endpoint: endpoint(p.Host), Received: float64(p.Received), Sent: float64(p.Sent), Handshake: seconds(p.Handshake)})
		}
		out = append(out, m)
	}
	return out
}

// endpoint is empty for a peer whose address is not known.
func endpoint(at netip.AddrPort) string {
	if !at.IsValid() {
		return ""
	}
	return at.String()
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
