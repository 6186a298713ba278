package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/host"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/dataplane/proxy"
	"github.com/twillnet/twill/internal/dataplane/remote"
	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/dataplane/shape"
	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// KernelDriver is a [remote.Target] that programs this host's kernel as an agent does, for an agent in another process.
type KernelDriver struct{ Log *slog.Logger }

// Begin implements [remote.Target].
func (k KernelDriver) Begin(ctx context.Context, agent string, changed func(intent.Outcome)) (remote.Session, error) {
	handles, err := openKernel()
	if err != nil {
		return nil, fmt.Errorf("open netlink (is the driver root?): %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &kernelSession{
		handles: handles, batches: make(chan intent.Batch), changed: changed, since: map[intent.Key]intent.Outcome{}, reported: map[intent.Key]bool{}, rounds: make(chan struct{}, 1), end: cancel, ended: make(chan struct{}),
	}
	parts := s.parts(ctx, k.Log)
	go func() {
		defer close(s.ended)
		group, within := errgroup.WithContext(ctx)
		for name, run := range parts {
			group.Go(func() error { return named(name, run(within)) })
		}
		if s.err = group.Wait(); ctx.Err() == nil {
			k.Log.Error("a part of the driver has ended; it begins again with the agent's next stream", "agent", agent, "err", s.err)
		}
	}()
	return s, nil
}

// kernelSession is an agent's. Its drivers read the kernel back when they begin, as those of an agent that starts, and so take over what is there.
type kernelSession struct {
	handles kernelHandles
	batches chan intent.Batch
	changed func(intent.Outcome)
	end     context.CancelFunc
	ended   chan struct{} // closed once err is set
	err     error
	rounds  chan struct{} // has one after a round that left nothing undone

	mu       sync.Mutex
	merged   int                           // batches
	done     int                           // those that are in force
	commit   bool                          // one is under way, and outcomes are its answer
	since    map[intent.Key]intent.Outcome // the last of each, since it began
	reported map[intent.Key]bool           // what the agent knows not to be wholly in force
}

// parts are the drivers' loop and what it needs.
func (s *kernelSession) parts(ctx context.Context, log *slog.Logger) map[string]func(context.Context) error {
	d := s.handles
	policy := nft.New(d.nft, nft.Config{Names: attribution.New(), Reader: d.readConn, Recheck: true})
	interfaces, routes, links := host.New(d.rtnl, d.sysctl, host.Config{}), d.routes(ctx), ifmon.New(d.rtnl)
	live := revoke.New(revoke.Config{Table: d.conntrack, Local: d.addrs, Log: log.With("part", "revoke")})
	loop := dataplane.New(dataplane.Config{
		Policy: policy, Forwarding: []dataplane.Driver{interfaces, tunnel.New(d.rtnl, tunnel.Config{}), routes, shape.New(d.rtnl), proxy.New(d.rtnl, d.sysctl)},
		Followers: []dataplane.Follower{live}, LinksFirst: true, Outcomes: s.outcomes, Observer: s, Log: log.With("part", "dataplane"),
	})
	return map[string]func(context.Context) error{
		"ifmon": links.Run, "fib": routes.Run, "host": interfaces.Run, "revoke": live.Run,
		"policy":    func(ctx context.Context) error { return policy.Run(ctx, d.nftEvents) },
		"dataplane": func(ctx context.Context) error { return loop.Run(ctx, s.batches, links.Changes()) },
	}
}

// Commit implements [remote.Session]. It returns once the loop has done all, however often it has to try.
func (s *kernelSession) Commit(ctx context.Context, b intent.Batch) ([]intent.Outcome, error) {
	s.mu.Lock()
	s.commit = true
	want := s.merged + 1
	for _, k := range b.Removed {
		delete(s.reported, k)
	}
	s.mu.Unlock()
	select {
	case s.batches <- b:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ended:
		return nil, s.err
	}
	for {
		if out, done := s.answer(want); done {
			return out, nil
		}
		select {
		case <-s.rounds:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ended:
			return nil, s.err
		}
	}
}

// answer returns what the agent does not know, once a batch is done: it takes for in force what nothing is said of.
func (s *kernelSession) answer(batch int) (out []intent.Outcome, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done < batch {
		return nil, false
	}
	for _, o := range s.since {
		if s.news(o) {
			out = append(out, o)
		}
	}
	s.commit = false
	clear(s.since)
	return out, true
}

// news reports whether an outcome must be sent, and notes that it is.
func (s *kernelSession) news(o intent.Outcome) bool {
	wrong, was := o.Err != nil || o.Reason != "", s.reported[o.Key]
	if delete(s.reported, o.Key); wrong {
		s.reported[o.Key] = true
	}
	return wrong || was
}

// Failed implements [remote.Session].
func (s *kernelSession) Failed() <-chan struct{} { return s.ended }

// End implements [remote.Session].
func (s *kernelSession) End() {
	s.end()
	<-s.ended
	s.handles.close()
}

// outcomes passes outcomes on: with the answer to a commit, or by themselves.
func (s *kernelSession) outcomes(list []intent.Outcome) {
	var send []intent.Outcome
	s.mu.Lock()
	for _, o := range list {
		switch {
		case s.commit:
			s.since[o.Key] = o
		case s.news(o):
			send = append(send, o)
		}
	}
	s.mu.Unlock()
	for _, o := range send {
		s.changed(o)
	}
}

// Merged implements [dataplane.Observer].
func (s *kernelSession) Merged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.merged++
}

// Round implements [dataplane.Observer].
func (s *kernelSession) Round(_ bool, pending []string) {
	if len(pending) > 0 {
		return
	}
	s.mu.Lock()
	s.done = s.merged
	s.mu.Unlock()
	select {
	case s.rounds <- struct{}{}:
	default:
	}
}

// Applied implements [dataplane.Observer].
func (s *kernelSession) Applied(string, time.Duration, error) {}

// Resynced implements [dataplane.Observer].
func (s *kernelSession) Resynced(string, time.Duration, error) {}

// Repaired implements [dataplane.Observer].
func (s *kernelSession) Repaired(string, intent.Cause, int) {}
