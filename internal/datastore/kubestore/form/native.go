package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

// message is an object of Kubernetes' own that can be read from protobuf.
type message interface {
	metav1.Object
	Unmarshal([]byte) error
	Reset()
}

// native is the codec of a kind that Kubernetes itself has: its objects are views, made by package translate.
type native[T message, L interface{ Unmarshal([]byte) error }] struct {
	empty func() T
	lists func() L
	items func(L) (metav1.ListMeta, []T)
	// entry is the key and value of an object.
	entry func(T) (key string, r api.Resource, err error)
	name  func(key string) (namespace, name string, ok bool)
	// change is the request that writes a value to its object; nil: nobody writes it but by Kubernetes.
	change func(namespace, name string, kv api.Update, was []byte) (Request, error)
	why    string // it cannot be written: what to do
}

// Accept is protobuf where the server has it, as it has for its own kinds.
func (native[T, L]) Accept() string { return mediaProtobuf + "," + mediaJSON }

// magic begins protobuf as the API server sends it (k8s.io/apimachinery, runtime/serializer/protobuf).
var magic = []byte("k8s\x00")

// Unmarshal reads an object that the API server sent: protobuf in its envelope, or JSON.
func Unmarshal(raw []byte, into interface{ Unmarshal([]byte) error }) error {
	rest, ok := bytes.CutPrefix(raw, magic)
	if !ok {
		return json.Unmarshal(raw, into)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(rest); err != nil {
		return err
	}
	return into.Unmarshal(envelope.Raw)
}

// MetadataOnly asks for an object's metadata alone, see [Metadata].
const MetadataOnly = mediaProtobuf + partial + "," + mediaJSON + partial

const partial = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// Metadata reads the answer to a request for MetadataOnly.
func Metadata(raw []byte) (metav1.ObjectMeta, error) {
	var o metav1.PartialObjectMetadata
	if err := Unmarshal(raw, &o); err != nil {
		return o.ObjectMeta, fmt.Errorf("the API server's object is not as expected: %w", err)
	}
	return o.ObjectMeta, nil
}

func (n native[T, L]) Object(raw []byte) (Entry, error) {
	o := n.empty()
	if err := Unmarshal(raw, o); err != nil {
		return Entry{}, fmt.Errorf("the API server's object is not as expected: %w", err)
	}
	return n.read(o)
}

func (n native[T, L]) List(body []byte) (Page, error) {
	l := n.lists()
	if err := Unmarshal(body, l); err != nil {
		return Page{}, fmt.Errorf("the API server's list is not as expected: %w", err)
	}
	meta, items := n.items(l)
	p := Page{Version: meta.ResourceVersion, Next: meta.Continue, Entries: make([]Entry, 0, len(items))}
	for _, o := range items {
		e, err := n.read(o)
		if err != nil {
			return Page{}, err
		}
		p.Entries = append(p.Entries, e)
	}
	return p, nil
}

// read makes an entry. What the translation could not take is closed in what it returned, and named in an annotation.
func (n native[T, L]) read(o T) (Entry, error) {
	if o.GetName() == "" {
		return Entry{}, errors.New("the API server's object has no name")
	}
	key, r, wrong := n.entry(o)
	e := Entry{Key: key, Version: o.GetResourceVersion()}
	if r == nil {
		return e, nil
	}
	translate.MarkClosed(r, wrong)
	var err error
	e.Value, err = api.EncodeStored(r)
	return e, err
}

func (n native[T, L]) Name(key string) (namespace, name string, ok bool) { return n.name(key) }

func (n native[T, L]) Create(kv api.Update) (Request, error) {
	return Request{}, &ReadOnlyError{kv.Key, n.why}
}

func (n native[T, L]) Replace(kv api.Update, was []byte) (Request, error) {
	namespace, name, _ := n.name(kv.Key)
	if n.change == nil {
		return Request{}, &ReadOnlyError{kv.Key, n.why}
	}
	return n.change(namespace, name, kv, was)
}

func (n native[T, L]) Remove(key string, _ api.Revision) (Request, error) {
	return Request{}, &ReadOnlyError{key, n.why}
}

// pointers are those to each of a slice's elements.
func pointers[T any](in []T) []*T {
	out := make([]*T, len(in))
	for i := range in {
		out[i] = &in[i]
	}
	return out
}

// keyOf is the key of a resource that was translated; empty if its name allows none.
func keyOf(r api.Resource) string {
	key, err := api.Key(r)
	if err != nil {
		return ""
	}
	return key
}

// after is a resource's name under a prefix of keys, and of names.
func after(kind, begin string) func(key string) (namespace, name string, ok bool) {
	return func(key string) (string, string, bool) {
		ref, ok := api.ParseKey(key)
		name, cut := strings.CutPrefix(ref.Name, begin)
		return ref.Namespace, name, ok && ref.Kind == kind && cut && name != ""
	}
}

func policies() Codec {
	return native[*networkingv1.NetworkPolicy, *networkingv1.NetworkPolicyList]{
		empty: func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
		lists: func() *networkingv1.NetworkPolicyList { return &networkingv1.NetworkPolicyList{} },
		items: func(l *networkingv1.NetworkPolicyList) (metav1.ListMeta, []*networkingv1.NetworkPolicy) {
			return l.ListMeta, pointers(l.Items)
		},
		entry: func(o *networkingv1.NetworkPolicy) (string, api.Resource, error) {
			p, err := translate.Policy(o)
			return keyOf(p), p, err
		},
		name: after(api.KindNetworkPolicy, translate.PolicyPrefix),
		why:  "is a NetworkPolicy of Kubernetes: change that, with kubectl",
	}
}

func namespaces() Codec {
	return native[*corev1.Namespace, *corev1.NamespaceList]{
		empty: func() *corev1.Namespace { return &corev1.Namespace{} },
		lists: func() *corev1.NamespaceList { return &corev1.NamespaceList{} },
		items: func(l *corev1.NamespaceList) (metav1.ListMeta, []*corev1.Namespace) {
			return l.ListMeta, pointers(l.Items)
		},
		entry: func(o *corev1.Namespace) (string, api.Resource, error) {
			p, err := translate.Namespace(o)
			return keyOf(p), p, err
		},
		name: after(api.KindProfile, translate.NamespacePrefix),
		why:  "is a namespace of Kubernetes: change that, with kubectl",
	}
}

func serviceAccounts() Codec {
	profile := after(api.KindProfile, translate.ServiceAccountPrefix)
	return native[*corev1.ServiceAccount, *corev1.ServiceAccountList]{
		empty: func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} },
		lists: func() *corev1.ServiceAccountList { return &corev1.ServiceAccountList{} },
		items: func(l *corev1.ServiceAccountList) (metav1.ListMeta, []*corev1.ServiceAccount) {
			return l.ListMeta, pointers(l.Items)
		},
		entry: func(o *corev1.ServiceAccount) (string, api.Resource, error) {
			p, err := translate.ServiceAccount(o)
			return keyOf(p), p, err
		},
		name: func(key string) (string, string, bool) {
			_, rest, ok := profile(key)
			namespace, account, dot := strings.Cut(rest, ".") // a namespace has no dot
			return namespace, account, ok && dot && account != ""
		},
		why: "is a service account of Kubernetes: change that, with kubectl",
	}
}

func endpointSlices() Codec {
	return native[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]{
		empty: func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} },
		lists: func() *discoveryv1.EndpointSliceList { return &discoveryv1.EndpointSliceList{} },
		items: func(l *discoveryv1.EndpointSliceList) (metav1.ListMeta, []*discoveryv1.EndpointSlice) {
			return l.ListMeta, pointers(l.Items)
		},
		entry: func(o *discoveryv1.EndpointSlice) (string, api.Resource, error) {
			s, err := translate.EndpointSlice(o)
			return keyOf(s), s, err
		},
		name: after(api.KindKubernetesEndpointSlice, ""),
		why:  "is an EndpointSlice of Kubernetes, which its controllers write",
	}
}

func services() Codec {
	return native[*corev1.Service, *corev1.ServiceList]{
		empty: func() *corev1.Service { return &corev1.Service{} },
		lists: func() *corev1.ServiceList { return &corev1.ServiceList{} },
		items: func(l *corev1.ServiceList) (metav1.ListMeta, []*corev1.Service) { return l.ListMeta, pointers(l.Items) },
		entry: func(o *corev1.Service) (string, api.Resource, error) {
			s, err := translate.Service(o)
			return keyOf(s), s, err
		},
		name: after(api.KindKubernetesService, ""),
		why:  "is a Service of Kubernetes: change that, with kubectl",
	}
}

// ownPolicies are Calico's policies of a kind. A name that stands for a policy of Kubernetes is none of theirs: it would take its place.
type ownPolicies struct {
	custom
	foreign []string // what the names of Kubernetes' own begin with
}

// foreignPolicies begin the names of policies that are made of Kubernetes' own, by the kind that those become.
var foreignPolicies = map[string][]string{
	api.KindNetworkPolicy:       {translate.PolicyPrefix},
	api.KindGlobalNetworkPolicy: {translate.ClusterPrefix, translate.AdminPrefix, translate.BaselinePrefix},
}

// Name is part of Codec.
func (c ownPolicies) Name(key string) (namespace, name string, ok bool) {
	namespace, name, ok = c.custom.Name(key)
	return namespace, name, ok && !slices.ContainsFunc(c.foreign, func(begin string) bool { return strings.HasPrefix(name, begin) })
}

// Object is part of Codec.
func (c ownPolicies) Object(raw []byte) (Entry, error) {
	e, err := c.custom.Object(raw)
	if _, _, ok := c.Name(e.Key); !ok {
		e.Key, e.Value = "", nil
	}
	return e, err
}

// List is part of Codec.
func (c ownPolicies) List(body []byte) (Page, error) { return pageOf(body, c.Object) }
