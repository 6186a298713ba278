package rtnl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// watchBuffer holds a burst of about 100,000 route events [tried]. It is forced, since the default limit is far lower.
const watchBuffer = 8 << 20

// Topic is a kind of events.
type Topic uint8

// Topics.
const (
	WatchLinks Topic = 1 << iota
	WatchAddrs
	WatchRoutes
	WatchConf
	WatchRules
)

// Event is one change. Exactly one of Link, Addr, Route, Conf and Rule is set.
type Event struct {
	Link  *Link
	Addr  *Addr
	Route *Route
	Conf  *Conf
	Rule  *Rule
	Gone  bool // else it is new, or has changed
}

// Rule is what an event says of a rule, by which packets are led to tables of routes.
type Rule struct {
	Protocol int // who made it
}

// Conf is a change of those settings of an interface for which the kernel sends events;
// what did not change is -1 (linux/netconf.h).
type Conf struct {
	Link                             int // -1: all interfaces, and new ones
	Family                           int // 4 or 6
	Forwarding, RPFilter, ProxyNeigh int
}

// Watcher receives events, in the order in which the kernel made the changes.
type Watcher struct {
	f   *os.File
	buf []byte
}

// Watch begins to receive. List after it, not before, and nothing is missed.
func (h *Handle) Watch(topics Topic) (*Watcher, error) {
	var w *Watcher
	err := h.ns.Do(func() (err error) { w, err = openWatch(topics); return err })
	return w, wrap(err, "watch")
}

func openWatch(topics Topic) (*Watcher, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	w := &Watcher{f: os.NewFile(uintptr(fd), "rtnetlink"), buf: make([]byte, 64<<10)}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, watchBuffer); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	var groups uint32
	for _, g := range []struct {
		topic Topic
		group int
	}{
		{WatchLinks, unix.RTNLGRP_LINK},
		{WatchAddrs, unix.RTNLGRP_IPV4_IFADDR},
		{WatchAddrs, unix.RTNLGRP_IPV6_IFADDR},
		{WatchRoutes, unix.RTNLGRP_IPV4_ROUTE},
		{WatchRoutes, unix.RTNLGRP_IPV6_ROUTE},
		{WatchConf, unix.RTNLGRP_IPV4_NETCONF},
		{WatchConf, unix.RTNLGRP_IPV6_NETCONF},
		{WatchRules, unix.RTNLGRP_IPV4_RULE},
		{WatchRules, unix.RTNLGRP_IPV6_RULE},
	} {
		if topics&g.topic != 0 {
			groups |= 1 << (g.group - 1)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Close ends the watch, and a Receive that waits, with os.ErrClosed.
func (w *Watcher) Close() error { return w.f.Close() }

// Receive waits for events. After ErrOverrun the watch goes on, with what comes from then on; what was listed before
// must be listed again.
func (w *Watcher) Receive() ([]Event, error) {
	raw, err := w.f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	var n int
	var from unix.Sockaddr
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		n, from, rerr = unix.Recvfrom(int(fd), w.buf, unix.MSG_TRUNC)
		if errors.Is(rerr, unix.ENOBUFS) {
			drain(int(fd), w.buf)
		}
		return !errors.Is(rerr, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("watch: %w (%w)", os.ErrClosed, err) // the poller's own error is not that one
	case errors.Is(rerr, unix.ENOBUFS), n > len(w.buf):
		return nil, ErrOverrun
	case rerr != nil:
		return nil, wrap(rerr, "watch")
	}
	if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != 0 {
		return nil, nil // from another process: only the kernel is trusted
	}
	msgs, err := syscall.ParseNetlinkMessage(w.buf[:n])
	if err != nil {
		return nil, ErrOverrun // unreadable is as good as lost
	}
	var out []Event
	for _, m := range msgs {
		if e, ok := parseEvent(m); ok {
			out = append(out, e)
		}
	}
	return out, nil
}

// Follow has a loop learn of events until the context ends: note makes a function of them, which is sent to notes; nil: they concern nobody.
// If it gets none, some were lost, and what was listed before must be listed again.
func (h *Handle) Follow(ctx context.Context, topics Topic, notes chan<- func(), note func([]Event) func()) error {
	w, err := h.Watch(topics)
	if err != nil {
		return err
	}
	defer w.Close()
	defer context.AfterFunc(ctx, func() { _ = w.Close() })()
	for {
		events, err := w.Receive()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrOverrun):
			events = nil
		case err != nil:
			return err
		case len(events) == 0:
			continue
		}
		f := note(events)
		if f == nil {
			continue
		}
		select {
		case notes <- f:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drain empties the queue after an overrun. Until it is empty the kernel drops all that comes, without another error
// [tried], so that a list made before would miss it.
func drain(fd int, buf []byte) {
	for {
		if _, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func parseEvent(m syscall.NetlinkMessage) (Event, bool) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] == unix.AF_BRIDGE {
			return Event{}, false // RTM_DELLINK of a bridge's family only says that the link left the bridge
		}
		l, err := netlink.LinkDeserialize((*unix.NlMsghdr)(&m.Header), m.Data)
		if err != nil {
			return Event{}, false
		}
		link := fromLink(l)
		return Event{Link: &link, Gone: m.Header.Type == unix.RTM_DELLINK}, true
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		a, ok := parseAddr(m.Data)
		return Event{Addr: &a, Gone: m.Header.Type == unix.RTM_DELADDR}, ok
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		r, ok := parseRoute(m.Data)
		return Event{Route: &r, Gone: m.Header.Type == unix.RTM_DELROUTE}, ok
	case unix.RTM_NEWNETCONF:
		c, ok := parseConf(m.Data)
		return Event{Conf: &c}, ok
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		r, ok := parseRule(m.Data)
		return Event{Rule: &r, Gone: m.Header.Type == unix.RTM_DELRULE}, ok
	}
	return Event{}, false
}

func parseRule(b []byte) (Rule, bool) {
	if len(b) < unix.SizeofRtMsg { // struct fib_rule_hdr is as long (linux/fib_rules.h)
		return Rule{}, false
	}
	attrs, err := nl.ParseRouteAttr(b[unix.SizeofRtMsg:])
	if err != nil {
		return Rule{}, false
	}
	var r Rule
	for _, a := range attrs {
		if a.Attr.Type == unix.FRA_PROTOCOL && len(a.Value) > 0 {
			r.Protocol = int(a.Value[0])
		}
	}
	return r, true
}

// Attributes of a netconfmsg, and its length padded (linux/netconf.h).
const (
	netconfLink       = 1
	netconfForwarding = 2
	netconfRPFilter   = 3
	netconfProxyNeigh = 5
	netconfLen        = 4
)

func parseConf(b []byte) (Conf, bool) {
	if len(b) < netconfLen {
		return Conf{}, false
	}
	attrs, err := nl.ParseRouteAttr(b[netconfLen:])
	if err != nil {
		return Conf{}, false
	}
	c := Conf{Family: 4, Forwarding: -1, RPFilter: -1, ProxyNeigh: -1}
	if b[0] == unix.AF_INET6 {
		c.Family = 6
	}
	seen := false
	for _, a := range attrs {
		if len(a.Value) < 4 {
			continue
		}
		v := int(int32(binary.NativeEndian.Uint32(a.Value)))
		switch a.Attr.Type {
		case netconfLink:
			c.Link, seen = v, true
		case netconfForwarding:
			c.Forwarding = v
		case netconfRPFilter:
			c.RPFilter = v
		case netconfProxyNeigh:
			c.ProxyNeigh = v
		}
	}
	return c, seen
}

func parseAddr(b []byte) (Addr, bool) {
	if len(b) < unix.SizeofIfAddrmsg {
		return Addr{}, false
	}
	msg := nl.DeserializeIfAddrmsg(b)
	attrs, err := nl.ParseRouteAttr(b[unix.SizeofIfAddrmsg:])
	if err != nil {
		return Addr{}, false
	}
	a := Addr{Link: int(msg.Index), LinkScope: msg.Scope == unix.RT_SCOPE_LINK, Global: msg.Scope == unix.RT_SCOPE_UNIVERSE}
	var local, address netip.Addr
	var flags uint32
	for _, at := range attrs {
		switch at.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(at.Value)
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(at.Value)
		case unix.IFA_FLAGS:
			if len(at.Value) >= 4 {
				flags = binary.NativeEndian.Uint32(at.Value)
			}
		}
	}
	switch {
	case local.IsValid() && (local == address || !address.IsValid()):
		a.Prefix = netip.PrefixFrom(local, int(msg.Prefixlen))
	case local.IsValid(): // point to point: the length is that of the peer's
		a.Prefix = host(local)
	default:
		a.Prefix = netip.PrefixFrom(address, int(msg.Prefixlen))
	}
	a.mark(flags)
	return a, a.Prefix.IsValid()
}

func parseRoute(b []byte) (Route, bool) {
	if len(b) < unix.SizeofRtMsg {
		return Route{}, false
	}
	msg := nl.DeserializeRtMsg(b)
	attrs, err := nl.ParseRouteAttr(b[unix.SizeofRtMsg:])
	if err != nil || msg.Flags&unix.RTM_F_CLONED != 0 {
		return Route{}, false
	}
	r := Route{Kind: kindOf(int(msg.Type)), Protocol: int(msg.Protocol), Table: int(msg.Table), OnLink: msg.Flags&unix.RTNH_F_ONLINK != 0, Global: msg.Scope == unix.RT_SCOPE_UNIVERSE}
	dst := netip.IPv4Unspecified()
	if msg.Family == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	for _, at := range attrs {
		number := 0
		if len(at.Value) == 4 {
			number = int(binary.NativeEndian.Uint32(at.Value))
		}
		switch at.Attr.Type {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(at.Value)
		case unix.RTA_GATEWAY:
			r.Gateway, _ = netip.AddrFromSlice(at.Value)
		case unix.RTA_PREFSRC:
			r.Source, _ = netip.AddrFromSlice(at.Value)
		case unix.RTA_OIF:
			r.Link = number
		case unix.RTA_PRIORITY:
			r.Metric = number
		case unix.RTA_TABLE:
			r.Table = number
		case unix.RTA_VIA: // a gateway of IPv6 (RFC 5549)
			r.Global = false
		case unix.RTA_MULTIPATH:
			r.Hops = parseHops(at.Value)
		}
	}
	if r.Table == unix.RT_TABLE_MAIN {
		r.Table = 0
	}
	r.Dst = netip.PrefixFrom(dst, int(msg.Dst_len))
	return canonical(r), r.Dst.IsValid()
}
