package translate

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/twillnet/twill/api"
)

// EndpointSlice translates a part of a service's endpoints: what rules that name a service ask for.
func EndpointSlice(s *discoveryv1.EndpointSlice) (*api.KubernetesEndpointSlice, error) {
	o := &object{kind: "EndpointSlice", meta: s}
	out := &api.KubernetesEndpointSlice{Object: o.head(api.KindKubernetesEndpointSlice, s.Namespace, s.Name), AddressType: string(s.AddressType)}
	out.Metadata.Labels = o.labels(s.Labels)
	for _, e := range s.Endpoints {
		out.Endpoints = append(out.Endpoints, api.SliceEndpoint{
			Addresses: e.Addresses, NodeName: deref(e.NodeName), Hostname: deref(e.Hostname), Zone: deref(e.Zone),
			Conditions: &api.SliceConditions{Ready: e.Conditions.Ready, Serving: e.Conditions.Serving, Terminating: e.Conditions.Terminating},
		})
	}
	for i, p := range s.Ports {
		path := fmt.Sprintf("ports[%d]", i)
		if p.Port == nil {
			continue // all ports of something that is no pod: nothing that a rule could mean
		}
		protocol, ok := o.protocol(path+".protocol", deref(p.Protocol))
		number, read := o.portNumber(path+".port", *p.Port)
		if ok && read {
			out.Ports = append(out.Ports, api.SlicePort{Name: deref(p.Name), Protocol: &api.Protocol{Name: protocol}, Port: &number, AppProtocol: deref(p.AppProtocol)})
		}
	}
	return out, o.errs.Err()
}

// Service translates a service: what routes to its addresses depend on.
func Service(s *corev1.Service) (*api.KubernetesService, error) {
	o := &object{kind: "Service", meta: s}
	out := &api.KubernetesService{
		Object: o.head(api.KindKubernetesService, s.Namespace, s.Name),
		Spec: api.KubernetesServiceSpec{
			Type: string(s.Spec.Type), ClusterIPs: s.Spec.ClusterIPs, ExternalIPs: s.Spec.ExternalIPs, ExternalTrafficPolicy: string(s.Spec.ExternalTrafficPolicy),
		},
	}
	if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP != "" { // of an older server
		out.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			out.Status.LoadBalancer.Ingress = append(out.Status.LoadBalancer.Ingress, api.ServiceIngress{IP: i.IP})
		}
	}
	return out, o.errs.Err()
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// serving are the endpoints that Kubernetes would find for a service, one slice
// for each pod and family: how they are cut makes no difference to rules.
func serving(s *corev1.Service, pods []*corev1.Pod) []api.Resource {
	var out []api.Resource
	if len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil // somebody else says where it is served
	}
	for _, p := range pods {
		if p.Namespace != s.Namespace || ended(p) || !hasLabels(p.Labels, s.Spec.Selector) {
			continue
		}
		for i, text := range podIPs(p) {
			a, err := netip.ParseAddr(text)
			if err != nil || !inFamilies(s, a, i) {
				continue
			}
			family := "IPv4"
			if a.Is6() {
				family = "IPv6"
			}
			slice := &api.KubernetesEndpointSlice{AddressType: family, Endpoints: []api.SliceEndpoint{{Addresses: []string{text}, NodeName: p.Spec.NodeName}}, Ports: servingPorts(s, p)}
			// A service's name has no dot, so no other service and pod can make this name.
			slice.Object = (&object{meta: s}).head(api.KindKubernetesEndpointSlice, s.Namespace, s.Name+"."+p.Name+fmt.Sprintf(".%d", i))
			slice.Metadata.UID = "" // that of the service is not its own
			slice.Metadata.Labels = map[string]string{api.LabelServiceName: s.Name}
			out = append(out, slice)
		}
	}
	return out
}

func hasLabels(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// inFamilies: a service that does not say its families has that of the pod's first address.
func inFamilies(s *corev1.Service, a netip.Addr, index int) bool {
	if len(s.Spec.IPFamilies) == 0 {
		return index == 0
	}
	family := corev1.IPv4Protocol
	if a.Is6() {
		family = corev1.IPv6Protocol
	}
	return slices.Contains(s.Spec.IPFamilies, family)
}

// servingPorts are those of the pod to which the service's ports lead.
func servingPorts(s *corev1.Service, p *corev1.Pod) []api.SlicePort {
	var out []api.SlicePort
	for _, port := range s.Spec.Ports {
		o := &object{meta: s}
		protocol, ok := o.protocol("", port.Protocol)
		number, read := o.portNumber("", targetPort(port, p, protocol))
		if ok && read {
			out = append(out, api.SlicePort{Name: port.Name, Protocol: &api.Protocol{Name: protocol}, Port: &number})
		}
	}
	return out
}

// targetPort is 0 if the pod has no port of the name that the service wants.
func targetPort(port corev1.ServicePort, p *corev1.Pod, protocol string) int32 {
	switch t := port.TargetPort; {
	case t.Type == intstr.Int && t.IntVal == 0, t.Type == intstr.String && t.StrVal == "":
		return port.Port
	case t.Type == intstr.Int:
		return t.IntVal
	}
	for _, c := range containers(p) {
		for _, have := range c.Ports {
			if have.Name == port.TargetPort.StrVal && string(have.Protocol) == protocol || have.Name == port.TargetPort.StrVal && have.Protocol == "" && protocol == "TCP" {
				return have.ContainerPort
			}
		}
	}
	return 0
}
