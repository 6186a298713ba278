package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
)

// withoutOutput are the commands that have no -o, and why.
var withoutOutput = map[string]string{
	"kube crds": "it prints manifests, which are YAML for kubectl apply", "kube agent": "it prints manifests, which are YAML for kubectl apply",
	"kube install": "it prints manifests, which are YAML for kubectl apply", "kube node": "it prints manifests, which are YAML for kubectl apply",
	"kube chart": "an archive", "kube monitoring": "it prints manifests, or what Grafana and Prometheus read", "kube uninstall": "it prints manifests, which are YAML for kubectl apply",
	"agent": "a daemon: it logs", "bgp": "a daemon: it logs", "bfd": "a daemon: it logs", "bird": "a daemon: it logs", "confd": "a daemon: it logs",
	"kube controllers": "it prints manifests, which are YAML for kubectl apply", "kube-controllers": "a daemon: it logs", "relay": "a daemon: it logs", "dataplane": "a daemon: it logs", "endpoint-plugin": "it prints events, until it is ended", "kube-controllers check": "a probe: its exit code counts",
	"wireguard": "a daemon: it says nothing", "etcd": "a daemon: it logs", "etcd join": "a daemon: it logs", "etcd proxy": "a daemon: it logs", "node": "a daemon: it logs", "cni": "a runtime calls it, and has a format of its own",
	"check serve": "a daemon of a pod: it says nothing", "check try": "prints what its caller reads",
	"docker-plugin": "a daemon: it logs", "openstack-plugin": "a daemon: it logs", "dhcp": "a daemon: it logs", "policy-sync": "it prints messages as they come, each as a line of JSON",
	"config params": "prints a page of Markdown", "datastore export": "its format is that of import", "datastore migrate export": "its format is calicoctl's",
	"etcd certs": "says which files it writes", "cni install": "says which files it writes", "cni uninstall": "says which files it removes",
	"node install": "says what it does to the host", "node uninstall": "says what it does to the host", "node cleanup": "says what it does to the host",
	"node boot": "says what it does to the host", "node package": "says how many files it wrote",
	"lab up": "says how far it is, then what `lab matrix` prints", "lab down": "says what it removed", "lab exec": "prints what the command prints", "lab run": "says how far it is",
}

// tried are calls that print something on a store with addresses and testdata/prod.yaml. The other commands ask a daemon, the
// kernel, a lab or an editor, and print through the same [console.Output].
var tried = map[string]string{
	"get": "get nodes", "describe": "describe nodes", "apply": "apply -f testdata/prod.yaml", "create": "create -f testdata/prod.yaml --skip-exists",
	"diff": "diff -f testdata/upstream.yaml", "replace": "replace -f testdata/prod.yaml", "patch": "patch tier security -p '{spec: {order: 7}}' --dry-run", "label": "label node h1 a=b --dry-run",
	"delete": "delete np db -n prod --dry-run", "validate": "validate -f testdata/prod.yaml", "translate": "translate -f testdata/prod.yaml",
	"why": "why 10.65.0.1 prod/db tcp/5432", "selector match": "selector match has(a) a=b", "config": "config --all --offline", "version": "version",
	"datastore lock": "datastore lock", "datastore unlock": "datastore unlock",
	"ipam show": "ipam show", "ipam check": "ipam check", "ipam release": "ipam release --ip=10.65.0.200", "ipam configure": "ipam configure --strictaffinity=true",
	"status": "status --all", "simulate": "simulate --nodes 2 --endpoints 20 --policies 10 --duration 2s",
}

// mayBeEmpty have no row to name on that store.
var mayBeEmpty = map[string]bool{"status": true, "ipam check": true}

// TestEveryCommandTakesEveryOutput walks all commands: whatever prints something takes the same -o, and the table of docs/cli.md says so.
func TestEveryCommandTakesEveryOutput(t *testing.T) {
	page, left := tableOfOutputs(t), map[string]string{}
	for name, args := range tried {
		left[name] = args
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		_, name, _ := strings.Cut(cmd.CommandPath(), " ")
		f := cmd.Flags().Lookup("output")
		same := false
		if f != nil {
			_, same = f.Value.(*console.Output)
		}
		switch why, without := withoutOutput[name]; {
		case without && same:
			t.Errorf("twill %s takes -o, and is listed as a command that does not: %s", name, why)
		case !without && !same && cmd.Runnable() && !onlySubcommands(cmd):
			t.Errorf("twill %s prints something, and does not take the -o of all commands", name)
		}
		if args, ok := tried[name]; ok {
			delete(left, name)
			c := newCLI(t)
			c.Want(0, "", "apply", "-f", clitest.Prod)
			c.Want(0, "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.65.0.0/16}\n", "apply", "-f", "-")
			for _, format := range console.Formats {
				t.Run(name+" -o "+format, func(t *testing.T) { printsAs(c.On(t), name, args, format) })
			}
		}
	}
	walk(cli.Root(&conn.Env{}))
	for name := range left {
		t.Errorf("there is no command %s", name)
	}
	path := "../../docs/cli.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- outputs: written by TestEveryCommandTakesEveryOutput -update -->\n", "<!-- end of outputs -->"
	before, rest, ok1 := strings.Cut(string(text), begin)
	was, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+page+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		was = page
	}
	clitest.Equal(t, was, page)
}

// onlySubcommands reports whether a command does nothing by itself.
func onlySubcommands(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && cmd.Args != nil && cmd.Args(cmd, []string{"x"}) == nil || cmd.Name() == "completion" || cmd.HasParent() && cmd.Parent().Name() == "completion" || cmd.Name() == "help"
}

// tableOfOutputs is a row for each command.
func tableOfOutputs(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "\n| `twill` |")
	for _, f := range console.Formats {
		fmt.Fprintf(&b, " `%s` |", strings.TrimSuffix(f, "="))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(console.Formats)) + "\n")
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		_, name, _ := strings.Cut(cmd.CommandPath(), " ")
		if f := cmd.Flags().Lookup("output"); f != nil {
			if o, ok := f.Value.(*console.Output); ok {
				fmt.Fprintf(&b, "| `%s` |", name)
				for _, format := range console.Formats {
					mark := " ✓ |"
					if o.Set(format) != nil {
						mark = " |"
					}
					b.WriteString(mark)
				}
				b.WriteString("\n")
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(cli.Root(&conn.Env{}))
	return b.String() + "\n"
}

// printsAs runs a command with a format, and looks at what it prints.
func printsAs(c *clitest.CLI, name, args, format string) {
	t := c.T
	value := map[string]string{
		"custom-columns=": "A:.no,B:.such", "go-template=": "{{1}}", "jsonpath=": "x{.no}",
		"custom-columns-file=": clitest.File(t, "columns", "A B\n.no .such\n"), "go-template-file=": clitest.File(t, "template", "{{1}}"),
	}[format]
	code, out, errs := c.Run("", append(clitest.Words(args), "-o", format+value)...)
	if code == 2 || strings.Contains(errs, "-o") {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	if mayBeEmpty[name] && (out == "") {
		return
	}
	switch format {
	case "json":
		for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
			var v any
			if err := dec.Decode(&v); err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
		}
	case "yaml":
		for doc := range strings.SplitSeq(out, "---\n") {
			if _, err := yaml.YAMLToJSON([]byte(doc)); err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
		}
	case "custom-columns=", "custom-columns-file=":
		if strings.Join(strings.Fields(strings.SplitN(out, "\n", 2)[0]), " ") != "A B" {
			t.Errorf("no titles:\n%s", out)
		}
	case "go-template=", "go-template-file=":
		if !strings.HasPrefix(out, "1") {
			t.Errorf("not the template:\n%s", out)
		}
	case "jsonpath=":
		if !strings.HasPrefix(out, "x") {
			t.Errorf("not the path:\n%s", out)
		}
	}
	if out == "" {
		t.Errorf("nothing was printed; exit code %d\n%s", code, errs)
	}
}
