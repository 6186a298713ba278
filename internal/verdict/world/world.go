// Package world evaluates packets by the resources themselves: the slow, obvious way.
//
// In: [api.Update] values (a whole store, or a directory of files) and a
// [Query]: may this party send that to the other one?
// Out: an [Answer] with each tier that was passed and the rule that decided.
//
// It is the oracle for calc, verdict and the kernel, and the source of `twill why` and
// `twill plan`. It must stay readable next to docs/design/stages.md, so nothing here
// is indexed or maintained: every query reads every resource. It shares
// no code with calc, or the two would be wrong together.
//
// A World never changes once it is made: any number of goroutines may use it.
package world

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

// World is the state of all resources at one moment.
type World struct {
	policies  []policy // applicable kinds only, none closed
	closed    []policy // namespaced policies that cannot be read
	tiers     map[string]api.TierSpec
	profiles  map[string]profile
	workloads []*endpoint // sorted by key
	hosts     []*endpoint // host endpoints, sorted by key
	sets      []selectable
	nodes     map[string]node
	peers     []selectable         // the same nodes, as rules mean them
	toHost    map[string]string    // FelixConfiguration name → defaultEndpointToHostAction
	failsafes map[string]failsafes // FelixConfiguration name → its failsafe ports
	tunnels   map[string]tunnels   // FelixConfiguration name → the encapsulations it allows
	exclude   map[string]string    // FelixConfiguration name → interfaceExclude
	floats    map[string]string    // FelixConfiguration name → floatingIPs
	metadata  map[string]metadata  // FelixConfiguration name → where requests for metadata go
	pools     []api.IPPoolSpec
	serves    []*api.KubernetesEndpointSlice
	services  []netip.Addr                        // addresses of Kubernetes' services
	loops     map[string]string                   // FelixConfiguration name → serviceLoopPrevention
	ranges    map[string]api.BGPConfigurationSpec // by name
	staged    []staged
	proxied   []string // names of workloads, namespace/resource, whose proxies enforce HTTP
	problems  []api.Problem
}

// policy is the common part of both policy kinds.
type policy struct {
	ref    api.Ref
	placed string // the name by which it is put in order, and that of the policy whose place a staged one would take
	spec   api.GlobalNetworkPolicySpec
	closed string
	partly string // what of it could not be translated, and is closed
}

// profile is a stored one, or the built-in one.
type profile struct {
	spec   api.ProfileSpec
	closed string
}

// New reads updates; of several with one key the last counts, and one without a
// value removes the key. What cannot be read is in [World.Problems].
func New(updates []api.Update) *World {
	last := map[string]api.Update{}
	for _, u := range updates {
		last[u.Key] = u
	}
	w := &World{tiers: builtinTiers(), profiles: builtinProfiles(), nodes: map[string]node{}, toHost: map[string]string{}, failsafes: map[string]failsafes{}, tunnels: map[string]tunnels{}, exclude: map[string]string{}, floats: map[string]string{}, metadata: map[string]metadata{}, loops: map[string]string{}, ranges: map[string]api.BGPConfigurationSpec{}}
	var stored []api.Stored
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if last[key].Value == nil {
			continue
		}
		s, err := api.Admit(last[key])
		if err != nil && s.Closed == "" {
			w.problems = append(w.problems, api.Problem{Key: key, Reason: err.Error()})
			continue
		}
		s = translate.Stored(s)
		w.problems = append(w.problems, s.Problems...)
		if err != nil {
			// World has no history: a namespaced policy and a profile that cannot be read deny.
			if s.Ref.Kind == api.KindNetworkPolicy || s.Ref.Kind == api.KindProfile {
				stored = append(stored, s)
			}
			continue
		}
		stored = append(stored, s)
	}
	for _, s := range stored {
		w.add(s)
	}
	w.label(stored)
	w.closeDuplicates()
	return w
}

// Problems returns what is wrong in the updates, in the order of their keys.
func (w *World) Problems() []api.Problem { return w.problems }

// add adds what needs no other resource.
func (w *World) add(s api.Stored) {
	switch r := s.Resource.(type) {
	case *api.NetworkPolicy:
		w.addPolicy(policy{ref: s.Ref, placed: s.Ref.Name, closed: s.Closed, partly: r.Metadata.Annotations[api.AnnotationNotTranslated], spec: api.GlobalNetworkPolicySpec{
			Tier: r.Spec.Tier, Order: r.Spec.Order, Ingress: r.Spec.Ingress, Egress: r.Spec.Egress,
			Selector: r.Spec.Selector, Types: r.Spec.Types, ServiceAccountSelector: r.Spec.ServiceAccountSelector,
		}})
	case *api.GlobalNetworkPolicy:
		w.addPolicy(policy{ref: s.Ref, placed: s.Ref.Name, closed: s.Closed, partly: r.Metadata.Annotations[api.AnnotationNotTranslated], spec: r.Spec})
	case *api.StagedNetworkPolicy:
		p := policy{ref: s.Ref, placed: s.Ref.Name, spec: api.GlobalNetworkPolicySpec{
			Tier: r.Spec.Tier, Order: r.Spec.Order, Ingress: r.Spec.Ingress, Egress: r.Spec.Egress,
			Selector: r.Spec.Selector, Types: r.Spec.Types, ServiceAccountSelector: r.Spec.ServiceAccountSelector,
		}}
		if s.Ref.Kind == api.KindStagedKubernetesNetworkPolicy { // called as its user does, and placed as it would be
			p.ref.Name = strings.TrimPrefix(s.Ref.Name, translate.PolicyPrefix)
		}
		w.stage(s, p, r.Spec.StagedAction, api.KindNetworkPolicy)
	case *api.StagedGlobalNetworkPolicy:
		w.stage(s, policy{ref: s.Ref, placed: s.Ref.Name, spec: r.Spec.GlobalNetworkPolicySpec}, r.Spec.StagedAction, api.KindGlobalNetworkPolicy)
	case *api.KubernetesEndpointSlice:
		w.serves = append(w.serves, r)
	case *api.Tier:
		// The built-in tiers are fixed, whatever the store has. A tier
		// that cannot be read is an unknown one.
		if _, builtin := builtinTiers()[s.Ref.Name]; !builtin && s.Closed == "" {
			w.tiers[s.Ref.Name] = r.Spec
		}
	case *api.Profile:
		w.profiles[s.Ref.Name] = profile{spec: r.Spec, closed: s.Closed}
	case *api.Node:
		n := readNode(s.Ref.Name, r)
		w.nodes[n.name], w.peers = n, append(w.peers, n.peer(r.Metadata.Labels))
	case *api.IPPool:
		if !slices.ContainsFunc(w.pools, func(p api.IPPoolSpec) bool {
			return slices.Equal(readPrefixes([]string{p.CIDR}), readPrefixes([]string{r.Spec.CIDR}))
		}) {
			w.pools = append(w.pools, r.Spec) // of several with one CIDR the first by name alone
		}
	case *api.BGPConfiguration:
		w.ranges[s.Ref.Name] = r.Spec
	case *api.KubernetesService:
		w.services = append(w.services, serviceAddrs(r)...)
	case *api.FelixConfiguration:
		w.floats[s.Ref.Name] = r.Spec.FloatingIPs
		w.loops[s.Ref.Name] = r.Spec.ServiceLoopPrevention
		w.metadata[s.Ref.Name] = metadata{r.Spec.MetadataAddr, r.Spec.InterfacePrefix, r.Spec.MetadataPort}
		w.toHost[s.Ref.Name], w.exclude[s.Ref.Name] = toHostAction(r), r.Spec.InterfaceExclude
		w.tunnels[s.Ref.Name] = tunnels{vxlan: r.Spec.AllowVXLANPacketsFromWorkloads, ipip: r.Spec.AllowIPIPPacketsFromWorkloads, port: r.Spec.VXLANPort}
		w.failsafes[s.Ref.Name] = failsafes{in: r.Spec.FailsafeInboundHostPorts, out: r.Spec.FailsafeOutboundHostPorts}
	}
}

// addPolicy adds a policy to the list for its kind and state.
func (w *World) addPolicy(p policy) {
	switch {
	case p.closed != "" && p.ref.Kind == api.KindNetworkPolicy:
		w.closed = append(w.closed, p)
	default:
		w.policies = append(w.policies, p)
	}
}

func number(f float64) *float64         { return &f }
func actionOf(a api.Action) *api.Action { return &a }

// builtinTiers exist even if the store lacks them (docs/design/stages.md#within-a-stage).
func builtinTiers() map[string]api.TierSpec {
	return map[string]api.TierSpec{
		api.TierKubeAdmin:    {Order: number(1000), DefaultAction: actionOf(api.Pass)},
		api.TierDefault:      {Order: number(1_000_000), DefaultAction: actionOf(api.Deny)},
		api.TierKubeBaseline: {Order: number(10_000_000), DefaultAction: actionOf(api.Pass)},
	}
}

func builtinProfiles() map[string]profile {
	allow := []api.Rule{{Action: api.Allow}}
	return map[string]profile{api.ProfileDefaultAllow: {spec: api.ProfileSpec{Ingress: allow, Egress: allow}}}
}

// problem adds one that only shows when resources are seen together.
func (w *World) problem(key, format string, args ...any) {
	w.problems = append(w.problems, api.Problem{Key: key, Reason: fmt.Sprintf(format, args...)})
}
