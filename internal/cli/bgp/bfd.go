package bgp

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
)

func (c *command) bfdCmd() *cobra.Command {
	var cfg daemon.BFD
	cmd := &cobra.Command{
		Use:   "bfd",
		Short: "Run BFD with this host's BGP peers: a dead path is detected within a second",
		Long: `Keep a BFD session (RFC 5880, 5881) with each BGP peer that is on a link of this
host, as the last plan of "twill bgp" says, and report sessions that go down to
"twill bgp". "twill node" runs it as one of its children. It is a process of its
own, with real-time priority: a restart of "twill bgp", or a busy host, takes no
session down. "twill bgp peers" shows the sessions' states.

BGP with a peer without BFD works as it would without this. The annotation
twill.net/bfd of a BGPPeer or BGPConfiguration sets interval and multiplier, or off.`,
		Example: "  twill bfd --data-dir /var/lib/twill",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			cfg.Log = c.Log()
			return daemon.RunBFD(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&cfg.Dir, "data-dir", "/var/lib/twill", "where the last plan is kept")
	cmd.Flags().StringVar(&cfg.Socket, "socket", conn.BfdSocket(), "where to answer (TWILL_BFD_SOCKET)")
	return cmd
}
