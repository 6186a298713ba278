package iptables

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// TestMarksAreWithinTheMask while it changes, and in what a driver makes that finds the chains of another mask.
func TestMarksAreWithinTheMask(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		b.apply(oneHost("*", intent.HostSettings{}))
		for _, mask := range []uint32{0, 0xff000000, 0x0000ff00, 0x00fe0000} {
			host := intent.HostSettings{MarkMask: mask}
			if mask == 0x00fe0000 { // a successor
				b.Driver = NewDriver(b.inside, Config{})
				b.apply(oneHost("*", host))
			}
			b.apply(intent.Batch{Host: &host})
			b.check(b.outside, b.k.NS, atHost, 80, true)
			b.check(b.outside, b.k.NS, atHost, 81, false)
			used := uint32(0)
			for _, m := range regexp.MustCompile(`(?:-m mark --mark|MARK --set-xmark) (0x[0-9a-f]+)/(0x[0-9a-f]+)`).FindAllStringSubmatch(b.everything(), -1) {
				for _, number := range m[1:] {
					n, err := strconv.ParseUint(number, 0, 32)
					if err != nil {
						t.Fatal(err)
					}
					used |= uint32(n)
				}
			}
			if of := kernel.Marks(mask).Of(^uint32(0)); used&^of != 0 || used&kernel.Marks(mask).Of(kernel.MarkHostPassed) == 0 {
				t.Errorf("mask %#08x: the rules use %#08x, want bits of %#08x", mask, used, of)
			}
		}
	})
}
