package kubecontrollers

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// closedConfig is what the controller of policies that are closed in part needs.
type closedConfig struct {
	Views datastore.Store // which shows what Kubernetes has itself, and nothing else
	Users policyUsers
	Turn  func(key string, err error)
	Log   *slog.Logger
}

// policyUsers are who wrote the policies of Kubernetes, as package apiserver reaches them.
type policyUsers interface {
	// PolicyClosed sends an event about what could not be translated, once for each text.
	PolicyClosed(ctx context.Context, of form.Origin, uid, reasons string) error
	// PolicyStatus writes that into the status of a version of a policy; without reasons, that all could be.
	PolicyStatus(ctx context.Context, of form.Origin, version, reasons string) error
}

// closed reports to users which of Kubernetes' policies are closed in part, since they could not be translated. Agents say nothing of it:
// each has the same policies.
type closed struct {
	cfg   closedConfig
	loop  *controller.Controller
	known map[string]closedPolicy // by key: what is closed, and what has a status; the loop's alone
}

// closedPolicy is one version of a policy.
type closedPolicy struct {
	of           form.Origin
	uid, version string
	reasons      string // empty: nothing is closed
	sent         string // the reasons of which an event was sent
}

func newClosed(cfg closedConfig) *closed {
	c := &closed{cfg: cfg, known: map[string]closedPolicy{}}
	c.loop = controller.New(controller.Config{
		Name: "report on policies", Store: cfg.Views, Observe: c.observe, Log: cfg.Log, MaxBackoff: 5 * time.Minute,
		Prefixes: []string{api.KeyPrefix(api.KindNetworkPolicy, ""), api.KeyPrefix(api.KindGlobalNetworkPolicy, "")},
		Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			err := c.reconcile(ctx, key)
			cfg.Turn(key, err)
			return time.Time{}, err
		},
	})
	return c
}

func (c *closed) run(ctx context.Context) error { return c.loop.Run(ctx) }

// marked is in a stored policy of which something is closed.
var marked = []byte(api.AnnotationNotTranslated)

// observe takes over a policy. Most are whole, and no kind of those that are many has a status: they are not decoded.
func (c *closed) observe(u api.Update) []string {
	was := c.known[u.Key]
	delete(c.known, u.Key)
	of, ok := form.OriginOf(u.Key)
	if u.Value == nil || !ok || of.Namespace != "" && !bytes.Contains(u.Value, marked) {
		return nil
	}
	st, _ := api.DecodeStored(u)
	if st.Resource == nil {
		return nil // it was encoded here
	}
	m := st.Resource.Meta()
	p := closedPolicy{of: of, uid: m.UID, version: u.Revision.String(), reasons: m.Annotations[api.AnnotationNotTranslated]}
	if was.uid == p.uid {
		p.sent = was.sent
	}
	c.known[u.Key] = p
	return []string{u.Key}
}

// reconcile reports on one.
func (c *closed) reconcile(ctx context.Context, key string) error {
	p, ok := c.known[key]
	if !ok {
		return nil
	}
	var err error
	if p.reasons != p.sent {
		if p.reasons != "" {
			c.cfg.Log.Warn("what could not be translated of a policy is closed", "kind", p.of.Kind, "namespace", p.of.Namespace, "name", p.of.Name, "reasons", p.reasons)
			err = c.cfg.Users.PolicyClosed(ctx, p.of, p.uid, p.reasons)
		}
		if err == nil {
			p.sent = p.reasons
			c.known[key] = p
		}
	}
	if p.of.Namespace == "" { // a NetworkPolicy has no status
		err = errors.Join(err, c.cfg.Users.PolicyStatus(ctx, p.of, p.version, p.reasons))
	}
	return err
}
