package resources

import (
	"context"
	"reflect"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// update writes a value over old, and says what became of it: a store may keep only a part of what is written, as Kubernetes' API server does of a
// pod's endpoint and of a node, and leaves what it has from elsewhere as it was.
func update(ctx context.Context, s datastore.Store, old api.Update, value []byte, what string) (Written, error) {
	now, err := s.Update(ctx, api.Update{Key: old.Key, Value: value, Revision: old.Revision})
	if err != nil {
		return Written{what, old, now, nil}, err
	}
	if sameJSON(now.Value, old.Value) {
		what = "unchanged"
	}
	return Written{what, old, now, left(old.Value, value, now.Value)}, nil
}

// left are labels, annotations and fields of the spec that a change says otherwise and that are as they were. What a change says nothing
// of any more does not count: the files of users do not have what others write.
func left(was, asked, now []byte) (out []Change) {
	var trees [3]any
	for i, text := range [][]byte{was, asked, now} {
		var err error
		if trees[i], err = Tree(text); err != nil {
			return nil
		}
	}
	still := map[string]any{}
	for _, c := range changes(trees[1], trees[2], "") {
		still[c.Path] = c.Now
	}
	for _, c := range changes(trees[0], trees[1], "") {
		is, differs := still[c.Path]
		ours := strings.HasPrefix(c.Path, "spec") || strings.HasPrefix(c.Path, "metadata.labels") || strings.HasPrefix(c.Path, "metadata.annotations")
		if ours && c.Now != nil && differs && reflect.DeepEqual(is, c.Was) {
			out = append(out, c)
		}
	}
	return out
}
