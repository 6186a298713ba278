// Package attribution gives what decides about packets a name that fits into the kernel, and finds it again.
//
// In: [intent.Decision], as a driver renders rules. Out: the prefix with which such a rule reports a packet, and for a
// prefix that comes back, the decision. The name is a 32-bit id, which is a function of the decision alone, and a
// generation, which is one of what the rules of its policy say: so a table that an earlier agent wrote need not be written
// anew, and a report that was on its way while a rule changed is told apart from one of the rule that is there now.
package attribution

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/twillnet/twill/internal/intent"
)

// Table knows the decisions of all chains that a driver wants, and for a while those that it no longer does. Any goroutine
// may use it. Use New.
type Table struct {
	mu      sync.Mutex
	byID    map[uint32]*entry
	chains  map[string][]Name // what decides at each rule of a chain; zero: nothing that is counted
	retired []uint32          // of which no chain knows any more, oldest first
}

type entry struct {
	intent.Decision
	generation uint16
	uses       int // rules of chains
}

// Name is how the kernel names a decision. Its zero value names none.
type Name struct {
	Generation uint16
	ID         uint32
}

// remembered bounds how many decisions are known that no chain has any more.
const remembered = 4096

// New returns a table that knows nothing.
func New() *Table { return &Table{byID: map[uint32]*entry{}, chains: map[string][]Name{}} }

// Name names a decision. Two decisions with one hash get neighbouring ids; which one depends on who came first, and that
// is the price of names that a restart does not change: see docs/decisions/005-rule-ids.md.
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
		e.generation = generation
		return Name{generation, id}
	}
}

// Chain says what decides at each rule of a chain, as it should be from now on; without rules, the chain goes.
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

// retire notes an id of no chain. The oldest of too many are forgotten.
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

// prefix begins all prefixes that are ours.
const prefix = "twill "

// Prefix is with what a rule reports packets.
func (n Name) Prefix() string { return fmt.Sprintf("%s%04x %08x", prefix, n.Generation, n.ID) }

// Parse reads a prefix back; false: it is not ours.
func Parse(text string) (Name, bool) {
	rest, ours := strings.CutPrefix(text, prefix)
	generation, id, two := strings.Cut(rest, " ")
	g, err1 := strconv.ParseUint(generation, 16, 16)
	i, err2 := strconv.ParseUint(id, 16, 32)
	return Name{uint16(g), uint32(i)}, ours && two && err1 == nil && err2 == nil
}

// Resolve finds the decision of a name. Current is false if its policy says something else by now.
func (t *Table) Resolve(n Name) (d intent.Decision, current, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[n.ID]
	if e == nil {
		return d, false, false
	}
	return e.Decision, e.uses > 0 && e.generation == n.Generation, true
}

// Rules are what decides at each rule of a chain, in the order of its rules.
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
