package openstack

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// failing is a datastore that answers with an error, if there is one.
type failing struct {
	datastore.Store
	with atomic.Pointer[error]
}

func (f *failing) err() error {
	if err := f.with.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *failing) Get(ctx context.Context, key string) (api.Update, error) {
	if err := f.err(); err != nil {
		return api.Update{}, err
	}
	return f.Store.Get(ctx, key)
}

func (f *failing) Create(ctx context.Context, u api.Update) (api.Update, error) {
	if err := f.err(); err != nil {
		return api.Update{}, err
	}
	return f.Store.Create(ctx, u)
}

func (f *failing) Update(ctx context.Context, u api.Update) (api.Update, error) {
	if err := f.err(); err != nil {
		return api.Update{}, err
	}
	return f.Store.Update(ctx, u)
}

// candidates are two servers' elections on one datastore, each with a way to it that can fail.
func candidates(t *testing.T) (es [2]*election, ways [2]*failing) {
	t.Helper()
	store := memstore.New()
	for i := range es {
		ways[i] = &failing{Store: store}
		es[i] = newElection(ways[i], "", slog.New(slog.DiscardHandler))
		go es[i].run(t.Context())
	}
	return es, ways
}

// terms are those of both, once nothing happens any more before some time has passed.
func terms(es [2]*election, after time.Duration) (out [2]uint64) {
	<-time.After(after) // of the bubble
	synctest.Wait()
	for i, e := range es {
		out[i] = e.wait(context.Background(), func() bool { return true })
	}
	return out
}

// TestOneOfNeutronsServersLeads: while its driver is there, and no other does.
func TestOneOfNeutronsServersLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		es, ways := candidates(t)
		is := func(when string, after time.Duration, want [2]uint64) {
			t.Helper()
			if got := terms(es, after); got != want {
				t.Errorf("%s the terms are %v, want %v", when, got, want)
			}
		}
		is("without drivers", time.Minute, [2]uint64{})
		es[0].come()
		is("with one", time.Second, [2]uint64{1, 0})
		es[1].come()
		is("with both", time.Hour, [2]uint64{1, 0})
		es[0].leave()
		es[0].come()
		is("when the leader asks again", time.Hour, [2]uint64{1, 0})
		es[0].leave()
		is("when its neutron-server is killed", absence+5*time.Second, [2]uint64{0, 1})
		es[0].come()
		is("when it is back", time.Hour, [2]uint64{0, 1})

		away := datastore.ErrUnavailable
		ways[1].with.Store(&away)
		is("when the leader cannot renew its lease", time.Minute, [2]uint64{2, 0})
		ways[1].with.Store(nil)
		is("when it can again", time.Hour, [2]uint64{2, 0})
		if err := es[0].lock.(*lease).store.Delete(t.Context(), region("").election(), api.Revision{}); err != nil {
			t.Fatal(err)
		}
		if got := terms(es, time.Minute); (got[0] == 0) == (got[1] == 0) {
			t.Errorf("after the datastore was lost the terms are %v, want one leader", got)
		}
	})
}

// TestWithoutARightToTheLeaseAllLead: as with roles of before; what one does for all does no harm if several do it.
func TestWithoutARightToTheLeaseAllLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		es, ways := candidates(t)
		refused := datastore.ErrUnauthorized
		for i := range es {
			ways[i].with.Store(&refused)
			es[i].come()
		}
		if got := terms(es, time.Minute); got != [2]uint64{1, 1} {
			t.Errorf("the terms are %v, want both to lead, without a change", got)
		}
	})
}

// TestALeaseOfAnotherProgramEnds: whatever it says.
func TestALeaseOfAnotherProgramEnds(t *testing.T) {
	for _, value := range []string{"controller-1:4711", `{"holder": "x", "leaseDurationSeconds": 1e300}`, `{"leaseDurationSeconds": -5}`, `[]`} {
		synctest.Test(t, func(t *testing.T) {
			es, ways := candidates(t)
			if _, err := ways[0].Store.Create(t.Context(), api.Update{Key: region("").election(), Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
			es[0].come()
			if got := terms(es, 2*time.Hour); got != [2]uint64{1, 0} {
				t.Errorf("over %s the terms are %v", value, got)
			}
		})
	}
}

// TestWhatOneServerDoesForAll: of two plugins, each with a driver, the one that leads has it resync at once, and is told all that agents report; the other is told
// of the ports that it has handed over. A driver of before, which knows no terms, is told all.
func TestWhatOneServerDoesForAll(t *testing.T) {
	store := memstore.New()
	leads, other := start(t, store), start(t, store)
	if got := leads.ok("GET", "/v1/lead?term=0", ""); got != "{\"term\":1}\n" {
		t.Fatalf("the only one hears %s", got)
	}
	// The plugin of one goes on asking, since it is what a driver does: within the five seconds that the first call has bought, this test is over or
	// the lease is given up, which changes the term.
	asking, end := context.WithCancel(t.Context())
	defer end()
	for _, p := range []*plugin{leads, other} {
		term := map[*plugin]int{leads: 1, other: 0}[p]
		r, err := http.NewRequestWithContext(asking, http.MethodGet, fmt.Sprintf("http://plugin/v1/lead?term=%d", term), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if answer, err := p.http.Do(r); err == nil {
				answer.Body.Close()
			}
		}()
	}
	if got := leads.ok("GET", "/v1/resync?within=30&term=0", ""); !strings.Contains(got, "false") {
		t.Errorf("its driver, which did not know, hears %s", got)
	}
	for _, port := range []string{"a", "b"} {
		key := "/calico/felix/v2/no-region/host/h1/workload/openstack/openstack%2fvm/endpoint/" + port
		if _, err := store.Create(t.Context(), api.Update{Key: key, Value: []byte(`{"status": "up"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	all := func(p *plugin, query string, want int) (epoch string, at uint64) {
		t.Helper()
		for {
			var n News
			if err := json.Unmarshal([]byte(p.ok("GET", fmt.Sprintf("/v1/feedback?epoch=%s&at=%d&%s", epoch, at, query), "")), &n); err != nil {
				t.Fatal(err)
			}
			if want -= len(n.Ports); want <= 0 {
				if want < 0 {
					t.Errorf("%s is told %+v, which is too much", query, n)
				}
				return n.Epoch, n.At
			}
			epoch, at = n.Epoch, n.At
		}
	}
	all(leads, "term=1", 2)
	epoch, at := all(other, "", 2)
	other.ok("PUT", "/v1/ports/a", portOf("a", "h1", 1))
	var n News
	if err := json.Unmarshal([]byte(other.ok("GET", fmt.Sprintf("/v1/feedback?epoch=%s&at=%d&term=0", epoch, at), "")), &n); err != nil || len(n.Ports) != 1 || n.Ports[0].ID != "a" {
		t.Errorf("of its own port the other one is told %+v, %v", n, err)
	}
}
