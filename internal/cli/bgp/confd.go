package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/node"
)

func (c *command) confdCmd() *cobra.Command {
	var l conn.Local
	var cfg daemon.Confd
	var reg Registration
	cmd := &cobra.Command{
		Use:   "confd",
		Short: "Write BIRD's configuration from the datastore, for sites that keep BIRD",
		Long: `Write the configuration of BIRD 2 from the same resources that "twill bgp" reads,
for sites that keep BIRD. A new one is written to a file next to the old one and
checked by "bird -p"; if that accepts it, it replaces the old one, and BIRD is sent
"configure". A configuration that did not change is not written.

"twill node --bgp=bird" runs this and "twill bird" in place of "twill bgp".

With --reflector BIRD is a dedicated route reflector: it originates no route and
installs none. Its Node has a routeReflectorClusterID; --cluster-id writes it, but
not with --onetime. "twill node --bgp=bird-reflector" runs it.

Templates of your own are rendered, too: conf.d/*.toml and templates/* below --confdir
are as confd documents them, with the keys that Calico's confd has. One whose dest is
--output takes the built-in configuration's place. One that fails leaves its file as
it was, is named, and with --onetime the exit code is 1.`,
		Example: "  twill confd --onetime --output /tmp/bird.conf --bird-socket=\n  twill confd --onetime --output= --confdir ./confd --bird-socket=\n  twill confd --node h1\n  twill confd --reflector --cluster-id 244.0.0.1",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			if err := errors.Join(l.Read(), reg.Check(cfg.Reflector)); err != nil {
				return err
			}
			cfg.Node, cfg.Store, cfg.Log, cfg.Check = l.Node, l.Followed(&c.Conn), c.LogAs(l.Settings.LogFormat), checkBird
			cfg.Level, cfg.Local, cfg.Relay = &c.Level, l.Layers, l.Settings.Relay
			cfg.Store.DialTimeout, cfg.Version, cfg.Dir, cfg.Run = c.Conn.Timeout, conn.Version, l.Dir, shell
			if err := conn.NotOfALab("confd", cfg.Store.Endpoints); err != nil {
				return err
			}
			if reg.Cluster != "" && !cfg.Onetime {
				go node.RegisterLater(cmd.Context(), cfg.Store, l.Node, reg.Cluster, cfg.Log)
			}
			return daemon.RunConfd(cmd.Context(), cfg)
		},
	}
	l.AddFlags(cmd)
	f := cmd.Flags()
	addSecrets(cmd, &cfg.Config)
	f.StringVar(&cfg.Socket, "socket", conn.BgpSocket(), "where to answer \"twill bgp peers\", routes and why (TWILL_BGP_SOCKET)")
	addRouterID(cmd, &cfg.RouterID)
	f.StringVar(&cfg.Output, "output", birdConf(), "the configuration; empty: only templates are rendered (TWILL_BIRD_CONF)")
	f.StringVar(&cfg.Templates, "confdir", confdir(), "where templates of users are; empty: there are none (TWILL_CONFDIR)")
	f.StringVar(&cfg.Bird, "bird-socket", birdSocket(), "BIRD's control socket, for configure; empty: none (TWILL_BIRD_SOCKET)")
	f.BoolVar(&cfg.Reflector, "reflector", false, "make BIRD a dedicated route reflector: it originates no route, and installs none")
	reg.AddFlags(f)
	f.BoolVar(&cfg.Onetime, "onetime", false, "write it once, and end")
	f.BoolVar(&cfg.KeepStage, "keep-stage-file", false, "keep a configuration that BIRD refuses, as OUTPUT.stage")
	return cmd
}

// confdir is where templates of users are.
func confdir() string { return cmp.Or(os.Getenv("TWILL_CONFDIR"), "/etc/twill/confd") }

const (
	commandTime = time.Minute     // that a command of a template resource may take
	outputTime  = 5 * time.Second // after it has ended, for children that hold its output
)

// shell runs a command of a template resource, with all that it starts.
func shell(ctx context.Context, command string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	c := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = outputTime
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("it was ended: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("%q: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// checkBird returns an error if BIRD refuses a configuration.
func checkBird(file string) error {
	out, err := exec.Command("bird", "-p", "-c", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
