// Package calc decides what this node should program.
//
// In: [api.Update], one for each changed resource, in any order.
// Out: [intent.Batch], the smallest change that makes the node right.
//
// A [Graph] depends on the resources it holds, not on how they came: it has
// no clock, goroutine, lock or logger. One goroutine may use it.
//
// It composes its nodes: one label index finds the policies of local endpoints,
// another the addresses of IP sets; policy puts policies in order and makes their
// rules; route has the routes. Only policies that apply to an endpoint of this
// node are made, and only the sets of those.
package calc

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/ipset"
	"github.com/twillnet/twill/internal/calc/label"
	"github.com/twillnet/twill/internal/calc/policy"
	"github.com/twillnet/twill/internal/calc/route"
	"github.com/twillnet/twill/internal/calc/service"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/translate"
)

type (
	sourceItem = *label.Item[ipset.Source]
	localItem  = *label.Item[*local]
)

// Graph holds the resources that matter here, and what follows from them.
type Graph struct {
	node   string
	inSync bool

	sources  *label.Index[ipset.Source] // all endpoints and network sets
	sets     *ipset.Index[sourceItem]
	hosts    *label.Index[ipset.Source] // all Nodes; see api.LabelNode
	hostSets *ipset.Index[sourceItem]
	services *service.Index       // EndpointSlices, and the sets of services
	locals   *label.Index[*local] // local endpoints; its selectors are policies'
	routes   *route.Table
	reach    *route.Reach // what of blocks is in routes
	order    *policy.Order
	convert  *policy.Converter

	policies map[intent.PolicyID]*active
	applied  map[uint32]*active        // by ID in here
	profiles map[string]*policy.Policy // by name
	links    map[string][]claim        // of local workloads to an interface, the newest first, which has it
	attached map[string]bool           // interfaces that a plugin of this host made
	resolver *config.Resolver          // of FelixConfigurations
	config   config.Effective
	ready    api.Readiness
	cluster  Cluster                           // without what maps in here count
	ippools  map[string]*api.IPPool            // by key
	pools    map[netip.Prefix]pool             // those that count
	nodes    map[string][]netip.Prefix         // by key
	ranges   map[string]intent.ServicePrefixes // of BGPConfigurations that concern this node, by name
	problems map[string][]api.Problem
	findings uint64
	floats   floating
	moves    moves
	proxies  proxied
	inherits func(profile string, labels map[string]string, there bool) // see OnProfile
	unread   map[string]string                                          // keys without a readable version so far, and why
	admitted map[string]bool                                            // keys of nodes, pools, settings and cluster information with a readable version

	scratch api.Scratch // of the last update; put keeps what the fields of a workload endpoint refer to, but not itself and the map of its labels

	dirtyHost     bool // something that host depends on may have changed
	dirtyLocals   map[string]bool
	dirtyPolicies map[intent.PolicyID]bool  // content or existence changed
	stacks        map[string]*stack         // present ones, by the policies they are made of
	groups        map[intent.GroupID]*group // that endpoints in sent have
	sent          sent
}

// active is a policy and the ID of its selector among those of local endpoints.
type active struct {
	*policy.Policy
	id      uint32
	assumed bool // kept ready without users, see assume
}

// New returns a graph for the node of that name. Local settings are those that
// are known without the datastore, lowest first.
func New(node string, local ...config.Layer) *Graph {
	g := &Graph{
		node: node, services: service.New(), routes: route.New(), order: policy.NewOrder(),
		policies: map[intent.PolicyID]*active{}, applied: map[uint32]*active{}, profiles: map[string]*policy.Policy{}, links: map[string][]claim{}, attached: map[string]bool{},
		resolver: config.New(node, local...), problems: map[string][]api.Problem{}, ippools: map[string]*api.IPPool{}, nodes: map[string][]netip.Prefix{}, ranges: map[string]intent.ServicePrefixes{}, unread: map[string]string{}, admitted: map[string]bool{},
		dirtyLocals: map[string]bool{}, dirtyPolicies: map[intent.PolicyID]bool{}, stacks: map[string]*stack{}, groups: map[intent.GroupID]*group{}, sent: newSent(),
	}
	g.reach = route.NewReach(node, g.routes)
	g.floats, g.moves = newFloating(), newMoves()
	g.locals = label.New(func(_ uint32, l localItem) { g.dirtyLocals[l.Value.key] = true })
	g.sets = ipset.New(func(changing func(uint32, sourceItem)) ipset.Labels[sourceItem] {
		g.sources = label.New(changing)
		return g.sources
	})
	g.hostSets = ipset.New(func(changing func(uint32, sourceItem)) ipset.Labels[sourceItem] {
		g.hosts = label.New(changing)
		return g.hosts
	})
	g.convert = policy.NewConverter(g.counted())
	g.configure()
	return g
}

// SetInSync notes that every resource that existed at start was passed.
func (g *Graph) SetInSync() {
	g.inSync = true
	g.settleFloating()
}

// Findings is a counter that changes whenever Problems does.
func (g *Graph) Findings() uint64 { return g.findings }

// Problems returns the problems of all resources, by key.
func (g *Graph) Problems() []api.Problem {
	var out []api.Problem
	for _, k := range slices.Sorted(maps.Keys(g.problems)) {
		out = append(out, g.problems[k]...)
	}
	for _, k := range slices.Sorted(maps.Keys(g.floats.refused)) {
		out = append(out, g.floats.refused[k]...)
	}
	return out
}

// Ready returns why the intents may be incomplete: resources that could not be read; none: they are complete.
func (g *Graph) Ready() (bool, []string) {
	var why []string
	for _, k := range slices.Sorted(maps.Keys(g.unread)) {
		why = append(why, g.unread[k]+"; there is no earlier version")
	}
	return len(why) == 0, why
}

// Update takes over changes. A value that [api.Admit] refuses changes nothing but
// Problems, and Ready if the key had no earlier version.
func (g *Graph) Update(us []api.Update) {
	for _, u := range us {
		g.update(u)
	}
	if g.inSync {
		g.settleFloating()
	}
}

func (g *Graph) update(u api.Update) {
	if strings.HasPrefix(u.Key, api.BlockPrefix) {
		if u.Value != nil {
			g.ready = g.ready.Saw("") // a block is of no kind
		}
		g.block(u)
		return
	}
	ref, ok := api.ParseKey(u.Key)
	if u.Value == nil {
		g.found(u.Key, nil)
		delete(g.unread, u.Key)
		delete(g.admitted, u.Key)
		if ok {
			g.remove(u.Key, ref)
		}
		return
	}
	g.ready = g.ready.Saw(ref.Kind)
	s, err := api.AdmitInto(u, &g.scratch)
	if err != nil {
		unknown := ok && (!g.has(u.Key, ref) || g.unread[u.Key] != "") // no version of it was readable
		if unknown && s.Closed != "" && ref.Kind == api.KindNetworkPolicy {
			g.put(u.Key, s) // its namespace is known, and is denied everything
		}
		g.kept(u.Key, err, unknown)
		return
	}
	g.put(u.Key, s)
}

// kept notes a value that cannot be read: the earlier version stays in force. unknown: there is none.
func (g *Graph) kept(key string, err error, unknown bool) {
	g.found(key, []api.Problem{{Key: key, Reason: err.Error() + "; what was known of it stays in force"}})
	if unknown {
		g.unread[key] = err.Error()
	}
}

// found sets the problems of a resource.
func (g *Graph) found(key string, problems []api.Problem) {
	switch {
	case slices.Equal(g.problems[key], problems):
		return
	case len(problems) > 0:
		g.problems[key] = problems
	default:
		delete(g.problems, key)
	}
	g.findings++
}

// put takes over the present value of a resource.
func (g *Graph) put(key string, s api.Stored) {
	delete(g.unread, key)
	s = translate.Stored(s)
	g.found(key, s.Problems)
	switch r := s.Resource.(type) {
	case *api.WorkloadEndpoint:
		g.putWorkload(key, s, r)
	case *api.HostEndpoint:
		g.putHost(key, s, r)
	case *api.LiveMigration:
		g.admitted[key] = true
		if s.Closed != "" {
			r = nil
		}
		g.putMigration(key, s.Ref, r)
	case *api.NetworkSet:
		own := forced(r.Metadata.Labels, api.LabelNamespace, r.Metadata.Namespace)
		g.putSource(key, own, []string{"kns." + r.Metadata.Namespace}, sourceOf(r.Spec.Nets, nil))
	case *api.GlobalNetworkSet:
		g.putSource(key, r.Metadata.Labels, nil, sourceOf(r.Spec.Nets, nil))
	case *api.KubernetesEndpointSlice:
		g.services.Set(key, r)
	case *api.Profile:
		g.profiles[s.Ref.Name] = policy.OfProfile(s.Ref.Name, r, s.Closed)
		g.profileChanged(s.Ref.Name, r.Spec.LabelsToApply)
		g.inherit(s.Ref.Name, r.Spec.LabelsToApply, true)
	case *api.Tier:
		if s.Closed != "" {
			r = nil // unreadable: as if it did not exist
		}
		g.setTier(s.Ref.Name, r)
	case *api.NetworkPolicy, *api.GlobalNetworkPolicy, *api.StagedNetworkPolicy, *api.StagedGlobalNetworkPolicy:
		g.putPolicy(key, s)
	case *api.FelixConfiguration:
		g.admitted[key] = true
		r.Metadata.Name = s.Ref.Name
		g.resolver.Set(r)
		g.configure()
	case *api.Node:
		g.admitted[key] = true
		g.putNode(key, s.Ref.Name, r)
		if s.Ref.Name == g.node {
			g.resolver.SetLabels(r.Metadata.Labels)
			g.configure()
		}
	case *api.BGPConfiguration:
		g.putServices(s.Ref.Name, &r.Spec)
	case *api.IPPool:
		g.admitted[key] = true
		g.putPool(key, r)
	case *api.ClusterInformation:
		g.admitted[key] = true
		if s.Ref.Name == "default" {
			g.ready = g.ready.After(r)
			g.cluster.GUID, g.cluster.Type, g.cluster.CalicoVersion = r.Spec.ClusterGUID, r.Spec.ClusterType, r.Spec.CalicoVersion
		}
	}
}

// remove forgets a resource.
func (g *Graph) remove(key string, ref api.Ref) {
	switch ref.Kind {
	case api.KindWorkloadEndpoint:
		g.floats.owns(key, g.sources.Get(key), "")
		g.floats.claim(claim{key: key}, nil)
		g.removeSource(key)
		g.removeLocal(key)
	case api.KindHostEndpoint:
		g.removeSource(key)
		g.removeLocal(key)
	case api.KindLiveMigration:
		g.putMigration(key, ref, nil)
	case api.KindNetworkSet, api.KindGlobalNetworkSet:
		g.removeSource(key)
	case api.KindKubernetesEndpointSlice:
		g.services.Set(key, nil)
	case api.KindProfile:
		delete(g.profiles, ref.Name)
		g.profileChanged(ref.Name, nil)
		g.inherit(ref.Name, nil, false)
	case api.KindTier:
		g.setTier(ref.Name, nil)
	case api.KindNetworkPolicy, api.KindGlobalNetworkPolicy, api.KindStagedNetworkPolicy, api.KindStagedGlobalNetworkPolicy, api.KindStagedKubernetesNetworkPolicy:
		g.removePolicy(intent.PolicyID{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	case api.KindFelixConfiguration:
		g.resolver.Remove(ref.Name)
		g.configure()
	case api.KindNode:
		g.putNode(key, ref.Name, nil)
		if ref.Name == g.node {
			g.resolver.SetLabels(nil)
			g.configure()
		}
	case api.KindBGPConfiguration:
		g.putServices(ref.Name, nil)
	case api.KindIPPool:
		g.putPool(key, nil)
	case api.KindClusterInformation:
		if ref.Name == "default" {
			g.ready = g.ready.After(nil)
		}
	}
}

// has reports whether a key has an earlier version, for kinds that calc uses.
func (g *Graph) has(key string, ref api.Ref) bool {
	switch ref.Kind {
	case api.KindWorkloadEndpoint, api.KindHostEndpoint, api.KindNetworkSet, api.KindGlobalNetworkSet:
		return g.sources.Get(key) != nil
	case api.KindKubernetesEndpointSlice:
		return g.services.Has(key)
	case api.KindProfile:
		return g.profiles[ref.Name] != nil
	case api.KindNetworkPolicy, api.KindGlobalNetworkPolicy, api.KindStagedNetworkPolicy, api.KindStagedGlobalNetworkPolicy, api.KindStagedKubernetesNetworkPolicy:
		return g.policies[intent.PolicyID{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}] != nil
	case api.KindNode, api.KindIPPool, api.KindFelixConfiguration, api.KindClusterInformation, api.KindLiveMigration:
		return g.admitted[key]
	}
	return ref.Kind != api.KindTier || g.order.HasTier(ref.Name)
}
