package etcdadmin_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdadmin"
	"github.com/twillnet/twill/internal/datastore/member"
)

// TestAMemberJoinsWhereNobodyWrites: the first thing that it asks of the cluster is lost, and what it missed, more than the 5,000 entries that etcd lets a member
// lag behind, comes as a snapshot, after which nothing comes.
func TestAMemberJoinsWhereNobodyWrites(t *testing.T) {
	f := newFixture(t, 1, func(*member.Config) {})
	f.reachable("h1")
	var lost atomic.Int32
	f.behindProxy(0, func(r *http.Request) bool {
		// A member that has no stream posts each message. One of type MsgProp, which raftpb.Message has in field 1, is a proposal.
		if r.Method != http.MethodPost || r.URL.Path != "/raft" {
			return true
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return false
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		return !bytes.HasPrefix(body, []byte{0x08, 0x02}) || lost.Add(1) > 1
	})
	f.writeMany()

	h2 := f.another("h2")
	h2.AdvertisePeer = []string{f.proxy(h2.ListenPeer[0], func(r *http.Request) bool {
		return !strings.HasPrefix(r.URL.Path, "/raft/stream/") // so that h2 posts what it says
	})}
	h2.Cluster = f.joined(h2.Name, h2.AdvertisePeer, "")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	m, err := member.Start(ctx, h2)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if lost.Load() == 0 {
		t.Error("nothing that h2 said was lost")
	}
	if err := f.admin.Promote(ctx, h2.AdvertisePeer); err != nil {
		t.Fatal(err)
	}
	ofH2 := must(etcdadmin.Open(ctx, datastore.Config{Endpoints: h2.ListenClient}))(t)
	defer ofH2.Close()
	f.again("what h2 says", func() error {
		c, err := ofH2.Status(ctx)
		if err == nil && c.Voters != 2 {
			t.Errorf("two should vote; it says %+v", c)
		}
		return err
	})
}

// behindProxy starts a member again, which the others reach by a proxy.
func (f *fixture) behindProxy(i int, passes func(*http.Request) bool) {
	f.t.Helper()
	f.stop(i)
	f.configs[i].AdvertisePeer = []string{f.proxy(f.configs[i].ListenPeer[0], passes)}
	f.start()
	f.status("the proxy's address", func(c etcdadmin.Cluster) bool {
		return c.Healthy == 1 && c.Members[i].PeerURLs[0] == f.configs[i].AdvertisePeer[0]
	})
}

// proxy answers in the place of a member, and refuses what does not pass.
func (f *fixture) proxy(to string, passes func(*http.Request) bool) string {
	f.t.Helper()
	p := httputil.NewSingleHostReverseProxy(must(url.Parse(to))(f.t))
	p.FlushInterval = -1 // streams
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !passes(r) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		p.ServeHTTP(w, r)
	}))
	f.t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// writeMany writes more than a member may lag behind.
func (f *fixture) writeMany() {
	f.t.Helper()
	var group errgroup.Group
	group.SetLimit(100)
	for n := range 6000 {
		group.Go(func() error { return f.put(fmt.Sprintf("/many/%06d", n), "v") })
	}
	if err := group.Wait(); err != nil {
		f.t.Fatal(err)
	}
}
