package ipam_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/ipam"
)

// etcd is a store on a member of its own, with one pool of each family.
func etcd(t testing.TB, cidr string, blockSize int) datastore.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "ipam") // short, as the name of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	url := "unix://" + filepath.Join(dir, "s")
	m, err := member.Start(t.Context(), member.Config{Dir: dir, ListenClient: []string{url}, StartTimeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	s, err := stores.Open(t.Context(), datastore.Config{Endpoints: []string{url}, RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	putPools(t, s, cidr, blockSize)
	return s
}

// putPools stores a pool of each family.
func putPools(t testing.TB, s datastore.Store, cidr string, blockSize int) {
	t.Helper()
	for name, spec := range map[string]string{
		"p": fmt.Sprintf(`"cidr":%q,"blockSize":%d`, cidr, blockSize), "p6": `"cidr":"fd65::/112","blockSize":122`,
	} {
		if err := datastore.Put(t.Context(), s, api.Update{Key: api.ResourcesPrefix + "ippools/" + name, Value: []byte(`{"metadata":{},"spec":{` + spec + `}}`)}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestManyAssignAtOnceOnEtcd(t *testing.T) {
	manyAssignAtOnce(t, etcd(t, "10.65.0.0/24", 28))
}

// manyAssignAtOnce has eight nodes want all addresses of pool p at the same time, and as many of p6, and give them back.
func manyAssignAtOnce(t *testing.T, s datastore.Store) {
	t.Helper()
	const nodes, each = 8, 25
	a := ipam.New(s, ipam.Config{})
	var mu sync.Mutex
	seen := map[netip.Addr]string{}
	var wg sync.WaitGroup
	for n := range nodes {
		shared := ipam.New(s, ipam.Config{}) // as one process of the node
		for i := range each {
			wg.Go(func() {
				handle := fmt.Sprintf("net.%d-%d", n, i)
				got, err := shared.Assign(t.Context(), ipam.AutoArgs{Node: fmt.Sprint("n", n), Handle: handle, Num4: 1, Num6: 1})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, g := range got {
					if other := seen[g.Addr]; other != "" {
						t.Errorf("%s was given to %s and to %s", g.Addr, other, handle)
					}
					seen[g.Addr] = handle
				}
			})
		}
	}
	wg.Wait()
	if len(seen) != 2*nodes*each {
		t.Errorf("%d addresses, want %d", len(seen), 2*nodes*each)
	}
	v, err := a.ReadSurvey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range v.Check(ipam.CheckOptions{Now: time.Now(), Grace: time.Hour}) {
		if f.Kind != ipam.FoundLeak { // there are no endpoints
			t.Errorf("found %s %s: %s (%s)", f.Kind, f.Block, f.Problem, f.Proof)
		}
	}
	for n := range nodes {
		wg.Go(func() {
			for i := range each {
				if freed, err := a.ReleaseByHandle(t.Context(), fmt.Sprintf("net.%d-%d", n, i)); err != nil || len(freed) != 2 {
					t.Errorf("released %v, %v", freed, err)
				}
			}
			if err := a.ReleaseHostAffinities(t.Context(), fmt.Sprint("n", n), true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if left, err := s.List(t.Context(), api.IPAMPrefix); err != nil || len(left.Items) > 0 {
		t.Errorf("%d keys are left, %v", len(left.Items), err)
	}
}

// BenchmarkAssign gives one address out and takes it back, beside 1,000 blocks that are in use.
func BenchmarkAssign(b *testing.B) {
	s := etcd(b, "10.65.0.0/16", 26)
	a := ipam.New(s, ipam.Config{})
	for i := range 1000 {
		if _, err := a.EnsureBlock(b.Context(), ipam.BlockArgs{Node: fmt.Sprint("n", i)}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := a.Assign(b.Context(), ipam.AutoArgs{Node: "n7", Handle: "net.c", Num4: 1}); err != nil {
			b.Fatal(err)
		}
		if _, err := a.ReleaseByHandle(b.Context(), "net.c"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkClaim is an address for a node that has no block yet.
func BenchmarkClaim(b *testing.B) {
	s := etcd(b, "10.64.0.0/12", 26)
	a := ipam.New(s, ipam.Config{})
	for i := range 1000 {
		if _, err := a.EnsureBlock(b.Context(), ipam.BlockArgs{Node: fmt.Sprint("n", i)}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := a.Assign(b.Context(), ipam.AutoArgs{Node: "new", Handle: "net.c", Num4: 1}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if _, err := a.ReleaseByHandle(b.Context(), "net.c"); err != nil {
			b.Fatal(err)
		}
		if err := a.ReleaseHostAffinities(b.Context(), "new", true); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
