package translate

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/twillnet/twill/api"
)

// highestPriority is that of the API. It is the order of a BaselineAdminNetworkPolicy, which has no priority.
const highestPriority = 1000

// tiered is what the kinds of cluster-wide policies have in common.
type tiered struct {
	tier            string // empty: it is not known
	order           int32
	subject         selection
	ingress, egress []tieredRule
}

// tieredRule has been read, as far as it can be: what is wrong is in the object's errors, under the rule's path.
type tieredRule struct {
	name    string
	action  api.Action // empty: it is not known
	peers   []api.EntityRule
	matches []match
}

// selection are pods: of namespaces, or some of them. One of the two must be given.
type selection struct {
	namespaces *metav1.LabelSelector
	pods       *v1alpha2.NamespacedPod
}

// tieredPeer is the other side of a rule. One of what it has must be given.
type tieredPeer struct {
	selection
	nodes    *metav1.LabelSelector
	networks []string
	domains  int // how many names
}

// global is the policy that p means. What cannot be read is closed, as the API wants it: an Accept accepts nothing, a Deny and
// a Pass deny everything. A policy of which it cannot be read whom it is for, or in which tier, accepts nothing and passes
// nothing, but denies, in place of that, too; to all who could be meant.
func (o *object) global(name string, p tiered) (*api.GlobalNetworkPolicy, error) {
	out := &api.GlobalNetworkPolicy{Object: o.head(api.KindGlobalNetworkPolicy, "", name)}
	out.Metadata.Generation = o.meta.GetGeneration()
	s := &out.Spec
	s.Order = ptr(float64(p.order))
	if p.order < 0 || p.order > highestPriority {
		o.fail("spec.priority", "is %d: want 0 to %d", p.order, highestPriority)
	}
	var sure bool
	s.Selector, s.NamespaceSelector, sure = o.subject("spec.subject", p.subject)
	if s.Tier = p.tier; s.Tier == "" {
		s.Tier, sure = api.TierKubeAdmin, false
	}
	for i, r := range p.ingress {
		s.Ingress = append(s.Ingress, o.tieredRules(fmt.Sprintf("spec.ingress[%d]", i), r, sure, fromPeer)...)
	}
	for i, r := range p.egress {
		s.Egress = append(s.Egress, o.tieredRules(fmt.Sprintf("spec.egress[%d]", i), r, sure, toPeer)...)
	}
	// Both tiers pass at their end, so a direction without a rule says nothing.
	if len(s.Ingress) > 0 {
		s.Types = append(s.Types, api.Ingress)
	}
	if len(s.Egress) > 0 {
		s.Types = append(s.Types, api.Egress)
	}
	return out, o.errs.Err()
}

// tieredRules are what a rule means. It must be sure to whom the policy applies.
func (o *object) tieredRules(path string, r tieredRule, sure bool, rule func(api.EntityRule, match) api.Rule) (out []api.Rule) {
	closed := o.lost || o.wrong(path)
	if !closed {
		out = o.rules(path, r.peers, r.matches, rule)
		closed = len(out) == 0 // they are too many
	}
	switch {
	case r.action == api.Allow && (closed || !sure):
		return nil
	case closed:
		out, r.action = []api.Rule{{}}, api.Deny
	case !sure:
		r.action = api.Deny
	}
	for i := range out {
		out[i].Action = r.action
		if r.name != "" {
			out[i].Metadata = &api.RuleMetadata{Annotations: map[string]string{"name": r.name}}
		}
	}
	return out
}

// wrong: something was found at a path, or below it.
func (o *object) wrong(path string) bool {
	return slices.ContainsFunc(o.errs, func(e *api.FieldError) bool { return below(e.Path, path) })
}

func below(path, top string) bool {
	rest, ok := strings.CutPrefix(path, top)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// changesAll: what is unknown at this path may change the meaning of a whole policy.
func changesAll(path string) bool {
	part := below(path, "spec.subject") || strings.HasPrefix(path, "spec.ingress[") || strings.HasPrefix(path, "spec.egress[")
	return path == "" || below(path, "spec") && !part
}

const everywhere = "all()"

// subject are the selectors of the pods that a policy is for. One that cannot be read means all, and then it is not sure.
func (o *object) subject(path string, s selection) (pods, namespaces string, sure bool) {
	if (s.namespaces == nil) == (s.pods == nil) {
		o.fail(path, "want one of namespaces and pods")
	}
	if o.lost || o.wrong(path) {
		return anyPod, everywhere, false
	}
	return o.selection(path, s)
}

// selection gives selectors; one that cannot be read means all, and then it is not sure.
func (o *object) selection(path string, s selection) (pods, namespaces string, sure bool) {
	at, in, podsOK := path+".namespaces", s.namespaces, true
	pods = anyPod
	if s.pods != nil {
		at, in = path+".pods.namespaceSelector", &s.pods.NamespaceSelector
		if pods, podsOK = o.pods(path+".pods.podSelector", &s.pods.PodSelector); !podsOK {
			pods = anyPod
		}
	}
	namespaces, namespacesOK := o.namespaces(at, in)
	if !namespacesOK {
		namespaces = everywhere
	}
	return pods, namespaces, podsOK && namespacesOK
}

// tieredPeers are the other sides that a rule is for.
func (o *object) tieredPeers(path string, list []tieredPeer) (out []api.EntityRule) {
	if len(list) == 0 {
		o.fail(path, "is empty: want at least one peer")
	}
	for i, p := range list {
		out = append(out, o.tieredPeer(fmt.Sprintf("%s[%d]", path, i), p))
	}
	return out
}

func (o *object) tieredPeer(path string, p tieredPeer) (e api.EntityRule) {
	given := 0
	for _, has := range []bool{p.namespaces != nil, p.pods != nil, p.nodes != nil, len(p.networks) > 0, p.domains > 0} {
		if has {
			given++
		}
	}
	switch {
	case given != 1:
		o.fail(path, "has %d kinds of peers that are known here: want one", given)
	case p.nodes != nil:
		e.Selector, _ = o.nodes(path+".nodes", p.nodes)
	case p.domains > 0:
		o.fail(path+".domainNames", "is not possible here: name the addresses, under networks")
	case len(p.networks) > 0:
		for i, text := range p.networks {
			net, _ := o.prefix(fmt.Sprintf("%s.networks[%d]", path, i), text)
			e.Nets = append(e.Nets, net.String())
		}
	default:
		e.Selector, e.NamespaceSelector, _ = o.selection(path, p.selection)
	}
	return e
}

// checkNames refuses names of ports where a peer has none, as networks and nodes do.
func (o *object) checkNames(path string, r tieredRule) {
	named := slices.ContainsFunc(r.matches, func(m match) bool {
		return slices.ContainsFunc(m.ports, func(p api.Port) bool { return p.Name != "" })
	})
	if named && slices.ContainsFunc(r.peers, func(e api.EntityRule) bool { return len(e.Nets) > 0 || strings.HasPrefix(e.Selector, anyNode) }) {
		o.fail(path, "names a port, and networks and nodes have no names of ports")
	}
}
