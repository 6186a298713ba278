// Package seedtest gives random tests their seeds.
//
// Each run of a test takes a new seed, so that CI looks at other cases every time; a test that fails says with which seed,
// and -seed=N runs that one again. A seed that found a fault is kept, by its number, in the test that it found it with.
package seedtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

var replay = flag.Uint64("seed", 0, "replay the random tests with this seed; zero takes new ones")

// New returns the seed of this run, never zero. If the test fails, its log says how to replay it.
func New(t testing.TB) uint64 {
	t.Helper()
	seed := *replay
	if seed == 0 {
		seed = 1 + rand.Uint64N(1<<32) // short enough to be typed
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with -run '^%s$' -seed=%d", t.Name(), seed)
		}
	})
	t.Logf("seed %d", seed)
	return seed
}

// Rand returns a source of random numbers that is made of New's seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(New(t), 0))
}

// Each runs a subtest for each seed that once found a fault, and for a number of new ones; or only that of -seed.
func Each(t *testing.T, kept []uint64, fresh int, test func(t *testing.T, seed uint64)) {
	t.Helper()
	seeds := kept
	for range fresh {
		seeds = append(seeds[:len(seeds):len(seeds)], 1+rand.Uint64N(1<<32))
	}
	if *replay != 0 {
		seeds = []uint64{*replay}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { test(t, seed) })
	}
}
