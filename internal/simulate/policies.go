package simulate

import (
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/api"
)

// Of ten policies, eight are of a namespace, one lets a role into all of a team's workloads, and one lets a team out to a network set.
const (
	ofRole = 8
	ofZone = 9
)

var tcp = api.Protocol{Name: "TCP"}

// policy i, whose content follows from how often it was changed.
func (w *world) policy(i, gen int) api.Update {
	order := float64(i)
	port := api.Port{Min: uint16(8000 + gen%1000)} //nolint:gosec // below 9000
	port.Max = port.Min
	allow := func(from, to api.EntityRule) api.Rule {
		to.Ports = []api.Port{port}
		return api.Rule{Action: api.Allow, Protocol: &tcp, Source: from, Destination: to}
	}
	switch i % 10 {
	case ofRole:
		from := fmt.Sprintf("role == '%s' && env == '%s'", roles[w.pick(len(roles), forPeer, i, gen/3)], envs[i/10%len(envs)])
		return w.stored(&api.GlobalNetworkPolicy{Object: named(api.KindGlobalNetworkPolicy, "", fmt.Sprintf("role-%d", i)), Spec: api.GlobalNetworkPolicySpec{
			Order: &order, Selector: w.subject(i), Types: []api.PolicyType{"Ingress"}, Ingress: []api.Rule{allow(api.EntityRule{Selector: from}, api.EntityRule{})},
		}})
	case ofZone:
		to := fmt.Sprintf("zone == 'zone-%d'", w.pick(zones, forPeer, i, gen/3))
		return w.stored(&api.GlobalNetworkPolicy{Object: named(api.KindGlobalNetworkPolicy, "", fmt.Sprintf("zone-%d", i)), Spec: api.GlobalNetworkPolicySpec{
			Order: &order, Selector: w.subject(i), Types: []api.PolicyType{"Egress"}, Egress: []api.Rule{allow(api.EntityRule{}, api.EntityRule{Selector: to})},
		}})
	}
	ns, _ := w.subjectOf(i)
	from := fmt.Sprintf("app == 'app-%d'", w.pick(w.appsOf(ns), forPeer, i, gen/3))
	return w.stored(&api.NetworkPolicy{Object: named(api.KindNetworkPolicy, w.namespaceName(ns), fmt.Sprintf("app-%d", i)), Spec: api.NetworkPolicySpec{
		Order: &order, Selector: w.subject(i), Types: []api.PolicyType{"Ingress", "Egress"},
		Ingress: []api.Rule{allow(api.EntityRule{Selector: from}, api.EntityRule{})},
		Egress:  []api.Rule{allow(api.EntityRule{}, api.EntityRule{Selector: "role == 'database'"}), {Action: api.Allow, Destination: api.EntityRule{Nets: []string{"10.0.0.10/32"}}}},
	}})
}

// subjectOf says to whose endpoints a policy applies: those of an application in a namespace, or those of a team, which is then in app.
func (w *world) subjectOf(i int) (ns, app int) {
	if i%10 >= ofRole {
		return -1, i / 10 % teams
	}
	ns = (i/10*8 + i%10) % w.namespaces
	return ns, i / w.namespaces % w.appsOf(ns)
}

func (w *world) subject(i int) string {
	ns, x := w.subjectOf(i)
	if ns < 0 {
		return fmt.Sprintf("team == 'team-%d'", x)
	}
	return fmt.Sprintf("app == 'app-%d'", x)
}

func named(kind, namespace, name string) api.Object {
	return api.Object{TypeMeta: api.TypeMeta{Kind: kind, APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Namespace: namespace, Name: name}}
}

// others calls yield for each resource of the start that is no endpoint, policy or block.
func (w *world) others(yield func(api.Update)) {
	yield(w.stored(&api.Tier{Object: named(api.KindTier, "", api.TierDefault)}))
	yield(w.stored(&api.IPPool{Object: named(api.KindIPPool, "", "pods"), Spec: api.IPPoolSpec{CIDR: "10.0.0.0/8", NATOutgoing: true}}))
	for ns := range w.namespaces {
		name := w.namespaceName(ns)
		all := []api.Rule{{Action: api.Allow}}
		yield(w.stored(&api.Profile{Object: named(api.KindProfile, "", "kns."+name), Spec: api.ProfileSpec{
			Ingress: all, Egress: all, LabelsToApply: map[string]string{api.NamespaceLabelPrefix + api.LabelName: name},
		}}))
	}
	for n := range w.Nodes {
		addr := netip.AddrFrom4([4]byte{172, byte(16 + n>>16), byte(n >> 8), byte(n)}).String() //nolint:gosec // its bits
		yield(w.stored(&api.Node{Object: named(api.KindNode, "", w.nodeName(n)), Spec: api.NodeSpec{
			BGP: &api.NodeBGPSpec{IPv4Address: addr + "/16"}, Addresses: []api.NodeAddress{{Address: addr, Type: "InternalIP"}},
		}}))
	}
	for z := range zones {
		var nets []string
		for i := range netsOfZone {
			nets = append(nets, fmt.Sprintf("192.%d.%d.0/24", 1+z, i))
		}
		set := &api.GlobalNetworkSet{Object: named(api.KindGlobalNetworkSet, "", fmt.Sprintf("zone-%d", z)), Spec: api.NetworkSetSpec{Nets: nets}}
		set.Metadata.Labels = map[string]string{"zone": set.Metadata.Name}
		yield(w.stored(set))
	}
}

// resources calls yield for all of the start but blocks.
func (w *world) resources(yield func(api.Update)) {
	w.others(yield)
	for i := range w.Policies {
		yield(w.policy(i, 0))
	}
	for i := range w.Endpoints {
		yield(w.endpoint(w.first(i)))
	}
}

// blocks calls yield for the blocks of the start.
func (w *world) blocks(yield func(api.Update)) {
	for b := range w.Nodes * w.blocksPerNode {
		yield(w.blockUpdate(b, w.firstBlock(b), 1))
	}
}
