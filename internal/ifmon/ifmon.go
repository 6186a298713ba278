// Package ifmon watches network interfaces: which exist, whether they are up, and their addresses.
//
// In: events of routing netlink, and full lists at the start, whenever events were lost, and as often as [Monitor.Refresh] says.
// Out: [Change]s, coalesced by interface: a slow reader gets the present state once, not its history. The first value
// is the full state.
package ifmon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

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
	Source  bool           // one of them is an IPv4 address that the kernel may take as the source of what leaves by another interface
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
	watch func(context.Context) (<-chan received, error)
	read  func() ([]rtnl.Link, []rtnl.Addr, error)
	every chan time.Duration // the last value that Refresh was given and Run has not seen
	out   chan []Change
}

// New returns a Monitor of the handle's namespace. Until Refresh is called, nothing is read again without an event.
func New(h *rtnl.Handle) *Monitor {
	return &Monitor{
		watch: func(ctx context.Context) (<-chan received, error) { return watch(ctx, h) },
		read:  func() ([]rtnl.Link, []rtnl.Addr, error) { return read(h) },
		every: make(chan time.Duration, 1), out: make(chan []Change),
	}
}

// Refresh says how often all interfaces are read besides the kernel's events; zero: never. It may be called at any time, by one goroutine.
func (m *Monitor) Refresh(every time.Duration) {
	select {
	case <-m.every:
	default:
	}
	m.every <- every
}

// Changes delivers what Run sends, to one reader.
func (m *Monitor) Changes() <-chan []Change { return m.out }

// Run follows the interfaces until the context ends.
func (m *Monitor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	received, err := m.watch(ctx)
	if err != nil {
		return fmt.Errorf("interfaces: %w", err)
	}
	s := newState()
	if err := m.list(s, true); err != nil {
		return err
	}
	var every time.Duration
	tick := &time.Ticker{}
	defer func() { stop(tick) }()
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
		case now := <-m.every:
			if now == every {
				continue // settings are said again with each change of any of them
			}
			if stop(tick); now > 0 {
				tick = time.NewTicker(now)
			} else {
				tick = &time.Ticker{}
			}
			every = now
		case <-tick.C:
			_ = m.list(s, false) // what cannot be read is read the next time: events go on, and it was for what they do not say
		}
	}
}

// stop ends a ticker, but that of no time.
func stop(t *time.Ticker) {
	if t.C != nil {
		t.Stop()
	}
}

// watch opens the kernel's events, until the context ends.
func watch(ctx context.Context, h *rtnl.Handle) (<-chan received, error) {
	w, err := h.Watch(rtnl.WatchLinks | rtnl.WatchAddrs)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = w.Close() })
	return receive(ctx, w), nil
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
		return m.list(s, true)
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
	if err := New(h).list(s, true); err != nil {
		return nil, err
	}
	return s.changes(), nil
}

// list reads all; lost: events were, so that any interface may have been down.
func (m *Monitor) list(s *state, lost bool) error {
	links, addrs, err := m.read()
	if err != nil {
		return fmt.Errorf("interfaces: %w", err)
	}
	s.list(links, addrs, lost)
	return nil
}

func read(h *rtnl.Handle) ([]rtnl.Link, []rtnl.Addr, error) {
	links, err := h.Links()
	if err != nil {
		return nil, nil, err
	}
	addrs, err := h.Addrs()
	return links, addrs, err
}
