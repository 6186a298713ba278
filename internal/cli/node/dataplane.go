package node

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/dataplane/remote"
	"github.com/twillnet/twill/internal/dataplane/remote/reference"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/serve"
)

func (c *command) dataplaneCmd() *cobra.Command {
	var listen string
	var inMemory bool
	cmd := &cobra.Command{
		Use:   "dataplane",
		Short: "Be the dataplane of an agent in another process",
		Long: `Serves the protocol by which an agent has its host programmed by another process
(api/dataplanepb, docs/remote-dataplane.md), and programs this host's kernel as the agent
does by itself. For the agent, set useInternalDataplaneDriver: false and
dataplaneDriver: unix:///PATH.

With --in-memory it programs nothing, and keeps in memory what the host should be: each
commit is logged, and one that is out of order is refused with the reason. Whoever writes
a driver of their own sees with it what an agent sends.

One agent is served at a time; when it goes, what is in force stays.

Exit code: 0 asked to end, 1 something failed.`,
		Example: `  twill dataplane
  twill dataplane --listen unix:///run/twill/try.sock --in-memory`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			if err := remote.Address(listen); err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			log := c.Log()
			l, err := serve.Listen(serve.At{Network: "unix", Address: strings.TrimPrefix(listen, "unix://")})
			if err != nil {
				return err
			}
			s := &remote.Server{Name: "twill", Release: conn.Version, Kernel: true, Target: agent.KernelDriver{Log: log}}
			if inMemory {
				s.Kernel, s.Target = false, &reference.Node{Committed: func(from string, b intent.Batch) {
					log.Info("committed", "agent", from, "sets", len(b.IPSets), "members", len(b.Members), "policies", len(b.Policies), "endpoints", len(b.Endpoints), "routes", len(b.Routes), "peers", len(b.Peers),
						"settings", b.Host != nil, "removed", len(b.Removed))
				}}
			}
			log.Info("waits for an agent", "listen", listen, "in_memory", inMemory)
			if err := s.Serve(cmd.Context(), l); cmd.Context().Err() == nil {
				return err
			}
			return nil // asked to end
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "unix:///run/twill/dataplane.sock", "socket at which an agent reaches it: unix:///PATH")
	cmd.Flags().BoolVar(&inMemory, "in-memory", false, "program nothing")
	cmd.AddCommand(c.conformanceCmd())
	return cmd
}
