package iptables

import (
	"slices"

	"github.com/twillnet/twill/internal/dataplane/desired"
)

// accepts adds, at the end of the chain of each hook of a table, the rules that accept what policy allowed. Without them the chain returns, and the packet goes on
// to the rules of others and, if none of them decides, to the policy of the kernel's chain, which Docker makes DROP. In table raw nothing is accepted: the
// rules of others there are not about who may reach whom. An error is an [Error].
func (w *writer) accepts(stages []desired.Chain, s Settings) error {
	if !w.accepting(s) {
		return nil
	}
	for at, p := range points {
		if !slices.Contains(w.heads, p.Chain) {
			continue
		}
		for _, a := range desired.AskedAt(desired.Point(at), stages, s.ToHost) {
			if err := w.accept(p.Chain, a.If); err != nil {
				return &Error{a.Stage.Owner, err, a.Stage.Name}
			}
		}
	}
	return nil
}

// accepting reports whether settings want what passes to be accepted in the table.
func (w *writer) accepting(s Settings) bool {
	return w.Table == Filter && !s.Tables.FilterReturn || w.Table == Mangle && !s.Tables.MangleReturn
}

// accept adds the rule for packets that all conditions match.
func (w *writer) accept(chain string, conds []desired.Cond) error {
	var c conjunction
	for _, x := range conds {
		if err := w.condition(&c, x); err != nil {
			return err
		}
	}
	if c.never {
		return nil
	}
	return w.matched(appender{w: w, chain: chain, comment: comment("allowed")}, c, "-j ACCEPT", true)
}
