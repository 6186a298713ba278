package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
)

// nobodySaysTheName takes away what this machine says of a node's name, and calls the host Host-A. It returns where upstream's
// agent would have written one down.
func nobodySaysTheName(t *testing.T) (upstream string) {
	t.Helper()
	clitest.ClearStoreEnv(t)
	t.Setenv("TWILL_CONFIG", clitest.File(t, "twill.conf", ""))
	t.Setenv("NODENAME", "")
	os.Unsetenv("NODENAME") // until Setenv's cleanup
	t.Setenv("HOSTNAME", "Host-A")
	was := conn.UpstreamsNameFile
	t.Cleanup(func() { conn.UpstreamsNameFile = was })
	conn.UpstreamsNameFile = filepath.Join(t.TempDir(), "upstream")
	return conn.UpstreamsNameFile
}

func TestANodeKeepsItsName(t *testing.T) {
	upstream := nobodySaysTheName(t)
	dir := t.TempDir()
	step := func(says, flag, want string) {
		t.Helper()
		l := conn.Local{Dir: dir, Node: flag}
		if err := l.Read(); err != nil || l.Node != want {
			t.Errorf("%s: the name is %q (%v), want %q", says, l.Node, err, want)
		}
	}
	step("nothing is known", "", "host-a")
	t.Setenv("HOSTNAME", "")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	step("the kernel's own", "", strings.ToLower(host))
	if err := os.WriteFile(upstream, []byte("old-calico\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	step("upstream's agent was here", "", "old-calico")
	if err := conn.KeepName(dir, "first"); err != nil {
		t.Fatal(err)
	}
	step("it was written down", "", "first")
	t.Setenv("NODENAME", "from-env")
	step("the environment says so", "", "from-env")
	step("a flag says so", "flag", "flag")
}

func TestTheNameIsReadFromTheDirectoryOfTheNodesData(t *testing.T) {
	nobodySaysTheName(t)
	dir := t.TempDir()
	if err := conn.KeepName(dir, "first"); err != nil {
		t.Fatal(err)
	}
	c := newCLI(t)
	c.Raw("felixconfigurations/node.first", `{"kind":"FelixConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"node.first"},"spec":{"logSeverityScreen":"Debug"}}`)
	clitest.Contains(t, c.Want(0, "", "config", "--data-dir", dir), "logSeverityScreen", "Debug", "node.first")
	clitest.Contains(t, c.Want(0, "", "config", "--data-dir", t.TempDir()), "Every setting has its default")
}

// TestTheDirectoryOfTheNodesNameCanBeGiven finds a command that looks for a name of this node elsewhere than `twill node` wrote it.
func TestTheDirectoryOfTheNodesNameCanBeGiven(t *testing.T) {
	found := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		name := cmd.Flags().Lookup("node")
		if name == nil || !strings.HasPrefix(name.Usage, "name of this node") || cmd.Name() == "install" { // which only writes it
			return
		}
		found++
		if dir := cmd.Flags().Lookup("data-dir"); dir == nil || dir.DefValue != "/var/lib/twill" {
			t.Errorf("twill %s works out which node this is, and --data-dir does not say where its name is", cmd.Name())
		}
	}
	if walk(cli.Root(&conn.Env{})); found < 5 {
		t.Errorf("%d commands work out which node this is; want those of the daemons", found)
	}
}
