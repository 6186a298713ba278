package iptables

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// Node is the desired state of a node, from its [desired.Changes]. The zero value is empty.
type Node struct {
	Reporter Reporter // nil: nothing is reported but what rules with action Log match

	chains map[string]desired.Chain
	links  map[string]desired.Link
}

// Take applies changes. Sets are in the texts that need them.
func (n *Node) Take(c desired.Changes) {
	if n.chains == nil {
		n.chains, n.links = map[string]desired.Chain{}, map[string]desired.Link{}
	}
	for _, x := range c.Chains {
		n.chains[x.Name] = x
	}
	for _, name := range c.Gone {
		delete(n.chains, name)
	}
	for _, l := range c.Links {
		n.links[l.Name] = l
	}
}

// Call is the rule by which a chain of the kernel calls one of ours. A text does not have it: add it once,
// before any other rule of that chain or, if it is to be the last, after those that are there.
type Call struct {
	Hook  string // "FORWARD"
	Chain string
	Last  bool
}

// Settings are those of a host on which texts depend. Two that are equal make the same texts.
type Settings struct {
	Log    intent.LogSettings // limits what rules with action Log report; zero: unlimited
	ToHost intent.ToHost
	Tables intent.IPTablesSettings
	Marks  kernel.Marks
}

// points are the hooks, and the chains of ours that they call. Their names are shorter than those of neutral chains.
var points = [...]Call{
	desired.Prerouting: {Hook: "PREROUTING", Chain: "tw-prerouting"}, desired.Input: {Hook: "INPUT", Chain: "tw-input"},
	desired.Forward: {Hook: "FORWARD", Chain: "tw-forward"}, desired.Output: {Hook: "OUTPUT", Chain: "tw-output"},
	desired.Postrouting: {Hook: "POSTROUTING", Chain: "tw-postrouting"},
}

// tableOf returns the table of a stage: raw is before conntrack, mangle before DNAT and after routing, filter in between. Within
// a table, stages are called in the order of priorities.
func tableOf(h desired.Hook) (Table, error) {
	ends := h.At == desired.Prerouting || h.At == desired.Postrouting
	switch {
	case h.NAT && (ends || h.At == desired.Output):
		return NAT, nil
	case h.Priority < beforeConntrack && (h.At == desired.Prerouting || h.At == desired.Output):
		return Raw, nil
	case h.NAT, h.Priority < beforeConntrack, h.At == desired.Prerouting && h.Priority >= beforeDNAT:
		return "", fmt.Errorf("no table of iptables is asked at %s with priority %d", points[h.At].Hook, h.Priority)
	case ends:
		return Mangle, nil
	}
	return Filter, nil
}

// Priorities of netfilter, see [desired.Hook].
const (
	beforeConntrack = -200
	beforeDNAT      = -100
)

// Error means that there is no text, and names the intent that [desired.State.Refuse] may leave out, if it is one's.
type Error struct {
	Owner intent.Key
	Err   error
	Chain string // the neutral name of the chain that has no text; empty: it is not of one chain
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Render renders the node for one family: a text for each table that is not empty, in the order in which they must be loaded. An error
// is an [Error].
func (n *Node) Render(f intent.Family, s Settings) ([]Text, error) {
	stages := map[Table][]desired.Chain{}
	for _, c := range n.chains {
		if c.Hook == nil {
			continue
		}
		table, err := tableOf(*c.Hook)
		if err != nil {
			return nil, &Error{c.Owner, fmt.Errorf("chain %s: %w", c.Name, err), c.Name}
		}
		stages[table] = append(stages[table], c)
	}
	var out []Text
	for _, table := range []Table{Raw, Mangle, NAT, Filter} {
		if len(stages[table]) == 0 {
			continue
		}
		slices.SortFunc(stages[table], func(a, b desired.Chain) int {
			return cmp.Or(int(a.Hook.At)-int(b.Hook.At), a.Hook.Priority-b.Hook.Priority, strings.Compare(a.Name, b.Name))
		})
		w := newWriter(Renderer{Table: table, Family: f, Log: s.Log, Reject: s.Tables.Reject, Marks: s.Marks})
		w.reporter = n.Reporter
		if err := w.node(n, stages[table], s); err != nil {
			return nil, err
		}
		t := w.text()
		t.Table = table
		for _, at := range points {
			if slices.Contains(w.heads, at.Chain) {
				at.Last = s.Tables.Append
				t.Calls = append(t.Calls, at)
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// node writes the stages of a table, and the chains that they lead to.
func (w *writer) node(n *Node, stages []desired.Chain, s Settings) error {
	w.hooks(stages, s)
	if err := w.accepts(stages, s); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, s := range stages {
		n.reach(s.Name, names)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c, there := n.chains[name]
		if !there {
			return fmt.Errorf("chain %s is called, and is not there", name)
		}
		w.generation = c.Generation
		if err := w.add(c.Name, func(head string) error { return w.neutral(head, c) }); err != nil {
			return &Error{c.Owner, err, c.Name}
		}
	}
	for _, m := range slices.Sorted(maps.Keys(w.maps)) {
		w.heads = append(w.heads, mapChains[m])
		for _, l := range n.inOrder() {
			to := l.Chain(m)
			if to == "" {
				continue
			}
			if err := answers(n.chains[to]); err != nil && m != desired.ReceivesWithin && m != desired.SendsWithin {
				return &Error{Owner: n.chains[to].Owner, Err: err}
			}
			if err := w.link(mapChains[m], l.Name, m.Side(), "-g "+ChainName(to)); err != nil {
				return &Error{Owner: n.chains[to].Owner, Err: err}
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(w.kinds), func(a, b linkKind) int { return strings.Compare(a.chain(), b.chain()) }) {
		w.heads = append(w.heads, k.chain())
		for _, l := range n.inOrder() {
			if k.kind == desired.OfWorkload && !l.Open || k.kind == desired.OfClosed && !l.Closed {
				continue
			}
			if err := w.link(k.chain(), l.Name, k.side, w.answer(found)); err != nil {
				return &Error{Owner: n.chains[l.In].Owner, Err: err}
			}
		}
	}
	return nil
}

// hooks writes the chains that the kernel's chains call: each stage in its order. A stage begins without the mark; one that a packet has passed
// has set it; a closed one drops packets without it, and one that accepts lets nobody else see those with it.
func (w *writer) hooks(stages []desired.Chain, set Settings) {
	for _, s := range stages {
		head := points[s.Hook.At].Chain
		if !slices.Contains(w.heads, head) {
			w.heads = append(w.heads, head)
		}
		a := appender{w: w, chain: head}
		if s.Hook.NAT {
			a.add(line{}, "-j "+ChainName(s.Name))
			continue
		}
		a.add(line{}, setMark(w.Marks, 0, kernel.MarkAllowed|kernel.MarkPassed))
		a.add(line{}, "-j "+ChainName(s.Name))
		if s.Hook.Accept && w.accepting(set) {
			appender{w: w, chain: head, comment: comment("allowed")}.add(line{rest: []string{matchMark(w.Marks, kernel.MarkAllowed, kernel.MarkAllowed)}}, "-j ACCEPT")
		}
		if s.Hook.Closed {
			a.add(line{rest: []string{matchMark(w.Marks, 0, kernel.MarkAllowed)}}, "-j DROP")
		}
	}
}

// reach adds the names of all chains that a chain leads to, and its own.
func (n *Node) reach(name string, all map[string]bool) {
	if all[name] {
		return
	}
	all[name] = true
	for _, r := range n.chains[name].Rules {
		if r.Action == rules.Jump {
			n.reach(r.Target, all)
		}
	}
	for _, g := range n.chains[name].Guards {
		switch g.Do {
		case desired.Call, desired.Goto:
			n.reach(g.Target, all)
		case desired.Dispatch:
			for _, l := range n.links {
				if to := l.Chain(g.Map); to != "" {
					n.reach(to, all)
				}
			}
		}
	}
}

// inOrder returns the interfaces by name.
func (n *Node) inOrder() []desired.Link {
	return slices.SortedFunc(maps.Values(n.links), func(a, b desired.Link) int { return strings.Compare(a.Name, b.Name) })
}

// answers reports an error for a chain that a packet may leave without being allowed or dropped. Those that interfaces lead to have none, so the caller
// of a map's chain knows, by the mark alone, that the map has nothing for an interface.
func answers(c desired.Chain) error {
	if n := len(c.Rules); n == 0 || len(c.Rules[n-1].Terms) > 0 || c.Rules[n-1].Action != rules.Deny {
		return fmt.Errorf("chain %s, to which an interface leads, may end without an answer", c.Name)
	}
	return nil
}

// link adds the rule for packets of an interface.
func (w *writer) link(chain, name string, side rules.Side, target string) error {
	l, never, err := onLink(name, side)
	if err != nil || never {
		return err
	}
	appender{w: w, chain: chain}.add(line{rest: []string{l}}, target)
	return nil
}

// onLink returns the match of an interface; a name with * at its end matches any suffix. Never: the kernel gives no interface such a name
// (dev_valid_name in net/core/dev.c).
func onLink(name string, side rules.Side) (match string, never bool, err error) {
	begin, all := strings.CutSuffix(name, "*")
	switch {
	case begin == "" || strings.HasSuffix(begin, "+"): // to the programs, + at the end is any suffix
		return "", false, errors.New("interface name " + name + " has no form in iptables")
	case len(begin) > maxLink || begin == "." || begin == ".." || strings.ContainsAny(begin, "/: \t\n\v\f\r"):
		return "", true, nil
	case all:
		begin += "+"
	}
	flag := "-i "
	if side == rules.Dst {
		flag = "-o "
	}
	return flag + word(begin), false, nil
}

// maxLink is the longest name of an interface, in bytes (IFNAMSIZ of linux/if.h, less the byte that ends it).
const maxLink = 15

// plain are names that iptables-restore takes as they are.
var plain = regexp.MustCompile(`^[\w.][\w.+-]*$`)

// word is a name as one word of a line; with a flag's own dash before it, a name may begin with one.
func word(name string) string {
	if plain.MatchString(name) {
		return name
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}
