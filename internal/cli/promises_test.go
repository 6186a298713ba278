package cli_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
)

// commands are those that do something, by what is typed after twill: not help and completion, which are cobra's.
func commands(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	out := map[string]*cobra.Command{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" && sub.Name() != "completion" {
				walk(sub)
			}
		}
		if _, name, _ := strings.Cut(cmd.CommandPath(), " "); name != "" && cmd.Runnable() && !onlySubcommands(cmd) {
			out[name] = cmd
		}
	}
	walk(cli.Root(&conn.Env{}))
	if len(out) < 40 {
		t.Fatalf("found %d commands", len(out))
	}
	return out
}

// daemons run until they are ended by a signal, and their exit codes are not documented.
var daemons = []string{"agent", "bgp", "bfd", "bird", "confd", "etcd", "node", "cni", "docker-plugin", "openstack-plugin", "dhcp", "kube-controllers", "relay", "dataplane"}

// TestHelpTeaches: each command says what it does, shows it in an example that is a right call of it, and says what its exit codes mean.
func TestHelpTeaches(t *testing.T) {
	for name, cmd := range commands(t) {
		t.Run(name, func(t *testing.T) {
			if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || cmd.Long == "" {
				t.Errorf("Short is %q, Long %q", cmd.Short, cmd.Long)
			}
			if !strings.Contains(cmd.Long, "Exit code: 0") && !slices.Contains(daemons, name) {
				t.Error("its exit codes are not said")
			}
			for line := range strings.Lines(cmd.Long) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > 100 {
					t.Errorf("a line of %d columns: %s", n, line)
				}
			}
			shown := false
			for _, call := range callsIn(cmd.Example) {
				found, err := rightCall(call)
				if err != nil {
					t.Errorf("example %q: %v", strings.Join(call, " "), err)
				}
				shown = shown || found == cmd.CommandPath()
			}
			if !shown {
				t.Errorf("no example calls it:\n%s", cmd.Example)
			}
		})
	}
}

var pipes = regexp.MustCompile(`\s(\|\||&&|\||>)\s`)

// callsIn are the calls of twill in an example, each as its arguments.
func callsIn(example string) (calls [][]string) {
	for line := range strings.Lines(strings.ReplaceAll(example, "\\\n", " ")) {
		line, _, _ = strings.Cut(line, " #")
		for _, part := range pipes.Split(line, -1) {
			if _, args, ok := strings.Cut(" "+strings.TrimSpace(part)+" ", " twill "); ok {
				calls = append(calls, clitest.Words(args))
			}
		}
	}
	return calls
}

// rightCall finds the command that is called, with flags that it has and arguments that it takes.
func rightCall(args []string) (string, error) {
	cmd, rest, err := cli.Root(&conn.Env{}).Find(args)
	if err != nil {
		return "", err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return "", err
	}
	return cmd.CommandPath(), cmd.ValidateArgs(cmd.Flags().Args())
}

// TestFlagsCompleteWhatIsKnown: where there is a list of what a flag may be, the shell has it.
func TestFlagsCompleteWhatIsKnown(t *testing.T) {
	filled := newCLI(t)
	filled.Want(0, "", "apply", "-f", clitest.Prod)
	known := map[string]string{"output": "json", "node": "h1", "log-level": "debug", "namespace": "prod", "bgp": "off"}
	for name, cmd := range commands(t) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			want, ok := known[f.Name]
			if !ok || f.Name == "output" && f.Shorthand != "o" { // confd's is a file
				return
			}
			t.Run(name+" --"+f.Name, func(t *testing.T) {
				c := filled.On(t)
				_, out, _ := c.Run("", append(append([]string{cobra.ShellCompRequestCmd}, strings.Fields(name)...), "--"+f.Name, want[:1])...)
				if !slices.Contains(strings.Fields(out), want) {
					t.Errorf("%s is not offered:\n%s", want, out)
				}
			})
		})
	}
}

// TestArgumentsComplete: what is typed is a kind, a resource, a node, a host of the lab; and where nothing can be typed, no file is offered.
func TestArgumentsComplete(t *testing.T) {
	filled := newCLI(t)
	filled.Want(0, "", "apply", "-f", clitest.Prod)
	filled.Want(0, "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.65.0.0/16}\n", "apply", "-f", "-")
	for _, tt := range []struct{ line, want string }{
		{"get no", "nodes"},
		{"get tiers,no", "tiers,nodes"},
		{"get node h", "h1"},
		{"get np -n prod d", "db"},
		{"describe no", "nodes"},
		{"describe node h", "h1"},
		{"delete no", "nodes"},
		{"delete node h", "h1"},
		{"edit no", "nodes"},
		{"edit node h", "h1"},
		{"patch no", "nodes"},
		{"patch node h", "h1"},
		{"label no", "nodes"},
		{"label node h", "h1"},
		{"why prod/", "prod/db"},
		{"why prod/web host/", "host/h1"},
		{"why prod/web prod/db t", "tcp/"},
		{"reach host/", "host/h1"},
		{"ipam split 2 --name p", "pods"},
		{"ipam sp", "split"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			c := filled.On(t)
			words := strings.Fields(tt.line)
			_, out, _ := c.Run("", append([]string{cobra.ShellCompRequestCmd}, words...)...)
			if !slices.Contains(strings.Fields(out), tt.want) {
				t.Errorf("%s is not offered:\n%s", tt.want, out)
			}
		})
	}
}

// TestNoFilesAreOfferedWhereNoneIsMeant: cobra's default is to offer those of the directory.
func TestNoFilesAreOfferedWhereNoneIsMeant(t *testing.T) {
	c := newCLI(t)
	files := []string{"lab run", "lab exec", "selector match"} // exec: programs and their files
	for name := range commands(t) {
		if slices.Contains(files, name) {
			continue
		}
		_, out, _ := c.Run("", append(append([]string{cobra.ShellCompRequestCmd}, strings.Fields(name)...), "")...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if last := lines[len(lines)-1]; last != ":4" && last != ":6" { // ShellCompDirectiveNoFileComp
			t.Errorf("twill %s TAB offers files: %q", name, out)
		}
	}
}
