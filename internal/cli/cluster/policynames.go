package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources/policynames"
	"github.com/twillnet/twill/internal/terminal"
)

// renaming is what migrate-policy-names was asked to do.
type renaming struct {
	policynames.Renaming
	force  bool
	output console.Output
}

func (c *command) policyNamesCmd() *cobra.Command {
	var r renaming
	cmd := &cobra.Command{
		Use:   "migrate-policy-names",
		Short: "Store policies of older versions under the names that users know",
		Long: `Before v3.32 Calico stored a policy of tier default as default.NAME, and showed it as NAME. Such
policies are in force, and are found as NAME by "twill get" and "twill apply"; other programs that
read the datastore see both names. This gives them the key that their name makes. All else that is
stored stays: rules, tier, order, labels, annotations, owners. Policies of other tiers, whose names
begin with their tier for users, too, stay as they are.

At each moment a policy is in force: on etcd the new key comes and the old one goes in one
transaction; with Kubernetes as the datastore the new object is there first. Where both names are
stored already and hold the same policy, the older one goes; where they differ it is refused by
name, unless --keep-newer says that the newer one is right. When it was interrupted, run it again.

Agents of Calico before v3.32 do not know a policy by its new name. So nothing is renamed while a
Node has no agent of Twill's that reports, unless the cluster's calicoVersion is v3.32 or
later, or --force is given. With Kubernetes, "twill kube-controllers" does the same by itself
(controllers.policyMigration of the KubeControllersConfiguration).

Exit code: 0 each policy is stored under its name, or was left alone; 1 one was refused, or older
agents may run; 2 usage. With --dry-run the same, as it would be.`,
		Example: `  twill datastore migrate-policy-names --dry-run
  twill datastore migrate-policy-names
  twill datastore migrate-policy-names -o json`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error { return c.renamePolicies(ctx, s, r) })
		},
	}
	r.output.AddFlag(cmd)
	cmd.Flags().BoolVar(&r.Dry, "dry-run", false, "only say what would be renamed, and what stands in the way")
	cmd.Flags().BoolVar(&r.KeepNews, "keep-newer", false, "where both names are stored and the policies differ, keep that of the newer name")
	cmd.Flags().BoolVar(&r.force, "force", false, "rename although agents of Calico before v3.32 may run")
	return cmd
}

func (c *command) renamePolicies(ctx context.Context, s datastore.Store, r renaming) error {
	found, err := policynames.Find(ctx, s)
	if err != nil {
		return err
	}
	var old *policynames.OldAgentsError
	if len(found) > 0 && !r.force {
		if err := policynames.CheckAgents(ctx, s); err != nil && !errors.As(err, &old) {
			return err
		}
	}
	if old != nil && !r.Dry {
		return fmt.Errorf("%w; nothing was renamed: --force renames all the same", old)
	}
	done := []policynames.Step{}
	refused := 0
	p, end := c.Working("renamed", len(found))
	for _, step := range found {
		did, err := r.Rename(ctx, s, step)
		if err != nil {
			end()
			return fmt.Errorf("%s: %w\n%d of %d were looked at before this; run it again when that is fixed", step.Policy, err, len(done), len(found))
		}
		if p.Step(); did.What != "" {
			done = append(done, did)
		}
		if did.What == policynames.Refused {
			refused++
		}
	}
	end()
	for _, step := range done {
		if step.Note != "" {
			fmt.Fprintf(c.Stdio.Err, "twill: %s, stored as %s, is %s: %s\n", step.Policy, step.Stored, step.What, step.Note)
		}
	}
	if old != nil {
		fmt.Fprintf(c.Stdio.Err, "twill: %s; without --dry-run this is refused, unless --force is given\n", old)
	}
	err = c.Answer(r.output, console.Answer{
		Doc: done, Name: ".policy",
		Table: func(w io.Writer, _ bool) error { return sayRenamed(w, done, r.Dry) },
	})
	if err == nil && (refused > 0 || old != nil) {
		err = console.Exit{Code: 1}
	}
	return err
}

// sayRenamed says what became of policies, or would.
func sayRenamed(w io.Writer, done []policynames.Step, dry bool) error {
	if len(done) == 0 {
		_, err := fmt.Fprintln(w, "each policy is stored under the name that users know")
		return err
	}
	t := terminal.NewTable(w, "POLICY", "STORED AS", "WHAT")
	n := 0
	for _, step := range done {
		t.Row(step.Policy, step.Stored, step.What)
		if step.What == policynames.Renamed || step.What == policynames.Removed {
			n++
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	text := fmt.Sprintf("%d of %s renamed", n, console.Count(len(done), "older name"))
	if dry {
		text = fmt.Sprintf("%d of %s would be renamed; nothing is written", n, console.Count(len(done), "older name"))
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
