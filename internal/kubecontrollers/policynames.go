package kubecontrollers

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources/policynames"
)

// policyNamesConfig is what the controller of policies' names needs.
type policyNamesConfig struct {
	Store    datastore.Store
	Settings func() Settings
	Turn     func(key string, err error)
	Log      *slog.Logger
}

// policyNames has policies that older versions of upstream wrote stored under the names that users know, as upstream's controller of that does, once
// no older agent can be in the cluster.
type policyNames struct {
	cfg  policyNamesConfig
	loop *controller.Controller

	// The loop's alone.
	older   map[string]bool   // keys that need another name
	refused map[string]string // why, as it was logged, by key
	waits   string            // what the log says that is waited for
}

func newPolicyNames(cfg policyNamesConfig) *policyNames {
	p := &policyNames{cfg: cfg, older: map[string]bool{}, refused: map[string]string{}}
	var prefixes []string
	for _, k := range api.Kinds() {
		if k.Policy {
			prefixes = append(prefixes, api.KeyPrefix(k.Kind, ""))
		}
	}
	p.loop = controller.New(controller.Config{
		Name: "names of policies", Store: cfg.Store, Prefixes: prefixes, Log: cfg.Log, Observe: p.observe,
		Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			again, err := p.reconcile(ctx)
			cfg.Turn(key, err)
			return again, err
		},
	})
	return p
}

// olderNames is the one key of the loop: most clusters have nothing to rename, and those that have it do it once.
const olderNames = "policies"

// again has the settings looked at.
func (p *policyNames) again() { p.loop.Enqueue(olderNames, 0) }

// observe wants a turn also when another policy has changed: it may be the one that had a name.
func (p *policyNames) observe(u api.Update) []string {
	if delete(p.older, u.Key); u.Value == nil {
		delete(p.refused, u.Key)
	}
	if u.Value != nil && policynames.Needs(u) {
		p.older[u.Key] = true
	}
	if len(p.older) == 0 {
		return nil
	}
	return []string{olderNames}
}

// reconcile renames what there is to rename. Of what is refused a change of a policy brings another turn.
func (p *policyNames) reconcile(ctx context.Context) (again time.Time, err error) {
	if len(p.older) == 0 || !p.cfg.Settings().PolicyNames {
		return again, nil
	}
	if again, err = p.wait(ctx); err != nil || !again.IsZero() {
		return again, err
	}
	for _, key := range slices.Sorted(maps.Keys(p.older)) {
		step, failed := policynames.Renaming{}.RenameKey(ctx, p.cfg.Store, key)
		err = errors.Join(err, failed)
		switch step.What {
		case policynames.Renamed, policynames.Removed:
			if failed == nil {
				p.cfg.Log.Info("a policy is stored under the name that users know", "policy", step.Policy, "was", step.Stored, "what", step.What)
			}
		case policynames.Refused, policynames.Left:
			if p.refused[key] != step.Note {
				p.cfg.Log.Warn("a policy keeps its older name", "policy", step.Policy, "stored", step.Stored, "why", step.Note)
			}
			p.refused[key] = step.Note
		}
	}
	return again, err
}

// wait returns when to look again for older agents; zero: there are none.
func (p *policyNames) wait(ctx context.Context) (again time.Time, err error) {
	err = policynames.CheckAgents(ctx, p.cfg.Store)
	var old *policynames.OldAgentsError
	if !errors.As(err, &old) {
		p.waits = ""
		return again, err
	}
	if p.waits != old.Error() {
		p.waits = old.Error()
		p.cfg.Log.Warn("policies keep their older names for now", "why", old, "policies", len(p.older))
	}
	return time.Now().Add(lookEvery), nil
}
