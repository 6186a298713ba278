package migration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/resources"
)

// IsUpstream reports whether a file has parts as upstream's export has them.
func IsUpstream(data []byte) bool { return len(parts(data)) > 1 }

// parts are what stands between the separators.
func parts(data []byte) (out [][]byte) {
	from := 0
	for at := 0; at < len(data); {
		end := at + bytes.IndexByte(data[at:], '\n') + 1
		if end == at {
			end = len(data)
		}
		if strings.TrimRight(string(data[at:end]), "\r\n") == separator {
			out = append(out, data[from:at])
			from = end
		}
		at = end
	}
	return append(out, data[from:])
}

// FromUpstream reads an export in upstream's form, see [Upstream]. What is not in it is made: uids, times, and what a store notes on policies. What it does not understand is an error,
// with the name of what it is in.
func FromUpstream(data []byte) ([]Entry, error) {
	ps := parts(data)
	if len(ps) != 3 {
		return nil, fmt.Errorf("has %d parts, want three with lines of %s between them: resources, the ClusterInformation, and what address management holds", len(ps), separator)
	}
	f := fromUpstream{seen: map[string]bool{}, now: time.Now().UTC().Format(time.RFC3339)}
	for _, doc := range api.Documents(ps[0]) {
		if err := f.document(doc); err != nil {
			return nil, err
		}
	}
	var cluster map[string]any
	if err := json.Unmarshal(ps[1], &cluster); err != nil {
		return nil, fmt.Errorf("the second part, the ClusterInformation: %w", err)
	}
	if kind, ok := cluster["kind"].(string); ok && kind != api.KindClusterInformation {
		return nil, fmt.Errorf("the second part is a %s, want the ClusterInformation", kind)
	}
	if err := f.resource(cluster, api.KindClusterInformation); err != nil {
		return nil, err
	}
	return f.out, f.addresses(ps[2])
}

type fromUpstream struct {
	out  []Entry
	seen map[string]bool // by key
	now  string
}

// add takes an entry, once.
func (f *fromUpstream) add(e Entry) error {
	if f.seen[e.Key] {
		return fmt.Errorf("%s is there twice", nameOf(e.Key))
	}
	if len(e.Value) > api.MaxValue {
		return fmt.Errorf("%s is too large", nameOf(e.Key))
	}
	f.seen[e.Key] = true
	f.out = append(f.out, e)
	return nil
}

// document takes a document of the first part: a resource, a list of them, or a sequence of these.
func (f *fromUpstream) document(raw []byte) error {
	tree, err := resources.Tree(raw)
	if err != nil {
		return fmt.Errorf("a document that is no YAML: %w", err)
	}
	return f.item(tree, "")
}

// item takes one of these; kind is what a list says of its items, if they do not say it.
func (f *fromUpstream) item(tree any, kind string) error {
	switch v := tree.(type) {
	case nil:
		return nil
	case []any:
		for _, e := range v {
			if err := f.item(e, kind); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		own, _ := v["kind"].(string)
		if list, is := strings.CutSuffix(own, "List"); is {
			return f.item(v["items"], list)
		}
		return f.resource(v, kind)
	}
	return fmt.Errorf("%s is no resource", resources.Brief(tree))
}

// resource takes a resource as users see it, and makes of it what a store holds.
func (f *fromUpstream) resource(doc map[string]any, kind string) error {
	meta, _ := doc["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	if own, ok := doc["kind"].(string); ok {
		kind = own
	}
	ref := api.Ref{Kind: kind, Namespace: namespace, Name: name}
	r := api.New(kind)
	if r == nil {
		return fmt.Errorf("%s: this version knows no kind %q", ref, kind)
	}
	if version, ok := doc["apiVersion"].(string); ok && version != api.GroupVersion {
		return fmt.Errorf("%s: apiVersion is %s, want %s", ref, version, api.GroupVersion)
	}
	key, err := ref.Key()
	if err != nil {
		return err
	}
	for _, n := range made {
		delete(meta, n)
	}
	doc["apiVersion"], doc["kind"] = api.GroupVersion, kind
	raw, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	_ = json.Unmarshal(raw, r) // what does not fit its type is named when it is checked; here only metadata count
	r.Meta().Name = name
	api.Prepare(r, uuid.NewString(), f.now)
	meta["uid"], meta["creationTimestamp"] = r.Meta().UID, r.Meta().CreationTimestamp
	for field, have := range map[string]map[string]string{"annotations": r.Meta().Annotations, "labels": r.Meta().Labels} {
		if len(have) > 0 {
			meta[field] = have
		}
	}
	if raw, err = json.Marshal(doc); err != nil {
		return err
	}
	return f.add(Entry{Key: key, Value: raw})
}

// addresses takes the last part.
func (f *fromUpstream) addresses(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var own addresses
	if err := dec.Decode(&own); err != nil {
		return fmt.Errorf("the third part, what address management holds: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the third part, what address management holds: there is more behind it")
	}
	isAffinity := func(key string) bool { _, _, ok := api.ParseAffinityKey(key); return ok }
	isBlock := func(key string) bool { _, ok := api.ParseBlockKey(key); return ok }
	isHandle := func(key string) bool { _, ok := api.ParseHandleKey(key); return ok }
	for _, l := range []struct {
		what  string
		pairs []pair
		is    func(key string) bool
	}{{"block_affinities", own.Affinities, isAffinity}, {"blocks", own.Blocks, isBlock}, {"handles", own.Handles, isHandle}} {
		for _, p := range l.pairs {
			if !l.is(p.Key) {
				return fmt.Errorf("%s has the key %q, which is none of them", l.what, p.Key)
			}
			if err := f.address(p); err != nil {
				return err
			}
		}
	}
	if own.Config == nil {
		return nil
	}
	own.Config.Key = api.IPAMConfigKey // there is one; upstream does not read its key, either
	return f.address(*own.Config)
}

func (f *fromUpstream) address(p pair) error {
	var doc map[string]any
	if err := json.Unmarshal(p.Value, &doc); err != nil || doc == nil {
		return fmt.Errorf("%s: its value is no object", p.Key)
	}
	if p.TTL != 0 {
		return fmt.Errorf("%s: its TTL is %d: nothing of address management goes by itself", p.Key, p.TTL)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, p.Value); err != nil {
		return err
	}
	return f.add(Entry{Key: p.Key, Value: b.Bytes()})
}
