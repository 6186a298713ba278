package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/dataplane/delta"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/wg"
)

// wireguard is the tunnel of one family by which packets to other hosts are encrypted: a device, what it knows of other hosts, and a table of
// routes of its own into which a rule leads all packets but those that such a device sends (decision 048).
//
// For each destination the table has two routes, one through the device and one that is unreachable: without a device, or without a key of the
// other host, nothing goes unencrypted.
type wireguard struct {
	device
	family int // an index of settings
	six    bool
	on     bool
	as     intent.WireGuardSettings
	mark   uint32 // of what the device sends
	by     string // what the kernel calls the device: wg.Kind or wg.Userspace
	public wg.Key

	nodes  map[netip.Prefix]string          // who has what is encrypted
	blocks map[string]map[netip.Prefix]bool // the same, by node
	others map[string]intent.TunnelPeer     // by node
	hosts  map[netip.Addr]map[string]bool   // the same nodes, by their hosts' addresses; two have one address when a host took that of a host whose Node was not deleted
	keys   map[string]wg.Key                // of those that the device should know, by node
	locals map[netip.Prefix]bool            // of this host's endpoints
	dirty  map[string]bool                  // nodes whose peer or routes may have changed
	bits   map[int]int                      // how many of nodes have a prefix of that length
	moved  bool                             // locals may be in other blocks than before
	ends   map[netip.Addr]bool              // hosts' addresses to which routes may have changed

	tables [2]int  // zero: not chosen
	ruled  [2]bool // a rule leads into it
	stray  bool    // there may be rules of ours that nobody wants
	skips  *delta.Map[rtnl.SkipRule, bool]
	peers  *delta.Map[wg.Key, peer]
	routes *delta.Map[routeKey, rtnl.Route]
}

// peer is what a device should know of another host.
type peer struct {
	host      netip.AddrPort
	keepAlive time.Duration
	allowed   string // prefixes, in order, with spaces between them
}

type routeKey struct {
	dst    netip.Prefix
	metric int
	of     int // an index of tables
}

// metricClosed is that of the routes that lead nowhere, behind those through the device.
const metricClosed = kernel.RouteMetricHosts + 1

func newWireGuard(k intent.TunnelKind) *wireguard {
	return &wireguard{
		device: device{name: k.Link(), check: true}, mark: kernel.MarkEncrypted, family: map[bool]int{true: 1}[k == intent.WireGuard6], six: k == intent.WireGuard6,
		nodes: map[netip.Prefix]string{}, blocks: map[string]map[netip.Prefix]bool{}, others: map[string]intent.TunnelPeer{}, locals: map[netip.Prefix]bool{},
		hosts: map[netip.Addr]map[string]bool{}, keys: map[string]wg.Key{}, dirty: map[string]bool{}, bits: map[int]int{}, ends: map[netip.Addr]bool{},
		skips: delta.New[rtnl.SkipRule](func(want, is bool) bool { return want == is }),
		peers: delta.New[wg.Key](func(want, is peer) bool { return want == is }),
		routes: delta.New[routeKey](func(want, is rtnl.Route) bool {
			return want.Kind == is.Kind && want.Link == is.Link && want.Source == is.Source && want.Table == is.Table
		}),
	}
}

// kind is that of the tunnel.
func (w *wireguard) kind() intent.TunnelKind {
	return [2]intent.TunnelKind{intent.WireGuard, intent.WireGuard6}[w.family]
}

// settle takes settings.
func (w *wireguard) settle(h intent.HostSettings) {
	on, want, mark := h.WireGuard.On[w.family], h.Tunnels[w.kind()], kernel.Marks(h.MarkMask).Of(kernel.MarkEncrypted)
	if on == w.on && want == w.want && mark == w.mark && h.WireGuard.Equal(w.as) {
		return
	}
	if h.WireGuard.KeepAlive != w.as.KeepAlive || h.WireGuard.Port != w.as.Port || h.WireGuard.Hosts != w.as.Hosts || want != w.want {
		w.all()
	}
	if name := h.WireGuard.Link[w.family]; name != "" && name != w.name {
		w.name, w.index, w.public = name, 0, wg.Key{}
	}
	w.on, w.want, w.mark, w.as, w.check = on, want, mark, h.WireGuard, true
	for of, table := range w.tables {
		if !w.may(table) {
			w.tables[of] = 0
			w.all()
		}
	}
}

// all has every peer and route worked out again.
func (w *wireguard) all() {
	for node := range w.blocks {
		w.dirty[node] = true
	}
	for node := range w.others {
		w.dirty[node] = true
	}
	for host := range w.hosts {
		w.ends[host] = true
	}
	w.moved = true
}

// merge takes routes and peers.
func (w *wireguard) merge(b intent.Batch) {
	for _, k := range b.Removed {
		switch id := k.(type) {
		case intent.RouteID:
			if id.Prefix.Addr().Is6() == w.six {
				w.put(id.Prefix, "")
				w.local(id.Prefix, false)
			}
		case intent.PeerID:
			if id.Kind == w.kind() {
				w.forget(id.Node)
			}
		}
	}
	for _, r := range b.Routes {
		if dst := r.Dst.Masked(); dst.Addr().Is6() == w.six {
			node := ""
			if r.Kind == intent.RouteEncrypted {
				node = r.Node
			}
			w.put(dst, node)
			w.local(dst, r.Kind == intent.RouteLink)
		}
	}
	for _, p := range b.Peers {
		if p.Kind == w.kind() {
			w.forget(p.Node)
			if w.hosts[p.Host] == nil {
				w.hosts[p.Host] = map[string]bool{}
			}
			w.others[p.Node], w.hosts[p.Host][p.Node], w.ends[p.Host] = p, true, true
		}
	}
}

// forget takes a peer away.
func (w *wireguard) forget(node string) {
	w.dirty[node] = true
	p, is := w.others[node]
	if !is {
		return
	}
	delete(w.others, node)
	w.ends[p.Host] = true
	if delete(w.hosts[p.Host], node); len(w.hosts[p.Host]) == 0 {
		delete(w.hosts, p.Host)
	}
	for other := range w.hosts[p.Host] {
		w.dirty[other] = true
	}
}

// holder is the node that may send from a host's address, which a device takes from one peer alone: of those that say it is theirs, one with
// destinations, and then the first by name.
func (w *wireguard) holder(host netip.Addr) (node string) {
	for n := range w.hosts[host] {
		if has, had := len(w.blocks[n]) > 0, len(w.blocks[node]) > 0; node == "" || has && !had || has == had && n < node {
			node = n
		}
	}
	return node
}

// put notes who has a destination; empty: nobody to whom packets are encrypted.
func (w *wireguard) put(dst netip.Prefix, node string) {
	was := w.nodes[dst]
	if was == node {
		return
	}
	w.moved = true
	if was != "" {
		w.dirty[was] = true
		if delete(w.blocks[was], dst); len(w.blocks[was]) == 0 {
			delete(w.blocks, was)
		}
		if w.bits[dst.Bits()]--; w.bits[dst.Bits()] == 0 {
			delete(w.bits, dst.Bits())
		}
		delete(w.nodes, dst)
		w.routes.Undesire(routeKey{dst, kernel.RouteMetricHosts, toWorkloads})
		w.routes.Undesire(routeKey{dst, metricClosed, toWorkloads})
	}
	if node == "" {
		return
	}
	w.dirty[node], w.nodes[dst] = true, node
	w.bits[dst.Bits()]++
	if w.blocks[node] == nil {
		w.blocks[node] = map[netip.Prefix]bool{}
	}
	w.blocks[node][dst] = true
}

// local notes an address of one of this host's endpoints.
func (w *wireguard) local(dst netip.Prefix, is bool) {
	if w.locals[dst] == is {
		return
	}
	w.moved = true
	if w.locals[dst] = is; !is {
		delete(w.locals, dst)
		w.routes.Undesire(routeKey{dst, kernel.RouteMetricAgent, toWorkloads})
	}
}

// within reports whether an address is in a destination of another host's.
func (w *wireguard) within(dst netip.Prefix) bool {
	for bits := range w.bits {
		if p, err := dst.Addr().Prefix(bits); err == nil && bits < dst.Bits() && w.nodes[p] != "" {
			return true
		}
	}
	return false
}

// resolve works out what the device and the table should have, where something changed.
func (w *wireguard) resolve() {
	for node := range w.dirty {
		for other := range w.hosts[w.others[node].Host] {
			w.dirty[other] = true
		}
	}
	for node := range w.dirty {
		_, is := w.others[node]
		for dst := range w.blocks[node] {
			w.lead(dst, toWorkloads, is)
		}
	}
	w.resolvePeers()
	w.resolveHosts()
	clear(w.dirty)
	if !w.moved {
		return
	}
	w.moved = false
	for dst := range w.locals { // its block is another host's: the main table knows better
		if w.within(dst) {
			w.routes.Desire(routeKey{dst, kernel.RouteMetricAgent, toWorkloads}, rtnl.Route{Dst: dst, Kind: rtnl.Throw, Table: w.tables[toWorkloads], Protocol: kernel.RouteProtocolHosts, Metric: kernel.RouteMetricAgent})
		} else {
			w.routes.Undesire(routeKey{dst, kernel.RouteMetricAgent, toWorkloads})
		}
	}
}

// lead wants the two routes to a destination; without a way, only the one that leads nowhere.
func (w *wireguard) lead(dst netip.Prefix, of int, way bool) {
	w.routes.Desire(routeKey{dst, metricClosed, of}, w.route(dst, of, rtnl.Unreachable))
	if through := (routeKey{dst, kernel.RouteMetricHosts, of}); way && w.index != 0 {
		w.routes.Desire(through, w.route(dst, of, rtnl.Unicast))
	} else {
		w.routes.Undesire(through)
	}
}

// resolveHosts works out which own addresses of other hosts are led to: those of hosts with a key. Which of two with one address gets the packets is
// a matter of peers.
func (w *wireguard) resolveHosts() {
	for host := range w.ends {
		dst := netip.PrefixFrom(host, host.BitLen())
		if w.hosted() && len(w.hosts[host]) > 0 {
			w.lead(dst, toHosts, true)
			continue
		}
		w.routes.Undesire(routeKey{dst, kernel.RouteMetricHosts, toHosts})
		w.routes.Undesire(routeKey{dst, metricClosed, toHosts})
	}
	clear(w.ends)
}

// resolvePeers works out what the device should know of other hosts. Of two with one key calc has sent one.
func (w *wireguard) resolvePeers() {
	for node := range w.dirty { // all, before the first gets what was another's
		if key, had := w.keys[node]; had {
			w.peers.Undesire(key)
			delete(w.keys, node)
		}
	}
	for node := range w.dirty {
		p, is := w.others[node]
		key, err := wg.ParseKey(p.Key)
		if !is || err != nil {
			continue
		}
		// What the other host itself sends to workloads here may have its own address.
		var allowed []netip.Prefix
		if w.holder(p.Host) == node {
			allowed = append(allowed, netip.PrefixFrom(p.Host, p.Host.BitLen()))
		}
		for dst := range w.blocks[node] {
			allowed = append(allowed, dst)
		}
		w.keys[node] = key
		w.peers.Desire(key, peer{netip.AddrPortFrom(p.Host, w.as.Port[w.family]), w.as.KeepAlive, joined(allowed)})
	}
}

func joined(ps []netip.Prefix) string {
	slices.SortFunc(ps, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	out := make([]string, len(ps))
	for i, p := range slices.Compact(ps) {
		out[i] = p.String()
	}
	return strings.TrimSpace(strings.Join(out, " "))
}

// route is one through the device, or one that leads nowhere. To other hosts, this one sends from its own address, as without the device: the
// device's would be another one for whoever lists addresses.
func (w *wireguard) route(dst netip.Prefix, of int, k rtnl.RouteKind) rtnl.Route {
	r := rtnl.Route{Dst: dst, Kind: k, Table: w.tables[of], Protocol: kernel.RouteProtocolHosts, Metric: metricClosed}
	if k == rtnl.Unicast {
		r.Link, r.Metric = w.index, kernel.RouteMetricHosts
		if of == toHosts {
			r.Source = w.want.Host
		}
	}
	return r
}

// encrypt makes a tunnel as wanted, or removes it.
func (d *Driver) encrypt(ctx context.Context, w *wireguard) error {
	if !d.settled || !w.check && len(w.dirty)+len(w.ends) == 0 && !w.moved {
		return nil
	}
	if !w.on {
		if w.check && d.inSync {
			if err := d.unencrypt(w); err != nil {
				return err
			}
			w.check = false
		}
		return nil
	}
	var errs []error
	if w.check {
		if err := d.readTables(w); err != nil {
			return err
		}
		was := w.index
		err := d.ensureWireGuard(w)
		w.check = err != nil // the rest is made all the same: without a device, nothing goes anywhere
		errs = append(errs, err)
		if was != w.index {
			w.all()
		}
	}
	for node := range w.dirty {
		d.note(w, node)
	}
	w.resolve()
	errs = append(errs, d.tellPeers(w), d.thread(w))
	if !w.hosted() {
		errs = append(errs, d.leaveStray(w)) // before the routes go to which a rule leads
	}
	errs = append(errs, d.tellRoutes(ctx, w), d.tellRules(w))
	err := errors.Join(errs...)
	w.check = w.check || err != nil
	return err
}

// note has the outcomes of a node's peer and routes sent.
func (d *Driver) note(w *wireguard, node string) {
	if _, is := w.others[node]; is {
		d.news[intent.PeerID{Node: node, Kind: w.kind()}] = true
	}
	for dst := range w.blocks[node] {
		d.ways[dst] = true
	}
}

// tellPeers gives the device what it lacks of peers, and takes away what nobody wants.
func (d *Driver) tellPeers(w *wireguard) error {
	if w.index == 0 {
		return nil
	}
	var c wg.Change
	for key, p := range w.peers.PendingUpdates() {
		out := wg.Peer{Key: key, Host: p.host, KeepAlive: p.keepAlive}
		for _, text := range strings.Fields(p.allowed) {
			out.Allowed = append(out.Allowed, netip.MustParsePrefix(text))
		}
		c.Set = append(c.Set, out)
	}
	for key := range w.peers.PendingDeletes() {
		if d.inSync {
			c.Remove = append(c.Remove, key)
		}
	}
	if len(c.Set)+len(c.Remove) == 0 {
		return nil
	}
	if err := d.cfg.WireGuard.Change(w.name, w.by, c); err != nil {
		return err
	}
	for _, p := range c.Set {
		w.peers.MarkApplied(p.Key)
	}
	for _, key := range c.Remove {
		w.peers.MarkDeleted(key)
	}
	return nil
}

// tellRoutes makes the tables of routes as wanted: what is missing first. Of the two routes to a destination, the one that leads nowhere comes last and goes
// first, so that what is led elsewhere before and after is never without a way.
func (d *Driver) tellRoutes(ctx context.Context, w *wireguard) error {
	var errs []error
	for _, closed := range []bool{false, true} {
		for key, r := range w.routes.PendingUpdates() {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if closed != (key.metric == metricClosed) {
				continue
			}
			if err := d.rtnl.ReplaceRoute(r); err != nil {
				errs = append(errs, fmt.Errorf("table %d: %w", r.Table, err))
				continue
			}
			w.routes.MarkApplied(key)
		}
	}
	for _, closed := range []bool{true, false} {
		for key := range w.routes.PendingDeletes() {
			if !d.inSync || closed != (key.metric == metricClosed) {
				continue
			}
			r, _ := w.routes.Actual(key)
			if err := ignoring(d.rtnl.DeleteRoute(r)); err != nil {
				errs = append(errs, fmt.Errorf("table %d: %w", r.Table, err))
				continue
			}
			w.routes.MarkDeleted(key)
		}
	}
	return errors.Join(errs...)
}
