// Package etcdproxy is an etcd proxy on a host: between all clients of etcd there and the members of a cluster elsewhere.
//
// In: requests of etcd's gRPC API, on a socket that only root may use, and how to reach the cluster. Out: the same requests, spread over
// all members, on one connection to each; equal watches as one.
//
// What a client sees is what a member says, or an error. Nothing is answered from memory but past events of a watch to one that begins
// there. Requests are passed on byte for byte, with their errors; a watch of a client ends when that of the cluster does, and the client
// resumes where it was; a position is sent only after a member gave it, and only once all events before it were sent. What etcd's own
// proxy does in the place of that is in decision 090.
package etcdproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/serve"
)

// Config is what a proxy needs.
type Config struct {
	Listen        string           // path of the socket
	Store         datastore.Config // how to reach the cluster; its user, if there is one, is that of all clients which show none of their own
	EndpointsFile string           // has the endpoints, in the place of those of Store; empty: there is none
	// Follow is how often the members are asked for; zero means 30s. A member that is new is used within that time.
	Follow time.Duration
	Log    *slog.Logger // nil: silent
}

// Proxy is a running proxy.
type Proxy struct {
	cfg     Config
	hub     *hub
	members members

	mu       sync.Mutex
	own      *clientv3.Client  // as the proxy's user, if there is one; nil: not connected yet
	bare     *clientv3.Client  // as no user, for clients that show a token of their own; the same as own where the proxy has no user
	notReady string            // why there is no member to ask; empty: there is, or was
	silent   bool              // nobody answered lately
	versions map[uint64]string // of the members in use
	rounds   int               // how often members were asked for
}

// New returns a proxy that is not connected yet. Run it.
func New(cfg Config) *Proxy {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Follow <= 0 {
		cfg.Follow = 30 * time.Second
	}
	return &Proxy{cfg: cfg, notReady: "it begins", versions: map[uint64]string{}, members: members{known: map[string]uint64{}}}
}

// Run serves until ctx ends, or the settings are wrong, or etcd refuses the proxy's user.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.hub = &hub{ctx: ctx, client: p.client, feeds: map[feedKey][]*feed{}}
	l, err := serve.Replace(ctx, serve.At{Network: "unix", Address: p.cfg.Listen})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()), grpc.UnknownServiceHandler(p.forward),
		grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32), grpc.MaxConcurrentStreams(math.MaxUint32),
		// Clients ping an idle connection every few seconds, as they would a member.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	pb.RegisterWatchServer(server, &watchServer{proxy: p})
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(l)
		cancel() // it ends by Stop below, or because nobody can connect any more
	}()
	p.cfg.Log.Info("etcd proxy listens", "socket", p.cfg.Listen)
	err = p.follow(ctx)
	_ = os.Remove(p.cfg.Listen) // so that nobody takes it for one that answers
	server.Stop()               // not gracefully: watches of clients never end by themselves, and they resume
	p.close()
	ended := <-served // nil after Stop
	switch {
	case !errors.Is(err, context.Canceled):
		return err
	case ended != nil:
		return fmt.Errorf("serve: %w", ended)
	}
	return nil
}

// NotReady is why the proxy has no member to ask; none: it has.
func (p *Proxy) NotReady() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.notReady != "":
		return []string{p.notReady}
	case p.silent:
		return []string{"no member of etcd answers at present"}
	}
	return nil
}

// Watches is how many watches clients have, and by how many watches of the cluster they are served.
func (p *Proxy) Watches() (clients, upstream int) { return p.hub.count() }

// client is the connection for a request: that of the proxy's own user, or the one of nobody's if the client shows a token, which is
// passed on. own says that it is the former, and that there is such a user.
func (p *Proxy) client(ctx context.Context) (c *clientv3.Client, own bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.notReady != "":
		return nil, false, status.Error(codes.Unavailable, "twill etcd proxy: no member of etcd answers: "+p.notReady)
	case token(ctx) != "":
		return p.bare, false, nil
	}
	return p.own, p.own != p.bare, nil
}

func (p *Proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notReady = "it ends"
	for _, c := range []*clientv3.Client{p.own, p.bare} {
		if c != nil {
			_ = c.Close() // twice for one and the same: it says only that it was closed
		}
	}
}
