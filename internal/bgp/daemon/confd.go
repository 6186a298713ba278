package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/bgp/birdconf"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// Confd says how BIRD's configuration is kept.
type Confd struct {
	Config
	Output    string                  // the configuration
	Bird      string                  // BIRD's control socket; empty: it is told nothing
	Check     func(file string) error // what BIRD says of a configuration
	Onetime   bool                    // write it once, and end
	KeepStage bool                    // leave what was refused beside the output
}

// RunConfd keeps BIRD's configuration as the datastore says, until the context ends.
func RunConfd(ctx context.Context, cfg Confd) error {
	if cfg.Node == "" {
		return errors.New("confd: no node name; set NODENAME or --node")
	}
	if err := plan.CheckRouterID(cfg.RouterID); err != nil {
		return fmt.Errorf("confd: %w", err)
	}
	h, err := rtnl.Open()
	if err != nil {
		return fmt.Errorf("confd: open the kernel's door: %w", err)
	}
	defer h.Close()
	plans := make(chan plan.Plan)
	secrets := secretDir{dir: cfg.Secrets}
	k := keeper{cfg: cfg.Config, out: plans, secrets: secrets, file: filepath.Join(cfg.Dir, planFile)}
	w := confWriter{cfg: cfg, rtnl: h, secrets: secrets}
	if cfg.Onetime {
		p, err := k.now(ctx)
		if err != nil {
			return fmt.Errorf("confd: %w", err)
		}
		return w.write(p)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.run(ctx) })
	group.Go(func() error { return w.follow(ctx, plans) })
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// now makes a plan of what the datastore has now.
func (k *keeper) now(ctx context.Context) (plan.Plan, error) {
	store, err := k.dial(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	defer store.Close()
	world := plan.New()
	world.RouterID = k.cfg.RouterID
	for _, prefix := range plan.Prefixes() {
		snap, err := store.List(ctx, prefix)
		if err != nil {
			return plan.Plan{}, err
		}
		for _, u := range snap.Items {
			world.Update(u)
		}
	}
	return world.Plan(k.cfg.Node), nil
}

// confWriter writes BIRD's configuration.
type confWriter struct {
	cfg     Confd
	rtnl    *rtnl.Handle
	secrets secretDir
}

// follow writes it anew when the plan or the node's blocks change.
func (w *confWriter) follow(ctx context.Context, plans <-chan plan.Plan) error {
	watch, err := w.rtnl.Watch(rtnl.WatchRoutes)
	if err != nil {
		return err
	}
	defer watch.Close()
	blocks := make(chan struct{}, 1)
	go func() {
		for {
			events, err := watch.Receive()
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err == nil && !slices.ContainsFunc(events, func(e rtnl.Event) bool { return e.Route != nil && isBlock(*e.Route) }) {
				continue
			}
			select {
			case blocks <- struct{}{}:
			default:
			}
		}
	}()
	var p plan.Plan
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p = <-plans:
		case <-blocks:
		}
		if p.Node == "" {
			continue
		}
		if err := w.write(p); err != nil {
			w.cfg.Log.Error("BIRD's configuration stays as it was", "err", err)
		}
	}
}

func isBlock(r rtnl.Route) bool {
	return r.Protocol == kernel.RouteProtocolAgent && r.Kind == rtnl.Blackhole && r.Table == 0
}

// write replaces the configuration if it changed and BIRD takes it, and has BIRD read it.
func (w *confWriter) write(p plan.Plan) error {
	routes, err := w.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolAgent})
	if err != nil {
		return err
	}
	var blocks []netip.Prefix
	for _, r := range routes {
		if isBlock(r) {
			blocks = append(blocks, r.Dst)
		}
	}
	slices.SortFunc(blocks, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	text := birdconf.Render(birdconf.Config{Plan: p, Blocks: blocks, Secret: w.secrets.read})
	if old, err := os.ReadFile(w.cfg.Output); err == nil && string(old) == text {
		return nil
	}
	stage := w.cfg.Output + ".stage"
	if err := os.WriteFile(stage, []byte(text), 0o600); err != nil { // it has passwords
		return err
	}
	if err := w.cfg.Check(stage); err != nil {
		if !w.cfg.KeepStage {
			_ = os.Remove(stage)
		}
		return fmt.Errorf("refused: %w", err)
	}
	if err := keepOwner(w.cfg.Output, stage); err != nil {
		return err
	}
	if err := os.Rename(stage, w.cfg.Output); err != nil {
		return err
	}
	w.cfg.Log.Info("BIRD's configuration is written", "file", w.cfg.Output, "sessions", len(p.Sessions))
	if w.cfg.Bird == "" {
		return nil
	}
	return reload(w.cfg.Bird)
}

// keepOwner gives a file the mode of the one that it replaces, so that a BIRD that is not root can read it.
func keepOwner(old, fresh string) error {
	info, err := os.Stat(old)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	uid, gid := owner(info)
	return errors.Join(os.Chown(fresh, uid, gid), os.Chmod(fresh, info.Mode().Perm()&^0o007))
}

// reload has BIRD read its configuration. One that does not run reads it when it starts.
func reload(socket string) error {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(conn, "configure"); err != nil {
		return fmt.Errorf("tell BIRD: %w", err)
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		code, text, last := strings.Cut(lines.Text(), " ")
		if len(code) != 4 || !last || code == "0001" {
			continue // the greeting, or more to come
		}
		if code[0] == '8' || code[0] == '9' {
			return fmt.Errorf("BIRD: %s", text)
		}
		return nil
	}
	return fmt.Errorf("BIRD did not answer: %w", lines.Err())
}
