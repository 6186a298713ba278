package translate

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // a name that must equal Calico's, no secret
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/twillnet/twill/api"
)

// What upstream calls things of Kubernetes.
const (
	// Orchestrator is who runs pods, in the names of endpoints and in a label.
	Orchestrator = "k8s"
	// PodInterface is the interface of a pod that is its endpoint.
	PodInterface = "eth0"
	// AnnotationContainer, AnnotationIP and AnnotationIPs are what the CNI plugin notes on a pod: the container's id, its first
	// address and all of them, as prefixes with commas between. Empty addresses: they were given back.
	AnnotationContainer = "cni.projectcalico.org/containerID"
	AnnotationIP        = "cni.projectcalico.org/podIP"
	AnnotationIPs       = "cni.projectcalico.org/podIPs"
	// LabelMigration is on a pod that KubeVirt made as the target of a live migration of a virtual machine.
	LabelMigration = "kubevirt.io/migrationJobUID"
	// AnnotationSetupFailed is on a pod whose condition says that it could not be attached: whoever attaches it takes both away.
	AnnotationSetupFailed = "twill.net/network-setup-failed"
	// AnnotationAwaitsLabels is on an endpoint that waits for its pod's labels, where they are copied from Kubernetes: whoever writes them takes it away.
	AnnotationAwaitsLabels = "twill.net/awaits-labels"
	// KeyLabelsAreCopied is in a datastore into which somebody copies the labels of pods.
	KeyLabelsAreCopied = api.Root + "twill/v1/labels-of-pods-are-copied"
)

const (
	defaultAccount  = "default"
	maxLabelValue   = 63
	interfacePrefix = "cali"
	interfaceDigits = 11 // of a hash
	maxInterface    = 15 // characters that the kernel allows (IFNAMSIZ of linux/if.h)
)

// NoEndpoint says why a pod gives no endpoint; empty if it gives one.
func NoEndpoint(p *corev1.Pod) string {
	switch {
	case p.Spec.HostNetwork:
		return "is in its host's network: host endpoints protect that"
	case released(p):
		return "has no address any more, or not yet again (annotation " + AnnotationIP + " is empty)"
	case ended(p):
		return "has ended"
	case p.Spec.NodeName == "":
		return "is on no node yet (spec.nodeName)"
	case len(podIPs(p)) == 0 && p.Labels[LabelMigration] != "":
		return "is the target of a live migration that is not over (label " + LabelMigration + "), or nobody noted its address (annotation " + AnnotationIP + ")"
	case len(podIPs(p)) == 0:
		return "has no address yet (status.podIPs)"
	}
	return ""
}

// completed is a phase that Kubernetes' pages have had, and its API has not: whoever writes it means one that has ended, as upstream takes it to.
const completed corev1.PodPhase = "Completed"

// ended: its address may already be another pod's. Of a pod in the phase Unknown only its node is known to be silent: it may run.
func ended(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && released(p) || slices.Contains([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed, completed}, p.Status.Phase)
}

// released: Calico's plugin empties the annotation when it has given the address of a pod back, before the pod is gone, or gets a new sandbox. The
// kubelet reports that address until the new one runs, which may be never, and somebody else may have it.
func released(p *corev1.Pod) bool {
	ip, annotated := p.Annotations[AnnotationIP]
	return annotated && ip == ""
}

// Pod translates a pod; the endpoint is nil if it has none, see [NoEndpoint].
func Pod(p *corev1.Pod) (*api.WorkloadEndpoint, error) {
	if NoEndpoint(p) != "" {
		return nil, nil
	}
	return endpointOf(p)
}

// Scheduled is Pod of one that may have no address yet: it is on a node, where somebody else knows its addresses.
func Scheduled(p *corev1.Pod) (*api.WorkloadEndpoint, error) {
	if p.Spec.HostNetwork || ended(p) || p.Spec.NodeName == "" {
		return nil, nil
	}
	return endpointOf(p)
}

func endpointOf(p *corev1.Pod) (*api.WorkloadEndpoint, error) {
	o := &object{kind: "Pod", meta: p}
	account := accountOf(p)
	networks := o.networks(p)
	out := &api.WorkloadEndpoint{Spec: api.WorkloadEndpointSpec{
		Orchestrator: Orchestrator, Node: p.Spec.NodeName, Pod: p.Name, Endpoint: PodInterface,
		ContainerID: p.Annotations[AnnotationContainer], ServiceAccountName: account,
		InterfaceName: InterfaceName(p.Namespace, p.Name),
		Profiles:      []string{NamespacePrefix + p.Namespace, accountProfile(p.Namespace, account)},
		IPNetworks:    networks, IPNATs: o.floating(p, networks), Ports: o.containerPorts(p), AllowSpoofedSourcePrefixes: o.sourcePrefixes(p), QoSControls: o.qos(p),
	}}
	name, err := api.WorkloadEndpointName(out.Spec)
	if err != nil {
		o.fail("spec.nodeName", "is %q: %v", p.Spec.NodeName, err)
		return nil, o.errs
	}
	out.Object = o.head(api.KindWorkloadEndpoint, p.Namespace, name)
	out.Metadata.Labels = o.podLabels(p, account)
	return out, o.errs.Err()
}

// InterfaceName is what Calico's CNI plugin calls the host's end of a pod's link.
func InterfaceName(namespace, pod string) string { return LinkName(interfacePrefix, namespace, pod) }

// LinkName is the same with another beginning, as plugins of clouds call it so that Calico's agent finds it: eni with that of
// Amazon's VPC, azv with Azure's, gke with Google's.
func LinkName(prefix, namespace, pod string) string {
	sum := sha1.Sum([]byte(namespace + "." + pod))
	return prefix + hex.EncodeToString(sum[:])[:max(0, min(interfaceDigits, maxInterface-len(prefix)))]
}

// accountOf is the pod's service account; Kubernetes itself gives the one called default.
func accountOf(p *corev1.Pod) string {
	return cmp.Or(p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount, defaultAccount)
}

// podLabels are the pod's own ones, and what we say of it. Those that namespace
// and account give are not the pod's to have: it could join another's by them.
func (o *object) podLabels(p *corev1.Pod, account string) map[string]string {
	out := o.labels(p.Labels)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return strings.HasPrefix(key, api.NamespaceLabelPrefix) || strings.HasPrefix(key, api.ServiceAccountLabelPrefix)
	})
	out[api.LabelNamespace], out[api.LabelOrchestrator] = p.Namespace, Orchestrator
	delete(out, api.LabelServiceAccount)
	if len(account) <= maxLabelValue { // a name may be longer than a label's value
		out[api.LabelServiceAccount] = account
	}
	return out
}

// networks are the pod's addresses with their full length.
func (o *object) networks(p *corev1.Pod) []string {
	var out []string
	for i, text := range podIPs(p) {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			o.fail(fmt.Sprintf("status.podIPs[%d].ip", i), "is %q: want an address", text)
			continue
		}
		a = a.Unmap()
		out = append(out, netip.PrefixFrom(a, a.BitLen()).String())
	}
	return out
}

// podIPs are those of the status, or, before the kubelet has written any, those that Calico's plugin notes as prefixes. The target of a live
// migration has those that both say: what the kubelet writes is another pod's until the machine runs here and that is noted, and a note by itself
// proves nothing, since who may patch a pod may write both it and the label.
func podIPs(p *corev1.Pod) []string {
	written, noted := statusIPs(p), notedIPs(p)
	switch {
	case p.Labels[LabelMigration] != "":
		return slices.DeleteFunc(noted, func(ip string) bool { return !slices.Contains(written, ip) })
	case len(written) == 0:
		return noted
	}
	return written
}

func notedIPs(p *corev1.Pod) (out []string) {
	noted := cmp.Or(p.Annotations[AnnotationIPs], p.Annotations[AnnotationIP])
	if noted == "" {
		return nil
	}
	for s := range strings.SplitSeq(noted, ",") {
		address, _, _ := strings.Cut(s, "/")
		out = append(out, address)
	}
	return out
}

func statusIPs(p *corev1.Pod) []string {
	var out []string
	for _, ip := range p.Status.PodIPs {
		out = append(out, ip.IP)
	}
	if len(out) == 0 && p.Status.PodIP != "" {
		out = []string{p.Status.PodIP}
	}
	return out
}

// containers are those that run as long as the pod does: also init containers
// that are started again whenever they end.
func containers(p *corev1.Pod) []corev1.Container {
	out := slices.Clone(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	return out
}

// containerPorts are those that rules can name or that the host has, too, of all containers, as with upstream: an init container that has ended listens
// no more. A port that means nothing is left out, so that a rule which names it allows nothing.
func (o *object) containerPorts(p *corev1.Pod) []api.WorkloadEndpointPort {
	out := o.portsOf("spec.containers", p.Spec.Containers)
	return append(out, o.portsOf("spec.initContainers", p.Spec.InitContainers)...)
}

func (o *object) portsOf(list string, containers []corev1.Container) (out []api.WorkloadEndpointPort) {
	for _, c := range containers {
		for i, port := range c.Ports {
			path := fmt.Sprintf("%s[name=%s].ports[%d]", list, c.Name, i)
			protocol, ok := o.protocol(path+".protocol", port.Protocol)
			number, read := o.portNumber(path+".containerPort", port.ContainerPort)
			if !ok || !read || port.Name != "" && !o.portName(path+".name", port.Name) {
				continue
			}
			host := uint16(0)
			if port.HostPort != 0 {
				host, _ = o.portNumber(path+".hostPort", port.HostPort)
			}
			if port.Name == "" && host == 0 {
				continue
			}
			out = append(out, api.WorkloadEndpointPort{Name: port.Name, Protocol: api.Protocol{Name: protocol}, Port: number, HostPort: host, HostIP: port.HostIP})
		}
	}
	return out
}
