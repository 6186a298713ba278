package speaker

import (
	"net/netip"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
)

func TestHowLongRoutesStayThatNobodyTells(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	p := plan.Plan{Sessions: []plan.Session{{Peer: a, Restart: time.Minute}, {Peer: b, Restart: 2 * time.Minute}}}
	zero := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int) time.Time { return zero.Add(time.Duration(seconds) * time.Second) }
	for _, tt := range []struct {
		name string
		do   func(*hold)
		want int // seconds; -1: for ever
	}{
		{"without a plan for ever", func(*hold) {}, -1},
		{"with nothing left not at all", func(h *hold) { h.begin(p, false, zero) }, 0},
		{"with routes left for the longest restart time", func(h *hold) { h.begin(p, true, zero) }, 120},
		{"until all have sent End-of-RIB, and a little longer", func(h *hold) { h.begin(p, true, zero); h.onEndOfRIB(a, at(3)); h.onEndOfRIB(b, at(7)) }, 12},
		{"one that has is not enough", func(h *hold) { h.begin(p, true, zero); h.onEndOfRIB(a, at(3)); h.onEndOfRIB(a, at(4)) }, 120},
		{"who is no peer any more is not waited for", func(h *hold) { h.begin(p, true, zero); h.onEndOfRIB(a, at(3)); h.removePeer(b) }, 8},
		{"a peer that comes back later, while nothing is left", func(h *hold) { h.begin(p, false, zero); h.onEndOfRIB(a, at(50)) }, 55},
		{"peers one after the other, but not for ever", func(h *hold) {
			h.begin(p, false, zero)
			for i := range 15 {
				h.onEndOfRIB(a, at(2*i))
			}
		}, 30},
		{"the end of BGP waits for nothing", func(h *hold) { h.begin(p, true, zero); h.onEndOfRIB(a, at(3)); h.end() }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h hold
			tt.do(&h)
			when, holds := h.next(zero)
			if !holds {
				when = zero
			}
			if tt.want < 0 {
				if !holds || !when.IsZero() {
					t.Errorf("holds %t until %s", holds, when)
				}
				return
			}
			if got := int(when.Sub(zero).Seconds()); got != tt.want {
				t.Errorf("for %d s, want %d", got, tt.want)
			}
			if _, still := h.next(when); still {
				t.Error("it holds when it is over")
			}
		})
	}
}
