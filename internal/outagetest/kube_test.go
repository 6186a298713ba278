package outagetest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/outagetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m.Run, kubetest.Config{})) }

// answer bounds an answer of an API server, which has more to do than etcd.
const answer = 5 * time.Second

// kubeWorld is a world whose store is a real API server.
func kubeWorld(t *testing.T, s *kubetest.Server) *world {
	t.Helper()
	s.Apply(t, must(crds.Documents(crds.Definitions(form.V3)))(t))
	w := &world{t: t, values: map[string]string{}, stays: map[string]bool{}}
	w.proxy = must(outagetest.Listen(strings.Replace(s.URL, "https://", "http://", 1)))(t)
	t.Cleanup(w.proxy.Close)
	w.direct = openStore(t, datastore.Config{Type: "kubernetes", Kubeconfig: s.Kubeconfig, RequestTimeout: time.Minute, QPS: 10_000})
	s.Clear(t, string(form.Own))
	for i := range 20 {
		key := fmt.Sprintf("/k/stay%02d", i)
		w.stays[key] = true
		w.put(key, "0")
	}
	w.put("/k/leave", "0")
	return w
}

func TestOfAnAPIServerTheTruthArrivesAndNothingFlaps(t *testing.T) {
	s := kubetest.New(t, kubetest.Config{})
	for _, tt := range []struct {
		name  string
		fault func(*world)
	}{
		{"it is away while things change", func(w *world) {
			w.cut()
			w.change()
			w.proxy.Set(outagetest.Fault{})
		}},
		{"it is away again and again", func(w *world) {
			for i := range 3 {
				w.proxy.Set(outagetest.Fault{Cut: true})
				w.put("/k/stay02", fmt.Sprint(i+1))
				w.until("the loss", w.away)
				w.proxy.Set(outagetest.Fault{})
				w.until("the return", w.synced)
			}
			w.change()
		}},
		{"it has forgotten what was meanwhile", func(w *world) {
			w.cut()
			w.change()
			for i := range 1500 { // more than it remembers of one kind
				w.put("/k/stay03", fmt.Sprint(i+1))
			}
			w.proxy.Set(outagetest.Fault{})
		}},
		{"it is killed, and comes back", func(w *world) {
			w.change()
			s.Kill(w.t)
			w.until("the loss", w.away)
			s.Restart(w.t)
			w.put("/k/stay04", "1")
		}},
		{"it is put back from an older backup", func(w *world) {
			backup := s.Backup(w.t)
			w.put("/k/later", "1") // and lost with the backup
			w.change()
			w.truth()
			s.Restore(w.t, backup)
			w.until("what is lost to be gone", func() bool { return w.values["/k/later"] == "" })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := kubeWorld(t, s)
			followKube(w, s, answer)
			w.until("the first sync", w.synced)
			tt.fault(w)
			w.truth()
			w.put("/k/stay05", "last") // and it is followed as before
			w.truth()
		})
	}
}

// followKube starts the syncer through the proxy.
func followKube(w *world, s *kubetest.Server, timeout time.Duration) {
	server := strings.Replace(w.proxy.Endpoint(), "http://", "https://", 1)
	w.follow(datastore.Config{Type: "kubernetes", Kubeconfig: s.Kubeconfig, Server: server, RequestTimeout: timeout, QPS: 10_000})
}

func TestAFirstListOfAnAPIServerThatIsCutHalfWayIsWholeInTheEnd(t *testing.T) {
	w := kubeWorld(t, kubetest.Start(t))
	w.proxy.Set(outagetest.Fault{After: 1000})
	followKube(w, kubetest.Start(t), answer)
	for after := 1000; !w.synced(); after += 1000 {
		w.proxy.Set(outagetest.Fault{After: after})
		before := w.proxy.Dropped()
		w.until("an answer to be cut, or the list to be whole", func() bool { return w.synced() || w.proxy.Dropped() > before })
	}
	if w.proxy.Dropped() < 3 {
		t.Errorf("%d connections were cut", w.proxy.Dropped())
	}
	w.proxy.Set(outagetest.Fault{})
	w.change()
	w.truth()
}

func TestAnAPIServerThatKeepsSilentIsMissedWithinAMinute(t *testing.T) {
	s := kubetest.New(t, kubetest.Config{})
	for _, tt := range []struct {
		name       string
		begin, end func(*world)
	}{
		{
			"what it sends is lost",
			func(w *world) { w.proxy.Set(outagetest.Fault{Hang: true}) },
			func(w *world) { w.proxy.Set(outagetest.Fault{}) },
		},
		{"it stands still", func(w *world) { s.Stop(w.t) }, func(w *world) { s.Continue(w.t) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := kubeWorld(t, s)
			followKube(w, s, 10*time.Second) // an agent's
			w.until("the first sync", w.synced)
			tt.begin(w)
			w.within(time.Minute, "the loss", w.away)
			tt.end(w)
			w.change()
			w.truth()
		})
	}
}
