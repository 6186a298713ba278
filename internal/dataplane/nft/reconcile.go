package nft

import (
	"errors"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// Sets and maps by which the skeleton finds interfaces, keyed by their names.
const (
	setLinks  = kernel.SetWorkloads // of workloads whose policy is in force
	setClosed = kernel.SetClosed    // of workloads that must carry nothing
	mapIn     = "wl-in"             // to the chain through which a workload receives
	mapOut    = "wl-out"            // to the chain through which it sends
	mapSource = "wl-source"         // to the chain of addresses it may send from besides its own
)

// mapNames are the maps in the kernel.
var mapNames = [...]string{desired.Receives: mapIn, desired.Sends: mapOut, desired.Sources: mapSource}

// interfaces wants the sets and maps of interfaces.
func (d *Driver) interfaces() {
	for _, name := range []string{setLinks, setClosed} {
		d.want(d.kset(nftables.Set{Table: d.cfg.Table, Name: name, Key: nftables.TypeIfname}), true)
	}
	for _, name := range mapNames {
		d.want(d.kset(nftables.Set{Table: d.cfg.Table, Name: name, Key: nftables.TypeIfname, Data: nftables.TypeVerdict}), true)
	}
}

// Merge takes a change in. It touches no kernel. Routes and peers are other drivers'.
func (d *Driver) Merge(b intent.Batch) {
	d.mergeSets(b)
	d.state.Merge(b)
	for _, in := range b.IPSets { // at once, so that what is read back before the next refresh finds them
		if s := d.sets[in.ID]; s != nil && d.state.Named(in.ID) {
			d.nameSet(s)
		}
	}
	d.host, d.configured = d.state.Host()
}

// Links takes note of the addresses by which those host endpoints are found that name no interface.
func (d *Driver) Links(changes []ifmon.Change) {
	for _, c := range changes {
		a := desired.Addrs{Link: c.Name}
		for _, p := range c.Addrs {
			if !c.Gone {
				a.Addrs = append(a.Addrs, p.Addr())
			}
		}
		d.state.Links([]desired.Addrs{a})
	}
}

// refresh takes over what is wanted now, in the form of the kernel.
func (d *Driver) refresh() {
	c := d.state.Changes()
	for _, s := range c.Sets {
		d.useSet(s)
	}
	for _, x := range c.Chains {
		d.setChain(x)
	}
	for _, name := range c.Gone {
		d.dropChain(name)
	}
	for _, l := range c.Links {
		d.setLink(l)
	}
}

// setChain says what a chain should be. That it cannot be rendered is the owner's fault.
func (d *Driver) setChain(x desired.Chain) {
	rs, names, err := d.render(x)
	if err != nil {
		// Only a set of the wrong kind or none leads here, and those were looked for before.
		x = d.state.Broken(x, errors.Join(errors.New("our own mistake"), err))
		rs, names, _ = d.render(x)
	}
	d.cfg.Names.Chain(x.Name, names)
	c := d.chains[x.Name]
	if c == nil {
		c = &chain{name: x.Name}
		d.chains[x.Name] = c
	}
	for i := range rs {
		rs[i].Table, rs[i].Chain = d.cfg.Table, x.Name
	}
	c.spec = nftables.Chain{Table: d.cfg.Table, Name: x.Name, Comment: comment(x.Comment), Base: hookOf(x.Hook)}
	c.wanted, c.rules, c.owner, c.pinned = true, rs, x.Owner, x.Pinned
	c.sum = sumOf(rs)
	d.checkChain(c)
}

// dropChain says that a chain should not be.
func (d *Driver) dropChain(name string) {
	d.cfg.Names.Chain(name, nil)
	if c := d.chains[name]; c != nil {
		c.wanted, c.rules = false, nil
		d.checkChain(c)
	}
}

// setLink says what an interface leads to.
func (d *Driver) setLink(l desired.Link) {
	name := string(nftables.KeyIfname(l.Name))
	put := func(set, value string, in bool) {
		k := d.ksets[set]
		if in {
			k.elems.Desire(name, value)
		} else {
			k.elems.Undesire(name)
		}
		d.checkKset(k)
	}
	put(setLinks, "", l.Open)
	put(setClosed, "", l.Closed)
	for m, set := range mapNames {
		chain := l.Chain(desired.Map(m))
		put(set, chain, chain != "")
	}
}

// costs says what desired must know of the form that sets and rules have here.
type costs struct{ *Driver }

// Rule is how many kernel rules stand for a neutral one, and how many elements their lists have.
func (d costs) Rule(r rules.Rule) (n, elements int) {
	fs := []intent.Family{intent.AnyFamily}
	if r.ByFamily() {
		fs = families[:]
	}
	for i, f := range fs {
		fr := r
		if f != intent.AnyFamily {
			of, applies := r.ForFamily(f)
			if !applies {
				continue
			}
			fr = of
		}
		ways, listed := 1, 0
		for _, t := range fr.Terms {
			listed += len(t.Nets) + len(t.Ports)
			if s := d.sets[t.Set]; (t.Kind == rules.Addrs || t.Kind == rules.PortSet) && !t.Not && s != nil {
				ways *= len(d.kinds(s, i))
			}
		}
		n, elements = n+ways, elements+ways*listed
	}
	return n, elements
}

// Set is how many members the kernel holds of a set, or would hold.
func (d costs) Set(id intent.SetID) int {
	s := d.sets[id]
	if s == nil {
		return 0
	}
	return s.count(0) + s.count(1)
}

// render turns a chain into rules of the kernel, and says what decides at each.
func (d *Driver) render(x desired.Chain) ([]nftables.Rule, []attribution.Name, error) {
	if x.Guards != nil {
		return d.renderGuards(x.Guards)
	}
	return d.renderRules(x.Rules, x.Generation)
}
