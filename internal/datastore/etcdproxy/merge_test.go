package etcdproxy

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// TestAWatchMovesOnlyToOneThatHasAllItLacks: and is given that, once.
func TestAWatchMovesOnlyToOneThatHasAllItLacks(t *testing.T) {
	for _, tt := range []struct {
		name           string
		next           int64
		older, younger bool // have caught up
		want           string
	}{
		{"it has all that the older was sent", 13, true, true, "moves: "},
		{"it lacks the last two", 11, true, true, "moves: 11 12 "},
		{"it lacks one that is forgotten", 10, true, true, "stays"},
		{"the older has to catch up", 13, false, true, "stays"},
		{"it has to catch up itself", 11, true, false, "stays"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := &hub{feeds: map[feedKey][]*feed{}}
			header := &pb.ResponseHeader{Revision: 12}
			add := func(next int64, current bool) (*feed, *watcher) {
				s := &watchStream{hub: h, watchers: map[int64]*watcher{}, wake: make(chan struct{}, 1)}
				w := &watcher{stream: s, next: next}
				s.watchers[0] = w
				f := &feed{header: header, current: current, low: 10, last: 12, cancel: func() {}, asks: make(chan struct{}, 1), watchers: map[*watcher]struct{}{w: {}}}
				w.feed = f
				h.feeds[f.key] = append(h.feeds[f.key], f)
				return f, w
			}
			older, _ := add(13, tt.older)
			for rev := int64(11); rev <= 12; rev++ {
				older.kept = append(older.kept, batch{header: header, last: rev, events: []*pbEvent{{Kv: &mvccpb.KeyValue{ModRevision: rev}}}})
			}
			younger, w := add(tt.next, tt.younger)
			h.merge(younger)
			got := "stays"
			if w.feed == older {
				got = "moves: "
			}
			for _, q := range w.stream.queue {
				for _, e := range q.resp.Events {
					got += fmt.Sprint(e.Kv.ModRevision, " ")
				}
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if feeds := len(h.feeds[older.key]); (feeds == 1) != (w.feed == older) {
				t.Errorf("there are %d watches of the cluster", feeds)
			}
		})
	}
}
