package node_test

import (
	"errors"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/node"
	"github.com/twillnet/twill/internal/resources"
)

// TestANodeThatStartsMakesNothingInADatastoreThatIsLockedOrLost: its agent and its speaker go on with what is in the kernel and on disk, for as long as
// nothing but Nodes is there.
func TestANodeThatStartsMakesNothingInADatastoreThatIsLockedOrLost(t *testing.T) {
	pool := api.New(api.KindIPPool).(*api.IPPool)
	pool.Metadata.Name, pool.Spec.CIDR = "p", "10.65.0.0/24"
	host := api.New(api.KindNode).(*api.Node)
	host.Metadata.Name = "h1"
	locked, no := resources.NewCluster(), false
	locked.Spec.DatastoreReady = &no
	for _, tt := range []struct {
		name    string
		remains bool
		holds   []api.Resource
		fills   bool
	}{
		{"a new host of a new cluster", false, nil, true},
		{"a host whose datastore was lost", true, nil, false},
		{"and hosts have written their Nodes again", true, []api.Resource{host}, false},
		{"a cluster that never said whether it is ready", true, []api.Resource{host, pool}, true},
		{"one that says that it is not", false, []api.Resource{locked}, false},
		{"a new host of a cluster", false, []api.Resource{host, pool}, true},
	} {
		store := memstore.New()
		for _, r := range tt.holds {
			if _, err := resources.CreateMissing(t.Context(), store, r); err != nil {
				t.Fatal(err)
			}
		}
		before := keysIn(t, store)
		fill := node.UnlessFrozen(func() (bool, error) { return tt.remains, nil }, node.Fill(start(t).Log))
		if err := fill(t.Context(), store); (err == nil) != tt.fills || err != nil && !errors.Is(err, node.ErrFrozen) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if after := keysIn(t, store); (after > before) != tt.fills {
			t.Errorf("%s: %d keys before, %d after", tt.name, before, after)
		}
		if tt.fills {
			continue
		}
		if _, err := resources.Rewriting(t.Context(), store, unlocking); err != nil {
			if err = resources.EnsureReady(t.Context(), store); err != nil {
				t.Fatal(err)
			}
		}
		if err := fill(t.Context(), store); err != nil {
			t.Errorf("%s, and then it is ready: %v", tt.name, err)
		}
	}
}

// unlocking says that a datastore is ready which has a ClusterInformation.
var unlocking = resources.Rewrite{Ref: resources.ClusterInfo, Edit: func(doc any) (any, error) {
	return resources.MergePatch(doc, map[string]any{"spec": map[string]any{"datastoreReady": true}}), nil
}}

func keysIn(t *testing.T, s datastore.Store) int {
	t.Helper()
	snap, err := s.List(t.Context(), api.Root)
	if err != nil {
		t.Fatal(err)
	}
	return len(snap.Items)
}
