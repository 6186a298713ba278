package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/bgp/birdconf"
	"github.com/twillnet/twill/internal/bgp/birdctl"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/kernel"
)

// run runs f in the loop.
func (w *confWriter) run(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case w.requests <- func() { done <- f() }:
		return <-done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Report returns BIRD's state in the form of our own speaker's report.
func (w *confWriter) Report(ctx context.Context) (r speaker.Report, err error) {
	err = w.run(ctx, func() error { r, err = w.report(); return err })
	return r, err
}

func (w *confWriter) report() (speaker.Report, error) {
	p := w.plan
	r := speaker.Report{Node: p.Node, Off: p.Off, Reflects: p.Dedicated && p.Off == "", AS: p.AS, RouterID: p.RouterID, Since: w.started, Problems: slices.Clone(p.Problems), Unread: p.Unread}
	if w.configErr != "" {
		r.Problems = append(r.Problems, "BIRD's configuration: "+w.configErr)
	}
	for _, problem := range w.templateProblems {
		r.Problems = append(r.Problems, "template: "+problem)
	}
	installed, err := w.installed()
	if err != nil {
		return r, err
	}
	r.Kernel = len(installed)
	verdicts, err := speaker.ReadVerdicts(w.rtnl, p)
	if err != nil {
		return r, err
	}
	for _, v := range verdicts {
		if v.Advertised {
			r.Advertised++
		}
	}
	if p.Off != "" {
		r.Advertised = 0
		return r, nil
	}
	protocols, err := birdctl.Protocols(w.cfg.Bird)
	if err == nil {
		err = w.fromBIRD(&r)
	}
	if err != nil { // each session shows it, too
		r.Problems = append(r.Problems, "BIRD does not answer: "+err.Error())
	}
	for _, s := range p.Sessions {
		if s.Password != nil {
			if last, err := w.secrets.read(*s.Password); err != nil && last != "" {
				r.Problems = append(r.Problems, fmt.Sprintf("session %s: password: %v; the last one stays in use", s.Peer, err))
			}
		}
		r.Sessions = append(r.Sessions, w.session(s, protocols))
	}
	return r, nil
}

// fromBIRD adds what only BIRD knows.
func (w *confWriter) fromBIRD(r *speaker.Report) error {
	bird, err := birdctl.GetStatus(w.cfg.Bird)
	if err != nil {
		return err
	}
	r.Since, r.Planned, r.Version = bird.Booted, bird.Configured, bird.Version
	if bird.Recovering {
		r.Holding = time.Now().Add(bird.RecoveryLimit)
	}
	paths, err := birdctl.Paths(w.cfg.Bird)
	r.Learned = len(learned(paths))
	return err
}

// learned returns the destinations learned from peers.
func learned(paths []birdctl.Path) map[netip.Prefix]bool {
	out := map[netip.Prefix]bool{}
	for _, p := range paths {
		if p.Type == typeBGP {
			out[p.Dst] = true
		}
	}
	return out
}

// Kinds of BIRD's routes.
const (
	typeBGP    = "BGP"
	typeDevice = "device" // connected networks
)

// protocolOf is BIRD's protocol for a session: that of the built-in configuration, or another with its peer, as templates of users name them.
func protocolOf(s plan.Session, protocols map[string]birdctl.Protocol) (birdctl.Protocol, bool) {
	if p, ok := protocols[birdconf.Name(s)]; ok {
		return p, true
	}
	for _, name := range slices.Sorted(maps.Keys(protocols)) {
		if protocols[name].Peer == s.Peer {
			return protocols[name], true
		}
	}
	return birdctl.Protocol{}, false
}

func (w *confWriter) session(s plan.Session, protocols map[string]birdctl.Protocol) speaker.Session {
	is, there := protocolOf(s, protocols)
	if is.Since.IsZero() { // BIRD's configuration has another form of times
		is.Since = w.started
	}
	out := speaker.Session{
		Peer: s.Peer, PeerNode: s.PeerNode, From: s.Why, Global: s.Global, AS: s.AS, LocalAS: s.LocalAS, Client: s.Client,
		State: is.State, Since: is.Since, Why: is.LastError, Received: is.Imported + is.Filtered, Accepted: is.Imported, Advertised: is.Exported,
	}
	switch {
	case !there:
		out.State, out.Since, out.Why = "Closed", w.started, "BIRD has no such session"
		if why := birdconf.Omitted(s, w.secrets.read); why != nil {
			out.Why = "not opened: " + why.Error()
		}
	case out.State == speaker.Established:
		out.Why = ""
	case out.Why == "" && s.Passive:
		out.Why = "the peer has not connected yet"
	case out.Why == "":
		out.Why = "no answer yet: not reachable, not listening, or another password"
	}
	return out
}

// installed returns the destinations that BIRD has installed in the kernel.
func (w *confWriter) installed() (map[netip.Prefix]bool, error) {
	routes, err := routesOf(w.rtnl, kernel.RouteProtocolBIRD)
	out := map[netip.Prefix]bool{}
	for _, r := range routes {
		out[r.Dst] = true
	}
	return out, err
}

// Routes returns all paths that BIRD has accepted.
func (w *confWriter) Routes(ctx context.Context) (out []speaker.Route, err error) {
	err = w.run(ctx, func() error { out, err = w.routes(); return err })
	return out, err
}

func (w *confWriter) routes() ([]speaker.Route, error) {
	paths, err := birdctl.Paths(w.cfg.Bird)
	if err != nil {
		return nil, fmt.Errorf("BIRD does not answer: %w", err)
	}
	installed, err := w.installed()
	if err != nil {
		return nil, err
	}
	protocols, err := birdctl.Protocols(w.cfg.Bird)
	if err != nil {
		return nil, fmt.Errorf("BIRD does not answer: %w", err)
	}
	var out []speaker.Route
	for _, p := range paths {
		r := speaker.Route{
			Dst: p.Dst, Own: p.Type != typeBGP, From: protocols[p.Protocol].Peer, NextHop: p.NextHop, Best: p.Best, Stale: p.Stale,
			ASPath: p.ASPath, Communities: p.Communities, Priority: plan.PriorityOf(p.LocalPref),
		}
		switch {
		case p.Type == typeDevice:
			continue
		case r.Own || !r.Best:
		case w.plan.Dedicated:
			r.Kernel = speaker.NotOfReflector
		case w.plan.IsForeign(p.Dst):
			r.Kernel = "left to the agent"
		case installed[p.Dst]:
			r.Kernel = "installed"
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b speaker.Route) int {
		return cmp.Or(a.Dst.Addr().Compare(b.Dst.Addr()), a.Dst.Bits()-b.Dst.Bits())
	})
	return out, nil
}

// Explain explains a destination, or the longest prefix that covers it.
func (w *confWriter) Explain(ctx context.Context, asked netip.Prefix) (e speaker.Explanation, err error) {
	err = w.run(ctx, func() error { e, err = w.explain(asked); return err })
	return e, err
}

func (w *confWriter) explain(asked netip.Prefix) (speaker.Explanation, error) {
	verdicts, err := speaker.ReadVerdicts(w.rtnl, w.plan)
	if err != nil {
		return speaker.Explanation{}, err
	}
	routes, err := w.routes()
	if err != nil {
		return speaker.Explanation{}, err
	}
	known := map[netip.Prefix]bool{}
	for _, r := range routes {
		if !r.Own {
			known[r.Dst] = true
		}
	}
	e, more := verdicts.Explain(asked, maps.Keys(known))
	if !more {
		return e, nil
	}
	e.Paths = slices.DeleteFunc(routes, func(r speaker.Route) bool { return r.Dst != e.Dst })
	protocols, err := birdctl.Protocols(w.cfg.Bird)
	for _, s := range w.plan.Sessions {
		if s.Peer.Is4() != e.Dst.Addr().Is4() {
			continue
		}
		is, _ := protocolOf(s, protocols)
		v := speaker.PeerVerdict{Peer: s.Peer, PeerNode: s.PeerNode, Advertised: birdctl.IsAdvertised(w.cfg.Bird, is.Name, e.Dst)}
		to := e
		if v.Advertised {
			to.Paths = notFrom(s.Peer, e.Paths)
		}
		v.Why = speaker.ExplainPeer(w.plan, s, is.State == speaker.Established, to)
		e.Peers = append(e.Peers, v)
	}
	return e, err
}

// notFrom are the paths that may be advertised to a peer: those that it has not sent, of which the first counts as the best if the best was its
// own. BIRD advertises more than the best (RFC 7911).
func notFrom(peer netip.Addr, paths []speaker.Route) []speaker.Route {
	out := slices.DeleteFunc(slices.Clone(paths), func(r speaker.Route) bool { return r.From == peer })
	if len(out) > 0 && !slices.ContainsFunc(out, func(r speaker.Route) bool { return r.Best }) {
		out[0].Best = true
	}
	return out
}
