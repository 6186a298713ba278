package form

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

// pods are workload endpoints. What is written of one are the annotations by which upstream says at once which addresses a pod got and
// gave back; the rest of an endpoint comes from the pod. Links is what names of pods' interfaces begin with; empty: as Calico's plugin names them.
func pods(links string) Codec {
	endpoint := translate.Pod
	if links != "" {
		endpoint = func(p *corev1.Pod) (*api.WorkloadEndpoint, error) {
			w, err := translate.Pod(noted(p))
			if w != nil {
				w.Spec.InterfaceName = translate.LinkName(links, p.Namespace, p.Name)
			}
			return w, err
		}
	}
	c := podsAs(endpoint)
	c.change = annotate
	return podCodec{c}
}

// annotationAmazon is where Amazon's plugin notes a pod's addresses, with commas between, before kubelet has written any, and that it gave them back
// (ANNOTATE_POD_IP of amazon-vpc-cni-k8s).
const annotationAmazon = "vpc.amazonaws.com/pod-ips"

// noted is a pod with those where Calico's plugin notes addresses. That they were given back says something of a pod that goes only: of another one
// it is of a time when another plugin attached it.
func noted(p *corev1.Pod) *corev1.Pod {
	ips, amazons := p.Annotations[annotationAmazon]
	calicos, has := p.Annotations[translate.AnnotationIP]
	gone := p.DeletionTimestamp != nil
	if !amazons && !has || has && (calicos != "" || gone) {
		return p
	}
	p = p.DeepCopy()
	delete(p.Annotations, translate.AnnotationIP)
	if amazons {
		p.Annotations[translate.AnnotationIPs] = ips
	}
	if amazons && ips == "" && gone {
		p.Annotations[translate.AnnotationIP] = ""
	}
	return p
}

// podViews are pods as [Views] shows them. Nobody writes to them: their endpoints are kept elsewhere.
func podViews() Codec { return podsAs(translate.Scheduled) }

func podsAs(endpoint func(*corev1.Pod) (*api.WorkloadEndpoint, error)) native[*corev1.Pod, *corev1.PodList] {
	return native[*corev1.Pod, *corev1.PodList]{
		empty: func() *corev1.Pod { return &corev1.Pod{} },
		lists: func() *corev1.PodList { return &corev1.PodList{} },
		items: func(l *corev1.PodList) (metav1.ListMeta, []*corev1.Pod) { return l.ListMeta, pointers(l.Items) },
		entry: func(o *corev1.Pod) (string, api.Resource, error) {
			w, err := endpoint(o)
			if w == nil { // the key, since an earlier version of the pod may have been an endpoint
				return podKey(o.Namespace, o.Name, o.Spec.NodeName), nil, err
			}
			return keyOf(w), w, err
		},
		name: podOf,
		why:  "endpoints are made of pods here: create a pod, with kubectl",
	}
}

// podKey is the key of a pod's endpoint; empty if it is on no node.
func podKey(namespace, pod, node string) string {
	name, err := api.WorkloadEndpointName(api.WorkloadEndpointSpec{Orchestrator: translate.Orchestrator, Node: node, Pod: pod, Endpoint: translate.PodInterface})
	if err != nil {
		return ""
	}
	key, err := api.Ref{Kind: api.KindWorkloadEndpoint, Namespace: namespace, Name: name}.Key()
	if err != nil {
		return ""
	}
	return key
}

// podOf is the pod of an endpoint's key.
func podOf(key string) (namespace, name string, ok bool) {
	ref, ok := api.ParseKey(key)
	if !ok || ref.Kind != api.KindWorkloadEndpoint {
		return "", "", false
	}
	parts, ok := api.ParseWorkloadEndpointName(ref.Name)
	return ref.Namespace, parts.Workload, ok && parts.Orchestrator == translate.Orchestrator && parts.Endpoint == translate.PodInterface
}

// annotate is the patch that notes a pod's addresses and container.
func annotate(namespace, name string, kv api.Update, _ []byte) (Request, error) {
	var w api.WorkloadEndpoint
	if err := json.Unmarshal(kv.Value, &w); err != nil {
		return Request{}, err
	}
	notes := map[string]string{}
	if len(w.Spec.IPNetworks) > 0 {
		notes[translate.AnnotationIP], notes[translate.AnnotationIPs] = w.Spec.IPNetworks[0], strings.Join(w.Spec.IPNetworks, ",")
	}
	if w.Spec.ContainerID != "" {
		notes[translate.AnnotationContainer] = w.Spec.ContainerID
	}
	return podPatch(namespace, name, kv.Revision, notes)
}

func podPatch(namespace, name string, revision api.Revision, annotations map[string]string) (Request, error) {
	metadata := map[string]any{"annotations": annotations}
	if !revision.IsZero() {
		metadata["resourceVersion"] = revision.String()
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	return Request{Method: "PATCH", Namespace: namespace, Name: name, Subresource: "status", ContentType: mediaMerge, Body: body}, err
}

// podCodec is that of pods: to create an endpoint is to note its addresses on a pod that is there, and to delete it, that it has none.
type podCodec struct {
	native[*corev1.Pod, *corev1.PodList]
}

// Create is part of Codec.
func (c podCodec) Create(kv api.Update) (Request, error) {
	namespace, name, _ := podOf(kv.Key)
	kv.Revision = api.Revision{}
	return annotate(namespace, name, kv, nil)
}

// Remove is part of Codec.
func (c podCodec) Remove(key string, revision api.Revision) (Request, error) {
	namespace, name, _ := podOf(key)
	return podPatch(namespace, name, revision, map[string]string{translate.AnnotationIP: "", translate.AnnotationIPs: ""})
}
