package ctl

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// cli is a command line on a store in memory.
type cli struct {
	t     *testing.T
	store *memstore.Store
}

func newCLI(t *testing.T) *cli { return &cli{t, memstore.New()} }

// run runs a command with text on standard input.
func (c *cli) run(in string, args ...string) (code int, out, errs string) {
	c.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := &command{stdio: Stdio{strings.NewReader(in), &stdout, &stderr}}
	cmd.conn.open = func(context.Context) (datastore.Store, func(), error) { return c.store, func() {}, nil }
	code = run(c.t.Context(), cmd, args)
	return code, stdout.String(), stderr.String()
}

// want runs a command that must end with code, and returns all it said.
func (c *cli) want(code int, in string, args ...string) string {
	c.t.Helper()
	got, out, errs := c.run(in, args...)
	if got != code {
		c.t.Errorf("twill %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	return out + errs
}

// raw puts a value into the store that no command would.
func (c *cli) raw(kindAndName, value string) {
	c.t.Helper()
	if _, err := c.store.Create(c.t.Context(), api.Update{Key: api.ResourcesPrefix + kindAndName, Value: []byte(value)}); err != nil {
		c.t.Fatal(err)
	}
}

// put is raw, for what may be there.
func (c *cli) put(kindAndName, value string) {
	c.t.Helper()
	if err := datastore.Put(c.t.Context(), c.store, api.Update{Key: api.ResourcesPrefix + kindAndName, Value: []byte(value)}); err != nil {
		c.t.Fatal(err)
	}
}

// outrun makes another writer come first at the next so many updates.
func (c *cli) outrun(updates int) {
	c.store.Fail(func(o memstore.Op) error {
		if o.Verb == "update" && updates > 0 {
			updates--
			return datastore.ErrConflict
		}
		return nil
	})
}

func (c *cli) stored(kindAndName string) string {
	u, err := c.store.Get(c.t.Context(), api.ResourcesPrefix+kindAndName)
	if err != nil {
		return err.Error()
	}
	return string(u.Value)
}

// equal compares texts without what stands at the end of lines.
func equal(t *testing.T, got, want string) {
	t.Helper()
	trim := func(s string) string {
		var out []string
		for l := range strings.Lines(strings.Trim(s, "\n")) {
			out = append(out, strings.TrimRight(l, " \n"))
		}
		return strings.Join(out, "\n")
	}
	if trim(got) != trim(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in:\n%s", p, text)
		}
	}
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const prod = "testdata/prod.yaml"

func TestEveryCommandTeaches(t *testing.T) {
	root := newRoot(&command{})
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
		{"apply", "-f", prod, "more"},
		{"validate"},
		{"delete", "np"},
		{"delete", "np", "x", "-f", prod},
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
			contains(t, newCLI(t).want(2, "", args...), "twill: ")
		})
	}
	contains(t, newCLI(t).want(2, "", "aply"), "did you mean apply?")
	contains(t, newCLI(t).want(0, "", "lab"), "Available Commands")
}

func TestADatastoreThatIsAwaySaysWhatToDo(t *testing.T) {
	c := newCLI(t)
	c.store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	contains(t, c.want(1, "", "get", "tiers"), "No datastore answers at", "--etcd or ETCD_ENDPOINTS")
	if !isUnreachable(context.DeadlineExceeded) {
		t.Error("a deadline that is over means that nobody answered")
	}
}

func TestACommandThatHangsEndsAtItsTimeout(t *testing.T) {
	var errs bytes.Buffer
	cmd := &command{stdio: Stdio{strings.NewReader(""), &errs, &errs}}
	cmd.conn.open = func(ctx context.Context) (datastore.Store, func(), error) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	start := time.Now()
	if code := run(t.Context(), cmd, []string{"get", "tiers", "--timeout", "10ms"}); code != 1 || time.Since(start) > 5*time.Second {
		t.Errorf("exit code %d after %s", code, time.Since(start))
	}
	contains(t, errs.String(), "No datastore answers")
}

func TestHalfOfAFileIsNeverWritten(t *testing.T) {
	c := newCLI(t)
	bad := file(t, "bad.yaml", "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t1}\nspec: {order: 1}\n---\n"+
		"apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: x, namespace: prod}\nspec:\n  slector: all()\n  ingress: [{action: Alow}]\n")
	out := c.want(1, "", "apply", "-f", bad, "-f", prod)
	contains(t, out, bad+": NetworkPolicy prod/x (line 6): spec.slector", "did you mean selector?")
	if rev := c.store.Revision(); rev != 1 {
		t.Errorf("revision %d: something was written", rev)
	}
}
