// Package desired decides what this node's dataplane should be, in a form that any backend can make so.
//
// In: [intent.Batch] through [State.Merge], the addresses of interfaces through [State.Links], and what a backend could not have
// through [State.Refuse].
// Out: [Changes]: the stages of a packet's way with their guards, chains, uses of sets and what interfaces lead to, each with the intent
// that it is for, as far as they are other than before; and an [intent.Outcome] for each intent whose fate changed.
//
// All that decides is here: what depends on what, and what is closed since something that it needs is missing, was refused, costs too
// much or has the name of another; which endpoint has an interface; how host endpoints are asked at which stage; what is so
// on any node; in which order members of sets change ([Mover]). A backend is a reconciler: it turns this form into operations on its
// kernel subsystem, reads back, and finds out which intent the kernel refused ([docs/decisions/028-desired-and-reconcilers.md]).
//
// Members of sets pass by: a backend takes them from the same batches, in its own form, and says what that form costs ([Coster]).
// A State depends on what it was given, but for one thing: of two owners of a name, the first keeps it.
// It has no clock, goroutine, lock or logger. One goroutine may use it.
package desired

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Config is what a State must know of its backend and host.
type Config struct {
	// Prefixes of the names of workloads' interfaces, until intents say them: one that no endpoint is known for carries
	// nothing. Nil means "cali".
	Prefixes []string
	Cost     Coster // nil: nothing costs anything
	Budget   Price  // of one policy; zero: [DefaultBudget]
}

// State is what is wanted. Make it with New.
type State struct {
	cfg Config

	sets       map[intent.SetID]*set
	policies   map[intent.PolicyID]*policy
	endpoints  map[intent.EndpointID]*endpoint
	host       intent.HostSettings
	configured bool // host was sent
	inSync     bool
	setUsers   index[intent.SetID, intent.PolicyID]
	groups     intent.Groups // of endpoints
	linkUsers  index[string, intent.EndpointID]

	// What of it must be looked at anew.
	dirtyPolicies  map[intent.PolicyID]struct{}
	dirtyEndpoints map[intent.EndpointID]struct{}
	dirtyLinks     map[string]struct{}

	callable map[intent.PolicyID]bool // policies whose chains are wanted
	// uncallable are policies that were sent and whose chains are not wanted, with the reason.
	uncallable map[intent.PolicyID]string
	over       map[intent.PolicyID]string // policies that are beyond their budget, and how far
	owners     map[string]intent.Key      // of chains that are wanted, by name
	names      map[string]intent.SetID    // of sets
	waiting    index[string, intent.Key]  // for a name that is another's
	faults     map[intent.Key]fault       // why an intent is not in force
	touched    map[intent.Key]struct{}    // intents whose outcome is due
	hosts      hosts

	// What is other than Changes said.
	newChains map[string]Chain
	goneNames map[string]struct{}
	newSets   map[intent.SetID]struct{}
	newLinks  map[string]Link
}

// fault is why an intent is not in force.
type fault struct {
	err     error
	refused bool // by the backend: worth another try
	denies  bool // a policy denies everything in its place, so that who asks it need not be closed
}

// New returns a State that knows nothing yet. Its first Changes are what closes a node.
func New(cfg Config) *State {
	if cfg.Prefixes == nil {
		cfg.Prefixes = []string{"cali"}
	}
	if cfg.Budget == (Price{}) {
		cfg.Budget = DefaultBudget
	}
	s := &State{
		cfg:  cfg,
		sets: map[intent.SetID]*set{}, policies: map[intent.PolicyID]*policy{}, endpoints: map[intent.EndpointID]*endpoint{},
		setUsers:  index[intent.SetID, intent.PolicyID]{},
		linkUsers: index[string, intent.EndpointID]{}, waiting: index[string, intent.Key]{},
		dirtyPolicies: map[intent.PolicyID]struct{}{}, dirtyEndpoints: map[intent.EndpointID]struct{}{}, dirtyLinks: map[string]struct{}{},
		callable: map[intent.PolicyID]bool{}, uncallable: map[intent.PolicyID]string{}, over: map[intent.PolicyID]string{},
		owners: map[string]intent.Key{}, names: map[string]intent.SetID{},
		faults: map[intent.Key]fault{}, touched: map[intent.Key]struct{}{},
		hosts:     hosts{addrs: map[string][]netip.Addr{}},
		newChains: map[string]Chain{}, goneNames: map[string]struct{}{}, newSets: map[intent.SetID]struct{}{}, newLinks: map[string]Link{},
	}
	s.skeleton()
	return s
}

// InSync reports whether all that existed at the start is known. Until then Changes say only what is so on any node, of which a reconciler
// makes what is [Chain.Early], and it takes nothing away.
func (s *State) InSync() bool { return s.inSync }

// Host is the settings; ok is false until they were sent.
func (s *State) Host() (h intent.HostSettings, ok bool) { return s.host, s.configured }

// Logs is how much rules with action Log report. Until the settings are known, that is what they are by default.
func (s *State) Logs() intent.LogSettings {
	if !s.configured {
		return intent.LogSettings{Rate: 100, Per: time.Second, Burst: 100}
	}
	return s.host.Log
}

// Reports reports whether packets are reported under what decides about them, and not only counted: if they are denied, and if they
// are allowed and the settings ask for it.
func (s *State) Reports(by intent.Decision) bool {
	return by.Reason != "" && (!by.Allowed || s.host.ReportAllowed)
}

// Changes works out what follows from all that was merged, and says what of it is other than the last time. Before the source is in sync it
// says what is so on any node, and keeps the rest: what is known in part must not come into force.
func (s *State) Changes() Changes {
	s.refresh()
	var c Changes
	if !s.inSync {
		for name, chain := range s.newChains {
			if chain.Owner == nil {
				c.Chains = append(c.Chains, chain)
				delete(s.newChains, name)
			}
		}
		slices.SortFunc(c.Chains, byName)
		return c
	}
	if n := len(s.newChains); n > 0 {
		c.Chains = make([]Chain, 0, n)
	}
	for _, id := range slices.Sorted(maps.Keys(s.newSets)) {
		if u, changed := s.useOf(id); changed {
			c.Sets = append(c.Sets, u)
		}
	}
	for _, chain := range s.newChains {
		c.Chains = append(c.Chains, chain)
	}
	slices.SortFunc(c.Chains, byName)
	c.Gone = slices.Sorted(maps.Keys(s.goneNames))
	for _, l := range s.newLinks {
		c.Links = append(c.Links, l)
	}
	slices.SortFunc(c.Links, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
	s.newChains, s.goneNames, s.newSets, s.newLinks = empty(s.newChains), empty(s.goneNames), empty(s.newSets), empty(s.newLinks)
	return c
}

func byName(a, b Chain) int { return strings.Compare(a.Name, b.Name) }

// Restate has the next Changes say all that is wanted, for a reconciler that comes to a State which another had before. What it said is
// gone is not said again: who comes finds by itself what it has and nobody wants.
func (s *State) Restate() {
	s.goneNames = empty(s.goneNames)
	for id, x := range s.sets {
		x.told = Set{}
		s.newSets[id] = struct{}{}
	}
	for id := range s.policies {
		s.dirtyPolicies[id] = struct{}{}
	}
	for id := range s.endpoints {
		s.dirtyEndpoints[id] = struct{}{}
	}
	s.hosts.dirty = true
	s.skeleton()
	s.natOutgoing()
}

// empty returns an empty map: the same one, unless it is large, since a map never shrinks.
func empty[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > 64 {
		return map[K]V{}
	}
	clear(m)
	return m
}

// Outcomes are those of intents whose fate changed, or that were tried again, since the last call; none before the source is in sync.
// Call it when what Changes said is in force.
func (s *State) Outcomes() []intent.Outcome {
	if !s.inSync {
		return nil
	}
	out := make([]intent.Outcome, 0, len(s.touched))
	for key := range s.touched {
		out = append(out, intent.Outcome{Key: key, Err: s.wrong(key), Final: s.faults[key].denies, Reason: s.reason(key)})
	}
	clear(s.touched)
	return out
}

// want says what a chain should be.
func (s *State) want(c Chain) {
	s.owners[c.Name] = c.Owner
	delete(s.goneNames, c.Name)
	s.newChains[c.Name] = c
}

// wantRules says what a chain of a policy or an endpoint should be.
func (s *State) wantRules(c rules.Chain, owner intent.Key) {
	s.want(Chain{Name: c.Name, Comment: c.Comment, Owner: owner, Rules: c.Rules, Generation: c.Generation})
}

// drop says that a chain of an owner's should not be, and gives its name to who waits for it.
func (s *State) drop(name string, owner intent.Key) {
	is, wanted := s.owners[name]
	if wanted && is != owner {
		return
	}
	if wanted {
		delete(s.owners, name)
		delete(s.newChains, name)
		s.goneNames[name] = struct{}{}
	}
	s.free(name)
}
