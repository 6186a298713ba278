// Package dhcpd is the DHCP server of one host, for its virtual machines (decision 079), and their router of IPv6 (decision 086).
//
// In: this node's WorkloadEndpoints, its Node and the subnets of its region, followed in the datastore; requests on the host's interfaces. Out: the
// replies that packages dhcp and dhcp6 decide, each on the interface by which its request came, and the router advertisements of package advert. A request is answered only if the interface is
// that of an endpoint of this node and the hardware address the endpoint's. Nothing is answered before the datastore is read, and what was read
// stays while the datastore is away.
package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/dhcp"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/kernel/bootp"
	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/syncer"
)

// Config configures the server.
type Config struct {
	Node   string // whose endpoints are served
	Region string // of Neutron's servers, as openstackRegion of FelixConfiguration; empty: there is but one
	Store  datastore.Store
	Lease  time.Duration // for which an address is a machine's before it renews it: at least MinLease
	In     *netns.Handle // where the interfaces are; nil: here
	Log    *slog.Logger
}

// Lengths of leases.
const (
	DefaultLease = 24 * time.Hour // as Neutron's own
	MinLease     = time.Minute
	maxLease     = (1<<32 - 2) * time.Second // one more is for ever (RFC 2131, 3.3)
)

const (
	serverPort, clientPort = 67, 68
	longest                = 1500 // bytes of a datagram; what is longer is cut off, and then no DHCP
)

// packet is a request that arrived.
type packet struct {
	link    int
	payload []byte
}

type server struct {
	cfg   Config
	rtnl  *rtnl.Handle
	sock  *bootp.Socket
	state *state
	ready bool
	limit limiter
	six   six
}

// Run serves until the context ends.
func Run(ctx context.Context, cfg Config) (err error) {
	if cfg.Lease < MinLease || cfg.Lease > maxLease {
		return fmt.Errorf("a lease of %s: want at least %s, and at most %s", cfg.Lease, MinLease, maxLease)
	}
	ns := cfg.In
	if ns == nil {
		if ns, err = netns.Current(); err != nil {
			return err
		}
		defer ns.Close()
	}
	s := &server{cfg: cfg, state: newState(cfg.Node, cfg.Region), six: newSix(ns)}
	if s.rtnl, err = rtnl.OpenIn(ns); err != nil {
		return err
	}
	defer s.rtnl.Close()
	if err := ns.Do(func() (err error) { s.sock, err = bootp.Listen(serverPort); return err }); err != nil {
		return err
	}
	defer s.sock.Close()
	return s.run(ctx)
}

// run owns the state: what is stored, the interfaces and what is asked come to it in turn.
func (s *server) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	follow := syncer.New(s.cfg.Store, syncer.Config{Prefixes: s.state.prefixes(), Logger: s.cfg.Log})
	links := ifmon.New(s.rtnl)
	packets, failed := make(chan packet), make(chan error, 2)
	var parts sync.WaitGroup
	defer func() { // all have ended before the store and the sockets are closed
		cancel()
		s.six.close()
		for range follow.Batches() {
		}
		parts.Wait()
	}()
	go func() { _ = follow.Run(ctx) }() // it ends with the context alone
	parts.Go(func() { failed <- links.Run(ctx) })
	go func() { failed <- receive(ctx, s.sock, packets) }() // it ends with the socket
	return s.loop(ctx, follow.Batches(), links.Changes(), packets, failed)
}

func (s *server) loop(ctx context.Context, batches <-chan syncer.Batch, links <-chan []ifmon.Change, packets <-chan packet, failed <-chan error) error {
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case b, ok := <-batches:
			if !ok {
				batches = nil
				continue
			}
			s.take(b)
			s.renew()
		case changes := <-links:
			s.six.follow(changes)
			s.renew()
		case p := <-packets:
			s.answer(p)
		case a := <-s.six.arrivals:
			s.answer6(a)
		case <-due.C:
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-ctx.Done():
			return nil
		}
		due.Reset(s.advertise(time.Now()))
	}
}

// receive hands on what arrives. While nobody takes it the kernel keeps some, and drops the rest: machines ask again.
func receive(ctx context.Context, from *bootp.Socket, packets chan<- packet) error {
	buf := make([]byte, longest)
	for {
		n, link, err := from.Receive(buf)
		if err != nil {
			return err
		}
		select {
		case packets <- packet{link, append([]byte(nil), buf[:n]...)}:
		case <-ctx.Done():
			return nil
		}
	}
}

// take takes over what has changed in the datastore.
func (s *server) take(b syncer.Batch) {
	for _, u := range b.Updates {
		for _, problem := range s.state.update(u) {
			s.cfg.Log.Warn("not all of it has an effect", "what", u.Key, "problem", problem)
		}
	}
	if b.InSync && !s.ready {
		s.ready = true
		s.cfg.Log.Info("serves DHCP", "node", s.cfg.Node, "endpoints", len(s.state.endpoints), "subnets", len(s.state.subnets), "lease", s.cfg.Lease)
	}
}

// answer answers a request, or says in the log why it does not.
func (s *server) answer(p packet) {
	if !s.ready || !s.limit.allow(p.link, time.Now()) {
		return
	}
	link, err := s.rtnl.LinkAt(p.link)
	if err != nil {
		s.cfg.Log.Debug("no answer", "err", err) // it is gone meanwhile
		return
	}
	if !s.state.serves(link.Name) {
		return // of the host's own network, or of another server's
	}
	log := s.cfg.Log.With("interface", link.Name)
	req, err := dhcp.Parse(p.payload)
	if err != nil {
		log.Debug("no answer", "err", err)
		return
	}
	_, e, ok := s.state.find(link.Name, req.MAC())
	if !ok {
		log.Debug("no answer: the hardware address is not the endpoint's", "mac", bootp.MAC(req.MAC()))
		return
	}
	m := s.state.machine(e)
	m.MTU = link.MTU
	id := s.state.id()
	reply, err := dhcp.Answer(dhcp.Server{ID: id, Lease: s.cfg.Lease}, m, req)
	switch {
	case errors.Is(err, dhcp.ErrDeclined) || errors.Is(err, dhcp.ErrNoAddress):
		log.Warn("no answer", "err", err)
		return
	case err != nil:
		log.Debug("no answer", "err", err)
		return
	}
	to := bootp.MAC(m.MAC)
	if reply.Broadcast {
		to = bootp.Broadcast
	}
	err = s.sock.Send(bootp.Datagram{Link: p.link, MAC: to, Src: netip.AddrPortFrom(id, serverPort), Dst: netip.AddrPortFrom(reply.To, clientPort), Payload: reply.Payload})
	if err != nil {
		log.Warn("a reply is not sent; the machine will ask again", "err", err)
		return
	}
	log.Debug("answered", "type", reply.Type, "address", reply.Addr)
}
