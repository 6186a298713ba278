package node

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/orchestrator/openstack"
)

func (c *command) openstackResyncCmd() *cobra.Command {
	var output console.Output
	var socket string
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "resync",
		Short: "Have the datastore made what Neutron's database says, now",
		Long: `Asks neutron-server, by the plugin on this machine, to hand over all of its database, and
waits until the datastore holds that: what is missing is written, what Neutron has no more
is deleted. It does so by itself when it starts, and every resync_interval_secs.

Exit code: 0 done, 1 it could not be done within --within, or part of it has no effect, 2 usage.`,
		Example: "  twill openstack-plugin resync\n  twill openstack-plugin resync -o json",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), within)
			defer cancel()
			_, end := c.Working("waiting for neutron-server", 0)
			r, err := openstack.Resync(ctx, socket)
			end()
			if err != nil {
				return err
			}
			if err := c.Answer(output, console.Answer{Doc: r, Table: func(w io.Writer, _ bool) error { return sayResync(w, r) }}); err != nil {
				return err
			}
			if len(r.Problems) > 0 {
				return console.Exit{Code: 1}
			}
			return nil
		},
	}
	output.AddFlag(cmd)
	cmd.Flags().StringVar(&socket, "socket", openstack.DefaultSocket, "of the plugin")
	cmd.Flags().DurationVar(&within, "within", 10*time.Minute, "how long to wait")
	return cmd
}

func sayResync(w io.Writer, r openstack.Report) error {
	for _, p := range r.Problems {
		if _, err := fmt.Fprintln(w, p); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s, %s and %s are as Neutron's database says; %s written, %s deleted\n",
		console.Count(r.Ports, "port"), console.Count(r.SecurityGroups, "security group"), console.Count(r.Subnets, "subnet"), console.Count(r.Written, "key"), console.Count(r.Deleted, "key"))
	return err
}
