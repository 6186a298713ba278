package speaker_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// An address that is not there yet, as an IPv6 one while it is tentative, fails the listening on all; what listens on the
// others already must not be in the way when it is tried again.
func TestListeningIsTriedAgainWhenAnAddressWasNotThere(t *testing.T) {
	h, birds := network(t, 1)
	birds[0].run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	p := planOf(session("192.0.2.2", 64512), session("2001:db8:1::2", 64512))
	for i := range p.Sessions {
		p.Sessions[i].Passive = true
	}
	p.Listen = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:179"), netip.MustParseAddrPort("[2001:db8:1::1]:179")}
	h.Run("ip", "addr", "del", "2001:db8:1::1/64", "dev", "br0")
	h.start(p)
	problem := func() bool {
		return slices.ContainsFunc(h.ask(request{}).Report.Problems, func(s string) bool { return strings.HasPrefix(s, "listen: ") })
	}
	await(t, patience, func() error {
		if !problem() {
			return fmt.Errorf("it is not said that nobody listens")
		}
		return nil
	})
	h.Run("ip", "addr", "add", "2001:db8:1::1/64", "dev", "br0", "nodad")
	h.up("192.0.2.2", "2001:db8:1::2")
	if problem() {
		t.Error("it is still said that nobody listens")
	}
}
