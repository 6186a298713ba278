// Package tunnel keeps the host's devices of VXLAN, IPIP and WireGuard tunnels, what those of VXLAN and WireGuard know of other hosts, and
// the rules and routes that lead packets into WireGuard's.
//
// In: this host's ends of tunnels ([intent.HostSettings]) and peers of [intent.Batch], and interfaces of ifmon.
// Out: for each tunnel a device with its address, whose MTU follows what the interfaces to other hosts carry, less what encapsulation adds; the size of
// workloads' packets, in a file and to whoever needs it; and for each peer of VXLAN a permanent neighbour and a forwarding entry, so
// that nothing is learned or asked; an [intent.Outcome] for each peer.
//
// A device is ours by its name and its alias. What others put on one of ours is removed. One without the alias, such as an upstream agent
// left, is taken over where a tunnel is wanted, and left alone otherwise. Nothing is removed before the source is in sync. Package fib has
// the routes through the other devices.
package tunnel

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/dataplane/delta"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
	"github.com/twillnet/twill/internal/kernel/wg"
)

// Driver is the driver.
type Driver struct {
	rtnl    *rtnl.Handle
	devices [3]*device // of intent.VXLAN, intent.VXLAN6 and intent.IPIP
	wg      [2]*wireguard
	as      intent.VXLANSettings
	sums    intent.Checksums
	mtu     meter
	cfg     Config
	last    MTU // as Notify has it
	inSync  bool
	failed  map[intent.PeerID]error
	news    map[intent.PeerID]bool // whose outcome may have changed
	ways    map[netip.Prefix]bool  // the same of destinations of WireGuard
	repairs []intent.Repair
	refresh time.Duration
	settled bool // refresh is known
	notes   chan func()
}

// device is that of one kind of tunnel.
type device struct {
	name  string
	want  intent.Tunnel
	peers map[intent.PeerID]intent.TunnelPeer
	index int  // zero: it is not there, or not as wanted
	check bool // it may differ from what is wanted
	plain bool // checksums were taken from the device

	neighbours *delta.Map[netip.Addr, string] // hardware addresses
	forwards   *delta.Map[string, netip.Addr] // hosts, by hardware address
}

// Config says who else needs to know how large packets may be.
type Config struct {
	MTUFile string    // has the size of workloads' packets, as a decimal number without a line's end, as upstream's agent writes it; empty: no file
	Notify  func(MTU) // called when it changes, from Apply; nil: not called

	Sysctl    *sysctl.Handle                           // nil: settings of devices stay as they are
	WireGuard *wg.Handle                               // nil: there is no WireGuard
	Keys      func(k intent.TunnelKind, public string) // called with this host's public key of WireGuard, again and again, from Apply; empty: it has none; nil: not called
}

// New returns a driver for the handle's namespace.
func New(h *rtnl.Handle, cfg Config) *Driver {
	d := &Driver{rtnl: h, cfg: cfg, failed: map[intent.PeerID]error{}, news: map[intent.PeerID]bool{}, ways: map[netip.Prefix]bool{}, notes: make(chan func()), wg: [2]*wireguard{newWireGuard(intent.WireGuard), newWireGuard(intent.WireGuard6)}}
	for k := range d.devices {
		d.devices[k] = &device{
			name: intent.TunnelKind(k).Link(), check: true, peers: map[intent.PeerID]intent.TunnelPeer{},
			neighbours: delta.New[netip.Addr](func(want, is string) bool { return want == is }),
			forwards:   delta.New[string](func(want, is netip.Addr) bool { return want == is }),
		}
	}
	return d
}

// of returns the device of a kind; nil: it is none of this driver's.
func (d *Driver) of(k intent.TunnelKind) *device {
	if int(k) >= len(d.devices) {
		return nil
	}
	return d.devices[k]
}

// Merge merges a batch.
func (d *Driver) Merge(b intent.Batch) {
	if b.InSync && !d.inSync {
		d.inSync = true
		d.recheck()
	}
	if b.Host != nil {
		d.refresh, d.settled = b.Host.Refresh.Routes, true
		for k, v := range d.devices {
			v.check = v.check || v.want != b.Host.Tunnels[k] || d.as != b.Host.VXLAN || d.sums != b.Host.Checksums
			v.want = b.Host.Tunnels[k]
		}
		for _, w := range d.wg {
			w.settle(*b.Host)
		}
		if d.mtu.configure(*b.Host) {
			d.recheck()
		}
		d.as, d.sums = b.Host.VXLAN, b.Host.Checksums
	}
	for _, w := range d.wg {
		w.merge(b)
	}
	for _, k := range b.Removed {
		if id, is := k.(intent.PeerID); is {
			d.forget(id)
			delete(d.news, id)
		}
	}
	for _, p := range b.Peers { // all, before the first gets what was another's
		d.forget(p.ID())
	}
	for _, p := range b.Peers {
		v := d.of(p.Kind)
		if v == nil {
			continue
		}
		v.peers[p.ID()] = p
		if p.Kind != intent.IPIP { // whose packets go to the next hop of their route
			v.neighbours.Desire(p.Addr, p.MAC)
			v.forwards.Desire(p.MAC, p.Host)
		}
		d.news[p.ID()] = true
	}
}

// forget takes a peer away, with its addresses, which no other peer has.
func (d *Driver) forget(id intent.PeerID) {
	v := d.of(id.Kind)
	if v == nil {
		return
	}
	if p, known := v.peers[id]; known {
		v.neighbours.Undesire(p.Addr)
		v.forwards.Undesire(p.MAC)
	}
	delete(v.peers, id)
	delete(d.failed, id)
}

// Links takes interfaces that changed: a device that somebody changed, deleted or turned off is looked at again, and all are if an interface that
// leads to other hosts changed.
func (d *Driver) Links(changes []ifmon.Change) {
	for _, c := range changes {
		if d.mtu.concerns(c) {
			d.recheck()
		}
		for _, v := range d.devices {
			v.check = v.check || c.Name == v.name
		}
		for _, w := range d.wg {
			w.check = w.check || c.Name == w.name
		}
	}
}

// Retry has what failed tried again.
func (d *Driver) Retry() {
	for id := range d.failed {
		d.news[id] = true
	}
	clear(d.failed)
	d.recheck()
}

func (d *Driver) recheck() {
	d.mtu.stale = true
	for _, v := range d.devices {
		v.check = true
	}
	for _, w := range d.wg {
		w.check = true
	}
}

// Resync has the devices, and what they know, read back.
func (d *Driver) Resync(context.Context) error {
	d.recheck()
	return nil
}

// Refresh returns how often the settings want the devices read back; false: no settings came yet.
func (d *Driver) Refresh() (time.Duration, bool) { return d.refresh, d.settled }

// Repairs returns what was repaired since the last call.
func (d *Driver) Repairs() []intent.Repair {
	out := d.repairs
	d.repairs = nil
	return out
}

// Apply makes what is wanted. An error is a device's.
func (d *Driver) Apply(ctx context.Context) ([]intent.Outcome, error) {
	if err := d.measure(); err != nil {
		return nil, err
	}
	var errs []error
	for f, v := range d.devices {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if v.check {
			if err := d.ensure(f, v); err != nil {
				errs = append(errs, err)
				continue
			}
			v.check = false
		}
		if v.index != 0 {
			errs = append(errs, d.tell(v))
		}
	}
	for _, w := range d.wg {
		errs = append(errs, d.encrypt(ctx, w))
	}
	return append(d.outcomes(), d.encrypted()...), errors.Join(errs...)
}

// tell gives a device what it lacks of peers, and takes away what nobody wants.
func (d *Driver) tell(v *device) error {
	var b rtnl.Batch
	var macs []string
	for mac, host := range v.forwards.PendingUpdates() {
		b.SetForward(rtnl.Forward{Link: v.index, MAC: mac, Host: host})
		macs = append(macs, mac)
	}
	var addrs []netip.Addr
	for addr, mac := range v.neighbours.PendingUpdates() {
		b.SetNeighbour(rtnl.Neighbour{Link: v.index, Addr: addr, MAC: mac, Permanent: true})
		addrs = append(addrs, addr)
	}
	failed := map[string]error{} // by hardware address
	for i, err := range d.rtnl.Write(&b) {
		forward := i < len(macs)
		switch {
		case err != nil && forward:
			failed[macs[i]] = err
		case err != nil:
			mac, _ := v.neighbours.Desired(addrs[i-len(macs)])
			failed[mac] = errors.Join(failed[mac], err)
		case forward:
			v.forwards.MarkApplied(macs[i])
		default:
			v.neighbours.MarkApplied(addrs[i-len(macs)])
		}
	}
	if len(failed) > 0 {
		for id, p := range v.peers {
			if err := failed[p.MAC]; err != nil {
				d.failed[id] = err
				d.news[id] = true
			}
		}
	}
	if !d.inSync {
		return nil
	}
	return d.sweep(v)
}

func (d *Driver) sweep(v *device) error {
	var b rtnl.Batch
	macs := slices.Collect(v.forwards.PendingDeletes())
	for _, mac := range macs {
		host, _ := v.forwards.Actual(mac)
		b.DeleteForward(rtnl.Forward{Link: v.index, MAC: mac, Host: host})
	}
	addrs := slices.Collect(v.neighbours.PendingDeletes())
	for _, addr := range addrs {
		b.DeleteNeighbour(rtnl.Neighbour{Link: v.index, Addr: addr})
	}
	errs := d.rtnl.Write(&b)
	for i := range errs {
		switch errs[i] = ignoring(errs[i]); {
		case errs[i] != nil:
		case i < len(macs):
			v.forwards.MarkDeleted(macs[i])
		default:
			v.neighbours.MarkDeleted(addrs[i-len(macs)])
		}
	}
	return errors.Join(errs...)
}

// outcomes returns those that may have changed.
func (d *Driver) outcomes() []intent.Outcome {
	out := make([]intent.Outcome, 0, len(d.news))
	for id := range d.news {
		o := intent.Outcome{Key: id, Err: d.failed[id]}
		v := d.of(id.Kind)
		if v == nil {
			v = &d.wg[map[bool]int{true: 1}[id.Kind == intent.WireGuard6]].device
		}
		if v.index == 0 {
			o.Err, o.Reason = nil, "there is no device "+v.name+" yet"
		}
		out = append(out, o)
	}
	clear(d.news)
	return out
}
