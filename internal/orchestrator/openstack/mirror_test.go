package openstack

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/mirror"
)

// TestAResyncSaysWhenTheDatastoreIsComplete: agents of whom it is a mirror go by that.
func TestAResyncSaysWhenTheDatastoreIsComplete(t *testing.T) {
	store := memstore.New()
	p := start(t, store)
	all := fmt.Sprintf(`{"security_groups": [%s], "subnets": [%s], "ports": [%s]}`, groupG, subnetS, portOf("a", "h1", 1))
	mark := func() mirror.Mark {
		marks, err := mirror.Marks(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		return marks["openstack"]
	}
	lose := func() { store.Rewind(memstore.New()) }

	p.ok("PUT", "/v1/ports/a", portOf("a", "h1", 1))
	if m := mark(); m.Generation != "" {
		t.Errorf("one port is written: it says %+v", m)
	}
	finish := p.begin()
	begun := mark()
	if begun.Complete || begun.Generation == "" {
		t.Errorf("Neutron's database is read: it says %+v", begun)
	}
	finish(all)
	if m := mark(); !m.Complete || m.Generation != begun.Generation {
		t.Errorf("all is written: it says %+v, it was %+v", m, begun)
	}
	if info, err := store.Get(t.Context(), api.KeyPrefix(api.KindClusterInformation, "")+"default"); err != nil || !strings.Contains(string(info.Value), `"datastoreReady":true`) {
		t.Errorf("all is written: the datastore says of itself %s, %v", info.Value, err)
	}
	p.begin()(all)
	if m := mark(); m.Generation != begun.Generation {
		t.Errorf("a resync of what is complete: it says %+v, it was %+v", m, begun)
	}

	var token string
	fmt.Sscanf(p.ok("POST", "/v1/resync", ""), `{"token":%q}`, &token)
	lose()
	if code, got := p.call("PUT", "/v1/resync/"+token, all); code != http.StatusServiceUnavailable || !strings.Contains(got, "emptied") {
		t.Errorf("it was lost in the middle, when it was complete: got %d %s", code, got)
	}
	if m := mark(); m.Complete {
		t.Errorf("it was lost in the middle: it says %+v", m)
	}
	finish = p.begin()
	second := start(t, store).begin() // another of Neutron's servers
	finish(all)
	second(all)
	if m := mark(); !m.Complete || m.Generation == begun.Generation {
		t.Errorf("it is rebuilt: it says %+v, of the one before: %+v", m, begun)
	}

	store.Fail(func(op memstore.Op) error {
		if strings.HasPrefix(op.Key, mirror.Prefix) {
			return datastore.ErrUnauthorized
		}
		return nil
	})
	if r := p.begin()(all); r.Ports != 1 {
		t.Errorf("the role of the guide of before: %+v", r)
	}
}

// TestNeutronsWritesGoOnInALockedDatastore, and leave the lock: agents do nothing with them until it is opened, and then find what Neutron has.
func TestNeutronsWritesGoOnInALockedDatastore(t *testing.T) {
	p := start(t, memstore.New())
	lock := api.Update{Key: api.KeyPrefix(api.KindClusterInformation, "") + "default", Value: []byte(`{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"datastoreReady":false}}`)}
	if _, err := p.store.Create(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	p.ok("PUT", "/v1/ports/a", portOf("a", "h1", 2))
	p.begin()(`{"ports": [` + portOf("a", "h2", 3) + `], "security_groups": [` + groupG + `], "subnets": [` + subnetS + `]}`)
	p.holds("while it is locked", "h2-openstack-vm-a", "ossg.default.g", "s")
	if u, err := p.store.Get(t.Context(), lock.Key); err != nil || string(u.Value) != string(lock.Value) {
		t.Errorf("the lock is %s, %v", u.Value, err)
	}
}
