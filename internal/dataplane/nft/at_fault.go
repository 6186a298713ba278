package nft

import (
	"iter"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// ruleSize is the approximate size in bytes of a rule in a message.
const ruleSize = 200

// atFault knows because of which policies the parts of the tables are that a plan changes: these are nobody's own, and of a rule there may be
// many. A part is asked about with any of its policies. What no policy is behind belongs to all.
type atFault struct {
	d        *Driver
	suspects desired.Suspects
}

// atFault is of a plan; nil: it changes no tables.
func (d *Driver) atFault(p *plan) *atFault {
	if d.tables == nil {
		return nil
	}
	classes := map[classify.Class]struct{}{}
	for _, k := range p.ksets {
		if isClasses(k) {
			for _, value := range p.updates(k) {
				classes[classify.Class(nftables.NumberOf([]byte(value)))] = struct{}{}
			}
		}
	}
	return &atFault{d, d.state.Suspects(classes)}
}

// isClasses reports whether a map leads from addresses to classes.
func isClasses(k *kset) bool {
	return k.owner == desired.Tables && (k.spec.Key == nftables.TypeIPv4Addr || k.spec.Key == nftables.TypeIPv6Addr)
}

// ofElement are the policies behind an element of the tables.
func (b *atFault) ofElement(k *kset, id, value string) []intent.Key {
	number := func(s string) uint32 { return nftables.NumberOf([]byte(s)) }
	switch {
	case isClasses(k):
		return b.suspects.OfClass(classify.Class(number(value)))
	case k.spec.Name == mapPorts || k.spec.Name == mapProtos || k.spec.Name == mapPrograms:
		return b.suspects.OfCode(classify.Code(number(value)))
	case slices.Contains([]string{mapActions, setAllowed, mapRejects, setCounts, mapReports}, k.spec.Name):
		return b.suspects.OfCode(classify.Code(number(id)))
	}
	return b.suspects.OfBody(b.d.tables.bodies[classify.Program(number(value))]) // of a group
}

// ofRules are the policies behind each rule of a chain of the tables.
func (b *atFault) ofRules(c *chain) (out [][]intent.Key) {
	for _, by := range b.d.cfg.Names.Rules(c.name) {
		out = append(out, desired.SuspectOf(by))
	}
	return out
}

// sizes adds how many bytes of a plan are for each policy, in the tables.
func (b *atFault) sizes(p *plan, to map[intent.Key]int) {
	if b == nil {
		return
	}
	add := func(keys []intent.Key, bytes int) {
		for _, key := range keys {
			if b.d.state.Refusable(key) {
				to[key] += bytes
			}
		}
	}
	for _, k := range p.ksets {
		if k.wanted && k.owner == desired.Tables {
			for id, value := range p.updates(k) {
				add(b.ofElement(k, id, value), elementSize(id))
			}
		}
	}
	for _, c := range p.chains {
		if c.wanted && c.owner == desired.Tables {
			for _, keys := range b.ofRules(c) {
				add(keys, ruleSize)
			}
		}
	}
}

// among reports whether one of some policies is asked about.
func (p *plan) among(keys []intent.Key) bool {
	for _, key := range keys {
		if p.of[key] {
			return true
		}
	}
	return len(keys) == 0
}

// asked returns the elements among those of a set of the tables that the plan asks about.
func (p *plan) asked(k *kset, all iter.Seq2[string, string]) iter.Seq2[string, string] {
	if p.atFault == nil || k.owner != desired.Tables {
		return all
	}
	return func(yield func(string, string) bool) {
		for id, value := range all {
			if p.among(p.atFault.ofElement(k, id, value)) && !yield(id, value) {
				return
			}
		}
	}
}

// askedRules returns the rules of a chain that the plan asks about.
func (p *plan) askedRules(c *chain) []nftables.Rule {
	if p.atFault == nil || c.owner != desired.Tables {
		return c.rules
	}
	of := p.atFault.ofRules(c)
	var out []nftables.Rule
	for i, r := range c.rules {
		if i >= len(of) || p.among(of[i]) {
			out = append(out, r)
		}
	}
	return out
}
