package agent

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/syncer"
	"github.com/twillnet/twill/internal/upkeep"
)

// TestWhatChangesNothingHereReachesNoDriver: of the datastore's changes, most are other nodes'.
func TestWhatChangesNothingHereReachesNoDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := slog.New(slog.DiscardHandler), memstore.New()
		in, out := make(chan syncer.Batch), make(chan intent.Batch, 10)
		d := &calcLoop{
			node: "h1", graph: calc.New("h1"), in: in, out: out, log: log,
			watch: newReporter(Config{Node: "h1", Log: log}, store, metrics.New(prometheus.NewRegistry())),
			keep:  keepers{upkeep.New(upkeep.Config{Node: "h1", Store: store, Log: log})},
		}
		ended := make(chan error)
		go func() { ended <- d.run(t.Context()) }()
		set := api.Update{Key: api.ResourcesPrefix + "networksets/prod/unused", Value: []byte(`{"spec":{"nets":["192.0.2.0/24"]}}`)}
		for range 3 {
			in <- syncer.Batch{Updates: []api.Update{set}, InSync: true, Status: syncer.InSync}
			synctest.Wait()
		}
		if len(out) != 1 || !(<-out).InSync {
			t.Errorf("%d batches, want the one that says that all is in", len(out)+1)
		}
		close(in)
		<-ended
	})
}

// TestAgainstABlankDatastoreWhatIsInTheKernelStays: an agent that starts and finds nothing cannot tell a new cluster from one whose datastore was
// lost, but by what an agent before it left in the kernel.
func TestAgainstABlankDatastoreWhatIsInTheKernelStays(t *testing.T) {
	const info, node, pool = "clusterinformations/default", "nodes/h1", "ippools/p"
	values := map[string]string{info: `{"spec":{"datastoreReady":true}}`, node: `{"spec":{}}`, pool: `{"spec":{"cidr":"10.65.0.0/16"}}`}
	for _, tt := range []struct {
		name    string
		remains bool
		holds   []string
		sent    int
		then    int // sent once the datastore says that it is ready
	}{
		{"a new host", false, nil, 1, 0},
		{"a host of a datastore that was lost", true, nil, 0, 1},
		{"hosts have written their Nodes again", true, []string{node}, 0, 1},
		{"a cluster that never said whether it is ready", true, []string{node, pool}, 1, 0},
		{"it says that it is ready", true, []string{info}, 1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, store := slog.New(slog.DiscardHandler), memstore.New()
			in, out := make(chan syncer.Batch), make(chan intent.Batch, 10)
			d := &calcLoop{
				node: "h1", graph: calc.New("h1"), in: in, out: out, log: log, remains: tt.remains, hold: true,
				watch: newReporter(Config{Node: "h1", Log: log}, store, metrics.New(prometheus.NewRegistry())),
			}
			ended := make(chan error)
			go func() { ended <- d.run(t.Context()) }()
			say := func(when string, want int, names ...string) {
				t.Helper()
				b := syncer.Batch{InSync: true, Status: syncer.InSync}
				for _, name := range names {
					b.Updates = append(b.Updates, api.Update{Key: api.ResourcesPrefix + name, Value: []byte(values[name])})
				}
				in <- b
				if synctest.Wait(); len(out) != want {
					t.Errorf("%s, %s: %d batches, want %d", tt.name, when, len(out), want)
				}
				for len(out) > 0 {
					<-out
				}
			}
			say("at the start", tt.sent, tt.holds...)
			say("and ready", tt.then, info)
			close(in)
			<-ended
		})
	}
}

// TestANodeWithoutAPossibleNameLogsIt: what keeps its Node refuses to write one, in another process.
func TestANodeWithoutAPossibleNameLogsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := slog.New(slog.DiscardHandler), memstore.New()
		in, out := make(chan syncer.Batch), make(chan intent.Batch, 10)
		d := &calcLoop{
			node: "web_1", graph: calc.New("web_1"), in: in, out: out, log: log,
			watch: newReporter(Config{Node: "web_1", Log: log}, store, metrics.New(prometheus.NewRegistry())),
			keep:  keepers{upkeep.New(upkeep.Config{Node: "web_1", Store: store, Log: log})},
		}
		ended := make(chan error)
		go func() { ended <- d.run(t.Context()) }()
		says := func(when string, us []api.Update, want int) {
			t.Helper()
			in <- syncer.Batch{Updates: us, InSync: true, Status: syncer.InSync}
			synctest.Wait()
			n := 0
			for _, f := range d.watch.report().Wrong {
				if strings.HasSuffix(f.Where, "nodes/web_1 metadata.name") && strings.Contains(f.Reason, "(NODENAME)") {
					n++
				}
			}
			if n != want {
				t.Errorf("%s: %d findings say so, want %d: %+v", when, n, want, d.watch.report().Wrong)
			}
		}
		key := api.KeyPrefix(api.KindNode, "") + "web_1"
		says("at the start", nil, 1)
		says("somebody wrote it", []api.Update{{Key: key, Value: []byte(`{"metadata":{"name":"web_1"},"spec":{}}`)}}, 0)
		says("it is gone", []api.Update{{Key: key}}, 1)
		close(in)
		<-ended
	})
}

// TestWhereAnotherAgentsRulesGuardNothingIsHandedOverBeforeAllIsKnown: the first batch would close the host until then.
func TestWhereAnotherAgentsRulesGuardNothingIsHandedOverBeforeAllIsKnown(t *testing.T) {
	for _, hold := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log, store := slog.New(slog.DiscardHandler), memstore.New()
			in, out := make(chan syncer.Batch), make(chan intent.Batch, 10)
			d := &calcLoop{
				node: "h1", graph: calc.New("h1"), in: in, out: out, log: log, hold: hold,
				watch: newReporter(Config{Node: "h1", Log: log}, store, metrics.New(prometheus.NewRegistry())),
				keep:  keepers{upkeep.New(upkeep.Config{Node: "h1", Store: store, Log: log})},
			}
			ended := make(chan error)
			go func() { ended <- d.run(t.Context()) }()
			profile := api.Update{Key: api.ResourcesPrefix + "profiles/p", Value: []byte(`{"metadata":{"name":"p"},"spec":{"labelsToApply":{"a":"b"}}}`)}
			in <- syncer.Batch{Updates: []api.Update{profile}, Status: syncer.ResyncInProgress}
			synctest.Wait()
			if early := len(out) > 0; early == hold {
				t.Errorf("hold %v: handed over before all is known: %v", hold, early)
			}
			before := len(out)
			felix := api.Update{Key: api.ResourcesPrefix + "felixconfigurations/default", Value: []byte(`{"spec":{"interfacePrefix":"tap"}}`)}
			in <- syncer.Batch{Updates: []api.Update{felix}, Status: syncer.ResyncInProgress}
			synctest.Wait()
			if len(out) != before {
				t.Errorf("hold %v: the second piece of a list is handed over by itself", hold)
			}
			in <- syncer.Batch{InSync: true, Status: syncer.InSync}
			synctest.Wait()
			last := intent.Batch{}
			for len(out) > 0 {
				last = <-out
			}
			if !last.InSync || hold && last.Host == nil {
				t.Errorf("hold %v: the last batch is %+v", hold, last)
			}
			close(in)
			<-ended
		})
	}
}

// However late calc comes round to what this agent wrote, what others write after that counts.
func TestWhatIsWrittenLateDoesNotHideWhatComesAfter(t *testing.T) {
	at := func(revision int) api.Update {
		return api.Update{Key: "k", Value: []byte("v"), Revision: api.RevisionOf(strconv.Itoa(revision))}
	}
	for _, tt := range []struct {
		name   string
		before func(*calcLoop) // before calc takes over what is Pending
		takes  bool
		then   int // what the datastore says next
		passes bool
	}{
		{"not written yet", func(*calcLoop) {}, true, 5, false},
		{"written", func(d *calcLoop) { d.Written(at(5)) }, true, 6, true},
		{"written, and an older word", func(d *calcLoop) { d.Written(at(5)) }, true, 4, false},
		{"written and heard of", func(d *calcLoop) { d.Written(at(5)); d.overlay.Filter([]api.Update{at(5)}) }, false, 6, true},
	} {
		d := &calcLoop{local: make(chan local), overlay: attach.Overlay{Order: memstore.New()}}
		d.Announce("k", "cali1")
		tt.before(d)
		took := make(chan int, 1)
		go func() {
			l := <-d.local
			took <- len(d.overlay.Current(l.updates))
			close(l.done)
		}()
		if err := d.Overlay(t.Context(), []api.Update{{Key: "k", Value: []byte("v"), Revision: attach.Pending}}); err != nil {
			t.Fatal(err)
		}
		if got := <-took == 1; got != tt.takes {
			t.Errorf("%s: calc takes it over: %v, want %v", tt.name, got, tt.takes)
		}
		if got := len(d.overlay.Filter([]api.Update{at(tt.then)})) == 1; got != tt.passes {
			t.Errorf("%s: revision %d passes: %v, want %v", tt.name, tt.then, got, tt.passes)
		}
	}
}
