package kubecontrollers

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// holdConfig is what a controller needs that holds resources until nothing hangs on them.
type holdConfig struct {
	Store datastore.Store
	Turn  func(key string, err error)
	Log   *slog.Logger
}

// lookAtHeld is how often what holds a resource that is being deleted is looked at.
const lookAtHeld = 5 * time.Second

// heldResource is a resource as it should be: with a finalizer, or without, and with a condition.
type heldResource struct {
	at        api.Update
	meta      *api.ObjectMeta
	has       []api.Condition
	finalizer string
	hold      bool
	condition *api.Condition // nil: what it says stays
}

// write makes a resource so, and returns whether there was anything to do. All else that is stored stays as it is.
func (h heldResource) write(ctx context.Context, s datastore.Store) (bool, error) {
	tree, err := resources.Tree(h.at.Value)
	if err != nil {
		return false, err
	}
	patch := map[string]any{}
	if h.hold != slices.Contains(h.meta.Finalizers, h.finalizer) {
		patch["metadata"] = map[string]any{"finalizers": h.finalizers()}
	}
	if h.condition != nil && !h.holds() {
		patch["status"] = map[string]any{"conditions": h.conditions(tree)}
	}
	if len(patch) == 0 {
		return false, nil
	}
	next := h.at
	next.Value = resources.InOrderOf(h.at.Value, resources.MergePatch(tree, patch))
	_, err = s.Update(ctx, next)
	return true, err
}

// finalizers are those of the resource, with ours or without it; nil: none.
func (h heldResource) finalizers() any {
	out := []any{}
	for _, f := range h.meta.Finalizers {
		if f != h.finalizer {
			out = append(out, f)
		}
	}
	if h.hold {
		out = append(out, h.finalizer)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// previous is the condition that it has of the type.
func (h heldResource) previous() *api.Condition {
	i := slices.IndexFunc(h.has, func(c api.Condition) bool { return c.Type == h.condition.Type })
	if i < 0 {
		return nil
	}
	return &h.has[i]
}

// holds reports whether it has the condition.
func (h heldResource) holds() bool {
	was := h.previous()
	return was != nil && was.Status == h.condition.Status && was.Reason == h.condition.Reason && was.Message == h.condition.Message
}

// conditions are those of a stored document, with ours. Since when it holds is known by when it began to.
func (h heldResource) conditions(tree any) []any {
	c := h.condition
	since := time.Now().UTC().Format(time.RFC3339)
	if was := h.previous(); was != nil && was.Status == c.Status && was.LastTransitionTime != "" {
		since = was.LastTransitionTime
	}
	document, _ := tree.(map[string]any)
	status, _ := document["status"].(map[string]any)
	list, _ := status["conditions"].([]any)
	out := slices.DeleteFunc(slices.Clone(list), func(v any) bool {
		other, _ := v.(map[string]any)
		return other["type"] == c.Type
	})
	return append(out, map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message, "lastTransitionTime": since})
}

// inKeyOrder are the values of a map, sorted by their keys.
func inKeyOrder[T any](of map[string]T) (out []T) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		out = append(out, of[key])
	}
	return out
}
