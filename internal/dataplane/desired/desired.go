// Package desired computes the desired state of this node's dataplane, in a form that any backend can render.
//
// In: [intent.Batch] through [State.Merge], the addresses of interfaces through [State.Links], and intents that a backend could not
// apply through [State.Refuse].
// Out: [Changes]: the stages of a packet's way with their guards, chains, uses of sets and what interfaces lead to, each with the intent
// that it is for, as far as they changed; and an [intent.Outcome] for each intent whose outcome changed.
//
// All decisions are made here: what depends on what, and what is closed because something that it needs is missing, was refused, exceeds
// its budget or has the name of another; which endpoint has an interface; how host endpoints are asked at which stage; the guards of
// every node; in which order members of sets change ([Mover]). A backend is a reconciler: it turns this form into operations on its
// kernel subsystem, reads back, and finds out which intent the kernel refused ([docs/decisions/028-desired-and-reconcilers.md]).
//
// The members of sets are not kept here: a backend takes them from the same batches, and says what they cost ([Coster]).
// A State depends on what it was given and not on the order, with one exception: of two owners of a name, the first keeps it.
// It has no clock, goroutine, lock or logger. One goroutine may use it.
package desired

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Config is what a State must know of its backend and host.
type Config struct {
	// Prefixes of the names of workloads' interfaces, until settings have them: an interface with such a name and no endpoint is
	// closed. Nil means "cali".
	Prefixes []string
	// Shared: others have rules in the backend's tables, and decide about what ours pass unless it is accepted.
	Shared bool
	Cost   Coster // nil: everything costs nothing
	Budget Price  // of one policy; zero: [DefaultBudget]
	// Recheck: somebody looks at established flows after each change, and says Judged. Until then the backend decides about them again.
	Recheck bool
	// Members are those of all sets that were merged; State.Members is called with each change of them. Nil: the backend has no
	// tables (package classify), and policy is chains whatever the settings say.
	Members classify.Members
}

// State is the desired state. Make it with New.
type State struct {
	cfg Config

	sets       map[intent.SetID]*set
	policies   map[intent.PolicyID]*policy
	endpoints  map[intent.EndpointID]*endpoint
	host       intent.HostSettings
	configured bool // host settings were merged
	inSync     bool
	setUsers   index[intent.SetID, intent.PolicyID]
	groups     intent.Groups // of endpoints
	linkUsers  index[string, intent.EndpointID]

	// What must be computed again.
	dirtyPolicies  map[intent.PolicyID]struct{}
	dirtyEndpoints map[intent.EndpointID]struct{}
	dirtyLinks     map[string]struct{}
	dirtyFloats    bool
	dirtyLimits    bool
	dirtyCodes     bool

	callable map[intent.PolicyID]bool // policies whose chains are wanted
	// uncallable are policies that were sent and whose chains are not wanted, with the reason.
	uncallable map[intent.PolicyID]string
	over       map[intent.PolicyID]string // policies that are beyond their budget, and how far
	owners     map[string]intent.Key      // of chains that are wanted, by name
	names      map[string]intent.SetID    // of sets
	waiting    index[string, intent.Key]  // keys that wait for a name that another has
	faults     map[intent.Key]fault       // why an intent is not in force
	broken     map[string]error           // chains that are for no single intent, which could not be rendered
	touched    map[intent.Key]struct{}    // intents with an outcome to report
	hosts      hosts
	recheck    recheck
	floats     map[intent.EndpointID]struct{} // endpoints with floating addresses
	limited    map[intent.EndpointID]struct{} // endpoints that limit something
	coded      map[intent.EndpointID]struct{} // endpoints with a DSCP
	tables     *tables                        // nil: policy is chains; see configure

	// What changed since the last Changes.
	newChains map[string]Chain
	goneNames map[string]struct{}
	newSets   map[intent.SetID]struct{}
	newLinks  map[string]Link
}

// fault is why an intent is not in force.
type fault struct {
	err     error
	refused bool // by the backend: tried again after Retry
	denies  bool // a policy is replaced by one that denies everything, so that endpoints with it need not be closed
}

// New returns a State without intents. Its first Changes close the node.
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
		owners: map[string]intent.Key{}, names: map[string]intent.SetID{}, floats: map[intent.EndpointID]struct{}{}, limited: map[intent.EndpointID]struct{}{}, coded: map[intent.EndpointID]struct{}{},
		faults: map[intent.Key]fault{}, broken: map[string]error{}, touched: map[intent.Key]struct{}{},
		hosts: hosts{addrs: map[string][]netip.Addr{}}, recheck: recheck{links: map[string]uint64{}},
		newChains: map[string]Chain{}, goneNames: map[string]struct{}{}, newSets: map[intent.SetID]struct{}{}, newLinks: map[string]Link{},
	}
	s.skeleton()
	return s
}

// InSync reports whether all intents of the start were merged. Until then Changes have only the skeleton, of which a reconciler
// makes what is [Chain.Early], and nothing may be deleted.
func (s *State) InSync() bool { return s.inSync }

// Host returns the settings; ok is false until they were merged.
func (s *State) Host() (h intent.HostSettings, ok bool) { return s.host, s.configured }

// Logs returns the limits for rules with action Log: those of the settings, and until these are merged 100 a second.
func (s *State) Logs() intent.LogSettings {
	if !s.configured {
		return intent.LogSettings{Rate: 100, Per: time.Second, Burst: 100}
	}
	return s.host.Log
}

// Reports reports whether packets are reported under a decision, and not only counted: always if they are denied, and if they
// are allowed when the settings ask for it.
func (s *State) Reports(by intent.Decision) bool {
	return by.Reason != "" && (!by.Allowed || s.host.ReportAllowed)
}

// Changes computes the desired state from all that was merged, and returns what changed since the last call. Before the source is in sync it
// returns the skeleton only, and keeps the rest for later: intents that are known in part must not come into force.
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
	if t := s.tables; t != nil {
		s.compile()
		c.Tables, c.Codes, c.GoneCodes, c.Restarted = t.delta, t.codes, t.gone, !t.stated
		t.delta, t.codes, t.gone, t.stated = nil, nil, nil, true
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

// Restate has the next Changes return all that is wanted, for a reconciler that takes over a State from another. What is not wanted any
// more is not in it: the reconciler finds that when it reads back.
func (s *State) Restate() {
	s.goneNames = empty(s.goneNames)
	for id, x := range s.sets {
		x.stated = Set{}
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
	s.metadata()
	s.serviceLoops()
	s.tunnelStages()
	s.floating()
	s.limitStages()
	s.codePoints()
	s.recheckChains()
}

// empty returns an empty map: the same one, unless it is large, since a map never shrinks.
func empty[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > 64 {
		return map[K]V{}
	}
	clear(m)
	return m
}

// Outcomes returns the outcomes of intents that changed, or that were tried again, since the last call; none before the source is in sync.
// Call it when the last Changes are in force.
func (s *State) Outcomes() []intent.Outcome {
	if !s.inSync {
		return nil
	}
	out := make([]intent.Outcome, 0, len(s.touched))
	for key := range s.touched {
		out = append(out, intent.Outcome{Key: key, Err: s.wrong(key), Final: s.faults[key].denies, Reason: s.reason(key), Chains: s.byChains(key)})
	}
	clear(s.touched)
	return out
}

// want makes a chain desired.
func (s *State) want(c Chain) {
	s.owners[c.Name] = c.Owner
	s.mended(c.Name)
	delete(s.goneNames, c.Name)
	s.newChains[c.Name] = c
}

// wantRules makes a chain of a policy or an endpoint desired.
func (s *State) wantRules(c rules.Chain, owner intent.Key) {
	s.want(Chain{Name: c.Name, Comment: c.Comment, Owner: owner, Rules: c.Rules, Generation: c.Generation})
}

// drop makes a chain unwanted if it is the owner's, and gives its name to the keys that wait for it.
func (s *State) drop(name string, owner intent.Key) {
	is, wanted := s.owners[name]
	if wanted && is != owner {
		return
	}
	if wanted {
		delete(s.owners, name)
		delete(s.newChains, name)
		s.mended(name)
		s.goneNames[name] = struct{}{}
	}
	s.free(name)
}
