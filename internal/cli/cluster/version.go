package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

func (c *command) versionCmd() *cobra.Command {
	var client bool
	var poll time.Duration
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary and of the cluster",
		Long: `Print the version of this binary, and what the cluster's ClusterInformation says:
its id, type and version, and whether the datastore is locked. Nothing is
refused because versions differ: the stored form is Calico's, and what another
version wrote is kept.

Exit code: 0 printed, 1 the datastore does not answer, 2 usage.`,
		Example: "  twill version\n  twill version --client\n  twill version --poll 5s",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(c.Stdio.Out, "twill", conn.Version)
			if client {
				return nil
			}
			return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				return c.printCluster(ctx, s, poll)
			})
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "this binary only; the datastore is not asked")
	cmd.Flags().DurationVar(&poll, "poll", 0, "ask again at this interval, and print what is new, until interrupted")
	return cmd
}

func (c *command) printCluster(ctx context.Context, s datastore.Store, poll time.Duration) error {
	for last := ""; ; {
		text, err := clusterText(ctx, s)
		if err != nil {
			return err
		}
		if text != last {
			fmt.Fprint(c.Stdio.Out, text)
		}
		last = text
		if poll <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(poll):
		}
	}
}

func clusterText(ctx context.Context, s datastore.Store) (string, error) {
	u, err := resources.FindStored(ctx, s, resources.ClusterInfo)
	if errors.Is(err, datastore.ErrNotFound) {
		return "cluster: nothing is known of it; no " + resources.Short(resources.ClusterInfo) + " is stored\n", nil
	}
	if err != nil {
		return "", err
	}
	st, err := api.DecodeStored(u)
	if err != nil {
		return "", err
	}
	info, ok := st.Resource.(*api.ClusterInformation)
	if !ok {
		return "", fmt.Errorf("%s: cannot be read", u.Key)
	}
	or := func(text string) string {
		if text == "" {
			return "not known"
		}
		return text
	}
	state := "ready"
	if locked(info) {
		state = "locked; twill datastore unlock opens it"
	}
	return fmt.Sprintf("cluster GUID: %s\ncluster type: %s\ncluster version: %s\ndatastore: %s\n",
		or(info.Spec.ClusterGUID), or(info.Spec.ClusterType), or(info.Spec.CalicoVersion), state), nil
}

func locked(info *api.ClusterInformation) bool {
	return info.Spec.DatastoreReady != nil && !*info.Spec.DatastoreReady
}
