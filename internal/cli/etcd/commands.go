// Package etcd is `twill etcd`: a member of etcd in this process, its certificates, and what looks after a
// cluster of them: members that come and go, status, backups, space.
//
// In: flags, and how to reach the cluster, as every command does. Out: a running member; tables and documents.
package etcd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdadmin"
	"github.com/twillnet/twill/internal/terminal"
)

type command struct{ *conn.Env }

// Command is the command of this package, with its subcommands.
func Command(e *conn.Env) *cobra.Command {
	c := &command{e}
	cmd := c.memberCmd()
	cmd.AddCommand(c.certsCmd(), c.joinCmd(), c.proxyCmd(), c.leaveCmd(), c.statusCmd(), c.snapshotCmd(), c.restoreCmd(), c.defragCmd(), c.alarmCmd())
	return cmd
}

// with opens the cluster for one command.
func (c *command) with(ctx context.Context, do func(context.Context, *etcdadmin.Admin) error) error {
	return c.Conn.Etcd(ctx, func(ctx context.Context, cfg datastore.Config) error {
		admin, err := etcdadmin.Open(ctx, cfg)
		if err != nil {
			return err
		}
		defer admin.Close()
		return do(ctx, admin)
	})
}

func (c *command) statusCmd() *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the members of the etcd cluster, and how many may fail",
		Long: `Ask each member how it is: which version it has, whether it leads or only learns, what its
database takes of the disk (SIZE), what of that holds data (IN USE), which share of its quota
that is, how many entries of the log it is behind, and its alarms. Below stands how many more
members may fail before nothing can be written.

A member that does not answer is shown with the reason; the others are asked all the same.
What no majority can say, such as the alarms, is said to be unknown.

Exit code: 0 all members are healthy and there is no alarm, 1 something is wrong or nobody
answers, 2 usage.`,
		Example: "  twill etcd status\n  twill etcd status -o json --etcd https://192.0.2.1:2379,https://192.0.2.2:2379",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, a *etcdadmin.Admin) error {
				cluster, err := a.Status(ctx)
				if err != nil {
					return err
				}
				problems := cluster.Problems()
				err = c.Answer(output, console.Answer{
					Doc: cluster, Rows: ".members", Name: ".name", Kind: "member",
					Table: func(w io.Writer, wide bool) error { return sayStatus(w, cluster, wide) },
				})
				if err == nil && len(problems) > 0 {
					err = console.Exit{Code: 1, Msg: strings.Join(problems, "\n")}
				}
				return err
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}

func sayStatus(w io.Writer, cluster etcdadmin.Cluster, wide bool) error {
	titles := []string{"NAME", "ROLE", "VERSION", "SIZE", "IN USE", "QUOTA", "BEHIND", "ALARMS", "ENDPOINT"}
	if wide {
		titles = append(titles, "ID", "PEER URLS")
	}
	t := terminal.NewTable(w, titles...)
	for _, m := range cluster.Members {
		row := []string{m.Called(), role(m), "-", "-", "-", "-", "-", orDash(strings.Join(m.Alarms, ",")), orDash(m.Endpoint)}
		if m.Version != "" {
			row[2], row[3], row[4], row[6] = m.Version, console.Bytes(m.Size), console.Bytes(m.InUse), fmt.Sprint(m.Behind)
		}
		if m.Quota > 0 {
			row[5] = fmt.Sprintf("%d%% of %s", m.Share(), console.Bytes(m.Quota))
		}
		if wide {
			row = append(row, m.ID, strings.Join(m.PeerURLs, ","))
		}
		t.Row(row...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s of %d answer; %s\n", console.Count(cluster.Healthy, "voting member"), cluster.Voters, spare(cluster))
	return err
}

func role(m etcdadmin.Member) string {
	switch {
	case m.Err != "":
		return "unhealthy"
	case m.Leader:
		return "leader"
	case m.Learner:
		return "learner"
	}
	return "follower"
}

// spare says how many members may fail.
func spare(c etcdadmin.Cluster) string {
	switch {
	case c.MayFail < 0:
		return "that is no majority, and nothing can be written"
	case c.MayFail == 0:
		return "none of them may fail"
	case c.MayFail == 1:
		return "one of them may fail"
	}
	return fmt.Sprintf("%d of them may fail", c.MayFail)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
