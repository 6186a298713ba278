package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/bgp/birdconf"
	"github.com/twillnet/twill/internal/bgp/birdctl"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/serve"
)

// Confd configures RunConfd.
type Confd struct {
	Config
	Output    string                  // the configuration's file; empty: only templates are rendered
	Bird      string                  // BIRD's control socket; empty: BIRD is not asked to reload
	Check     func(file string) error // has BIRD check a configuration
	Onetime   bool                    // write it once, and end
	KeepStage bool                    // leave a refused configuration next to the output
	// Templates is the directory of users' templates, with conf.d and templates. Empty: there are none.
	Templates string
	Run       func(ctx context.Context, command string) error // runs the commands of template resources
}

// RunConfd keeps BIRD's configuration up to date with the datastore, until the context ends.
func RunConfd(ctx context.Context, cfg Confd) error {
	if cfg.Node == "" {
		return errors.New("confd: no node name; set NODENAME or --node")
	}
	if err := plan.CheckRouterID(cfg.RouterID); err != nil {
		return fmt.Errorf("confd: %w", err)
	}
	h, err := rtnl.Open()
	if err != nil {
		return fmt.Errorf("confd: open netlink: %w", err)
	}
	defer h.Close()
	plans := make(chan plan.Plan)
	ctx, end := context.WithCancel(ctx)
	defer end()
	secrets, err := newPasswords(ctx, cfg.Config)
	if err != nil {
		return fmt.Errorf("confd: %w", err)
	}
	w := &confWriter{cfg: cfg, rtnl: h, secrets: secrets, requests: make(chan func()), started: time.Now()}
	k := newPlanSource(cfg.Config, plans, secrets)
	k.statuses, k.bird, k.keys = statuses{w, h}, true, cfg.Templates != ""
	if cfg.Templates != "" {
		w.templates = newTemplates(cfg)
	}
	if cfg.Onetime {
		return w.once(ctx, k)
	}
	if w.former, err = formerRoutes(h, cfg.Reflector); err != nil {
		return fmt.Errorf("confd: %w", err)
	}
	socket := serve.New(socketName, handler(w), cfg.Log)
	if cfg.Socket != "" {
		socket.Move(serve.At{Network: "unix", Address: cfg.Socket})
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.run(ctx) })
	group.Go(func() error { return socket.Run(ctx) })
	group.Go(func() error { return w.follow(ctx, plans) })
	if w.templates != nil {
		w.templates.report = func(problems []string) {
			_ = w.run(ctx, func() error { w.templateProblems = problems; return nil }) // fails when all ends
		}
		group.Go(func() error { return w.templates.run(ctx) })
	}
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// once writes what the datastore has now.
func (w *confWriter) once(ctx context.Context, k *planSource) error {
	p, err := k.now(ctx)
	if err != nil {
		return fmt.Errorf("confd: %w", err)
	}
	err = w.write(p)
	if w.templates == nil {
		return err
	}
	select {
	case w.templates.last = <-w.templates.in:
	default: // write found no keys
		return err
	}
	for _, problem := range w.templates.render(ctx) {
		err = errors.Join(err, errors.New(problem))
	}
	return err
}

// errNotReady: what the datastore has now may be a part of it.
var errNotReady = errors.New("the configuration stays as it is")

// now makes a plan of what the datastore has now.
func (k *planSource) now(ctx context.Context) (plan.Plan, error) {
	store, _, done, err := k.dial(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	defer done()
	p, err := k.read(ctx, store)
	k.secrets.use(ctx, p)
	return p, err
}

func (k *planSource) read(ctx context.Context, store datastore.Store) (plan.Plan, error) {
	resources := k.resources()
	err := takeOver(ctx, store, resources, k.prefixes())
	if k.needs = k.needsOf(resources); err == nil && k.needs != (needs{}) {
		err = takeOver(ctx, store, resources, k.prefixes())
	}
	if err != nil {
		return plan.Plan{}, err
	}
	if ready := resources.Readiness(); ready.Frozen() {
		return plan.Plan{}, fmt.Errorf("%s; %w", ready.Why(), errNotReady)
	}
	return k.plan(resources), nil
}

// takeOver reads all that a datastore has under prefixes.
func takeOver(ctx context.Context, store datastore.Store, into *plan.Resources, prefixes []string) error {
	for _, prefix := range prefixes {
		snap, err := store.List(ctx, prefix)
		if err != nil {
			return err
		}
		for _, u := range snap.Items {
			into.Update(u)
		}
	}
	return nil
}

// confWriter writes BIRD's configuration, and reports BIRD's state. The goroutine of follow owns it.
type confWriter struct {
	cfg           Confd
	rtnl          *rtnl.Handle
	secrets       passwords
	requests      chan func()
	started       time.Time
	plan          plan.Plan
	configErr     string       // why the configuration on disk is not the plan's; empty: it is
	reloadPending bool         // BIRD has not read it
	former        []rtnl.Route // that BIRD does not keep: [formerRoutes]
	steady        time.Time    // since when BIRD is not recovering

	templates        *templates
	templateProblems []string // of templates that are not in effect
	stamp            string   // of their directory
}

// retryInterval is the time between attempts.
const retryInterval = time.Second

// follow rewrites the configuration when the plan or the node's blocks change.
func (w *confWriter) follow(ctx context.Context, plans <-chan plan.Plan) error {
	watch, err := w.rtnl.Watch(rtnl.WatchRoutes)
	if err != nil {
		return err
	}
	defer watch.Close()
	blocks := make(chan struct{}, 1)
	go blocksChange(watch, blocks)
	again := time.NewTicker(retryInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ask := <-w.requests:
			ask()
			continue
		case <-again.C:
			w.removeFormer(time.Now())
			if changed := w.templatesChanged(); w.configErr == "" && !changed {
				continue
			}
		case w.plan = <-plans:
		case <-blocks:
		}
		if w.plan.Node == "" {
			continue
		}
		why := ""
		if err := w.write(w.plan); err != nil {
			why = err.Error()
		}
		if why != "" && why != w.configErr {
			w.cfg.Log.Error("BIRD's configuration stays as it was", "err", why, "retry_in", retryInterval)
		}
		w.configErr = why
	}
}

// blocksChange signals when the agent's block routes in the kernel may have changed.
func blocksChange(watch *rtnl.Watcher, out chan<- struct{}) {
	for {
		events, err := watch.Receive()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err == nil && !slices.ContainsFunc(events, func(e rtnl.Event) bool { return e.Route != nil && isBlock(*e.Route) }) {
			continue
		}
		select {
		case out <- struct{}{}:
		default:
		}
	}
}

func isBlock(r rtnl.Route) bool {
	return r.Protocol == kernel.RouteProtocolAgent && r.Kind == rtnl.Blackhole && r.Table == 0
}

// write replaces the configuration if it changed and BIRD's check accepts it, and has BIRD reload it.
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
	if w.templates != nil {
		keys, missing := templateKeys(p, blocks, w.secrets.read)
		w.templates.offer(templateInput{keys, missing})
	}
	if is, err := w.builtIn(); !is {
		return err
	}
	text, err := birdconf.Render(birdconf.Config{Plan: p, Blocks: blocks, Secret: w.secrets.read})
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(w.cfg.Output); err != nil || string(old) != text {
		if err := w.replace(text); err != nil {
			return err
		}
		w.cfg.Log.Info("BIRD's configuration is written", "file", w.cfg.Output, "sessions", len(p.Sessions))
		w.reloadPending = true
	}
	if w.cfg.Bird == "" || !w.reloadPending {
		return nil
	}
	if err := birdctl.Configure(w.cfg.Bird); err != nil && !doesNotRun(err) { // BIRD reads it when it starts
		return err
	}
	w.reloadPending = false
	return nil
}

// replace replaces the configuration, if BIRD's check accepts the new one.
func (w *confWriter) replace(text string) error {
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
	return os.Rename(stage, w.cfg.Output)
}

// doesNotRun reports whether there is no BIRD at a socket.
func doesNotRun(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
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
