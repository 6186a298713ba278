package fib

import (
	"context"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/announce"
)

// phase is how far a virtual machine is on its way to this host. There is no phase for one that does not move.
type phase uint8

const (
	waiting  phase = iota // on the other host: nothing leads to it here
	here                  // seen here: its routes have the elevated metric
	settling              // the migration is over; they keep it for a while, since other hosts may not know yet
)

// What is said of each, for people.
const (
	awaitsMachine = "waits for the virtual machine, which is on another host: it has not announced itself here by ARP or RARP"
	machineHere   = "the virtual machine has come from another host; its routes have the elevated priority until the LiveMigration is over, and for a while after"
	machineSettle = "the virtual machine has come from another host; its routes have the elevated priority for a while"
)

// moves are the machines that come to this host, by interface (decision 087).
//
// The kernel's routes tell a new agent how far they are: one with the elevated metric is there only in the phases here and settling. Whether the
// migration is over, the intents tell.
type moves struct {
	all       map[string]*move
	dirty     map[string]bool // interfaces of which something changed
	inspected bool            // the routes that an earlier agent left were looked at
	listen    func(link int, of announce.MAC) (*listener, error)
	after     func(time.Duration, func()) (stop func())
}

// move is one machine's.
type move struct {
	phase    phase
	seen     bool      // it was: by its announcement, or by an earlier agent; else it only counts as seen, in the phase settling
	listener *listener // of the phase waiting
	end      func()    // of the phase settling: ends the wait
}

// listener listens for a machine on the link of an index.
type listener struct {
	*announce.Socket
	link int
	mac  announce.MAC
	gone context.Context //nolint:containedctx // it ends with the socket
	// close closes the socket.
	close context.CancelFunc
}

func newMoves() moves {
	return moves{all: map[string]*move{}, dirty: map[string]bool{}, after: func(d time.Duration, f func()) func() {
		timer := time.AfterFunc(d, f)
		return func() { timer.Stop() }
	}}
}

// look notes an interface of which something changed, if a machine moves there.
func (m *moves) look(link string, moving bool) {
	if moving || m.all[link] != nil {
		m.dirty[link] = true
	}
}

// expects is what there is to say of an interface whose machine has not come.
func (t *Table) expects(link string) string {
	if _, known := t.macOf(link); !known {
		return awaitsMachine + "; its endpoint has no MAC by which it could be known (spec.mac), so that it counts as come when the LiveMigration is over"
	}
	return awaitsMachine
}

// elevated reports whether routes through an interface have the elevated metric.
func (m *moves) elevated(link string) bool {
	at := m.all[link]
	return at != nil && at.phase != waiting
}

// note is what there is to say of an interface's routes.
func (m *moves) note(link string) string {
	switch at := m.all[link]; {
	case at == nil:
		return ""
	case at.phase == here:
		return machineHere
	}
	return machineSettle
}

// Arrivals has the Table see machines that come from other hosts, until the context ends. do calls a function in the Table's network namespace.
// Without it, none is taken to have come before its migration is over.
func (t *Table) Arrivals(ctx context.Context, do func(func())) {
	t.moves.listen = func(link int, of announce.MAC) (e *listener, err error) {
		e = &listener{link: link, mac: of}
		if do(func() { e.Socket, err = announce.Open(link, of) }); err != nil {
			return nil, err
		}
		var cancel context.CancelFunc
		e.gone, cancel = context.WithCancel(ctx)
		context.AfterFunc(e.gone, func() { _ = e.Close() })
		e.close = cancel
		return e, nil
	}
}

// awaited reports whether the machine that a route leads to is still on another host.
func (t *Table) awaited(in intent.Route) bool {
	at := t.moves.all[in.Link]
	return in.Kind == intent.RouteLink && (at != nil && at.phase == waiting || at == nil && in.Move == intent.Comes)
}

// advance takes machines from phase to phase, as intents, interfaces and the kernel's routes say.
func (t *Table) advance() {
	if !t.read {
		return
	}
	if !t.moves.inspected {
		t.moves.inspected = t.inSync && t.linksSeen
		for link := range t.byLink {
			t.moves.dirty[link] = true
		}
	}
	for link := range t.moves.dirty {
		delete(t.moves.dirty, link)
		t.step(link)
	}
}

// step does so for one interface.
func (t *Table) step(link string) {
	is := map[intent.Move]bool{}
	for dst := range t.byLink[link] {
		is[t.intents[dst].At(link).Move] = true
	}
	at := t.moves.all[link]
	switch {
	case len(is) == 0 || !is[intent.Comes] && is[intent.Goes]:
		t.enter(link, nil)
	case is[intent.Comes] && at == nil && t.left(link):
		t.enter(link, &move{phase: here, seen: true})
	case is[intent.Comes] && (at == nil || at.phase == settling && !at.seen): // the migration was only forgotten for a while
		t.enter(link, &move{phase: waiting})
	case is[intent.Comes] && at.phase == settling:
		t.enter(link, &move{phase: here, seen: true})
	case is[intent.Comes]:
	case at != nil && at.phase == waiting && !t.has(link): // no machine can be here
		t.enter(link, nil)
	case at != nil && at.phase != settling:
		t.settle(link, at.seen)
	case at == nil && t.left(link):
		t.settle(link, true)
	}
	if at := t.moves.all[link]; at != nil && at.phase == waiting {
		t.listenTo(link, at)
	}
}

// enter takes an interface's machine into a phase; nil: it does not move.
func (t *Table) enter(link string, now *move) {
	for dst := range t.byLink[link] {
		t.unresolve(dst) // its metric may be another
	}
	if at := t.moves.all[link]; at != nil {
		if at.listener != nil {
			at.listener.close()
		}
		if at.end != nil {
			at.end()
		}
	}
	if t.moves.all[link] = now; now == nil {
		delete(t.moves.all, link)
	}
	for dst := range t.byLink[link] {
		t.resolve(dst)
	}
}

// left reports whether an earlier agent left a route with the elevated metric: it had seen the machine.
func (t *Table) left(link string) bool {
	l, there := t.links[link]
	for dst := range t.byLink[link] {
		elevated := t.settings.Elevated[family(dst)]
		r, is := t.routes.Actual(routeKey{dst, shown(elevated, dst)})
		if is && there && r.Link == l.Index && elevated > 0 {
			return true
		}
	}
	return false
}

// has reports whether the host has an interface.
func (t *Table) has(link string) bool {
	_, there := t.links[link]
	return there
}

// settle has routes keep the elevated metric for a while.
func (t *Table) settle(link string, seen bool) {
	now, over := &move{phase: settling, seen: seen}, make(chan struct{})
	t.enter(link, now)
	stop := t.moves.after(t.settings.Settle, func() {
		t.tell(over, func() {
			if t.moves.all[link] == now {
				t.enter(link, nil)
			}
		})
	})
	now.end = func() {
		stop()
		close(over)
	}
}

// tell has the loop call a function, unless nobody wants that any more.
func (t *Table) tell(over <-chan struct{}, note func()) {
	select {
	case t.notes <- note:
	case <-over:
	}
}

// listenTo listens for a machine on its interface, once that is there.
func (t *Table) listenTo(link string, at *move) {
	l, there := t.links[link]
	mac, known := t.macOf(link)
	if e := at.listener; e != nil && (!there || !l.Up || e.link != l.Index || e.mac != mac) {
		e.close()
		at.listener = nil
	}
	if at.listener != nil || !there || !l.Up || !known || t.moves.listen == nil {
		return
	}
	e, err := t.moves.listen(l.Index, mac)
	if err != nil {
		for dst := range t.byLink[link] {
			t.fail(dst, err)
		}
		return
	}
	at.listener = e
	go func() {
		for {
			a, err := e.Next()
			t.tell(e.gone.Done(), func() { t.received(link, e, a, err) })
			if err != nil {
				return
			}
		}
	}()
}

// macOf is the hardware address of an interface's machine.
func (t *Table) macOf(link string) (mac announce.MAC, known bool) {
	for dst := range t.byLink[link] {
		if m, err := announce.ParseMAC(t.intents[dst].At(link).MAC); err == nil {
			return m, true
		}
	}
	return mac, false
}

// received takes what a machine announced. An address that is not its own says nothing. After an error, which an interface makes that goes down,
// the Table listens again.
func (t *Table) received(link string, e *listener, a announce.Announcement, err error) {
	at := t.moves.all[link]
	if at == nil || at.listener != e {
		return
	}
	if err != nil {
		e.close()
		at.listener, t.moves.dirty[link] = nil, true
		return
	}
	own := !a.Addr.IsValid()
	for dst := range t.byLink[link] {
		own = own || t.intents[dst].At(link).MAC != "" && dst.Addr() == a.Addr // one without is a floating address, which no machine has
	}
	if own && a.MAC == e.mac {
		t.enter(link, &move{phase: here, seen: true})
	}
}

// listenAgain has the Table listen again where it could not.
func (t *Table) listenAgain() {
	for link, at := range t.moves.all {
		if at.phase == waiting && at.listener == nil {
			t.moves.dirty[link] = true
		}
	}
}
