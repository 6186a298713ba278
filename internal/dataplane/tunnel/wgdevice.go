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
	c := wg.Change{Port: int(w.as.Port[w.family]), Mark: w.mark}
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

// unencrypt removes what is ours of a tunnel that nobody wants: the rules first, since without them the rest is nobody's way.
func (d *Driver) unencrypt(w *wireguard) error {
	left := w.tables
	w.tables = [2]int{}
	errs := []error{d.leaveRules(w, false), d.leaveSkips(w)}
	for _, table := range left {
		errs = append(errs, d.wipe(w, table))
	}
	if err := errors.Join(errs...); err != nil {
		w.tables = left
		return err
	}
	w.routes.ResetActual()
	w.peers.ResetActual()
	w.index, w.ruled = 0, [2]bool{}
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
	if err := d.readTables(w); err != nil {
		return nil, err
	}
	out = append(out, w.ruleLines()...)
	if !there {
		out = append(out, fmt.Sprintf("device %s is missing", w.name))
	} else {
		is, err := d.cfg.WireGuard.Read(w.name, l.Kind)
		if err != nil {
			return nil, err
		}
		w.index = l.Index
		if l.Alias != kernel.TunnelAlias || !l.Up || l.MTU != d.mtu.in(w.kind()) || is.Port != int(w.as.Port[w.family]) || is.Mark != w.mark {
			out = append(out, fmt.Sprintf("device %s differs", w.name))
		}
		w.observe(is.Peers)
		out = append(out, d.strict(&w.device)...)
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
		out = append(out, fmt.Sprintf("route %s in table %d is missing or another", key.dst, w.tables[key.of]))
	}
	for key := range w.routes.PendingDeletes() {
		out = append(out, fmt.Sprintf("route %s in table %d is there, and nobody wants it", key.dst, w.tables[key.of]))
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
