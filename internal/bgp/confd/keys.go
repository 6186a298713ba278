package confd

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Value is what a key has.
type Value struct {
	Text   string
	Secret bool // a password is in it
}

// Keys are what templates may read.
type Keys map[string]Value

// of are the keys that a resource may read, under the names that its template has for them: without the prefix.
func (k Keys) of(r *Resource) Keys {
	out := Keys{}
	for key, v := range k {
		if slices.ContainsFunc(r.Keys, func(begin string) bool { return strings.HasPrefix(key, begin) }) {
			out[path.Join("/", strings.TrimPrefix(key, r.Prefix))] = v
		}
	}
	return out
}

// secret reports whether a password is among the values.
func (k Keys) secret() bool {
	for _, v := range k {
		if v.Secret {
			return true
		}
	}
	return false
}

// KVPair is a key with its value, as templates see it.
type KVPair struct{ Key, Value string }

func (k Keys) exists(key string) bool {
	_, ok := k[path.Clean(key)]
	return ok
}

func (k Keys) get(key string) (KVPair, error) {
	key = path.Clean(key)
	v, ok := k[key]
	if !ok {
		return KVPair{}, fmt.Errorf("key %s does not exist, or is not among keys of the template resource", key)
	}
	return KVPair{key, v.Text}, nil
}

func (k Keys) gets(pattern string) ([]KVPair, error) {
	out := []KVPair{}
	for _, key := range slices.Sorted(maps.Keys(k)) {
		ok, err := path.Match(pattern, key)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		if ok {
			out = append(out, KVPair{key, k[key].Text})
		}
	}
	return out, nil
}

func (k Keys) getv(key string, otherwise ...string) (string, error) {
	kv, err := k.get(key)
	if err != nil && len(otherwise) > 0 {
		return otherwise[0], nil
	}
	return kv.Value, err
}

// getvs are the values, sorted.
func (k Keys) getvs(pattern string) ([]string, error) {
	pairs, err := k.gets(pattern)
	out := []string{}
	for _, kv := range pairs {
		out = append(out, kv.Value)
	}
	slices.Sort(out)
	return out, err
}

// ls are the names right below a key; of a key with a value, its own name, too, as of a file.
func (k Keys) ls(dir string) []string { return k.below(dir, false) }

// lsdir are the names right below a key that have others below them.
func (k Keys) lsdir(dir string) []string { return k.below(dir, true) }

func (k Keys) below(dir string, dirs bool) []string {
	dir = path.Clean("/" + dir)
	names := map[string]bool{}
	for key := range k {
		if key == dir && !dirs {
			names[path.Base(key)] = true
		}
		rest, ok := strings.CutPrefix(key, strings.TrimSuffix(dir, "/")+"/")
		name, _, deeper := strings.Cut(rest, "/")
		if ok && (deeper || !dirs) {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
