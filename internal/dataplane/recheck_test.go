package dataplane

import (
	"testing"
	"testing/synctest"

	"github.com/twillnet/twill/internal/intent"
)

// rechecking is a policy driver that decides about established flows again from each batch on.
type rechecking struct {
	fake
	merged, standing uint64
}

func (r *rechecking) Merge(b intent.Batch) {
	r.fake.Merge(b)
	r.merged++
	r.standing = r.merged
}

func (r *rechecking) Standing() uint64 { return r.standing }

func (r *rechecking) Judged(upTo uint64) {
	r.j.add("judged %d", upTo)
	if upTo == r.standing {
		r.standing = 0
	}
}

// judge is a follower that is slow.
type judge struct {
	j    *journal
	done []func()
}

func (f *judge) InForce(intent.Batch, bool) { f.j.add("in force") }
func (f *judge) WhenJudged(done func())     { f.done = append(f.done, done) }

// TestTheDriverLearnsThatFlowsWereJudged: of each change, what stood when it came into force, whenever the follower is done, and not of
// what failed. It gets a turn to take away what it needs no longer.
func TestTheDriverLearnsThatFlowsWereJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		nft, f := &rechecking{fake: fake{name: "nft", j: j}}, &judge{j: j}
		run(t, Config{Policy: nft, Followers: []Follower{f}, Resync: -1}, j, func(b *bench) {
			b.batches <- endpoint()
			b.want(t, "nft resync", "nft apply 1", "in force")
			nft.errs = []error{errNotReadBack}
			b.batches <- endpoint()
			b.want(t, "nft apply 1")
			if len(f.done) != 1 {
				t.Fatalf("the follower was asked %d times, once for what is in force", len(f.done))
			}
			f.done[0]()
			b.want(t)
			pass(linger / 2)
			b.want(t, "nft resync", "nft apply 0", "in force")
			f.done[1]()
			pass(linger)
			b.want(t, "judged 2", "nft apply 0")
			for range 3 {
				b.batches <- endpoint()
				b.want(t, "nft apply 1", "in force")
			}
			f.done[3]() // of changes 3 and 4
			f.done[2]()
			pass(linger)
			b.want(t, "judged 4", "nft apply 0")
			f.done[4]()
		})
		f.done[4]() // the loop has ended, and nobody waits for it: synctest finds who does
	})
}
