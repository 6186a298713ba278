package agent

import (
	"cmp"
	"context"
	"fmt"

	"github.com/twillnet/twill/internal/dataplane/fib"
	"github.com/twillnet/twill/internal/dataplane/host"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/dataplane/proxy"
	"github.com/twillnet/twill/internal/dataplane/shape"
	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// Difference is one deviation of the kernel from the desired state.
type Difference struct {
	Part string `json:"part"` // nft, fib, tunnel or host
	What string `json:"what"`
}

// comparer is a driver that can compute what Apply would change.
type comparer interface {
	Merge(intent.Batch)
	Differences(context.Context) ([]string, error)
}

// Verified is what Verify found out.
type Verified struct {
	Differences []Difference `json:"differences"` // not nil
	// Chains are the endpoints, by name, whose policy is to be asked rule by rule although the settings want look-ups, with the
	// reason. That is no difference. It is not nil.
	Chains map[string]string `json:"byChains"`
}

// Verify computes the desired state of this node from the datastore, as an agent
// that starts would, and compares the kernel with it. It changes nothing, and
// needs no running agent.
func Verify(ctx context.Context, cfg Config, store datastore.Store) (out Verified, err error) {
	out = Verified{Differences: []Difference{}, Chains: map[string]string{}}
	d, err := openKernel()
	if err != nil {
		return out, fmt.Errorf("open netlink (are you root?): %w", err)
	}
	defer d.close()
	batch, err := d.intents(ctx, cfg, store)
	if err != nil {
		return out, err
	}
	links, err := ifmon.List(d.rtnl)
	if err != nil {
		return out, err
	}
	where, policy, err := d.policyOf(cfg.Socket)
	if err != nil {
		return out, err
	}
	policy.Links(links)
	routes, interfaces := fib.New(d.rtnl), host.New(d.rtnl, d.sysctl, host.Config{})
	routes.Links(links)
	interfaces.Links(links)
	answers := proxy.New(d.rtnl, d.sysctl)
	answers.Links(links)
	answers.Gate(true, func(string) bool { return false })
	for _, p := range []struct {
		name string
		comparer
	}{{where, policy}, {"fib", routes}, {"tunnel", tunnel.New(d.rtnl, tunnel.Config{WireGuard: d.wireguard(cfg.Socket), Sysctl: d.sysctl})}, {"host", interfaces}, {"bandwidth", shape.New(d.rtnl)}, {"proxy", answers}} {
		p.Merge(batch)
		found, err := p.Differences(ctx)
		if err != nil {
			return out, fmt.Errorf("%s: %w", p.name, err)
		}
		for _, what := range found {
			out.Differences = append(out.Differences, Difference{p.name, what})
		}
	}
	driver, ok := policy.(*nft.Driver)
	if !ok {
		return out, nil // iptables has nothing but chains
	}
	plain := driver.Plain()
	for _, e := range batch.Endpoints {
		if why := plain[e.ID]; why != "" {
			out.Chains[cmp.Or(e.Label, e.ID.String())] = why
		}
	}
	return out, nil
}
