package attach

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// deriving is a store that knows a pod's label, account and link, and its annotations, and that keeps no MAC, as Kubernetes does.
type deriving struct {
	datastore.Store
	link string // of each pod; empty: what the plugin says
	has  *datastore.Annotations
	// status are the networks that the kubelet reports; none: what was written.
	status []string
}

func (deriving) Derives(key string) bool {
	return strings.HasPrefix(key, api.KeyPrefix(api.KindWorkloadEndpoint, ""))
}

func (d deriving) Annotations(ctx context.Context, namespace, _ string) (datastore.Annotations, error) {
	if d.has == nil {
		return datastore.Annotations{}, datastore.ErrNotFound
	}
	_, err := d.Get(ctx, api.ResourcesPrefix+"profiles/kns."+namespace) // a call that may fail
	if errors.Is(err, datastore.ErrNotFound) {
		err = nil
	}
	return *d.has, err
}

func (d deriving) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	return d.derive(ctx, kv, d.Store.Create)
}

func (d deriving) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	return d.derive(ctx, kv, d.Store.Update)
}

func (d deriving) derive(ctx context.Context, kv api.Update, write func(context.Context, api.Update) (api.Update, error)) (api.Update, error) {
	if d.Derives(kv.Key) {
		var w api.WorkloadEndpoint
		if err := json.Unmarshal(kv.Value, &w); err != nil {
			return kv, err
		}
		w.Metadata.Labels["from"], w.Spec.MAC, w.Spec.Profiles = "the-pod", "", []string{"kns.prod", "ksa.prod.gone"}
		if d.status != nil {
			w.Spec.IPNetworks = d.status
		}
		if d.link != "" {
			w.Spec.InterfaceName = d.link
		}
		var err error
		if kv.Value, err = api.EncodeStored(&w); err != nil {
			return kv, err
		}
	}
	return write(ctx, kv)
}

// on is a server on a store that derives endpoints.
func (b *bed) on(d deriving) *Server {
	d.Store = b.store
	return New(Config{Node: "h1", Store: d, Addresses: NewAddresses(d, "h1"), Kernel: b.kernel, Notes: b.TempDir(), Log: slog.New(slog.DiscardHandler), Know: b.cfg.Know})
}

func TestAnEndpointThatIsDerivedIsInForceAsTheStoreMadeIt(t *testing.T) {
	b := newBed(t)
	b.known.Store(api.ResourcesPrefix+"profiles/kns.prod", true) // who writes it is another
	b.put(&api.Profile{Object: api.Object{TypeMeta: api.TypeMeta{Kind: api.KindProfile, APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Name: "kns.prod"}}})
	on := func(link string) *Server { return b.on(deriving{link: link, has: &datastore.Annotations{}}) }
	if _, err := on("cali7").Attach(t.Context(), ofPod("7", "p")); err != nil {
		t.Fatal(err)
	}
	key := api.ResourcesPrefix + "workloadendpoints/prod/h1-k8s-p-eth0"
	if got := b.kernel.received[key]; !strings.Contains(got, `"from":"the-pod"`) || !strings.Contains(got, "ksa.prod.gone") {
		t.Errorf("calc received %q", got)
	}
	if got := b.kernel.received[api.ResourcesPrefix+"profiles/kns.prod"]; got == "" {
		t.Error("calc did not receive the namespace's profile")
	}
	var refused *wire.Refusal
	if _, err := on("another").Attach(t.Context(), ofPod("8", "q")); !errors.As(err, &refused) || !strings.Contains(err.Error(), "another") {
		t.Errorf("a link that the store calls otherwise: %v", err)
	}
	if left := b.left(); len(left) != 3 { // the first pod's endpoint, and its two addresses
		t.Errorf("left are %v", left)
	}
	b.kernel.inForce = errFault
	if _, err := on("calir").Attach(t.Context(), ofPod("r", "r")); !errors.Is(err, errFault) || len(b.left()) != 3 {
		t.Errorf("what does not come in force: %v, and left are %v", err, b.left())
	}
}

// TestAPodWithANewSandboxIsInForceWithItsNewAddresses: the kubelet reports those of the one before until all containers are started.
func TestAPodWithANewSandboxIsInForceWithItsNewAddresses(t *testing.T) {
	b := newBed(t)
	old := []string{"10.65.0.77/32", "fd65::77/128"}
	out, err := b.on(deriving{has: &datastore.Annotations{}, status: old}).Attach(t.Context(), ofPod("7", "p"))
	b.must(err)
	key := api.ResourcesPrefix + "workloadendpoints/prod/h1-k8s-p-eth0"
	got := b.kernel.received[key]
	for i, a := range out.Addrs {
		if !strings.Contains(got, `"`+a.String()+"/") || strings.Contains(got, old[i]) {
			t.Errorf("the pod has %s, and calc received %s", a, got)
		}
	}
	if len(b.kernel.given) != 1 {
		t.Errorf("later updates are to have its addresses: %q", b.kernel.given)
	}
}

// TestAnAgentThatStartsKnowsWhichAddressesItGave: else a pod of which the kubelet still reports those of its last sandbox, by now another pod's, would be
// the older one that has them.
func TestAnAgentThatStartsKnowsWhichAddressesItGave(t *testing.T) {
	b := newBed(t)
	s := b.on(deriving{has: &datastore.Annotations{}, status: []string{"10.65.0.77/32", "fd65::77/128"}})
	cfg := s.cfg
	received := func() (before, after string) {
		k := &kernel{received: map[string]string{}}
		cfg.Kernel = k
		s = New(cfg)
		u, err := b.store.InMemory.Get(t.Context(), podsEndpointKey)
		b.must(err)
		return string(u.Value), string(k.changes.Filter([]api.Update{u})[0].Value)
	}
	out, err := s.Attach(t.Context(), ofPod("7", "p"))
	b.must(err)
	b.must(second(s.Detach(t.Context(), ofPod("6", "p").Ref))) // its last sandbox, late
	for range 2 {
		before, after := received()
		for _, a := range out.Addrs {
			if strings.Contains(before, `"`+a.String()+"/") || !strings.Contains(after, `"`+a.String()+"/") {
				t.Errorf("it was given %s, is stored as %s, and calc receives %s", a, before, after)
			}
		}
	}
	again, err := s.Attach(t.Context(), ofPod("8", "p"))
	b.must(err)
	if _, after := received(); !strings.Contains(after, `"`+again.Addrs[0].String()+"/") {
		t.Errorf("its next sandbox was given %s, and calc receives %s", again.Addrs[0], after)
	}
	b.must(second(s.Detach(t.Context(), ofPod("8", "p").Ref)))
	if files, err := os.ReadDir(cfg.Notes); err != nil || len(files) > 0 {
		t.Errorf("of a pod that is detached there are still %v, %v", files, err)
	}
}

const podsEndpointKey = api.ResourcesPrefix + "workloadendpoints/prod/h1-k8s-p-eth0"

// podsEndpoint is an update of a pod's endpoint, with a floating address.
func podsEndpoint(t *testing.T, revision, container string, networks ...string) api.Update {
	w := api.New(api.KindWorkloadEndpoint).(*api.WorkloadEndpoint)
	w.Metadata.Name, w.Metadata.Namespace = "h1-k8s-p-eth0", "prod"
	w.Spec = api.WorkloadEndpointSpec{
		Orchestrator: "k8s", Node: "h1", Pod: "p", Endpoint: "eth0", ContainerID: container, IPNetworks: networks,
		IPNATs: []api.IPNAT{{InternalIP: "10.65.0.1", ExternalIP: "192.0.2.1"}},
	}
	value, err := api.EncodeStored(w)
	if err != nil {
		t.Fatal(err)
	}
	return api.Update{Key: podsEndpointKey, Value: value, Revision: api.RevisionOf(revision)}
}

// TestAnEndpointThatIsReadAgainKeepsTheAddressesThatItWasGiven: whoever writes the pod meanwhile says nothing else of them.
func TestAnEndpointThatIsReadAgainKeepsTheAddressesThatItWasGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const old, given = "10.65.0.1/32", "10.65.0.2/32"
		s := memstore.New()
		o := &Overlay{Order: s}
		o.Announce(podsEndpointKey, "cali1")
		mine, err := s.Create(t.Context(), podsEndpoint(t, "", "c", old))
		if err != nil {
			t.Fatal(err)
		}
		later, err := s.Update(t.Context(), api.Update{Key: podsEndpointKey, Value: mine.Value, Revision: mine.Revision})
		if err != nil {
			t.Fatal(err)
		}
		o.Filter([]api.Update{later}) // before the answer to our own write
		o.Give(podsEndpointKey, Given{Container: "c", Networks: []string{given}, Instead: []string{old}})
		o.Pass([]api.Update{mine})
		ctx, cancel := context.WithCancel(t.Context())
		ended, passed := make(chan error), 0
		go func() {
			ended <- o.Verify(ctx, s, func(_ context.Context, us []api.Update) error {
				for _, u := range o.Current(us) {
					if passed++; !strings.Contains(string(u.Value), given) {
						t.Errorf("what was read is passed as %s", u.Value)
					}
				}
				return nil
			})
		}()
		synctest.Wait()
		cancel()
		<-ended
		if got := o.Filter([]api.Update{later}); passed != 1 || len(got) != 1 || !strings.Contains(string(got[0].Value), given) {
			t.Errorf("it was passed %d times, and the watch brings it as %s", passed, got)
		}
	})
}

func TestAnEndpointHasTheAddressesThatItWasGivenUntilItsPodSaysSomethingElse(t *testing.T) {
	const key = podsEndpointKey
	update := func(revision, container string, networks ...string) api.Update {
		return podsEndpoint(t, revision, container, networks...)
	}
	const old, given, third = "10.65.0.1/32", "10.65.0.2/32", "10.65.0.3/32"
	for _, tt := range []struct {
		name string
		then api.Update
		want string // of its text
		ends bool
	}{
		{"the old ones", update("8", "c", old), given, false},
		{"the new ones", update("8", "c", given), given, true},
		{"others", update("8", "c", third), third, true},
		{"another container's", update("8", "d", old), old, true},
		{"that it is gone", api.Update{Key: key, Revision: api.RevisionOf("8")}, "", true},
	} {
		o := Overlay{Order: memstore.New()}
		o.Announce(key, "cali1")
		o.Give(key, Given{Container: "c", Networks: []string{given}, Instead: []string{old}})
		o.Pass([]api.Update{update("7", "c", given)})
		if got := o.Current([]api.Update{update("7", "c", old)}); len(got) != 1 || !strings.Contains(string(got[0].Value), given) {
			t.Errorf("%s: what is passed again comes as %s", tt.name, got)
		}
		if got := o.Filter([]api.Update{update("7", "c", old)}); len(got) != 1 || !strings.Contains(string(got[0].Value), given) || !strings.Contains(string(got[0].Value), `"internalIP":"10.65.0.2"`) {
			t.Errorf("%s: what was written comes as %s", tt.name, got)
		}
		if got := o.Filter([]api.Update{tt.then}); len(got) != 1 || !strings.Contains(string(got[0].Value), tt.want) {
			t.Errorf("%s: comes as %s, want %s", tt.name, got, tt.want)
		}
		if got := o.Filter([]api.Update{update("9", "c", old)}); len(got) != 1 || strings.Contains(string(got[0].Value), given) == tt.ends {
			t.Errorf("%s: and then the old ones again, as %s", tt.name, got)
		}
	}
}

// TestWhatOthersWriteWhileAWriteIsAnsweredIsRead: the watch may deliver a later value before the answer to our own write has arrived.
func TestWhatOthersWriteWhileAWriteIsAnsweredIsRead(t *testing.T) {
	for name, written := range map[string]func(*Overlay, api.Update){
		"in force meanwhile": func(o *Overlay, u api.Update) { o.Put([]api.Update{u}) },
		"in force then":      func(o *Overlay, u api.Update) { o.Pass([]api.Update{u}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			o := &Overlay{Order: s}
			o.Announce("k", "cali1")
			mine, err := s.Create(t.Context(), api.Update{Key: "k", Value: []byte("{}")})
			if err != nil {
				t.Fatal(err)
			}
			later, err := s.Update(t.Context(), api.Update{Key: "k", Value: []byte(`{"later":true}`), Revision: mine.Revision})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range []api.Update{mine, later} {
				o.Filter([]api.Update{u})
			}
			written(o, mine)
			ctx, cancel := context.WithCancel(t.Context())
			ended, got := make(chan error), ""
			go func() {
				ended <- o.Verify(ctx, s, func(_ context.Context, us []api.Update) error {
					for _, u := range o.Current(us) {
						got = string(u.Value)
					}
					return nil
				})
			}()
			synctest.Wait()
			cancel()
			<-ended
			if got != `{"later":true}` {
				t.Errorf("%s: passed is %q", name, got)
			}
		})
	}
}
