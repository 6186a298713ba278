package cluster

import (
	"cmp"
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
	var output console.Output
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
			out := &console.Stream{To: c.Stdio, As: output, Name: ".version"}
			first := versionRow{Version: conn.Version}
			if client {
				return out.Row(first, first.text())
			}
			if output.IsTable() { // it does not wait for the datastore
				if err := out.Row(first, first.text()); err != nil {
					return err
				}
			}
			return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				return c.printCluster(ctx, s, out, poll)
			})
		},
	}
	output.AddFlag(cmd)
	cmd.Flags().BoolVar(&client, "client", false, "this binary only; the datastore is not asked")
	cmd.Flags().DurationVar(&poll, "poll", 0, "ask again at this interval, and print what is new, until interrupted")
	return cmd
}

// versionRow is what there is to say of a version.
type versionRow struct {
	Version string        `json:"version"`
	Cluster *clusterState `json:"cluster,omitempty"`
}

func (v versionRow) text() string { return "twill " + v.Version + "\n" }

// clusterState is what a cluster's ClusterInformation says; empty: nothing is stored.
type clusterState struct {
	GUID    string `json:"guid,omitempty"`
	Type    string `json:"type,omitempty"`
	Version string `json:"version,omitempty"`
	Stored  bool   `json:"stored"`
	Locked  bool   `json:"locked"` // the datastore
}

func (c *command) printCluster(ctx context.Context, s datastore.Store, out *console.Stream, poll time.Duration) error {
	for last := ""; ; {
		state, err := stateOfCluster(ctx, s)
		if err != nil {
			return err
		}
		if text := state.text(); text != last {
			if err := out.Row(versionRow{conn.Version, &state}, text); err != nil {
				return err
			}
			last = text
		}
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

func stateOfCluster(ctx context.Context, s datastore.Store) (clusterState, error) {
	u, err := resources.FindStored(ctx, s, resources.ClusterInfo)
	if errors.Is(err, datastore.ErrNotFound) {
		return clusterState{}, nil
	}
	if err != nil {
		return clusterState{}, err
	}
	st, err := api.DecodeStored(u)
	if err != nil {
		return clusterState{}, err
	}
	info, ok := st.Resource.(*api.ClusterInformation)
	if !ok {
		return clusterState{}, fmt.Errorf("%s: cannot be read", u.Key)
	}
	return clusterState{GUID: info.Spec.ClusterGUID, Type: info.Spec.ClusterType, Version: info.Spec.CalicoVersion, Stored: true, Locked: info.Spec.Locked()}, nil
}

func (c clusterState) text() string {
	if !c.Stored {
		return "cluster: nothing is known of it; no " + resources.Short(resources.ClusterInfo) + " is stored\n"
	}
	state := "ready"
	if c.Locked {
		state = "locked; twill datastore unlock opens it"
	}
	const unknown = "not known"
	return fmt.Sprintf("cluster GUID: %s\ncluster type: %s\ncluster version: %s\ndatastore: %s\n",
		cmp.Or(c.GUID, unknown), cmp.Or(c.Type, unknown), cmp.Or(c.Version, unknown), state)
}
