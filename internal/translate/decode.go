package translate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/twillnet/twill/api"
)

// Object is a Kubernetes object that [Decode] has read.
type Object struct {
	Kind   string
	object metav1.Object   // a *PartialObjectMetadata says nothing to policy
	unread api.FieldErrors // what [Kept] could not read
	lost   bool            // so much that any part may mean something else
}

// Name is namespace/name, or name.
func (o Object) Name() string { return nameOf(o.object) }

type kind struct {
	version, name string
	empty         func() metav1.Object
	global        bool // it is in no namespace
}

// kinds are those that mean something to policy.
var kinds = []kind{
	{version: "networking.k8s.io/v1", name: "NetworkPolicy", empty: func() metav1.Object { return &networkingv1.NetworkPolicy{} }},
	{version: "v1", name: "Namespace", empty: func() metav1.Object { return &corev1.Namespace{} }, global: true},
	{version: "v1", name: "Pod", empty: func() metav1.Object { return &corev1.Pod{} }},
	{version: "v1", name: "ServiceAccount", empty: func() metav1.Object { return &corev1.ServiceAccount{} }},
	{version: "v1", name: "Service", empty: func() metav1.Object { return &corev1.Service{} }},
	{version: "discovery.k8s.io/v1", name: "EndpointSlice", empty: func() metav1.Object { return &discoveryv1.EndpointSlice{} }},
	{version: PolicyAPI + "/v1alpha2", name: KindCluster, empty: func() metav1.Object { return &v1alpha2.ClusterNetworkPolicy{} }, global: true},
	{version: PolicyAPI + "/v1alpha1", name: KindAdmin, empty: func() metav1.Object { return &v1alpha1.AdminNetworkPolicy{} }, global: true},
	{version: PolicyAPI + "/v1alpha1", name: KindBaseline, empty: func() metav1.Object { return &v1alpha1.BaselineAdminNetworkPolicy{} }, global: true},
}

// Kinds of the cluster-wide policies of Kubernetes, and their API group.
const (
	KindCluster  = "ClusterNetworkPolicy"
	KindAdmin    = "AdminNetworkPolicy"
	KindBaseline = "BaselineAdminNetworkPolicy"
	PolicyAPI    = "policy.networking.k8s.io"
)

// saysNothing: a kind that has no bearing on policy. In the groups of policies only those that are known can be one,
// so that a typing error is not a policy less.
func saysNothing(version, name string) bool {
	switch group, _, _ := strings.Cut(version, "/"); group {
	case "networking.k8s.io":
		return slices.Contains([]string{"Ingress", "IngressClass", "IPAddress", "ServiceCIDR"}, name)
	case PolicyAPI:
		return false
	}
	return !slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name })
}

// Of is an object that is held already.
func Of(o metav1.Object) Object {
	out := Object{object: o}
	for _, k := range kinds {
		if reflect.TypeOf(k.empty()) == reflect.TypeOf(o) {
			out.Kind = k.name
		}
	}
	return out
}

// Decode reads one object, written as JSON. It is strict, as kubectl is with
// --validate=strict: what Kubernetes does not know is an error. An object
// without a namespace is in that called default.
func Decode(raw []byte) (Object, error) {
	var head struct {
		metav1.TypeMeta
		Metadata struct {
			Name, Namespace string
		} `json:"metadata"`
	}
	_ = json.Unmarshal(raw, &head) // what is wrong is found below
	fail := func(path, reason string) *api.FieldError {
		name := strings.TrimPrefix(head.Metadata.Namespace+"/"+head.Metadata.Name, "/")
		return &api.FieldError{Kind: head.Kind, Name: name, Path: path, Reason: reason}
	}
	if saysNothing(head.APIVersion, head.Kind) {
		other := &metav1.PartialObjectMetadata{}
		other.Namespace, other.Name = head.Metadata.Namespace, head.Metadata.Name
		return Object{Kind: head.Kind, object: other}, nil
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == head.Kind })
	if i < 0 {
		return Object{}, api.FieldErrors{fail("kind", fmt.Sprintf("%q is unknown: want one of %s", head.Kind, kindNames()))}
	}
	if head.APIVersion != kinds[i].version {
		return Object{}, api.FieldErrors{fail("apiVersion", fmt.Sprintf("is %q: want %s", head.APIVersion, kinds[i].version))}
	}
	out := Object{Kind: head.Kind, object: kinds[i].empty()}
	errs, _ := unmarshal(raw, out.object, fail)
	switch {
	case kinds[i].global:
		out.object.SetNamespace("")
	case out.object.GetNamespace() == "":
		out.object.SetNamespace("default")
	}
	for _, part := range []struct{ path, value string }{{"metadata.name", out.object.GetName()}, {"metadata.namespace", out.object.GetNamespace()}} {
		if reasons := content.IsDNS1123Subdomain(part.value); len(reasons) > 0 && (part.value != "" || part.path == "metadata.name") {
			errs = append(errs, fail(part.path, fmt.Sprintf("is %q: %s", part.value, reasons[0])))
		}
	}
	return out, errs.Err()
}

// unmarshal reads all of an object that can be read, and says what cannot, and what Kubernetes does not know. Of what has another
// type than it should, it names only the first: then more is lost.
func unmarshal(raw []byte, into metav1.Object, fail func(path, reason string) *api.FieldError) (errs api.FieldErrors, lost bool) {
	strict, err := kjson.UnmarshalStrict(raw, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		errs = append(errs, fail(wrong.Field, fmt.Sprintf("is a %s: want %s", wrong.Value, wrong.Type)))
	case err != nil:
		errs = append(errs, fail("", err.Error()))
	}
	for _, e := range strict {
		path, reason := "", e.Error()
		if f, ok := e.(kjson.FieldError); ok { //nolint:errorlint // the package hands these out as they are
			path = f.FieldPath()
			reason, _, _ = strings.Cut(reason, " \"")
		}
		errs = append(errs, fail(path, reason))
	}
	return errs, err != nil
}

// Kept translates a cluster-wide policy of a kind, as an API server keeps it in JSON. It may be of another version of the API: what is
// unknown here, or of another type, is an error and is closed, as what has no meaning is.
func Kept(name string, raw []byte) (api.Resource, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	o := Object{Kind: name, object: kinds[i].empty()}
	o.unread, o.lost = unmarshal(raw, o.object, func(path, reason string) *api.FieldError {
		return &api.FieldError{Kind: name, Path: path, Reason: reason}
	})
	for _, e := range o.unread {
		e.Name = o.Name()
	}
	rs, err := Resources(o)
	return rs[0], err // it always becomes one
}

func kindNames() string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// Resources translates one object by itself. There may be none: a service gives
// nothing but what is in [Implied].
func Resources(o Object) ([]api.Resource, error) {
	state := &object{kind: o.Kind, meta: o.object, errs: slices.Clone(o.unread)}
	state.lost = o.lost || slices.ContainsFunc(o.unread, func(e *api.FieldError) bool { return changesAll(e.Path) })
	switch o := o.object.(type) {
	case *v1alpha2.ClusterNetworkPolicy:
		return only(clusterPolicy(state, o))
	case *v1alpha1.AdminNetworkPolicy:
		return only(adminPolicy(state, o))
	case *v1alpha1.BaselineAdminNetworkPolicy:
		return only(baselinePolicy(state, o))
	case *networkingv1.NetworkPolicy:
		return only(Policy(o))
	case *corev1.Namespace:
		return only(Namespace(o))
	case *corev1.ServiceAccount:
		return only(ServiceAccount(o))
	case *discoveryv1.EndpointSlice:
		return only(EndpointSlice(o))
	case *corev1.Pod:
		w, err := Pod(o)
		if w == nil {
			return nil, err
		}
		return only(w, err)
	}
	return nil, nil
}

func only[R api.Resource](r R, err error) ([]api.Resource, error) { return []api.Resource{r}, err }

// PassedOver are the annotations that Calico gives a meaning and this translation does not, sorted, such as addresses that are
// asked for.
func (o Object) PassedOver() []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(o.object.GetAnnotations())) {
		domain, _, _ := strings.Cut(key, "/")
		calicos := domain == calicoDomain || strings.HasSuffix(domain, "."+calicoDomain)
		if calicos && !slices.Contains([]string{AnnotationContainer, AnnotationIP, AnnotationIPs, AnnotationSourcePrefixes, AnnotationFloating}, key) && !IsLimit(key) {
			out = append(out, key)
		}
	}
	return out
}

const calicoDomain = "projectcalico.org"

// Nothing says why an object makes no resources where a reader could expect some; empty for all others.
func (o Object) Nothing() string {
	switch object := o.object.(type) {
	case *corev1.Pod:
		return NoEndpoint(object)
	case *metav1.PartialObjectMetadata:
		return "says nothing to policy"
	}
	return ""
}
