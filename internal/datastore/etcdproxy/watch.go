package etcdproxy

import (
	"context"
	"fmt"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// maxWaiting is how many bytes of events may wait for one client. One that is slower loses its stream, and resumes where it was: it
// never slows others.
const maxWaiting = 32 << 20

// fragmentSize is how large an answer may be to a client that wants large ones in parts: what etcd takes.
const fragmentSize = 2 << 20

// watchServer is the Watch service of a proxy.
type watchServer struct {
	pb.UnimplementedWatchServer
	proxy *Proxy
}

// watchStream is one stream of a client, with any number of watches.
type watchStream struct {
	hub  *hub
	down pb.Watch_WatchServer
	ctx  context.Context // of requests to members: it has the client's token

	// Guarded by hub.mu.
	watchers map[int64]*watcher
	nextID   int64
	asked    bool // for its position, and not answered yet
	left     bool // it has ended

	queueMu sync.Mutex
	queue   []queued
	waiting int           // bytes in queue
	wake    chan struct{} // of one element: the queue has something, or failed was set
	failed  error
}

// queued is an answer that waits for its client.
type queued struct {
	resp     *pb.WatchResponse
	size     int // in bytes, about
	fragment bool
}

// watcher is one watch of a client.
type watcher struct {
	stream           *watchStream
	id               int64
	next             int64 // the first revision of which the client has no event yet; zero: not known before the watch is created
	fragment, notify bool
	created          chan struct{} // closed once the client was told that the watch is created, or refused
	announced        bool          // created is closed
	feed             *feed
	answered         bool // with pos, since its stream asked
	pos              int64
}

// Watch serves one stream of watches.
func (w *watchServer) Watch(down pb.Watch_WatchServer) error {
	ctx, cancel := context.WithCancel(upward(down.Context()))
	defer cancel()
	if _, _, err := w.proxy.client(ctx); err != nil {
		return err
	}
	s := &watchStream{hub: w.proxy.hub, down: down, ctx: ctx, watchers: map[int64]*watcher{}, wake: make(chan struct{}, 1)}
	defer s.hub.leave(s)
	go func() {
		if err := s.receive(); err != nil {
			s.fail(err)
		}
	}()
	return s.send(ctx)
}

// receive does what the client asks for, one request after the other, so that watches are created in their order.
func (s *watchStream) receive() error {
	for {
		req, err := s.down.Recv()
		if err != nil {
			return err
		}
		switch r := req.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			w, reason := s.hub.create(s, r.CreateRequest)
			if reason != "" {
				s.post(&pb.WatchResponse{Header: &pb.ResponseHeader{}, WatchId: clientv3.InvalidWatchID, Created: true, Canceled: true, CancelReason: reason})
				continue
			}
			select {
			case <-w.created:
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		case *pb.WatchRequest_CancelRequest:
			s.hub.cancel(s, r.CancelRequest.WatchId)
		case *pb.WatchRequest_ProgressRequest:
			s.hub.progress(s)
		default:
			return status.Errorf(codes.Unimplemented, "twill etcd proxy: does not know this request of a watch: %T", r)
		}
	}
}

// post queues an answer.
func (s *watchStream) post(resp *pb.WatchResponse) { s.enqueue(queued{resp: resp}) }

func (s *watchStream) enqueue(q queued) {
	q.size = max(q.size, 100) // of what is no event, about
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	if s.failed != nil {
		return
	}
	if s.waiting > 0 && s.waiting+q.size > maxWaiting {
		s.failed = status.Errorf(codes.Unavailable, "twill etcd proxy: this client is too slow: %d bytes of events wait for it", s.waiting)
	} else {
		s.queue, s.waiting = append(s.queue, q), s.waiting+q.size
	}
	s.poke()
}

// fail ends the stream with an error, once what is queued was sent: it came before.
func (s *watchStream) fail(err error) {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
	s.poke()
}

func (s *watchStream) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it wakes already
	}
}

func (s *watchStream) send(ctx context.Context) error {
	for {
		s.queueMu.Lock()
		batch, failed := s.queue, s.failed
		s.queue = nil
		s.queueMu.Unlock()
		for _, q := range batch {
			if err := s.sendOne(q); err != nil {
				return err
			}
			s.queueMu.Lock()
			s.waiting -= q.size
			s.queueMu.Unlock()
		}
		if failed != nil {
			return asStatus(failed)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// sendOne sends an answer, in parts if it is large and the client wants that.
func (s *watchStream) sendOne(q queued) error {
	if !q.fragment || q.size < fragmentSize {
		return s.down.Send(q.resp)
	}
	events := q.resp.Events
	for len(events) > 0 {
		n, size := 0, 0
		for n < len(events) && (n == 0 || size+proto.Size(events[n]) < fragmentSize) {
			size += proto.Size(events[n])
			n++
		}
		part := &pb.WatchResponse{Header: q.resp.Header, WatchId: q.resp.WatchId, Events: events[:n], Fragment: n < len(events)}
		if err := s.down.Send(part); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// take gives the watch what a member sent: the events that its client does not have yet.
func (w *watcher) take(b batch) {
	events := b.events
	first := slices.IndexFunc(events, func(e *pbEvent) bool { return e.Kv.ModRevision >= w.next })
	if first < 0 {
		return
	}
	w.next = b.last + 1
	w.stream.enqueue(queued{&pb.WatchResponse{Header: b.header, WatchId: w.id, Events: events[first:]}, b.size, w.fragment})
}

// tell says that the watch is created, or why it is not, and ends it in that case.
func (w *watcher) tell(resp *pb.WatchResponse) {
	w.stream.post(resp)
	if !w.announced {
		w.announced = true
		close(w.created)
	}
}

// answer notes a position of the watch, that a member gave after all events up to it. Once all watches of the stream have one, a
// client that asked is told the lowest.
func (w *watcher) answer(header *pb.ResponseHeader) {
	s := w.stream
	if header.Revision < w.next-1 {
		return // of a member that lags behind what the client has: as no answer
	}
	w.answered, w.pos = true, header.Revision
	if !s.asked {
		return
	}
	lowest := w
	for _, other := range s.watchers {
		if !other.answered {
			return
		}
		if other.pos < lowest.pos {
			lowest = other
		}
	}
	s.asked = false
	s.post(&pb.WatchResponse{Header: withRevision(header, lowest.pos), WatchId: clientv3.InvalidWatchID})
}

func withRevision(h *pb.ResponseHeader, revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: h.ClusterId, MemberId: h.MemberId, Revision: revision, RaftTerm: h.RaftTerm}
}

// feedKey is what equal watches have in common: which keys, of which events, and who asks.
type feedKey struct {
	from, end, filters string
	prev               bool
	token, leader      string
}

func keyOf(ctx context.Context, r *pb.WatchCreateRequest) feedKey {
	out, _ := metadata.FromOutgoingContext(ctx)
	slices.Sort(r.Filters)
	return feedKey{
		from: string(r.Key), end: string(r.RangeEnd), filters: fmt.Sprint(r.Filters), prev: r.PrevKv,
		token: token(ctx), leader: fmt.Sprint(out.Get(rpctypes.MetadataRequireLeaderKey)),
	}
}
