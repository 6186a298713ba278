// Package ifmon watches network interfaces: which exist, whether they are up, and their addresses.
//
// In: events of routing netlink, and full lists at the start and whenever events were lost.
// Out: [Change]s, coalesced by interface: a slow reader gets the present state once, not its history. The first value
// is the full state.
package ifmon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// Link is the state of one interface.
type Link struct {
	Index   int
	Name    string
	MAC     string
	Alias   string
	MTU     int            // bytes
	Up      bool           // administratively up: the kernel accepts routes through it
	Running bool           // up, and with a carrier
	Addrs   []netip.Prefix // sorted, not masked
	// Downs counts how often the interface went down or lost its last IPv4 address, or may have while events were
	// lost. Each time the kernel removes its IPv4 routes without events, so that a reader must read them back when the number changes.
	Downs int
}

// Change is the present state of an interface by name; Gone if there is none.
type Change struct {
	Link
	Gone bool
}

// Addresses are those that the interface has now.
func (c Change) Addresses() (out []netip.Addr) {
	if c.Gone {
		return nil
	}
	for _, p := range c.Addrs {
		out = append(out, p.Addr())
	}
	return out
}

// Monitor follows the interfaces of one namespace.
type Monitor struct {
	rtnl *rtnl.Handle
	out  chan []Change
}

// New returns a Monitor of the handle's namespace.
func New(h *rtnl.Handle) *Monitor { return &Monitor{rtnl: h, out: make(chan []Change)} }

// Changes delivers what Run sends, to one reader.
func (m *Monitor) Changes() <-chan []Change { return m.out }

// Run follows the interfaces until the context ends.
func (m *Monitor) Run(ctx context.Context) error {
	w, err := m.rtnl.Watch(rtnl.WatchLinks | rtnl.WatchAddrs)
	if err != nil {
		return fmt.Errorf("interfaces: %w", err)
	}
	defer w.Close()
	defer context.AfterFunc(ctx, func() { _ = w.Close() })()
	s := newState()
	if err := m.list(s); err != nil {
		return err
	}
	received := receive(ctx, w)
	for {
		out := m.out
		changes := s.changes()
		if len(changes) == 0 {
			out = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case out <- changes:
			s.published(changes)
		case r := <-received:
			if err := m.take(s, r); err != nil {
				return err
			}
		}
	}
}

type received struct {
	events []rtnl.Event
	err    error
}

// receive makes a channel of the watch. It ends with the context, or with the first error that is not an overrun.
func receive(ctx context.Context, w *rtnl.Watcher) <-chan received {
	ch := make(chan received)
	go func() {
		for {
			events, err := w.Receive()
			select {
			case ch <- received{events, err}:
			case <-ctx.Done():
				return
			}
			if err != nil && !errors.Is(err, rtnl.ErrOverrun) {
				return
			}
		}
	}()
	return ch
}

func (m *Monitor) take(s *state, r received) error {
	if errors.Is(r.err, rtnl.ErrOverrun) {
		return m.list(s)
	}
	if r.err != nil {
		return fmt.Errorf("interfaces: %w", r.err)
	}
	for _, e := range r.events {
		s.event(e)
	}
	return nil
}

// List returns the present state of all interfaces, once.
func List(h *rtnl.Handle) ([]Change, error) {
	s := newState()
	if err := New(h).list(s); err != nil {
		return nil, err
	}
	return s.changes(), nil
}

func (m *Monitor) list(s *state) error {
	links, err := m.rtnl.Links()
	if err != nil {
		return fmt.Errorf("interfaces: %w", err)
	}
	addrs, err := m.rtnl.Addrs()
	if err != nil {
		return fmt.Errorf("interfaces: %w", err)
	}
	s.list(links, addrs)
	return nil
}
