package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/kernel/nlsock"
	"golang.org/x/sys/unix"
)

// chunk is how many bytes of messages are sent at once: some 1,000 routes, for which there is room in a socket as the kernel makes it.
const chunk = 64 << 10

// answers is room for the errors of a chunk of messages that all fail, as the kernel counts it.
const answers = 4 << 20

// errUnanswered: there was no room for the kernel's answer.
var errUnanswered = errors.New("the kernel's answer was lost")

// Batch is changes of routes, neighbours and forwarding entries, in the order in which they are to be made. The zero value has none.
type Batch struct {
	buf     []byte // the messages
	changes []change
}

// change is one message, and what an error of it says.
type change struct {
	end  int   // in the buffer
	err  error // it cannot be said to the kernel, and there is no message
	what what
}

// what names a change in an error, by a format and its arguments.
type what struct {
	format string
	dst    netip.Prefix
	mac    string
	link   int
}

func (w what) String() string {
	switch {
	case w.mac != "":
		return fmt.Sprintf(w.format, w.mac, w.link)
	case w.link != 0:
		return fmt.Sprintf(w.format, w.dst.Addr(), w.link)
	}
	return fmt.Sprintf(w.format, w.dst)
}

// Len is how many changes there are.
func (b *Batch) Len() int { return len(b.changes) }

// AddRoute adds a route; ErrExists: there is one with that destination, metric and table, whoever made it.
func (b *Batch) AddRoute(r Route) {
	b.route(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, r, what{format: "add route %s", dst: r.Dst})
}

// ReplaceRoute puts a route in the place of the one with that destination, metric and table, whoever made it, in one step;
// if there is none, it adds it.
func (b *Batch) ReplaceRoute(r Route) {
	b.route(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, r, what{format: "replace route %s", dst: r.Dst})
}

// DeleteRoute removes a route of that protocol and no other; ErrNotFound: there is none.
func (b *Batch) DeleteRoute(r Route) {
	if r.Protocol == 0 {
		panic("rtnl: a route is deleted by its protocol, or another's would go")
	}
	r.Source, r.OnLink, r.Hops = netip.Addr{}, false, Hops{} // not part of what identifies it; all next hops go
	b.route(unix.RTM_DELROUTE, 0, r, what{format: "delete route %s", dst: r.Dst})
}

// SetNeighbour adds or changes an entry: there is one for each link and address.
func (b *Batch) SetNeighbour(n Neighbour) {
	b.neighbour(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, n, what{format: "neighbour %s on link %d", dst: host(n.Addr), link: n.Link})
}

// DeleteNeighbour removes an entry; ErrNotFound: there is none.
func (b *Batch) DeleteNeighbour(n Neighbour) {
	n.MAC = ""
	b.neighbour(unix.RTM_DELNEIGH, 0, n, what{format: "delete neighbour %s on link %d", dst: host(n.Addr), link: n.Link})
}

// SetForward adds or changes an entry: there is one for each hardware address.
func (b *Batch) SetForward(f Forward) {
	b.forward(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, f, what{format: "forward %s on link %d", mac: f.MAC, link: f.Link})
}

// DeleteForward removes an entry; ErrNotFound: there is none.
func (b *Batch) DeleteForward(f Forward) {
	b.forward(unix.RTM_DELNEIGH, 0, f, what{format: "delete forward %s on link %d", mac: f.MAC, link: f.Link})
}

// begin appends the header of a message (struct nlmsghdr of linux/netlink.h), whose length end sets.
func (b *Batch) begin(kind, flags int) {
	b.buf = binary.NativeEndian.AppendUint32(b.buf, 0)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(kind))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(unix.NLM_F_REQUEST|flags))
	b.buf = append(b.buf, 0, 0, 0, 0, 0, 0, 0, 0) // the sequence number, set when it is sent, and the sender
}

func (b *Batch) start() int {
	if len(b.changes) == 0 {
		return 0
	}
	return b.changes[len(b.changes)-1].end
}

// end ends the message of a change.
func (b *Batch) end(w what) {
	start := b.start()
	binary.NativeEndian.PutUint32(b.buf[start:], uint32(len(b.buf)-start))
	b.changes = append(b.changes, change{end: len(b.buf), what: w})
}

// route appends a message of struct rtmsg (linux/rtnetlink.h).
func (b *Batch) route(kind, flags int, r Route, w what) {
	family, scope, typ, rflags := byte(unix.AF_INET), byte(unix.RT_SCOPE_UNIVERSE), byte(unix.RTN_UNICAST), uint32(0)
	metric, table := r.Metric, tableOf(r.Table)
	if r.Dst.Addr().Is6() {
		family = unix.AF_INET6
		if metric == 0 {
			metric = defaultMetric6 // so that a delete, too, names exactly one
		}
	}
	hops := r.Hops.List()
	switch {
	case r.Kind == Blackhole:
		typ = unix.RTN_BLACKHOLE
	case r.Kind == Unreachable:
		typ = unix.RTN_UNREACHABLE
	case r.Kind == Throw:
		typ = unix.RTN_THROW
	case len(hops) == 0 && !r.Gateway.IsValid() && !r.Global && kind == unix.RTM_NEWROUTE:
		scope = unix.RT_SCOPE_LINK
	}
	if kind == unix.RTM_DELROUTE {
		scope = unix.RT_SCOPE_NOWHERE // any
	}
	if r.OnLink {
		rflags = unix.RTNH_F_ONLINK
	}
	b.begin(kind, flags)
	b.buf = append(b.buf, family, byte(r.Dst.Bits()), 0, 0, byte(min(table, unix.RT_TABLE_COMPAT)), byte(r.Protocol), scope, typ)
	b.buf = binary.NativeEndian.AppendUint32(b.buf, rflags)
	b.attr(unix.RTA_DST, r.Dst.Addr().AsSlice())
	if table >= unix.RT_TABLE_COMPAT {
		b.number(unix.RTA_TABLE, table)
	}
	if metric != 0 {
		b.number(unix.RTA_PRIORITY, metric)
	}
	if r.Source.IsValid() {
		b.attr(unix.RTA_PREFSRC, r.Source.AsSlice())
	}
	if len(hops) > 0 {
		b.hops(hops)
	} else {
		b.hop(Hop{Link: r.Link, Gateway: r.Gateway})
	}
	b.end(w)
}

func (b *Batch) hop(h Hop) {
	if h.Gateway.IsValid() {
		b.attr(unix.RTA_GATEWAY, h.Gateway.AsSlice())
	}
	if h.Link != 0 {
		b.number(unix.RTA_OIF, h.Link)
	}
}

// hops appends several next hops: struct rtnexthop of linux/rtnetlink.h, each with attributes.
func (b *Batch) hops(hops []Hop) {
	at := b.nest(unix.RTA_MULTIPATH)
	for _, h := range hops {
		one := len(b.buf)
		flags := byte(0)
		if h.OnLink {
			flags = unix.RTNH_F_ONLINK
		}
		b.buf = append(b.buf, 0, 0, flags, 0)
		b.buf = binary.NativeEndian.AppendUint32(b.buf, uint32(h.Link))
		if h.Gateway.IsValid() {
			b.attr(unix.RTA_GATEWAY, h.Gateway.AsSlice())
		}
		binary.NativeEndian.PutUint16(b.buf[one:], uint16(len(b.buf)-one))
	}
	b.close(at)
}

// neighbour appends a message of struct ndmsg (linux/neighbour.h).
func (b *Batch) neighbour(kind, flags int, n Neighbour, w what) {
	family, state, nflags := byte(unix.AF_INET), uint16(unix.NUD_REACHABLE), byte(0)
	if n.Addr.Is6() {
		family = unix.AF_INET6
	}
	switch {
	case n.Proxy:
		state, nflags = 0, unix.NTF_PROXY
	case n.Permanent:
		state = unix.NUD_PERMANENT
	}
	b.entry(kind, flags, ndmsg{family, n.Link, state, nflags, n.Addr, n.MAC}, w)
}

func (b *Batch) forward(kind, flags int, f Forward, w what) {
	b.entry(kind, flags, ndmsg{unix.AF_BRIDGE, f.Link, unix.NUD_PERMANENT, unix.NTF_SELF, f.Host, f.MAC}, w)
}

// ndmsg is what a message about a neighbour says.
type ndmsg struct {
	family byte
	link   int
	state  uint16
	flags  byte
	dst    netip.Addr
	mac    string
}

func (b *Batch) entry(kind, flags int, n ndmsg, w what) {
	var hw net.HardwareAddr
	if n.mac != "" {
		var err error
		if hw, err = net.ParseMAC(n.mac); err != nil {
			b.changes = append(b.changes, change{end: b.start(), what: w, err: err})
			return
		}
	}
	b.begin(kind, flags)
	b.buf = append(b.buf, n.family, 0, 0, 0)
	b.buf = binary.NativeEndian.AppendUint32(b.buf, uint32(n.link))
	b.buf = binary.NativeEndian.AppendUint16(b.buf, n.state)
	b.buf = append(b.buf, n.flags, 0)
	b.attr(unix.NDA_DST, n.dst.AsSlice())
	if hw != nil {
		b.attr(unix.NDA_LLADDR, hw)
	}
	b.end(w)
}

// attr appends an attribute, padded (struct rtattr of linux/rtnetlink.h).
func (b *Batch) attr(kind int, value []byte) {
	at := b.nest(kind)
	b.buf = append(b.buf, value...)
	b.close(at)
}

func (b *Batch) number(kind, n int) {
	at := b.nest(kind)
	b.buf = binary.NativeEndian.AppendUint32(b.buf, uint32(n))
	b.close(at)
}

func (b *Batch) nest(kind int) (at int) {
	at = len(b.buf)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, 0)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, uint16(kind))
	return at
}

func (b *Batch) close(at int) {
	binary.NativeEndian.PutUint16(b.buf[at:], uint16(len(b.buf)-at))
	for len(b.buf)%unix.NLMSG_ALIGNTO != 0 {
		b.buf = append(b.buf, 0)
	}
}

// Write has the kernel make the changes of a batch in their order, and returns an error for each, or nil for one that was made. One that
// fails stops none that follow. The batch is used up.
func (h *Handle) Write(b *Batch) []error {
	if len(b.changes) == 0 {
		return nil
	}
	errs := make([]error, len(b.changes))
	h.writing.Lock()
	defer h.writing.Unlock()
	err := h.openWriter()
	start := 0
	for from := 0; from < len(b.changes); {
		to := from + 1
		for to < len(b.changes) && b.changes[to].end-start <= chunk {
			to++
		}
		if err == nil {
			h.writer.send(b.buf[start:b.changes[to-1].end], b.changes[from:to], start)
		}
		for i, c := range b.changes[from:to] {
			if cause := cmpError(c.err, err); cause != nil {
				errs[from+i] = wrap(cause, "%s", c.what)
			}
		}
		from, start = to, b.changes[to-1].end
	}
	b.buf, b.changes = nil, nil
	return errs
}

// cmpError is the first that is not nil.
func cmpError(errs ...error) error {
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}

// one writes a batch of one change.
func (h *Handle) one(add func(*Batch)) error {
	var b Batch
	add(&b)
	return h.Write(&b)[0]
}

// openWriter opens the socket for batches, unless it is open.
func (h *Handle) openWriter() error {
	if h.writer != nil {
		return nil
	}
	return h.ns.Do(func() (err error) { h.writer, err = newWriter(); return err })
}

// writer sends messages, many at once, and reads which of them failed.
type writer struct {
	fd  int
	seq uint32
	buf []byte
}

func newWriter() (*writer, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = nlsock.ReceiveBuffer(fd, answers)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1) // errors do not repeat the message
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &writer{fd: fd, buf: make([]byte, 4<<10)}, nil
}

func (w *writer) close() { _ = unix.Close(w.fd) }

// send sends messages that are one after the other, from the offset start of their batch on, and notes the errors in their changes. The kernel
// has handled all of them when the call returns [tried], and answers to those that failed, and to the last.
func (w *writer) send(msgs []byte, changes []change, start int) {
	first, at := w.seq, 0
	sent := make([]*change, 0, len(changes)) // by their numbers, which begin with first
	for i := range changes {
		c := &changes[i]
		end := c.end - start
		if end == at {
			continue // it has no message
		}
		binary.NativeEndian.PutUint32(msgs[at+8:], w.seq)
		w.seq++
		sent = append(sent, c)
		if end == len(msgs) {
			flags := binary.NativeEndian.Uint16(msgs[at+6:])
			binary.NativeEndian.PutUint16(msgs[at+6:], flags|unix.NLM_F_ACK)
		}
		at = end
	}
	if len(sent) == 0 {
		return
	}
	err := unix.Sendto(w.fd, msgs, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = w.receive(sent, first)
	}
	for _, c := range sent {
		c.err = cmpError(c.err, err)
	}
}

// receive reads all answers. It returns errUnanswered if there was no room for some.
func (w *writer) receive(sent []*change, first uint32) error {
	err := errUnanswered
	for {
		n, _, e := unix.Recvfrom(w.fd, w.buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(e, unix.EINTR):
			continue
		case errors.Is(e, unix.ENOBUFS):
			sent = nil // what came before says nothing of what did not come
			continue
		case e != nil:
			return err
		case n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(w.buf[4:]) != unix.NLMSG_ERROR:
			continue
		}
		// struct nlmsghdr, and in it the status (struct nlmsgerr)
		if number := int(binary.NativeEndian.Uint32(w.buf[8:]) - first); number < len(sent) {
			sent[number].err = nlsock.Errno(w.buf[unix.SizeofNlMsghdr:n])
			if number == len(sent)-1 {
				err = nil
			}
		}
	}
}
