// Package conversion makes resources of version 3 of what is written for others: those of Calico's first API, apiVersion v1 as of
// calicoctl 1 and 2, and NetworkPolicies of Kubernetes.
//
// In: a file. Out: the resources of version 3 that say the same, not defaulted, and their document as calicoctl prints it. What the other
// form does not know is an error. Source: calicoctl's documentation of both versions, and the public table of names.
//
// Version 1 knew tags, which profiles gave and rules asked for; here they are labels without a value. Its names may have letters that
// version 3 does not allow: such a name is changed, and ends in a hash of what it was, so that two do not become one.
package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/calicoctl/wording"
	"github.com/twillnet/twill/internal/translate"
)

// File returns what the documents of a file mean, those in lists too, in their order.
func File(data []byte) (out []api.Resource, err error) {
	for _, doc := range elements(data) {
		r, err := one(doc)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func elements(data []byte) (out []json.RawMessage) {
	for _, doc := range api.Documents(data) {
		var list struct {
			Kind  string
			Items []json.RawMessage
		}
		var all []json.RawMessage
		switch {
		case json.Unmarshal(doc, &all) == nil:
		case json.Unmarshal(doc, &list) == nil && strings.HasSuffix(list.Kind, "List"):
			all = list.Items
		default:
			all = []json.RawMessage{doc}
		}
		out = append(out, all...)
	}
	return out
}

func one(doc []byte) (api.Resource, error) {
	var head struct{ APIVersion, Kind string }
	if err := json.Unmarshal(doc, &head); err != nil {
		return nil, err
	}
	if _, ok := forms[head.Kind]; ok && head.APIVersion == version1 {
		return ofVersion1(doc, head.Kind)
	}
	if head.APIVersion == "networking.k8s.io/v1" && head.Kind == "NetworkPolicy" {
		return ofKubernetes(doc)
	}
	return nil, fmt.Errorf("Unknown resource type (%s) and/or version (%s)", head.Kind, head.APIVersion)
}

// ofKubernetes is a policy of Kubernetes as one of the user's own. Its name is not what a datastore gives a translated one: nobody but
// Kubernetes may write that, and it would be there twice.
func ofKubernetes(doc []byte) (api.Resource, error) {
	o, err := translate.Decode(doc)
	if err != nil {
		return nil, err
	}
	rs, err := translate.Resources(o)
	if err != nil {
		return nil, err
	}
	var given struct {
		Metadata struct {
			Name, Namespace     string
			Labels, Annotations map[string]string
		}
	}
	if err := json.Unmarshal(doc, &given); err != nil {
		return nil, err
	}
	r, m := rs[0], given.Metadata // a policy is always one
	*r.Meta() = api.ObjectMeta{Name: m.Name, Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations}
	return r, nil
}

// Check says what is wrong in a resource, in calicoctl's words.
func Check(r api.Resource) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	docs, err := api.Decode(text)
	if err != nil {
		return err
	}
	full := docs[0].Resource // a copy: what is filled in is not printed
	if k, _ := api.LookupKind(full.Type().Kind); k.Namespaced && full.Meta().Namespace == "" {
		full.Meta().Namespace = "default"
	}
	api.Default(full)
	if wrong := api.Validate(full); len(wrong) > 0 {
		return wording.WrongFields(wrong, text)
	}
	return nil
}

// Document is a resource's as calicoctl prints it, or of several a list of Kubernetes' form.
func Document(rs []api.Resource) (json.RawMessage, error) {
	if len(rs) == 0 {
		return nil, errors.New("no resources in the file")
	}
	var docs []json.RawMessage
	for _, r := range rs {
		text, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		doc, err := wording.Document(text, false)
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	if len(docs) == 1 {
		return docs[0], nil
	}
	items, err := json.Marshal(docs)
	return wording.Object(map[string]json.RawMessage{
		"kind": json.RawMessage(`"List"`), "apiVersion": json.RawMessage(`"v1"`), "metadata": json.RawMessage("{}"), "items": items,
	}, []string{"kind", "apiVersion", "metadata", "items"}), err
}
