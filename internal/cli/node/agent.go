package node

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
)

func (c *command) agentCmd() *cobra.Command {
	var l conn.Local
	var socket string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Program this host's kernel from the datastore",
		Long: `The agent watches the datastore, decides what this host should be, and makes
the kernel so: an nftables table "twill", routes to local endpoints with
protocol 80, addresses and sysctls of their interfaces. What others change of
that is put right at once.

It may be killed and started again at any time: what is in the kernel stays in
force, and an interface that nobody has programmed carries nothing.

Settings come from a file, the environment (TWILL_…, FELIX_…) and the
FelixConfiguration resources, and are live. See "twill config".`,
		Example: "  twill agent --node h1 --etcd http://192.0.2.10:2379\n  TWILL_LOG_FORMAT=json twill agent --interface-prefix cali,tap",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			if err := l.Read(); err != nil {
				return err
			}
			store := l.Followed(&c.Conn)
			if err := conn.NotOfALab("agent", store.Endpoints); err != nil {
				return err
			}
			return agent.Run(cmd.Context(), agent.Config{
				Node: l.Node, Store: store, Local: l.Layers, Version: conn.Version, Socket: socket,
				Log: c.LogAs(l.Settings.LogFormat), Level: &c.Level, JSON: l.Settings.LogFormat == "json", Problems: l.Problems,
			})
		},
	}
	l.AddFlags(cmd)
	cmd.Flags().StringVar(&socket, "socket", conn.AgentSocket(), "where to answer `twill status` and plugins (TWILL_SOCKET)")
	return cmd
}
