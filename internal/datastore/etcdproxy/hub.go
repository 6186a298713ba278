package etcdproxy

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// hub is the watches of all clients, and those of the cluster that serve them.
type hub struct {
	ctx    context.Context // of feeds: they outlive the client that was first
	client func(context.Context) (*clientv3.Client, bool, error)

	mu    sync.Mutex
	feeds map[feedKey][]*feed // the oldest first
}

// create begins a watch, or says why not. The caller waits for created.
func (h *hub) create(s *watchStream, r *pb.WatchCreateRequest) (w *watcher, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.left {
		return nil, "twill etcd proxy: the stream has ended"
	}
	id := r.WatchId
	if id == 0 { // etcd's clients leave the choice to the server
		for id = s.nextID; s.watchers[id] != nil; id++ {
		}
		s.nextID = id + 1
	} else if s.watchers[id] != nil {
		return nil, "mvcc: duplicate watch ID provided on the WatchStream"
	}
	if r.StartRevision < 0 {
		return nil, rpctypes.ErrCompacted.Error()
	}
	w = &watcher{stream: s, id: id, next: r.StartRevision, fragment: r.Fragment, notify: r.ProgressNotify, created: make(chan struct{})}
	s.watchers[id] = w
	key := keyOf(s.ctx, r)
	for _, f := range h.feeds[key] {
		if w.next > 0 && f.fits(w.next, time.Now()) {
			if f.header != nil {
				f.announce(w)
			}
			f.join(w)
			return w, ""
		}
	}
	ctx, cancel := context.WithCancel(withToken(h.ctx, s.ctx))
	f := &feed{key: key, cancel: cancel, asks: make(chan struct{}, 1), watchers: map[*watcher]struct{}{}, low: r.StartRevision - 1, last: r.StartRevision - 1}
	h.feeds[key] = append(h.feeds[key], f)
	f.join(w)
	go h.run(ctx, f, r)
	return w, ""
}

// withToken is ctx with what a client says of itself to members.
func withToken(ctx, client context.Context) context.Context {
	out, _ := metadata.FromOutgoingContext(client)
	return metadata.NewOutgoingContext(ctx, out)
}

// forget takes a feed out of those that watches join.
func (h *hub) forget(f *feed) {
	rest := slices.DeleteFunc(h.feeds[f.key], func(other *feed) bool { return other == f })
	if h.feeds[f.key] = rest; len(rest) == 0 {
		delete(h.feeds, f.key)
	}
}

// merge has younger feeds of a key end in an older one as soon as it has all that their clients lack: equal watches that began at
// different revisions become one.
func (h *hub) merge(f *feed) {
	all := slices.Clone(h.feeds[f.key])
	for i, older := range all {
		for _, younger := range all[i+1:] {
			if len(younger.watchers) > 0 && older.takes(younger) {
				h.move(younger, older)
			}
		}
	}
}

// takes reports whether all watches of another feed fit.
func (f *feed) takes(other *feed) bool {
	if f.header == nil || other.header == nil || !f.current || !other.current || len(f.watchers) == 0 {
		return false
	}
	for w := range other.watchers {
		if !f.fits(w.next, time.Now()) {
			return false
		}
	}
	return true
}

func (h *hub) move(from, to *feed) {
	h.forget(from)
	from.cancel()
	for w := range from.watchers {
		to.join(w)
		if w.stream.asked {
			w.answered = false
			to.ask(time.Now())
		}
	}
	clear(from.watchers)
}

// drop ends a watch of a client, and the feed with the last.
func (h *hub) drop(w *watcher) {
	f := w.feed
	delete(w.stream.watchers, w.id)
	delete(f.watchers, w)
	if len(f.watchers) == 0 {
		h.forget(f)
		f.cancel()
	}
}

func (h *hub) cancel(s *watchStream, id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := s.watchers[id]
	if w == nil {
		return // as a member does
	}
	h.drop(w)
	s.post(&pb.WatchResponse{Header: withRevision(w.feed.header, w.feed.header.Revision), WatchId: id, Canceled: true})
}

// progress asks for the position of all watches of a stream.
func (h *hub) progress(s *watchStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.asked = len(s.watchers) > 0
	for _, w := range s.watchers {
		w.answered = false
		w.feed.ask(time.Now())
	}
}

// leave ends all watches of a stream.
func (h *hub) leave(s *watchStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.left = true
	for _, w := range s.watchers {
		h.drop(w)
	}
}

// count is how many watches clients have, and by how many watches of the cluster they are served.
func (h *hub) count() (clients, feeds int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fs := range h.feeds {
		feeds += len(fs)
		for _, f := range fs {
			clients += len(f.watchers)
		}
	}
	return clients, feeds
}
