package kernel

import "math/bits"

// Marks is a mask: which bits of packets' marks are ours. Zero stands for [MarkMask].
type Marks uint32

// MarksNeeded is how many bits a mask must have.
const MarksNeeded = len(fromBelow) + len(fromAbove)

// What later stages read has the uppermost bits of a mask, and what ends with the stage that set it the lowest. So a packet that is between two stages
// when the mask changes is not taken for allowed, unless the upper bits of the new mask are the lower ones of the old.
var (
	fromBelow = [...]uint32{MarkAllowed, MarkPassed, MarkScratch0, MarkScratch1, MarkEncrypted}
	fromAbove = [...]uint32{MarkHostPassed, MarkUntracked}
)

// Of returns the bits of the mask that stand for some of the Mark constants. The mask has [MarksNeeded] bits or more, or is zero.
func (m Marks) Of(marks uint32) (out uint32) {
	if m == 0 {
		m = Marks(MarkMask)
	}
	below, above := uint32(m), uint32(m)
	for _, b := range fromBelow {
		next := below & -below
		if below &^= next; marks&b != 0 {
			out |= next
		}
	}
	for _, b := range fromAbove {
		next := uint32(1) << (31 - bits.LeadingZeros32(above|1))
		if above &^= next; marks&b != 0 {
			out |= next
		}
	}
	return out
}
