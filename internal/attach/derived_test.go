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

// deriving is a store that knows a pod's label, account and link, as Kubernetes does.
type deriving struct {
	datastore.Store
	link string
}

func (deriving) Derives(key string) bool {
	return strings.HasPrefix(key, api.KeyPrefix(api.KindWorkloadEndpoint, ""))
}

func (d deriving) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	if d.Derives(kv.Key) {
		var w api.WorkloadEndpoint
		if err := json.Unmarshal(kv.Value, &w); err != nil {
			return kv, err
		}
		w.Metadata.Labels["from"], w.Spec.InterfaceName, w.Spec.Profiles = "the-pod", d.link, []string{"kns.prod", "ksa.prod.gone"}
		var err error
		if kv.Value, err = api.EncodeStored(&w); err != nil {
			return kv, err
		}
	}
	return d.Store.Create(ctx, kv)
}

func TestAnEndpointThatIsDerivedIsInForceAsTheStoreMadeIt(t *testing.T) {
	b := newBed(t)
	b.known.Store(api.ResourcesPrefix+"profiles/kns.prod", true) // who writes it is another
	b.put(&api.Profile{Object: api.Object{TypeMeta: api.TypeMeta{Kind: api.KindProfile, APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Name: "kns.prod"}}})
	on := func(link string) *Server {
		s := deriving{b.store, link}
		return New(Config{Node: "h1", Store: s, Addresses: NewAddresses(s, "h1"), Kernel: b.kernel, Notes: b.TempDir(), Log: slog.New(slog.DiscardHandler), Know: b.cfg.Know})
	}
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
}
