package crds

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"

	"github.com/twillnet/twill/internal/seedtest"
)

func TestNumbersAreMatchedUpToTheLast(t *testing.T) {
	r := seedtest.Rand(t)
	for _, most := range []uint64{1, 6, 10, 32, 128, 255, 65535, 100000, uint64(2 + r.IntN(1_000_000))} {
		one, zero := regexp.MustCompile("^("+from1(most)+")$"), regexp.MustCompile("^("+upTo(most)+")$")
		for _, n := range append([]uint64{0, 1, most - 1, most, most + 1, most * 10}, some(r, 2*most)...) {
			text := strconv.FormatUint(n, 10)
			if got, want := one.MatchString(text), n >= 1 && n <= most; got != want {
				t.Errorf("%d of 1 to %d: %v", n, most, got)
			}
			if got, want := zero.MatchString(text), n <= most; got != want {
				t.Errorf("%d of 0 to %d: %v", n, most, got)
			}
		}
		if zero.MatchString("01") || one.MatchString("") {
			t.Errorf("up to %d: a zero before a number, or nothing", most)
		}
	}
}

func some(r *rand.Rand, below uint64) (out []uint64) {
	for range 200 {
		out = append(out, r.Uint64N(below))
	}
	return out
}
