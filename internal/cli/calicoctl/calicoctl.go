// Package calicoctl is the command line under the name calicoctl: upstream's grammar, columns, messages and exit codes, so that
// scripts written for it run unchanged.
//
// In: arguments and the environment as calicoctl takes them. Out: what calicoctl prints, and 0 or 1. What is done is done by
// the operations of twill's own commands (internal/resources, internal/ipam) or by those commands themselves; this package
// only translates (decision 075).
//
// Source of the names, columns and messages: calicoctl's documentation and its public system tests.
package calicoctl

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/datastore"
)

// names are those under which the binary is calicoctl; as kubectl's plugin it reaches the cluster that kubectl does.
var names = []string{"calicoctl", "kubectl-calico"}

// Called reports whether the program was called by one of calicoctl's names.
func Called(argv0 string) bool { return slices.Contains(names, filepath.Base(argv0)) }

// Twill runs one of twill's own commands, and returns its exit code.
type Twill func(ctx context.Context, e *conn.Env, args []string) int

// command is one call.
type command struct {
	*conn.Env
	twill Twill
	args  parsed
}

// Run runs calicoctl's command line, without the program's name, and returns the exit code: 0 done, 1 not.
func Run(ctx context.Context, e *conn.Env, twill Twill, args []string) int {
	c := &command{Env: e, twill: twill}
	common := pflag.NewFlagSet("", pflag.ContinueOnError)
	e.AddFlags(common)
	if err := c.run(ctx, common, args); err != nil {
		return c.failed(err)
	}
	return 0
}

// failed prints why a call failed.
func (c *command) failed(err error) int {
	var bad *invalidOption
	var code exitCode
	switch {
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &bad) && bad.first:
		fmt.Fprintln(c.Out, err) // calicoctl writes this one to standard output
	default:
		fmt.Fprintln(c.Err, err)
	}
	return 1
}

// exitCode is that of a command of twill's, which has said why.
type exitCode int

// Error is part of error.
func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// run reads what stands before the command, and hands the rest to it.
func (c *command) run(ctx context.Context, common *pflag.FlagSet, args []string) error {
	top, rest, err := parseTop(args)
	if err != nil {
		return err
	}
	if top.help {
		fmt.Fprint(c.Out, usage())
		return nil
	}
	if top.version {
		fmt.Fprintln(c.Out, "Run 'calicoctl version' to see version information.")
		return nil
	}
	if err := common.Set("log-level", top.logLevel); err != nil {
		fmt.Fprintf(c.Out, "Unknown log level: %s, expected one of: \npanic, fatal, error, warn, info, debug.\n", top.logLevel)
		return exitCode(1)
	}
	verb, words, ok := lookup(rest)
	if !ok {
		return fmt.Errorf("unknown command: %q\n%s", strings.Join(words, " "), usage())
	}
	if top.mismatch {
		rest = append(rest, "--allow-version-mismatch")
	}
	c.args, err = verb.parse(rest, len(words))
	if err != nil {
		return err
	}
	if c.args.help {
		fmt.Fprint(c.Out, verb.usage())
		return nil
	}
	for flag, value := range map[string]string{"config": c.args.text("config"), "context": c.args.textOr("context", top.context)} {
		if value == "" {
			continue
		}
		if err := common.Set(flag, value); err != nil {
			return err
		}
	}
	if verb.checked {
		if err := c.checkVersion(ctx); err != nil {
			return err
		}
	}
	return verb.run(c, ctx)
}

// with opens the datastore for a command.
func (c *command) with(ctx context.Context, do func(context.Context, datastore.Store) error) error {
	opened := false
	err := c.Conn.Long(ctx, func(ctx context.Context, s datastore.Store) error {
		opened = true
		return do(ctx, s)
	})
	if err != nil && (!opened || conn.IsUnreachable(err)) {
		fmt.Fprintf(c.Out, "Failed to create Calico API client: %s\n", err)
		return exitCode(1)
	}
	return err
}

// own runs a command of twill's in the place of this one.
func (c *command) own(ctx context.Context, args ...string) error {
	if code := c.twill(ctx, c.Env, append(args, c.where()...)); code != 0 {
		return exitCode(1)
	}
	return nil
}

// where are the flags that say where the datastore is.
func (c *command) where() (out []string) {
	for _, flag := range []string{"config", "context"} {
		if v := c.args.text(flag); v != "" {
			out = append(out, "--"+flag+"="+v)
		}
	}
	return out
}
