package node

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/dataplane/policysync"
)

// policySyncCmd reads what a workload's proxy is sent.
func (c *command) policySyncCmd() *cobra.Command {
	follow := false
	cmd := &cobra.Command{
		Use:   "policy-sync SOCKET",
		Short: "Print the policy that an agent sends to a workload's proxy",
		Long: `Connects to the socket of a workload below policySyncPathPrefix, as a proxy of the workload
does that looks into HTTP, and prints each message that the agent sends, as one line of JSON:
sets of addresses, policies, the endpoint, and inSync once all has come. See docs/policy-sync.md.

While it is connected, the agent takes it for the proxy: what rules with http allow, if one asks
only of packets, then reaches the workload, and 30 s longer.

Exit code: 0 after inSync, or at an interrupt with --follow, 1 nobody answers or the agent has
ended the stream, 2 wrong usage.`,
		Example: `  twill policy-sync /var/run/nodeagent/mount/csi-1/socket
  twill policy-sync /var/run/nodeagent/mount/csi-1/socket --follow`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := policysync.Read(cmd.Context(), args[0], follow, func(line []byte) error {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", line)
				return err
			})
			if cmd.Context().Err() != nil && follow {
				return nil
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "go on after inSync, and print what changes")
	return cmd
}
