package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/kernel/xtables"
)

// Unhooking is how to take an upstream agent out of iptables.
type Unhooking struct {
	Text   string // for iptables-restore --noflush; empty: nothing is to be done
	Chains int    // that go
	Rules  int    // in chains of others, that go: they lead to its chains, match its sets, or are marked as its own
	// Drops are chains of the host that drop what no rule accepts, and in which rules of the agent are: what these
	// accepted will be dropped, unless other rules accept it.
	Drops []string
}

// Unhook works out, from what iptables-save printed, how everything of an upstream agent goes and all else stays. Tables
// are changed one after the other, each in one step. Filter comes first: the others only prepare what it decides.
func Unhook(saved string) (out Unhooking) {
	tables := map[string]*saveTable{}
	var at *saveTable
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			at = &saveTable{name: line[1:], policy: map[string]string{}}
			tables[at.name] = at
		case at != nil:
			at.read(line)
		}
	}
	var text strings.Builder
	for _, name := range xtables.Tables {
		t := tables[name]
		if t == nil || len(t.chains)+len(t.hooks) == 0 {
			continue
		}
		out.Chains += len(t.chains)
		out.Rules += len(t.hooks)
		for _, chain := range t.dropping() {
			out.Drops = append(out.Drops, chain+" of "+name)
		}
		t.write(&text)
	}
	out.Text = text.String()
	return out
}

// saveTable is what iptables-save says of one table.
type saveTable struct {
	name   string
	policy map[string]string // of each chain; "-" of those that somebody made
	chains []string          // of the agent
	hooks  []hook            // its rules in chains of others
}

type hook struct{ chain, rule string }

func (t *saveTable) read(line string) {
	words := saveWords(line)
	switch {
	case len(words) >= 2 && strings.HasPrefix(words[0], ":"):
		name := words[0][1:]
		t.policy[name] = words[1]
		if begins(name, upstreamChains) {
			t.chains = append(t.chains, name)
		}
	case len(words) >= 2 && words[0] == "-A" && !begins(words[1], upstreamChains) && (isUpstreams(words[2:]) || t.name == "nat" && slices.Equal(words[1:], masquerade)):
		t.hooks = append(t.hooks, hook{words[1], line[len("-A "):]})
	}
}

// masquerade is a rule that the agent of version 1 made in a chain of the host, with nothing of a name of its own: packets of
// the host's processes leave the tunnel with its address. Its conditions are so particular that any other word makes it somebody else's.
var masquerade = strings.Fields("POSTROUTING -o tunl0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE")

// isUpstreams reports whether a rule, in the words of iptables-save, leads to a chain of the agent, matches a set of it, or
// has the comment that the agent gives to each of its rules.
func isUpstreams(words []string) bool {
	for i, w := range words[:max(len(words)-1, 0)] {
		next := words[i+1]
		switch w {
		case "-j", "-g", "--jump", "--goto":
			if begins(next, upstreamChains) {
				return true
			}
		case "--match-set":
			if begins(next, upstreamSets) {
				return true
			}
		case "--comment":
			if IsUpstreamComment(next) {
				return true
			}
		}
	}
	return false
}

// IsUpstreamChain reports whether a chain has a name as an upstream agent gives them.
func IsUpstreamChain(name string) bool { return begins(name, upstreamChains) }

// IsUpstreamComment reports whether a comment is one that an upstream agent gives to each of its rules in iptables.
func IsUpstreamComment(text string) bool { return strings.HasPrefix(text, "cali:") }

// dropping are the chains whose policy is to drop, and in which the agent has rules.
func (t *saveTable) dropping() (out []string) {
	for _, h := range t.hooks {
		if t.policy[h.chain] == "DROP" && !slices.Contains(out, h.chain) {
			out = append(out, h.chain)
		}
	}
	return out
}

// write makes the text: to name a chain empties it, so that none leads to another any more; then go the rules that lead to
// them, and then they.
func (t *saveTable) write(b *strings.Builder) {
	fmt.Fprintf(b, "*%s\n", t.name)
	for _, c := range t.chains {
		fmt.Fprintf(b, ":%s - [0:0]\n", c)
	}
	for _, h := range t.hooks {
		fmt.Fprintf(b, "-D %s\n", h.rule)
	}
	for _, c := range t.chains {
		fmt.Fprintf(b, "-X %s\n", c)
	}
	b.WriteString("COMMIT\n")
}

// saveWords splits a line as iptables-restore does: at blanks, outside of double quotes, in which \ stands before a quote.
func saveWords(line string) (out []string) {
	var word strings.Builder
	quoted, escaped, some := false, false, false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case quoted && r == '\\':
			escaped = true
		case r == '"':
			quoted, some = !quoted, true
		case r == ' ' && !quoted:
			if some {
				out = append(out, word.String())
			}
			word.Reset()
			some = false
		default:
			word.WriteRune(r)
			some = true
		}
	}
	if some {
		out = append(out, word.String())
	}
	return out
}
