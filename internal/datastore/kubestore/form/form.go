// Package form turns objects of Kubernetes' API into keys and values of a datastore, and back.
//
// In: objects as the API server sends them, or a key and a value. Out: an
// [Entry], or a [Request] for the API server. It is pure: package kubestore speaks to the server.
//
// A value is what etcd would hold under the same key, so that nothing above
// the datastore sees a difference (decision 035). Calico keeps its resources in one of two
// [Group]s; what Kubernetes has objects of its own for (pods, namespaces, nodes …) is a view of those.
package form

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/twillnet/twill/api"
)

// Group is the API group and version in which a cluster keeps Calico's resources.
type Group string

// The groups of custom resources.
const (
	V3 Group = "projectcalico.org/v3"     // resources as users write them
	V1 Group = "crd.projectcalico.org/v1" // of clusters that have Calico's own API server, or none, before them
	// Own is the group of what only Twill keeps.
	Own Group = "twill.net/v1"
)

// Entry is an object as a key and a value.
type Entry struct {
	Key     string // empty: the object has none, and never had
	Value   []byte // nil: what is under the key is gone, though the object is there
	Version string // the object's resourceVersion
}

// Page is a piece of a list.
type Page struct {
	Entries []Entry
	Version string // the list's resourceVersion
	Next    string // where the next piece begins; empty: this was the last
}

// Request is a change to be asked of the API server.
type Request struct {
	Method      string // POST, PUT, PATCH, DELETE
	Namespace   string
	Name        string
	Subresource string
	ContentType string
	Body        []byte
}

// Kind is one of the API server's resources: which keys it holds, and in which form.
type Kind struct {
	Path       string // of its group and version: /api/v1, /apis/projectcalico.org/v3
	Plural     string // networkpolicies
	Namespaced bool
	Optional   bool   // a cluster of an older version may lack it
	Prefix     string // of its keys; empty: all that no other kind holds
	As         string // tells kinds apart that are made of the same objects
	View       bool   // its objects are Kubernetes' own
	Whole      bool   // a value is all that an object has, so that one replaces another unseen
	Codec
}

// ID names a kind among all: networkpolicies.projectcalico.org.
func (k Kind) ID() string {
	group, _, ok := strings.Cut(strings.TrimPrefix(k.Path, "/apis/"), "/")
	if !ok || group == "" { // /api/v1
		return k.Plural + k.As
	}
	return k.Plural + "." + group + k.As
}

// Codec is how objects of one kind become entries, and back.
type Codec interface {
	// Accept is the media type in which it reads objects.
	Accept() string
	// Object reads one object.
	Object(raw []byte) (Entry, error)
	// List reads the answer to a list.
	List(body []byte) (Page, error)
	// Name is the object of a key; false if this kind does not hold it.
	Name(key string) (namespace, name string, ok bool)
	// Create is the request that stores a new value.
	Create(kv api.Update) (Request, error)
	// Replace is the request that stores a value in the place of an object, given as JSON. It has the revision of the update, or if
	// that has none, of the object.
	Replace(kv api.Update, was []byte) (Request, error)
	// Remove is the request that deletes a key's value: with its revision, if that is given.
	Remove(key string, revision api.Revision) (Request, error)
}

// ReadOnlyError is a write to a view.
type ReadOnlyError struct{ Key, Why string }

func (e *ReadOnlyError) Error() string { return e.Key + ": " + e.Why }

// object is the part of an object's JSON that matters here.
type object struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   api.ObjectMeta  `json:"metadata"`
	Spec       json.RawMessage `json:"spec,omitempty"`
	Status     json.RawMessage `json:"status,omitempty"`
}

// list is the JSON of a list; its items may lack apiVersion and kind.
type list struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// pageOf reads a list of JSON objects, each by one.
func pageOf(body []byte, one func([]byte) (Entry, error)) (Page, error) {
	var l list
	if err := json.Unmarshal(body, &l); err != nil {
		return Page{}, fmt.Errorf("the API server's list is not as expected: %w", err)
	}
	p := Page{Version: l.Metadata.ResourceVersion, Next: l.Metadata.Continue, Entries: make([]Entry, 0, len(l.Items))}
	for _, raw := range l.Items {
		e, err := one(raw)
		if err != nil {
			return Page{}, err
		}
		p.Entries = append(p.Entries, e)
	}
	return p, nil
}

// deletion is the request that deletes an object, if it has a version still.
func deletion(namespace, name string, revision api.Revision) Request {
	r := Request{Method: "DELETE", Namespace: namespace, Name: name, ContentType: mediaJSON}
	if !revision.IsZero() {
		r.Body, _ = json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]string{"resourceVersion": revision.String()},
		})
	}
	return r
}

const (
	mediaJSON     = "application/json"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
	mediaMerge    = "application/merge-patch+json"
)

// decodeObject reads an object's JSON; what is no object is an error.
func decodeObject(raw []byte) (object, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return o, fmt.Errorf("the API server's object is not as expected: %w", err)
	}
	if o.Metadata.Name == "" {
		return o, fmt.Errorf("the API server's object has no name")
	}
	return o, nil
}

// versionOf is the version that an object must have to be replaced: that of the update, or if it says none, of the object.
func versionOf(kv api.Update, was []byte) (string, error) {
	if !kv.Revision.IsZero() {
		return kv.Revision.String(), nil
	}
	o, err := decodeObject(was)
	return o.Metadata.ResourceVersion, err
}
