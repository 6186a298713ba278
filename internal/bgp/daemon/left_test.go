package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// TestRoutesThatWereLearnedBeforeAreFound: those of a BIRD that took the place of `twill bgp`, or of that, and nobody else's.
func TestRoutesThatWereLearnedBeforeAreFound(t *testing.T) {
	for route, want := range map[string]bool{
		"":                                      false,
		"10.204.0.0/26 proto 186":               false, // another speaker's
		"10.204.0.0/26 proto 12":                false, // another BIRD's
		"10.204.0.0/26 metric 2050":             false,
		"10.204.0.0/26 proto 12 metric 2050":    true,
		"10.204.0.0/26 proto 186 metric 2048":   true,
		"10.204.0.0/26 proto 186 metric 2049":   true,
		"2001:db8:4::/64 proto 12 metric 2050":  true,
		"2001:db8:4::/64 proto 186 metric 2048": true,
	} {
		ns := netnstest.New(t)
		ns.Veth("eth0", "peer0")
		ns.Up("eth0")
		if route != "" {
			ns.Run("ip", append([]string{"route", "add"}, append(strings.Fields(route), "dev", "eth0")...)...)
		}
		var got bool
		var err error
		ns.Do(func() { got, err = HasLearnedRoutes() })
		if err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", route, got, err, want)
		}
	}
}

// TestADedicatedReflectorLeavesNoRouteOfBefore: a BIRD that installs routes keeps its own, and one that is a dedicated reflector but those that lead to peers.
func TestADedicatedReflectorLeavesNoRouteOfBefore(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth0", "peer0")
	ns.Up("eth0")
	for _, route := range []string{"10.204.0.0/26 proto 186 metric 2048", "10.204.1.0/26 proto 12 metric 2050", "10.204.2.1 proto 12 metric 2050", "10.204.3.0/26 proto 12"} {
		ns.Run("ip", append([]string{"route", "add"}, append(strings.Fields(route), "dev", "eth0")...)...)
	}
	ways := plan.Plan{Sessions: []plan.Session{{Peer: netip.MustParseAddr("10.204.2.1"), Via: netip.MustParseAddr("10.204.9.9")}}}
	for reflector, want := range map[bool]string{false: "10.204.0.0/26", true: "10.204.0.0/26 10.204.1.0/26"} {
		ns.Do(func() {
			h, err := rtnl.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			former, err := formerRoutes(h, reflector)
			var got []string
			for _, r := range goes(former, ways) {
				got = append(got, r.Dst.String())
			}
			slices.Sort(got)
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("reflector %v: %v go, %v; want %s", reflector, got, err, want)
			}
		})
	}
}
