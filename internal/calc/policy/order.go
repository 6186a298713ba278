package policy

import (
	"cmp"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// Order puts policies in the order in which packets meet them. Use NewOrder.
type Order struct {
	tiers    map[string]tier // of the store, by name
	policies []*Policy       // sorted, unless stale
	stale    bool
}

// NewOrder returns one without policies, and with the built-in tiers.
func NewOrder() *Order { return &Order{tiers: map[string]tier{}} }

// tier is where a tier stands and how it ends.
type tier struct {
	order float64
	last  bool // it has no order
	pass  bool // its default action
	known bool
}

// builtIn are what they are, whatever the store says.
var builtIn = map[string]tier{
	api.TierKubeAdmin:    {order: 1000, pass: true, known: true},
	api.TierDefault:      {order: 1_000_000, known: true},
	api.TierKubeBaseline: {order: 10_000_000, pass: true, known: true},
}

func (o *Order) tier(name string) tier {
	if t, ok := builtIn[name]; ok {
		return t
	}
	return o.tiers[name]
}

// SetTier takes over a tier, or nil when it is gone. It reports whether that changed anything.
func (o *Order) SetTier(name string, r *api.Tier) bool {
	before := o.tier(name)
	if r == nil {
		delete(o.tiers, name)
	} else {
		t := tier{last: r.Spec.Order == nil, pass: r.Spec.DefaultAction != nil && *r.Spec.DefaultAction == api.Pass, known: true}
		if r.Spec.Order != nil {
			t.order = *r.Spec.Order
		}
		o.tiers[name] = t
	}
	changed := o.tier(name) != before
	o.stale = o.stale || changed
	return changed
}

// Add takes in a policy.
func (o *Order) Add(p *Policy) {
	o.policies = append(o.policies, p)
	o.stale = true
}

// Remove lets a policy go.
func (o *Order) Remove(p *Policy) {
	if i := slices.Index(o.policies, p); i >= 0 {
		o.policies = slices.Delete(o.policies, i, i+1)
	}
}

// Replace puts p into the place of old, which must be the same.
func (o *Order) Replace(old, p *Policy) {
	if i := slices.Index(o.policies, old); i >= 0 {
		o.policies[i], p.ranked = p, old.ranked
	}
}

// HasTier reports whether the store has a tier of that name.
func (o *Order) HasTier(name string) bool {
	_, ok := o.tiers[name]
	return ok
}

// Stage is a part of a packet's way (docs/design/stages.md).
type Stage uint8

// Stages. A workload has only the normal one.
const (
	Normal Stage = iota
	Untracked
	PreDNAT
	Forward
)

// at reports whether p is asked in a stage.
func (p *Policy) at(s Stage) bool {
	switch s {
	case Untracked:
		return p.place.untracked
	case PreDNAT:
		return p.place.preDNAT && !p.place.untracked
	case Forward:
		return p.place.forward && !p.place.untracked && !p.place.preDNAT
	}
	return !p.place.untracked && !p.place.preDNAT
}

// Differs reports whether staged policies would change what applies, if they were enforced.
func Differs(all []*Policy) bool {
	return slices.ContainsFunc(all, func(p *Policy) bool { return p.place.staged || p.Replaced })
}

// Tiers returns those of an endpoint to which these policies apply, in a stage: as they are enforced, or as they would be
// if staged policies were.
func (o *Order) Tiers(all []*Policy, stage Stage, staged bool) []intent.Tier {
	o.sort()
	var ps []*Policy
	for _, p := range all {
		if p.at(stage) && (staged && !p.Replaced && !p.place.deletes || !staged && !p.place.staged) {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, func(a, b *Policy) int { return cmp.Compare(a.ranked, b.ranked) })
	var out []intent.Tier
	for len(ps) > 0 {
		n := slices.IndexFunc(ps, func(p *Policy) bool { return p.place.tier != ps[0].place.tier || p.place.closed != ps[0].place.closed })
		if n < 0 {
			n = len(ps)
		}
		out = append(out, o.one(ps[:n]))
		ps = ps[n:]
	}
	return out
}

// one makes the tier of policies that are all in it.
func (o *Order) one(ps []*Policy) intent.Tier {
	t := intent.Tier{Name: ps[0].place.tier}
	if !ps[0].place.closed && o.tier(t.Name).pass {
		t.Default = intent.Pass
	}
	var in, out int
	for _, p := range ps {
		in, out = in+b2i(p.place.ingress), out+b2i(p.place.egress)
	}
	if in > 0 {
		t.Ingress = make([]intent.PolicyID, 0, in)
	}
	if out > 0 {
		t.Egress = make([]intent.PolicyID, 0, out)
	}
	for _, p := range ps {
		if p.place.ingress {
			t.Ingress = append(t.Ingress, p.ID)
		}
		if p.place.egress {
			t.Egress = append(t.Egress, p.ID)
		}
	}
	return t
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (o *Order) sort() {
	if !o.stale {
		return
	}
	o.stale = false
	slices.SortFunc(o.policies, o.compare)
	for i, p := range o.policies {
		p.ranked = i
	}
}

// compare: what is closed first; then by tier, order (none last), and name/namespace/kind.
func (o *Order) compare(a, b *Policy) int {
	if a.place.closed != b.place.closed {
		return b2i(b.place.closed) - b2i(a.place.closed)
	}
	if a.place.tier != b.place.tier {
		return o.compareTiers(a.place.tier, b.place.tier)
	}
	return cmp.Or(compareOrder(a.place.last, b.place.last, a.place.order, b.place.order), cmp.Compare(a.place.tie, b.place.tie), cmp.Compare(a.ID.Name, b.ID.Name))
}

// compareTiers puts known ones first, by (order, none last, name); unknown ones by name.
func (o *Order) compareTiers(a, b string) int {
	x, y := o.tier(a), o.tier(b)
	if x.known != y.known {
		return b2i(y.known) - b2i(x.known)
	}
	return cmp.Or(compareOrder(x.last, y.last, x.order, y.order), cmp.Compare(a, b))
}

func compareOrder(aLast, bLast bool, a, b float64) int {
	if aLast != bLast {
		return b2i(aLast) - b2i(bLast)
	}
	return cmp.Compare(a, b)
}
