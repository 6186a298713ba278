package iptables

import "strings"

// saved is what is in a table, as iptables-save prints it.
type saved struct {
	chains map[string][]string // ours: the lines of their rules, without the chain's name
	calls  map[string]calls    // by the kernel's chain
}

// calls are the rules of a chain of the kernel that call ours.
type calls struct {
	first bool     // ours is its first rule, and there is one
	rules []string // each of ours, from its action on
}

// once reports whether ours is called once, before all other rules.
func (c calls) once() bool { return c.first && len(c.rules) == 1 }

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
			if rule == callOf(chain) {
				c := now.calls[chain]
				c.first = c.first || !begun[chain]
				c.rules = append(c.rules, rule)
				now.calls[chain] = c
			}
			begun[chain] = true
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

// parsed is the text of a table: its chains in order, and their rules.
type parsed struct {
	order  []string
	chains map[string][]string // each line of its own, from -A on
}

// parseText takes a text apart.
func parseText(t Text) parsed {
	out := parsed{chains: map[string][]string{}}
	for line := range strings.Lines(t.Restore) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			out.order = append(out.order, name)
			out.chains[name] = nil
		case strings.HasPrefix(line, "-A "):
			chain, _, _ := strings.Cut(line[len("-A "):], " ")
			out.chains[chain] = append(out.chains[chain], line)
		}
	}
	return out
}
