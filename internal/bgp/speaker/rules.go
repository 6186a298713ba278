package speaker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/osrg/gobgp/v4/api"
	"google.golang.org/protobuf/proto"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// rules are the library's policies for all sessions: one generation of policies at a time, each for the
// sessions that have the same rules.
type rules struct {
	generation int
	text       string                // of all, to see whether something changed
	byPeer     map[netip.Addr]string // of each session
	policies   []*api.Policy
	sets       []*api.DefinedSet
	// links are the interface patterns that rules have used so far; each has a mark, a community on the originated routes
	// through such an interface.
	links []string
	// marked: rules look for coveredMark or foreignMark.
	marked bool
}

// Marks are large communities that never leave this process, and are removed from what peers send.
const (
	marks   = "4294967295:4294967295:"
	anyMark = "^" + marks
	marker  = marks + "4294967295" // on a route while a rule changes it in several steps
	// coveredMark is on routes that this node originates within another.
	coveredMark = marks + "4294967294"
	// foreignMark is on routes that this node originates although others made them.
	foreignMark = marks + "4294967293"
)

// mark is that of the interfaces of a rule.
func (r *rules) mark(pattern string) string {
	i := slices.Index(r.links, pattern)
	if i < 0 {
		i, r.links = len(r.links), append(r.links, pattern)
	}
	return fmt.Sprint(marks, i)
}

// marksOf returns the marks of a route through a link.
func (r *rules) marksOf(link string) []string {
	var out []string
	for i, pattern := range r.links {
		if plan.NameMatches(pattern, link) {
			out = append(out, fmt.Sprint(marks, i))
		}
	}
	return out
}

// setRules makes the library apply the sessions' rules. A session whose rules changed gets a soft reset in both
// directions; others notice nothing.
func (b *library) setRules(ctx context.Context, sessions []plan.Session) error {
	groups, of := grouped(sessions)
	text, err := json.Marshal(groups)
	if err != nil {
		return err
	}
	if b.rules.byPeer != nil && string(text) == b.rules.text {
		return nil
	}
	fresh := rules{generation: b.rules.generation + 1, text: string(text), byPeer: of, links: slices.Clone(b.rules.links)}
	builder := policyBuilder{generation: fresh.generation, rules: &fresh}
	for _, g := range groups { // all are known before the first statement, which must take them off
		for _, r := range g.Export {
			fresh.marked = fresh.marked || r.Covered || r.Foreign
			if r.Interface != "" {
				fresh.mark(r.Interface)
			}
		}
	}
	builder.set(api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY, "marker", "^"+marker+"$")
	builder.set(api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY, "marks", anyMark)
	builder.unmark()
	for i, g := range groups {
		builder.group(i, g)
	}
	fresh.policies, fresh.sets = builder.policies, builder.sets
	if err := b.install(ctx, fresh, builder); err != nil {
		b.remove(ctx, fresh)
		return err
	}
	old := b.rules
	b.rules = fresh
	b.remove(ctx, old)
	for peer := range b.open {
		if before, known := old.byPeer[peer]; known && before != of[peer] {
			err := b.srv.ResetPeer(ctx, &api.ResetPeerRequest{Address: peer.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_BOTH})
			if err != nil {
				return fmt.Errorf("apply new rules to %s: %w", peer, err)
			}
		}
	}
	return nil
}

// install adds a generation of policies, and switches to it.
func (b *library) install(ctx context.Context, fresh rules, builder policyBuilder) error {
	for _, s := range fresh.sets {
		if err := b.srv.AddDefinedSet(ctx, &api.AddDefinedSetRequest{DefinedSet: s}); err != nil {
			return fmt.Errorf("rules: %s: %w", s.Name, err)
		}
	}
	for _, p := range fresh.policies {
		if err := b.srv.AddPolicy(ctx, &api.AddPolicyRequest{Policy: p}); err != nil {
			return fmt.Errorf("rules: %s: %w", p.Name, err)
		}
	}
	for _, a := range []*api.PolicyAssignment{
		{Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT, DefaultAction: api.RouteAction_ROUTE_ACTION_ACCEPT, Policies: builder.in},
		{Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT, Policies: builder.out},
	} {
		if err := b.srv.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: a}); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
	}
	return nil
}

// remove deletes a generation that is not in use. What cannot be deleted has no effect.
func (b *library) remove(ctx context.Context, old rules) {
	for _, p := range old.policies {
		if err := b.srv.DeletePolicy(ctx, &api.DeletePolicyRequest{Policy: &api.Policy{Name: p.Name}, All: true}); err != nil {
			b.log.Debug("BGP: old rules stay", "err", err)
		}
	}
	for _, s := range old.sets {
		if err := b.srv.DeleteDefinedSet(ctx, &api.DeleteDefinedSetRequest{DefinedSet: s, All: true}); err != nil {
			b.log.Debug("BGP: old rules stay", "err", err)
		}
	}
}

// group are sessions with the same rules.
type group struct {
	Peers          []string
	Import, Export []plan.Rule
	NextHop        plan.NextHop
	External       uint32 // our AS number towards external peers; 0: they are internal
	Workloads      bool   `json:",omitempty"` // what they advertise has themselves as next hop
}

// grouped groups sessions with the same rules, so that a rule is evaluated once for hundreds of peers.
func grouped(sessions []plan.Session) ([]group, map[netip.Addr]string) {
	byText, of := map[string]*group{}, map[netip.Addr]string{}
	for _, s := range sessions {
		g := group{Import: s.Import, Export: s.Export, NextHop: s.NextHop, Workloads: s.Workload != ""}
		if !s.Internal() {
			g.External = s.LocalAS
		}
		text, _ := json.Marshal(g) // plain values always encode
		if byText[string(text)] == nil {
			byText[string(text)] = &g
		}
		same := byText[string(text)]
		same.Peers = append(same.Peers, netip.PrefixFrom(s.Peer, s.Peer.BitLen()).String())
		of[s.Peer] = string(text)
	}
	var out []group
	for _, text := range slices.Sorted(maps.Keys(byText)) {
		slices.Sort(byText[text].Peers)
		out = append(out, *byText[text])
	}
	return out, of
}

// policyBuilder builds a generation of policies.
type policyBuilder struct {
	generation int
	rules      *rules
	sets       []*api.DefinedSet
	policies   []*api.Policy
	in, out    []*api.Policy
}

func (d *policyBuilder) name(words string, args ...any) string {
	return fmt.Sprintf("g%d-", d.generation) + fmt.Sprintf(words, args...)
}

func (d *policyBuilder) set(t api.DefinedType, name string, list ...string) string {
	name = d.name("%s", name)
	d.sets = append(d.sets, &api.DefinedSet{DefinedType: t, Name: name, List: list})
	return name
}

// learned are the route types of routes learned from peers.
var learned = []api.Conditions_RouteType{api.Conditions_ROUTE_TYPE_INTERNAL, api.Conditions_ROUTE_TYPE_EXTERNAL}

// unmark removes marks from received routes, before all else: a peer that sends a route with a mark would get it past
// rules.
func (d *policyBuilder) unmark() {
	p := &api.Policy{Name: d.name("unmark")}
	for i, t := range learned {
		p.Statements = append(p.Statements, &api.Statement{
			Name:       d.name("unmark-%d", i),
			Conditions: &api.Conditions{RouteType: t, LargeCommunitySet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: d.name("marks")}},
			Actions:    &api.Actions{LargeCommunity: change(api.CommunityAction_TYPE_REMOVE, anyMark)},
		})
	}
	d.policies = append(d.policies, p)
	d.in = append(d.in, &api.Policy{Name: p.Name})
}

func (d *policyBuilder) group(i int, g group) {
	peers := d.set(api.DefinedType_DEFINED_TYPE_NEIGHBOR, fmt.Sprintf("%d-peers", i), g.Peers...)
	for _, l := range []struct {
		way   string
		rules []plan.Rule
		into  *[]*api.Policy
	}{{"in", g.Import, &d.in}, {"out", g.Export, &d.out}} {
		if len(l.rules) == 0 {
			continue
		}
		p := &api.Policy{Name: d.name("%d-%s", i, l.way)}
		for j, r := range l.rules {
			w := writer{builder: d, name: fmt.Sprintf("%d-%s-%d", i, l.way, j), peers: peers, out: l.way == "out", group: g}
			if r.Continue {
				p.Statements = append(p.Statements, w.communities(r)...)
				continue
			}
			p.Statements = append(p.Statements, w.rule(r)...)
		}
		d.policies = append(d.policies, p)
		*l.into = append(*l.into, &api.Policy{Name: p.Name})
	}
}

// writer writes the statements of one rule.
type writer struct {
	builder *policyBuilder
	name    string
	peers   string
	out     bool
	group   group
	steps   []*api.Statement
}

// rule is one statement, or several if it changes the route more than a statement can: the first then puts a mark
// on the route, and the last takes it off.
func (w *writer) rule(r plan.Rule) []*api.Statement {
	if !r.Accept {
		w.match(r, &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT})
		return w.steps
	}
	if len(r.Add) == 0 && len(r.Prepend) == 0 {
		w.match(r, w.accept(r))
		return w.steps
	}
	w.match(r, &api.Actions{LargeCommunity: change(api.CommunityAction_TYPE_ADD, marker)})
	marked := func() *api.Conditions {
		return &api.Conditions{
			NeighborSet:       &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: w.peers},
			LargeCommunitySet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: w.builder.name("marker")},
		}
	}
	standard, larges := parts(r.Add)
	if len(standard) > 0 {
		w.step(marked(), &api.Actions{Community: change(api.CommunityAction_TYPE_ADD, standard...)})
	}
	if len(larges) > 0 {
		w.step(marked(), &api.Actions{LargeCommunity: change(api.CommunityAction_TYPE_ADD, larges...)})
	}
	front := r.Prepend
	if w.out && len(front) > 0 && w.group.External != 0 && front[0] != w.group.External {
		front = append([]uint32{w.group.External}, front...) // peers expect our number first
	}
	for _, as := range slices.Backward(front) {
		w.step(marked(), &api.Actions{AsPrepend: &api.AsPrependAction{Asn: as, Repeat: 1}})
	}
	last := w.accept(r)
	last.LargeCommunity = change(api.CommunityAction_TYPE_REMOVE, anyMark)
	w.step(marked(), last)
	return w.steps
}

// communities adds a rule's communities one by one, and lets the rules after it decide. A route that has one already is left alone: the
// library would add it again.
func (w *writer) communities(r plan.Rule) []*api.Statement {
	name := w.name
	for i, community := range r.Add {
		w.name = fmt.Sprintf("%s-%d", name, i)
		without := r
		without.Community = community
		c, a := w.conditions(without), &api.Actions{}
		if large(community) {
			c.LargeCommunitySet.Type, a.LargeCommunity = api.MatchSet_TYPE_INVERT, change(api.CommunityAction_TYPE_ADD, community)
		} else {
			c.CommunitySet.Type, a.Community = api.MatchSet_TYPE_INVERT, change(api.CommunityAction_TYPE_ADD, community)
		}
		w.step(c, a)
	}
	return w.steps
}

// match adds the statements for the routes of a rule. The library knows internal, external and local routes, but not
// "learned": these are two statements.
func (w *writer) match(r plan.Rule, a *api.Actions) {
	c := w.conditions(r)
	if r.Own {
		c.RouteType = api.Conditions_ROUTE_TYPE_LOCAL
	}
	if !r.Learned || !w.out {
		w.step(c, a)
		return
	}
	for _, t := range learned {
		c := proto.CloneOf(c)
		c.RouteType = t
		w.step(c, a)
	}
}

func change(t api.CommunityAction_Type, communities ...string) *api.CommunityAction {
	return &api.CommunityAction{Type: t, Communities: communities}
}

func (w *writer) step(c *api.Conditions, a *api.Actions) {
	name := w.builder.name("%s-%d", w.name, len(w.steps))
	w.steps = append(w.steps, &api.Statement{Name: name, Conditions: c, Actions: a})
}

// accept are the actions of a rule that accepts. The library takes LOCAL_PREF off what goes to external peers after its rules.
func (w *writer) accept(r plan.Rule) *api.Actions {
	a := &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT}
	if r.SetPriority != 0 {
		a.LocalPref = &api.LocalPrefAction{Value: plan.LocalPref(r.SetPriority)}
	}
	if !w.out {
		if w.group.Workloads {
			a.Nexthop = &api.NexthopAction{PeerAddress: true}
		}
		return a
	}
	if len(w.builder.rules.links) > 0 || w.builder.rules.marked {
		a.LargeCommunity = change(api.CommunityAction_TYPE_REMOVE, anyMark)
	}
	switch w.group.NextHop {
	case plan.NextHopSelf:
		a.Nexthop = &api.NexthopAction{Self: true}
	case plan.NextHopKeep:
		a.Nexthop = &api.NexthopAction{Unchanged: true}
	}
	return a
}

func (w *writer) conditions(r plan.Rule) *api.Conditions {
	c := &api.Conditions{NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: w.peers}}
	if r.Prefix.IsValid() {
		name := w.builder.name("%s-prefix", w.name)
		w.builder.sets = append(w.builder.sets, &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_PREFIX, Name: name, Prefixes: []*api.Prefix{
			{IpPrefix: r.Prefix.String(), MaskLengthMin: uint32(r.Min), MaskLengthMax: uint32(r.Max)},
		}})
		c.PrefixSet = &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: name}
		if r.Not {
			c.PrefixSet.Type = api.MatchSet_TYPE_INVERT
		}
	}
	if r.Priority != 0 {
		c.LocalPrefEq = &api.LocalPrefEq{Value: plan.LocalPref(r.Priority)}
	}
	var larges []string
	if r.Interface != "" {
		larges = append(larges, "^"+w.builder.rules.mark(r.Interface)+"$")
	}
	if r.Covered {
		larges = append(larges, "^"+coveredMark+"$")
	}
	if r.Foreign {
		larges = append(larges, "^"+foreignMark+"$")
	}
	switch {
	case r.Community == "":
	case large(r.Community):
		larges = append(larges, "^"+r.Community+"$")
	default:
		name := w.builder.set(api.DefinedType_DEFINED_TYPE_COMMUNITY, w.name+"-community", "^"+r.Community+"$")
		c.CommunitySet = &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: name}
	}
	if len(larges) > 0 {
		name := w.builder.set(api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY, w.name+"-larges", larges...)
		c.LargeCommunitySet = &api.MatchSet{Type: api.MatchSet_TYPE_ALL, Name: name}
	}
	if len(r.ASPath) > 0 {
		name := w.builder.set(api.DefinedType_DEFINED_TYPE_AS_PATH, w.name+"-path", w.path(r.ASPath))
		c.AsPathSet = &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: name}
	}
	return c
}

// path is a regular expression for paths that begin so. What goes to external peers has our own number first
// already when the library judges it.
func (w *writer) path(front []uint32) string {
	if w.out && w.group.External != 0 {
		front = append([]uint32{w.group.External}, front...)
	}
	var words []string
	for _, as := range front {
		words = append(words, fmt.Sprint(as))
	}
	return "^" + strings.Join(words, "_") + "_"
}
