package form

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/twillnet/twill/api"
)

// Annotations of a Kubernetes node in which upstream keeps what its own Node resource has beside it.
const (
	nodeLabels      = "projectcalico.org/labels"      // JSON: labels that are not Kubernetes'
	nodeAnnotations = "projectcalico.org/annotations" // JSON: annotations that are not
	nodeKubeLabels  = "projectcalico.org/kube-labels" // of the Calico node: which of its labels are Kubernetes'
)

// nodeFields are the annotations that hold one field each.
var nodeFields = map[string]func(*api.Node) *string{
	"projectcalico.org/IPv4Address":                func(n *api.Node) *string { return &bgpOf(n).IPv4Address },
	"projectcalico.org/IPv6Address":                func(n *api.Node) *string { return &bgpOf(n).IPv6Address },
	"projectcalico.org/IPv4IPIPTunnelAddr":         func(n *api.Node) *string { return &bgpOf(n).IPv4IPIPTunnelAddr },
	"projectcalico.org/RouteReflectorClusterID":    func(n *api.Node) *string { return &bgpOf(n).RouteReflectorClusterID },
	"projectcalico.org/IPv4VXLANTunnelAddr":        func(n *api.Node) *string { return &n.Spec.IPv4VXLANTunnelAddr },
	"projectcalico.org/VXLANTunnelMACAddr":         func(n *api.Node) *string { return &n.Spec.VXLANTunnelMACAddr },
	"projectcalico.org/IPv6VXLANTunnelAddr":        func(n *api.Node) *string { return &n.Spec.IPv6VXLANTunnelAddr },
	"projectcalico.org/VXLANTunnelMACAddrV6":       func(n *api.Node) *string { return &n.Spec.VXLANTunnelMACAddrV6 },
	"projectcalico.org/IPv4WireguardInterfaceAddr": func(n *api.Node) *string { return &wireguardOf(n).InterfaceIPv4Address },
	"projectcalico.org/IPv6WireguardInterfaceAddr": func(n *api.Node) *string { return &wireguardOf(n).InterfaceIPv6Address },
	"projectcalico.org/WireguardPublicKey":         func(n *api.Node) *string { return &n.Status.WireguardPublicKey },
	"projectcalico.org/WireguardPublicKeyV6":       func(n *api.Node) *string { return &n.Status.WireguardPublicKeyV6 },
}

const (
	nodeASNumber   = "projectcalico.org/ASNumber"
	nodeInterfaces = "projectcalico.org/Interfaces" // JSON: as in the spec
)

func bgpOf(n *api.Node) *api.NodeBGPSpec {
	if n.Spec.BGP == nil {
		n.Spec.BGP = &api.NodeBGPSpec{}
	}
	return n.Spec.BGP
}

func wireguardOf(n *api.Node) *api.NodeWireguardSpec {
	if n.Spec.Wireguard == nil {
		n.Spec.Wireguard = &api.NodeWireguardSpec{}
	}
	return n.Spec.Wireguard
}

// tidy leaves out what says nothing.
func tidy(n *api.Node) {
	if n.Spec.BGP != nil && *n.Spec.BGP == (api.NodeBGPSpec{}) {
		n.Spec.BGP = nil
	}
	if n.Spec.Wireguard != nil && *n.Spec.Wireguard == (api.NodeWireguardSpec{}) {
		n.Spec.Wireguard = nil
	}
}

func nodes() Codec {
	return native[*corev1.Node, *corev1.NodeList]{
		empty: func() *corev1.Node { return &corev1.Node{} },
		lists: func() *corev1.NodeList { return &corev1.NodeList{} },
		items: func(l *corev1.NodeList) (metav1.ListMeta, []*corev1.Node) { return l.ListMeta, pointers(l.Items) },
		entry: func(o *corev1.Node) (string, api.Resource, error) {
			n := nodeOf(o)
			return keyOf(n), n, nil
		},
		name:   after(api.KindNode, ""),
		change: nodePatch,
		why:    "is a node of Kubernetes: the cluster adds and removes those, with kubectl or by their kubelets",
	}
}

// nodeOf is the Calico node of a Kubernetes node: its labels, and what the annotations say. What they say wrongly is as stored; readers judge it.
func nodeOf(o *corev1.Node) *api.Node {
	n := api.New(api.KindNode).(*api.Node)
	n.Metadata = api.ObjectMeta{Name: o.Name, UID: string(o.UID)}
	if at := o.CreationTimestamp; !at.IsZero() {
		n.Metadata.CreationTimestamp = at.UTC().Format("2006-01-02T15:04:05Z")
	}
	var labels, annotations map[string]string
	_ = json.Unmarshal([]byte(o.Annotations[nodeLabels]), &labels) // what cannot be read is none
	_ = json.Unmarshal([]byte(o.Annotations[nodeAnnotations]), &annotations)
	n.Metadata.Labels = merged(labels, o.Labels)
	kube, _ := json.Marshal(o.Labels) // texts always encode
	n.Metadata.Annotations = merged(annotations, map[string]string{nodeKubeLabels: string(kube)})
	n.Spec.OrchRefs = []api.OrchRef{{NodeName: o.Name, Orchestrator: "k8s"}}
	for annotation, field := range nodeFields {
		if value := o.Annotations[annotation]; value != "" {
			*field(n) = value
		}
	}
	if text := o.Annotations[nodeASNumber]; text != "" {
		var as api.ASNumber
		if quoted, _ := json.Marshal(text); as.UnmarshalJSON(quoted) == nil {
			bgpOf(n).ASNumber = &as
		}
	}
	_ = json.Unmarshal([]byte(o.Annotations[nodeInterfaces]), &n.Spec.Interfaces) // what cannot be read is none
	tidy(n)
	if bgp := n.Spec.BGP; bgp != nil {
		for _, a := range []string{bgp.IPv4Address, bgp.IPv6Address} {
			if a != "" {
				n.Spec.Addresses = append(n.Spec.Addresses, api.NodeAddress{Address: a, Type: "CalicoNodeIP"})
			}
		}
	}
	for _, a := range o.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			n.Spec.Addresses = append(n.Spec.Addresses, api.NodeAddress{Address: a.Address, Type: string(a.Type)})
		}
	}
	n.Status.PodCIDRs = slices.Clone(o.Spec.PodCIDRs)
	return n
}

// nodePatch writes what a Calico node has and its Kubernetes node has not to the annotations. Labels that are Kubernetes' stay there alone; so do
// those that were when the value was made, as its annotation says: what Kubernetes has taken away since must not come back.
func nodePatch(_, name string, kv api.Update, was []byte) (Request, error) {
	var n api.Node
	if err := json.Unmarshal(kv.Value, &n); err != nil {
		return Request{}, err
	}
	var old corev1.Node
	if err := json.Unmarshal(was, &old); err != nil {
		return Request{}, err
	}
	labels := maps.Clone(n.Metadata.Labels)
	var were map[string]string
	if note := n.Metadata.Annotations[nodeKubeLabels]; note != "" {
		if err := json.Unmarshal([]byte(note), &were); err != nil {
			return Request{}, fmt.Errorf("annotation %s does not say which labels are Kubernetes', so that those which are gone would be written: %w; leave it out, or read the Node again", nodeKubeLabels, err)
		}
	}
	maps.DeleteFunc(labels, func(key, value string) bool {
		_, is := old.Labels[key]
		was, ok := were[key]
		return is || ok && was == value
	})
	notes := map[string]any{
		nodeLabels:      orNull(labels),
		nodeAnnotations: orNull(without(n.Metadata.Annotations, nodeKubeLabels)),
		nodeASNumber:    nil,
		nodeInterfaces:  nil,
	}
	for annotation, field := range nodeFields {
		notes[annotation] = nil // a merge patch removes it
		if value := *field(&n); value != "" {
			notes[annotation] = value
		}
	}
	if as := bgpOf(&n).ASNumber; as != nil {
		notes[nodeASNumber] = strconv.FormatUint(uint64(*as), 10)
	}
	if len(n.Spec.Interfaces) > 0 {
		text, _ := json.Marshal(n.Spec.Interfaces) // texts always encode
		notes[nodeInterfaces] = string(text)
	}
	metadata := map[string]any{"annotations": notes}
	if !kv.Revision.IsZero() {
		metadata["resourceVersion"] = kv.Revision.String()
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	return Request{Method: "PATCH", Name: name, Subresource: "status", ContentType: mediaMerge, Body: body}, err
}

// orNull is a map as JSON in an annotation; nil if it has nothing, which removes the annotation.
func orNull(m map[string]string) any {
	if len(m) == 0 {
		return nil
	}
	text, _ := json.Marshal(m) // texts always encode
	return string(text)
}
