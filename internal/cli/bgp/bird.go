package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
)

// birdConf and birdSocket are where Debian's BIRD has them, so that birdc needs no options.
func birdConf() string { return cmp.Or(os.Getenv("TWILL_BIRD_CONF"), "/etc/bird/bird.conf") }

func birdSocket() string { return cmp.Or(os.Getenv("TWILL_BIRD_SOCKET"), "/run/bird/bird.ctl") }

func (c *command) birdCmd() *cobra.Command {
	var conf, socket string
	var reflector bool
	cmd := &cobra.Command{
		Use:   "bird",
		Short: "Run BIRD on the configuration that \"twill confd\" keeps",
		Long: `Become the host's BIRD 2 (Debian: apt install bird2), with the configuration that
"twill confd" keeps, as soon as there is one. "twill node --bgp=bird" runs it.

Where the kernel has routes that a BIRD or "twill bgp" learned before, BIRD starts
with a graceful restart: peers retain this host's routes, and it retains theirs,
until all have sent End-of-RIB. So end it by SIGKILL: on SIGTERM, BIRD closes its
sessions, and peers withdraw its routes.

With --reflector it is a dedicated route reflector, and has no routes in the kernel:
it starts gracefully whenever "twill confd" had written a configuration before.
"twill node --bgp=bird-reflector" runs it.`,
		Example: "  twill bird\n  twill bird --config /tmp/bird.conf --bird-socket /tmp/bird.ctl",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup() // until BIRD has a handler of its own, which reads its configuration again
			exe, err := exec.LookPath("bird")
			if err != nil {
				return errors.New("bird: there is no BIRD on this host: apt install bird2")
			}
			if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
				return err
			}
			left := reflector && daemon.HasConfiguration(conf)
			if err := awaitFile(cmd.Context(), conf); err != nil {
				return err
			}
			if !reflector {
				if left, err = daemon.HasLearnedRoutes(); err != nil {
					return fmt.Errorf("bird: read the kernel's routes: %w", err)
				}
			}
			return syscall.Exec(exe, birdArgs(conf, socket, left), os.Environ())
		},
	}
	cmd.Flags().StringVar(&conf, "config", birdConf(), "the configuration (TWILL_BIRD_CONF)")
	cmd.Flags().StringVar(&socket, "bird-socket", birdSocket(), "BIRD's control socket (TWILL_BIRD_SOCKET)")
	cmd.Flags().BoolVar(&reflector, "reflector", false, "BIRD is a dedicated route reflector here, as \"twill confd --reflector\" has it")
	return cmd
}

// birdArgs are how BIRD is run: in the foreground, and as after a crash if peers may still have routes of before.
func birdArgs(conf, socket string, left bool) []string {
	args := []string{"bird", "-f", "-c", conf, "-s", socket}
	if left {
		args = append(args, "-R")
	}
	return args
}

// awaitFile waits until there is a file.
func awaitFile(ctx context.Context, path string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
