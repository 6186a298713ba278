package conformance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	judgeapi "sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	npav1alpha2 "sigs.k8s.io/kube-network-policies/plugins/npa-v1alpha2"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	policyinformers "sigs.k8s.io/network-policy-api/pkg/client/informers/externalversions"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/translate"
	"github.com/twillnet/twill/internal/verdict/world"
)

// town is a few pods in a few namespaces, and policies.
type town struct {
	namespaces []*corev1.Namespace
	pods       []*corev1.Pod
	networks   []*networkingv1.NetworkPolicy
	cluster    []*v1alpha2.ClusterNetworkPolicy
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// build makes a town. No two policies of a tier have one priority: the API leaves open which of them is asked first.
func build(r *rand.Rand) *town {
	w := &town{}
	for n := range 3 {
		name := fmt.Sprintf("ns-%d", n)
		w.namespaces = append(w.namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": pick(r, "prod", "test")}}})
		for i := range 2 {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fmt.Sprintf("p-%d", i), Labels: map[string]string{"app": pick(r, "web", "db")}}}
			p.Spec.NodeName = "node"
			p.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: pick(r, corev1.ProtocolTCP, corev1.ProtocolUDP)}}}}
			p.Status.PodIP = fmt.Sprintf("10.%d.0.%d", n, i+1)
			p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
			w.pods = append(w.pods, p)
		}
		if r.IntN(2) == 0 {
			np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "some"}}
			np.Spec.PodSelector = labels(r, "app", "web", "db")
			// Both directions: the judge takes one of which a policy says nothing for allowed, where here the baseline decides, as with Calico.
			np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
			np.Spec.Ingress = pick(r, nil, []networkingv1.NetworkPolicyIngressRule{{}})
			np.Spec.Egress = pick(r, nil, []networkingv1.NetworkPolicyEgressRule{{}})
			w.networks = append(w.networks, np)
		}
	}
	for i := range 1 + r.IntN(5) {
		p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)}}
		p.Spec.Tier, p.Spec.Priority = pick(r, v1alpha2.AdminTier, v1alpha2.BaselineTier), int32(10*i+r.IntN(10))
		namespaces, pods := selection(r)
		p.Spec.Subject = v1alpha2.ClusterNetworkPolicySubject{Namespaces: namespaces, Pods: pods}
		for range r.IntN(4) {
			rule := v1alpha2.ClusterNetworkPolicyIngressRule{Action: action(r), Protocols: someProtocols(r, true)}
			for range 1 + r.IntN(2) {
				namespaces, pods := selection(r)
				rule.From = append(rule.From, v1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: namespaces, Pods: pods})
			}
			p.Spec.Ingress = append(p.Spec.Ingress, rule)
		}
		for range r.IntN(4) {
			withNetworks := r.IntN(2) == 0
			rule := v1alpha2.ClusterNetworkPolicyEgressRule{Action: action(r), Protocols: someProtocols(r, !withNetworks)}
			for range 1 + r.IntN(2) {
				namespaces, pods := selection(r)
				peer := v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: namespaces, Pods: pods}
				if withNetworks && r.IntN(2) == 0 {
					peer = v1alpha2.ClusterNetworkPolicyEgressPeer{Networks: []v1alpha2.CIDR{pick[v1alpha2.CIDR](r, "10.0.0.0/8", "10.1.0.0/16", "10.2.0.1/32"), "fd00::/8"}}
				}
				rule.To = append(rule.To, peer)
			}
			p.Spec.Egress = append(p.Spec.Egress, rule)
		}
		w.cluster = append(w.cluster, p)
	}
	return w
}

func action(r *rand.Rand) v1alpha2.ClusterNetworkPolicyRuleAction {
	return pick(r, v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny, v1alpha2.ClusterNetworkPolicyRuleActionPass)
}

// labels is a selector of any of the kinds that there are.
func labels(r *rand.Rand, key string, values ...string) metav1.LabelSelector {
	one := func(op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	value := pick(r, values...)
	return pick(r, metav1.LabelSelector{}, metav1.LabelSelector{MatchLabels: map[string]string{key: value}}, one(metav1.LabelSelectorOpIn, value),
		one(metav1.LabelSelectorOpNotIn, value), one(metav1.LabelSelectorOpExists), one(metav1.LabelSelectorOpDoesNotExist))
}

func selection(r *rand.Rand) (*metav1.LabelSelector, *v1alpha2.NamespacedPod) {
	namespaces := labels(r, "env", "prod", "test")
	if r.IntN(2) == 0 {
		return &namespaces, nil
	}
	return nil, &v1alpha2.NamespacedPod{NamespaceSelector: namespaces, PodSelector: labels(r, "app", "web", "db")}
}

func someProtocols(r *rand.Rand, names bool) (out []v1alpha2.ClusterNetworkPolicyProtocol) {
	for range r.IntN(3) {
		port := pick(r, &v1alpha2.Port{Number: 80}, &v1alpha2.Port{Number: 81}, &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: 70, End: 80}})
		all := []v1alpha2.ClusterNetworkPolicyProtocol{{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}}, {UDP: &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: port}}}
		if names {
			all = append(all, v1alpha2.ClusterNetworkPolicyProtocol{DestinationNamedPort: "http"})
		}
		out = append(out, pick(r, all...))
	}
	return out
}

// GetPodInfoByIP is part of the judge's PodInfoProvider.
func (w *town) GetPodInfoByIP(ip string) (*judgeapi.PodInfo, bool) {
	for i, p := range w.pods {
		if p.Status.PodIP == ip {
			return judgeapi.NewPodInfo(p, w.namespaces[i/2].Labels, nil, ""), true
		}
	}
	return nil, false
}

// judge is kube-network-policies, which answers from listers that hold the town. They ask no API server: nothing is started.
func (w *town) judge(t *testing.T) *networkpolicy.PolicyEngine {
	t.Helper()
	core, policies := informers.NewSharedInformerFactory(nil, 0), policyinformers.NewSharedInformerFactory(nil, 0)
	cnp := policies.Policy().V1alpha2().ClusterNetworkPolicies()
	for _, o := range w.cluster {
		must(t, cnp.Informer().GetIndexer().Add(o))
	}
	namespaces, pods, nps := core.Core().V1().Namespaces(), core.Core().V1().Pods(), core.Networking().V1().NetworkPolicies()
	for _, o := range w.namespaces {
		must(t, namespaces.Informer().GetIndexer().Add(o))
	}
	for _, o := range w.pods {
		must(t, pods.Informer().GetIndexer().Add(o))
	}
	for _, o := range w.networks {
		must(t, nps.Informer().GetIndexer().Add(o))
	}
	return networkpolicy.NewPolicyEngine(w, []judgeapi.PolicyEvaluator{
		npav1alpha2.NewClusterNetworkPolicy(v1alpha2.AdminTier, cnp, nil, nil),
		networkpolicy.NewStandardNetworkPolicy("node", namespaces, pods, nps),
		npav1alpha2.NewClusterNetworkPolicy(v1alpha2.BaselineTier, cnp, nil, nil),
	})
}

// ours is what the town's objects mean to Twill.
func (w *town) ours(t *testing.T) *world.World {
	t.Helper()
	var objects []metav1.Object
	for _, o := range w.namespaces {
		objects = append(objects, o)
	}
	for _, o := range w.pods {
		objects = append(objects, o)
	}
	for _, o := range w.networks {
		objects = append(objects, o)
	}
	for _, o := range w.cluster {
		objects = append(objects, o)
	}
	var updates []api.Update
	for _, o := range objects {
		rs, err := translate.Resources(translate.Of(o))
		must(t, err)
		for _, r := range rs {
			key, err := api.Key(r)
			must(t, err)
			value, err := api.EncodeStored(r)
			must(t, err)
			updates = append(updates, api.Update{Key: key, Value: value})
		}
	}
	out := world.New(updates)
	if len(out.Problems()) > 0 {
		t.Fatal(out.Problems())
	}
	return out
}

// TestClusterWidePoliciesMeanWhatTheirJudgeSays puts random policies before kube-network-policies, with which the authors of the API
// show what it means, and asks it and verdict/world about every pair of pods.
func TestClusterWidePoliciesMeanWhatTheirJudgeSays(t *testing.T) {
	r, cells, allowed := seedtest.Rand(t), 0, 0
	for range 300 {
		w := build(r)
		judge, ours := w.judge(t), w.ours(t)
		for _, src := range w.pods {
			for _, dst := range w.pods {
				if src == dst {
					continue // no packet leaves it
				}
				for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
					for _, port := range []int{75, 80, 81} {
						want, err := judge.EvaluatePacket(t.Context(), &network.Packet{
							Family: corev1.IPv4Protocol, SrcIP: net.ParseIP(src.Status.PodIP), DstIP: net.ParseIP(dst.Status.PodIP), Proto: proto, SrcPort: 40000, DstPort: port,
						})
						must(t, err)
						got := answer(t, ours, src, dst, proto, port)
						if cells++; want {
							allowed++
						}
						if got.Allowed != want {
							text, _ := json.MarshalIndent(w.cluster, "", " ")
							t.Fatalf("%s/%s to %s/%s %s/%d: ours %v by %+v, theirs %v; policies\n%s", src.Namespace, src.Name, dst.Namespace, dst.Name, proto, port, got.Allowed, got.Decided, want, text)
						}
					}
				}
			}
		}
	}
	if allowed*10 < cells || allowed*10 > 9*cells {
		t.Errorf("of %d cells %d are allowed: that says little", cells, allowed)
	}
	t.Logf("%d cells agree, of which %.1f %% are allowed", cells, 100*float64(allowed)/float64(cells))
}

func answer(t *testing.T, w *world.World, src, dst *corev1.Pod, proto corev1.Protocol, port int) world.Answer {
	t.Helper()
	from, err := w.Resolve(src.Namespace + "/" + src.Name)
	must(t, err)
	to, err := w.Resolve(dst.Namespace + "/" + dst.Name)
	must(t, err)
	number := map[corev1.Protocol]uint8{corev1.ProtocolTCP: 6, corev1.ProtocolUDP: 17}[proto]
	return w.Judge(world.Query{Src: from, Dst: to, Family: 4, Proto: number, SrcPort: 40000, DstPort: uint16(port)})
}
