package resources_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/resources"
)

// named is a resource of a kind with a name, and a namespace where there are such.
func named(kind, name string) api.Resource {
	r := api.New(kind)
	r.Meta().Name = name
	if k, _ := api.LookupKind(kind); k.Namespaced {
		r.Meta().Namespace = "prod"
	}
	return r
}

// with puts resources into an empty store.
func with(t *testing.T, rs ...api.Resource) storetest.InMemory {
	t.Helper()
	s := storetest.New(t)
	for _, r := range rs {
		if _, err := resources.Create(t.Context(), s, r); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestDeleteTakesWithItWhatHangsOnIt(t *testing.T) {
	tier, policy := named(api.KindTier, "t").(*api.Tier), named(api.KindNetworkPolicy, "p").(*api.NetworkPolicy)
	policy.Spec.Tier = "t"
	endpoint := named(api.KindWorkloadEndpoint, "h1-k8s-a-eth0").(*api.WorkloadEndpoint)
	endpoint.Spec = api.WorkloadEndpointSpec{Node: "h1", Orchestrator: "k8s", Pod: "a", Endpoint: "eth0", InterfaceName: "cali1", IPNetworks: []string{"10.0.0.1/32"}}
	node := named(api.KindNode, "h1")
	agreed := func(yes bool) func(api.Ref, []string) bool { return func(api.Ref, []string) bool { return yes } }
	for _, tt := range []struct {
		name  string
		have  []api.Resource
		ref   api.Ref
		d     resources.Deletion
		wrong string // what the error says; empty: it went
		went  string
	}{
		{"one thing", []api.Resource{tier}, api.RefOf(tier), resources.Deletion{}, "", "tier/t"},
		{"nothing", nil, api.RefOf(tier), resources.Deletion{}, "not found", ""},
		{"a tier that holds a policy", []api.Resource{tier, policy}, api.RefOf(tier), resources.Deletion{}, "tier/t holds 1 policy; delete first: networkpolicy/prod/p", ""},
		{"what is built in", nil, api.Ref{Kind: api.KindTier, Name: api.TierDefault}, resources.Deletion{}, "built in", ""},
		{"what was changed since", []api.Resource{tier}, api.RefOf(tier), resources.Deletion{Revision: "77"}, "was changed by another writer", ""},
		{"a node with an endpoint, and nobody to ask", []api.Resource{node, endpoint}, api.RefOf(node), resources.Deletion{}, "this hangs on it: workloadendpoint/prod/h1-k8s-a-eth0", ""},
		{"somebody who says no", []api.Resource{node, endpoint}, api.RefOf(node), resources.Deletion{Agree: agreed(false)}, "this hangs on it", ""},
		{"somebody who says yes", []api.Resource{node, endpoint}, api.RefOf(node), resources.Deletion{Agree: agreed(true)}, "", "workloadendpoint/prod/h1-k8s-a-eth0 node/h1"},
		{"all of it", []api.Resource{node, endpoint}, api.RefOf(node), resources.Deletion{Cascade: true}, "", "workloadendpoint/prod/h1-k8s-a-eth0 node/h1"},
		{"what a node left that is gone", []api.Resource{endpoint}, api.RefOf(node), resources.Deletion{}, "does not exist, and something is left of it", ""},
		{"and that goes, too", []api.Resource{endpoint}, api.RefOf(node), resources.Deletion{Cascade: true}, "", "workloadendpoint/prod/h1-k8s-a-eth0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := with(t, tt.have...)
			var went []string
			tt.d.Done = func(ref api.Ref, words string) {
				went = append(went, strings.TrimSpace(resources.Short(ref)+" "+words))
			}
			err := resources.Delete(t.Context(), s, tt.ref, tt.d)
			if got := strings.Join(went, " "); got != tt.went || (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%v, and %q went; want %q, and %q", err, got, tt.wrong, tt.went)
			}
			if left, err := s.List(t.Context(), api.Root); err != nil || len(left.Items) != len(tt.have)-len(went) {
				t.Errorf("%d of %d are left (%v)", len(left.Items), len(tt.have), err)
			}
		})
	}
}

// overtaken is a store in which somebody changes something just before the first write.
type overtaken struct {
	storetest.InMemory
	by *func()
}

func (o overtaken) first() {
	if do := *o.by; do != nil {
		*o.by = nil
		do()
	}
}

func (o overtaken) Update(ctx context.Context, u api.Update) (api.Update, error) {
	o.first()
	return o.InMemory.Update(ctx, u)
}

func (o overtaken) Delete(ctx context.Context, key string, revision api.Revision) error {
	o.first()
	return o.InMemory.Delete(ctx, key, revision)
}

// TestWhatHasChangedSinceKeepsWhatHangsOnIt: that it is deleted is decided by one write, on the revision that was seen; what hangs on it goes after that.
func TestWhatHasChangedSinceKeepsWhatHangsOnIt(t *testing.T) {
	node, endpoint, pool := named(api.KindNode, "h1"), named(api.KindWorkloadEndpoint, "h1-k8s-a-eth0").(*api.WorkloadEndpoint), named(api.KindIPPool, "p").(*api.IPPool)
	endpoint.Spec = api.WorkloadEndpointSpec{Node: "h1", Orchestrator: "k8s", Pod: "a", Endpoint: "eth0", InterfaceName: "cali1", IPNetworks: []string{"10.0.0.1/32"}}
	pool.Spec.CIDR = "10.0.0.0/24"
	for _, tt := range []struct {
		name   string
		ref    api.Ref
		before bool // the change is there before the deletion begins
		none   bool // there is no change
	}{
		{"a node", api.RefOf(node), false, false},
		{"a node that has changed already", api.RefOf(node), true, false},
		{"a node that has not", api.RefOf(node), false, true},
		{"a pool", api.RefOf(pool), false, false},
		{"a pool that has changed already", api.RefOf(pool), true, false},
		{"a pool that has not", api.RefOf(pool), false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var change func()
			s := overtaken{with(t, node, endpoint, pool), &change}
			a := ipam.New(s.InMemory, ipam.Config{})
			if _, err := a.Assign(t.Context(), ipam.AutoArgs{Node: "h1", Handle: "x", Num4: 1, Attributes: map[string]string{api.AttributeNode: "h1"}}); err != nil {
				t.Fatal(err)
			}
			seen, err := resources.FindStored(t.Context(), s, tt.ref)
			if err != nil {
				t.Fatal(err)
			}
			change = func() {
				u := seen
				u.Value = []byte(strings.Replace(string(u.Value), `"metadata":{`, `"metadata":{"labels":{"a":"b"},`, 1))
				if err := datastore.Put(t.Context(), s.InMemory, u); err != nil {
					t.Error(err)
				}
			}
			switch {
			case tt.before:
				s.first()
			case tt.none:
				change = nil
			}
			want := content(t, s)
			if !tt.before && !tt.none {
				want = "" // of after the change
				then := change
				change = func() { then(); want = content(t, s) }
			}
			var stale *resources.StaleError
			err = resources.Delete(t.Context(), s, tt.ref, resources.Deletion{Revision: seen.Revision.String(), Cascade: true})
			if tt.none {
				if _, left := resources.FindStored(t.Context(), s, tt.ref); err != nil || !errors.Is(left, datastore.ErrNotFound) {
					t.Errorf("%v, and then %v", err, left)
				}
				return
			}
			if got := content(t, s); !errors.As(err, &stale) || got != want {
				t.Errorf("%v; left is\n%s\nwant\n%s", err, got, want)
			}
		})
	}
}

// others is a store in which Nodes are a part of objects that others delete, as with Kubernetes.
type others struct{ storetest.InMemory }

var errOthers = errors.New("is a node of Kubernetes")

func (o others) PlaceOf(_ context.Context, key string) (datastore.Place, error) {
	if ref, _ := api.ParseKey(key); ref.Kind == api.KindNode {
		return datastore.PlacePart, nil
	}
	return datastore.PlaceOwn, nil
}

func (o others) Try(_ context.Context, kv api.Update) (api.Update, error) { return kv, nil }

func (o others) Delete(ctx context.Context, key string, revision api.Revision) error {
	if place, _ := o.PlaceOf(ctx, key); place == datastore.PlacePart {
		return errOthers
	}
	return o.InMemory.Delete(ctx, key, revision)
}

// TestANodeThatOthersDeleteKeepsWhatHangsOnIt, since it stays. What is left of one that they have deleted goes.
func TestANodeThatOthersDeleteKeepsWhatHangsOnIt(t *testing.T) {
	node, hep := named(api.KindNode, "h1"), named(api.KindHostEndpoint, "h1-eth0").(*api.HostEndpoint)
	hep.Spec = api.HostEndpointSpec{Node: "h1", InterfaceName: "eth0"}
	s := others{with(t, node, hep)}
	want, all := content(t, s), resources.Deletion{Cascade: true, Force: true}
	if err := resources.Delete(t.Context(), s, api.RefOf(node), all); !errors.Is(err, errOthers) || content(t, s) != want {
		t.Errorf("%v; left is\n%s\nwant\n%s", err, content(t, s), want)
	}
	key, _ := api.Key(node)
	if err := s.InMemory.Delete(t.Context(), key, api.Revision{}); err != nil {
		t.Fatal(err)
	}
	if err := resources.Delete(t.Context(), s, api.RefOf(node), all); err != nil || content(t, s) != "" {
		t.Errorf("%v; left is\n%s", err, content(t, s))
	}
}

// content is all that a store has.
func content(t *testing.T, s datastore.Store) string {
	t.Helper()
	all, err := s.List(t.Context(), api.Root)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, u := range all.Sorted() {
		b.WriteString(u.Key + " " + string(u.Value) + "\n")
	}
	return b.String()
}

// TestADryStoreKeepsWhatIsWritten: what is made of a dry store is what would be made of the store, which stays.
func TestADryStoreKeepsWhatIsWritten(t *testing.T) {
	tier := named(api.KindTier, "t")
	s := with(t, tier)
	before := s.Revision()
	dry := resources.Dry(s)
	if err := resources.Delete(t.Context(), dry, api.RefOf(tier), resources.Deletion{}); err != nil {
		t.Fatal(err)
	}
	if _, err := resources.FindStored(t.Context(), dry, api.RefOf(tier)); !errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("it is there: %v", err)
	}
	if _, err := resources.FindStored(t.Context(), s, api.RefOf(tier)); err != nil || s.Revision() != before {
		t.Errorf("something was written: %v", err)
	}
}

// holding is a store that keeps what has finalizers when it is deleted, as Kubernetes does.
type holding struct{ storetest.InMemory }

func (h holding) Delete(ctx context.Context, key string, revision api.Revision) error {
	u, err := h.Get(ctx, key)
	if err != nil || !strings.Contains(string(u.Value), `"finalizers"`) {
		return errors.Join(err, h.InMemory.Delete(ctx, key, revision))
	}
	u.Value = []byte(strings.Replace(string(u.Value), `"finalizers"`, `"deletionTimestamp":"2026-01-02T03:04:05Z","finalizers"`, 1))
	_, err = h.Update(ctx, u)
	return err
}

// TestWhatHasFinalizersIsTerminating: it is not called deleted while it is there.
func TestWhatHasFinalizersIsTerminating(t *testing.T) {
	for _, kind := range []string{api.KindTier, api.KindIPPool} {
		r := named(kind, "held")
		if p, ok := r.(*api.IPPool); ok {
			p.Spec.CIDR = "10.0.0.0/24"
		}
		r.Meta().Finalizers = []string{"example.com/f"}
		s := holding{with(t, r)}
		var deleted, terminating []string
		d := resources.Deletion{
			Done:        func(ref api.Ref, _ string) { deleted = append(deleted, resources.Short(ref)) },
			Terminating: func(ref api.Ref, finalizers []string) { terminating = append(terminating, finalizers...) },
		}
		if err := resources.Delete(t.Context(), s, api.RefOf(r), d); err != nil || len(deleted) != 0 || strings.Join(terminating, " ") != "example.com/f" {
			t.Errorf("%s: deleted %v, terminating for %v: %v", kind, deleted, terminating, err)
		}
	}
}
