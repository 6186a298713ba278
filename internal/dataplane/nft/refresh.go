package nft

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

var directions = [2]intent.Direction{intent.Ingress, intent.Egress}

// refresh renders what changed. What refers to something missing is not rendered, and who needs that is closed.
func (d *Driver) refresh() {
	if d.hosts.dirty {
		d.noteStages()
	}
	for len(d.dirtyPolicies) > 0 { // one that goes may free a name that another waits for
		for id := range d.dirtyPolicies {
			delete(d.dirtyPolicies, id)
			before := d.callable[id]
			d.refreshPolicy(id)
			if before == d.callable[id] {
				continue
			}
			for e := range d.policyUser[id] {
				d.recheckEndpoint(e)
			}
		}
	}
	for len(d.dirtyEndpoints) > 0 {
		for id := range d.dirtyEndpoints {
			delete(d.dirtyEndpoints, id)
			d.refreshEndpoint(id)
		}
	}
	for link := range d.dirtyLinks {
		delete(d.dirtyLinks, link)
		d.refreshLink(link)
	}
	if d.hosts.dirty {
		d.refreshHosts()
	}
}

// usable says why a policy cannot be called; nil: it can.
func (d *Driver) usable(id intent.PolicyID) error {
	p := d.policies[id]
	if p == nil {
		return fmt.Errorf("policy %s was not sent", id)
	}
	if f, broken := d.faults[policyKey(id)]; broken && !f.denies {
		return fmt.Errorf("policy %s: %w", id, f.err)
	}
	return nil
}

func (d *Driver) refreshPolicy(id intent.PolicyID) {
	if id.Staged() {
		return // nothing calls it
	}
	key := policyKey(id)
	p := d.policies[id]
	if p == nil {
		delete(d.faults, key)
	} else if f, broken := d.faults[key]; !broken || !f.kernel {
		if broken {
			delete(d.faults, key)
			d.touched[key] = struct{}{}
		}
		err := d.missingSet(p)
		if err == nil {
			err = d.taken(key, policyChains(id)...)
		}
		if err != nil {
			d.fail(key, err)
		}
	}
	d.charge(id, p)
	callable := d.usable(id) == nil
	if callable {
		d.callable[id] = true
	} else {
		delete(d.callable, id)
	}
	for _, dir := range directions {
		if !callable {
			d.dropChain(rules.PolicyChain(id, dir), key)
			continue
		}
		d.renderPolicy(p, earlyActions(rules.Policy(d.within(p.Policy), dir), d.hosts.early[id]))
	}
	d.refreshSilent(id, callable)
}

// refreshSilent makes a second chain of a policy that rejects, if host endpoints ask it about what their host sends. Those
// must call the one chain or the other.
func (d *Driver) refreshSilent(id intent.PolicyID, callable bool) {
	name := rules.SilentChain(id, intent.Egress)
	had := d.chains[name] != nil && d.chains[name].wanted
	wanted := callable && d.hosts.mute[id] && rules.Rejects(d.within(d.policies[id].Policy), intent.Egress)
	if wanted {
		d.renderPolicy(d.policies[id], rules.Silent(d.within(d.policies[id].Policy), intent.Egress))
	} else {
		d.dropChain(name, policyKey(id))
	}
	d.hosts.dirty = d.hosts.dirty || wanted != had
}

// renderPolicy makes a chain of a policy a wanted one. Its logs begin as the settings say.
func (d *Driver) renderPolicy(p *policy, c rules.Chain) {
	for i := range c.Rules {
		if c.Rules[i].Action == rules.Log {
			if begin := d.host.Log.Begin(p.Tier, p.ID); begin != "" {
				c.Rules[i].Comment = rules.Shorten(begin + ": " + c.Rules[i].Comment)
			}
		}
	}
	d.renderChain(c, policyKey(p.ID))
}

// missingSet says which set of a policy cannot be looked up.
func (d *Driver) missingSet(p *policy) error {
	for _, id := range p.sets {
		s := d.sets[id]
		if s == nil {
			return fmt.Errorf("set %s was not sent", id)
		}
		if f, broken := d.faults[s.key()]; broken {
			return fmt.Errorf("set %s: %w", id, f.err)
		}
	}
	return d.wrongKinds(p)
}

// wrongKinds finds sets of ports asked for as addresses, or the reverse.
func (d *Driver) wrongKinds(p *policy) error {
	for _, r := range slices.Concat(p.Ingress, p.Egress) {
		for _, peer := range []intent.Peer{r.Src, r.Dst} {
			for _, id := range slices.Concat(peer.Sets, peer.NotSets) {
				if d.sets[id].kind != intent.SetAddrs {
					return fmt.Errorf("set %s does not hold addresses", id)
				}
			}
			for _, id := range slices.Concat(peer.PortSets, peer.NotPortSets) {
				if d.sets[id].kind != intent.SetPorts {
					return fmt.Errorf("set %s does not hold ports", id)
				}
			}
		}
	}
	return nil
}

func (d *Driver) fail(key intent.Key, err error) {
	d.faults[key] = fault{err: err}
	d.touched[key] = struct{}{}
}

// recheckEndpoint renders an endpoint again if a policy of it became usable or ceased to be.
func (d *Driver) recheckEndpoint(id intent.EndpointID) {
	e := d.endpoints[id]
	if e == nil {
		return
	}
	if _, broken := d.faults[endpointKey(id)]; broken || (d.needs(e) == nil) != e.open {
		d.dirtyEndpoints[id] = struct{}{}
	}
}

// needs says what an endpoint lacks to carry traffic.
func (d *Driver) needs(e *endpoint) error {
	if len(e.Link) > maxLink {
		return fmt.Errorf("interface name %q is too long", e.Link)
	}
	for _, id := range e.policies {
		if !d.callable[id] {
			return d.usable(id)
		}
	}
	return nil
}

const maxLink = 15 // IFNAMSIZ less the zero byte

func (d *Driver) refreshEndpoint(id intent.EndpointID) {
	key := endpointKey(id)
	e := d.endpoints[id]
	var err error
	switch f, broken := d.faults[key]; {
	case e == nil || e.ID.Kind != intent.Workload:
		delete(d.faults, key)
	case broken && f.kernel:
		err = f.err
	default:
		delete(d.faults, key)
		if err = d.needs(e); err == nil && e.Closed == "" && e.Link != "" {
			err = d.taken(key, endpointChains(id)...)
		}
		if err != nil {
			d.fail(key, err)
		}
	}
	open := e != nil && e.ID.Kind == intent.Workload && e.Link != "" && e.Closed == "" && err == nil
	if e == nil || e.ID.Kind == intent.Host {
		d.hosts.dirty = true
	}
	if e != nil && e.ID.Kind == intent.Host {
		e.open = d.needs(e) == nil
		d.touched[key] = struct{}{}
		return
	}
	if e != nil {
		e.open = open
		d.dirtyLinks[e.Link] = struct{}{}
		d.touched[key] = struct{}{}
	}
	if !open {
		for _, name := range endpointChains(id) {
			d.dropChain(name, key)
		}
		return
	}
	d.renderChain(rules.Endpoint(e.Endpoint, intent.Ingress), key)
	d.renderChain(rules.Endpoint(e.Endpoint, intent.Egress), key)
	in := e.Endpoint
	in.Spoofable = validSpoofable(in.Spoofable)
	if c := rules.Spoofable(in); len(c.Rules) > 0 {
		d.renderChain(c, key)
	} else {
		d.dropChain(c.Name, key)
	}
}

// winner is the endpoint that has an interface: of several open ones, the one whose key is smallest. Nil: none is
// open.
func (d *Driver) winner(link string) *endpoint {
	var best *endpoint
	for id := range d.linkUsers[link] {
		e := d.endpoints[id]
		if e.open && (best == nil || strings.Compare(e.ID.String(), best.ID.String()) < 0) {
			best = e
		}
	}
	return best
}

// refreshLink says which chains an interface leads to.
func (d *Driver) refreshLink(link string) {
	if link == "" || len(link) > maxLink {
		return
	}
	name := string(nftables.KeyIfname(link))
	e := d.winner(link)
	put := func(set, value string, in bool) {
		k := d.ksets[set]
		if in {
			k.elems.Desire(name, value)
		} else {
			k.elems.Undesire(name)
		}
		d.checkKset(k)
	}
	put(setLinks, "", e != nil)
	put(setClosed, "", e == nil && len(d.linkUsers[link]) > 0)
	if e == nil {
		put(mapIn, "", false)
		put(mapOut, "", false)
		put(mapSource, "", false)
		return
	}
	put(mapIn, rules.EndpointChain(e.ID, intent.Ingress), true)
	put(mapOut, rules.EndpointChain(e.ID, intent.Egress), true)
	put(mapSource, rules.SpoofChain(e.ID), len(validSpoofable(e.Spoofable)) > 0)
}

// renderChain makes a neutral chain a wanted one. That it cannot be rendered is the owner's fault.
func (d *Driver) renderChain(c rules.Chain, owner intent.Key) {
	rs, names, err := d.render(c)
	if err != nil {
		// Only a set of the wrong kind or none leads here, and those were looked for before.
		d.fail(owner, errors.Join(errors.New("our own mistake"), err))
		rs = []nftables.Rule{{Exprs: d.drop("could not be rendered"), Comment: "could not be rendered"}}
		names = namesOf(rs)
	}
	d.setNamedChain(nftables.Chain{Name: c.Name, Comment: comment(c.Comment)}, rs, names, owner)
}
