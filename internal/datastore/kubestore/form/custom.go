package form

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/twillnet/twill/api"
)

// annotationApplied is kubectl's, as large as the object; nothing here reads it.
const annotationApplied = "kubectl.kubernetes.io/last-applied-configuration"

// custom is the codec of a resource that is kept as a custom resource of the same kind.
//
// In the group V3 the object is the resource. In V1, upstream keeps the resource's metadata as JSON in an annotation, and beside it, as
// the object's own, the labels and annotations that are Calico's.
type custom struct {
	group  Group
	kind   api.Kind
	object string // kind of the objects
}

func (custom) Accept() string { return mediaJSON }

func (c custom) List(body []byte) (Page, error) { return pageOf(body, c.Object) }

func (c custom) Object(raw []byte) (Entry, error) {
	o, err := decodeObject(raw)
	if err != nil {
		return Entry{}, err
	}
	key, err := api.Ref{Kind: c.kind.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}.Key()
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Key: key, Version: o.Metadata.ResourceVersion}
	o.Kind, o.APIVersion, o.Metadata.ResourceVersion = c.kind.Kind, api.GroupVersion, ""
	if c.group == V1 {
		o.Metadata = unpacked(o.Metadata, c.kind.Policy)
	} else {
		o.Metadata.Annotations = without(o.Metadata.Annotations, annotationApplied)
		if c.kind.Policy {
			o.Metadata.Annotations = named(o.Metadata.Annotations, o.Metadata.Name)
		}
	}
	e.Value, err = json.Marshal(inOrder(o))
	return e, err
}

// stored is an object with its members in the order in which etcd holds them.
type stored struct {
	Kind       string          `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	Metadata   api.ObjectMeta  `json:"metadata"`
	Spec       json.RawMessage `json:"spec,omitempty"`
	Status     json.RawMessage `json:"status,omitempty"`
}

func inOrder(o object) stored { return stored{o.Kind, o.APIVersion, o.Metadata, o.Spec, o.Status} }

// named are annotations with that which holds the name that a user gave to a policy.
func named(annotations map[string]string, name string) map[string]string {
	text, _ := json.Marshal(map[string]string{"name": name}) // text always encodes
	out := maps.Clone(annotations)
	if out == nil {
		out = map[string]string{}
	}
	out[api.AnnotationMetadata] = string(text)
	return out
}

// without are annotations without some.
func without(annotations map[string]string, keys ...string) map[string]string {
	out := maps.Clone(annotations)
	for _, key := range keys {
		delete(out, key)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// unpacked is the metadata of a resource in the group V1. What the annotation says counts before what the object has: older versions
// of upstream wrote labels only to the object. The annotation is left out if it cannot be read.
func unpacked(m api.ObjectMeta, policy bool) api.ObjectMeta {
	text, ok := m.Annotations[api.AnnotationMetadata]
	m.Annotations = without(m.Annotations, api.AnnotationMetadata, annotationApplied)
	if !ok {
		return m
	}
	var inner api.ObjectMeta
	if json.Unmarshal([]byte(text), &inner) != nil {
		return m
	}
	m.Labels, m.Annotations = merged(m.Labels, inner.Labels), merged(m.Annotations, inner.Annotations)
	m.Annotations = without(m.Annotations, annotationApplied)
	if inner.CreationTimestamp != "" && inner.CreationTimestamp != "null" {
		m.CreationTimestamp = inner.CreationTimestamp
	}
	if policy && inner.Name != "" {
		m.Annotations = named(m.Annotations, inner.Name)
	}
	return m
}

func merged(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// packed is the metadata of an object in the group V1; the inverse of unpacked.
func packed(m api.ObjectMeta, policy bool) api.ObjectMeta {
	inner := api.ObjectMeta{CreationTimestamp: m.CreationTimestamp, Labels: m.Labels, Annotations: without(m.Annotations, api.AnnotationMetadata)}
	if policy { // one of an older version says no name, and would get another by it
		var a struct{ Name string }
		_ = json.Unmarshal([]byte(m.Annotations[api.AnnotationMetadata]), &a) // what cannot be read is none
		inner.Name = a.Name
	}
	text, _ := json.Marshal(inner) // texts always encode
	m.Labels, m.Annotations = calicos(m.Labels), calicos(inner.Annotations)
	m.Annotations = merged(m.Annotations, map[string]string{api.AnnotationMetadata: string(text)})
	return m
}

// calicos are those of labels or annotations that upstream keeps on the object, too.
func calicos(in map[string]string) map[string]string {
	var out map[string]string
	for key, value := range in {
		if strings.Contains(key, "projectcalico.org/") || strings.Contains(key, "operator.tigera.io/") {
			out = merged(out, map[string]string{key: value})
		}
	}
	return out
}

func (c custom) Name(key string) (namespace, name string, ok bool) {
	ref, ok := api.ParseKey(key)
	return ref.Namespace, ref.Name, ok && ref.Kind == c.kind.Kind
}

// objectOf is the object of a key and value, without what the API server decides.
func (c custom) objectOf(kv api.Update) (object, error) {
	var o object
	if err := json.Unmarshal(kv.Value, &o); err != nil {
		return o, fmt.Errorf("%s: Kubernetes cannot keep what is no resource: %w", kv.Key, err)
	}
	ref, _ := api.ParseKey(kv.Key)
	o.Kind, o.APIVersion = c.object, string(c.group)
	o.Metadata.Namespace, o.Metadata.Name = ref.Namespace, ref.Name
	o.Metadata.UID, o.Metadata.ResourceVersion, o.Metadata.Generation, o.Metadata.DeletionTimestamp, o.Metadata.GenerateName = "", "", 0, "", ""
	if c.group == V1 {
		o.Metadata = packed(o.Metadata, c.kind.Policy)
	} else if c.kind.Policy {
		o.Metadata.Annotations = without(o.Metadata.Annotations, api.AnnotationMetadata)
	}
	o.Metadata.CreationTimestamp = ""
	return o, nil
}

// possible refuses what no resource can be where objects are Kubernetes' own, as upstream does. If it was so before, it stays for who writes something else.
func (c custom) possible(spec, was json.RawMessage) error {
	if c.kind.Kind == api.KindKubeControllersConfiguration && labelsApart(spec) && !labelsApart(was) {
		return errors.New("spec.controllers.node.syncLabels is Disabled: with this datastore a Node is that of Kubernetes, with its labels; leave it out, or set Enabled")
	}
	return nil
}

// labelsApart reports whether a KubeControllersConfiguration wants Nodes without the labels that they have in Kubernetes.
func labelsApart(spec json.RawMessage) bool {
	var s struct {
		Controllers struct {
			Node struct{ SyncLabels string }
		}
	}
	return json.Unmarshal(spec, &s) == nil && s.Controllers.Node.SyncLabels == api.Disabled
}

func (c custom) Create(kv api.Update) (Request, error) {
	o, err := c.objectOf(kv)
	if err == nil {
		err = c.possible(o.Spec, nil)
	}
	if err != nil {
		return Request{}, err
	}
	body, err := json.Marshal(o)
	return Request{Method: "POST", Namespace: o.Metadata.Namespace, ContentType: mediaJSON, Body: body}, err
}

func (c custom) Replace(kv api.Update, was []byte) (Request, error) {
	o, err := c.objectOf(kv)
	if err != nil {
		return Request{}, err
	}
	old, err := decodeObject(was)
	if err == nil {
		err = c.possible(o.Spec, old.Spec)
	}
	if err != nil {
		return Request{}, err
	}
	if applied, ok := old.Metadata.Annotations[annotationApplied]; ok {
		o.Metadata.Annotations = merged(o.Metadata.Annotations, map[string]string{annotationApplied: applied})
	}
	o.Metadata.UID, o.Metadata.ResourceVersion = old.Metadata.UID, old.Metadata.ResourceVersion
	if !kv.Revision.IsZero() {
		o.Metadata.ResourceVersion = kv.Revision.String()
	}
	body, err := json.Marshal(o)
	return Request{Method: "PUT", Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, ContentType: mediaJSON, Body: body}, err
}

func (c custom) Remove(key string, revision api.Revision) (Request, error) {
	namespace, name, _ := c.Name(key)
	return deletion(namespace, name, revision), nil
}
