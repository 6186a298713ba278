package speaker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/netstat"
)

// Report is the state of a speaker.
type Report struct {
	Node       string     `json:"node"`
	Off        string     `json:"off,omitempty"` // why it does not run BGP
	AS         uint32     `json:"as,omitempty"`
	RouterID   netip.Addr `json:"routerID,omitzero"`
	Reflects   bool       `json:"reflects,omitempty"` // a dedicated reflector: no route is installed
	Since      time.Time  `json:"since"`
	Planned    time.Time  `json:"planned,omitzero"`  // when the last plan came
	Version    string     `json:"version,omitempty"` // of BIRD, if that speaks BGP instead of twill
	Holding    time.Time  `json:"holding,omitzero"`  // stale routes of a former speaker stay, at most until then
	Sessions   []Session  `json:"sessions,omitempty"`
	Advertised int        `json:"advertised"` // routes that this node originates
	Learned    int        `json:"learned"`    // destinations learned from peers
	Kernel     int        `json:"kernel"`     // learned routes that are installed
	Problems   []string   `json:"problems,omitempty"`
	Unread     []string   `json:"unread,omitempty"` // resources that could not be read, and of which no earlier version is known
}

// Session is the state of one session.
type Session struct {
	Peer       netip.Addr `json:"peer"`
	PeerNode   string     `json:"peerNode,omitempty"`
	Workload   string     `json:"workload,omitempty"` // on this node, namespace/name
	From       string     `json:"from"`               // mesh, or the BGPPeer
	Global     bool       `json:"global,omitempty"`   // that BGPPeer is for all nodes
	AS         uint32     `json:"as"`
	LocalAS    uint32     `json:"localAS"`
	Client     bool       `json:"client,omitempty"`
	State      string     `json:"state"` // of RFC 4271, 8.2.2
	Since      time.Time  `json:"since"`
	Why        string     `json:"why,omitempty"` // why it is not up
	Received   uint64     `json:"received"`
	Accepted   uint64     `json:"accepted"` // by the rules of the session, and no martians
	Advertised uint64     `json:"advertised"`
	BFD        bfd.Status `json:"bfd"` // the state of the path to the peer
}

// Established is the state of a session that is up.
const Established = "Established"

// Kernel of a path whose route is in the kernel, and of all that a dedicated reflector learns.
const (
	Installed      = "installed"
	NotOfReflector = "not installed: a dedicated reflector installs no route"
)

// Route is one path to a destination.
type Route struct {
	Dst         netip.Prefix `json:"dst"`
	Own         bool         `json:"own,omitempty"`
	From        netip.Addr   `json:"from,omitzero"`
	NextHop     netip.Addr   `json:"nextHop,omitzero"`
	Best        bool         `json:"best,omitempty"`
	Stale       bool         `json:"stale,omitempty"`
	ASPath      []uint32     `json:"asPath,omitempty"`
	Communities []string     `json:"communities,omitempty"`
	Priority    uint32       `json:"priority,omitempty"` // that its LOCAL_PREF stands for; none: it is one as other networks have them
	Kernel      string       `json:"kernel,omitempty"`   // installed, or why it is not; of best paths. Of own ones, whose it is there if it is not the agent's
}

// Explanation says how a destination is routed and advertised.
type Explanation struct {
	Asked netip.Prefix `json:"asked"`
	Dst   netip.Prefix `json:"dst,omitzero"`  // the longest known prefix that covers it; invalid: none
	Own   string       `json:"own,omitempty"` // the agent has a route to it here: that it is advertised, or why not
	// Foreign is what it is if this host has it, and neither the agent nor a service is why.
	Foreign string `json:"foreign,omitempty"`
	// OtherRoutes are routes to it in the kernel that are neither ours nor the agent's.
	OtherRoutes []string `json:"otherRoutes,omitempty"`
	Paths       []Route  `json:"paths,omitempty"`
	// Interface is that of the agent's route, if it has one.
	Interface string `json:"interface,omitempty"`
	// Covered: another route of this node covers it, and filters alone decide.
	Covered bool          `json:"covered,omitempty"`
	Peers   []PeerVerdict `json:"peers,omitempty"`
}

// PeerVerdict says whether a route is advertised to one peer, and why.
type PeerVerdict struct {
	Peer       netip.Addr `json:"peer"`
	PeerNode   string     `json:"peerNode,omitempty"`
	Advertised bool       `json:"advertised"`
	Why        string     `json:"why"`
}

// run runs f in the loop.
func (s *Speaker) run(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case s.requests <- func() { f(); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}

// Report returns the speaker's state.
func (s *Speaker) Report(ctx context.Context) (r Report, err error) {
	err = s.run(ctx, func() { r = s.report(ctx) })
	return r, err
}

func (s *Speaker) report(ctx context.Context) Report {
	p := s.plan
	r := Report{
		Node: p.Node, Off: p.Off, AS: p.AS, RouterID: p.RouterID, Since: s.started, Planned: s.planned, Holding: s.hold.until,
		Learned: len(s.fib.desired), Kernel: len(s.fib.actual), Problems: slices.Clone(p.Problems), Unread: p.Unread,
	}
	for _, what := range slices.Sorted(maps.Keys(s.problems)) {
		r.Problems = append(r.Problems, what+": "+s.problems[what])
	}
	if refused := s.fib.refusals(); refused != "" {
		r.Problems = append(r.Problems, refused)
	}
	if s.bgp == nil {
		return r
	}
	r.Advertised, r.Reflects = len(s.exports.originated), p.Dedicated
	if p.Dedicated {
		r.Learned = s.bgp.known(ctx)
	}
	states, hint := s.bgp.states(ctx), s.passwordHint()
	s.accepted(states)
	for _, w := range p.Sessions {
		session := states[w.Peer]
		session.BFD = s.live.status(w)
		session.Workload = w.Workload
		session.Peer, session.PeerNode, session.From, session.Global = w.Peer, w.PeerNode, w.Why, w.Global
		session.AS, session.LocalAS, session.Client = w.AS, w.LocalAS, w.Client
		switch {
		case session.State == "":
			session.State, session.Since, session.Why = "Closed", s.started, s.problems["session "+w.Peer.String()]
		case session.State != Established && session.Why == "" && w.Passive:
			session.Why = "the peer has not connected yet" + hint[w.Password != nil]
		case session.State != Established && session.Why == "":
			session.Why = "no answer yet: not reachable, not listening, or another password" + hint[w.Password != nil]
		case session.State != Established: // what ended it may be over, and another password keeps it down
			session.Why += hint[w.Password != nil]
		}
		r.Sessions = append(r.Sessions, session)
	}
	return r
}

// passwordHint returns what the kernel dropped for wrong passwords since the plan was made, which is visible nowhere else: for
// sessions with a password (true), and without (false).
func (s *Speaker) passwordHint() map[bool]string {
	now, err := netstat.TCP()
	if err != nil {
		return nil
	}
	since := func(counter string) uint64 { return now[counter] - s.counters[counter] }
	out := map[bool]string{}
	if n := since("TCPMD5Failure") + since("TCPMD5NotFound"); n > 0 {
		out[true] = fmt.Sprintf("; the kernel dropped %d packets whose password is not that of their session", n)
	}
	if n := since("TCPMD5Unexpected"); n > 0 {
		out[false] = fmt.Sprintf("; the kernel dropped %d packets with a password where the session has none", n)
	}
	return out
}

// states returns the library's sessions by peer.
func (b *library) states(ctx context.Context) map[netip.Addr]Session {
	words := map[api.PeerState_SessionState]string{
		api.PeerState_SESSION_STATE_IDLE: "Idle", api.PeerState_SESSION_STATE_CONNECT: "Connect", api.PeerState_SESSION_STATE_ACTIVE: "Active",
		api.PeerState_SESSION_STATE_OPENSENT: "OpenSent", api.PeerState_SESSION_STATE_OPENCONFIRM: "OpenConfirm",
		api.PeerState_SESSION_STATE_ESTABLISHED: Established,
	}
	out := map[netip.Addr]Session{}
	err := b.srv.ListPeer(ctx, &api.ListPeerRequest{EnableAdvertised: true}, func(p *api.Peer) {
		peer, err := netip.ParseAddr(p.GetState().GetNeighborAddress())
		if err != nil {
			return
		}
		s := Session{State: words[p.GetState().GetSessionState()]}
		for _, f := range p.GetAfiSafis() {
			s.Received += f.GetState().GetReceived()
			s.Accepted += f.GetState().GetAccepted()
			s.Advertised += f.GetState().GetAdvertised()
		}
		b.mu.Lock()
		s.Since, s.Why = b.sessionStates[peer].Since, b.sessionStates[peer].Why
		b.mu.Unlock()
		out[peer] = s
	})
	if err != nil {
		b.log.Error("BGP: list sessions", "err", err)
	}
	return out
}

// known returns how many destinations the library has.
func (b *library) known(ctx context.Context) int {
	n := 0
	for _, four := range []bool{true, false} {
		t, err := b.srv.GetTable(ctx, &api.GetTableRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: apiFamily(four)})
		if err != nil {
			b.log.Error("BGP: count routes", "err", err)
			continue
		}
		n += int(t.NumDestination)
	}
	return n
}

// covering returns the learned destinations that cover one.
func (b *library) covering(asked netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	err := b.srv.ListPath(apiutil.ListPathRequest{
		TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: familyOf(asked.Addr().Is4()),
		Prefixes: []*apiutil.LookupPrefix{{Prefix: asked.String(), LookupOption: apiutil.LOOKUP_SHORTER}},
	}, func(nlri bgp.NLRI, _ []*apiutil.Path) {
		if dst, ok := prefixOf(nlri); ok {
			out = append(out, dst)
		}
	})
	if err != nil {
		b.log.Error("BGP: look up", "err", err)
	}
	return out
}

// Routes returns all paths that are known, sorted by destination.
func (s *Speaker) Routes(ctx context.Context) (out []Route, err error) {
	err = s.run(ctx, func() { out = s.paths(nil) })
	return out, err
}

// paths returns those to one destination; nil: all.
func (s *Speaker) paths(dst *netip.Prefix) []Route {
	var out []Route
	if s.bgp == nil {
		return nil
	}
	for _, family := range families {
		req := apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family}
		if dst != nil {
			if familyOf(dst.Addr().Is4()) != family {
				continue
			}
			req.Prefixes = []*apiutil.LookupPrefix{{Prefix: dst.String()}}
		}
		err := s.bgp.srv.ListPath(req, func(nlri bgp.NLRI, paths []*apiutil.Path) {
			at, ok := prefixOf(nlri)
			if !ok || dst != nil && at != *dst {
				return
			}
			for _, p := range paths {
				out = append(out, s.route(at, p))
			}
		})
		if err != nil {
			s.cfg.Log.Error("BGP: list paths", "err", err)
		}
	}
	slices.SortStableFunc(out, func(a, b Route) int {
		return cmp.Or(a.Dst.Addr().Compare(b.Dst.Addr()), a.Dst.Bits()-b.Dst.Bits())
	})
	return out
}

func (s *Speaker) route(dst netip.Prefix, p *apiutil.Path) Route {
	r := Route{
		Dst: dst, Own: !fromPeer(p), Best: p.Best, Stale: p.Stale, ASPath: asPathOf(p), Communities: communitiesOf(p),
		Priority: plan.PriorityOf(localPrefOf(p)),
	}
	if r.Own {
		r.Kernel = s.exports.kinds[dst]
		return r
	}
	r.From, r.NextHop = p.PeerAddress, nextHop(p)
	if !r.Best {
		return r
	}
	_, there := s.fib.actual[dst]
	refused := s.fib.refused[dst]
	switch err := s.fib.failed[dst]; {
	case s.plan.Dedicated:
		r.Kernel = NotOfReflector
	case s.plan.IsForeign(dst):
		r.Kernel = "left to the agent"
	case refused != "":
		r.Kernel = "refused: " + refused
	case err != nil:
		r.Kernel = err.Error()
	case there:
		r.Kernel = Installed
	}
	return r
}

// Explain explains a destination, or the longest prefix that covers it.
func (s *Speaker) Explain(ctx context.Context, asked netip.Prefix) (e Explanation, err error) {
	err = s.run(ctx, func() { e = s.explain(asked) })
	return e, err
}

func (s *Speaker) explain(asked netip.Prefix) Explanation {
	var learned []netip.Prefix
	if s.bgp != nil {
		learned = s.bgp.covering(asked)
	}
	e, more := s.allVerdicts(asked, learned).Explain(asked, slices.Values(learned))
	if !more {
		return e
	}
	e.Paths = s.paths(&e.Dst)
	var err error
	if e.Foreign != "" && !slices.ContainsFunc(e.Paths, func(r Route) bool { return !r.Own }) {
		e.OtherRoutes = nil // there is none of ours to compare them with
	} else if e.OtherRoutes, err = otherRoutes(s.cfg.Rtnl, e.Dst, s.fib.metric(e.Dst, s.fib.desired[e.Dst].priority)); err != nil {
		s.cfg.Log.Error("BGP: list routes", "err", err)
	}
	if s.bgp == nil {
		return e
	}
	for _, w := range s.plan.Sessions {
		if w.Peer.Is4() == e.Dst.Addr().Is4() {
			e.Peers = append(e.Peers, s.verdictFor(w, e))
		}
	}
	return e
}

// verdictFor asks the library whether a route is advertised to a peer, and the plan why.
func (s *Speaker) verdictFor(w plan.Session, e Explanation) PeerVerdict {
	v := PeerVerdict{Peer: w.Peer, PeerNode: w.PeerNode}
	req := apiutil.ListPathRequest{
		TableType: api.TableType_TABLE_TYPE_ADJ_OUT, Name: w.Peer.String(), Family: familyOf(e.Dst.Addr().Is4()),
		Prefixes: []*apiutil.LookupPrefix{{Prefix: e.Dst.String()}},
	}
	_ = s.bgp.srv.ListPath(req, func(nlri bgp.NLRI, paths []*apiutil.Path) { // no such session: nothing is advertised to it
		at, _ := prefixOf(nlri)
		v.Advertised = v.Advertised || at == e.Dst && len(paths) > 0
	})
	s.bgp.mu.Lock()
	up := s.bgp.sessionStates[w.Peer].Up
	s.bgp.mu.Unlock()
	v.Why = ExplainPeer(s.plan, w, up, e)
	return v
}
