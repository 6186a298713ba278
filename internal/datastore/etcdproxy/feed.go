package etcdproxy

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// owing is how long a member may owe a position before watches that begin are served by another: one that is frozen or lags must not keep those whose
// clients notice it, and begin again, because of others that do not look.
const owing = 2 * time.Second

type pbEvent = mvccpb.Event

// What of past events a feed keeps for clients that come later, or come back.
const (
	keptEvents = 4096
	keptBytes  = 4 << 20
)

// batch is events of whole revisions, in their order. It is not changed any more: clients share it.
type batch struct {
	header *pb.ResponseHeader
	events []*pbEvent
	last   int64 // revision of the last event
	size   int
}

// feed is one watch of the cluster, for all watches of clients that are equal. It lives as long as its stream to one member: when
// that ends, so do the streams of its clients, each of which knows for itself where to resume. A feed never resumes, and says nothing
// about positions that a member did not say to it.
type feed struct {
	key    feedKey
	cancel context.CancelFunc
	asks   chan struct{} // of one element: ask for the position

	// Guarded by hub.mu.
	watchers map[*watcher]struct{}
	header   *pb.ResponseHeader // the latest; nil: the watch is not created yet
	low      int64              // events after this revision were all received, and those that are not in kept were given to all watchers; -1: not known yet
	last     int64              // events up to this revision were received
	began    int64              // the store's revision when the watch was created
	current  bool               // it has caught up with began
	kept     []batch
	events   int       // in kept
	bytes    int       // likewise
	asked    time.Time // when the position was asked for, and no answer came; zero: none is awaited
	again    bool      // somebody asked since
	owes     time.Time // since when a position is asked for that is not behind what clients have; zero: none is
}

// fits reports whether a watch that begins at next gets all that it is to get if it joins, and not later than by one of its own: not from a member
// that owes a position.
func (f *feed) fits(next int64, now time.Time) bool {
	if !f.owes.IsZero() && now.Sub(f.owes) > owing {
		return false
	}
	return f.low >= 0 && next > f.low && (f.current || next <= f.last+1)
}

// join adds a watch that fits, and gives it what it lacks.
func (f *feed) join(w *watcher) {
	f.watchers[w], w.feed = struct{}{}, f
	for _, b := range f.kept {
		w.take(b)
	}
}

// announce answers the client that its watch is created. The revision is one that a member said, so that a client which knows a later one finds out that it asks one that lags.
func (f *feed) announce(w *watcher) {
	if w.next == 0 {
		w.next = f.header.Revision + 1
	}
	if !w.announced {
		w.tell(&pb.WatchResponse{Header: withRevision(f.header, max(f.header.Revision, f.last)), WatchId: w.id, Created: true})
	}
}

// keep keeps a batch, and forgets the oldest if there are too many.
func (f *feed) keep(b batch) {
	f.kept = append(f.kept, b)
	f.events, f.bytes = f.events+len(b.events), f.bytes+b.size
	for len(f.kept) > 0 && (f.events > keptEvents || f.bytes > keptBytes) {
		old := f.kept[0]
		f.kept[0] = batch{}
		f.kept, f.low = f.kept[1:], old.last
		f.events, f.bytes = f.events-len(old.events), f.bytes-old.size
	}
}

// ask asks the member for its position, unless an answer to the same is awaited; then it asks again after that. An answer that is long in coming is
// none: a member gives none while a watch has to catch up.
func (f *feed) ask(now time.Time) {
	if f.owes.IsZero() {
		f.owes = now
	}
	if !f.asked.IsZero() && now.Sub(f.asked) < time.Second {
		f.again = true
		return
	}
	f.asked, f.again = now, false
	select {
	case f.asks <- struct{}{}:
	default: // it is about to be asked
	}
}

// run is the life of a feed: it begins the watch and passes on what comes, until the stream ends or nobody wants it.
func (h *hub) run(ctx context.Context, f *feed, r *pb.WatchCreateRequest) {
	err := h.follow(ctx, f, r)
	if err == nil || errors.Is(err, io.EOF) {
		err = status.Error(codes.Unavailable, "twill etcd proxy: a member of etcd ended the watch")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f.cancel()
	h.forget(f)
	for w := range f.watchers {
		w.stream.fail(err)
	}
}

func (h *hub) follow(ctx context.Context, f *feed, r *pb.WatchCreateRequest) error {
	client, _, err := h.client(ctx)
	if err != nil {
		return err
	}
	up, err := pb.NewWatchClient(client.ActiveConnection()).Watch(ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return err
	}
	request := &pb.WatchCreateRequest{
		Key: r.Key, RangeEnd: r.RangeEnd, StartRevision: r.StartRevision, PrevKv: r.PrevKv, Filters: r.Filters,
		ProgressNotify: true, Fragment: true,
	}
	if err := up.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	go func() {
		for {
			select {
			case <-f.asks:
				if up.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}) != nil {
					return // Recv below says why
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	var parts []*pbEvent
	for {
		resp, err := up.Recv()
		if err != nil {
			return err
		}
		if resp.Fragment {
			parts = append(parts, resp.Events...)
			continue
		}
		resp.Events, parts = append(parts, resp.Events...), nil
		if ended := h.pass(f, resp); ended {
			return nil
		}
	}
}

// pass gives an answer of a member to all watches of a feed, and reports whether the member ended the watch.
func (h *hub) pass(f *feed, resp *pb.WatchResponse) (ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if resp.Header == nil {
		resp.Header = &pb.ResponseHeader{}
	}
	switch {
	case resp.Canceled:
		h.refuse(f, resp)
		return true
	case resp.Created:
		f.created(resp.Header)
		if !f.current {
			f.ask(time.Now()) // the answer comes once it is
		}
		for w := range f.watchers {
			f.announce(w)
		}
	case len(resp.Events) > 0:
		b := batch{header: resp.Header, events: resp.Events, last: resp.Events[len(resp.Events)-1].Kv.ModRevision, size: proto.Size(resp)}
		f.header, f.last = resp.Header, max(f.last, b.last)
		f.current = f.current || f.last >= f.began
		for w := range f.watchers {
			w.take(b)
		}
		f.keep(b)
	default:
		f.position(resp)
	}
	h.merge(f)
	return false
}

// created notes where the watch begins.
func (f *feed) created(header *pb.ResponseHeader) {
	f.header, f.began = header, header.Revision
	if f.low < 0 {
		f.low, f.last = header.Revision, header.Revision
	}
	f.current = f.last >= f.began
}

// position passes on where a member is: all events up to there were sent.
func (f *feed) position(resp *pb.WatchResponse) {
	f.header, f.current = resp.Header, true
	again := f.again
	f.asked, f.again = time.Time{}, false
	owes := f.owes
	f.owes = time.Time{}
	for w := range f.watchers {
		if resp.Header.Revision < w.next-1 {
			f.owes = owes // the member lags, or went back
		}
		if resp.WatchId != clientv3.InvalidWatchID && w.notify && resp.Header.Revision >= w.next-1 {
			w.stream.post(&pb.WatchResponse{Header: resp.Header, WatchId: w.id})
		}
		w.answer(resp.Header)
	}
	if again {
		f.ask(time.Now())
	}
}

// refuse passes on that a member does not have the watch, or ended it, with its reason: the history is gone, or the user may not read this.
func (h *hub) refuse(f *feed, resp *pb.WatchResponse) {
	h.forget(f)
	for w := range f.watchers {
		id := w.id
		if !w.announced && resp.Created {
			id = clientv3.InvalidWatchID // as a member says it of a watch that never was
		}
		w.tell(&pb.WatchResponse{
			Header: resp.Header, WatchId: id, Created: !w.announced && resp.Created, Canceled: true,
			CompactRevision: resp.CompactRevision, CancelReason: resp.CancelReason,
		})
		delete(w.stream.watchers, w.id)
	}
	clear(f.watchers)
}
