package translate

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/twillnet/twill/api"
)

// Prefixes of the names of policies that come from the kinds which ClusterNetworkPolicy replaces.
const (
	AdminPrefix    = "kanp.adminnetworkpolicy."
	BaselinePrefix = "kbanp.baselineadminnetworkpolicy."
)

// adminPolicy translates an AdminNetworkPolicy.
func adminPolicy(o *object, p *v1alpha1.AdminNetworkPolicy) (*api.GlobalNetworkPolicy, error) {
	out := tiered{tier: api.TierKubeAdmin, order: p.Spec.Priority, subject: adminSelection(p.Spec.Subject.Namespaces, p.Spec.Subject.Pods)}
	for i, r := range p.Spec.Ingress {
		path := fmt.Sprintf("spec.ingress[%d]", i)
		out.ingress = append(out.ingress, tieredRule{
			name: r.Name, action: o.action(path, string(r.Action), string(api.Allow), api.Deny, api.Pass),
			peers: o.tieredPeers(path+".from", each(r.From, adminIngressPeer)), matches: o.adminPorts(path+".ports", r.Ports),
		})
	}
	for i, r := range p.Spec.Egress {
		path := fmt.Sprintf("spec.egress[%d]", i)
		rule := tieredRule{
			name: r.Name, action: o.action(path, string(r.Action), string(api.Allow), api.Deny, api.Pass),
			peers: o.tieredPeers(path+".to", each(r.To, adminEgressPeer)), matches: o.adminPorts(path+".ports", r.Ports),
		}
		o.checkNames(path+".ports", rule)
		out.egress = append(out.egress, rule)
	}
	return o.global(AdminPrefix+p.Name, out)
}

// baselinePolicy translates a BaselineAdminNetworkPolicy, of which a cluster has one.
func baselinePolicy(o *object, p *v1alpha1.BaselineAdminNetworkPolicy) (*api.GlobalNetworkPolicy, error) {
	if p.Name != "default" {
		o.fail("metadata.name", "is %q: want default", p.Name)
	}
	out := tiered{tier: api.TierKubeBaseline, order: highestPriority, subject: adminSelection(p.Spec.Subject.Namespaces, p.Spec.Subject.Pods)}
	for i, r := range p.Spec.Ingress {
		path := fmt.Sprintf("spec.ingress[%d]", i)
		out.ingress = append(out.ingress, tieredRule{
			name: r.Name, action: o.action(path, string(r.Action), string(api.Allow), api.Deny),
			peers: o.tieredPeers(path+".from", each(r.From, adminIngressPeer)), matches: o.adminPorts(path+".ports", r.Ports),
		})
	}
	for i, r := range p.Spec.Egress {
		path := fmt.Sprintf("spec.egress[%d]", i)
		rule := tieredRule{
			name: r.Name, action: o.action(path, string(r.Action), string(api.Allow), api.Deny),
			peers: o.tieredPeers(path+".to", each(r.To, baselineEgressPeer)), matches: o.adminPorts(path+".ports", r.Ports),
		}
		o.checkNames(path+".ports", rule)
		out.egress = append(out.egress, rule)
	}
	return o.global(BaselinePrefix+p.Name, out)
}

func adminSelection(namespaces *metav1.LabelSelector, pods *v1alpha1.NamespacedPod) selection {
	return selection{namespaces, (*v1alpha2.NamespacedPod)(pods)}
}

func adminIngressPeer(p v1alpha1.AdminNetworkPolicyIngressPeer) tieredPeer {
	return tieredPeer{selection: adminSelection(p.Namespaces, p.Pods)}
}

func adminEgressPeer(p v1alpha1.AdminNetworkPolicyEgressPeer) tieredPeer {
	return tieredPeer{adminSelection(p.Namespaces, p.Pods), p.Nodes, texts(p.Networks), len(p.DomainNames)}
}

func baselineEgressPeer(p v1alpha1.BaselineAdminNetworkPolicyEgressPeer) tieredPeer {
	return tieredPeer{adminSelection(p.Namespaces, p.Pods), p.Nodes, texts(p.Networks), 0}
}

// adminPorts sorts a rule's ports by protocol. None listed means everything, also protocols without ports.
func (o *object) adminPorts(path string, list *[]v1alpha1.AdminNetworkPolicyPort) []match {
	if list == nil || len(*list) == 0 {
		return []match{{}}
	}
	var all byProtocol
	for i, p := range *list {
		at, given := fmt.Sprintf("%s[%d]", path, i), 0
		if p.PortNumber != nil {
			given++
			protocol, _ := o.protocol(at+".portNumber.protocol", p.PortNumber.Protocol)
			n, _ := o.portNumber(at+".portNumber.port", p.PortNumber.Port)
			all.add(protocol, &api.Port{Min: n, Max: n})
		}
		if p.PortRange != nil {
			given++
			protocol, _ := o.protocol(at+".portRange.protocol", p.PortRange.Protocol)
			all.add(protocol, o.portRange(at+".portRange", p.PortRange.Start, p.PortRange.End))
		}
		if p.NamedPort != nil {
			given++
			o.addNamed(&all, at+".namedPort", *p.NamedPort)
		}
		if given != 1 {
			o.fail(at, "has %d kinds of ports that are known here: want one", given)
		}
	}
	return all.matches()
}
