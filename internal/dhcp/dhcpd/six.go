package dhcpd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/twillnet/twill/internal/dhcp/dhcp6"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/kernel/linklocal"
	"github.com/twillnet/twill/internal/kernel/netns"
)

const (
	serverPort6, clientPort6 = 547, 546
	idle                     = time.Hour // between looks at a schedule with nothing in it
	hopLimit6                = 64
)

var (
	allServers = netip.MustParseAddr("ff02::1:2")
	allNodes   = netip.MustParseAddr("ff02::1")
)

// six is what the server has for IPv6: a socket on each interface with a machine that is to have any, and what is advertised there.
type six struct {
	in       *netns.Handle
	up       map[string]ifmon.Link  // interfaces, by name
	ports    map[string]*port       // by the interface's name
	adverts  map[string]*advertised // by the endpoint's key
	arrivals chan arrival
	done     chan struct{}
}

// port is an interface with a socket.
type port struct {
	name string
	link int        // its index
	from netip.Addr // its link-local address
	sock *linklocal.Socket
}

// arrival is a packet that arrived on a port, or why none will any more.
type arrival struct {
	port   *port
	packet linklocal.Packet
	err    error
}

func newSix(in *netns.Handle) six {
	return six{in: in, up: map[string]ifmon.Link{}, ports: map[string]*port{}, adverts: map[string]*advertised{}, arrivals: make(chan arrival), done: make(chan struct{})}
}

func (x *six) close() {
	close(x.done)
	for _, p := range x.ports {
		_ = p.sock.Close()
	}
}

// follow takes over what has changed of interfaces.
func (x *six) follow(changes []ifmon.Change) {
	for _, c := range changes {
		if c.Gone || !c.Up {
			delete(x.up, c.Name)
			continue
		}
		x.up[c.Name] = c.Link
	}
}

// listen has a socket on the interfaces that are wanted and up, and on no other. It returns why one has none.
func (x *six) listen(wanted map[string]bool) (faults []error) {
	for name, p := range x.ports {
		if l, up := x.up[name]; !up || !wanted[name] || l.Index != p.link {
			_ = p.sock.Close()
			delete(x.ports, name)
		}
	}
	for name := range wanted {
		l, up := x.up[name]
		if !up {
			continue
		}
		from := linkLocal(l.Addrs)
		if p := x.ports[name]; p != nil {
			p.from = from
			continue
		}
		if err := x.open(name, l.Index, from); err != nil {
			faults = append(faults, fmt.Errorf("interface %s: %w", name, err))
		}
	}
	return faults
}

func (x *six) open(name string, link int, from netip.Addr) error {
	p := &port{name: name, link: link, from: from}
	if err := x.in.Do(func() (err error) { p.sock, err = linklocal.Open(link); return err }); err != nil {
		return err
	}
	x.ports[name] = p
	go x.receive(p)
	return nil
}

// receive hands on what arrives, until the socket is closed.
func (x *six) receive(p *port) {
	buf := make([]byte, longest)
	for {
		got, err := p.sock.Receive(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		got.Payload = append([]byte(nil), got.Payload...)
		select {
		case x.arrivals <- arrival{p, got, err}:
		case <-x.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// linkLocal is an interface's own address; the zero value: it has none.
func linkLocal(of []netip.Prefix) netip.Addr {
	for _, p := range of {
		if a := p.Addr(); a.Is6() && a.IsLinkLocalUnicast() {
			return a
		}
	}
	return netip.Addr{}
}

// answer6 answers what a machine sent, or says in the log why it does not.
func (s *server) answer6(a arrival) {
	log := s.cfg.Log.With("interface", a.port.name)
	if s.six.ports[a.port.name] != a.port {
		return // it is closed
	}
	if a.err != nil {
		log.Warn("the machine gets nothing of IPv6 until its interface changes", "err", a.err)
		_ = a.port.sock.Close()
		delete(s.six.ports, a.port.name)
		return
	}
	now := time.Now()
	if !s.ready || !s.limit.allow(a.port.link, now) {
		return
	}
	key, e, ok := s.state.find(a.port.name, a.packet.MAC)
	if !ok {
		log.Debug("no answer: the hardware address is not the endpoint's", "mac", a.packet.MAC)
		return
	}
	if a.packet.Proto == linklocal.ICMPv6 {
		s.solicited(key, a.packet, now)
		return
	}
	if !a.packet.Src.IsLinkLocalUnicast() || !a.port.from.IsValid() {
		log.Debug("no answer: it has no link-local address, or its host has none", "from", a.packet.Src)
		return
	}
	r, err := s.reply6(e, a.packet)
	switch {
	case errors.Is(err, dhcp6.ErrNotServed) || errors.Is(err, dhcp6.ErrTooLong):
		log.Warn("no answer", "err", err)
		return
	case err != nil:
		log.Debug("no answer", "err", err)
		return
	case r.Declined:
		log.Warn("the machine found its address in use by another")
	}
	err = a.port.sock.Send(linklocal.Packet{
		MAC: e.mac, Src: a.port.from, Dst: a.packet.Src, HopLimit: hopLimit6, Proto: linklocal.UDP, SrcPort: serverPort6, DstPort: clientPort6, Payload: r.Payload,
	})
	if err != nil {
		log.Warn("a reply is not sent; the machine will ask again", "err", err)
		return
	}
	log.Debug("answered", "type", r.Type, "addresses", r.Addrs)
}

func (s *server) reply6(e endpoint, p linklocal.Packet) (*dhcp6.Reply, error) {
	req, err := dhcp6.Parse(p.Payload, p.Dst == allServers)
	if err != nil {
		return nil, err
	}
	return dhcp6.Answer(dhcp6.Server{ID: dhcp6.ID(s.cfg.Node), Lease: s.cfg.Lease}, s.state.machine6(e), req)
}

// hardware is a MAC address of an interface; zero if it has none.
func hardware(text string) (mac [6]byte) {
	if b, err := net.ParseMAC(text); err == nil && len(b) == len(mac) {
		copy(mac[:], b)
	}
	return mac
}

// chance is a random number from 0 up to 1: schedules of hosts and machines shall not fall together.
func chance() float64 { return rand.Float64() }
