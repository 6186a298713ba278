package upkeep

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/syncer"
)

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const (
	nodeDoc = `{"kind":"Node","metadata":{"name":"h1","labels":{"rack":"a"}},"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}},"status":{}}`
	on      = `{"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled"}}}},"status":{}}`
	off     = `{"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Disabled"}}}},"status":{}}`
	other   = `{"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled","createDefaultHostEndpoint":"Disabled","templates":[{"generateName":"old","interfaceCIDRs":["0.0.0.0/0"]}]}}}},"status":{}}`
	made    = `{"kind":"HostEndpoint","metadata":{"name":"NAME","labels":{"projectcalico.org/created-by":"calico-kube-controllers"}},"spec":{"node":"NODE","interfaceName":"eth9"}}`
	byHand  = `{"kind":"HostEndpoint","metadata":{"name":"NAME"},"spec":{"node":"NODE","interfaceName":"eth9"}}`
)

func doc(text, name, node string) string {
	return strings.NewReplacer("NAME", name, "NODE", node).Replace(text)
}

// bench is a controller of node h1 on a store in memory, fed by a real syncer, in virtual time.
type bench struct {
	*testing.T
	store storetest.InMemory
	k     *Controller
	log   log
}

// log is what was logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// run starts with what the store has.
func run(t *testing.T, stored map[string]string, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{T: t, store: storetest.New(t)}
		for key, value := range stored {
			b.put(key, value)
		}
		source := syncer.New(b.store, syncer.Config{Logger: slog.New(slog.DiscardHandler)})
		b.k = New(Config{Node: "h1", Store: b.store, Know: source.Know, Log: slog.New(slog.NewTextHandler(&b.log, nil))})
		go source.Run(ctx)
		go b.k.Run(ctx)
		go func() {
			for batch := range source.Batches() {
				b.k.Update(batch.Updates, batch.InSync)
			}
		}()
		b.settle()
		test(b)
		cancel()
		b.settle()
	})
}

func (b *bench) settle() { <-time.After(time.Minute); synctest.Wait() } // virtual

func (b *bench) put(key, value string) {
	b.Helper()
	if err := datastore.Put(b.Context(), b.store, api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) remove(key string) {
	b.Helper()
	if err := b.store.Delete(b.Context(), api.ResourcesPrefix+key, api.Revision{}); err != nil {
		b.Fatal(err)
	}
}

// want compares the host endpoints of the store, each as "name interface addresses".
func (b *bench) want(what string, want ...string) {
	b.Helper()
	b.settle()
	all, _ := b.store.List(b.Context(), api.ResourcesPrefix+"hostendpoints/")
	var got []string
	for _, u := range all.Sorted() {
		s, err := api.DecodeStored(u)
		if err != nil {
			b.Fatal(err)
		}
		h := s.Resource.(*api.HostEndpoint)
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", s.Ref.Name, h.Spec.InterfaceName, strings.Join(h.Spec.ExpectedIPs, " "))))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		b.Errorf("%s: the store has\n%s\nwant\n%s\nlog %s", what, strings.Join(got, "\n"), strings.Join(want, "\n"), &b.log)
	}
}

func (b *bench) get(key string) string {
	b.Helper()
	u, err := b.store.Get(b.Context(), api.ResourcesPrefix+key)
	if err != nil {
		b.Fatal(err)
	}
	return string(u.Value)
}

const standard = "h1-auto-hep * 192.0.2.1"

func TestHostEndpointsFollowTheConfigurationAndTheNode(t *testing.T) {
	run(t, map[string]string{"nodes/h1": nodeDoc, "nodes/h2": strings.ReplaceAll(nodeDoc, "h1", "h2")}, func(b *bench) {
		b.want("nobody asked for any")
		b.put("kubecontrollersconfigurations/other", on)
		b.want("only the one with the name default counts")
		b.put("kubecontrollersconfigurations/default", on)
		b.want("on", standard)
		if doc := b.get("hostendpoints/h1-auto-hep"); !strings.Contains(doc, `"rack":"a"`) || !strings.Contains(doc, `"uid":"`) || !strings.Contains(doc, `"profiles":["projectcalico-default-allow"]`) {
			b.Errorf("it is %s", doc)
		}
		quiet := b.store.Revision()
		b.settle()
		b.put("nodes/h2", nodeDoc)
		if b.settle(); b.store.Revision() != quiet+1 {
			b.Error("something was written, and nothing had changed")
		}
		b.put("nodes/h1", strings.ReplaceAll(nodeDoc, "192.0.2.1", "192.0.2.9"))
		b.want("another address", "h1-auto-hep * 192.0.2.9")
		b.put("kubecontrollersconfigurations/default", off)
		b.want("off")
		b.put("kubecontrollersconfigurations/default", on)
		b.want("on again", "h1-auto-hep * 192.0.2.9")
		b.remove("nodes/h1")
		b.want("a node that is gone")
		b.put("nodes/h1", nodeDoc)
		b.want("and is back", standard)
		b.remove("kubecontrollersconfigurations/default")
		b.want("without a configuration")
	})
}

func TestOnlyOwnAutomaticHostEndpointsAreTouched(t *testing.T) {
	others := map[string]string{
		"hostendpoints/h2-auto-hep":   doc(made, "h2-auto-hep", "h2"),
		"hostendpoints/h1-eth9":       doc(byHand, "h1-eth9", "h1"),
		"hostendpoints/h1-t-auto-hep": doc(byHand, "h1-t-auto-hep", "h1"),
	}
	start := map[string]string{
		"nodes/h1": nodeDoc, "hostendpoints/h1-old-auto-hep": doc(made, "h1-old-auto-hep", "h1"),
		"kubecontrollersconfigurations/default": `{"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled","templates":[{"generateName":"t","interfaceCIDRs":["0.0.0.0/0"]}]}}}},"status":{}}`,
	}
	for k, v := range others {
		start[k] = v
	}
	run(t, start, func(b *bench) {
		b.want("what an earlier configuration wanted goes", standard, "h1-eth9 eth9", "h1-t-auto-hep eth9", "h2-auto-hep eth9")
		if n := strings.Count(b.log.String(), "h1-t-auto-hep exists, without the label"); n != 1 {
			b.Errorf("the log says %d times that a name is taken:\n%s", n, &b.log)
		}
		b.put("kubecontrollersconfigurations/default", off)
		b.want("off", "h1-eth9 eth9", "h1-t-auto-hep eth9", "h2-auto-hep eth9")
		for key, doc := range others {
			if got := b.get(key); got != doc {
				b.Errorf("%s was changed to %s", key, got)
			}
		}
	})
}

func TestAChangeKeepsWhatAnotherVersionWrote(t *testing.T) {
	old := `{"kind":"HostEndpoint","metadata":{"name":"h1-auto-hep","uid":"u1","creationTimestamp":"t1","labels":{"gone":"yes","projectcalico.org/created-by":"calico-kube-controllers"}},"spec":{"newer":7,"node":"h1","interfaceName":"*"}}`
	run(t, map[string]string{"nodes/h1": nodeDoc, "kubecontrollersconfigurations/default": on, "hostendpoints/h1-auto-hep": old}, func(b *bench) {
		b.want("on", standard)
		doc := b.get("hostendpoints/h1-auto-hep")
		for _, want := range []string{`"newer":7`, `"uid":"u1"`, `"creationTimestamp":"t1"`, `"rack":"a"`} {
			if !strings.Contains(doc, want) {
				b.Errorf("%s is not in %s", want, doc)
			}
		}
		if strings.Contains(doc, "gone") {
			b.Errorf("a label that the node lost is in %s", doc)
		}
	})
}

// TestTheControllersEnvironmentIsFollowed: as the status has it. One that is lost, as by a replace, changes nothing until it is written again.
func TestTheControllersEnvironmentIsFollowed(t *testing.T) {
	with := func(spec, vars string) string {
		return strings.Replace(spec, `"status":{}`, `"status":{"runningConfig":{"controllers":{}},"environmentVars":{`+vars+`}}`, 1)
	}
	run(t, map[string]string{"nodes/h1": nodeDoc}, func(b *bench) {
		for _, step := range []struct {
			what, configuration string
			want                []string
		}{
			{"off, and on by the environment", with(off, `"AUTO_HOST_ENDPOINTS":"enabled"`), []string{standard}},
			{"the status is lost", off, []string{standard}},
			{"it is there again, without the variable", with(off, `"LOG_LEVEL":"info"`), nil},
			{"a status without the variable is lost", on, []string{standard}},
			{"off by the environment", with(on, `"AUTO_HOST_ENDPOINTS":"Disabled"`), nil},
			{"templates do not count", with(other, `"AUTO_HOST_ENDPOINTS":"enabled"`), []string{standard}},
			{"a word that is none", with(off, `"AUTO_HOST_ENDPOINTS":"perhaps"`), []string{standard}},
		} {
			b.put("kubecontrollersconfigurations/default", step.configuration)
			b.want(step.what, step.want...)
		}
		b.remove("kubecontrollersconfigurations/default")
		b.want("without a configuration")
	})
}

func TestNothingIsWrittenWhileWhatIsWantedIsUnknown(t *testing.T) {
	run(t, map[string]string{"nodes/h1": nodeDoc, "kubecontrollersconfigurations/default": on}, func(b *bench) {
		b.want("on", standard)
		b.put("kubecontrollersconfigurations/default", `{"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Off"}}}}}`)
		b.want("a word that is none", standard)
		b.put("kubecontrollersconfigurations/default", `{`)
		b.want("no JSON", standard)
		b.put("clusterinformations/default", `{"spec":{"datastoreReady":false}}`)
		storetest.Delivered() // two kinds have no order in every store
		b.put("kubecontrollersconfigurations/default", off)
		b.want("frozen", standard)
		b.put("clusterinformations/default", `{"spec":{"datastoreReady":true}}`)
		b.want("ready again")
	})
}

func TestNothingIsWrittenBeforeAllIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, store: storetest.New(t)}
		b.k = New(Config{Node: "h1", Store: b.store, Log: slog.New(slog.NewTextHandler(&b.log, nil))})
		go b.k.Run(t.Context())
		b.put("hostendpoints/h1-auto-hep", doc(made, "h1-auto-hep", "h1"))
		u, err := b.store.Get(t.Context(), api.ResourcesPrefix+"hostendpoints/h1-auto-hep")
		if err != nil {
			t.Fatal(err)
		}
		b.k.Update([]api.Update{u}, false)
		b.want("what wants it may not have been heard yet", "h1-auto-hep eth9")
		b.k.Update(nil, true)
		b.want("all is known, and nothing wants it")
	})
}

func TestWhatCannotBeWrittenIsTriedAgain(t *testing.T) {
	run(t, map[string]string{"nodes/h1": nodeDoc, "kubecontrollersconfigurations/default": other}, func(b *bench) {
		b.want("another template", "h1-old-auto-hep  192.0.2.1")
		var tries atomic.Int32
		b.store.Fail(func(op memstore.Op) error {
			if op.Verb == "create" && strings.HasSuffix(op.Key, "auto-hep") {
				tries.Add(1)
				return datastore.ErrUnavailable
			}
			return nil
		})
		b.put("kubecontrollersconfigurations/default", on)
		b.want("unavailable: the old one stays", "h1-old-auto-hep  192.0.2.1")
		b.store.Fail(nil)
		if n := tries.Load(); n < 4 || n > 10 || strings.Count(b.log.String(), "level=WARN") != 1 {
			b.Errorf("%d tries within a minute; the log has\n%s", n, &b.log)
		}
		b.want("available", standard)
		// Somebody is quicker: what he wrote is seen before the next try.
		b.store.Fail(func(op memstore.Op) error {
			if op.Verb == "update" && strings.HasSuffix(op.Key, "auto-hep") {
				b.store.Fail(nil)
				b.put("hostendpoints/h1-auto-hep", doc(byHand, "h1-auto-hep", "h1"))
			}
			return nil
		})
		b.put("nodes/h1", strings.ReplaceAll(nodeDoc, "192.0.2.1", "192.0.2.9"))
		b.want("it is somebody else's now", "h1-auto-hep eth9")
	})
}
