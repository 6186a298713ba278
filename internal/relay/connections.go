package relay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"

	"github.com/twillnet/twill/api/relaypb"
)

// connection is a client of a server: one process of a host, with a stream for each prefix that it reads.
type connection struct {
	remote string
	since  time.Time
	who    *relaypb.Who          // as its last request has it
	leaves chan struct{}         // closed when it is to go to another relay
	left   bool                  // leaves is closed
	reads  map[*reading]struct{} // its streams
	once   bool                  // it ends with its only stream: there is no network
	sent   atomic.Int64          // bytes, compressed
	moves  bool                  // it goes when it is asked to
}

// reading is one stream to a client.
type reading struct {
	chain *chain
	at    atomic.Uint64 // the number of the last change that was handed over whole
}

// connections are those of a server that are served. All fields of each are guarded by mu, but for the counters.
type connections struct {
	most int

	mu      sync.Mutex
	served  map[*connection]struct{}
	changed func(by int, moved bool)
	away    map[string]time.Time // nodes and programs that were sent away, and when
	back    bool                 // one of them came back
}

// comesBack is within what time a client that was sent away has found no other relay.
const comesBack = time.Minute

func called(w *relaypb.Who) string { return w.GetNode() + "/" + w.GetProgram() }

// connectionKey is where the context of a stream has its connection.
type connectionKey struct{}

// TagConn implements [stats.Handler].
func (cs *connections) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, newConnection(info.RemoteAddr))
}

func newConnection(remote net.Addr) *connection {
	c := &connection{since: time.Now(), leaves: make(chan struct{}), reads: map[*reading]struct{}{}}
	if remote != nil {
		c.remote = remote.String()
	}
	return c
}

// HandleConn implements [stats.Handler].
func (cs *connections) HandleConn(ctx context.Context, s stats.ConnStats) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		if _, ends := s.(*stats.ConnEnd); ends {
			cs.remove(c)
		}
	}
}

// TagRPC implements [stats.Handler].
func (cs *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements [stats.Handler].
func (cs *connections) HandleRPC(context.Context, stats.RPCStats) {}

func (cs *connections) remove(c *connection) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if _, served := cs.served[c]; served {
		delete(cs.served, c)
		cs.changed(-1, false)
	}
}

// begin notes a stream, and returns what is to be called when it ends. It fails if its connection is one too many, or was sent away.
func (cs *connections) begin(ctx context.Context, who *relaypb.Who, ch *chain) (c *connection, r *reading, end func(), err error) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		c = newConnection(nil)
		c.once = true
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.left {
		return nil, nil, nil, errElsewhere
	}
	if _, served := cs.served[c]; !served {
		if len(cs.served) >= cs.most {
			return nil, nil, nil, fmt.Errorf("%w: it has %d clients, the most that it takes", errElsewhere, len(cs.served))
		}
		cs.served[c] = struct{}{}
		cs.changed(1, false)
		if at, sent := cs.away[called(who)]; sent {
			cs.back = cs.back || time.Since(at) < comesBack
			delete(cs.away, called(who))
		}
	}
	if who != nil {
		c.who, c.moves = who, who.Moves
	}
	r = &reading{chain: ch}
	c.reads[r] = struct{}{}
	return c, r, func() {
		cs.mu.Lock()
		delete(c.reads, r)
		cs.mu.Unlock()
		if c.once {
			cs.remove(c)
		}
	}, nil
}

// programs is how many clients there are that were not asked to go, and how many different programs they are, which is how many one host runs;
// those of older versions do not say.
func (cs *connections) programs() (clients, programs int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	seen := map[string]bool{}
	for c := range cs.served {
		if c.left {
			continue
		}
		clients++
		if name := c.who.GetProgram(); name != "" {
			seen[name] = true
		}
	}
	return clients, max(1, len(seen))
}

// sendAway has one client that would go, go; any of them, since a map has no order. It reports whether there was one.
func (cs *connections) sendAway() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	maps.DeleteFunc(cs.away, func(_ string, at time.Time) bool { return time.Since(at) >= comesBack })
	for c := range cs.served {
		if c.moves && !c.left {
			c.left = true
			close(c.leaves)
			cs.away[called(c.who)] = time.Now()
			return true
		}
	}
	return false
}

// cameBack reports whether a client that was sent away did since the last call.
func (cs *connections) cameBack() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	back := cs.back
	cs.back = false
	return back
}

// Status is what a relay does, for people. Names are those of JSON.
type Status struct {
	Clients  []Connected `json:"clients"`
	Relays   int         `json:"relays"`          // that there are, this one among them; 0: not known
	Share    int         `json:"share,omitempty"` // with more clients some are sent to other relays; 0: none is
	Most     int         `json:"most"`            // clients that it takes
	NotReady []string    `json:"notReady,omitempty"`
}

// Status is that of this moment.
func (s *Server) Status() Status {
	st := Status{Clients: s.Clients(), Relays: int(s.relays.Load()), Most: s.cfg.Limits.Most, NotReady: s.NotReady()}
	if st.Relays > 1 {
		clients, programs := s.connected.programs()
		st.Share = share(clients, s.nodes()*programs, st.Relays, s.cfg.Limits)
	}
	return st
}

// Connected is one client of a relay, for people. Names are those of JSON.
type Connected struct {
	Node      string    `json:"node,omitempty"`    // as it says; empty: it is of an older version
	Program   string    `json:"program,omitempty"` // likewise: agent, bgp, node
	Version   string    `json:"version,omitempty"`
	Remote    string    `json:"remote"` // address
	Since     time.Time `json:"since"`
	Reads     []Read    `json:"reads"`     // by prefix
	SentBytes int64     `json:"sentBytes"` // compressed
	Leaves    bool      `json:"leaves,omitempty"`
}

// Read is one prefix that a client follows.
type Read struct {
	Prefix string `json:"prefix"`
	Behind uint64 `json:"behind"` // changes that the relay has and that were not handed over to its connection; before a snapshot was: all
}

// Clients are the clients of this moment, by node and program.
func (s *Server) Clients() []Connected {
	cs := &s.connected
	cs.mu.Lock()
	defer cs.mu.Unlock()
	out := make([]Connected, 0, len(cs.served))
	for c := range cs.served {
		one := Connected{
			Node: c.who.GetNode(), Program: c.who.GetProgram(), Version: c.who.GetVersion(), Remote: c.remote, Since: c.since, SentBytes: c.sent.Load(), Leaves: c.left,
			Reads: make([]Read, 0, len(c.reads)),
		}
		for r := range c.reads {
			r.chain.mu.Lock()
			newest := r.chain.number
			r.chain.mu.Unlock()
			one.Reads = append(one.Reads, Read{r.chain.prefix, newest - min(newest, r.at.Load())})
		}
		slices.SortFunc(one.Reads, func(a, b Read) int { return cmp.Compare(a.Prefix, b.Prefix) })
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Connected) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Program, b.Program), cmp.Compare(a.Remote, b.Remote))
	})
	return out
}
