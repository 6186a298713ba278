package etcdproxy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/internal/datastore/etcdproxy"
	"github.com/twillnet/twill/internal/datastore/member"
)

// TestAPositionCoversAllWatchesOfAStream: what a client is told when it asks where it is holds for each of its watches: no event up to there comes
// later. The watches are served by several of the proxy's, which are not equally fast.
func TestAPositionCoversAllWatchesOfAStream(t *testing.T) {
	m := startMember(t, member.Config{})
	c := etcd(t, clientv3.Config{Endpoints: m.Endpoints()})
	p := startProxy(t, etcdproxy.Config{Store: to(m.Endpoints()...)})
	s := rawWatch(t, etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}}), &pb.WatchCreateRequest{Key: []byte("/0/"), RangeEnd: []byte("/00"), StartRevision: 1})
	const prefixes, changes = 5, 1500
	send := func(r *pb.WatchRequest) {
		if err := s.Send(r); err != nil {
			t.Error(err)
		}
	}
	ask := func() {
		send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	}
	for i := 1; i < prefixes; i++ {
		send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			Key: fmt.Appendf(nil, "/%d/", i), RangeEnd: fmt.Appendf(nil, "/%d0", i), StartRevision: 1,
		}}})
		if created, err := s.Recv(); err != nil || !created.Created {
			t.Fatalf("got %v, error %v", created, err)
		}
	}
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		value := strings.Repeat("x", 2000)
		for i := range changes {
			put(t, c, fmt.Sprintf("/%d/k", i%prefixes), value)
			if i%3 == 0 {
				ask()
			}
		}
		again := time.NewTicker(100 * time.Millisecond) // a member does not answer while a watch has to catch up
		defer again.Stop()
		for {
			select {
			case <-again.C:
				ask()
			case <-done:
				return
			}
		}
	})
	defer writing.Wait()
	defer close(done)
	seen, covered, positions := 0, int64(0), 0
	for seen < changes || positions == 0 {
		resp, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range resp.Events {
			if seen++; e.Kv.ModRevision <= covered {
				t.Fatalf("%s changed at %d, after the position %d", e.Kv.Key, e.Kv.ModRevision, covered)
			}
		}
		if len(resp.Events) == 0 && resp.WatchId == clientv3.InvalidWatchID {
			positions++
			if resp.Header.Revision < covered {
				t.Fatalf("the position goes back from %d to %d", covered, resp.Header.Revision)
			}
			covered = resp.Header.Revision
		}
	}
	t.Logf("%d changes, %d positions", seen, positions)
}
