package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// TestABlockBelongsToOnePool of several that contain it, as pools that were applied to Kubernetes' API itself may. Its pool would else be any, and
// the block of a size that this has not.
func TestABlockBelongsToOnePool(t *testing.T) {
	const overlap = `"status":{"conditions":[{"type":"Allocatable","status":"False","reason":"CIDROverlap","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`
	pool := func(name, cidr string, size int, more string) api.Update {
		return api.Update{Key: api.KeyPrefix(api.KindIPPool, "") + name, Value: fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":{"cidr":%q,"blockSize":%d},%s}`, name, cidr, size, cmp.Or(more, `"kind":"IPPool"`))}
	}
	off := func(name, cidr string) api.Update {
		return api.Update{Key: api.KeyPrefix(api.KindIPPool, "") + name, Value: fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":{"cidr":%q,"blockSize":26,"disabled":true}}`, name, cidr)}
	}
	for _, tt := range []struct {
		name        string
		pools       []api.Update
		block, want string
	}{
		{"the smallest of those that give none", []api.Update{off("a", "10.0.0.0/16"), off("b", "10.0.0.0/24")}, "10.0.0.64/26", "b"},
		{"the first, which gives addresses", []api.Update{pool("a", "10.0.0.0/16", 26, ""), pool("b", "10.0.0.0/24", 26, "")}, "10.0.0.64/26", "a"},
		{"one with blocks of its size", []api.Update{pool("a", "10.0.0.0/24", 26, ""), pool("b", "10.0.0.0/16", 28, "")}, "10.0.0.0/28", "b"},
		{"one that gives addresses", []api.Update{pool("a", "10.0.0.0/24", 26, overlap), pool("b", "10.0.0.0/16", 26, "")}, "10.0.0.0/26", "b"},
		{"the first by name", []api.Update{pool("b", "10.0.0.0/24", 26, ""), pool("a", "10.0.0.0/24", 26, "")}, "10.0.0.0/26", "a"},
		{"the only one, whatever its blocks are", []api.Update{pool("a", "10.0.0.0/24", 28, overlap)}, "10.0.0.0/26", "a"},
		{"none that is only a part of it", []api.Update{pool("a", "10.0.0.0/27", 27, "")}, "10.0.0.0/26", ""},
		{"none of the other family", []api.Update{pool("a", "0.0.0.0/0", 26, "")}, "fd00::/122", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fixture{T: t, store: storetest.New(t), now: start}
			f.Allocator = f.allocator(f.store, Config{})
			for _, p := range tt.pools {
				f.raw(p.Key, string(p.Value))
			}
			v, err := f.ReadSurvey(t.Context())
			if err != nil || len(v.Pools) != len(tt.pools) {
				t.Fatalf("%v, %v", v, err)
			}
			if got, is := v.PoolOf(netip.MustParsePrefix(tt.block)); got.Name != tt.want || is != (tt.want != "") {
				t.Errorf("got %q, want %q", got.Name, tt.want)
			}
		})
	}
}
