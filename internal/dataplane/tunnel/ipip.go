package tunnel

import (
	"errors"
	"fmt"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// kindIPIP is the kernel's name of a device that puts packets into IPv4 packets (RFC 2003).
const kindIPIP = "ipip"

// ensureIPIP makes the device of IPIP as wanted, or bare and down, if it is ours and not wanted. It is the one that the kernel makes in each
// namespace when it gets the module, and that nobody can delete: without an end of its own, it sends to the next hop of a packet's route.
func (d *Driver) ensureIPIP(v *device) error {
	was := v.index
	v.index = 0
	l, err := d.rtnl.Link(v.name)
	there := err == nil
	if err != nil && !errors.Is(err, rtnl.ErrNotFound) {
		return err
	}
	if v.want == (intent.Tunnel{}) {
		if there && l.Alias == kernel.TunnelAlias && d.inSync {
			return d.rtnl.Bare(l.Index)
		}
		return nil
	}
	if !there {
		if err := d.rtnl.AddIPIP(v.name); err != nil && !errors.Is(err, rtnl.ErrExists) { // the kernel made it with the module
			return err
		}
		if l, err = d.rtnl.Link(v.name); err != nil {
			return err
		}
	}
	if l.Kind != kindIPIP {
		return fmt.Errorf("device %s is of kind %s, and not of IPIP: rename or delete it", v.name, l.Kind)
	}
	if err := d.bring(v, l, d.mtu.in(intent.IPIP)); err != nil {
		return err
	}
	d.made(v, was, l, there && l.Up)
	return nil
}

// differencesIPIP returns a line for each deviation.
func (d *Driver) differencesIPIP(v *device) ([]string, error) {
	l, err := d.rtnl.Link(v.name)
	wanted := v.want != (intent.Tunnel{})
	switch {
	case errors.Is(err, rtnl.ErrNotFound) && wanted:
		return []string{fmt.Sprintf("device %s is missing", v.name)}, nil
	case errors.Is(err, rtnl.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case wanted && (l.Kind != kindIPIP || !l.Up || l.MTU != d.mtu.in(intent.IPIP) || l.Alias != kernel.TunnelAlias):
		return []string{fmt.Sprintf("device %s differs", v.name)}, nil
	case !wanted && l.Alias == kernel.TunnelAlias:
		return []string{fmt.Sprintf("device %s has an end of a tunnel, and nobody wants it", v.name)}, nil
	case wanted:
		return d.strict(v), nil
	}
	return nil, nil
}
