package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/relaypb"
	"github.com/twillnet/twill/internal/datastore"
)

// ClientConfig says where a relay is.
type ClientConfig struct {
	Address string                           // HOST:PORT or unix://PATH; a name that has several addresses is several relays
	Find    Find                             // nil: Address says it all; else that is only what the relays are called
	Named   bool                             // Creds are given each address that Find found, and not what the relays are called
	Creds   credentials.TransportCredentials // see TLS and Plaintext
	Timeout time.Duration                    // for an answer, and for each part of a snapshot; zero means 30s

	// Fallback is for how long the relay may be away before lists and watches go to the store itself, until the relay is back; zero: for ever.
	Fallback time.Duration
	Who      Who
	Log      *slog.Logger // nil: silent

	dial func(ctx context.Context, address string) (net.Conn, error) // nil: as the address says
}

// Who says to a relay's administrator who reads by it.
type Who struct {
	Node    string // its name in the datastore
	Program string // agent, bgp, node
	Version string
}

// Client is a store of which lists and watches come by a relay: of what the relay has, which may be a moment old. All else goes to the
// store itself, of which it closes nothing. It is for a [syncer.Syncer]: who must see what was written before it asked lists the store.
type Client struct {
	datastore.Store // direct
	cfg             ClientConfig
	dates           datastore.Dated // of it; nil: it has none
	open            func(context.Context, *relaypb.FollowRequest) (frames, error)
	close           func() error
	away            fallback
	order           datastore.Ordered // of the store itself; nil: it has none
	settled         settled
	leave           func() // the relay, for another one
}

// frames is a stream of a relay's.
type frames interface {
	Recv() (*relaypb.Frame, error)
}

// NewClient returns a client, which connects when it is first used. It fails if the address means nothing.
func NewClient(direct datastore.Store, cfg ClientConfig) (*Client, error) {
	if cfg.Creds == nil {
		return nil, errors.New("relay: neither TLS nor plaintext was asked for")
	}
	target, shuffle, to := cfg.Address, true, newDialer(cfg.dial)
	options := []grpc.DialOption{grpc.WithContextDialer(to.connect)}
	switch {
	case cfg.Find != nil:
		target, shuffle = finds+":///"+cfg.Address, false // in their order
		options = append(options, grpc.WithResolvers(finder{cfg.Find, cfg.Named}))
	case !strings.HasPrefix(target, "unix:"):
		target = "dns:///" + target
	}
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(cfg.Creds), grpc.WithNoProxy(),
		grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig":[{"pick_first":{"shuffleAddressList":%t}}]}`, shuffle)), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.5, MaxDelay: 3 * time.Second}, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingAnswer, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostBytes)))...)
	if err != nil {
		return nil, fmt.Errorf("relay %s: %w", cfg.Address, err)
	}
	follow := relaypb.NewRelayClient(conn)
	who := &relaypb.Who{Node: cfg.Who.Node, Program: cfg.Who.Program, Version: cfg.Who.Version, Moves: true}
	c := newClient(direct, cfg, func(ctx context.Context, req *relaypb.FollowRequest) (frames, error) {
		req.Who = who
		stream, err := follow.Follow(ctx, req)
		return leaving{stream, to}, err
	}, conn.Close)
	c.leave = to.leaveAll
	return c, nil
}

func newClient(direct datastore.Store, cfg ClientConfig, open func(context.Context, *relaypb.FollowRequest) (frames, error), closes func() error) *Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{Store: direct, cfg: cfg, dates: datastore.DatesOf(direct), order: datastore.OrderOf(direct), open: open, close: closes, leave: func() {}}
}

// Close ends the connection to the relay.
func (c *Client) Close() error { return c.close() }

// place is a position of a relay.
type place struct {
	epoch  string
	number uint64
	store  datastore.Position // what is known of where the store was
}

func placeOf(p datastore.Position) (place, bool) {
	words := strings.SplitN(p.String(), "/", 3)
	if len(words) != 3 {
		return place{}, false
	}
	n, err := strconv.ParseUint(words[1], 10, 64)
	return place{words[0], n, datastore.PositionOf(words[2])}, err == nil && words[0] != ""
}

// Behind implements [datastore.Dated]: of one relay's life by its numbers, else by the store's positions.
func (c *Client) Behind(a, b datastore.Position) bool {
	x, isX := placeOf(a)
	y, isY := placeOf(b)
	switch {
	case !isX || !isY:
		return false
	case x.epoch == y.epoch && x.epoch != direct:
		return x.number < y.number
	}
	return c.dates != nil && !x.store.IsZero() && !y.store.IsZero() && c.dates.Behind(x.store, y.store)
}

// List returns what the relay has under a prefix that it follows.
func (c *Client) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	snap, err := c.list(ctx, prefix)
	if errors.Is(err, errNoPrefix) || c.away.over(err, c.cfg.Fallback) {
		return c.listDirect(ctx, prefix, err)
	}
	return snap, err
}

func (c *Client) list(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	w, err := c.begin(ctx, &relaypb.FollowRequest{Prefix: prefix, Once: true, Settled: c.settled.is(prefix)})
	if err != nil {
		return datastore.Snapshot{}, err
	}
	defer w.Close()
	items := map[string]api.Update{}
	for {
		changes, err := w.next(ctx, c.cfg.Timeout)
		if errors.Is(err, io.EOF) && w.at.epoch != "" {
			break
		}
		if err != nil {
			return datastore.Snapshot{}, c.errorOf("list "+prefix, err)
		}
		for _, u := range changes {
			if u.Value == nil {
				delete(items, u.Key)
			} else {
				items[u.Key] = u
			}
		}
	}
	c.settled.note(prefix)
	snap := datastore.Snapshot{Position: w.at.position()}
	for _, u := range items {
		snap.Items = append(snap.Items, u)
	}
	return snap, nil
}

func (p place) position() datastore.Position {
	return positionOf(p.epoch, p.number, p.store.String())
}

// Watch goes on from a position that a list or a watch of this client gave. It is ErrCompacted where the relay is another one by now.
func (c *Client) Watch(ctx context.Context, prefix string, after datastore.Position) (datastore.Watcher, error) {
	at, ok := placeOf(after)
	if !ok {
		return nil, fmt.Errorf("watch %s after %q: not a relay's position: %w", prefix, after, datastore.ErrCompacted)
	}
	if at.epoch == direct {
		return c.watchDirect(ctx, prefix, at)
	}
	w, err := c.watch(ctx, prefix, at)
	if err != nil && c.away.over(err, c.cfg.Fallback) {
		return nil, fmt.Errorf("watch %s: %w: %w", prefix, datastore.ErrCompacted, err) // so that it lists, from the store
	}
	return w, err
}

func (c *Client) watch(ctx context.Context, prefix string, at place) (datastore.Watcher, error) {
	w, err := c.begin(ctx, &relaypb.FollowRequest{Prefix: prefix, Epoch: at.epoch, Number: at.number})
	if err != nil {
		return nil, err
	}
	// The first frame says that the position is known.
	f, err := w.recv(ctx, c.cfg.Timeout)
	if err == nil && (f.Epoch != at.epoch || f.Number != at.number) {
		err = errOrder
	}
	if err != nil {
		w.Close()
		return nil, c.errorOf("watch "+prefix, err)
	}
	w.at = at
	return w, nil
}

// errOrder is of a relay that does not say one thing after the other.
var errOrder = fmt.Errorf("the relay answered out of order: %w", datastore.ErrCompacted)

// begin opens a stream that lives until it is closed, or ctx ends.
func (c *Client) begin(ctx context.Context, req *relaypb.FollowRequest) (*watcher, error) {
	own, cancel := context.WithCancel(ctx)
	req.Merges = true
	stream, err := c.open(own, req)
	if err != nil {
		cancel()
		return nil, c.errorOf("follow "+req.Prefix, err)
	}
	return &watcher{c: c, prefix: req.Prefix, stream: stream, cancel: cancel, snapshot: req.Epoch == ""}, nil
}

// watcher reads one stream.
type watcher struct {
	c        *Client
	prefix   string
	stream   frames
	cancel   context.CancelFunc
	snapshot bool  // a snapshot comes first
	at       place // of what was returned; no epoch: nothing was
}

// Close implements [datastore.Watcher].
func (w *watcher) Close() { w.cancel() }

// Next implements [datastore.Watcher].
func (w *watcher) Next(ctx context.Context) (datastore.Changes, error) {
	updates, err := w.next(ctx, 0)
	if err != nil {
		return datastore.Changes{}, w.c.errorOf("watch "+w.prefix, err)
	}
	return datastore.Changes{Updates: updates, Position: w.at.position()}, nil
}

// next is a whole snapshot, or a whole change. Each part must come within a time; zero: the first in its own time, since nothing may change for long.
func (w *watcher) next(ctx context.Context, within time.Duration) ([]api.Update, error) {
	var out []api.Update
	var number uint64
	for part := 0; ; part++ {
		if part > 0 {
			within = w.c.cfg.Timeout
		}
		f, err := w.recv(ctx, within)
		if err != nil {
			if part > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		follows := f.Epoch != "" && f.Snapshot == w.snapshot && (part == 0 || f.Number == number)
		if !w.snapshot {
			follows = follows && f.Epoch == w.at.epoch && f.Number == w.at.number+uint64(max(1, f.Spans))
		}
		if !follows {
			return nil, errOrder
		}
		number = f.Number
		updates, err := decode(f.Body)
		if err != nil {
			return nil, err
		}
		for _, u := range updates {
			if !strings.HasPrefix(u.Key, w.prefix) {
				return nil, fmt.Errorf("%s is not under %s: %w", u.Key, w.prefix, errOrder)
			}
		}
		out = append(out, updates...)
		if !f.More {
			w.snapshot = false
			w.at = place{f.Epoch, f.Number, datastore.PositionOf(f.Position)}
			return out, nil
		}
	}
}

// recv waits for a frame until ctx ends, or for a time; zero: for ever.
func (w *watcher) recv(ctx context.Context, within time.Duration) (*relaypb.Frame, error) {
	if within > 0 {
		timer := time.AfterFunc(within, w.cancel)
		defer timer.Stop()
	}
	stop := context.AfterFunc(ctx, w.cancel)
	defer stop()
	return w.stream.Recv()
}

// errorOf is an error of gRPC's as one of a datastore's.
func (c *Client) errorOf(what string, err error) error {
	for _, known := range []error{datastore.ErrCompacted, datastore.ErrUnavailable, datastore.ErrUnauthorized} {
		if errors.Is(err, known) {
			return fmt.Errorf("relay %s: %s: %w", c.cfg.Address, what, err)
		}
	}
	kind := datastore.ErrUnavailable
	switch status.Code(err) {
	case codes.NotFound:
		return fmt.Errorf("relay %s: %s: %w: %w", c.cfg.Address, what, kind, errNoPrefix)
	case codes.OutOfRange:
		kind = datastore.ErrCompacted
	case codes.Unauthenticated, codes.PermissionDenied:
		kind = datastore.ErrUnauthorized
	}
	return fmt.Errorf("relay %s: %s: %w: %w", c.cfg.Address, what, kind, err)
}
