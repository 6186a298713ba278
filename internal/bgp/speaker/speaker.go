// Package speaker speaks BGP for one node: it makes a [plan.Plan] true.
//
// In: plans, and the kernel's routes: those of the agent (kernel.RouteProtocolAgent) are told to peers, by the rules of
// each session. Out: sessions, and what peers tell as routes of kernel.RouteProtocolSpeaker.
//
// A route with that protocol and one of its two metrics is the speaker's; any other is somebody else's and is never
// replaced or removed. What a former speaker left in the kernel stays until its peers are back and have told all
// they know, or the restart time is over. A speaker that ends says nothing to its peers, so that these, too, keep its
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

// Config is all that a speaker must be told.
type Config struct {
	Rtnl *rtnl.Handle
	// Secret returns a password; with an error the last one that could be read. A session whose password cannot be had
	// is not opened.
	Secret func(plan.Secret) (string, error)
	// Alive is told what BFD says of the paths to peers, whenever it changes; nil: there is no BFD now.
	Alive <-chan []bfd.Status
	// Answers asks a peer's kernel whether the path to it is alive, within a time; an error: it does not answer. nil:
	// no echo is sent, and a session that BFD declares down is down.
	Answers func(peer netip.Addr, within time.Duration) error
	// Returns: a speaker ran here before, and peers may still have what it told. One that has routes in the kernel sees
	// that by itself; a dedicated reflector has none.
	Returns bool
	Log     *slog.Logger
}

// Times of the loop.
const (
	settle     = 50 * time.Millisecond // before tables are read again, so that a burst of events costs one reading
	retryAfter = 2 * time.Second       // what failed is tried again
	// lookAtClock is how often it is looked at whether the clock was set back.
	lookAtClock = 5 * time.Second
)

// errClock: whoever runs the speaker starts it again, and no route moves meanwhile. Our own times, and those of sessions,
// are by the clock that nobody sets.
var errClock = errors.New("the clock was set back to before a session came up, and until then the BGP library passes over all that is said in it: starting anew")

// Speaker is a running speaker. Use New and Run.
type Speaker struct {
	cfg      Config
	asks     chan func()
	plan     plan.Plan
	told     exports
	fib      fib
	bgp      *library
	begun    time.Time
	planned  time.Time // when the plan came
	hold     hold
	live     liveness
	problems map[string]string // what does not work, by what it is about
	counters map[string]uint64 // those of TCP when the plan came
}

// New returns a speaker, which does nothing until Run.
func New(cfg Config) *Speaker {
	s := &Speaker{cfg: cfg, asks: make(chan func()), problems: map[string]string{}, live: liveness{dead: map[netip.Addr]bool{}, suspects: map[netip.Addr]*suspect{}, silent: make(chan *suspect)}}
	s.told = exports{agent: map[routeKey]rtnl.Route{}, links: map[int]rtnl.Link{}}
	s.fib = newFIB(cfg.Rtnl)
	return s
}

// Run speaks as the plans say until the context ends.
func (s *Speaker) Run(ctx context.Context, plans <-chan plan.Plan) error {
	s.begun = time.Now()
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

// receive hands events on; nil stands for lost ones.
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

// alarm is a timer that what comes meanwhile does not put off. Use idle; whoever takes from C calls rang.
type alarm struct {
	*time.Timer
	set bool
}

// idle is a timer that does not run.
func idle() *alarm {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &alarm{Timer: t}
}

// within has it ring after a time, unless it is to ring anyway.
func (a *alarm) within(d time.Duration) {
	if !a.set {
		a.set = true
		a.Reset(d)
	}
}

func (a *alarm) rang() { a.set = false }

// loop owns all state.
func (s *Speaker) loop(ctx context.Context, plans <-chan plan.Plan, events <-chan []rtnl.Event) error {
	reread, retry, hold, young := idle(), idle(), idle(), idle()
	clock := time.NewTicker(lookAtClock)
	defer clock.Stop()
	var news <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p := <-plans:
			s.counters, _ = netstat.TCP() // without it less is known of passwords
			s.adopt(ctx, p)
		case es := <-events:
			if s.heed(es) {
				reread.within(settle)
			}
		case <-news:
			s.learn(ctx)
		case statuses := <-s.cfg.Alive:
			s.alive(ctx, statuses)
		case who := <-s.live.silent:
			s.silent(ctx, who)
		case <-reread.C:
			reread.rang()
			if err := s.read(); err != nil {
				s.trouble("kernel", err)
				reread.within(retryAfter)
			}
		case <-clock.C:
			if s.bgp != nil && s.bgp.deaf(time.Now()) {
				return errClock
			}
		case <-hold.C:
		case <-young.C:
		case <-retry.C:
			retry.rang()
			if s.plan.Node != "" {
				s.adopt(ctx, s.plan)
			}
			s.fib.everything()
		case ask := <-s.asks:
			ask()
		}
		if news = nil; s.bgp != nil {
			news = s.bgp.news
		}
		if wait, holds := s.holding(); holds {
			hold.Reset(wait)
		}
		if next := s.catchUp(ctx); !next.IsZero() {
			young.Reset(time.Until(next))
		}
		if failed := s.apply(); failed {
			retry.within(retryAfter)
		}
	}
}

// adopt makes a plan the one that holds.
func (s *Speaker) adopt(ctx context.Context, p plan.Plan) {
	first := s.plan.Node == ""
	s.plan, s.planned = p, time.Now()
	if s.bgp != nil && !s.bgp.fits(p) {
		why := "AS number, router id or listening address changed"
		if p.Off != "" {
			why = p.Off
		}
		s.cfg.Log.Warn("all sessions end", "why", why)
		s.bgp.stop()
		s.bgp = nil
		s.fib.learned(nil)
	}
	if p.Off != "" {
		s.hold.end()
		return
	}
	if first {
		left := s.fib.left()
		returns := left > 0 || s.cfg.Returns
		s.hold.begin(p, returns, time.Now())
		if returns {
			s.cfg.Log.Info("restarted: keeping routes until peers have told theirs", "routes", left, "at_most", p.Restart())
		}
	}
	for peer := range maps.Clone(s.hold.waiting) {
		if _, wanted := p.Session(peer); !wanted {
			s.hold.forget(peer)
		}
	}
	for peer := range maps.Clone(s.live.dead) {
		if _, wanted := p.Session(peer); !wanted {
			delete(s.live.dead, peer)
		}
	}
	for peer := range maps.Clone(s.live.suspects) {
		if _, wanted := p.Session(peer); !wanted {
			s.trust(peer)
		}
	}
	if s.bgp == nil {
		b, err := startLibrary(ctx, p, s.cfg.Log)
		if err != nil {
			s.trouble("listen", err)
			return
		}
		s.bgp, s.told.originated = b, map[netip.Prefix]string{}
	}
	s.fine("listen")
	if err := s.bgp.setRules(ctx, p.Sessions, p.Marks); err != nil {
		s.trouble("rules", err)
		return // with no rules a session would tell and believe everything
	}
	s.fine("rules")
	s.tell() // first, so that whom we call gets all before we say that it is all
	s.sessions(ctx)
	s.fib.foreign, s.fib.encapsulated = p.IsForeign, p.IsEncapsulated
	s.fib.reach(p.Sessions)
	s.fib.everything()
}

// sessions opens, changes and closes sessions.
func (s *Speaker) sessions(ctx context.Context) {
	want := map[netip.Addr]wanted{}
	for _, session := range s.plan.Sessions {
		w, unread := wanted{session: session, restarting: s.hold.waiting[session.Peer]}, error(nil)
		what := "session " + session.Peer.String()
		if session.Closed != "" {
			s.trouble(what, errors.New("not opened: "+session.Closed))
			continue
		}
		if session.Password != nil {
			password, err := s.cfg.Secret(*session.Password)
			if password == "" {
				s.trouble(what, fmt.Errorf("not opened: password: %w", err))
				continue
			}
			w.password, unread = password, err
		}
		if want[session.Peer] = w; unread != nil {
			s.trouble(what, fmt.Errorf("password: %w; the last one stays in use", unread))
		} else {
			s.fine(what)
		}
	}
	for peer, err := range s.bgp.setSessions(ctx, want) {
		s.trouble("session "+peer.String(), err)
	}
}

// holding reports whether routes stay that nobody tells, and for how long.
func (s *Speaker) holding() (time.Duration, bool) {
	now := time.Now()
	at, holds := s.hold.next(now)
	if s.fib.held && !holds {
		s.fib.everything() // what was kept may go
	}
	s.fib.held = holds
	return at.Sub(now), holds && !at.IsZero()
}

// catchUp has peers told what they may have missed, and returns when to ask again. While the library waits for peers
// to tell theirs it tells nobody anything, and misses nothing.
func (s *Speaker) catchUp(ctx context.Context) time.Time {
	now := time.Now()
	if s.bgp == nil || len(s.bgp.young) == 0 {
		return time.Time{}
	}
	if defers := s.begun.Add(deferral * time.Second); len(s.hold.waiting) > 0 && now.Before(defers) {
		return defers
	}
	next, err := s.bgp.catchUp(ctx, now)
	if err != nil {
		s.cfg.Log.Error("BGP", "err", err) // the session is down again
	}
	return next
}

// learn takes in what the library has to tell.
func (s *Speaker) learn(ctx context.Context) {
	rose, failed := s.bgp.silence(ctx)
	for _, peer := range rose {
		delete(s.live.dead, peer) // it is not dead, whatever BFD says
	}
	for peer, err := range failed {
		s.trouble("session "+peer.String(), err)
	}
	routes, complete := s.bgp.changes()
	for _, peer := range complete {
		s.hold.complete(peer, time.Now())
	}
	s.fib.learned(routes)
}

// read reads routes and links, and makes of them what is told.
func (s *Speaker) read() error {
	links, err := s.cfg.Rtnl.Links()
	if err != nil {
		return err
	}
	if err := s.told.read(s.cfg.Rtnl, links); err != nil {
		return err
	}
	if err := s.fib.read(); err != nil {
		return err
	}
	s.fine("kernel")
	s.tell()
	return nil
}

// heed looks at events, and reports whether the tables must be read again.
func (s *Speaker) heed(events []rtnl.Event) bool {
	if events == nil {
		return true
	}
	again, changed, ways := false, false, false
	for _, e := range events {
		switch {
		case e.Link != nil: // one that goes down takes routes with it without a word
			again = s.told.link(*e.Link, e.Gone) || again
		case e.Addr != nil:
			again = s.fib.address(e.Addr.Prefix.Addr(), e.Gone) || again
		case e.Route == nil || e.Route.Table != 0:
		case local(*e.Route):
			changed = s.told.heed(*e.Route, e.Gone) || changed
		case ours(*e.Route):
			again = again || s.fib.surprised(*e.Route, e.Gone)
		default:
			ways = true // somebody's route may be the way to a next hop
		}
	}
	if ways {
		s.fib.lost()
	}
	if changed {
		s.tell()
	}
	return again
}

// tell gives the library what is to be told.
func (s *Speaker) tell() {
	if s.bgp == nil || s.plan.Off != "" {
		return
	}
	if err := s.told.originate(s.bgp, s.plan); err != nil {
		s.trouble("origin", err)
		return
	}
	s.fine("origin")
}

// apply writes what is pending into the kernel, and reports whether something failed.
func (s *Speaker) apply() bool {
	if err := s.fib.apply(); err != nil {
		s.trouble("routes", err)
	} else {
		s.fine("routes")
	}
	return len(s.problems) > 0
}

// trouble notes what does not work, and logs it once.
func (s *Speaker) trouble(what string, err error) {
	if s.problems[what] != err.Error() {
		s.cfg.Log.Error("BGP", "what", what, "err", err, "retry_in", retryAfter)
	}
	s.problems[what] = err.Error()
}

func (s *Speaker) fine(what string) { delete(s.problems, what) }
