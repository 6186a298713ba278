package rtnl

import (
	"errors"
	"net"
	"net/netip"

	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is a network interface.
type Link struct {
	Index  int
	Name   string
	Kind   string // veth, bridge, device, …
	MAC    string // empty if it has none
	MTU    int
	Alias  string // a text for its creator; without effect in the kernel
	Master int    // the index of its bridge, or 0
	Peer   int    // of a veth, the index of its other end, in that end's namespace
	Queues int    // for sending
	Up     bool   // administratively
	// Running: up, with a carrier, and the kernel has noticed that in a task of its own. Until then it throws away what is
	// to be sent.
	Running bool
}

// Links returns all links.
func (h *Handle) Links() ([]Link, error) {
	var out []Link
	err := dump(func() error {
		ls, err := h.nl.LinkList()
		out = out[:0]
		for _, l := range ls {
			out = append(out, fromLink(l))
		}
		return err
	})
	return out, wrap(err, "list links")
}

// Link returns the link of that name.
func (h *Handle) Link(name string) (Link, error) {
	l, err := h.nl.LinkByName(name)
	if err != nil {
		return Link{}, wrap(err, "link %s", name)
	}
	return fromLink(l), nil
}

// LinkAt returns the link of that index.
func (h *Handle) LinkAt(index int) (Link, error) {
	l, err := h.nl.LinkByIndex(index)
	if err != nil {
		return Link{}, wrap(err, "link %d", index)
	}
	return fromLink(l), nil
}

// Gone reports whether no link has that name and index any more; another may have the name. If the kernel does not say, it is false.
func (h *Handle) Gone(name string, index int) bool {
	l, err := h.Link(name)
	return errors.Is(err, ErrNotFound) || err == nil && l.Index != index
}

// SetUp turns a link on or off.
func (h *Handle) SetUp(index int, up bool) error {
	l := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
	if up {
		return wrap(h.nl.LinkSetUp(l), "link %d up", index)
	}
	return wrap(h.nl.LinkSetDown(l), "link %d down", index)
}

// SetMAC changes the hardware address of a link.
func (h *Handle) SetMAC(index int, mac string) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return wrap(err, "link %d", index)
	}
	return wrap(h.nl.LinkSetHardwareAddr(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, hw), "link %d: address %s", index, mac)
}

// SetAlias sets a link's alias, at most 255 bytes.
func (h *Handle) SetAlias(index int, text string) error {
	return wrap(h.nl.LinkSetAlias(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, text), "alias of link %d", index)
}

// SetMaster puts a link into a bridge; 0 takes it out.
func (h *Handle) SetMaster(index, master int) error {
	return wrap(h.nl.LinkSetMasterByIndex(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, master), "link %d: master %d", index, master)
}

// Veth is a pair of links to be made.
type Veth struct {
	Name, Peer string        // of both ends
	PeerIn     *netns.Handle // where the peer is; nil: here, too
	MTU        int           // of both ends; zero: the kernel's default
	PeerMAC    string        // empty: a random one
	Queues     int           // of both ends, each way; zero: the kernel's default
}

// AddVeth makes a pair of links that are down.
func (h *Handle) AddVeth(v Veth) error {
	l := netlink.NewVeth(netlink.LinkAttrs{Name: v.Name, TxQLen: -1, MTU: v.MTU, NumTxQueues: v.Queues, NumRxQueues: v.Queues})
	l.PeerName = v.Peer
	if v.PeerIn != nil {
		l.PeerNamespace = netlink.NsFd(v.PeerIn.FD())
	}
	if v.PeerMAC != "" {
		mac, err := net.ParseMAC(v.PeerMAC)
		if err != nil {
			return wrap(err, "add veth %s to %s", v.Name, v.Peer)
		}
		l.PeerHardwareAddr = mac
	}
	return wrap(h.nl.LinkAdd(l), "add veth %s to %s", v.Name, v.Peer)
}

// AddBridge makes a bridge that is down.
func (h *Handle) AddBridge(name string) error {
	return wrap(h.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}}), "add bridge %s", name)
}

// DeleteLink removes a link, and with it the other end of a veth.
func (h *Handle) DeleteLink(index int) error {
	return wrap(h.nl.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}), "delete link %d", index)
}

func fromLink(l netlink.Link) Link {
	a := l.Attrs()
	peer := 0
	if l.Type() == "veth" {
		peer = a.ParentIndex
	}
	return Link{
		Index: a.Index, Name: a.Name, Kind: l.Type(), MAC: a.HardwareAddr.String(), MTU: a.MTU, Alias: a.Alias, Master: a.MasterIndex, Peer: peer, Queues: a.NumTxQueues,
		Up: a.RawFlags&unix.IFF_UP != 0, Running: a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_RUNNING != 0,
	}
}

// Addr is an address of a link.
type Addr struct {
	Link   int          // its index
	Prefix netip.Prefix // the address, not masked
	// LinkScope: it is good on this link only, so that the kernel does not choose it as source for others.
	LinkScope bool
	Global    bool // of global scope, which an address has unless another is said
	Tentative bool // IPv6 is still asking whether another has it; nothing answers yet
	Duplicate bool // duplicate address detection failed
	Transient bool // IPv6: temporary, for privacy, or deprecated; another takes its place
	Secondary bool // IPv4: another address of the same network was there before it
	Lasting   bool // it has no lifetime: no DHCP server or router gave it
}

// mark takes over the kernel's flags (IFA_F_…).
func (a *Addr) mark(flags uint32) {
	a.Tentative = flags&unix.IFA_F_TENTATIVE != 0
	a.Duplicate = flags&unix.IFA_F_DADFAILED != 0
	// Temporary addresses of IPv6 and secondary ones of IPv4 have the same flag.
	a.Secondary = a.Prefix.Addr().Is4() && flags&unix.IFA_F_SECONDARY != 0
	a.Transient = flags&unix.IFA_F_DEPRECATED != 0 || a.Prefix.Addr().Is6() && flags&unix.IFA_F_TEMPORARY != 0
	a.Lasting = flags&unix.IFA_F_PERMANENT != 0
}

// Addrs returns all addresses of all links.
func (h *Handle) Addrs() ([]Addr, error) {
	var out []Addr
	err := dump(func() error {
		as, err := h.nl.AddrList(nil, netlink.FAMILY_ALL)
		out = out[:0]
		for _, a := range as {
			if p, ok := fromIPNet(a.IPNet); ok {
				addr := Addr{Link: a.LinkIndex, Prefix: p, LinkScope: a.Scope == unix.RT_SCOPE_LINK, Global: a.Scope == unix.RT_SCOPE_UNIVERSE}
				addr.mark(uint32(a.Flags))
				out = append(out, addr)
			}
		}
		return err
	})
	return out, wrap(err, "list addresses")
}

// AddAddr adds an address. IPv6 addresses are usable at once: we never share a link with strangers who could have the
// same address, and a workload must not wait a second for that answer.
func (h *Handle) AddAddr(a Addr) error {
	v := &netlink.Addr{IPNet: toIPNet(a.Prefix), LinkIndex: a.Link}
	if a.LinkScope {
		v.Scope = unix.RT_SCOPE_LINK
	}
	if a.Prefix.Addr().Is6() {
		v.Flags = unix.IFA_F_NODAD
	}
	return wrap(h.nl.AddrAdd(nil, v), "add address %s to link %d", a.Prefix, a.Link)
}

// DeleteAddr removes an address.
func (h *Handle) DeleteAddr(a Addr) error {
	return wrap(h.nl.AddrDel(nil, &netlink.Addr{IPNet: toIPNet(a.Prefix), LinkIndex: a.Link}), "delete address %s from link %d", a.Prefix, a.Link)
}

func toIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func fromIPNet(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	if bits == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, ones), true
}
