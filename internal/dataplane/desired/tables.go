package desired

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Tables owns what the tables of classes, programs and codes are made of.
var Tables intent.Key = intent.HostID("tables")

// Code says what a code of the tables leads to.
type Code struct {
	Code  classify.Code
	Allow bool            // the packet has passed; else it is dropped
	By    intent.Decision // what decides
	Chain string          // not empty: this chain decides; it returns what is allowed
	// Rejects: that chain may answer the sender, so nothing that postrouting leads to may lead to it.
	Rejects bool
}

// tables are policy as look-ups (docs/decisions/033-compiled-policy.md).
type tables struct {
	state   *classify.State
	groups  map[intent.GroupID]*asked
	byGroup map[classify.Group]*asked
	of      map[intent.EndpointID]*asked
	hosts   hostWalks
	next    classify.Group
	named   map[string]intent.GroupID // by the names of groups, also of those that are gone as long as something of them rests
	left    []string                  // names of groups that are gone

	// chained counts, for each policy, the groups, and stages of host endpoints, that ask for its chain.
	chained  map[intent.PolicyID]int
	outcomes map[classify.Code]classify.Outcome // all codes in use
	looks    map[intent.SetID]int               // how many codes look into a set
	users    index[intent.SetID, classify.Code] // that look into a set
	again    map[classify.Code]struct{}         // codes that are rendered anew
	delta    *classify.Delta                    // what Changes is to say
	codes    []Code
	gone     []classify.Code
	stated   bool // Changes said something of these tables
}

// asked is a group of endpoints that carry traffic.
type asked struct {
	id        intent.GroupID
	policies  []intent.PolicyID
	numbers   [2]classify.Group // by direction
	chains    [2]string         // that ask the tables, by direction
	endpoints map[intent.EndpointID]struct{}
	plain     [2]string // why it is asked by chains; empty: by tables
}

// byChains reports whether its endpoints have chains.
func (a *asked) byChains() bool { return a.plain != [2]string{} }

func newTables(limits classify.Limits, members classify.Members) *tables {
	return &tables{
		state: classify.New(limits, members), groups: map[intent.GroupID]*asked{}, byGroup: map[classify.Group]*asked{},
		of: map[intent.EndpointID]*asked{}, named: map[string]intent.GroupID{}, chained: map[intent.PolicyID]int{},
		hosts:    hostWalks{map[string]*hostWalk{}, map[classify.Group]*hostWalk{}},
		outcomes: map[classify.Code]classify.Outcome{}, looks: map[intent.SetID]int{}, users: index[intent.SetID, classify.Code]{}, again: map[classify.Code]struct{}{},
	}
}

// Members says which members came to sets and went, and no other. It is for a State with tables.
func (s *State) Members(changes []intent.MemberDelta) {
	if s.tables == nil {
		return
	}
	for _, d := range changes {
		s.tables.state.Change(d)
	}
}

// setCompiled makes policy tables or chains: all of it is worked out anew.
func (s *State) setCompiled(on bool) {
	if on == (s.tables != nil) {
		return
	}
	if s.tables = nil; on {
		s.tables = newTables(classify.Limits{}, s.cfg.Members)
	}
	for name, owner := range s.owners {
		if owner == Tables {
			s.drop(name, Tables)
		}
	}
	for id := range s.endpoints {
		s.dirtyEndpoints[id] = struct{}{}
	}
	for id := range s.policies {
		s.dirtyPolicies[id] = struct{}{}
	}
	for id := range s.sets {
		s.newSets[id] = struct{}{}
	}
}

// Compiled reports whether policy is tables.
func (s *State) Compiled() bool { return s.tables != nil }

// Rested says that what Changes said to take away is no longer there, and that no packet is on its way that found it: its numbers may be
// given again.
func (s *State) Rested() {
	t := s.tables
	t.state.Committed()
	for _, name := range t.left {
		if t.groups[t.named[name]] == nil {
			delete(t.named, name)
		}
	}
	t.left = t.left[:0]
}

// place notes of which group an endpoint is that carries traffic, and returns it; nil if it does not, or there are no tables.
func (s *State) place(e *endpoint, id intent.EndpointID, open bool) *asked {
	t := s.tables
	if t == nil {
		return nil
	}
	was := t.of[id]
	var now *asked
	if open {
		now = t.group(e)
		now.endpoints[id] = struct{}{}
		t.of[id] = now
	}
	if was == nil || was == now {
		return now
	}
	if now == nil {
		delete(t.of, id)
	}
	if delete(was.endpoints, id); len(was.endpoints) == 0 {
		s.disband(was)
	}
	return now
}

func (t *tables) group(e *endpoint) *asked {
	id := e.Policies().ID
	if a := t.groups[id]; a != nil {
		return a
	}
	a := &asked{id: id, policies: e.Policies().IDs(), endpoints: map[intent.EndpointID]struct{}{}}
	t.groups[id] = a
	name := t.name(id)
	a.chains = [2]string{intent.Ingress: inGroup + name, intent.Egress: outGroup + name}
	for _, dir := range directions {
		t.next++
		a.numbers[dir] = t.next
		t.byGroup[t.next] = a
		t.state.SetWalk(t.next, classify.WalkOf(e.Endpoint, dir))
	}
	return a
}

// name names a group: briefly, since the kernel finds a set by comparing its name with that of each before it. Of two groups whose names would
// be the same, the later has all of its ID, also while something of the other rests.
func (t *tables) name(id intent.GroupID) string {
	name := id.String()
	short := name[:8]
	if is, taken := t.named[short]; taken && is != id {
		return name
	}
	t.named[short] = id
	return short
}

// disband forgets a group that has no endpoint any more.
func (s *State) disband(a *asked) {
	t := s.tables
	if a.byChains() {
		s.chain(a.policies, -1)
	}
	delete(t.groups, a.id)
	t.left = append(t.left, a.id.String()[:8])
	for _, dir := range directions {
		delete(t.byGroup, a.numbers[dir])
		t.state.RemoveWalk(a.numbers[dir])
		s.drop(a.chains[dir], Tables)
	}
}

// How the names of chains begin that look packets up in the tables, and that decide codes.
const (
	inGroup  = "in-"
	outGroup = "out-"
	ofCode   = "code-"
)

// IsLate reports whether a name begins like that of a chain which is Late. An agent that starts finds chains of an earlier one by it.
func IsLate(name string) bool {
	for _, begin := range []string{inGroup, outGroup, ofCode} {
		if strings.HasPrefix(name, begin) {
			return true
		}
	}
	return false
}

// codeChain is the name of the chain that decides a code.
func codeChain(c classify.Code) string { return fmt.Sprintf("%s%08x", ofCode, uint32(c)) }

// chainsOf says what an endpoint's interface leads to.
func (s *State) chainsOf(e *endpoint) (in, out string) {
	if t := s.tables; t != nil {
		if a := t.of[e.ID]; a != nil && !a.byChains() {
			return a.chains[intent.Ingress], a.chains[intent.Egress]
		}
	}
	return e.chains()
}

// wantGroup wants the chain that asks the tables for a group.
func (s *State) wantGroup(a *asked, dir intent.Direction) {
	name := a.chains[dir]
	if _, wanted := s.owners[name]; !wanted {
		s.want(Chain{
			Name: name, Comment: rules.Shorten("asked: " + names(a.policies)), Owner: Tables, Late: true,
			Guards: []Guard{{Do: Classify, Group: a.numbers[dir], Peer: sideOf(dir)}},
		})
	}
}

// GroupName is how the names of a group's maps begin; empty: there is no such group any more.
func (s *State) GroupName(number classify.Group) string {
	if s.tables == nil {
		return ""
	}
	if w := s.tables.hosts.byNumber[number]; w != nil {
		return w.mapsOf()
	}
	if s.tables.byGroup[number] == nil {
		return ""
	}
	a := s.tables.byGroup[number]
	if a.numbers[intent.Egress] == number {
		return a.chains[intent.Egress]
	}
	return a.chains[intent.Ingress]
}

// names are the names of policies, as many as fit.
func names(ids []intent.PolicyID) string {
	text := ""
	for i, id := range ids {
		if i > 0 {
			text += ", "
		}
		if text += id.Name; len(text) > rules.MaxComment {
			break
		}
	}
	return text
}

// chain counts who asks for the chains of policies.
func (s *State) chain(ids []intent.PolicyID, by int) {
	if s.tables == nil {
		return
	}
	for _, id := range ids {
		was := s.tables.chained[id]
		if s.tables.chained[id] = was + by; was+by == 0 {
			delete(s.tables.chained, id)
		}
		if was == 0 || was+by == 0 {
			s.dirtyPolicies[id] = struct{}{}
			if p := s.policies[id]; p != nil {
				for _, set := range p.sets {
					s.newSets[set] = struct{}{}
				}
			}
		}
	}
}

// wantsChain reports whether somebody asks for the chains of a policy.
func (s *State) wantsChain(id intent.PolicyID) bool {
	return s.tables == nil || s.tables.chained[id] > 0
}

// tell brings a policy into the tables, or takes it out.
func (s *State) tell(id intent.PolicyID, p *policy, callable bool) {
	switch t := s.tables; {
	case t == nil:
	case callable:
		t.state.SetPolicy(s.within(p.Policy))
	default:
		t.state.RemovePolicy(id)
	}
}

// compile works out what of the tables is other than before, and what follows for groups that they cannot hold.
func (s *State) compile() {
	t := s.tables
	first := t.state.Flush()
	for d := first; d != nil; d = d.Next {
		s.leaveOut(d.Plain)
	}
	s.refresh()
	for d := first; d != nil; d = d.Next {
		s.compileCodes(d)
	}
	t.gone = slices.DeleteFunc(t.gone, func(c classify.Code) bool { _, again := t.outcomes[c]; return again })
	for _, c := range slices.Sorted(maps.Keys(t.again)) {
		if o, ok := t.outcomes[c]; ok {
			t.codes = append(t.codes, s.code(c, o))
		}
	}
	t.again = empty(t.again)
	t.delta = first
}

// leaveOut takes over which groups the tables cannot hold, with the reason, and which they can hold again.
func (s *State) leaveOut(plain map[classify.Group]string) {
	t := s.tables
	for number, why := range plain {
		if w := t.hosts.byNumber[number]; w != nil {
			s.setHostPlain(w, why)
		}
		a := t.byGroup[number]
		if a == nil {
			continue
		}
		was := a.byChains()
		for _, dir := range directions {
			if a.numbers[dir] == number {
				a.plain[dir] = why
			}
		}
		for id := range a.endpoints {
			s.touched[id] = struct{}{}
		}
		if was == a.byChains() {
			continue
		}
		for _, dir := range directions {
			s.drop(a.chains[dir], Tables)
		}
		s.chain(a.policies, map[bool]int{true: 1, false: -1}[a.byChains()])
		for id := range a.endpoints {
			s.dirtyEndpoints[id] = struct{}{}
		}
	}
}

// compileCodes takes over which codes came and went.
func (s *State) compileCodes(d *classify.Delta) {
	t := s.tables
	for _, c := range d.Shrink.Codes {
		if o, ok := t.outcomes[c]; ok {
			delete(t.outcomes, c)
			eachSet(o, func(id intent.SetID) { t.users.remove(id, c) })
			s.look(o, -1)
			t.gone = append(t.gone, c)
			s.drop(codeChain(c), Tables)
		}
	}
	for c, o := range d.Grow.Codes {
		t.outcomes[c] = o
		t.again[c] = struct{}{}
		eachSet(o, func(id intent.SetID) { t.users.add(id, c) })
		s.look(o, 1)
	}
}

// code says what a code leads to, and wants its chain if it has one.
func (s *State) code(c classify.Code, o classify.Outcome) Code {
	last := o[len(o)-1]
	out := Code{Code: c, Allow: last.Action == rules.Allow || last.Action == rules.Accept, By: last.By}
	if o.Simple() && (last.Action == rules.Deny || out.Allow && !s.Reports(last.By)) {
		s.drop(codeChain(c), Tables)
		return out
	}
	out.Chain = codeChain(c)
	x := Chain{Name: out.Chain, Owner: Tables, Late: true}
	for _, br := range o {
		r := rules.Rule{Terms: br.Terms, Action: br.Action, By: br.By, Comment: rules.DecisionComment(br.By)}
		switch r.Action {
		case rules.Allow, rules.Accept:
			r.Action = rules.Permit
		case rules.AllowUntracked:
			r.Action = rules.PermitUntracked
		case rules.AllowEarly:
			r.Action = rules.PermitEarly
		case rules.Reset, rules.Reject:
			out.Rejects = true
		case rules.Log:
			if begin := s.host.Log.Begin(br.By.Tier, br.By.Rule.Policy); begin != "" {
				r.Comment = rules.Shorten(begin + ": " + r.Comment)
			}
		}
		x.Rules = append(x.Rules, r)
	}
	s.want(x)
	return out
}

// look counts the codes that look into sets.
func (s *State) look(o classify.Outcome, by int) {
	eachSet(o, func(id intent.SetID) {
		if s.tables.looks[id] += by; s.tables.looks[id] == 0 {
			delete(s.tables.looks, id)
		}
		s.newSets[id] = struct{}{}
	})
}

// eachSet calls f for each set that an outcome names, once for each time.
func eachSet(o classify.Outcome, f func(intent.SetID)) {
	for _, br := range o {
		for _, term := range br.Terms {
			if term.Set != "" {
				f(term.Set)
			}
		}
	}
}

// renderAgain has codes rendered anew that look into a set, since that has another form.
func (s *State) renderAgain(id intent.SetID) {
	if s.tables != nil {
		maps.Copy(s.tables.again, s.tables.users[id])
	}
}

// Plain says of each endpoint that is asked by chains although there are tables why that is.
type Plain map[intent.EndpointID]string

// Plain returns these endpoints.
func (s *State) Plain() Plain {
	out := Plain{}
	if s.tables == nil {
		return out
	}
	for id := range s.tables.of {
		if why := s.byChains(id); why != "" {
			out[id] = why
		}
	}
	for _, w := range s.tables.hosts.byNumber {
		if w.plain != "" {
			out[w.of] = s.byChains(w.of)
		}
	}
	return out
}

// byChains returns why an endpoint is asked by chains although there are tables; empty: it is not.
func (s *State) byChains(key intent.Key) string {
	id, ofEndpoint := key.(intent.EndpointID)
	switch {
	case !ofEndpoint || s.tables == nil:
		return ""
	case id.Kind == intent.Host:
		return s.tables.hosts.plain(id)
	case s.tables.of[id] == nil:
		return ""
	}
	return cmp.Or(s.tables.of[id].plain[:]...)
}
