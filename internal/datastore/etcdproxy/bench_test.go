package etcdproxy_test

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdproxy"
	"github.com/twillnet/twill/internal/datastore/member"
)

// BenchmarkWays is what a change, a read and a list of 10,000 keys cost by a proxy, and without one.
func BenchmarkWays(b *testing.B) {
	m := startMember(b, member.Config{})
	c := etcd(b, clientv3.Config{Endpoints: m.Endpoints()})
	p := startProxy(b, etcdproxy.Config{Store: to(m.Endpoints()...)})
	value := string(make([]byte, 500))
	for i := range 10_000 {
		put(b, c, fmt.Sprintf("/list/%05d", i), value)
	}
	for _, way := range []struct{ name, endpoint string }{{"direct", m.Endpoints()[0]}, {"proxy", p.endpoint}} {
		s := open(b, datastore.Config{Endpoints: []string{way.endpoint}, Progress: time.Minute})
		b.Run("get/"+way.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Get(b.Context(), "/list/00000"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("list/"+way.name, func(b *testing.B) {
			for b.Loop() {
				if snap, err := s.List(b.Context(), "/list/"); err != nil || len(snap.Items) != 10_000 {
					b.Fatal(len(snap.Items), err)
				}
			}
		})
		b.Run("change/"+way.name, func(b *testing.B) {
			w, err := s.Watch(b.Context(), "/k/", datastore.PositionOf(fmt.Sprint(put(b, c, "/k/a", "0"))))
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			for b.Loop() {
				next(b, w, put(b, c, "/k/a", "1"))
			}
		})
	}
}
