package rtnl

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// VXLAN is a device that encapsulates Ethernet frames in UDP (RFC 7348). It learns nothing from packets: what it knows of other hosts is
// its [Forward] entries.
type VXLAN struct {
	Name  string
	VNI   int
	Port  int        // of UDP, on all hosts
	Local netip.Addr // the host's address from which packets come
	MAC   string
	MTU   int // of packets that it carries
}

// AddVXLAN makes a device that is down.
func (h *Handle) AddVXLAN(v VXLAN) error {
	hw, err := net.ParseMAC(v.MAC)
	if err != nil {
		return wrap(err, "add %s", v.Name)
	}
	return wrap(h.nl.LinkAdd(&netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: v.Name, MTU: v.MTU, HardwareAddr: hw, TxQLen: -1},
		VxlanId:   v.VNI, Port: v.Port, SrcAddr: v.Local.AsSlice(), Learning: false,
	}), "add %s", v.Name)
}

// VXLAN returns the device of that name. One of another kind has a VNI of -1, and one that learns has -2, which no device of ours has.
func (h *Handle) VXLAN(name string) (Link, VXLAN, error) {
	l, err := h.nl.LinkByName(name)
	if err != nil {
		return Link{}, VXLAN{}, wrap(err, "link %s", name)
	}
	a := l.Attrs()
	out := VXLAN{Name: name, VNI: -1, MAC: a.HardwareAddr.String(), MTU: a.MTU}
	if v, is := l.(*netlink.Vxlan); is {
		out.VNI, out.Port, out.Local = v.VxlanId, v.Port, fromIP(v.SrcAddr).Unmap()
		if v.Learning {
			out.VNI = -2
		}
	}
	return fromLink(l), out, nil
}

// SetMTU changes the largest packet of a link, in bytes.
func (h *Handle) SetMTU(index, mtu int) error {
	return wrap(h.nl.LinkSetMTU(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, mtu), "link %d: MTU %d", index, mtu)
}

// Forward says to which host a VXLAN device sends what is for a hardware address.
type Forward struct {
	Link int
	MAC  string
	Host netip.Addr
}

// Forwards lists those of a device.
func (h *Handle) Forwards(link int) ([]Forward, error) {
	loose, err := h.nonStrict()
	if err != nil {
		return nil, err
	}
	var out []Forward
	err = dump(func() error {
		ns, err := loose.NeighList(link, unix.AF_BRIDGE)
		out = out[:0]
		for _, n := range ns {
			if n.LinkIndex == link {
				out = append(out, Forward{link, n.HardwareAddr.String(), fromIP(n.IP).Unmap()})
			}
		}
		return err
	})
	return out, wrap(err, "forwarding entries of link %d", link)
}

// SetForward adds or changes an entry: there is one for each hardware address.
func (h *Handle) SetForward(f Forward) error { return h.one(func(b *Batch) { b.SetForward(f) }) }

// DeleteForward removes an entry.
func (h *Handle) DeleteForward(f Forward) error { return h.one(func(b *Batch) { b.DeleteForward(f) }) }
