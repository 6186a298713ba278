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

// heldResource is a resource as it should be: with a finalizer, or without, and with conditions. Of other conditions it keeps what it has.
type heldResource struct {
	at         api.Update
	meta       *api.ObjectMeta
	has        []api.Condition
	finalizer  string
	hold       bool
	conditions []api.Condition // one of a type; without a status it should not have it
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
	if slices.ContainsFunc(h.conditions, func(c api.Condition) bool { return !h.holds(c) }) {
		patch["status"] = map[string]any{"conditions": h.written(tree)}
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

// previous is the condition that it has of a type; without a status: none.
func (h heldResource) previous(of string) (was api.Condition) {
	if i := slices.IndexFunc(h.has, func(c api.Condition) bool { return c.Type == of }); i >= 0 {
		was = h.has[i]
	}
	return was
}

// holds reports whether it has a condition, or does not have one that it should not.
func (h heldResource) holds(c api.Condition) bool {
	was := h.previous(c.Type)
	return was.Status == c.Status && was.Reason == c.Reason && was.Message == c.Message
}

// written are the conditions of a stored document, with ours. Since when one holds is known by when it began to.
func (h heldResource) written(tree any) []any {
	document, _ := tree.(map[string]any)
	status, _ := document["status"].(map[string]any)
	out, _ := status["conditions"].([]any)
	for _, c := range h.conditions {
		out = slices.DeleteFunc(slices.Clone(out), func(v any) bool {
			other, _ := v.(map[string]any)
			return other["type"] == c.Type
		})
		if c.Status == "" {
			continue
		}
		since := time.Now().UTC().Format(time.RFC3339)
		if was := h.previous(c.Type); was.Status == c.Status && was.LastTransitionTime != "" {
			since = was.LastTransitionTime
		}
		out = append(out, map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message, "lastTransitionTime": since})
	}
	return out
}

// inKeyOrder are the values of a map, sorted by their keys.
func inKeyOrder[T any](of map[string]T) (out []T) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		out = append(out, of[key])
	}
	return out
}
