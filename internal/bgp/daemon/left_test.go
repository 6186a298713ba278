package daemon

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
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
