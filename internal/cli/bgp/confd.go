package bgp

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

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
not with --onetime. "twill node --bgp=bird-reflector" runs it.`,
		Example: "  twill confd --onetime --output /tmp/bird.conf --bird-socket=\n  twill confd --node h1\n  twill confd --reflector --cluster-id 244.0.0.1",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			if err := errors.Join(l.Read(), reg.Check(cfg.Reflector)); err != nil {
				return err
			}
			cfg.Node, cfg.Store, cfg.Log, cfg.Check = l.Node, l.Store(&c.Conn), c.LogAs(l.Settings.LogFormat), checkBird
			cfg.Level, cfg.Local, cfg.Relay = &c.Level, l.Layers, l.Settings.Relay
			cfg.Store.DialTimeout, cfg.Version, cfg.Dir = c.Conn.Timeout, conn.Version, l.Dir
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
	f.StringVar(&cfg.Output, "output", birdConf(), "the configuration (TWILL_BIRD_CONF)")
	f.StringVar(&cfg.Bird, "bird-socket", birdSocket(), "BIRD's control socket, for configure; empty: none (TWILL_BIRD_SOCKET)")
	f.BoolVar(&cfg.Reflector, "reflector", false, "make BIRD a dedicated route reflector: it originates no route, and installs none")
	reg.AddFlags(f)
	f.BoolVar(&cfg.Onetime, "onetime", false, "write it once, and end")
	f.BoolVar(&cfg.KeepStage, "keep-stage-file", false, "keep a configuration that BIRD refuses, as OUTPUT.stage")
	return cmd
}

// checkBird returns an error if BIRD refuses a configuration.
func checkBird(file string) error {
	out, err := exec.Command("bird", "-p", "-c", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
