package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// rewrite is one change to a stored document. patch, label and edit are such.
type rewrite struct {
	ref  api.Ref
	what string // what became of it: patched, labeled, edited
	// edit gets the document as users see it and may change it.
	edit func(doc any) (any, error)
}

// rewriting makes a change on the raw document, so that what another version
// wrote stays, and what was wrong before does not stand in the way. When
// another writer is first it starts anew, unless the change names the revision that it is for.
func rewriting(ctx context.Context, s datastore.Store, r rewrite) (written, error) {
	return retry(func() (written, error) { return r.once(ctx, s) })
}

func (r rewrite) once(ctx context.Context, s datastore.Store) (written, error) {
	u, err := findStored(ctx, s, r.ref)
	if errors.Is(err, datastore.ErrNotFound) {
		return written{}, r.missing()
	}
	if err != nil {
		return written{}, err
	}
	was, err := userDoc(u)
	if err != nil {
		return written{}, fmt.Errorf("%w; delete it and create it anew", err)
	}
	doc, err := tree(was)
	if err != nil {
		return written{}, err
	}
	if doc, err = r.edit(doc); err != nil {
		return written{}, fmt.Errorf("%s: %w", short(r.ref), err)
	}
	if err := r.checkIdentity(u, doc); err != nil {
		return written{}, err
	}
	now, err := json.Marshal(doc)
	if err != nil {
		return written{}, err
	}
	value, err := r.checked(ctx, s, u, was, now)
	if err != nil {
		return written{}, err
	}
	if sameJSON(value, u.Value) {
		return written{"unchanged", u, u}, nil
	}
	stored, err := s.Update(ctx, api.Update{Key: u.Key, Value: value, Revision: u.Revision})
	return written{r.what, u, stored}, err
}

func (r rewrite) missing() error {
	for _, b := range builtins(r.ref.Kind) {
		if b.Meta().Name == r.ref.Name {
			return fmt.Errorf("%s is built in, and nothing is stored that could be changed", short(r.ref))
		}
	}
	return &missingError{r.ref}
}

// checkIdentity refuses a change that makes another resource of this one, or that is for another revision.
func (r rewrite) checkIdentity(u api.Update, doc any) error {
	top, ok := doc.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: the change leaves no object but %s", short(r.ref), brief(doc))
	}
	meta, ok := top["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: the change leaves no metadata", short(r.ref))
	}
	want := map[string]string{"metadata.name": r.ref.Name, "metadata.namespace": r.ref.Namespace}
	for _, field := range slices.Sorted(maps.Keys(want)) {
		name := field[len("metadata."):]
		if got := cell(meta[name]); got != want[field] && (got != "" || name == "name") {
			return fmt.Errorf("%s: %s cannot be changed to %q; create another resource and delete this one", short(r.ref), field, got)
		}
	}
	if got := cell(top["kind"]); got != "" && got != r.ref.Kind {
		return fmt.Errorf("%s: kind cannot be changed to %q", short(r.ref), got)
	}
	return checkRevision(r.ref, u, cell(meta["resourceVersion"]))
}

// checked is the new stored value, unless the change brings in something wrong.
func (r rewrite) checked(ctx context.Context, s datastore.Store, u api.Update, was, now []byte) ([]byte, error) {
	base, err := restore(u, now)
	if err != nil {
		return nil, err
	}
	fresh, errs := faults(u.Key, now, base)
	_, had := faults(u.Key, was, u.Value)
	if errs = added(had, errs); len(errs) > 0 {
		return nil, errs.Err()
	}
	st, err := api.DecodeStored(api.Update{Key: u.Key, Value: base})
	if err != nil {
		return nil, err
	}
	ms := []manifest{{"the change", api.Document{Resource: st.Resource}}}
	if fresh != nil {
		ms[0].Resource = fresh
	}
	if err := errors.Join(checkTiers(ctx, s, ms), checkPools(ctx, s, ms)); err != nil {
		return nil, err
	}
	if fresh == nil {
		// Something in it is not ours to understand, and was there before: the
		// document goes back as it is.
		return base, nil
	}
	return api.MergeRaw(base, fresh) // defaults and form as apply writes them
}

// faults is all that is wrong in a document, and the resource if it is
// understood as a whole. Where it is not, what its readers would find counts too.
func faults(key string, doc, stored []byte) (api.Resource, api.FieldErrors) {
	docs, err := api.Decode(doc)
	if len(docs) == 1 && err == nil {
		api.Default(docs[0].Resource)
		return docs[0].Resource, api.Validate(docs[0].Resource)
	}
	var errs api.FieldErrors
	errors.As(err, &errs)
	if st, err := api.DecodeStored(api.Update{Key: key, Value: stored}); err == nil {
		for _, p := range st.Problems {
			if slices.ContainsFunc(errs, func(e *api.FieldError) bool { return e.Path == p.Field }) {
				continue // users need not hear it twice
			}
			errs = append(errs, &api.FieldError{Kind: st.Ref.Kind, Name: strings.TrimPrefix(st.Ref.String(), st.Ref.Kind+" "), Path: p.Field, Reason: p.Reason})
		}
	}
	return nil, errs
}

var elementOf = regexp.MustCompile(`\[\d+\]`)

// added are the faults that were not there before. Elements of lists may have moved.
func added(had, have api.FieldErrors) api.FieldErrors {
	id := func(e *api.FieldError) string { return elementOf.ReplaceAllString(e.Path, "[]") + " " + e.Reason }
	left := map[string]int{}
	for _, e := range had {
		left[id(e)]++
	}
	var out api.FieldErrors
	for _, e := range have {
		if left[id(e)]--; left[id(e)] < 0 {
			e.Line = 0 // of a document that nobody wrote
			out = append(out, e)
		}
	}
	return out
}

// restored are the fields of metadata that the datastore's document keeps, whatever users make of theirs.
var restored = []string{"name", "namespace", "uid", "creationTimestamp", "generation", "deletionTimestamp"}

// restore makes the stored form of a document that users see.
func restore(u api.Update, doc []byte) ([]byte, error) {
	var was struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	_ = json.Unmarshal(u.Value, &was) // metadata that is no object holds nothing to restore
	var notes map[string]json.RawMessage
	_ = json.Unmarshal(was.Metadata["annotations"], &notes) // likewise
	raw, err := withMetadata(doc, func(meta map[string]json.RawMessage) {
		delete(meta, "resourceVersion")
		for _, name := range restored {
			delete(meta, name)
			if v, ok := was.Metadata[name]; ok {
				meta[name] = v
			}
		}
		if name, ok := notes[api.AnnotationMetadata]; ok {
			var now map[string]json.RawMessage
			if json.Unmarshal(meta["annotations"], &now) != nil || now == nil {
				now = map[string]json.RawMessage{}
			}
			now[api.AnnotationMetadata] = name
			meta["annotations"], _ = json.Marshal(now) // what was read can be written
		}
	})
	if err != nil {
		return nil, err
	}
	v, err := tree(raw)
	if err != nil {
		return nil, err
	}
	return inOrderOf(u.Value, v), nil
}

// inOrderOf writes a value with the names of objects in the order in which
// another has them, so that what is stored changes no more than it must.
func inOrderOf(like []byte, v any) []byte {
	var b bytes.Buffer
	switch v := v.(type) {
	case map[string]any:
		names, values := orderedNames(like)
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if _, had := values[k]; !had {
				names = append(names, k)
			}
		}
		sep := "{"
		for _, k := range names {
			if e, ok := v[k]; ok {
				name, _ := json.Marshal(k) // text always encodes
				fmt.Fprintf(&b, "%s%s:%s", sep, name, inOrderOf(values[k], e))
				sep = ","
			}
		}
		if sep == "{" {
			b.WriteString(sep)
		}
		b.WriteByte('}')
	case []any:
		var likes []json.RawMessage
		_ = json.Unmarshal(like, &likes) // no list: no order to keep
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			var l []byte
			if i < len(likes) {
				l = likes[i]
			}
			b.Write(inOrderOf(l, e))
		}
		b.WriteByte(']')
	default:
		text, _ := json.Marshal(v) // it came from JSON
		b.Write(text)
	}
	return b.Bytes()
}

// orderedNames are the names of an object in their order, and its values.
func orderedNames(raw []byte) (names []string, values map[string]json.RawMessage) {
	if json.Unmarshal(raw, &values) != nil {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token() // {
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		var v json.RawMessage
		if err != nil || !ok || dec.Decode(&v) != nil {
			return names, values
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, values
}

// sameJSON reports whether two documents say the same.
func sameJSON(a, b []byte) bool {
	x, err1 := tree(a)
	y, err2 := tree(b)
	return err1 == nil && err2 == nil && reflect.DeepEqual(x, y)
}
