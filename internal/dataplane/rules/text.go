package rules

import (
	"fmt"
	"strings"
)

// String is the name of the action.
func (a Action) String() string {
	names := [...]string{"deny", "allow", "pass", "log", "jump", "begin", "next", "return", "accept", "allow-untracked", "allow-early", "reset", "reject", "permit", "permit-untracked", "permit-early"}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprintf("action%d", uint8(a))
}

// String is the chain as text, for tests and people.
func (c Chain) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Comment)
	for _, r := range c.Rules {
		fmt.Fprintf(&b, "  %s\n", r)
	}
	return b.String()
}

// String is the rule in one line.
func (r Rule) String() string {
	words := make([]string, 0, len(r.Terms)+3)
	for _, t := range r.Terms {
		words = append(words, t.String())
	}
	words = append(words, r.Action.String())
	if r.Target != "" {
		words = append(words, r.Target)
	}
	if r.Comment != "" {
		words = append(words, "# "+r.Comment)
	}
	return strings.Join(words, " ")
}
