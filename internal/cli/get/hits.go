package get

import (
	"context"
	"fmt"
	"strings"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/conn"
)

// hits are what the rules of each policy decided about on this host; nil if no agent answers.
func (c *command) hits(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, conn.Patience)
	defer cancel()
	counts, err := agent.Counted(ctx, conn.AgentSocket())
	if err != nil {
		return nil
	}
	cells := map[string][]string{}
	for _, n := range counts {
		at := fmt.Sprintf("%s[%d]", strings.ToLower(n.Direction), n.Rule)
		if n.Rule < 0 {
			at = strings.ToLower(n.Direction) + " " + n.Reason
		}
		act := "deny"
		switch {
		case n.Logged:
			act = "log"
		case n.Allowed:
			act = "allow"
		}
		if n.Staged {
			act = "would " + act
		}
		cells[n.Policy] = append(cells[n.Policy], fmt.Sprintf("%s %s %d", at, act, n.Packets))
	}
	out := map[string]string{}
	for policy, list := range cells {
		out[policy] = strings.Join(list, ", ")
	}
	return out
}
