package iptables

import "strings"

// saved is what is in a table, as iptables-save prints it.
type saved struct {
	chains map[string][]string // ours: the lines of their rules, without the chain's name
	calls  map[string]calls    // by the kernel's chain
}

// calls are the rules of a chain of the kernel that call ours.
type calls struct {
	n      int
	first  bool // one of them is the chain's first rule
	others bool // the chain has other rules
}

// right reports whether ours is called once, where that is wanted. After the rules of others may be further ones that came later, and are no reason to
// move: two programs that both want to be last would never end.
func (c calls) right(want Call) bool {
	if want.Last {
		return c.n == 1 && !(c.first && c.others)
	}
	return c.n == 1 && c.first
}

// ownPrefix begins the names of all our chains.
const ownPrefix = "tw-"

// Root is a chain that is there wherever this package has rules.
const Root = "tw-forward"

// Own reports whether a chain is ours, by its name.
func Own(chain string) bool { return strings.HasPrefix(chain, ownPrefix) }

// parseSaved reads the text of all tables.
func parseSaved(text string) map[Table]saved {
	out := map[Table]saved{}
	var now saved
	begun := map[string]bool{} // chains of the table that have a rule
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			now = saved{map[string][]string{}, map[string]calls{}}
			out[Table(line[1:])] = now
			begun = map[string]bool{}
		case now.chains == nil:
		case strings.HasPrefix(line, ":"+ownPrefix):
			name, _, _ := strings.Cut(line[1:], " ")
			now.chains[name] = nil
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[len("-A "):], " ")
			if strings.HasPrefix(chain, ownPrefix) {
				now.chains[chain] = append(now.chains[chain], rule)
				continue
			}
			c := now.calls[chain]
			if rule == callOf(chain) {
				c.first = c.first || !begun[chain]
				c.n++
			} else {
				c.others = true
			}
			now.calls[chain], begun[chain] = c, true
		}
	}
	return out
}

// callOf is the rule by which a chain of the kernel calls ours.
func callOf(hook string) string {
	for _, at := range points {
		if at.Hook == hook {
			return "-j " + at.Chain
		}
	}
	return ""
}

// wanted is what a table should have of ours.
type wanted struct {
	order  []string          // chains
	chains map[string]string // the lines of their rules, from -A on
	sets   []Set
	calls  []Call
}

// call returns the call of ours from a chain of the kernel.
func (w wanted) call(hook string) (Call, bool) {
	for _, c := range w.calls {
		if c.Hook == hook {
			return c, true
		}
	}
	return Call{}, false
}

// wantedOf takes a text apart.
func wantedOf(t Text) wanted {
	rules := map[string][]string{}
	out := wanted{chains: map[string]string{}, sets: t.Sets, calls: t.Calls}
	for line := range strings.Lines(t.Restore) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			out.order = append(out.order, name)
			out.chains[name] = ""
		case strings.HasPrefix(line, "-A "):
			chain, _, _ := strings.Cut(line[len("-A "):], " ")
			rules[chain] = append(rules[chain], line)
		}
	}
	for chain, lines := range rules {
		out.chains[chain] = strings.Join(lines, "\n")
	}
	return out
}

// rulesOf is the number of rules of a chain that is wanted.
func rulesOf(text string) int {
	if text == "" {
		return 0
	}
	return strings.Count(text, "\n") + 1
}
