package agent

import (
	"context"
	"fmt"

	"github.com/twillnet/twill/internal/dataplane/fib"
	"github.com/twillnet/twill/internal/dataplane/host"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// Difference is one deviation of the kernel from the desired state.
type Difference struct {
	Part string `json:"part"` // nft, fib or host
	What string `json:"what"`
}

// comparer is a driver that can compute what Apply would change.
type comparer interface {
	Merge(intent.Batch)
	Differences(context.Context) ([]string, error)
}

// Verify computes the desired state of this node from the datastore, as an agent
// that starts would, and compares the kernel with it. It changes nothing, and
// needs no running agent.
func Verify(ctx context.Context, cfg Config, store datastore.Store) ([]Difference, error) {
	d, err := openKernel()
	if err != nil {
		return nil, fmt.Errorf("open netlink (are you root?): %w", err)
	}
	defer d.close()
	g, err := d.graph(cfg)
	if err != nil {
		return nil, err
	}
	for _, prefix := range watchedPrefixes {
		all, err := store.List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		g.Update(all.Items)
	}
	g.SetInSync()
	batch := g.Flush()
	links, err := ifmon.List(d.rtnl)
	if err != nil {
		return nil, err
	}
	policy := nft.New(d.nft, nft.Config{Recheck: true})
	policy.Links(links)
	routes, interfaces := fib.New(d.rtnl), host.New(d.rtnl, d.sysctl, host.Config{})
	routes.Links(links)
	interfaces.Links(links)
	var out []Difference
	for _, p := range []struct {
		name string
		comparer
	}{{"nft", policy}, {"fib", routes}, {"host", interfaces}} {
		p.Merge(batch)
		found, err := p.Differences(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		for _, what := range found {
			out = append(out, Difference{p.name, what})
		}
	}
	return out, nil
}
