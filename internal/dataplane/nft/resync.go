package nft

import (
	"context"
	"fmt"

	"github.com/twillnet/twill/internal/kernel/nftables"
)

// Resync reads the table back. What differs is pending afterwards, whoever made it so; so is the sweep of what is in
// our table and not wanted.
func (d *Driver) Resync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rs, err := d.conn.List(d.cfg.Table)
	if err != nil {
		return fmt.Errorf("read table %s: %w", d.cfg.Table, err)
	}
	before := d.known()
	d.forget()
	d.table = kernelTable{read: true, exists: rs.Exists}
	d.observeChains(rs)
	d.observeSets(rs)
	d.compare(before)
	return nil
}

// forget takes it that the kernel has nothing.
func (d *Driver) forget() {
	d.table.exists, d.table.rebuild = false, false
	for _, c := range d.chains {
		c.exists, c.have = false, sum{}
		d.checkChain(c)
	}
	for _, k := range d.ksets {
		k.exists = false
		k.elems.ResetActual()
		d.checkKset(k)
	}
}

func (d *Driver) observeChains(rs *nftables.Ruleset) {
	byChain := map[string][]nftables.Rule{}
	for _, r := range rs.Rules {
		byChain[r.Chain] = append(byChain[r.Chain], r)
	}
	for _, kc := range rs.Chains {
		c := d.chains[kc.Name]
		if c == nil {
			c = &chain{name: kc.Name}
			d.chains[kc.Name] = c
		}
		c.exists, c.is, c.have = true, kc, sumOf(byChain[kc.Name])
		d.checkChain(c)
	}
}

func (d *Driver) observeSets(rs *nftables.Ruleset) {
	for _, st := range rs.Sets {
		k := d.ksets[st.Name]
		if k == nil {
			k = newKset(st.Set)
			d.ksets[st.Name] = k
		}
		k.exists, k.is = true, st.Set
		k.elems.ObservedAll(func(yield func(string, string) bool) {
			for _, el := range st.Elements {
				if !yield(elementID(el), elementValue(el)) {
					return
				}
			}
		})
		d.checkKset(k)
	}
}
