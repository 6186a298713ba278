// Package iptables says neutral chains, and the sets they ask for, in the words of iptables-restore and ipset.
//
// In: [rules.Chain] values for one table and one family ([Renderer]); [intent.IPSet] values ([RestoreSets]).
// Out: [Text], for `iptables-restore --noflush` or ip6tables-restore; and text for `ipset restore`, to be run before it.
//
// It is pure: nothing here runs a tool. What a neutral rule means stays the same, but iptables has its own ways:
//
//   - ACCEPT would end the whole hook, later stages included. So what is allowed leaves [kernel.MarkAllowed] and returns,
//     and whoever called an endpoint's chain asks for the mark. The target is a goto to a chain that sets the mark: its
//     end returns to the caller of the chain that went there. So terms are matched once, and one rule stays one rule.
//   - Each of -p, -s and -d may be there once, and multiport takes 15 ports. What is more becomes several rules, or is
//     gathered in scratch bits of the mark.
//   - A selection is one hash:net, not two sets as in nftables. There, prefixes are kept apart because an interval set is
//     slow to change; hash:net is a hash, in which a host is one more length of prefix. So members never change rules,
//     and a term stays one match.
package iptables

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// Table is where chains go. The hooks that call an endpoint's chain say which it must be.
type Table string

// Tables.
const (
	Filter Table = "filter" // zero means this one
	Mangle Table = "mangle" // before DNAT, and what a host sends
	Raw    Table = "raw"    // untracked, and sources of workloads
)

// Renderer makes text for one table and family.
type Renderer struct {
	Table  Table
	Family intent.Family      // IPv4 or IPv6
	Log    intent.LogSettings // how much rules with action Log report; zero: all
}

// Text is chains as iptables reads them.
type Text struct {
	Restore string // one table, whole: each chain in it is made anew, others stay
	Sets    []Set  // that must exist before, by name
}

// Render says chains in the order given. What they jump to must be among them or exist already.
func (r Renderer) Render(chains []rules.Chain) (Text, error) {
	if r.Family != intent.IPv4 && r.Family != intent.IPv6 {
		return Text{}, fmt.Errorf("render for iptables: no family %d", r.Family)
	}
	if r.Table == "" {
		r.Table = Filter
	}
	w := writer{Renderer: r, outcomes: map[outcome]bool{}, sets: map[string]Set{}}
	names := map[string]string{}
	for _, c := range chains {
		name := ChainName(c.Name)
		if other, taken := names[name]; taken {
			return Text{}, fmt.Errorf("chain %s: its name %s is that of %s too", c.Name, name, other)
		}
		names[name] = c.Name
		w.heads = append(w.heads, name)
		if err := w.chain(name, c); err != nil {
			return Text{}, fmt.Errorf("chain %s: %w", c.Name, err)
		}
	}
	return w.text(), nil
}

// writer gathers the parts of a text.
type writer struct {
	Renderer
	heads    []string // chains
	body     []string // their rules
	outcomes map[outcome]bool
	sets     map[string]Set
}

func (w *writer) chain(name string, c rules.Chain) error {
	if c.Comment != "" { // for who reads the text; the kernel has no comments of chains
		w.body = append(w.body, "# "+rules.Shorten(c.Comment))
	}
	for i, r := range c.Rules {
		if err := w.rule(name, r); err != nil {
			return fmt.Errorf("rule %d, %s: %w", i, r, err)
		}
	}
	return nil
}

// text puts the parts together. To declare a chain empties it, so a chain that another text of the same table declares
// too, as each outcome is, must be the same in both.
func (w *writer) text() Text {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", w.Table)
	var body []string
	for _, o := range outcomes {
		if w.outcomes[o] {
			fmt.Fprintf(&b, ":%s - [0:0]\n", o)
			body = append(body, o.rules()...)
		}
	}
	for _, name := range w.heads {
		fmt.Fprintf(&b, ":%s - [0:0]\n", name)
	}
	for _, line := range append(body, w.body...) {
		b.WriteString(line + "\n")
	}
	b.WriteString("COMMIT\n")
	t := Text{Restore: b.String()}
	for _, s := range w.sets {
		t.Sets = append(t.Sets, s)
	}
	slices.SortFunc(t.Sets, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
	return t
}

// rule adds what stands for one neutral rule: nothing, if no packet of the family can match it.
func (w *writer) rule(chain string, r rules.Rule) error {
	fr, ok := r.ForFamily(w.Family)
	if !ok {
		return nil
	}
	c, err := conjoin(fr.Terms, w.Family)
	if err != nil || c.never {
		return err
	}
	if r.Action == rules.Reset && c.proto != tcp { // the kernel refuses it
		return errors.New("a reset of what may not be TCP")
	}
	target, err := w.target(r)
	if err != nil {
		return err
	}
	for _, s := range c.sets {
		if other, taken := w.sets[s.Name]; taken && other != s {
			return fmt.Errorf("set %s: its name %s is that of %s too", s.ID, s.Name, other.ID)
		}
		w.sets[s.Name] = s
	}
	a := appender{w: w, chain: chain, comment: comment(r.Comment)}
	if lines, ok := c.alternatives(); ok && (len(lines) == 1 || ends(r.Action)) {
		for _, l := range lines {
			a.add(l, target)
		}
		return nil
	}
	a.gather(c.blocks)
	last, _ := c.line.and(line{rest: []string{matchMark(kernel.MarkScratch0, kernel.MarkScratch0)}})
	a.add(last, target)
	return nil
}

// appender adds rules to one chain, all with the comment of the neutral rule.
type appender struct {
	w              *writer
	chain, comment string
}

func (a appender) add(l line, target string) {
	words := []string{"-A " + a.chain}
	for _, word := range append(l.words(), a.comment, target) {
		if word != "" {
			words = append(words, word)
		}
	}
	a.w.body = append(a.w.body, strings.Join(words, " "))
}

// gather leaves scratch bit 0 in the mark if every block holds. The first block that wants any of its lines sets the bit;
// for each further one, bit 1 is whether a line of that block matched.
func (a appender) gather(blocks []block) {
	const all, this = kernel.MarkScratch0, kernel.MarkScratch1
	var wanted, unwanted []block
	for _, b := range blocks {
		if b.none {
			unwanted = append(unwanted, b)
		} else {
			wanted = append(wanted, b)
		}
	}
	for i, b := range wanted {
		bit := this
		if i == 0 {
			bit = all
		}
		a.add(line{}, setMark(0, bit))
		for _, l := range b.lines {
			a.add(l, setMark(bit, bit))
		}
		if bit == this {
			a.add(line{rest: []string{matchMark(0, this)}}, setMark(0, all))
		}
	}
	if len(wanted) == 0 {
		a.add(line{}, setMark(all, all))
	}
	for _, b := range unwanted {
		for _, l := range b.lines {
			a.add(l, setMark(0, all))
		}
	}
}
