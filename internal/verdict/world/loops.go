package world

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// looped is the hop, if there is one, of a packet that a node forwards to an address of services that nobody translates: it would come back from the
// router that it goes to. What the datastore says of services (Kubernetes' alone does) kube-proxy has translated before.
func (w *World) looped(node string, dst netip.Addr) []Hop {
	if node == "" || slices.Contains(w.services, dst) {
		return nil
	}
	action := "Drop"
	for _, name := range []string{"default", "node." + node} {
		for _, word := range []string{"Drop", "Reject", "Disabled"} {
			if strings.EqualFold(w.loops[name], word) {
				action = word
			}
		}
	}
	if action == "Disabled" {
		return nil
	}
	own, all := w.ranges["node."+node], w.ranges["default"]
	for _, l := range []struct {
		field    string
		own, all []api.BGPServiceBlock
	}{
		{"serviceClusterIPs", own.ServiceClusterIPs, all.ServiceClusterIPs},
		{"serviceLoadBalancerIPs", own.ServiceLoadBalancerIPs, all.ServiceLoadBalancerIPs},
		{"serviceExternalIPs", own.ServiceExternalIPs, all.ServiceExternalIPs},
	} {
		blocks := l.own
		if len(blocks) == 0 {
			blocks = l.all
		}
		for _, b := range blocks {
			p, err := netip.ParsePrefix(b.CIDR)
			if err != nil || p.Bits() == 0 || !p.Contains(dst) {
				continue
			}
			h := Hop{Endpoint: "host/" + node, Name: "host/" + node, Direction: string(api.Egress), Stage: StageForward, Node: node}
			d := Decision{Reason: ReasonServiceLoop, Detail: action + ": " + l.field + " has it, and no service here", RuleIndex: -1, Action: string(api.Deny)}
			if action == "Reject" {
				d.Reject = RejectSent
			}
			return []Hop{h.end(d)}
		}
	}
	return nil
}

// serviceAddrs are the addresses by which a service is reached.
func serviceAddrs(s *api.KubernetesService) (out []netip.Addr) {
	texts := slices.Concat(s.Spec.ClusterIPs, s.Spec.ExternalIPs)
	for _, i := range s.Status.LoadBalancer.Ingress {
		texts = append(texts, i.IP)
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}
