package etcdproxy

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/internal/datastore"
)

// TestThePositionOfAStreamIsItsLowest: of two watches that members gave different positions, and of a member that lags none.
func TestThePositionOfAStreamIsItsLowest(t *testing.T) {
	s := &watchStream{watchers: map[int64]*watcher{}, wake: make(chan struct{}, 1), asked: true}
	a, b := &watcher{stream: s, id: 0, next: 5}, &watcher{stream: s, id: 1, next: 12}
	s.watchers[0], s.watchers[1] = a, b
	at := func(revision int64) *pb.ResponseHeader {
		return &pb.ResponseHeader{ClusterId: 7, MemberId: 8, Revision: revision}
	}
	a.answer(at(10))
	b.answer(at(10)) // its client has 11 already
	if len(s.queue) != 0 {
		t.Fatalf("one watch has no position yet, and the client was told %v", s.queue[0].resp)
	}
	b.answer(at(12))
	if len(s.queue) != 1 || s.queue[0].resp.Header.Revision != 10 || s.queue[0].resp.Header.ClusterId != 7 || s.queue[0].resp.WatchId != clientv3.InvalidWatchID {
		t.Fatalf("got %v, want the revision 10 of all watches", s.queue)
	}
	a.answer(at(13))
	if len(s.queue) != 1 {
		t.Errorf("the client was told %v, and did not ask", s.queue[1].resp)
	}
}

func TestWhichWatchesJoin(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		name string
		feed feed
		next int64
		want bool
	}{
		{"one that begins where a new one does", feed{low: 9, last: 9}, 10, true},
		{"one that begins before it", feed{low: 9, last: 9}, 9, false},
		{"one that is ahead of one that has to catch up", feed{low: 9, last: 20}, 22, false},
		{"one that is behind it, by what is kept", feed{low: 9, last: 20}, 15, true},
		{"one that is as far", feed{low: 9, last: 20}, 21, true},
		{"one that is ahead of one that is quiet", feed{low: 9, last: 20, current: true}, 99, true},
		{"one that lacks what is forgotten", feed{low: 9, last: 20, current: true}, 9, false},
		{"one whose member was asked for its position a moment ago", feed{low: 9, last: 20, current: true, owes: now.Add(-owing)}, 21, true},
		{"one whose member owes its position", feed{low: 9, last: 20, current: true, owes: now.Add(-owing - 1)}, 21, false},
		{"any, to one that begins nobody knows where", feed{low: -1, last: -1}, 1, false},
	} {
		if got := tt.feed.fits(tt.next, now); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestAMemberThatLagsOwesAPosition: until it gives one that no client is ahead of.
func TestAMemberThatLagsOwesAPosition(t *testing.T) {
	s := &watchStream{watchers: map[int64]*watcher{}, wake: make(chan struct{}, 1)}
	w := &watcher{stream: s, next: 12}
	f := &feed{low: 9, last: 9, current: true, asks: make(chan struct{}, 1), watchers: map[*watcher]struct{}{w: {}}}
	asked := time.Unix(1000, 0)
	late := asked.Add(owing + 1)
	f.ask(asked)
	f.position(&pb.WatchResponse{WatchId: clientv3.InvalidWatchID, Header: &pb.ResponseHeader{Revision: 10}})
	if f.fits(12, late) {
		t.Error("watches join although the member lags behind what a client has")
	}
	f.position(&pb.WatchResponse{WatchId: clientv3.InvalidWatchID, Header: &pb.ResponseHeader{Revision: 11}})
	if !f.fits(12, late) {
		t.Error("no watch joins although the member is as far as any client")
	}
}

// TestWhatIsForgottenIsKnown: a feed that forgets old events takes no watch that lacks them.
func TestWhatIsForgottenIsKnown(t *testing.T) {
	f := &feed{low: 0, current: true, watchers: map[*watcher]struct{}{}}
	const batches = 3 * keptEvents
	for i := int64(1); i <= batches; i++ {
		f.keep(batch{events: []*pbEvent{{}}, last: i, size: 10})
	}
	if len(f.kept) != keptEvents || f.low != batches-keptEvents || f.kept[0].last != f.low+1 || f.fits(f.low, time.Time{}) || !f.fits(f.low+1, time.Time{}) {
		t.Errorf("kept %d of %d, after %d", len(f.kept), batches, f.low)
	}
	f.keep(batch{events: []*pbEvent{{}}, last: batches + 1, size: keptBytes + 1})
	if len(f.kept) != 0 || f.low != batches+1 || f.bytes != 0 || f.events != 0 {
		t.Errorf("after one that is too large: kept %d, after %d, %d bytes, %d events", len(f.kept), f.low, f.bytes, f.events)
	}
}

func TestOlderVersions(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"3.4.23", "3.5.1", true},
		{"3.5.9", "3.5.10", true},
		{"3.5.10", "3.5.9", false},
		{"3.7.3", "3.7.3", false},
		{"3.7.0-rc.1", "3.7.0", false}, // which clients take for the same
		{"nonsense", "3.4.0", true},
		{"", "3.4.0", true},
	} {
		if got := older(tt.a, tt.b); got != tt.want {
			t.Errorf("%q before %q: %v", tt.a, tt.b, got)
		}
	}
}

func TestAFileOfEndpoints(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string // nil: refused
	}{
		{"http://a:1,http://b:2\n", []string{"http://a:1", "http://b:2"}},
		{"# all\r\nhttps://a:1 # the first\r\n\thttps://b:2\r\n", []string{"https://a:1", "https://b:2"}},
		{"unix:///run/s", []string{"unix:///run/s"}},
		{"a:2379", nil},
		{"http://", nil},
		{"# none\n", nil},
		{"", nil},
	} {
		file := filepath.Join(t.TempDir(), "endpoints")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readEndpoints(file)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%q: got %q, error %v", tt.text, got, err)
		}
	}
	if _, err := readEndpoints("/nonexistent"); err == nil {
		t.Error("a file that is not there was read")
	}
}

// answerOf is what the member with that id says at an endpoint; zero: nothing.
func answerOf(endpoint string, id, cluster, leader uint64, learner bool) answer {
	if id == 0 {
		return answer{endpoint: endpoint, err: errors.New("it does not answer")}
	}
	return answer{endpoint: endpoint, status: &clientv3.StatusResponse{Header: &pb.ResponseHeader{ClusterId: cluster, MemberId: id}, Leader: leader, IsLearner: learner, Version: "3.7.3"}}
}

func TestWhichMembersAreUsed(t *testing.T) {
	a, b, c := answerOf("http://a", 1, 7, 1, false), answerOf("http://b", 2, 7, 1, false), answerOf("http://c", 3, 7, 1, false)
	for _, tt := range []struct {
		name    string
		known   map[string]uint64
		cluster uint64
		listed  map[uint64]bool
		answers []answer
		want    string
		err     string
	}{
		{name: "all that answer", answers: []answer{a, b, c}, want: "http://a http://b http://c"},
		{name: "one of two endpoints of a member, the one that was given", answers: []answer{answerOf("http://0", 1, 7, 1, false), a, b}, want: "http://a http://b"},
		{name: "one that was in use and does not answer", known: map[string]uint64{"http://b": 2}, cluster: 7, answers: []answer{a, answerOf("http://b", 0, 0, 0, false)}, want: "http://a http://b"},
		{name: "not one that never answered", answers: []answer{a, answerOf("http://b", 0, 0, 0, false)}, want: "http://a"},
		{name: "not one that was taken out", listed: map[uint64]bool{1: true}, cluster: 7, answers: []answer{a, b}, want: "http://a"},
		{name: "not one that learns", answers: []answer{a, answerOf("http://b", 2, 7, 1, true)}, want: "http://a"},
		{name: "not one without a leader, where another has one", answers: []answer{a, answerOf("http://b", 2, 7, 0, false)}, want: "http://a"},
		{name: "those without a leader, where none has one", answers: []answer{answerOf("http://b", 2, 7, 0, false)}, want: "http://b"},
		{name: "not one of another cluster", cluster: 7, answers: []answer{a, answerOf("http://b", 2, 9, 2, false)}, want: "http://a", err: "another cluster"},
		{name: "none, where they are of two", answers: []answer{a, answerOf("http://b", 2, 9, 2, false)}, err: "different clusters"},
		{name: "those of a cluster that took the place of the former", known: map[string]uint64{"http://a": 1, "http://c": 3}, cluster: 5, listed: map[uint64]bool{4: true}, answers: []answer{a, answerOf("http://c", 0, 0, 0, false)}, want: "http://a"},
		{name: "none that answers", answers: []answer{answerOf("http://a", 0, 0, 0, false)}, err: "it does not answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := New(Config{Store: datastore.Config{}, Log: slog.New(slog.DiscardHandler)})
			p.members = members{given: []string{"http://a"}, cluster: tt.cluster, known: tt.known, listed: tt.listed}
			use, err := p.choose(tt.answers)
			if got := strings.Join(slices.Sorted(maps.Keys(use)), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// TestNobodyIsAskedInClearWhoWasNotBefore: what members say of themselves does not take TLS away, and is no way to a socket of this host.
func TestNobodyIsAskedInClearWhoWasNotBefore(t *testing.T) {
	list := &clientv3.MemberListResponse{Members: []*pb.Member{
		{ID: 1, ClientURLs: []string{"https://a:1", "http://a:1", "unix:///run/etcd"}}, {ID: 2, ClientURLs: []string{"https://b:1"}}, {ID: 3, ClientURLs: []string{"https://c:1"}, IsLearner: true},
	}}
	for _, tt := range []struct {
		given  string
		secure bool
		want   []string
	}{
		{"https://a:1", true, []string{"https://a:1", "https://a:1", "https://b:1"}},
		{"a:1", true, []string{"a:1", "https://a:1", "https://b:1"}},
		{"a:1", false, []string{"a:1", "http://a:1"}},
		{"http://a:1", false, []string{"http://a:1", "http://a:1"}},
	} {
		m := &members{given: []string{tt.given}, secure: tt.secure}
		if got := m.candidates(list); !slices.Equal(got, tt.want) {
			t.Errorf("given %s: got %q, want %q", tt.given, got, tt.want)
		}
	}
}
