package openstack

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// TestAResyncIsAskedFor: the driver waits for that, and who asked hears what came of one that began later, and succeeded.
func TestAResyncIsAskedFor(t *testing.T) {
	store := memstore.New()
	p := start(t, store)
	all := fmt.Sprintf(`{"security_groups": [%s], "subnets": [%s], "ports": [%s]}`, groupG, subnetS, portOf("a", "h1", 1))
	type outcome struct {
		Report
		error
	}
	asked := make(chan outcome, 1)
	before := p.begin()
	go func() {
		r, err := Resync(t.Context(), p.socket)
		asked <- outcome{r, err}
	}()
	for got := ""; !strings.Contains(got, "true"); {
		got = p.ok("GET", "/v1/resync?within=30", "")
	}
	before(`{}`) // it was begun before
	select {
	case got := <-asked:
		t.Fatalf("a resync that was begun before: %+v", got)
	default:
	}

	// One that fails is none.
	var token string
	fmt.Sscanf(p.ok("POST", "/v1/resync", ""), `{"token":%q}`, &token)
	store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	p.call("PUT", "/v1/resync/"+token, all)
	store.Fail(nil)
	if got := p.ok("GET", "/v1/resync?within=1", ""); !strings.Contains(got, "true") {
		t.Errorf("one failed: the driver waits: %s", got)
	}
	p.begin()(all)
	if got := <-asked; got.error != nil || got.Ports != 1 || got.Subnets != 1 {
		t.Errorf("it answers %+v", got)
	}
	if got := p.ok("GET", "/v1/resync?within=1", ""); !strings.Contains(got, "false") {
		t.Errorf("nobody asks: the driver resyncs: %s", got)
	}
}

func TestNobodyResyncs(t *testing.T) {
	p := start(t, memstore.New())
	p.ok("GET", "/v1/resync?within=1", "") // it runs
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.DeadlineExceeded)
	if _, err := Resync(ctx, p.socket); err == nil {
		t.Error("no neutron-server is there, and it is done")
	}
	if _, err := Resync(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "openstack-plugin does not answer") {
		t.Errorf("no plugin is there: %v", err)
	}
}

// TestADriverDiesInAResync that was asked for: the next one, which began later, is an answer too.
func TestADriverDiesInAResync(t *testing.T) {
	p := start(t, memstore.New())
	asked := make(chan error, 1)
	go func() {
		_, err := Resync(t.Context(), p.socket)
		asked <- err
	}()
	for got := ""; !strings.Contains(got, "true"); {
		got = p.ok("GET", "/v1/resync?within=30", "")
	}
	p.begin() // and never ends
	p.begin()(`{}`)
	if err := <-asked; err != nil {
		t.Error(err)
	}
}
