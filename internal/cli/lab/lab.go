package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/lab"
	"github.com/twillnet/twill/internal/lab/script"
)

func (c *command) labCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Three hosts and six workloads on this machine",
		Long: `A lab is a network of hosts as network namespaces of this machine, each with a
real ` + "`twill node`" + ` of this same binary, and workloads behind veth pairs. It
needs root and nothing else; "twill lab down" leaves no trace.`,
	}
	cmd.RunE, cmd.Args = console.SubcommandWanted, cobra.ArbitraryArgs
	cmd.AddCommand(c.labUpCmd(), c.labRunCmd())
	var dir string
	for _, of := range []func(*string) *cobra.Command{c.labDownCmd, c.labStatusCmd, c.labMatrixCmd, c.labExecCmd, c.labReachCmd} {
		sub := of(&dir)
		sub.Flags().StringVar(&dir, "dir", lab.DefaultDir, "directory of the lab; \"lab run --keep\" prints those of the labs that it keeps")
		cmd.AddCommand(sub)
	}
	return cmd
}

func (c *command) labUpCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "up",
		Short:   "Bring the lab up, and show who reaches whom",
		Long:    "Bring up hosts, datastore, workloads and policies, then measure with real\nconnections who reaches whom, and compare with what the policies say.\n\nExit code: 0 every cell is right, 1 something is wrong.",
		Example: "  twill lab up",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l := &lab.Lab{Spec: lab.Demo(), Out: c.Stdio.Out, Progress: c.Stdio.Err}
			begin := time.Now()
			fmt.Fprintln(c.Stdio.Out, "Twill lab:")
			if err := l.Up(cmd.Context()); errors.Is(err, lab.ErrUp) {
				return err
			} else if err != nil {
				return fmt.Errorf("%w\nTake down what is there with `twill lab down`.", err)
			}
			if err := c.matrix(cmd.Context(), l, console.Output{}); err != nil {
				return err
			}
			fmt.Fprintf(c.Stdio.Out, "\nUp in %s. Try next:\n%s", time.Since(begin).Round(100*time.Millisecond), tryNext(l.Socket()))
			return nil
		},
	}
}

func tryNext(socket string) string {
	return `  export ETCD_ENDPOINTS=` + socket + `
  bin/twill why demo/client demo/db tcp/5432           # which rule denies this?
  bin/twill why demo/api demo/db tcp/5432              # which rule allows it?
  bin/twill get networkpolicies,globalnetworkpolicies -A
  bin/twill delete networkpolicy web -n demo && bin/twill lab matrix
  bin/twill lab exec h1 -- nft list table inet twill   # what the kernel has
  bin/twill lab exec demo/client -- ip route
  bin/twill lab down
`
}

// matrix measures, prints, and fails if a cell is wrong.
func (c *command) matrix(ctx context.Context, l *lab.Lab, output console.Output) error {
	cells, err := l.Matrix(ctx)
	if err != nil {
		return err
	}
	bad := 0
	var rows []connection
	for _, x := range cells {
		if !x.Right() {
			bad++
		}
		rows = append(rows, connection{x.Src, x.Dst, x.DstAddr.String(), x.Port, x.Got, x.Want, x.By})
	}
	err = c.Answer(output, console.Answer{Doc: rows, Name: ".address", Table: func(w io.Writer, _ bool) error {
		fmt.Fprintf(w, "\nWho reaches whom: %d real TCP connections, IPv4 and IPv6\n\n", len(cells))
		err := lab.PrintMatrix(w, &l.Spec, cells)
		if err == nil && bad == 0 {
			_, err = fmt.Fprintf(w, "\nAll %d cells are what verdict/world says.\n", len(cells))
		}
		return err
	}})
	if bad > 0 {
		return fmt.Errorf("%d of %d cells are not what verdict/world says; the logs are in %s", bad, len(cells), l.Dir)
	}
	return err
}

// connection is a cell of the matrix: a connection that was tried.
type connection struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Address   string `json:"address"`
	Port      uint16 `json:"port"`
	Connected bool   `json:"connected"`
	Allowed   bool   `json:"allowed"` // as verdict/world has it
	By        string `json:"by,omitempty"`
}

func (c *command) labDownCmd(dir *string) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Take the lab down, without a trace", Args: console.NoArgs,
		Long:    "Stop the lab's processes, remove its network namespaces and files, and print what\nwas removed. It also removes what an `up` that failed left behind, and is no error\nwithout a lab.\n\nExit code: 0 no lab is there any more, 1 something is left, 2 usage.",
		Example: "  twill lab down\n  twill lab down --dir /tmp/twill-lab-123",
		RunE: func(*cobra.Command, []string) error {
			return (&lab.Lab{Dir: *dir, Out: c.Stdio.Out, Progress: c.Stdio.Err}).Down()
		},
	}
}

// withLab gives a command the lab that is up.
func (c *command) withLab(dir string, do func(*lab.Lab) error) error {
	l, err := lab.Open(dir)
	if err != nil {
		return err
	}
	l.Progress = c.Stdio.Err
	return do(l)
}

func (c *command) labStatusCmd(dir *string) *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use: "status", Short: "Show hosts, workloads and addresses", Args: console.NoArgs,
		Long:    "Show hosts, workloads and addresses of the lab that is up.\n\nExit code: 0 all hosts run, 1 one does not, or there is no lab.",
		Example: "  twill lab status\n  twill lab status -o json",
		RunE: func(*cobra.Command, []string) error {
			return c.withLab(*dir, func(l *lab.Lab) error {
				var text bytes.Buffer
				down := l.PrintStatus(&text)
				err := c.Answer(output, console.Answer{Doc: l.Spec, Rows: ".hosts", Name: ".name", Table: func(w io.Writer, _ bool) error {
					_, err := text.WriteTo(w)
					return err
				}})
				if down > 0 {
					return fmt.Errorf("%d hosts are down", down)
				}
				return err
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}

func (c *command) labMatrixCmd(dir *string) *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use: "matrix", Short: "Measure again who reaches whom", Args: console.NoArgs,
		Long:    "Measure with real connections who reaches whom, and compare with what the\npolicies in the datastore now say.\n\nExit code: 0 every cell is right, 1 one is not.",
		Example: "  twill lab matrix\n  twill delete networkpolicy web -n demo && twill lab matrix",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withLab(*dir, func(l *lab.Lab) error { return c.matrix(cmd.Context(), l, output) })
		},
	}
	output.AddFlag(cmd)
	return cmd
}

func (c *command) labExecCmd(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:     "exec NAME -- COMMAND…",
		Short:   "Run a command in a host or workload of the lab",
		Long:    "Run a command in the network namespace of a host or workload; the datastore is\nthat of the lab.\n\nExit code: 0 the command ended well, else that of the command; 1 there is no lab, 2 usage.",
		Example: "  twill lab exec h1 -- nft list table inet twill\n  twill lab exec demo/client -- ip addr",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || cmd.ArgsLenAtDash() > 1 {
				return console.Usage("lab exec: want the name of a host or workload, and a command: twill lab exec h1 -- ip route")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault // of the command
			}
			return labNames(*dir, word), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return c.withLab(*dir, func(l *lab.Lab) error {
				code, err := l.Exec(args[0], args[1:], c.Stdio.In, c.Stdio.Out, c.Stdio.Err)
				if err == nil && code != 0 {
					return console.Exit{Code: code}
				}
				return err
			})
		},
	}
}

// labNames are the hosts and workloads of a lab that begin so; none without a lab.
func labNames(dir, word string) (names []string) {
	l, err := lab.Open(dir)
	if err != nil {
		return nil
	}
	for _, h := range l.Spec.Hosts {
		names = append(names, h.Name)
	}
	for _, w := range l.Spec.Workloads {
		names = append(names, w.String())
	}
	return console.Beginning(names, word)
}

func (c *command) labReachCmd(dir *string) *cobra.Command {
	var v6 bool
	var output console.Output
	cmd := &cobra.Command{
		Use:     "reach SRC DST tcp/PORT",
		Short:   "Try one real connection between two workloads or hosts",
		Long:    "Open a service on the port in DST, and try to connect to it from SRC.\n\nExit code: 0 it connects, 3 it does not.",
		Example: "  twill lab reach demo/client demo/web tcp/80",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 3 {
				return console.Usage("lab reach: want SRC DST tcp/PORT: twill lab reach demo/client demo/web tcp/80")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return console.Beginning([]string{"tcp/"}, word), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
			}
			return labNames(*dir, word), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text, ok := strings.CutPrefix(strings.ToLower(args[2]), "tcp/")
			port, err := strconv.ParseUint(text, 10, 16)
			if !ok || err != nil {
				return console.Usage("%q: want tcp/PORT", args[2])
			}
			return c.withLab(*dir, func(l *lab.Lab) error {
				ok, err := l.Reach(args[0], args[1], uint16(port), v6)
				if err != nil {
					return err
				}
				err = c.Answer(output, console.Answer{
					Doc: map[string]any{"from": args[0], "to": args[1], "port": port, "connected": ok}, Name: ".connected",
					Table: func(w io.Writer, _ bool) error {
						_, err := fmt.Fprintln(w, map[bool]string{true: "connected", false: "no connection"}[ok])
						return err
					},
				})
				if err == nil && !ok {
					return console.Exit{Code: 3}
				}
				return err
			})
		},
	}
	output.AddFlag(cmd)
	cmd.Flags().BoolVarP(&v6, "ipv6", "6", false, "over IPv6")
	return cmd
}

func (c *command) labRunCmd() *cobra.Command {
	var r lab.Runner
	cmd := &cobra.Command{
		Use:   "run FILE…",
		Short: "Run scenarios, each on hosts of its own",
		Long: `Run scenario files: hosts, links, workloads, policy, faults, and what must be
true after each. Each scenario has network namespaces and a datastore of its
own, which are gone when it ends; a lab that is up is not touched. With --keep
they stay, as a lab for "twill lab exec --dir DIR" and "twill lab down --dir DIR".

A scenario that fails leaves a bundle, a directory with its steps, logs,
rulesets, routes, settings, captures and the datastore's content.

The language is described in docs/lab.md; examples are in testdata/script.

Exit code: 0 all passed, 1 one failed, 2 a file cannot be read as a scenario.`,
		Example: "  twill lab run testdata/script/tier_pass.txt\n  twill lab run -v --bundle out testdata/script/*.txt",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return console.Usage("lab run: want files: twill lab run testdata/script/*.txt")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			scripts, err := readScripts(args)
			if err != nil {
				return err
			}
			r.Out, r.Progress = c.Stdio.Out, c.Stdio.Err
			if passed, failed := r.RunAll(cmd.Context(), scripts); failed > 0 || passed < len(scripts) {
				return console.Exit{Code: 1}
			}
			return nil
		},
	}
	cmd.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault) // files
	cmd.Flags().BoolVar(&r.Keep, "keep", false, "leave the hosts of each scenario running at its end, as a lab to look around in")
	cmd.Flags().StringSliceVar(&r.BIRD, "bird", nil, "hosts for which BIRD speaks BGP, as with \"twill node --bgp=bird\", or all (needs Debian's bird2)")
	cmd.Flags().BoolVar(&r.Proxy, "etcd-proxy", false, "have each host reach etcd by a proxy of its own (\"twill etcd proxy\")")
	cmd.Flags().StringVar(&r.Dataplane, "dataplane", "", "where all hosts have policy, whatever settings say: "+strings.Join(lab.Dataplanes, ", "))
	cmd.Flags().BoolVar(&r.Relay, "relay", false, "have hosts read the datastore by a relay (\"twill relay\")")
	cmd.Flags().BoolVarP(&r.Verbose, "verbose", "v", false, "show each step, how long it took, and what programs write")
	cmd.Flags().StringVar(&r.Bundle, "bundle", "", "directory in which a failed scenario leaves its bundle (default the system's temporary one)")
	return cmd
}

// readScripts parses all files before the first is run, and returns the errors of all of them.
func readScripts(files []string) ([]*script.Script, error) {
	var scripts []*script.Script
	var errs []error
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s, err := script.Parse(f, string(text))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		scripts = append(scripts, s)
	}
	if len(errs) > 0 {
		return nil, console.Usage("lab run: %v", errors.Join(errs...))
	}
	return scripts, nil
}
