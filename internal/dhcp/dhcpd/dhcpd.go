// Package dhcpd is the DHCP server of one host, for its virtual machines (decision 079).
//
// In: this node's WorkloadEndpoints, its Node and the subnets of its region, followed in the datastore; requests on the host's interfaces. Out: the
// replies that package dhcp decides, each on the interface by which its request came. A request is answered only if the interface is
// that of an endpoint of this node and the hardware address the endpoint's. Nothing is answered before the datastore is read, and what was read
// stays while the datastore is away.
package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/dhcp"
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
	s := &server{cfg: cfg, state: newState(cfg.Node, cfg.Region)}
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

// run owns the state: what is stored and what is asked come to it in turn.
func (s *server) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	follow := syncer.New(s.cfg.Store, syncer.Config{Prefixes: s.state.prefixes(), Logger: s.cfg.Log})
	defer func() {
		cancel()
		for range follow.Batches() { // until it has ended, so that the store may be closed
		}
	}()
	go func() { _ = follow.Run(ctx) }() // it ends with the context alone
	packets, failed := make(chan packet), make(chan error, 1)
	go func() { failed <- receive(ctx, s.sock, packets) }()
	batches := follow.Batches()
	for {
		select {
		case b, ok := <-batches:
			if !ok {
				batches = nil
				continue
			}
			s.take(b)
		case p := <-packets:
			s.answer(p)
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
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
	m, ok := s.state.machine(link.Name, req.MAC())
	if !ok {
		log.Debug("no answer: the hardware address is not the endpoint's", "mac", bootp.MAC(req.MAC()))
		return
	}
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
