// Package speaker speaks BGP for one node, as a [plan.Plan] says.
//
// In: plans, and the kernel's routes: those of the agent (kernel.RouteProtocolAgent) are advertised to peers, by the rules of
// each session; those of others, and networks of the host's interfaces, only to peers whose filters accept them. Out: sessions, and the best learned paths as kernel routes of protocol kernel.RouteProtocolSpeaker.
//
// A route with that protocol and one of its two metrics is the speaker's; any other is foreign and is never
// replaced or removed. What a former speaker left in the kernel stays until its peers are back and have sent
// End-of-RIB, or the restart time is over. A speaker that ends sends no notification, so that peers, too, retain its
// routes until it is back.
//
// One speaker belongs to one process and one network namespace: the BGP library listens where its threads are.
package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"time"

	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/netstat"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// Config is what a speaker needs.
type Config struct {
	Rtnl *rtnl.Handle
	// Secret returns a password; with an error the last one that could be read. A session whose password is unknown
	// is not opened.
	Secret func(plan.Secret) (string, error)
	// BFD delivers the BFD statuses of peers whenever one changes; nil: there is no BFD now.
	BFD <-chan []bfd.Status
	// Echo sends a peer an ICMP echo; an error: no reply within the time. nil:
	// no echo is sent, and BFD alone decides.
	Echo func(peer netip.Addr, within time.Duration) error
	// Restarting: a speaker ran here before, and peers may retain its routes. One with routes in the kernel sees
	// that by itself; a dedicated reflector has none.
	Restarting bool
	Log        *slog.Logger
}

// Times of the loop.
const (
	debounce   = 50 * time.Millisecond // before tables are read again, so that a burst of events leads to one read
	retryAfter = 2 * time.Second       // of what failed
	// clockCheckInterval is how often the clock is checked for having been set back.
	clockCheckInterval = 5 * time.Second
)

// errClock: the supervisor restarts the process, and no route changes meanwhile. Our own timers, and those of sessions,
// use the monotonic clock.
var errClock = errors.New("the clock was set back to before a session came up, and until that time the BGP library ignores the session's messages: restarting")

// Speaker is a running speaker. Use New and Run.
type Speaker struct {
	cfg      Config
	requests chan func()
	plan     plan.Plan
	exports  exports
	fib      fib
	bgp      *library
	started  time.Time
	planned  time.Time // when the plan came
	hold     hold
	peered   []netip.Addr // the addresses for workloads that this host has been given
	live     liveness
	problems map[string]string // what does not work, by what it is about
	counters map[string]uint64 // those of TCP when the plan came
}

// New returns a speaker, which does nothing until Run.
func New(cfg Config) *Speaker {
	s := &Speaker{cfg: cfg, requests: make(chan func()), problems: map[string]string{}, live: liveness{deadPeers: map[netip.Addr]bool{}, verifying: map[netip.Addr]*verification{}, echoLost: make(chan *verification)}}
	s.exports = exports{agent: map[routeKey]rtnl.Route{}, links: map[int]rtnl.Link{}}
	s.fib = newFIB(cfg.Rtnl)
	return s
}

// Run speaks BGP by the plans until the context ends.
func (s *Speaker) Run(ctx context.Context, plans <-chan plan.Plan) error {
	s.started = time.Now()
	watch, err := s.cfg.Rtnl.Watch(rtnl.WatchLinks | rtnl.WatchAddrs | rtnl.WatchRoutes)
	if err != nil {
		return err
	}
	defer watch.Close()
	if err := errors.Join(s.read(), s.fib.readFormer()); err != nil {
		return err
	}
	events := make(chan []rtnl.Event)
	go receive(ctx, watch, events)
	return s.loop(ctx, plans, events)
}

// receive passes events on; nil: some were lost.
func receive(ctx context.Context, watch *rtnl.Watcher, out chan<- []rtnl.Event) {
	for {
		events, err := watch.Receive()
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil:
			events = nil
		case len(events) == 0:
			continue
		}
		select {
		case out <- events:
		case <-ctx.Done():
			return
		}
	}
}

// oneShot is a timer that what comes meanwhile does not put off. Use idle; whoever takes from C calls rang.
type oneShot struct {
	*time.Timer
	set bool
}

// newOneShot returns a stopped timer.
func newOneShot() *oneShot {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &oneShot{Timer: t}
}

// arm starts the timer, unless it runs.
func (a *oneShot) arm(d time.Duration) {
	if !a.set {
		a.set = true
		a.Reset(d)
	}
}

func (a *oneShot) fired() { a.set = false }

// at sets the timer to a time; the zero time leaves it.
func (a *oneShot) at(t time.Time) {
	if !t.IsZero() {
		a.Reset(time.Until(t))
	}
}

// loop owns all of the speaker's state.
func (s *Speaker) loop(ctx context.Context, plans <-chan plan.Plan, events <-chan []rtnl.Event) error {
	reread, retry, hold, newlyUp, foreign := newOneShot(), newOneShot(), newOneShot(), newOneShot(), newOneShot()
	clock := time.NewTicker(clockCheckInterval)
	defer clock.Stop()
	var wakeup <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p := <-plans:
			s.counters, _ = netstat.TCP() // without it less is known of passwords
			s.setPlan(ctx, p)
		case es := <-events:
			if s.onEvents(es) {
				reread.arm(debounce)
			}
		case <-wakeup:
			s.onLibraryEvents(ctx)
		case statuses := <-s.cfg.BFD:
			s.onBFD(ctx, statuses)
		case v := <-s.live.echoLost:
			s.onEchoLost(ctx, v)
		case <-reread.C:
			reread.fired()
			if err := s.read(); err != nil {
				s.setProblem("kernel", err)
				reread.arm(retryAfter)
			}
		case <-clock.C:
			if s.bgp != nil && s.bgp.clockSetBack(time.Now()) {
				return errClock
			}
		case <-hold.C:
		case <-newlyUp.C:
		case <-foreign.C:
		case <-retry.C:
			retry.fired()
			if s.plan.Node != "" {
				s.setPlan(ctx, s.plan)
			}
			s.fib.markAllDirty()
		case ask := <-s.requests:
			ask()
		}
		if wakeup = nil; s.bgp != nil {
			wakeup = s.bgp.wakeup
		}
		if wait, holds := s.holding(); holds {
			hold.Reset(wait)
		}
		newlyUp.at(s.readvertise(ctx))
		foreign.at(s.tendForeign())
		if failed := s.apply(); failed {
			retry.arm(retryAfter)
		}
	}
}

// setPlan applies a plan.
func (s *Speaker) setPlan(ctx context.Context, p plan.Plan) {
	first := s.plan.Node == ""
	s.plan, s.planned = p, time.Now()
	if s.bgp != nil && !s.bgp.compatible(p) {
		why := "AS number, router id or listening address changed"
		if p.Off != "" {
			why = p.Off
		}
		s.cfg.Log.Warn("all sessions end", "why", why)
		s.bgp.stop()
		s.bgp = nil
		s.fib.update(nil)
	}
	if p.Off != "" {
		s.hold.end()
		return
	}
	if first {
		left := s.fib.count()
		returns := left > 0 || s.cfg.Restarting
		s.hold.begin(p, returns, time.Now())
		if returns {
			s.cfg.Log.Info("restarted: keeping routes until peers have sent theirs", "routes", left, "at_most", p.Restart())
		}
	}
	if s.exports.protocol != p.AgentProtocol {
		s.exports.protocol = p.AgentProtocol
		if err := s.read(); err != nil {
			s.setProblem("kernel", err)
			return
		}
	}
	s.removePeers(p)
	s.peering() // first, so that the library can listen on them
	if s.bgp == nil {
		b, err := startLibrary(ctx, p, s.cfg.Log)
		if err != nil {
			s.setProblem("listen", err)
			return
		}
		s.bgp, s.exports.originated = b, map[netip.Prefix]string{}
	}
	s.clearProblem("listen")
	if err := s.prepareForeign(p); err != nil {
		s.setProblem("routes of others", err)
		return
	}
	if err := s.bgp.setRules(ctx, p.Sessions); err != nil {
		s.setProblem("rules", err)
		return // without rules a session would advertise and accept everything
	}
	s.clearProblem("rules")
	s.exports.foreign.inForce = true
	s.advertise() // first, so that a new session has all routes before its End-of-RIB
	s.sessions(ctx)
	s.fib.plan = p
	s.fib.setPeerRoutes(p.Sessions)
	s.fib.markAllDirty()
}

// removePeers drops what is known of peers with which a plan has no session.
func (s *Speaker) removePeers(p plan.Plan) {
	for peer := range maps.Clone(s.hold.awaiting) {
		if _, configured := p.Session(peer); !configured {
			s.hold.removePeer(peer)
		}
	}
	for peer := range maps.Clone(s.live.deadPeers) {
		if _, configured := p.Session(peer); !configured {
			delete(s.live.deadPeers, peer)
		}
	}
	for peer := range maps.Clone(s.live.verifying) {
		if _, configured := p.Session(peer); !configured {
			s.stopVerifying(peer)
		}
	}
}

// sessions opens, changes and closes sessions.
func (s *Speaker) sessions(ctx context.Context) {
	want := map[netip.Addr]peerSession{}
	for _, session := range s.plan.Sessions {
		w, unread := peerSession{session: session, restarting: s.hold.awaiting[session.Peer]}, error(nil)
		what := "session " + session.Peer.String()
		if session.Closed != "" {
			s.setProblem(what, errors.New("not opened: "+session.Closed))
			continue
		}
		if session.Password != nil {
			password, err := s.cfg.Secret(*session.Password)
			if password == "" {
				s.setProblem(what, fmt.Errorf("not opened: password: %w", err))
				continue
			}
			w.password, unread = password, err
		}
		if want[session.Peer] = w; unread != nil {
			s.setProblem(what, fmt.Errorf("password: %w; the last one stays in use", unread))
		} else {
			s.clearProblem(what)
		}
	}
	for peer, err := range s.bgp.setSessions(ctx, want) {
		s.setProblem("session "+peer.String(), err)
	}
}

// holding reports whether stale routes stay, and for how long; zero: until there is a plan.
func (s *Speaker) holding() (time.Duration, bool) {
	now := time.Now()
	at, holds := s.hold.next(now)
	if s.fib.keepStale && !holds {
		s.fib.markAllDirty() // what was kept may go
	}
	s.fib.keepStale = holds
	return at.Sub(now), holds && !at.IsZero()
}

// readvertise advertises again what peers may have missed, and returns when to call it again. While the library defers, it
// advertises nothing, and peers miss nothing.
func (s *Speaker) readvertise(ctx context.Context) time.Time {
	now := time.Now()
	if s.bgp == nil || len(s.bgp.newlyUp) == 0 {
		return time.Time{}
	}
	if deferring := s.started.Add(deferralTime * time.Second); len(s.hold.awaiting) > 0 && now.Before(deferring) {
		return deferring
	}
	next, err := s.bgp.readvertise(ctx, now)
	if err != nil {
		s.cfg.Log.Error("BGP", "err", err) // the session is down again
	}
	return next
}

// onLibraryEvents handles what the library's callbacks collected.
func (s *Speaker) onLibraryEvents(ctx context.Context) {
	established, failed := s.bgp.onSessionEvents(ctx)
	for _, peer := range established {
		delete(s.live.deadPeers, peer) // its session came up: the path works, whatever BFD says
	}
	for peer, err := range failed {
		s.setProblem("session "+peer.String(), err)
	}
	routes, endOfRIB := s.bgp.changes()
	for _, peer := range endOfRIB {
		s.hold.onEndOfRIB(peer, time.Now())
	}
	s.fib.update(routes)
}

// read reads routes and links from the kernel, and updates what is advertised.
func (s *Speaker) read() error {
	links, err := s.cfg.Rtnl.Links()
	if err != nil {
		return err
	}
	if err := s.exports.read(s.cfg.Rtnl, links); err != nil {
		return err
	}
	if err := s.fib.read(); err != nil {
		return err
	}
	s.clearProblem("kernel")
	s.advertise()
	return nil
}

// onEvents handles netlink events, and reports whether the tables must be read again.
func (s *Speaker) onEvents(events []rtnl.Event) bool {
	if events == nil {
		s.exports.foreign.stale(time.Now())
		return true
	}
	again, changed, ways := false, false, false
	for _, e := range events {
		switch {
		case e.Link != nil: // the kernel removes a downed link's routes without events
			again = s.exports.onLink(*e.Link, e.Gone) || again
		case e.Addr != nil:
			again = s.fib.address(e.Addr.Prefix, e.Gone) || again
			s.exports.foreign.onAddr(*e.Addr, e.Gone)
		case e.Route == nil || e.Route.Table != 0:
		case s.exports.local(*e.Route):
			changed = s.exports.onRoute(*e.Route, e.Gone) || changed
			s.exports.foreign.taken(routeKey{e.Route.Dst, e.Route.Metric})
			ways = ways || s.fib.isHop(e.Route.Dst) // a workload that is a peer
		case ours(*e.Route):
			again = again || s.fib.unexpected(*e.Route, e.Gone)
		default:
			ways = true // a next hop may be resolved by any route
			if s.exports.onForeign(*e.Route, e.Gone) {
				s.exports.foreign.advertising.ask(time.Now())
			}
		}
	}
	if ways {
		s.fib.refreshHops()
	}
	if changed {
		s.advertise()
	}
	return again
}

// advertise updates the routes that the library originates.
func (s *Speaker) advertise() {
	if s.bgp == nil || s.plan.Off != "" {
		return
	}
	if err := s.exports.originate(s.bgp, s.plan); err != nil {
		s.setProblem("origin", err)
		return
	}
	s.clearProblem("origin")
}

// apply writes pending routes to the kernel, and reports whether anything has failed.
func (s *Speaker) apply() bool {
	if err := s.fib.apply(); err != nil {
		s.setProblem("routes", err)
	} else {
		s.clearProblem("routes")
	}
	return len(s.problems) > 0
}

// setProblem records an error until clearProblem, and logs it once.
func (s *Speaker) setProblem(what string, err error) {
	if s.problems[what] != err.Error() {
		s.cfg.Log.Error("BGP", "what", what, "err", err, "retry_in", retryAfter)
	}
	s.problems[what] = err.Error()
}

func (s *Speaker) clearProblem(what string) { delete(s.problems, what) }
