// Package cli is the command line: `twill apply`, `get`, `why`, `lab`, and the
// daemons as subcommands.
//
// In: arguments, standard streams, environment. Out: text or JSON on the
// streams, and an exit code: 0 done, 1 wrong, 2 usage; commands that answer a
// question say in their help which code means what.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/bgp"
	"github.com/twillnet/twill/internal/cli/calicoctl"
	"github.com/twillnet/twill/internal/cli/caliconode"
	"github.com/twillnet/twill/internal/cli/cluster"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/doctor"
	"github.com/twillnet/twill/internal/cli/etcd"
	"github.com/twillnet/twill/internal/cli/explain"
	"github.com/twillnet/twill/internal/cli/get"
	"github.com/twillnet/twill/internal/cli/ipam"
	"github.com/twillnet/twill/internal/cli/kube"
	"github.com/twillnet/twill/internal/cli/lab"
	"github.com/twillnet/twill/internal/cli/node"
	"github.com/twillnet/twill/internal/cli/paths"
	"github.com/twillnet/twill/internal/cli/resources"
	"github.com/twillnet/twill/internal/cli/selectors"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/cli/simulate"
)

// Stdio is where a command reads and writes.
type Stdio = console.Stdio

// plugin is the name under which kubectl finds a program that it runs as `kubectl twill`
// (https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/).
const plugin = "kubectl-twill"

// Run runs one command, whose first argument is the name of the program, and returns its exit code. As a plugin of kubectl it
// speaks to the cluster that kubectl speaks to, unless settings say otherwise. Under calicoctl's name it is calicoctl, and under
// those of upstream's daemons what stands in their place.
func Run(ctx context.Context, args []string, stdio Stdio) int {
	return RunIn(ctx, &conn.Env{Stdio: stdio}, args)
}

// RunIn is Run in an environment.
func RunIn(ctx context.Context, e *conn.Env, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if calicoctl.Called(args[0]) {
		e.Conn.Plugin = strings.HasPrefix(filepath.Base(args[0]), "kubectl-")
		return calicoctl.Run(ctx, e, Execute, args[1:])
	}
	if caliconode.Called(args[0]) {
		ctl := func(ctx context.Context, e *conn.Env, args []string) int { return calicoctl.Run(ctx, e, Execute, args) }
		return caliconode.Run(ctx, e, Execute, ctl, args)
	}
	e.Conn.Plugin = filepath.Base(args[0]) == plugin
	return Execute(ctx, e, args[1:])
}

// Execute runs one command in an environment, and returns its exit code.
func Execute(ctx context.Context, e *conn.Env, args []string) int {
	stdio := e.Stdio
	root := Root(e)
	root.SetArgs(args)
	root.SetIn(stdio.In)
	root.SetOut(stdio.Out)
	root.SetErr(stdio.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := 1
	var exit console.Exit
	if errors.As(err, &exit) {
		code = exit.Code
	}
	if msg := err.Error(); msg != "" {
		fmt.Fprintf(stdio.Err, "twill: %s\n", msg)
	}
	return code
}

// Root is the whole tree of commands.
func Root(e *conn.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "twill",
		Short: "Routed networking and network policy for containers, VMs and hosts",
		Long: `Twill connects containers, VMs and hosts by plain IP routing, and enforces
network policy at every endpoint. It speaks projectcalico.org/v3 resources and
Calico's etcd layout.

Try it on this machine:   twill lab up
Ask why a packet passes:  twill why demo/client demo/web tcp/80`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          console.SubcommandWanted,
		Args:          cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return console.Usage("%v\nRun '%s --help' for usage.", err, cmd.CommandPath())
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { // cobra asks, too, but its answer is no mistake of usage
		if err := cmd.ValidateFlagGroups(); err != nil {
			return console.Usage("%v\nRun '%s --help' for usage.", err, cmd.CommandPath())
		}
		return console.ParseOutput(cmd)
	}
	if e.Conn.Plugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl twill"}
	}
	e.AddFlags(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: "resources", Title: "Resources:"},
		&cobra.Group{ID: "explain", Title: "Explain:"},
		&cobra.Group{ID: "daemons", Title: "Daemons:"},
		&cobra.Group{ID: "try", Title: "Try:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add("resources", get.Commands(e)...)
	add("resources", resources.Commands(e)...)
	add("resources", ipam.Commands(e)...)
	add("explain", explain.Commands(e)...)
	add("explain", doctor.Commands(e)...)
	add("explain", paths.Commands(e)...)
	add("explain", selectors.Commands(e)...)
	add("explain", resources.Translate(e))
	add("daemons", node.Commands(e)...)
	add("daemons", etcd.Command(e))
	add("daemons", bgp.Commands(e)...)
	add("daemons", kube.Daemon(e))
	add("try", lab.Commands(e)...)
	add("try", simulate.Commands(e)...)
	root.AddCommand(cluster.Commands(e)...)
	root.AddCommand(kube.Commands(e)...)
	complete(e, root)
	return root
}

// complete has the shell offer what is known, and no files where none is meant, which is cobra's default.
func complete(e *conn.Env, cmd *cobra.Command) {
	show.Complete(&e.Conn).Flags(cmd)
	if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		complete(e, sub)
	}
}
