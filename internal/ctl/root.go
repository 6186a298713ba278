// Package ctl is the command line: `twill apply`, `get`, `why`, `lab`, and the
// daemons as subcommands.
//
// In: arguments, standard streams, environment. Out: text or JSON on the
// streams, and an exit code: 0 done, 1 wrong, 2 usage; commands that answer a
// question say in their help which code means what.
package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Version is set by the build.
var Version = "dev"

// Stdio is where a command reads and writes.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// exit is an error with an exit code. An empty message prints nothing.
type exit struct {
	code int
	msg  string
}

func (e exit) Error() string { return e.msg }

// usage marks an error in how a command was called.
func usage(format string, args ...any) error { return exit{2, fmt.Sprintf(format, args...)} }

// Run runs one command and returns its exit code.
func Run(ctx context.Context, args []string, stdio Stdio) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, &command{stdio: stdio}, args)
}

func run(ctx context.Context, c *command, args []string) int {
	stdio := c.stdio
	root := newRoot(c)
	root.SetArgs(args)
	root.SetIn(stdio.In)
	root.SetOut(stdio.Out)
	root.SetErr(stdio.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := 1
	var e exit
	if errors.As(err, &e) {
		code = e.code
	}
	if msg := err.Error(); msg != "" {
		fmt.Fprintf(stdio.Err, "twill: %s\n", msg)
	}
	return code
}

// command carries what every subcommand needs.
type command struct {
	stdio Stdio
	conn  connection
	level slog.LevelVar
}

func newRoot(c *command) *cobra.Command {
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
		RunE:          subcommandWanted,
		Args:          cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%v\nRun '%s --help' for usage.", err, cmd.CommandPath())
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { // cobra asks, too, but its answer is no mistake of usage
		if err := cmd.ValidateFlagGroups(); err != nil {
			return usage("%v\nRun '%s --help' for usage.", err, cmd.CommandPath())
		}
		return nil
	}
	c.conn.addFlags(root.PersistentFlags())
	root.PersistentFlags().Var(logLevel{&c.level}, "log-level", "least severe lines to write to standard error: debug, info, warning, error, fatal or panic")
	root.PersistentFlags().String("context", "", "of a Kubernetes configuration file; of no use with etcd, which has none")
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
	add("resources", c.getCmd(), c.describeCmd(), c.applyCmd(), c.createCmd(), c.replaceCmd(), c.patchCmd(), c.labelCmd(), c.editCmd(), c.deleteCmd(), c.validateCmd(), c.ipamCmd())
	add("explain", c.statusCmd(), c.doctorCmd(), c.whyCmd(), c.flowsCmd(), c.selectorCmd(), c.translateCmd(), c.verifyCmd(), c.configCmd())
	add("daemons", c.nodeCmd(), c.agentCmd(), c.bgpCmd(), c.bfdCmd(), c.confdCmd(), c.birdCmd(), c.etcdCmd(), c.cniCmd())
	add("try", c.labCmd())
	root.AddCommand(c.versionCmd(), c.datastoreCmd())
	return root
}

// subcommandWanted is what a command does that only has subcommands.
func subcommandWanted(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
	}
	return usage("%s: no command %q%s\nRun '%s --help' for those there are.", cmd.CommandPath(), args[0], hint, cmd.CommandPath())
}

// logLevel is a flag that takes the names of levels that calicoctl knows.
type logLevel struct{ level *slog.LevelVar }

var levelNames = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "warn": slog.LevelWarn, "error": slog.LevelError,
	"fatal": slog.LevelError + 4, "panic": slog.LevelError + 4,
}

func (l logLevel) String() string {
	if l.level == nil {
		return "info"
	}
	return strings.ToLower(l.level.Level().String())
}

func (logLevel) Type() string { return "level" }

func (l logLevel) Set(text string) error {
	level, ok := levelNames[strings.ToLower(text)]
	if !ok {
		return errors.New("want debug, info, warning, error, fatal or panic")
	}
	l.level.Set(level)
	return nil
}

func (c *command) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(c.stdio.Err, &slog.HandlerOptions{Level: &c.level}))
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}
