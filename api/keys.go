package api

import (
	"fmt"
	"strings"
)

// Prefixes of the datastore's keys.
const (
	Root            = "/calico/"
	ResourcesPrefix = Root + "resources/v3/projectcalico.org/"
)

// Key returns the datastore key of a resource.
func Key(r Resource) (string, error) { return RefOf(r).Key() }

// RefOf names a resource by its own kind and metadata.
func RefOf(r Resource) Ref {
	m := r.Meta()
	return Ref{Kind: r.Type().Kind, Namespace: m.Namespace, Name: m.Name}
}

// Key returns the datastore key of what is named.
func (r Ref) Key() (string, error) {
	k, ok := kindOf(r.Kind)
	if !ok {
		return "", fmt.Errorf("kind %q: unknown", r.Kind)
	}
	if err := keyPart("name", r.Name); err != nil {
		return "", fmt.Errorf("%s: %w", r.Kind, err)
	}
	if !k.Namespaced {
		if r.Namespace != "" {
			return "", fmt.Errorf("%s %s: namespace %q: this kind has no namespace", r.Kind, r.Name, r.Namespace)
		}
		return ResourcesPrefix + k.Plural + "/" + r.Name, nil
	}
	if err := keyPart("namespace", r.Namespace); err != nil {
		return "", fmt.Errorf("%s %s: %w", r.Kind, r.Name, err)
	}
	return ResourcesPrefix + k.Plural + "/" + r.Namespace + "/" + r.Name, nil
}

// String is namespace/name or name, as people write it.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

func keyPart(what, s string) error {
	if s == "" {
		return fmt.Errorf("%s is empty", what)
	}
	if strings.Contains(s, "/") {
		return fmt.Errorf("%s %q: must not contain /", what, s)
	}
	return nil
}

// ParseKey reads the key of a resource of one of the kinds of this package. The
// name is that of the key; see Stored.Ref for the name that a user gave.
func ParseKey(key string) (Ref, bool) {
	rest, ok := strings.CutPrefix(key, ResourcesPrefix)
	if !ok {
		return Ref{}, false
	}
	plural, rest, ok := strings.Cut(rest, "/")
	if !ok {
		return Ref{}, false
	}
	for _, k := range kinds {
		if k.Plural != plural {
			continue
		}
		r := Ref{Kind: k.Kind, Name: rest}
		if k.Namespaced {
			if r.Namespace, r.Name, ok = strings.Cut(rest, "/"); !ok || r.Namespace == "" {
				return Ref{}, false
			}
		}
		if r.Name == "" || strings.Contains(r.Name, "/") {
			return Ref{}, false
		}
		return r, true
	}
	return Ref{}, false
}

// KeyPrefix returns the prefix of the keys of all resources of a kind, of one
// namespace if that is given and the kind has namespaces. It is empty if there
// is no such kind: never list with it then.
func KeyPrefix(kind, namespace string) string {
	k, ok := kindOf(kind)
	if !ok {
		return ""
	}
	if k.Namespaced && namespace != "" {
		return ResourcesPrefix + k.Plural + "/" + namespace + "/"
	}
	return ResourcesPrefix + k.Plural + "/"
}
