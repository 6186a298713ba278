package ipam

import (
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

// TestBlocksOfPoolsThatCannotServeDoNotCount: a node whose blocks are all of a pool that was disabled, to move to another, still gets a block of that.
func TestBlocksOfPoolsThatCannotServeDoNotCount(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reuse time.Duration // how long it is remembered which blocks are full
		old   string        // what becomes of the old pool
		args  AutoArgs
	}{
		{name: "of a disabled pool", old: `"disabled":true`},
		{name: "of a disabled pool, when it is known that they are full", reuse: time.Minute, old: `"disabled":true`},
		{name: "of a pool that no longer selects the node", old: `"nodeSelector":"has(old)"`},
		{name: "of another pool than that which is asked for", old: `"disabled":false`, args: AutoArgs{Pools4: []string{"q"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			f.Allocator = f.allocator(f.store, Config{Reuse: tt.reuse})
			f.configure(api.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true, MaxBlocksPerHost: 2})
			f.assign("h1", "a", 8)
			f.put("ippools/p", `"cidr":"10.0.0.0/28","blockSize":30,`+tt.old)
			f.put("ippools/q", `"cidr":"10.1.0.0/28","blockSize":30`)
			f.now = f.now.Add(tt.reuse)
			tt.args.Node, tt.args.Handle, tt.args.Num4 = "h1", "b", 8
			got, err := f.Assign(t.Context(), tt.args)
			if err != nil || len(got) != 8 {
				t.Fatalf("got %s, %v; want the 8 addresses of two blocks of the new pool", addrs(got), err)
			}
			tt.args.Num4 = 1
			f.refused(tt.args, "h1 has 2 blocks already")
		})
	}
}
