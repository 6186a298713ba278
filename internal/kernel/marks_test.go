package kernel

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

func TestBitsOfAMask(t *testing.T) {
	const all = MarkAllowed | MarkPassed | MarkScratch0 | MarkScratch1 | MarkEncrypted | MarkUntracked | MarkHostPassed
	for _, c := range []struct{ mask, marks, want uint32 }{
		{0, all, all},
		{MarkMask, all, all},
		{MarkMask, MarkKept, MarkKept},
		{0xff000000, MarkAllowed, 0x01000000},
		{0xff000000, MarkPassed | MarkEncrypted, 0x12000000},
		{0xff000000, MarkUntracked | MarkHostPassed, 0xc0000000},
		{0x00ff0f00, MarkKept, 0x00000f00},
		{0x00ff0f00, MarkHostPassed, 0x00800000},
		{0x0000007f, all, 0x0000007f},
		{0x0000007f, 0, 0},
	} {
		if got := Marks(c.mask).Of(c.marks); got != c.want {
			t.Errorf("mask %#08x: the bits of %#08x are %#08x, want %#08x", c.mask, c.marks, got, c.want)
		}
	}
	for range 1000 {
		mask := rand.Uint32()
		if bits.OnesCount32(mask) < MarksNeeded {
			continue
		}
		if got := Marks(mask).Of(all); got&^mask != 0 || bits.OnesCount32(got) != MarksNeeded {
			t.Fatalf("mask %#08x has %#08x for %d marks", mask, got, MarksNeeded)
		}
	}
}
