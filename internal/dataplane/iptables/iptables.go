// Package iptables makes the tables of iptables, and the sets of ipset, what is desired of a node.
//
// In: [intent.Batch] through [Driver.Merge]; the tables and sets as the programs print them, through [Driver.Resync]. Out: one run of iptables-restore
// for each family and each [Driver.Apply], with the chains that differ; lines of ipset before and after it; an outcome for each intent.
//
// What is rendered is pure: [desired.Changes] of a whole node ([Node]), or [rules.Chain] values for one table ([Renderer]), to a [Text] for each table and
// family; where there is none, [Error] has the intent.
//
// A neutral rule keeps its meaning, but iptables renders it in its own ways:
//
//   - ACCEPT would end the whole hook, later stages included. So a chain that allows sets [kernel.MarkAllowed] and returns,
//     and the caller of an endpoint's chain tests the mark. What passed all stages of a hook is accepted at the end (see accepts). The target is a goto to a chain that sets the mark, whose
//     end returns to the caller of the chain that went there. So terms are matched once, and one rule stays one rule.
//   - A stage is a chain as well. Ours of the hook (tw-forward) calls stages in their order, each without the mark, and drops packets without
//     it after a closed one.
//   - There are no sets of interfaces. What an interface leads to is a rule of a chain for each map; whether it is a workload's is decided by a
//     chain that sets a scratch bit. Both cost a rule for each interface.
//   - That a packet is forwarded follows from its source, and from no socket having sent it; rpfilter passes a source of 0.0.0.0 to a multicast
//     group or to the broadcast address, which no router forwards.
//   - What is reported is a goto as well: to a chain for each decision, which reports and then acts.
//   - Each of -p, -s and -d may occur once, and multiport takes 15 ports. More become several rules, or are
//     combined by scratch bits of the mark.
//   - A set of addresses is one hash:net, not two sets as in nftables. There, prefixes are separate because an interval set is
//     slow to change; hash:net is a hash, in which a host is one more prefix length. So members never change rules,
//     and a term stays one match.
package iptables

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// Table is an iptables table. The hooks that call an endpoint's chain determine which.
type Table string

// Tables.
const (
	Filter Table = "filter" // the zero value means this one
	Mangle Table = "mangle" // before DNAT, and for what a host sends
	Raw    Table = "raw"    // untracked, and sources of workloads
	NAT    Table = "nat"    // NAT only; it decides nothing
)

// Renderer renders chains for one table and family.
type Renderer struct {
	Table  Table
	Family intent.Family      // IPv4 or IPv6
	Log    intent.LogSettings // limits of rules with action Log; zero: none
	Reject bool               // what is denied is rejected where that is possible: in table filter
	Marks  kernel.Marks
}

// Text is chains as input of iptables-restore.
type Text struct {
	Restore string // one table: each chain in it is replaced, others stay
	Sets    []Set  // must exist before, by name
	// Of a node's: the table, and the rules by which the kernel's chains call ours. The text does not have these, since it would add them
	// each time.
	Table Table
	Calls []Call
}

// Render renders chains in the order given. What they jump to must be among them or exist already. An error names the term that iptables cannot express.
func (r Renderer) Render(chains []rules.Chain) (Text, error) {
	if r.Family != intent.IPv4 && r.Family != intent.IPv6 {
		return Text{}, fmt.Errorf("render for iptables: no family %d", r.Family)
	}
	if r.Table == "" {
		r.Table = Filter
	}
	w := newWriter(r)
	for _, c := range chains {
		if err := w.add(c.Name, func(head string) error { return w.chain(head, c.Comment, c.Rules) }); err != nil {
			return Text{}, err
		}
	}
	return w.text(), nil
}

// writer builds a text.
type writer struct {
	Renderer
	heads    []string          // chains
	body     []string          // their rules
	names    map[string]string // neutral names by names of chains
	outcomes map[outcome]bool
	sets     map[string]Set
	// Of a node's: the maps and kinds of interfaces that are used, who names what decides, and the chains that report it.
	maps       map[desired.Map]bool
	kinds      map[linkKind]bool
	reporter   Reporter
	reports    map[string][]string // their rules
	generation uint16              // of the chain that is written
}

func newWriter(r Renderer) *writer {
	return &writer{
		Renderer: r, names: map[string]string{}, outcomes: map[outcome]bool{}, sets: map[string]Set{}, maps: map[desired.Map]bool{}, kinds: map[linkKind]bool{},
		reports: map[string][]string{},
	}
}

// add adds a chain under its name in iptables, with the rules that write adds.
func (w *writer) add(neutral string, write func(head string) error) error {
	name := ChainName(neutral)
	if other, taken := w.names[name]; taken {
		return fmt.Errorf("chain %s: its name %s is that of %s too", neutral, name, other)
	}
	w.names[name] = neutral
	w.heads = append(w.heads, name)
	if err := write(name); err != nil {
		return fmt.Errorf("chain %s: %w", neutral, err)
	}
	return nil
}

func (w *writer) chain(name, comment string, rs []rules.Rule) error {
	if comment != "" { // for readers of the text; the kernel has no comments of chains
		w.body = append(w.body, "# "+rules.Shorten(comment))
	}
	for i, r := range rs {
		if err := w.rule(name, r); err != nil {
			return fmt.Errorf("rule %d, %s: %w", i, r, err)
		}
	}
	return nil
}

// text joins the parts. Declaring a chain empties it, so a chain that several texts of one table declare,
// as each outcome is, must be the same in all.
func (w *writer) text() Text {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", w.Table)
	var body []string
	for _, o := range outcomes {
		if w.outcomes[o] {
			fmt.Fprintf(&b, ":%s - [0:0]\n", o)
			body = append(body, o.rules(w.Marks)...)
		}
	}
	for _, name := range w.heads {
		fmt.Fprintf(&b, ":%s - [0:0]\n", name)
	}
	for _, name := range slices.Sorted(maps.Keys(w.reports)) {
		fmt.Fprintf(&b, ":%s - [0:0]\n", name)
		body = append(body, w.reports[name]...)
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

// rule adds the rules of one neutral rule: none, if no packet of the family can match it.
func (w *writer) rule(chain string, r rules.Rule) error {
	fr, ok := r.ForFamily(w.Family)
	if !ok {
		return nil
	}
	c, err := conjoin(fr.Terms, w.Family, w.Marks)
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
	return w.matched(appender{w: w, chain: chain, comment: comment(r.Comment)}, c, target, ends(r.Action))
}

// matched adds rules with a target for packets that a conjunction matches. Ends: such a packet leaves the chain.
func (w *writer) matched(a appender, c conjunction, target string, ends bool) error {
	for _, s := range c.sets {
		if other, taken := w.sets[s.Name]; taken && other != s {
			return fmt.Errorf("set %s: its name %s is that of %s too", s.ID, s.Name, other.ID)
		}
		w.sets[s.Name] = s
	}
	if lines, ok := c.alternatives(); ok && (len(lines) == 1 || ends) {
		for _, l := range lines {
			a.add(l, target)
		}
		return nil
	}
	holds := matchMark(w.Marks, kernel.MarkScratch0, kernel.MarkScratch0)
	if b := c.blocks[0]; len(c.blocks) == 1 && b.call != "" {
		holds = a.find(b, b.none)
	} else {
		a.gather(c.blocks)
	}
	last, _ := c.line.and(line{rest: []string{holds}})
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

// gather sets scratch bit 0 of the mark if every block holds. The first block that wants any of its lines sets the bit;
// for each further one, and for what a chain finds, bit 1 is whether a line of that block matched.
func (a appender) gather(blocks []block) {
	const all, this = kernel.MarkScratch0, kernel.MarkScratch1
	begun := false
	for _, b := range blocks {
		if b.none || b.call != "" {
			continue
		}
		bit := this
		if !begun {
			bit, begun = all, true
		}
		a.add(line{}, setMark(a.w.Marks, 0, bit))
		for _, l := range b.lines {
			a.add(l, setMark(a.w.Marks, bit, bit))
		}
		if bit == this {
			a.add(line{rest: []string{matchMark(a.w.Marks, 0, this)}}, setMark(a.w.Marks, 0, all))
		}
	}
	if !begun {
		a.add(line{}, setMark(a.w.Marks, all, all))
	}
	for _, b := range blocks {
		switch {
		case b.call != "":
			a.add(line{rest: []string{a.find(b, !b.none)}}, setMark(a.w.Marks, 0, all))
		case b.none:
			for _, l := range b.lines {
				a.add(l, setMark(a.w.Marks, 0, all))
			}
		}
	}
}

// find calls the chain of a block, and returns the match for its having found something or, with none, nothing.
func (a appender) find(b block, none bool) string {
	const this = kernel.MarkScratch1
	a.add(line{}, setMark(a.w.Marks, 0, this))
	a.add(line{}, "-j "+b.call)
	if none {
		return matchMark(a.w.Marks, 0, this)
	}
	return matchMark(a.w.Marks, this, this)
}
