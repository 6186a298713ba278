package etcdproxy_test

import (
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/twillnet/twill/internal/datastore/etcdproxy"
	"github.com/twillnet/twill/internal/datastore/member"
)

// rawWatch is a stream of watches that nobody reads but the test.
func rawWatch(t testing.TB, c *clientv3.Client, r *pb.WatchCreateRequest) pb.Watch_WatchClient {
	t.Helper()
	s, err := pb.NewWatchClient(c.ActiveConnection()).Watch(t.Context(), grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil {
		t.Fatal(err)
	}
	if created, err := s.Recv(); err != nil || !created.Created {
		t.Fatalf("got %v, error %v", created, err)
	}
	return s
}

// TestLargeAnswersComeInPartsToWhoWantsThat: and whole to who does not.
func TestLargeAnswersComeInPartsToWhoWantsThat(t *testing.T) {
	p := startProxy(t, etcdproxy.Config{Store: to(startMember(t, member.Config{}).Endpoints()...)})
	c := etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}})
	const keys = 40
	var rev int64
	for i := range keys {
		rev = put(t, c, fmt.Sprintf("/k/%02d", i), strings.Repeat("x", 200<<10))
	}
	for _, fragment := range []bool{true, false} {
		s := rawWatch(t, c, &pb.WatchCreateRequest{Key: []byte("/k/"), RangeEnd: []byte("/k0"), StartRevision: rev - keys + 1, Fragment: fragment})
		parts, events := 0, 0
		for events < keys {
			resp, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if resp.Fragment {
				parts++
			}
			for _, e := range resp.Events {
				if want := fmt.Sprintf("/k/%02d", events); string(e.Kv.Key) != want {
					t.Fatalf("got %s, want %s", e.Kv.Key, want)
				}
				events++
			}
		}
		if fragment != (parts > 0) {
			t.Errorf("asked for parts: %v; %d came", fragment, parts)
		}
	}
}

// TestASlowClientHoldsUpNobody: it loses its stream, with what it can resume from, and others receive all meanwhile.
func TestASlowClientHoldsUpNobody(t *testing.T) {
	p := startProxy(t, etcdproxy.Config{Store: to(startMember(t, member.Config{}).Endpoints()...)})
	c := etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}})
	from := put(t, c, "/k/a", "0") + 1
	create := &pb.WatchCreateRequest{Key: []byte("/k/"), RangeEnd: []byte("/k0"), StartRevision: from}
	slow := rawWatch(t, etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}}), create)
	quick := rawWatch(t, c, create)
	const changes = 50
	for i := range changes {
		rev := put(t, c, "/k/a", strings.Repeat("x", 1<<20))
		if resp, err := quick.Recv(); err != nil || len(resp.Events) != 1 || resp.Events[0].Kv.ModRevision != rev {
			t.Fatalf("change %d: error %v, %d events", i, err, len(resp.GetEvents()))
		}
	}
	for want := from; ; want++ {
		resp, err := slow.Recv()
		if err != nil {
			if status.Code(err) != codes.Unavailable || want >= from+changes {
				t.Errorf("after %d changes: %v", want-from, err)
			}
			t.Logf("after %d of %d changes: %v", want-from, changes, err)
			return
		}
		if got := resp.Events[0].Kv.ModRevision; got != want {
			t.Fatalf("got revision %d, want %d", got, want)
		}
	}
}
