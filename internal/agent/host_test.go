package agent

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func TestBootClosesTheHostAndLeaveGivesItBack(t *testing.T) {
	ns := netnstest.New(t)
	var before, after map[string]string
	var first, second bool
	var errs [6]error
	ns.Do(func() {
		before, errs[0] = Found()
		first, errs[1] = Boot(t.Context(), Config{Node: "h1"})
		second, errs[2] = Boot(t.Context(), Config{Node: "h1"})
	})
	if !first || second {
		t.Errorf("boot did something: %v, and again: %v; want true, false", first, second)
	}
	ruleset := ns.Run("nft", "list", "chain", "inet", "twill", "forward-from-workload")
	if want := `iifname "cali*" iifname != @wl-links counter`; !strings.Contains(ruleset, want) {
		t.Errorf("the table does not close workloads' interfaces:\n%s", ruleset)
	}
	// What an agent does since.
	ns.Veth("cali1", "peer1")
	ns.Run("sysctl", "-qw", "net.ipv4.ip_forward=1")
	ns.Run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	ns.Run("ip", "route", "add", "10.65.0.2/32", "dev", "cali1", "proto", "80")
	ns.Run("ip", "route", "add", "10.67.0.0/26", "dev", "cali1", "proto", "186", "metric", "2049") // BGP's
	ns.Run("ip", "route", "add", "10.66.0.0/24", "dev", "cali1")                                   // somebody else's
	ns.Run("ip", "route", "add", "10.68.0.0/24", "dev", "cali1", "proto", "186", "metric", "20")   // another speaker's
	var did []string
	ns.Do(func() {
		did, errs[3] = Leave(t.Context(), before)
		after, errs[4] = Found()
	})
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, value := range before { // an interface may have come since
		if after[path] != value {
			t.Errorf("%s is %s, was %s", path, after[path], value)
		}
	}
	if got := ns.Run("nft", "list", "ruleset"); got != "" {
		t.Errorf("the ruleset is\n%s", got)
	}
	if got := ns.Run("ip", "-4", "route"); strings.Contains(got, "10.65.0.2") || strings.Contains(got, "10.67.0.0") || !strings.Contains(got, "10.66.0.0/24") || !strings.Contains(got, "10.68.0.0/24") {
		t.Errorf("routes are\n%s", got)
	}
	if !slices.Contains(did, "nftables table inet twill is deleted") || !slices.Contains(did, "route 10.65.0.2/32 is deleted") {
		t.Errorf("it says that it did %q; settings were %v", did, slices.Sorted(maps.Keys(before)))
	}
}
