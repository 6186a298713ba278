package tunnel

import (
	"errors"
	"fmt"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/wg"
)

// ensureWireGuard makes the device of a tunnel as wanted, but for its peers, which it reads.
func (d *Driver) ensureWireGuard(w *wireguard) error {
	was := w.index
	w.index = 0
	if d.cfg.WireGuard == nil || d.wg[0].on && d.wg[1].on && d.wg[0].name == d.wg[1].name {
		return fmt.Errorf("device %s: each family needs a WireGuard device of its own", w.name)
	}
	l, there, err := d.find(w)
	if err != nil {
		return err
	}
	if !there {
		if l, err = d.makeWireGuard(w); err != nil {
			return err
		}
	}
	is, err := d.cfg.WireGuard.Read(w.name, l.Kind)
	if err != nil {
		return err
	}
	c := wg.Change{Port: int(w.as.Port[w.family]), Mark: kernel.MarkEncrypted}
	if is.Public == (wg.Key{}) {
		if c.Private, err = wg.NewPrivate(); err != nil {
			return err
		}
		is.Public = c.Private.Public()
	}
	if c.Private != (wg.Key{}) || is.Port != c.Port || is.Mark != c.Mark {
		if err := d.cfg.WireGuard.Change(w.name, l.Kind, c); err != nil {
			return err
		}
	}
	if err := d.bring(&w.device, l, d.mtu.in(w.kind())); err != nil {
		return err
	}
	w.by = l.Kind
	d.made(&w.device, was, l, there)
	w.observe(is.Peers)
	d.publish(w, is.Public)
	return nil
}

// thread has threads take what a device of the kernel's receives, or not. It is the device's peers that have them: without one there is nothing to
// set. A kernel without such threads goes on without, and status says so.
func (d *Driver) thread(w *wireguard) error {
	if w.by != wg.Kind || w.index == 0 {
		return nil
	}
	is, err := d.rtnl.Threaded(w.name)
	if err == nil && is != w.as.Threads {
		err = d.rtnl.SetThreaded(w.name, w.as.Threads)
	}
	if errors.Is(err, rtnl.ErrNotFound) { // it has gone, and is made again
		return err
	}
	return nil
}

// publish says which public key this host has; the zero Key: none.
func (d *Driver) publish(w *wireguard, key wg.Key) {
	w.public = key
	if d.cfg.Keys == nil {
		return
	}
	text := ""
	if key != (wg.Key{}) {
		text = key.String()
	}
	d.cfg.Keys(w.kind(), text)
}

// observe takes what the device knows of other hosts. A host that sends from another address than its own is no drift.
func (w *wireguard) observe(ps []wg.Peer) {
	w.peers.ObservedAll(func(yield func(wg.Key, peer) bool) {
		for _, p := range ps {
			is := peer{p.Host, p.KeepAlive, joined(p.Allowed)}
			if was, known := w.peers.Actual(p.Key); known {
				is.host = was.host
			}
			if !yield(p.Key, is) {
				return
			}
		}
	})
}

// find returns the link of the device. One that a process had, and that nobody serves any more, is deleted, as is one of a process where
// settings want none.
func (d *Driver) find(w *wireguard) (l rtnl.Link, there bool, err error) {
	l, err = d.rtnl.Link(w.name)
	if errors.Is(err, rtnl.ErrNotFound) {
		return l, false, nil
	} else if err != nil {
		return l, false, err
	}
	if l.Kind == wg.Kind {
		return l, true, nil
	}
	_, err = d.cfg.WireGuard.Read(w.name, l.Kind)
	switch ours := l.Alias == kernel.TunnelAlias || err == nil; {
	case l.Kind != wg.Userspace || !ours:
		return l, false, fmt.Errorf("device %s is of kind %s, and not of WireGuard: rename or delete it", w.name, l.Kind)
	case err == nil && w.as.Userspace:
		return l, true, nil
	case err != nil && !errors.Is(err, wg.ErrNoDevice):
		return l, false, err
	}
	return l, false, ignoring(d.rtnl.DeleteLink(l.Index))
}

// makeWireGuard makes a device: the kernel's, or a process's where the kernel has none.
func (d *Driver) makeWireGuard(w *wireguard) (rtnl.Link, error) {
	err := d.rtnl.AddWireGuard(w.name)
	var without *kernel.UnsupportedError
	if errors.As(err, &without) {
		if !w.as.Userspace {
			return rtnl.Link{}, fmt.Errorf("%w: this kernel has no WireGuard, and wireguardUserspaceEnabled is false: what is for other hosts goes nowhere", err)
		}
		err = d.cfg.WireGuard.Start(w.name)
	}
	if err != nil {
		return rtnl.Link{}, err
	}
	return d.rtnl.Link(w.name)
}

// lastTable is the largest number of a table that is looked at for one of our own, as upstream does by default.
const lastTable = 250

// readTable reads the rules and the table of routes, which it chooses if none of our rules leads to one.
func (d *Driver) readTable(w *wireguard) error {
	rules, others, err := d.rtnl.MarkRules(kernel.RouteProtocolHosts)
	if err != nil {
		return err
	}
	w.ruled = false
	for _, r := range rules {
		if r.Six == w.six {
			w.ruled = w.ruled || r == w.rule(r.Table)
			if w.table == 0 {
				w.table = r.Table
			}
		}
	}
	if w.table != 0 {
		return d.readRoutes(w)
	}
	for t := 1; t <= lastTable; t++ {
		if all, err := d.rtnl.Routes(rtnl.RouteFilter{Table: t}); err != nil {
			return err
		} else if others[t] || foreign(all) {
			continue
		}
		w.table = t
		return d.readRoutes(w)
	}
	return fmt.Errorf("tables 1 to %d all have routes of others: none is left for WireGuard", lastTable)
}

// foreign reports whether some of the routes are not ours.
func foreign(all []rtnl.Route) bool {
	for _, r := range all {
		if r.Protocol != kernel.RouteProtocolHosts {
			return true
		}
	}
	return false
}

func (d *Driver) readRoutes(w *wireguard) error {
	all, err := d.rtnl.Routes(rtnl.RouteFilter{Table: w.table, Protocol: kernel.RouteProtocolHosts})
	if err != nil {
		return err
	}
	w.routes.ObservedAll(func(yield func(routeKey, rtnl.Route) bool) {
		for _, r := range all {
			if r.Dst.Addr().Is6() == w.six && !yield(routeKey{r.Dst, r.Metric}, r) {
				return
			}
		}
	})
	return nil
}

// rule leads packets into the table, but for those that a device of WireGuard sends.
func (w *wireguard) rule(table int) rtnl.MarkRule {
	return rtnl.MarkRule{Six: w.six, Priority: w.as.Priority, Table: table, Mark: kernel.MarkEncrypted}
}

// tellRule makes the rule, and then removes others of ours.
func (d *Driver) tellRule(w *wireguard) error {
	if w.ruled {
		return nil
	}
	if err := d.rtnl.AddMarkRule(w.rule(w.table), kernel.RouteProtocolHosts); err != nil && !errors.Is(err, rtnl.ErrExists) {
		return err
	}
	w.ruled = true
	return d.leaveRules(w, true)
}

// leaveRules removes our rules of the family; but for the one that is wanted, if that is to stay.
func (d *Driver) leaveRules(w *wireguard, but bool) error {
	rules, _, err := d.rtnl.MarkRules(kernel.RouteProtocolHosts)
	errs := []error{err}
	for _, r := range rules {
		if r.Six == w.six && (!but || r != w.rule(w.table)) {
			errs = append(errs, ignoring(d.rtnl.DeleteMarkRule(r, kernel.RouteProtocolHosts)))
			if w.table == 0 {
				w.table = r.Table // whose routes are to go, too
			}
		}
	}
	return errors.Join(errs...)
}

// unencrypt removes what is ours of a tunnel that nobody wants: the rule first, since without it the rest is nobody's way.
func (d *Driver) unencrypt(w *wireguard) error {
	if err := d.leaveRules(w, false); err != nil {
		return err
	}
	if w.table != 0 {
		all, err := d.rtnl.Routes(rtnl.RouteFilter{Table: w.table, Protocol: kernel.RouteProtocolHosts})
		errs := []error{err}
		for _, r := range all {
			if r.Dst.Addr().Is6() == w.six {
				errs = append(errs, ignoring(d.rtnl.DeleteRoute(r)))
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	w.routes.ResetActual()
	w.peers.ResetActual()
	w.table, w.index, w.ruled = 0, 0, false
	w.all() // for the time when it is wanted again
	d.publish(w, wg.Key{})
	return d.sweepWireGuard()
}

// sweepWireGuard deletes our devices of WireGuard that no setting names.
func (d *Driver) sweepWireGuard() error {
	links, err := d.rtnl.Links()
	errs := []error{err}
	for _, l := range links {
		if l.Alias != kernel.TunnelAlias || l.Kind != wg.Kind && l.Kind != wg.Userspace || d.wg[0].on && d.wg[0].name == l.Name || d.wg[1].on && d.wg[1].name == l.Name {
			continue
		}
		errs = append(errs, ignoring(d.rtnl.DeleteLink(l.Index)))
	}
	return errors.Join(errs...)
}

// differencesWireGuard returns a line for each deviation. It changes nothing.
func (d *Driver) differencesWireGuard(w *wireguard) (out []string, err error) {
	l, lerr := d.rtnl.Link(w.name)
	if lerr != nil && !errors.Is(lerr, rtnl.ErrNotFound) {
		return nil, lerr
	}
	there := lerr == nil && (l.Kind == wg.Kind || l.Kind == wg.Userspace)
	if !w.on {
		if there && l.Alias == kernel.TunnelAlias {
			out = append(out, fmt.Sprintf("device %s is there, and nobody wants it", w.name))
		}
		return out, nil
	}
	if err := d.readTable(w); err != nil {
		return nil, err
	}
	if !w.ruled {
		out = append(out, fmt.Sprintf("the rule into table %d, with the routes of %s, is missing", w.table, w.kind()))
	}
	if !there {
		out = append(out, fmt.Sprintf("device %s is missing", w.name))
	} else {
		is, err := d.cfg.WireGuard.Read(w.name, l.Kind)
		if err != nil {
			return nil, err
		}
		w.index = l.Index
		if l.Alias != kernel.TunnelAlias || !l.Up || l.MTU != d.mtu.in(w.kind()) || is.Port != int(w.as.Port[w.family]) || is.Mark != kernel.MarkEncrypted {
			out = append(out, fmt.Sprintf("device %s differs", w.name))
		}
		w.observe(is.Peers)
	}
	w.all()
	w.resolve()
	return append(out, w.lines()...), nil
}

// lines say what the device and the table have wrongly. At which address a peer was seen last is no matter.
func (w *wireguard) lines() (out []string) {
	for key, p := range w.peers.PendingUpdates() {
		is, known := w.peers.Actual(key)
		if is.host = p.host; !known || is != p {
			out = append(out, fmt.Sprintf("device %s: peer %s (%s) is missing or another", w.name, key, p.host))
		}
	}
	for key := range w.peers.PendingDeletes() {
		out = append(out, fmt.Sprintf("device %s: peer %s is there, and nobody wants it", w.name, key))
	}
	for key := range w.routes.PendingUpdates() {
		out = append(out, fmt.Sprintf("route %s in table %d is missing or another", key.dst, w.table))
	}
	for key := range w.routes.PendingDeletes() {
		out = append(out, fmt.Sprintf("route %s in table %d is there, and nobody wants it", key.dst, w.table))
	}
	return out
}

// encrypted are the outcomes of peers and routes of WireGuard that may have changed.
func (d *Driver) encrypted() (out []intent.Outcome) {
	for dst := range d.ways {
		w := d.wg[0]
		if dst.Addr().Is6() {
			w = d.wg[1]
		}
		node := w.nodes[dst]
		if node == "" {
			continue
		}
		o := intent.Outcome{Key: intent.RouteID{Prefix: dst}}
		switch _, known := w.others[node]; {
		case !known:
			o.Err, o.Final = fmt.Errorf("unreachable: %s or this host has no key of %s (twill get node -o yaml), and wireguardAllowUnencrypted is false", node, w.kind()), true
		case w.index == 0:
			o.Reason = "there is no device " + w.name + " yet"
		}
		out = append(out, o)
	}
	clear(d.ways)
	return out
}
