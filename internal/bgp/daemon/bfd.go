package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sched"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/serve"
)

// BFD is the configuration of the BFD daemon.
type BFD struct {
	Dir    string // where the last plan is stored, which has the peers
	Socket string // of the HTTP server; empty: none
	Log    *slog.Logger
}

const (
	bfdSocketName     = "BFD's socket"
	planPollInterval  = 500 * time.Millisecond
	listenRetry       = 5 * time.Second
	reconnectInterval = 200 * time.Millisecond
	heapLimit         = 64 << 20 // bytes; garbage is collected only when they are used up
)

// RunBFD keeps BFD sessions with the peers of the last plan until the context ends. It is a process of its own, apart from the one
// that speaks BGP, so that neither a restart nor a busy processor looks like a path that is down.
func RunBFD(ctx context.Context, cfg BFD) error {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(heapLimit)
	if err := sched.Realtime(); err != nil {
		cfg.Log.Warn("BFD runs without real-time scheduling: on a busy host a peer may wrongly be taken for dead; give it CAP_SYS_NICE, or longer intervals", "err", err)
	}
	h, err := rtnl.Open()
	if err != nil {
		return fmt.Errorf("bfd: open netlink (are you root?): %w", err)
	}
	defer h.Close()
	reg := prometheus.NewRegistry()
	counted := metrics.NewBFD(reg)
	engine, err := listen(ctx, bfd.Config{Link: linkTo(h), Log: cfg.Log, OnSend: counted.Late}, cfg.Log)
	if err != nil {
		return err
	}
	counted.Follow(func() ([]bfd.Status, bfd.Counts) {
		all, _ := engine.Statuses()
		return all, engine.Counts()
	})
	socket := serve.New(bfdSocketName, bfdHandler(engine, reg), cfg.Log)
	if cfg.Socket != "" {
		socket.Move(serve.At{Network: "unix", Address: cfg.Socket})
	}
	group, ctx := errgroup.WithContext(ctx)
	for name, run := range map[string]func(context.Context) error{
		"engine": engine.Run,
		"socket": socket.Run,
		"plan": func(ctx context.Context) error {
			return followPlan(ctx, filepath.Join(cfg.Dir, planFile), engine, cfg.Log)
		},
		"links": func(ctx context.Context) error { return followLinks(ctx, h, engine) },
	} {
		group.Go(func() error { return fmt.Errorf("%s: %w", name, run(ctx)) })
	}
	cfg.Log.Info("bfd runs")
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("bfd: %w", err)
	}
	return nil
}

// listen opens the engine, and retries while another process has the port.
func listen(ctx context.Context, cfg bfd.Config, log *slog.Logger) (*bfd.Engine, error) {
	logged := false
	for {
		e, err := bfd.New(cfg)
		if err == nil {
			return e, nil
		}
		if !logged {
			log.Error("BFD cannot listen: does another program use its port?", "err", err, "retry_in", listenRetry)
			logged = true
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(listenRetry):
		}
	}
}

// linkTo finds the link on which a peer is.
func linkTo(h *rtnl.Handle) func(netip.Addr) (int, error) {
	return func(peer netip.Addr) (int, error) {
		hop, err := h.Lookup(peer)
		switch {
		case err != nil:
			return 0, err
		case hop.Gateway.IsValid():
			return 0, fmt.Errorf("%s is behind %s: BFD is for peers on a link of this host", peer, hop.Gateway)
		}
		return hop.Link, nil
	}
}

// followPlan sets the engine's peers from the plan on disk, which the BGP daemon writes, whenever the file changes.
func followPlan(ctx context.Context, file string, engine *bfd.Engine, log *slog.Logger) error {
	look := time.NewTicker(planPollInterval)
	defer look.Stop()
	var last fs.FileInfo
	for {
		if info, err := os.Stat(file); err == nil && (last == nil || !os.SameFile(info, last) || info.ModTime() != last.ModTime()) {
			last = info
			if p, err := load(file); err != nil {
				log.Error("the plan cannot be read; BFD keeps its sessions", "err", err)
			} else {
				engine.SetPeers(peersOf(p))
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
}

func peersOf(p plan.Plan) []bfd.Peer {
	var out []bfd.Peer
	for _, s := range p.Sessions {
		if s.BFD.Interval > 0 {
			out = append(out, bfd.Peer{Addr: s.Peer, Source: s.Source, Timing: bfd.Timing(s.BFD.BFD)})
		}
	}
	return out
}

// followLinks notifies the engine of changed links and addresses.
func followLinks(ctx context.Context, h *rtnl.Handle, engine *bfd.Engine) error {
	watch, err := h.Watch(rtnl.WatchLinks | rtnl.WatchAddrs)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = watch.Close() })
	defer stop()
	for {
		events, err := watch.Receive()
		if errors.Is(err, os.ErrClosed) {
			return ctx.Err()
		}
		if err != nil || len(events) > 0 {
			engine.LinksChanged()
		}
	}
}

// bfdHandler serves metrics, and a stream of statuses: the present ones, and again after each change.
func bfdHandler(engine *bfd.Engine, reg prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /watch", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder, flush := json.NewEncoder(w), http.NewResponseController(w)
		for {
			all, changed := engine.Statuses()
			if all == nil {
				all = []bfd.Status{}
			}
			if errors.Join(encoder.Encode(all), flush.Flush()) != nil {
				return // the reader has gone
			}
			select {
			case <-r.Context().Done():
				return
			case <-changed:
			}
		}
	})
	return mux
}

// watchBFD passes on the BFD daemon's statuses, and nil when it cannot be reached.
func watchBFD(ctx context.Context, socket string, out chan<- []bfd.Status, log *slog.Logger) error {
	emit := func(s []bfd.Status) error {
		select {
		case out <- s:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		err := readBFD(ctx, socket, emit)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		log.Debug("BFD", "err", err, "retry_in", reconnectInterval)
		if err := emit(nil); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnectInterval):
		}
	}
}

func readBFD(ctx context.Context, socket string, emit func([]bfd.Status) error) error {
	resp, err := get(ctx, socket, "/watch")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the BFD daemon answers %s", resp.Status)
	}
	for decoder := json.NewDecoder(resp.Body); ; {
		var all []bfd.Status
		if err := decoder.Decode(&all); errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
		if err := emit(all); err != nil {
			return err
		}
	}
}
