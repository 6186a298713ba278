package etcd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/etcdadmin"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) defragCmd() *cobra.Command {
	var output console.Output
	var compact bool
	cmd := &cobra.Command{
		Use:   "defrag",
		Short: "Give back to the disk what members' databases do not use",
		Long: `Defragment one member after the other, the leader last. A member's quota counts what its
database takes of the disk; what was deleted or forgotten is given back only so.

A member does not answer while it is defragmented, a second for each few hundred MiB. It is
refused, before the first and between two, unless all members are healthy, so that the
others go on. A member that is alone is away for that long: agents keep what they enforce.

With --compact the history up to now is forgotten first. Members of twill do that by
themselves but for the last 10,000 revisions. Who watches from an older one lists again.

Exit code: 0 all are defragmented, 1 not all, 2 usage.`,
		Example: "  twill etcd defrag\n  twill etcd defrag --compact",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, a *etcdadmin.Admin) error {
				p, end := c.Working("defragmenting", 0)
				freed, err := a.Defragment(ctx, compact, p.Now)
				end()
				if say := c.Answer(output, console.Answer{
					Doc: freed, Name: ".member", Kind: "member",
					Table: func(w io.Writer, _ bool) error { return sayFreed(w, freed) },
				}); err == nil {
					err = say
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&compact, "compact", false, "forget the history up to now first")
	output.AddFlag(cmd)
	return cmd
}

func sayFreed(w io.Writer, freed []etcdadmin.Freed) error {
	if len(freed) == 0 {
		return nil
	}
	t := terminal.NewTable(w, "MEMBER", "BEFORE", "AFTER")
	for _, f := range freed {
		t.Row(f.Member, console.Bytes(f.Before), console.Bytes(f.After))
	}
	return t.Flush()
}

func (c *command) alarmCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alarm",
		Short: "Show and end alarms of etcd's members",
		RunE:  console.SubcommandWanted,
		Args:  cobra.ArbitraryArgs,
	}
	cmd.AddCommand(c.alarmListCmd(), c.alarmDisarmCmd())
	return cmd
}

func (c *command) alarmListCmd() *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the alarms of etcd's members",
		Long: `Show which members have raised an alarm. NOSPACE: the member's quota was used up, and the
cluster refuses writes until the alarm is disarmed. CORRUPT: it has other data than the rest.

Exit code: 0 there is none, 1 there is one, or nobody knows, 2 usage.`,
		Example: "  twill etcd alarm list",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, a *etcdadmin.Admin) error {
				alarms, err := a.Alarms(ctx)
				if err != nil {
					return err
				}
				err = c.Answer(output, answerOf(alarms, "There is no alarm."))
				if err == nil && len(alarms) > 0 {
					err = console.Exit{Code: 1}
				}
				return err
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}

func answerOf(alarms []etcdadmin.Alarm, none string) console.Answer {
	return console.Answer{Doc: alarms, Name: ".member", Kind: "member", Table: func(w io.Writer, _ bool) error {
		if len(alarms) == 0 {
			_, err := fmt.Fprintln(w, none)
			return err
		}
		t := terminal.NewTable(w, "MEMBER", "ALARM")
		for _, a := range alarms {
			t.Row(a.Member, a.Alarm)
		}
		return t.Flush()
	}}
}

func (c *command) alarmDisarmCmd() *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:   "disarm",
		Short: "Let the cluster be written to again once its members have space",
		Long: `End the alarm NOSPACE of each member, so that the cluster takes writes again, and print which
were ended. While a member's database still takes 95 % of its quota or more it is refused,
since the next writes would raise the alarm again: "twill etcd defrag --compact" makes space.
If all of it is data, start each member with a larger --quota. A member that is corrupt must
be replaced: its alarm is not ended.

Exit code: 0 there is no alarm any more, 1 there is, 2 usage.`,
		Example: "  twill etcd defrag --compact && twill etcd alarm disarm",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.with(cmd.Context(), func(ctx context.Context, a *etcdadmin.Admin) error {
				alarms, err := a.Disarm(ctx)
				if err != nil {
					return err
				}
				return c.Answer(output, answerOf(alarms, "There was no alarm."))
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}
