package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

func TestEveryCommandTeaches(t *testing.T) {
	root := cli.Root(&conn.Env{})
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s: no Short", cmd.CommandPath())
		}
		resources := cmd.GroupID == "resources" || cmd.GroupID == "explain" || cmd.GroupID == "daemons"
		if resources && !cmd.HasSubCommands() && (cmd.Long == "" || cmd.Example == "") {
			t.Errorf("%s: needs Long and Example", cmd.CommandPath())
		}
		if cmd.Flags().HasAvailableFlags() && !cmd.HasSubCommands() && cmd.Long == "" {
			t.Errorf("%s: has flags and no Long", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

func TestWrongCallsAreUsage(t *testing.T) {
	for _, args := range [][]string{
		{"aply"},
		{"lab", "upp"},
		{"get"},
		{"get", "podds"},
		{"get", "np", "-o", "xml"},
		{"get", "np", "--no-such-flag"},
		{"apply"},
		{"apply", "-f", clitest.Prod, "more"},
		{"validate"},
		{"delete", "np"},
		{"delete", "np", "x", "-f", clitest.Prod},
		{"why", "a", "b"},
		{"why", "a", "b", "tcp"},
		{"why", "a", "b", "tcp/x"},
		{"why", "a", "b", "tcp/70000"},
		{"why", "a", "b", "foo/1"},
		{"why", "a", "b", "icmp/300"},
		{"why", "a", "b", "tcp/1", "-4", "-6"},
		{"why", "a", "b", "tcp/1", "-o", "xml"},
		{"lab", "reach", "a"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			clitest.Contains(t, newCLI(t).Want(2, "", args...), "twill: ")
		})
	}
	clitest.Contains(t, newCLI(t).Want(2, "", "aply"), "did you mean apply?")
	clitest.Contains(t, newCLI(t).Want(0, "", "lab"), "Available Commands")
}

func TestADatastoreThatIsAwaySaysWhatToDo(t *testing.T) {
	c := newCLI(t)
	c.Store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	clitest.Contains(t, c.Want(1, "", "get", "tiers"), "No datastore answers at", "--etcd or ETCD_ENDPOINTS")
	if !conn.IsUnreachable(context.DeadlineExceeded) {
		t.Error("a deadline that is over means that nobody answered")
	}
}

func TestACommandThatHangsEndsAtItsTimeout(t *testing.T) {
	var errs bytes.Buffer
	cmd := &conn.Env{Stdio: console.Stdio{In: strings.NewReader(""), Out: &errs, Err: &errs}}
	cmd.Conn.Open = func(ctx context.Context) (datastore.Store, func(), error) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	if code := cli.Execute(t.Context(), cmd, []string{"get", "tiers", "--timeout", "10ms"}); code != 1 {
		t.Errorf("exit code %d", code)
	}
	clitest.Contains(t, errs.String(), "No datastore answers")
}

func TestHalfOfAFileIsNeverWritten(t *testing.T) {
	c := newCLI(t)
	bad := clitest.File(t, "bad.yaml", "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t1}\nspec: {order: 1}\n---\n"+
		"apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: x, namespace: prod}\nspec:\n  slector: all()\n  ingress: [{action: Alow}]\n")
	out := c.Want(1, "", "apply", "-f", bad, "-f", clitest.Prod)
	clitest.Contains(t, out, bad+": NetworkPolicy prod/x (line 6): spec.slector", "did you mean selector?")
	if rev := c.Store.Revision(); rev != 1 {
		t.Errorf("revision %d: something was written", rev)
	}
}
