package rtnl

import (
	"encoding/binary"
	"net/netip"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Proxy is an address for which the host answers on a link, as if it had it: requests of ARP, if it forwards and its route to the address leads
// elsewhere, and neighbour solicitations, if the link has proxy_ndp.
type Proxy struct {
	Link int
	Addr netip.Addr
}

// SetProxy has the host answer. The entry has the agent's protocol, so that it is known for ours; one that is there gets that.
func (h *Handle) SetProxy(p Proxy) error {
	return wrap(h.neighbour(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, p), "proxy for %s on link %d", p.Addr, p.Link)
}

// DeleteProxy ends that.
func (h *Handle) DeleteProxy(p Proxy) error {
	return wrap(h.neighbour(unix.RTM_DELNEIGH, 0, p), "delete proxy for %s on link %d", p.Addr, p.Link)
}

// neighbour sends a request that the library cannot: it knows no protocol of neighbours.
func (h *Handle) neighbour(request, flags int, p Proxy) error {
	family := unix.AF_INET
	if p.Addr.Is6() {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(request, flags|unix.NLM_F_ACK)
	req.AddData(&netlink.Ndmsg{Family: uint8(family), Index: uint32(p.Link), Flags: unix.NTF_PROXY})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, p.Addr.AsSlice()))
	req.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, []byte{kernel.RouteProtocolAgent}))
	return h.ns.Do(func() error {
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}

// OwnProxies lists those with the agent's protocol.
func (h *Handle) OwnProxies() ([]Proxy, error) {
	var out []Proxy
	err := h.ns.Do(func() error {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			var part []Proxy
			err := dump(func() (err error) {
				part, err = ownProxies(family)
				return err
			})
			if err != nil {
				return err
			}
			out = append(out, part...)
		}
		return nil
	})
	return out, wrap(err, "list proxies")
}

func ownProxies(family int) (out []Proxy, err error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
	req.AddData(&netlink.Ndmsg{Family: uint8(family), Flags: unix.NTF_PROXY})
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		if len(m) < unix.SizeofNdMsg {
			continue
		}
		p, ours := Proxy{Link: int(binary.NativeEndian.Uint32(m[4:]))}, false
		attrs, err := nl.ParseRouteAttr(m[unix.SizeofNdMsg:])
		if err != nil {
			return nil, err
		}
		for _, a := range attrs {
			switch a.Attr.Type {
			case netlink.NDA_DST:
				p.Addr, _ = netip.AddrFromSlice(a.Value)
			case netlink.NDA_PROTOCOL:
				ours = len(a.Value) > 0 && a.Value[0] == kernel.RouteProtocolAgent
			}
		}
		if ours && p.Addr.IsValid() {
			out = append(out, p)
		}
	}
	return out, nil
}
