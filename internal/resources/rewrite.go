package resources

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

// Rewrite is one change to a stored document. patch, label and edit are such.
type Rewrite struct {
	Ref  api.Ref
	What string // what became of it: patched, labeled, edited
	// edit gets the document as users see it and may change it.
	Edit func(doc any) (any, error)
}

// Rewriting makes a change on the raw document, so that what another version
// wrote stays, and what was wrong before does not stand in the way. When
// another writer is first it starts anew, unless the change names the revision that it is for.
func Rewriting(ctx context.Context, s datastore.Store, r Rewrite) (Written, error) {
	return retry(func() (Written, error) { return r.once(ctx, s) })
}

func (r Rewrite) once(ctx context.Context, s datastore.Store) (Written, error) {
	u, err := FindStored(ctx, s, r.Ref)
	if errors.Is(err, datastore.ErrNotFound) {
		return Written{}, r.Missing()
	}
	if err != nil {
		return Written{}, err
	}
	was, err := UserDoc(u)
	if err != nil {
		return Written{}, fmt.Errorf("%w; delete it and create it again", err)
	}
	doc, err := Tree(was)
	if err != nil {
		return Written{}, err
	}
	if doc, err = r.Edit(doc); err != nil {
		return Written{}, fmt.Errorf("%s: %w", Short(r.Ref), err)
	}
	if err := r.checkIdentity(u, doc); err != nil {
		return Written{}, err
	}
	now, err := json.Marshal(doc)
	if err != nil {
		return Written{}, err
	}
	value, err := r.checked(ctx, s, u, was, now)
	if err != nil {
		return Written{}, err
	}
	if sameJSON(value, u.Value) {
		return Written{What: "unchanged", Was: u, Now: u}, nil
	}
	return update(ctx, s, u, value, r.What)
}

func (r Rewrite) Missing() error {
	for _, b := range Builtins(r.Ref.Kind) {
		if b.Meta().Name == r.Ref.Name {
			return fmt.Errorf("%s is built in, and nothing is stored that could be changed", Short(r.Ref))
		}
	}
	return &MissingError{r.Ref}
}

// checkIdentity refuses a change that makes another resource of this one, or that is for another revision.
func (r Rewrite) checkIdentity(u api.Update, doc any) error {
	top, ok := doc.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: the change leaves no object but %s", Short(r.Ref), Brief(doc))
	}
	meta, ok := top["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: the change leaves no metadata", Short(r.Ref))
	}
	want := map[string]string{"metadata.name": r.Ref.Name, "metadata.namespace": r.Ref.Namespace}
	for _, field := range slices.Sorted(maps.Keys(want)) {
		name := field[len("metadata."):]
		if got := Cell(meta[name]); got != want[field] && (got != "" || name == "name") {
			return fmt.Errorf("%s: %s cannot be changed to %q; create another resource and delete this one", Short(r.Ref), field, got)
		}
	}
	if got := Cell(top["kind"]); got != "" && got != r.Ref.Kind {
		return fmt.Errorf("%s: kind cannot be changed to %q", Short(r.Ref), got)
	}
	return CheckRevision(r.Ref, u, Cell(meta["resourceVersion"]))
}

// checked is the new stored value, unless the change brings in something wrong.
func (r Rewrite) checked(ctx context.Context, s datastore.Store, u api.Update, was, now []byte) ([]byte, error) {
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
	ms := []Manifest{{"the change", api.Document{Resource: st.Resource}}}
	if fresh != nil {
		ms[0].Resource = fresh
	}
	if err := errors.Join(CheckTiers(ctx, s, ms), CheckPools(ctx, s, ms)); err != nil {
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
	raw, err := WithMetadata(doc, func(meta map[string]json.RawMessage) {
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
	v, err := Tree(raw)
	if err != nil {
		return nil, err
	}
	return InOrderOf(u.Value, v), nil
}

// InOrderOf writes a value with the names of objects in the order in which
// another has them, so that what is stored changes no more than it must.
func InOrderOf(like []byte, v any) []byte {
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
				fmt.Fprintf(&b, "%s%s:%s", sep, name, InOrderOf(values[k], e))
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
			b.Write(InOrderOf(l, e))
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
	x, err1 := Tree(a)
	y, err2 := Tree(b)
	return err1 == nil && err2 == nil && reflect.DeepEqual(x, y)
}
