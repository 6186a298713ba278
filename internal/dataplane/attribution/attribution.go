// Package attribution gives decisions about packets names that fit into the kernel, and resolves these names.
//
// In: [intent.Decision], as a driver renders rules. Out: the prefix with which such a rule reports a packet, and for a
// reported prefix, the decision. The name is a 32-bit id, which is a function of the decision alone, and a
// generation, which is a function of the rules of its policy: so a table that an earlier agent wrote need not be written
// again, and a report that was under way while a rule changed is distinguished from one of the present rule.
package attribution

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/twillnet/twill/internal/intent"
)

// Table has the decisions of all chains that a driver wants, and the last [remembered] that no chain has any more. Any goroutine
// may use it. Use New.
type Table struct {
	mu      sync.Mutex
	byID    map[uint32]*entry
	chains  map[string][]Name // the decision at each rule of a chain; zero: the rule decides nothing
	retired []uint32          // ids that no chain uses any more, oldest first
}

type entry struct {
	intent.Decision
	generation uint16
	uses       int // number of rules with this decision
}

// Name is the kernel's name of a decision. The zero value names none.
type Name struct {
	Generation uint16
	ID         uint32
}

// remembered bounds how many decisions without a chain are kept, so that late reports can be resolved.
const remembered = 4096

// New returns an empty table.
func New() *Table { return &Table{byID: map[uint32]*entry{}, chains: map[string][]Name{}} }

// Name returns the name of a decision, and registers it. Two decisions with one hash get neighbouring ids, in the order of registration;
// that is the price of names that a restart does not change: see docs/decisions/005-rule-ids.md.
func (t *Table) Name(d intent.Decision, generation uint16) Name {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := d.Hash(); ; id++ {
		if id == 0 {
			continue
		}
		e := t.byID[id]
		if e != nil && e.Decision != d {
			continue
		}
		if e == nil {
			e = &entry{Decision: d}
			t.byID[id] = e
			t.retire(id)
		}
		if generation != 0 {
			e.generation = generation
		}
		return Name{generation, id}
	}
}

// Chain sets the decision at each rule of a chain; without rules, the chain is removed.
func (t *Table) Chain(chain string, rules []Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.chains[chain]
	for _, n := range rules {
		if e := t.byID[n.ID]; e != nil {
			e.uses++
		}
	}
	for _, n := range old {
		if e := t.byID[n.ID]; e != nil {
			if e.uses--; e.uses == 0 {
				t.retire(n.ID)
			}
		}
	}
	if len(rules) == 0 {
		delete(t.chains, chain)
		return
	}
	t.chains[chain] = rules
}

// retire adds an id that no chain uses. The oldest are deleted if there are too many.
func (t *Table) retire(id uint32) {
	t.retired = append(t.retired, id)
	for len(t.retired) > remembered {
		first := t.retired[0]
		t.retired = t.retired[1:]
		if e := t.byID[first]; e != nil && e.uses == 0 {
			delete(t.byID, first)
		}
	}
}

// prefix is the start of all log prefixes that are ours.
const prefix = "twill "

// Prefix returns the log prefix under which a rule reports packets.
func (n Name) Prefix() string { return fmt.Sprintf("%s%04x %08x", prefix, n.Generation, n.ID) }

// Parse is the inverse of Prefix; false: the text is no prefix of ours.
func Parse(text string) (Name, bool) {
	rest, ours := strings.CutPrefix(text, prefix)
	generation, id, two := strings.Cut(rest, " ")
	g, err1 := strconv.ParseUint(generation, 16, 16)
	i, err2 := strconv.ParseUint(id, 16, 32)
	return Name{uint16(g), uint32(i)}, ours && two && err1 == nil && err2 == nil
}

// OfCode is the name of the chain that a Table knows for a code that decides by itself: it has one rule.
func OfCode(code uint32) string { return fmt.Sprintf("code %08x", code) }

// MarkPrefix is the prefix of reports whose name is the packet's mark: of packets that are dropped, so that nobody else reads it. One
// rule then reports whatever a map knows.
const MarkPrefix = prefix + "mark"

// Reported finds the decision of a report, by its prefix and the packet's mark, as Resolve does.
func (t *Table) Reported(text string, mark uint32) (d intent.Decision, current, ok bool) {
	if text != MarkPrefix {
		name, _ := Parse(text)
		return t.Resolve(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[mark]
	if e == nil {
		return d, false, false
	}
	return e.Decision, e.uses > 0, true
}

// Resolve returns the decision of a name. Current is false if the rules of its policy have changed since; ok is false if it is not known.
func (t *Table) Resolve(n Name) (d intent.Decision, current, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[n.ID]
	if e == nil {
		return d, false, false
	}
	return e.Decision, e.uses > 0 && (n.Generation == 0 || n.Generation == e.generation), true
}

// Rules returns the decision at each rule of a chain, in the order of the rules.
func (t *Table) Rules(chain string) []intent.Decision {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]intent.Decision, len(t.chains[chain]))
	for i, n := range t.chains[chain] {
		if e := t.byID[n.ID]; e != nil {
			out[i] = e.Decision
		}
	}
	return out
}
