package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/ipam"
)

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// kernel brings everything into force at once, unless it is set to fail.
type kernel struct {
	mu        sync.Mutex
	changes   Overlay
	received  map[string]string // what calc has received, by key
	unready   []string
	overlay   error
	inForce   error
	asked     []string
	written   []api.Update
	announced []string
	given     []string
	onForced  func()
}

func (k *kernel) Overlay(_ context.Context, us []api.Update) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.overlay != nil {
		return k.overlay
	}
	k.changes.Pass(us)
	for _, u := range k.changes.Current(us) {
		if u.Value == nil {
			delete(k.received, u.Key)
		} else {
			k.received[u.Key] = string(u.Value)
		}
	}
	return nil
}

func (k *kernel) Announce(key, link string) {
	k.changes.Announce(key, link)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.announced = append(k.announced, key)
}

func (k *kernel) Written(u api.Update) {
	k.changes.Put([]api.Update{u})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.written = append(k.written, u)
}

func (k *kernel) Give(key string, g Given) {
	k.changes.Give(key, g)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.given = append(k.given, fmt.Sprint(key, g))
}

func (k *kernel) InForce(_ context.Context, id intent.EndpointID) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, id.String())
	if k.onForced != nil {
		k.onForced()
	}
	return k.inForce
}

func (k *kernel) NotReady() []string { return k.unready }

// bed is a server on a store with a pool for each family.
type bed struct {
	*testing.T
	*Server
	store  *flaky
	kernel *kernel
	known  sync.Map // keys that calc's syncer was given, before they are written
}

func newBed(t *testing.T) *bed {
	b := &bed{T: t, store: &flaky{InMemory: storetest.New(t), left: -1}}
	for name, cidr := range map[string]string{"four": "10.65.0.0/24", "six": "fd65::/64"} {
		p := &api.IPPool{Object: api.Object{TypeMeta: api.TypeMeta{Kind: "IPPool", APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Name: name}}}
		p.Spec.CIDR = cidr
		b.put(p)
	}
	b.put(&api.Node{Object: api.Object{TypeMeta: api.TypeMeta{Kind: "Node", APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Name: "h1"}}})
	b.store.InMemory.Fail(b.wantKnown)
	b.restart()
	return b
}

// wantKnown fails the test if a resource is written of which calc's syncer does not know that it is.
func (b *bed) wantKnown(op memstore.Op) error {
	if slices.Contains([]string{"create", "update", "delete", "transact"}, op.Verb) {
		for _, key := range strings.Fields(op.Key) {
			if _, known := b.known.Load(key); !known && strings.HasPrefix(key, api.ResourcesPrefix) {
				b.Errorf("%s %s, and calc's syncer does not know", op.Verb, key)
			}
		}
	}
	return nil
}

func (b *bed) put(r api.Resource) {
	b.Helper()
	kv, err := encode(r)
	if err == nil {
		_, err = b.store.InMemory.Create(b.Context(), kv)
	}
	b.must(err)
}

// restart is another process on the same store.
func (b *bed) restart() {
	b.kernel = &kernel{received: map[string]string{}, changes: Overlay{Order: datastore.OrderOf(b.store.InMemory)}}
	b.store.mu.Lock() // what the process before it began may still ask
	b.store.left, b.store.forever = -1, false
	b.store.mu.Unlock()
	b.Server = New(Config{Node: "h1", Store: b.store.all(), Addresses: NewAddresses(b.store.all(), "h1"), Kernel: b.kernel, Notes: b.TempDir(), Log: slog.New(slog.DiscardHandler), Know: func(_ context.Context, keys ...string) error {
		for _, k := range keys {
			b.known.Store(k, true)
		}
		return nil
	}})
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// left are endpoints, and addresses with their handles.
func (b *bed) left() []string {
	b.Helper()
	var out []string
	snap, err := b.store.InMemory.List(b.Context(), api.ResourcesPrefix+"workloadendpoints/")
	b.must(err)
	for _, u := range snap.Sorted() {
		out = append(out, strings.TrimPrefix(u.Key, api.ResourcesPrefix))
	}
	all, err := ipam.New(b.store.InMemory, ipam.Config{}).ReadSurvey(b.Context())
	b.must(err)
	for _, block := range all.Blocks {
		for _, l := range ipam.Allocations(block) {
			out = append(out, l.Addr.String()+" of "+*l.Attr.Handle)
		}
	}
	return out
}

func request(container string) wire.Request {
	return wire.Request{
		Ref:  wire.Ref{Network: "net", ContainerID: container, Ifname: "eth0"},
		Link: "cali" + container, MAC: "02:00:00:00:00:02", IPAM: wire.IPAM{V4: true, V6: true}, Labels: map[string]string{"app": "web"},
	}
}

func ofPod(container, pod string) wire.Request {
	r := request(container)
	r.Pod = &wire.Pod{Namespace: "prod", Name: pod}
	return r
}

func TestAContainerIsAttachedAndDetached(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request wire.Request
		want    string // of the endpoint
		labels  map[string]string
	}{
		{"outside Kubernetes", request("c1"), `default/h1-cni-c1-eth0 {"orchestrator":"cni","node":"h1","containerID":"c1","endpoint":"eth0","ipNetworks":["ADDRS"],"profiles":["net"],"interfaceName":"calic1","mac":"02:00:00:00:00:02"}`, map[string]string{"app": "web", api.LabelNamespace: "default", api.LabelOrchestrator: "cni"}},
		{"a pod", ofPod("c1", "web"), `prod/h1-k8s-web-eth0 {"orchestrator":"k8s","node":"h1","containerID":"c1","pod":"web","endpoint":"eth0","ipNetworks":["ADDRS"],"profiles":["kns.prod"],"interfaceName":"calic1","mac":"02:00:00:00:00:02"}`, map[string]string{"app": "web", api.LabelNamespace: "prod", api.LabelOrchestrator: "k8s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			forced := false
			b.kernel.onForced = func() {
				forced = true
				if len(b.kernel.received) == 0 {
					t.Error("calc did not receive the endpoint before the kernel was waited for")
				}
			}
			out, err := b.Attach(t.Context(), tt.request)
			b.must(err)
			if !forced || len(out.Addrs) != 2 || !out.Addrs[0].Is4() || !out.Addrs[1].Is6() {
				t.Fatalf("attached: %+v, in force: %v", out, forced)
			}
			namespace, name, _ := strings.Cut(out.Endpoint, "/")
			key := api.KeyPrefix(api.KindWorkloadEndpoint, "") + namespace + "/" + name
			u, err := b.store.Get(t.Context(), key)
			b.must(err)
			var doc struct {
				Metadata api.ObjectMeta
				Spec     json.RawMessage
			}
			b.must(json.Unmarshal(u.Value, &doc))
			addrs := out.Addrs[0].String() + `/32","` + out.Addrs[1].String() + "/128"
			if got, want := out.Endpoint+" "+string(doc.Spec), strings.ReplaceAll(tt.want, "ADDRS", addrs); !sameJSON(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if !maps.Equal(doc.Metadata.Labels, tt.labels) {
				t.Errorf("its labels are %v, want %v", doc.Metadata.Labels, tt.labels)
			}
			if left := b.left(); !slices.Contains(left, out.Addrs[0].String()+" of net.c1") || !slices.Contains(left, out.Addrs[1].String()+" of net.c1") {
				t.Errorf("there is %v, want addresses under the handle net.c1", left)
			}
			_, err = b.Check(t.Context(), withAddrs(tt.request, out.Addrs))
			b.must(err)
			for range 2 { // the second time there is nothing to do
				_, err = b.Detach(t.Context(), tt.request.Ref)
				b.must(err)
				if left := b.left(); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			}
			if _, still := b.kernel.received[key]; still {
				t.Error("calc did not receive the deletion")
			}
			if _, err := b.Check(t.Context(), withAddrs(tt.request, out.Addrs)); err == nil {
				t.Error("CHECK finds what is gone")
			}
		})
	}
}

func sameJSON(a, b string) bool {
	nameA, docA, _ := strings.Cut(a, " ")
	nameB, docB, _ := strings.Cut(b, " ")
	var va, vb any
	return nameA == nameB && json.Unmarshal([]byte(docA), &va) == nil && json.Unmarshal([]byte(docB), &vb) == nil && fmt.Sprint(va) == fmt.Sprint(vb)
}

func withAddrs(r wire.Request, addrs []netip.Addr) wire.Request {
	r.Addrs = addrs
	return r
}

// At whichever call of the store something fails, either all is there or nothing is.
func TestAFaultAtAnyStepLeavesAllOrNothing(t *testing.T) {
	for step := 0; ; step++ {
		b := newBed(t)
		b.store.left = step
		_, err := b.Attach(t.Context(), ofPod("c1", "web"))
		reached := b.store.left < 0
		b.store.left = -1
		switch left := b.left(); {
		case err == nil && len(left) != 3:
			t.Errorf("step %d: attached, and there is %v", step, left)
		case err != nil && len(b.kernel.received) > 0:
			t.Errorf("step %d: %v, and calc still has %v", step, err, b.kernel.received)
		case err == nil && (len(b.kernel.written) != 1 || b.kernel.written[0].Revision.IsZero() || b.kernel.written[0].Revision == Pending):
			t.Errorf("step %d: calc received the revisions %v", step, b.kernel.written)
		case err != nil && len(left) > 0:
			t.Errorf("step %d: %v, and there is still %v", step, err, left)
		}
		if !reached {
			if step < 5 {
				t.Errorf("only %d steps: nothing was injected", step)
			}
			return
		}
	}
}

func TestWhatTheKernelRefusesLeavesNothing(t *testing.T) {
	for name, fail := range map[string]func(*kernel){
		"calc does not take it":     func(k *kernel) { k.overlay = errFault },
		"it does not come in force": func(k *kernel) { k.inForce = errFault },
	} {
		b := newBed(t)
		fail(b.kernel)
		_, err := b.Attach(t.Context(), request("c1"))
		if left := b.left(); !errors.Is(err, errFault) || len(left) > 0 {
			t.Errorf("%s: %v, and there is %v", name, err, left)
		}
	}
	b := newBed(t)
	b.kernel.unready = []string{"the datastore says that it is not ready"}
	var refusal *wire.Refusal
	if _, err := b.Attach(t.Context(), request("c1")); !errors.As(err, &refusal) || !refusal.Later || !strings.Contains(refusal.Reason, "not ready") || len(b.left()) > 0 {
		t.Errorf("an agent that is not ready: %v, and there is %v", err, b.left())
	}
	if _, err := b.Assign(t.Context(), request("c1")); !errors.As(err, &refusal) || !refusal.Later || !strings.Contains(refusal.Reason, "not ready") || len(b.left()) > 0 {
		t.Errorf("addresses of an agent that is not ready: %v, and there is %v", err, b.left())
	}
}

// A process that is killed at any call leaves something that DEL takes away, and so does GC.
func TestWhatACrashLeavesIsFound(t *testing.T) {
	for _, do := range []struct {
		name  string
		begin func(*bed) error
	}{
		{"attach", func(b *bed) error { _, err := b.Attach(b.Context(), ofPod("c1", "web")); return err }},
		{"detach", func(b *bed) error {
			b.store.left = -1
			if _, err := b.Attach(b.Context(), ofPod("c1", "web")); err != nil {
				return err
			}
			return nil
		}},
	} {
		for step := 0; step < 30; step++ {
			for name, clean := range map[string]func(*bed) error{
				"DEL": func(b *bed) error { _, err := b.Detach(b.Context(), ofPod("c1", "web").Ref); return err },
				"GC": func(b *bed) error {
					_, err := b.Collect(b.Context(), wire.Valid{Network: "net", Refs: []wire.Ref{request("other").Ref}})
					return err
				},
			} {
				b := newBed(t)
				b.must(second(b.Attach(t.Context(), request("other"))))
				kept := b.left()
				b.store.left, b.store.forever = step, true
				_ = do.begin(b)
				if do.name == "detach" {
					b.store.left, b.store.forever = step, true
					_, _ = b.Detach(t.Context(), ofPod("c1", "web").Ref)
				}
				b.restart()
				b.must(clean(b))
				if left := b.left(); !slices.Equal(left, kept) {
					t.Errorf("%s, killed at step %d, then %s: left %v, want %v", do.name, step, name, left, kept)
				}
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestANewContainerOfAPodTakesItsPlace(t *testing.T) {
	b := newBed(t)
	b.must(second(b.Attach(t.Context(), ofPod("old", "web"))))
	b.must(second(b.Attach(t.Context(), ofPod("new", "web"))))
	left := b.left()
	if len(left) != 3 || strings.Contains(strings.Join(left, " "), "net.old") {
		t.Errorf("the old container's addresses stayed: %v", left)
	}
	b.must(second(b.Detach(t.Context(), ofPod("old", "web").Ref))) // late
	if again := b.left(); !slices.Equal(again, left) {
		t.Errorf("detaching the old one took from the new one: %v, was %v", again, left)
	}
}

func TestManyAtOnce(t *testing.T) {
	b := newBed(t)
	var wait sync.WaitGroup
	for i := range 40 {
		wait.Go(func() {
			r := ofPod(fmt.Sprintf("c%d", i), fmt.Sprintf("p%d", i%20)) // two containers want to be each pod
			if _, err := b.Attach(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if left := b.left(); len(left) != 20*3 {
		t.Errorf("%d things, want an endpoint and two addresses for each of 20 pods: %v", len(left), left)
	}
}

func TestNotesOfDetachedContainersAreWorkedOff(t *testing.T) {
	b := newBed(t)
	b.must(second(b.Attach(t.Context(), request("c1"))))
	text, err := json.Marshal(request("c1").Ref)
	b.must(err)
	b.must(os.WriteFile(filepath.Join(b.cfg.Notes, "c1.eth0.json"), text, 0o600))
	b.must(os.WriteFile(filepath.Join(b.cfg.Notes, "c2.eth0.new"), []byte("{"), 0o600)) // half written
	b.must(b.processNotes(t.Context()))
	names, err := filepath.Glob(filepath.Join(b.cfg.Notes, "*"))
	b.must(err)
	if left := b.left(); len(left) > 0 || len(names) != 1 {
		t.Errorf("left: %v, notes: %v", left, names)
	}
}

func TestTheAgentFreesWhatItsContainersLeft(t *testing.T) {
	b := newBed(t)
	b.must(second(b.Attach(t.Context(), request("kept"))))
	kept := b.left()
	later := time.Now().Add(time.Hour)
	leak := func(container string) {
		w := about("h1", request(container), time.Now())
		w[api.AttributeNote] = ipam.NoteContainer
		b.must(second(b.cfg.Addresses.Assign(t.Context(), AddressRequest{"net." + container, wire.IPAM{V4: true}, w, nil, nil})))
	}
	leak("killed")
	others := about("h2", request("others"), time.Now()) // another node's, and one that is no container's
	others[api.AttributeNote] = ipam.NoteContainer
	b.must(second(b.cfg.Addresses.Assign(t.Context(), AddressRequest{"net.others", wire.IPAM{V4: true}, others, nil, nil})))
	b.must(second(b.cfg.Addresses.Assign(t.Context(), AddressRequest{"tool.x", wire.IPAM{V4: true}, about("h1", request("x"), time.Now()), nil, nil})))
	for i, tt := range []struct {
		now   time.Time
		freed int
	}{
		{time.Now(), 0}, // too young
		{later, 0},      // seen for the first time
		{later, 1},
		{later, 0},
	} {
		freed, err := b.cfg.Addresses.Sweep(t.Context(), tt.now)
		b.must(err)
		if len(freed) != tt.freed {
			t.Errorf("sweep %d freed %v, want %d", i, freed, tt.freed)
		}
	}
	left := b.left()
	for _, k := range append(kept, "net.others", "tool.x") {
		if !strings.Contains(strings.Join(left, " "), k) {
			t.Errorf("%s was freed; left: %v", k, left)
		}
	}
}
