package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// ensure makes the device of a kind as wanted, and reads what it knows; or it removes it, if it is ours and not wanted.
func (d *Driver) ensure(f int, v *device) error {
	if v.name == intent.LinkIPIP {
		return d.ensureIPIP(v)
	}
	was := v.index
	v.index = 0
	l, is, err := d.rtnl.VXLAN(v.name)
	there := err == nil
	if err != nil && !errors.Is(err, rtnl.ErrNotFound) {
		return err
	}
	if v.want == (intent.Tunnel{}) {
		if there && l.Alias == kernel.TunnelAlias && d.inSync {
			return ignoring(d.rtnl.DeleteLink(l.Index))
		}
		return nil
	}
	want := d.wanted(f, v)
	if there && (is.VNI != want.VNI || is.Port != want.Port || is.Local != want.Local) { // what cannot be changed
		if err := ignoring(d.rtnl.DeleteLink(l.Index)); err != nil {
			return err
		}
		there = false
	}
	if !there {
		if err := d.rtnl.AddVXLAN(want); err != nil {
			return err
		}
		if l, is, err = d.rtnl.VXLAN(v.name); err != nil {
			return err
		}
	}
	if err := d.change(v, l, is, want); err != nil {
		return err
	}
	if err := d.learn(v, l.Index); err != nil {
		return err
	}
	d.made(v, was, l, there)
	return nil
}

// made notes that a device is as wanted, which had the index was, and what that repaired. others: somebody else had made and left it.
func (d *Driver) made(v *device, was int, l rtnl.Link, others bool) {
	switch {
	case was != 0 && was != l.Index:
		d.repairs = append(d.repairs, intent.Repair{What: "device " + v.name, Cause: intent.ByEvent})
	case was == 0 && l.Alias != kernel.TunnelAlias && others:
		d.repairs = append(d.repairs, intent.Repair{What: "device " + v.name, Cause: intent.ByTakeOver})
	}
	v.index = l.Index
	for id := range v.peers {
		if was == 0 {
			d.news[id] = true
		}
	}
}

// wanted is the device that a family should have.
func (d *Driver) wanted(f int, v *device) rtnl.VXLAN {
	return rtnl.VXLAN{
		Name: v.name, VNI: cmp.Or(d.as.VNI, intent.VNI), Port: cmp.Or(int(d.as.Port), intent.PortVXLAN), Local: v.want.Host, MAC: v.want.MAC, MTU: d.mtu.in(intent.TunnelKind(f)),
	}
}

// change brings what of a VXLAN device can be changed to what is wanted.
func (d *Driver) change(v *device, l rtnl.Link, is, want rtnl.VXLAN) error {
	var err error
	if is.MAC != want.MAC {
		err = d.rtnl.SetMAC(l.Index, want.MAC)
	}
	return errors.Join(err, d.bring(v, l, want.MTU))
}

// bring makes of a device what all devices of tunnels are; it is up last.
func (d *Driver) bring(v *device, l rtnl.Link, mtu int) error {
	var errs []error
	if l.MTU != mtu {
		errs = append(errs, d.rtnl.SetMTU(l.Index, mtu))
	}
	if l.Alias != kernel.TunnelAlias {
		errs = append(errs, d.rtnl.SetAlias(l.Index, kernel.TunnelAlias))
	}
	addrs, err := d.rtnl.Addrs()
	errs = append(errs, err)
	have := false
	for _, a := range addrs {
		switch {
		case a.Link != l.Index || a.Prefix.Addr().IsLinkLocalUnicast():
		case a.Prefix.Addr() == v.want.Addr && a.Prefix.IsSingleIP():
			have = true
		case d.inSync:
			errs = append(errs, ignoring(d.rtnl.DeleteAddr(a)))
		}
	}
	if !have && v.want.Addr.IsValid() {
		errs = append(errs, d.rtnl.AddAddr(rtnl.Addr{Link: l.Index, Prefix: netip.PrefixFrom(v.want.Addr, v.want.Addr.BitLen())}))
	}
	errs = append(errs, d.checksums(v), d.loosen(v))
	if !l.Up {
		errs = append(errs, d.rtnl.SetUp(l.Index, true))
	}
	return errors.Join(errs...)
}

// learn reads what a device knows of other hosts.
func (d *Driver) learn(v *device, index int) error {
	forwards, err := d.rtnl.Forwards(index)
	if err != nil {
		return err
	}
	neighbours, err := d.rtnl.Neighbours()
	if err != nil {
		return err
	}
	v.forwards.ObservedAll(func(yield func(string, netip.Addr) bool) {
		for _, e := range forwards {
			if !yield(e.MAC, e.Host) {
				return
			}
		}
	})
	v.neighbours.ObservedAll(func(yield func(netip.Addr, string) bool) {
		for _, n := range neighbours {
			if n.Permanent && n.Link == index && !n.Addr.IsMulticast() && !yield(n.Addr, n.MAC) {
				return
			}
		}
	})
	return nil
}

// ignoring leaves out that what was to go is gone.
func ignoring(err error) error {
	if errors.Is(err, rtnl.ErrNotFound) {
		return nil
	}
	return err
}

// Differences returns one line for each deviation of the kernel from the intents. It changes nothing.
func (d *Driver) Differences(context.Context) ([]string, error) {
	if err := d.mtu.read(d.rtnl); err != nil {
		return nil, err
	}
	var out []string
	for f, v := range d.devices[:intent.IPIP] {
		l, is, err := d.rtnl.VXLAN(v.name)
		switch {
		case errors.Is(err, rtnl.ErrNotFound):
			if v.want != (intent.Tunnel{}) {
				out = append(out, fmt.Sprintf("device %s is missing", v.name))
			}
			continue
		case err != nil:
			return nil, err
		case v.want == (intent.Tunnel{}):
			if l.Alias == kernel.TunnelAlias {
				out = append(out, fmt.Sprintf("device %s is there, and nobody wants it", v.name))
			}
			continue
		}
		want := d.wanted(f, v)
		if is != want || !l.Up || l.Alias != kernel.TunnelAlias {
			out = append(out, fmt.Sprintf("device %s differs", v.name))
		}
		if err := d.learn(v, l.Index); err != nil {
			return nil, err
		}
		out = append(append(out, d.strict(v)...), v.lines()...)
	}
	ipip, err := d.differencesIPIP(d.devices[intent.IPIP])
	out = append(out, ipip...)
	for _, w := range d.wg {
		lines, werr := d.differencesWireGuard(w)
		out, err = append(out, lines...), errors.Join(err, werr)
	}
	return out, err
}

// lines say what a device knows wrongly.
func (v *device) lines() (out []string) {
	for _, mac := range slices.Sorted(maps.Keys(maps.Collect(v.forwards.PendingUpdates()))) {
		out = append(out, fmt.Sprintf("device %s: %s is not forwarded as it should be", v.name, mac))
	}
	for mac := range v.forwards.PendingDeletes() {
		out = append(out, fmt.Sprintf("device %s: %s is forwarded, and nobody wants it", v.name, mac))
	}
	for addr := range v.neighbours.PendingUpdates() {
		out = append(out, fmt.Sprintf("device %s: neighbour %s is missing or another", v.name, addr))
	}
	for addr := range v.neighbours.PendingDeletes() {
		out = append(out, fmt.Sprintf("device %s: neighbour %s is there, and nobody wants it", v.name, addr))
	}
	return out
}
