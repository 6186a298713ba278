package translate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/twillnet/twill/api"
)

// ClusterPrefix begins the names of policies that come from a ClusterNetworkPolicy. Unlike in some versions of Calico the tier is no
// part of it: that may change while the policy stays the same.
const ClusterPrefix = "kcnp."

var clusterTiers = map[v1alpha2.Tier]string{v1alpha2.AdminTier: api.TierKubeAdmin, v1alpha2.BaselineTier: api.TierKubeBaseline}

// clusterPolicy translates a ClusterNetworkPolicy.
func clusterPolicy(o *object, p *v1alpha2.ClusterNetworkPolicy) (*api.GlobalNetworkPolicy, error) {
	out := tiered{tier: clusterTiers[p.Spec.Tier], order: p.Spec.Priority, subject: selection{p.Spec.Subject.Namespaces, p.Spec.Subject.Pods}}
	if out.tier == "" {
		o.fail("spec.tier", "is %q: want Admin or Baseline", p.Spec.Tier)
	}
	for i, r := range p.Spec.Ingress {
		path := fmt.Sprintf("spec.ingress[%d]", i)
		out.ingress = append(out.ingress, tieredRule{
			name: r.Name, action: o.clusterAction(path, r.Action), matches: o.protocols(path+".protocols", r.Protocols),
			peers: o.tieredPeers(path+".from", each(r.From, func(p v1alpha2.ClusterNetworkPolicyIngressPeer) tieredPeer {
				return tieredPeer{selection: selection{p.Namespaces, p.Pods}}
			})),
		})
	}
	for i, r := range p.Spec.Egress {
		path := fmt.Sprintf("spec.egress[%d]", i)
		rule := tieredRule{
			name: r.Name, action: o.clusterAction(path, r.Action), matches: o.protocols(path+".protocols", r.Protocols),
			peers: o.tieredPeers(path+".to", each(r.To, func(p v1alpha2.ClusterNetworkPolicyEgressPeer) tieredPeer {
				return tieredPeer{selection{p.Namespaces, p.Pods}, p.Nodes, texts(p.Networks), len(p.DomainNames)}
			})),
		}
		o.checkNames(path+".protocols", rule)
		out.egress = append(out.egress, rule)
	}
	return o.global(ClusterPrefix+p.Name, out)
}

func each[A, B any](in []A, of func(A) B) (out []B) {
	for _, v := range in {
		out = append(out, of(v))
	}
	return out
}

func texts[T ~string](in []T) []string { return each(in, func(v T) string { return string(v) }) }

func (o *object) clusterAction(path string, a v1alpha2.ClusterNetworkPolicyRuleAction) api.Action {
	return o.action(path, string(a), string(v1alpha2.ClusterNetworkPolicyRuleActionAccept), api.Deny, api.Pass)
}

// action is empty if it is not known. What Kubernetes calls Accept or Allow is api.Allow; others have the same name in both.
func (o *object) action(path, a, allow string, others ...api.Action) api.Action {
	if a == allow {
		return api.Allow
	}
	for _, other := range others {
		if a == string(other) {
			return other
		}
	}
	o.fail(path+".action", "is %q: want %s", a, orList(allow, others))
	return ""
}

func orList(first string, others []api.Action) string {
	for i, other := range others {
		between := ", "
		if i == len(others)-1 {
			between = " or "
		}
		first += between + string(other)
	}
	return first
}

// protocols sorts a rule's ports by protocol. Nil means everything, also protocols without ports.
func (o *object) protocols(path string, list []v1alpha2.ClusterNetworkPolicyProtocol) []match {
	if list == nil {
		return []match{{}}
	}
	if len(list) == 0 {
		o.fail(path, "is empty: want at least one, or no such field")
	}
	var all byProtocol
	for i, p := range list {
		o.clusterProtocol(&all, fmt.Sprintf("%s[%d]", path, i), p)
	}
	return all.matches()
}

func (o *object) clusterProtocol(all *byProtocol, path string, p v1alpha2.ClusterNetworkPolicyProtocol) {
	type ports = v1alpha2.ClusterNetworkPolicyProtocolTCP // all three have the same fields
	given := 0
	for _, of := range []struct {
		field    string
		protocol corev1.Protocol
		*ports
	}{{"tcp", corev1.ProtocolTCP, p.TCP}, {"udp", corev1.ProtocolUDP, (*ports)(p.UDP)}, {"sctp", corev1.ProtocolSCTP, (*ports)(p.SCTP)}} {
		if of.ports == nil {
			continue
		}
		given++
		at := path + "." + of.field + ".destinationPort"
		switch port := of.DestinationPort; {
		case port == nil:
			o.fail(at, "is missing")
		case port.Range == nil:
			n, _ := o.portNumber(at+".number", port.Number)
			all.add(string(of.protocol), &api.Port{Min: n, Max: n})
		case port.Number != 0:
			o.fail(at, "has a number and a range: want one")
		default:
			all.add(string(of.protocol), o.portRange(at+".range", port.Range.Start, port.Range.End))
		}
	}
	if p.DestinationNamedPort != "" {
		given++
		o.addNamed(all, path+".destinationNamedPort", p.DestinationNamedPort)
	}
	if given != 1 {
		o.fail(path, "has %d kinds of ports that are known here: want one", given)
	}
}

func (o *object) portRange(path string, start, end int32) *api.Port {
	first, _ := o.portNumber(path+".start", start)
	last, ok := o.portNumber(path+".end", end)
	if ok && last <= first {
		o.fail(path+".end", "is %d: must be above start, %d", last, first)
	}
	return &api.Port{Min: first, Max: last}
}

// addNamed takes in the ports of a name, which may be of any protocol.
func (o *object) addNamed(all *byProtocol, path, name string) {
	o.portName(path, name)
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		all.add(string(protocol), &api.Port{Name: name})
	}
}
