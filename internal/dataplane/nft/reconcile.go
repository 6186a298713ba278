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

// Sets and maps in which the skeleton looks up interfaces, by name.
const (
	setLinks    = kernel.SetWorkloads // of workloads whose policy is in force
	setClosed   = kernel.SetClosed    // of workloads that must carry nothing
	mapIn       = "wl-in"             // to the chain through which a workload receives
	mapOut      = "wl-out"            // to the chain through which it sends
	mapLimitIn  = "wl-limits-in"      // to the limits of a workload that receives
	mapLimitOut = "wl-limits-out"     // to those of one that sends
	mapSource   = "wl-source"         // to the chain of addresses it may send from other than its own
)

// mapNames are the names of the maps in the kernel.
var mapNames = [...]string{desired.Receives: mapIn, desired.Sends: mapOut, desired.ReceivesWithin: mapLimitIn, desired.SendsWithin: mapLimitOut, desired.Sources: mapSource}

// interfaces makes the sets and maps of interfaces desired.
func (d *Driver) interfaces() {
	names := []string{setLinks, setClosed}
	if d.cfg.Recheck {
		names = append(names, setRecheck)
	}
	for _, name := range names {
		d.want(d.kset(nftables.Set{Table: d.cfg.Table, Name: name, Key: nftables.TypeIfname}), true)
	}
	for _, name := range mapNames {
		d.want(d.kset(nftables.Set{Table: d.cfg.Table, Name: name, Key: nftables.TypeIfname, Data: nftables.TypeVerdict}), true)
	}
}

// Merge merges a change into the desired state. It does not touch the kernel. Routes and peers belong to other drivers.
func (d *Driver) Merge(b intent.Batch) {
	d.mergeSets(b)
	d.state.Members(d.moved)
	d.moved = nil
	d.state.Merge(b)
	for _, in := range b.IPSets { // at once, so that a reading before the next refresh finds their records
		if s := d.sets[in.ID]; s != nil && d.state.Named(in.ID) {
			d.nameSet(s)
		}
	}
	d.host, d.configured = d.state.Host()
}

// Links takes the addresses of interfaces, by which host endpoints that name no interface are found.
func (d *Driver) Links(changes []ifmon.Change) {
	for _, c := range changes {
		d.state.Links([]desired.Addrs{{Link: c.Name, Addrs: c.Addresses()}})
	}
}

// refresh takes the changes of the desired state, and renders them.
func (d *Driver) refresh() {
	c := d.state.Changes()
	for _, s := range c.Sets {
		d.useSet(s)
	}
	d.setTables(c)
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

// setChain makes a chain desired. If it cannot be rendered, its owner is not in force and the chain denies.
func (d *Driver) setChain(x desired.Chain) {
	rs, names, err := d.render(x)
	if err != nil {
		// Only a set of the wrong kind or none leads here, and package desired has excluded those.
		x = d.state.Broken(x, errors.Join(errors.New("internal error"), err))
		rs, names, _ = d.render(x)
	}
	d.cfg.Names.Chain(x.Name, names)
	c := d.chainOf(x.Name)
	for i := range rs {
		rs[i].Table, rs[i].Chain = d.cfg.Table, x.Name
	}
	c.spec = nftables.Chain{Table: d.cfg.Table, Name: x.Name, Comment: comment(x.Comment), Base: hookOf(x.Hook)}
	c.wanted, c.rules, c.owner, c.pinned, c.late = true, rs, x.Owner, x.Pinned, x.Late
	c.sum, c.recheck = sumOf(rs), x.Recheck
	d.checkChain(c)
}

// chainOf finds or makes the record of a chain.
func (d *Driver) chainOf(name string) *chain {
	c := d.chains[name]
	if c == nil {
		c = &chain{name: name}
		d.chains[name] = c
	}
	return c
}

// dropChain makes a chain unwanted.
func (d *Driver) dropChain(name string) {
	d.cfg.Names.Chain(name, nil)
	if c := d.chains[name]; c != nil {
		c.wanted, c.rules = false, nil
		d.checkChain(c)
	}
}

// setLink sets the desired elements for an interface.
func (d *Driver) setLink(l desired.Link) {
	name := string(nftables.KeyIfname(l.Name))
	put := func(set, value string, in bool) {
		k := d.ksets[set]
		switch is, was := k.elems.Desired(name); {
		case was == in && is == value:
			return // many interfaces change in one place only
		case in:
			k.elems.Desire(name, value)
		default:
			k.elems.Undesire(name)
		}
		d.checkKset(k)
	}
	put(setLinks, "", l.Open)
	put(setClosed, "", l.Closed)
	if d.cfg.Recheck {
		put(setRecheck, "", l.Rechecked)
	}
	for m, set := range mapNames {
		chain := l.Chain(desired.Map(m))
		put(set, chain, chain != "")
	}
}

// costs implements desired.Coster: what sets and rules cost as this package renders them.
type costs struct{ *Driver }

// Rule returns how many kernel rules render r, and how many elements their anonymous sets have.
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
		ways, listed := 1, 0 // listed: in the sets of all ways
		for _, t := range fr.Terms {
			var of, in int
			switch s := d.sets[t.Set]; {
			case t.Kind == rules.Nets || t.Kind == rules.Ports:
				of, in = alternatives(t, families[i])
			case (t.Kind == rules.Addrs || t.Kind == rules.PortSet) && !t.Not && s != nil:
				of = len(d.kinds(s, i))
			default:
				of = 1
			}
			ways, listed = ways*of, listed*of+in*ways
		}
		n, elements = n+ways, elements+listed
	}
	return n, elements
}

// alternatives returns by how many rules the kernel finds addresses or ports, and how many elements their anonymous sets have in all.
func alternatives(t rules.Term, f intent.Family) (ways, elements int) {
	all := matchPorts(t)
	if t.Kind == rules.Nets {
		all = nftables.MatchAddrs(address(t.Side, f), t.Nets, t.Not)
	}
	for _, way := range all {
		for _, x := range way {
			if in, ok := x.(nftables.In); ok {
				elements += len(in.Elements)
			}
		}
	}
	return len(all), elements
}

// Set returns how many members of a set the kernel holds, or would hold.
func (d costs) Set(id intent.SetID) int {
	s := d.sets[id]
	if s == nil {
		return 0
	}
	return s.count(0) + s.count(1)
}

// render renders a chain as kernel rules, and returns for each the name of what decides there.
func (d *Driver) render(x desired.Chain) ([]nftables.Rule, []attribution.Name, error) {
	if x.Guards != nil {
		return d.renderGuards(x.Guards)
	}
	return d.renderRules(x.Rules, x.Generation)
}
