package iptables

import (
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
)

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

// Root is a chain that is there wherever this package has rules.
const Root = "tw-forward"

// Names of our chains and sets have a hash or are fixed ones, so that one which somebody else calls alike is not taken for ours: it would be destroyed
// or, while others refer to it, nothing could be written.
var (
	hashedChain = regexp.MustCompile(`^tw-(r-)?[\w-]{22}$`)
	hashedSet   = regexp.MustCompile(`^tw[46]-(net|port)-[\w-]{22}$`)
	fixedChains = fixedNames()
)

func fixedNames() (out []string) {
	for _, o := range outcomes {
		out = append(out, string(o))
	}
	for _, at := range points {
		out = append(out, at.Chain)
	}
	for _, side := range []rules.Side{rules.Src, rules.Dst} {
		out = append(out, linkKind{desired.OfWorkload, side}.chain(), linkKind{desired.OfClosed, side}.chain())
	}
	return append(out, mapChains[:]...)
}

// Own reports whether a chain is ours, by its name.
func Own(chain string) bool {
	return slices.Contains(fixedChains, chain) || hashedChain.MatchString(chain)
}

// ownSet reports whether a set is.
func ownSet(name string) bool { return hashedSet.MatchString(name) }

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
		case strings.HasPrefix(line, ":"):
			if name, _, _ := strings.Cut(line[1:], " "); Own(name) {
				now.chains[name] = nil
			}
		case strings.HasPrefix(line, "-A "):
			chain, rule, _ := strings.Cut(line[len("-A "):], " ")
			if _, ours := now.chains[chain]; ours {
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

// alike reports whether rules that are read are those of a text, as far as iptables prints them as they were written: how many there are, in what order,
// and of each where it goes, and which interfaces and sets it is about. Other matches it prints in forms of its own, which differ between versions.
func alike(rules []string, text string) bool {
	var lines []string
	if text != "" {
		lines = strings.Split(text, "\n")
	}
	return slices.EqualFunc(rules, lines, func(rule, line string) bool { return slices.Equal(essence(rule), essence(line)) })
}

// printed are the options that iptables prints as they were written, with how many words follow each.
var printed = map[string]int{"-i": 1, "-o": 1, "-j": 1, "-g": 1, "--match-set": 2}

// essence are those options of a rule, sorted. Names of interfaces lose what quotes them.
func essence(rule string) (out []string) {
	words := strings.Fields(rule)
	for i := 0; i < len(words); i++ {
		switch n := printed[words[i]]; {
		case n > 0 && i+n < len(words):
			option := quoting.Replace(strings.Join(words[i:i+n+1], " "))
			if i > 0 && words[i-1] == "!" {
				option = "! " + option
			}
			out = append(out, option)
			i += n
		case words[i] == "--comment" || words[i] == "--nflog-prefix" || words[i] == "--log-prefix": // what a tenant wrote may look like an option
			i += quotedWords(words[i+1:])
		}
	}
	slices.Sort(out)
	return out
}

var quoting = strings.NewReplacer(`"`, "", `'`, "", `\`, "")

// quotedWords is how many words a text has that is in quotes if it has several or has any of other meaning.
func quotedWords(words []string) int {
	for i, w := range words {
		body := w
		if i == 0 {
			var quoted bool
			if body, quoted = strings.CutPrefix(w, `"`); !quoted {
				return 1
			}
		}
		if text, ends := strings.CutSuffix(body, `"`); ends && (len(text)-len(strings.TrimRight(text, `\`)))%2 == 0 {
			return i + 1
		}
	}
	return len(words)
}
