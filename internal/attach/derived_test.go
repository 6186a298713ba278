package attach

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
)

// deriving is a store that knows a pod's label, account and link, and its annotations, and that keeps no MAC, as Kubernetes does.
type deriving struct {
	datastore.Store
	link string // of each pod; empty: what the plugin says
	has  *datastore.Annotations
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
