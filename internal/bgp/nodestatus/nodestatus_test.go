package nodestatus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func facts() Facts {
	return Facts{
		Now: at, Version: "v1",
		Report: speaker.Report{
			Node: "h1", RouterID: addr("192.0.2.1"), Since: at.Add(-time.Hour), Planned: at.Add(-time.Minute),
			Sessions: []speaker.Session{
				{Peer: addr("192.0.2.2"), From: "mesh", State: speaker.Established, Since: at.Add(-time.Second)},
				{Peer: addr("192.0.2.3"), From: "BGPPeer a", State: "Active"},
				{Peer: addr("192.0.2.4"), From: "BGPPeer b", Global: true, State: "Closed"},
				{Peer: addr("2001:db8::2"), From: "mesh", State: speaker.Established},
			},
		},
		Routes: []speaker.Route{
			{Dst: netip.MustParsePrefix("10.65.1.0/26"), Own: true, Best: true},
			{Dst: netip.MustParsePrefix("10.65.2.0/26"), From: addr("192.0.2.2"), NextHop: addr("192.0.2.2"), Best: true, Kernel: speaker.Installed},
			{Dst: netip.MustParsePrefix("10.65.2.0/26"), From: addr("192.0.2.3"), NextHop: addr("192.0.2.9")},
			{Dst: netip.MustParsePrefix("fd65::/122"), From: addr("2001:db8::2"), NextHop: addr("2001:db8::2"), Best: true, Kernel: "its interface is down"},
		},
		LinkTo: func(a netip.Addr) string { return map[string]string{"192.0.2.2": "eth0"}[a.String()] },
	}
}

func TestAStatusSaysWhatIsAsked(t *testing.T) {
	const (
		agent = `"agent":{"birdV4":{"state":"Ready","version":"twill v1","routerID":"192.0.2.1","lastBootTime":"2026-01-02 02:04:05","lastReconfigurationTime":"2026-01-02 03:03:05"},` +
			`"birdV6":{"state":"Ready","version":"twill v1","routerID":"192.0.2.1","lastBootTime":"2026-01-02 02:04:05","lastReconfigurationTime":"2026-01-02 03:03:05"}}`
		noAgent = `"agent":{"birdV4":{},"birdV6":{}}`
		bgp     = `"bgp":{"numberEstablishedV4":1,"numberNotEstablishedV4":2,"numberEstablishedV6":1,"numberNotEstablishedV6":0,"peersV4":[` +
			`{"peerIP":"192.0.2.2","type":"NodeMesh","state":"Established","since":"2026-01-02 03:04:04"},{"peerIP":"192.0.2.3","type":"NodePeer","state":"Active"},{"peerIP":"192.0.2.4","type":"GlobalPeer","state":"Close"}],` +
			`"peersV6":[{"peerIP":"2001:db8::2","type":"NodeMesh","state":"Established"}]}`
		noBGP  = `"bgp":{"numberEstablishedV4":0,"numberNotEstablishedV4":0,"numberEstablishedV6":0,"numberNotEstablishedV6":0}`
		routes = `"routes":{"routesV4":[{"type":"FIB","destination":"10.65.1.0/26","gateway":"N/A","learnedFrom":{"sourceType":"Kernel"}},` +
			`{"type":"FIB","destination":"10.65.2.0/26","gateway":"192.0.2.2","interface":"eth0","learnedFrom":{"sourceType":"NodeMesh","peerIP":"192.0.2.2"}},` +
			`{"type":"RIB","destination":"10.65.2.0/26","gateway":"192.0.2.9","learnedFrom":{"sourceType":"BGPPeer","peerIP":"192.0.2.3"}}],` +
			`"routesV6":[{"type":"RIB","destination":"fd65::/122","gateway":"2001:db8::2","learnedFrom":{"sourceType":"NodeMesh","peerIP":"2001:db8::2"}}]}`
		noRoutes = `"routes":{}`
	)
	for _, tt := range []struct{ classes, want string }{
		{"Agent", agent + "," + noBGP + "," + noRoutes},
		{"BGP", noAgent + "," + bgp + "," + noRoutes},
		{"Routes", noAgent + "," + noBGP + "," + routes},
		{"Agent BGP Routes", agent + "," + bgp + "," + routes},
	} {
		got, err := json.Marshal(Fill(strings.Fields(tt.classes), facts()))
		if want := `{"lastUpdated":"2026-01-02T03:04:05Z",` + tt.want + "}"; err != nil || string(got) != want {
			t.Errorf("%s (%v):\n got %s\nwant %s", tt.classes, err, got, want)
		}
	}
}

func TestAnotherProgramThatSpeaksIsNamed(t *testing.T) {
	f := facts()
	f.Report.Version = "BIRD 2.0.12"
	if got := Fill([]string{api.ClassAgent}, f).Agent.BIRDV4.Version; got != "BIRD 2.0.12" {
		t.Errorf("version %q", got)
	}
}

func TestRoutesThatAreTooManyAreCounted(t *testing.T) {
	f := facts()
	f.Routes = make([]speaker.Route, mostRoutes+7)
	for i := range f.Routes {
		f.Routes[i] = speaker.Route{Dst: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32), Own: true}
	}
	s := Fill([]string{api.ClassRoutes}, f)
	text, err := json.Marshal(s)
	if err != nil || len(s.Routes.RoutesV4) != mostRoutes || s.Routes.OmittedV4 != 7 || len(text) > 1<<20 {
		t.Errorf("%d routes, %d omitted, %d bytes, %v", len(s.Routes.RoutesV4), s.Routes.OmittedV4, len(text), err)
	}
}

func TestASpeakerIsNotReadyForAReason(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*speaker.Report)
		want   string
	}{
		{"some sessions are up", func(*speaker.Report) {}, ""},
		{"no sessions are wanted", func(r *speaker.Report) { r.Sessions = nil }, ""},
		{"none is up", func(r *speaker.Report) {
			r.Sessions = []speaker.Session{{Peer: addr("192.0.2.3"), State: "Active", Why: "no answer yet"}}
		}, "BGP: no session is up: 192.0.2.3: no answer yet"},
		{"it restarts", func(r *speaker.Report) { r.Holding = at }, "BGP: restarting: not all peers have sent their routes again"},
		{"a pool is not understood", func(r *speaker.Report) { r.Unread = []string{"IPPool p: want an object"} }, "BGP: IPPool p: want an object"},
		{"it is off", func(r *speaker.Report) { r.Off = "Node h1 has no address" }, "BGP: Node h1 has no address"},
		{"no plan", func(r *speaker.Report) { *r = speaker.Report{} }, "BGP: no configuration yet: the datastore has not answered, and there is no plan on disk"},
	} {
		f := facts()
		tt.change(&f.Report)
		if got := strings.Join(NotReady(f.Report), "; "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		want := map[bool]string{true: "Ready", false: "NotReady"}[tt.want == ""]
		if got := Fill([]string{api.ClassAgent}, f).Agent.BIRDV4.State; got != want {
			t.Errorf("%s: state %s, want %s", tt.name, got, want)
		}
	}
}

const doc = `{"kind":"CalicoNodeStatus","apiVersion":"projectcalico.org/v3","metadata":{"name":"NAME"},"spec":{"node":"NODE","classes":["BGP"],"updatePeriodSeconds":PERIOD,"future":1},"status":{"lastUpdated":null}}`

// TestStatusIsWrittenAsOftenAsWanted is in virtual time.
func TestStatusIsWrittenAsOftenAsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, asks := storetest.New(t), 0
		storetest.Steady(store)
		put := func(name, node, period string) {
			value := strings.NewReplacer("NAME", name, "NODE", node, "PERIOD", period).Replace(doc)
			if err := datastore.Put(t.Context(), store, api.Update{Key: api.KeyPrefix(api.KindCalicoNodeStatus, "") + name, Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		writes := func(name string) (out []string) {
			u, err := store.Get(t.Context(), api.KeyPrefix(api.KindCalicoNodeStatus, "")+name)
			if err != nil {
				t.Fatal(err)
			}
			var r api.CalicoNodeStatus
			if err := json.Unmarshal(u.Value, &r); err != nil || !bytes.Contains(u.Value, []byte(`"future":1`)) {
				t.Fatalf("%v: %s", err, u.Value)
			}
			if r.Status.LastUpdated == nil {
				return nil
			}
			return []string{*r.Status.LastUpdated, fmt.Sprint(r.Status.BGP.NumberEstablishedV4)}
		}
		put("mine", "h1", "10")
		put("slow", "h1", "3600")
		put("off", "h1", "0")
		put("other", "h2", "10")
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		k := New(Config{Node: "h1", Store: store, Log: slog.New(slog.NewTextHandler(&log, nil)), Ask: func(context.Context, bool) (Facts, error) {
			asks++
			f := facts()
			f.Now = time.Now()
			return f, nil
		}})
		ended := make(chan error, 1)
		go func() { ended <- k.Run(ctx) }()
		synctest.Wait()
		start := time.Now()
		stamp := func(after time.Duration) string { return start.Add(after).UTC().Format(time.RFC3339) + " 1" }
		for _, tt := range []struct {
			name string
			do   func()
			wait time.Duration
			want map[string]string
		}{
			{"at once", nil, 0, map[string]string{"mine": stamp(0), "slow": stamp(0), "off": "", "other": ""}},
			{"after the period", nil, 25 * time.Second, map[string]string{"mine": stamp(20 * time.Second), "slow": stamp(0), "off": "", "other": ""}},
			{"another period holds at once", func() { put("slow", "h1", "5") }, 0, map[string]string{"slow": stamp(25 * time.Second)}},
			{"turned off", func() { put("mine", "h1", "0") }, time.Minute, map[string]string{"mine": ""}}, // the document that was put has none
			{"the store refuses, and is back", func() {
				store.Fail(func(op memstore.Op) error {
					if op.Verb == "update" {
						return datastore.ErrUnavailable
					}
					return nil
				})
				<-time.After(time.Minute) // virtual
				store.Fail(nil)
			}, 5 * time.Second, map[string]string{"slow": stamp(150 * time.Second)}},
			{"frozen", func() {
				_ = datastore.Put(t.Context(), store, api.Update{Key: api.KeyPrefix(api.KindClusterInformation, "") + "default", Value: []byte(`{"spec":{"datastoreReady":false}}`)})
			}, time.Minute, map[string]string{"slow": stamp(150 * time.Second)}},
		} {
			if tt.do != nil {
				tt.do()
			}
			<-time.After(tt.wait) // virtual
			synctest.Wait()
			for name, want := range tt.want {
				if got := strings.Join(writes(name), " "); got != want {
					t.Errorf("%s: %s has %q, want %q", tt.name, name, got, want)
				}
			}
		}
		if asks > 60 {
			t.Errorf("the speaker was asked %d times", asks)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings, want one:\n%s", n, log.String())
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
