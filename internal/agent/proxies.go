package agent

import (
	"context"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/dataplane/policysync"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/translate"
)

// proxies are the part that serves workloads' proxies, and what it says to calc.
type proxies struct {
	*policysync.Server
	changed chan map[intent.EndpointID]bool
}

// newProxies makes it, and has calc know which workloads had proxies when the agent was last here.
func newProxies(cfg Config, graph *calc.Graph) proxies {
	p := proxies{changed: make(chan map[intent.EndpointID]bool)}
	to := policysync.Config{Log: cfg.Log.With("part", "policy sync"), Proxied: func(ctx context.Context, is map[intent.EndpointID]bool) error {
		select {
		case p.changed <- is:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	to.Note = cfg.proxied()
	p.Server = policysync.New(to)
	graph.Proxied(p.Held())
	graph.OnProfile(p.profile)
	return p
}

// proxied is the file in which an agent notes which workloads have proxies; empty: none.
func (c Config) proxied() string {
	if c.Socket == "" {
		return ""
	}
	return c.Socket + ".proxied"
}

// profile hands on the labels of a namespace or a service account, which a profile of its name gives to its workloads.
func (p proxies) profile(name string, labels map[string]string, there bool) {
	l := policysync.Labels{Gone: !there}
	if namespace, is := strings.CutPrefix(name, translate.NamespacePrefix); is {
		l.Namespace, l.Labels = namespace, inherited(labels, api.NamespaceLabelPrefix)
		p.Know(l)
	} else if account, is := strings.CutPrefix(name, translate.ServiceAccountPrefix); is {
		namespace, account, ok := strings.Cut(account, ".")
		if ok && namespace != "" && account != "" {
			l.Namespace, l.Account, l.Labels = namespace, account, inherited(labels, api.ServiceAccountLabelPrefix)
			p.Know(l)
		}
	}
}

// inherited are the labels with a prefix, without it.
func inherited(labels map[string]string, prefix string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if k, is := strings.CutPrefix(k, prefix); is {
			out[k] = v
		}
	}
	return out
}

// proxying returns what hands settings on to that part. Before calc is in sync, that nobody wants it means nothing.
func (d *calcLoop) proxying(p proxies) func(config.Settings) {
	return func(s config.Settings) {
		if d.synced {
			p.Configure(s.PolicySync, func() intent.Batch {
				is := d.graph.Intents()
				return intent.Batch{IPSets: is.IPSets, Policies: is.Policies, Endpoints: is.Endpoints}
			})
		}
	}
}
