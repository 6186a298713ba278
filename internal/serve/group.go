package serve

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// Group is servers that may want each other's addresses: whoever leaves one tells those that wait, and one that waits for
// an address of which it is itself in the way, by a circle of servers or alone, gives its own up first. For that moment it listens nowhere.
// The zero value is an empty group.
type Group struct {
	mu      sync.Mutex // guards what follows, and what is said so of in Server
	servers []*Server
	moves   int // how often a server left an address or took one
}

// New returns a server of the group, which listens nowhere until it is Moved and Run.
func (g *Group) New(name string, handler http.Handler, log *slog.Logger) *Server {
	s := &Server{name: name, handler: handler, log: log, wake: make(chan struct{}, 1), group: g}
	g.mu.Lock()
	g.servers = append(g.servers, s)
	g.mu.Unlock()
	return s
}

// moved notes where a server listens now, and has those that wait for an address try again.
func (g *Group) moved(s *Server, to At, listens net.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.moves++
	s.at, s.listens, s.waits = to, listens, nil
	for _, other := range g.servers {
		if other != s && other.waits != nil {
			other.poke()
		}
	}
}

// failed notes why a server cannot listen, and reports whether it is itself in its way: it waits for the address of one that waits for
// the address of one, and so on, that waits for its own. Those that cannot move for another reason leave all as it is.
func (g *Group) failed(s *Server, t try, err error) (circle bool) {
	var waits *net.TCPAddr
	if errors.Is(err, syscall.EADDRINUSE) {
		waits, _ = net.ResolveTCPAddr("tcp", t.to.Address) // without the lock: it may ask a name server
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.waits, s.tried = waits, t.to
	if waits != nil && g.moves != t.moves {
		s.poke() // perhaps it is free since
	}
	holder := s
	for range g.servers {
		if holder == nil || holder.waits == nil || holder.tried != holder.want {
			return false
		}
		if holder = g.holder(holder.waits); holder == s {
			return true
		}
	}
	return false
}

// holder is the server that listens at an address.
func (g *Group) holder(of *net.TCPAddr) *Server {
	for _, s := range g.servers {
		if has, ok := s.listens.(*net.TCPAddr); ok && has.Port == of.Port && (everywhere(has.IP) || everywhere(of.IP) || has.IP.Equal(of.IP)) {
			return s
		}
	}
	return nil
}

func everywhere(ip net.IP) bool { return ip == nil || ip.IsUnspecified() }
