package conn

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/agent"
)

// TakeAgents takes what the agent that runs here was started with, in place of what an agent would be that is started now: unless
// there is none, or it is of another node than the one asked for, or flags say what the settings are to be.
func (c *Env) TakeAgents(cmd *cobra.Command, l *Local) {
	f := cmd.Flags()
	if f.Changed("config") || f.Changed("interface-prefix") {
		return
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), c.Conn.Timeout)
	defer cancel()
	s, err := agent.AskSettings(ctx, AgentSocket())
	if err != nil || f.Changed("node") && s.Node != l.Node {
		return
	}
	l.Node, l.Layers, l.Problems = s.Node, s.Layers, s.Problems
}
