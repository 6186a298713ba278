// Package conn is what commands share: how to reach the datastore, and what this host
// says of its node and of its daemons' sockets.
//
// In: flags, the environment, calicoctl's file and the file of settings. Out: an open
// store for the time of a command, with a deadline, and errors that say what to do.
package conn

import (
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli/console"
)

// Version is set by the build.
var Version = "dev"

// Env carries what every command needs.
type Env struct {
	console.Stdio
	Conn  Connection
	Level slog.LevelVar
}

// AddFlags adds the flags that all commands have.
func (c *Env) AddFlags(f *pflag.FlagSet) {
	c.Conn.waiting = func(what string) func() {
		_, end := c.Working(what, 0)
		return end
	}
	c.Conn.addFlags(f)
	f.Var(logLevel{&c.Level}, "log-level", "least severe lines to write to standard error: debug, info, warning, error, fatal or panic")
}

// Log is the log of a command.
func (c *Env) Log() *slog.Logger {
	return slog.New(slog.NewTextHandler(c.Err, &slog.HandlerOptions{Level: &c.Level}))
}
