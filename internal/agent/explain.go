package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// Flow is a kind of packets.
type Flow = nft.Flow

// Way is what becomes of packets between an address and some workloads or a host endpoint of this host, as the kernel has it.
type Way struct {
	nft.Way
	Workloads []string `json:"workloads"` // to whom the datastore gives the interfaces, in their order; of a host endpoint none
	Selected  []string `json:"selected"`  // the selections of local policy that the address is in, by the datastore
}

// Explain reads Twill's table back from the kernel, and finds the ways through it of packets between an address and each workload and host endpoint of
// this host. Flow nil: of all kinds of packets of which the table makes a difference. The datastore is asked for names alone. It
// changes nothing, and needs no running agent.
func Explain(ctx context.Context, cfg Config, store datastore.Store, peer netip.Addr, flow *Flow) ([]Way, error) {
	d, err := openKernel()
	if err != nil {
		return nil, fmt.Errorf("open netlink (are you root?): %w", err)
	}
	defer d.close()
	batch, err := d.intents(ctx, cfg, store)
	if err != nil {
		return nil, err
	}
	rs, err := d.nft.List(kernel.TableName)
	if err != nil {
		return nil, err
	}
	if !rs.Exists {
		return nil, fmt.Errorf("there is no table inet %s in the kernel: no agent has run here", kernel.TableName)
	}
	found, err := nft.Explain(rs, peer, flow)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, e := range batch.Endpoints {
		names[e.Link] = cmp.Or(e.Label, e.ID.String())
	}
	selected := selectionsOf(batch, peer)
	out := make([]Way, 0, len(found))
	for _, w := range found {
		x := Way{Way: w, Workloads: []string{}, Selected: selected}
		for _, link := range w.Interfaces {
			if w.Host != "" {
				break
			}
			x.Workloads = append(x.Workloads, cmp.Or(names[link], link))
		}
		out = append(out, x)
	}
	return out, nil
}

// selectionsOf returns the texts of the sets that an address is in.
func selectionsOf(b intent.Batch, addr netip.Addr) []string {
	out := []string{}
	for _, s := range b.IPSets {
		if slices.ContainsFunc(s.Members, func(m intent.Member) bool { return m.Prefix.Contains(addr) }) {
			out = append(out, s.Comment)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// intents returns what the datastore wants of this node, as an agent that starts would calculate it.
func (d kernelHandles) intents(ctx context.Context, cfg Config, store datastore.Store) (intent.Batch, error) {
	g, err := d.graph(cfg)
	if err != nil {
		return intent.Batch{}, err
	}
	for _, prefix := range watchedPrefixes {
		all, err := store.List(ctx, prefix)
		if err != nil {
			return intent.Batch{}, err
		}
		g.Update(all.Items)
	}
	g.SetInSync()
	return g.Flush(), nil
}
