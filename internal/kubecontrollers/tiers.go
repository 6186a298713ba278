package kubecontrollers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/resources"
)

// tiers holds a Tier that is deleted, by upstream's finalizer, for as long as policies are in it: without their tier they would not apply.
type tiers struct {
	cfg    holdConfig
	loop   *controller.Controller
	stored map[string]api.Update // the loop's alone
}

// conditionReady of a tier is False while it is being deleted.
const conditionReady = "Ready"

// mostNamed is how many policies a condition names.
const mostNamed = 10

func newTiers(cfg holdConfig) *tiers {
	t := &tiers{cfg: cfg, stored: map[string]api.Update{}}
	t.loop = controller.New(controller.Config{
		Name: "tiers", Store: cfg.Store, Prefixes: []string{api.KeyPrefix(api.KindTier, "")}, Log: cfg.Log,
		Observe: func(u api.Update) []string {
			if t.stored[u.Key] = u; u.Value == nil {
				delete(t.stored, u.Key)
			}
			return []string{u.Key}
		},
		Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			again, err := t.reconcile(ctx, key)
			cfg.Turn(key, err)
			return again, err
		},
	})
	return t
}

// reconcile gives a tier the finalizer, or takes it from one that is being deleted and holds nothing.
func (t *tiers) reconcile(ctx context.Context, key string) (again time.Time, err error) {
	u, there := t.stored[key]
	if !there {
		return time.Time{}, nil
	}
	st, err := api.DecodeStored(u)
	r, ok := st.Resource.(*api.Tier)
	if err != nil || !ok {
		return time.Time{}, controller.Terminal(err)
	}
	h := heldResource{at: u, meta: r.Meta(), has: r.Status.Conditions, finalizer: api.FinalizerTier, hold: true}
	if r.Metadata.DeletionTimestamp != "" {
		if !slices.Contains(r.Metadata.Finalizers, api.FinalizerTier) {
			return time.Time{}, nil // another holds it
		}
		holds, err := resources.PoliciesOf(ctx, t.cfg.Store, r.Metadata.Name)
		if err != nil {
			return time.Time{}, err
		}
		if h.hold = len(holds) > 0; h.hold {
			named := strings.Join(holds[:min(len(holds), mostNamed)], ", ")
			if len(holds) > mostNamed {
				named += ", …"
			}
			h.conditions = []api.Condition{{
				Type: conditionReady, Status: "False", Reason: api.ReasonTerminating,
				Message: fmt.Sprintf("it is being deleted, and stays until no policy is in it: %d of them, %s", len(holds), named),
			}}
			again = time.Now().Add(lookAtHeld)
		}
	}
	did, err := h.write(ctx, t.cfg.Store)
	if err == nil && did && !h.hold {
		t.cfg.Log.Info("a tier that was deleted is gone: no policy is in it", "tier", r.Metadata.Name)
	}
	return again, err
}
