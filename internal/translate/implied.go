package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/twillnet/twill/api"
)

// Implied are the resources that Kubernetes would have although nobody wrote
// their objects: the profiles of the namespaces and service accounts that pods
// are in, without any labels but their names, and where services are served.
// Objects of a live cluster are complete and need none of this.
func Implied(objects []Object) []api.Resource {
	var out []api.Resource
	var pods []*corev1.Pod
	have := map[string]bool{} // profiles, and services that have slices
	for _, o := range objects {
		switch o := o.object.(type) {
		case *corev1.Namespace:
			have[NamespacePrefix+o.Name] = true
		case *corev1.ServiceAccount:
			have[accountProfile(o.Namespace, o.Name)] = true
		case *discoveryv1.EndpointSlice:
			have[serviceKey(o.Namespace, o.Labels[api.LabelServiceName])] = true
		case *corev1.Pod:
			pods = append(pods, o)
		}
	}
	need := func(profile string, as func() (*api.Profile, error)) {
		if !have[profile] {
			have[profile] = true
			p, _ := as() // there is nothing in it that could be wrong
			out = append(out, p)
		}
	}
	for _, p := range pods {
		if NoEndpoint(p) != "" {
			continue
		}
		account := metav1.ObjectMeta{Namespace: p.Namespace, Name: accountOf(p)}
		need(NamespacePrefix+p.Namespace, func() (*api.Profile, error) {
			return Namespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}})
		})
		need(accountProfile(p.Namespace, account.Name), func() (*api.Profile, error) {
			return ServiceAccount(&corev1.ServiceAccount{ObjectMeta: account})
		})
	}
	for _, o := range objects {
		if s, ok := o.object.(*corev1.Service); ok && !have[serviceKey(s.Namespace, s.Name)] {
			out = append(out, serving(s, pods)...)
		}
	}
	return slices.Clip(out)
}

func serviceKey(namespace, name string) string { return "service " + namespace + "/" + name }
