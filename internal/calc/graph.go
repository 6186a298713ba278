// Package calc decides what this node should program.
//
// In: [api.Update], one for each changed resource, in any order.
// Out: [intent.Batch], the smallest change that makes the node right.
//
// A [Graph] depends on the resources it holds, not on how they came: it has
// no clock, goroutine, lock or logger. One goroutine may use it.
//
// It asks each selector once for each distinct combination of labels (a
// vector), not once for each endpoint, and only selectors of policies that
// apply to an endpoint of this node.
package calc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// Graph holds the resources that matter here, and what follows from them.
type Graph struct {
	node   string
	inSync bool

	labels   labelIndex
	sets     setIndex
	policies map[string]*policy  // by datastore key
	tiers    map[string]tier     // by name, of the store
	profiles map[string]*profile // by name
	locals   map[string]*local   // local workload endpoints, by datastore key
	settings map[string]setting  // FelixConfigurations that concern this node, by name
	problems map[string][]api.Problem
	closed   map[string]bool // keys of global policies that cannot be read: the node is not ready

	dirtyLocals   map[string]bool
	dirtyProfiles map[string]bool // by name: content or existence changed
	dirtyPolicies map[*policy]bool
	sent          sent
}

// New returns a graph for the node of that name.
func New(node string) *Graph {
	g := &Graph{
		node: node, policies: map[string]*policy{}, tiers: map[string]tier{}, profiles: map[string]*profile{}, locals: map[string]*local{},
		settings: map[string]setting{}, problems: map[string][]api.Problem{}, closed: map[string]bool{},
		dirtyLocals: map[string]bool{}, dirtyProfiles: map[string]bool{}, dirtyPolicies: map[*policy]bool{}, sent: newSent(),
	}
	g.sets = newSetIndex()
	g.labels = newLabelIndex(&g.sets)
	return g
}

// SetInSync says that every resource that existed at start has been given.
func (g *Graph) SetInSync() { g.inSync = true }

// Problems are those of all resources, by key.
func (g *Graph) Problems() []api.Problem {
	var out []api.Problem
	for _, k := range slices.Sorted(maps.Keys(g.problems)) {
		out = append(out, g.problems[k]...)
	}
	return out
}

// Ready reports whether all that concerns this node was understood well enough, and else why not.
func (g *Graph) Ready() (bool, []string) {
	var why []string
	for _, k := range slices.Sorted(maps.Keys(g.closed)) {
		why = append(why, fmt.Sprintf("%s cannot be read and applies to nothing", k))
	}
	return len(why) == 0, why
}

// Update takes changes in. A value that is not a resource changes nothing but Problems.
func (g *Graph) Update(us []api.Update) {
	for _, u := range us {
		g.update(u)
	}
}

func (g *Graph) update(u api.Update) {
	if u.Value == nil {
		delete(g.problems, u.Key)
		if ref, ok := api.ParseKey(u.Key); ok {
			g.remove(u.Key, ref)
		}
		return
	}
	s, err := api.DecodeStored(u)
	if err != nil {
		g.problems[u.Key] = []api.Problem{{Key: u.Key, Reason: err.Error()}}
		return
	}
	if len(s.Problems) > 0 {
		g.problems[u.Key] = s.Problems
	} else {
		delete(g.problems, u.Key)
	}
	g.put(u.Key, s)
}

// put takes over the present value of a resource.
func (g *Graph) put(key string, s api.Stored) {
	switch r := s.Resource.(type) {
	case *api.WorkloadEndpoint:
		g.putWorkload(key, s, r)
	case *api.HostEndpoint:
		g.labels.put(key, hostItem(r))
	case *api.NetworkSet:
		g.labels.put(key, setItem(r.Metadata, r.Spec.Nets))
	case *api.GlobalNetworkSet:
		g.labels.put(key, setItem(r.Metadata, r.Spec.Nets))
	case *api.Profile:
		g.putProfile(s.Ref.Name, r, s.Closed)
	case *api.Tier:
		g.tiers[s.Ref.Name] = tierOf(r)
		g.tierChanged(s.Ref.Name)
	case *api.NetworkPolicy, *api.GlobalNetworkPolicy:
		g.putPolicy(key, s)
	case *api.FelixConfiguration:
		g.settings[s.Ref.Name] = settingOf(r)
	}
}

// remove forgets a resource.
func (g *Graph) remove(key string, ref api.Ref) {
	switch ref.Kind {
	case api.KindWorkloadEndpoint:
		g.labels.remove(key)
		g.removeLocal(key)
	case api.KindHostEndpoint, api.KindNetworkSet, api.KindGlobalNetworkSet:
		g.labels.remove(key)
	case api.KindProfile:
		g.putProfile(ref.Name, nil, "")
	case api.KindTier:
		delete(g.tiers, ref.Name)
		g.tierChanged(ref.Name)
	case api.KindNetworkPolicy, api.KindGlobalNetworkPolicy:
		g.removePolicy(key)
	case api.KindFelixConfiguration:
		delete(g.settings, ref.Name)
	}
}

// tier is where a tier stands and how it ends.
type tier struct {
	order *float64 // nil: last
	pass  bool     // its default action
	known bool
}

func tierOf(t *api.Tier) tier {
	return tier{order: t.Spec.Order, pass: t.Spec.DefaultAction != nil && *t.Spec.DefaultAction == api.Pass, known: true}
}

func order(f float64) *float64 { return &f }

// tier returns a tier by name. The built-in ones are what they are, whatever the store says.
func (g *Graph) tier(name string) tier {
	switch name {
	case api.TierKubeAdmin:
		return tier{order(1000), true, true}
	case api.TierDefault:
		return tier{order(1_000_000), false, true}
	case api.TierKubeBaseline:
		return tier{order(10_000_000), true, true}
	}
	return g.tiers[name]
}

// tierChanged makes all endpoints dirty that have a policy of that tier.
func (g *Graph) tierChanged(name string) {
	for key, l := range g.locals {
		for p := range l.policies {
			if p.tier == name {
				g.dirtyLocals[key] = true
				break
			}
		}
	}
}

// compareTiers puts known ones first, by (order, none last, name); unknown ones by name.
func (g *Graph) compareTiers(a, b string) int {
	x, y := g.tier(a), g.tier(b)
	if x.known != y.known {
		if x.known {
			return -1
		}
		return 1
	}
	return cmp.Or(compareOrder(x.order, y.order), cmp.Compare(a, b))
}

func compareOrder(a, b *float64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Compare(*a, *b)
}

// setting is what a FelixConfiguration says that we honour.
type setting struct {
	toHost intent.ToHost
	given  bool
}

func (g *Graph) host() intent.HostSettings {
	for _, name := range []string{"node." + g.node, "default"} {
		if s := g.settings[name]; s.given {
			return intent.HostSettings{EndpointToHost: s.toHost}
		}
	}
	return intent.HostSettings{}
}

var toHost = map[string]intent.ToHost{"Drop": intent.ToHostDrop, "Return": intent.ToHostReturn, "Accept": intent.ToHostAccept}

// settingOf reads what is given; a value that is not understood counts as not given.
func settingOf(f *api.FelixConfiguration) setting {
	v, ok := toHost[f.Spec.DefaultEndpointToHostAction]
	return setting{toHost: v, given: ok}
}
