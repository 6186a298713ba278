package rtnl_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// TestThreadsTakeWhatALinkReceives, of the handle's namespace, whatever is mounted at /sys. Links of VXLAN have such threads as those of WireGuard have.
func TestThreadsTakeWhatALinkReceives(t *testing.T) {
	h := netnstest.New(t).Rtnl()
	if err := h.AddVXLAN(rtnl.VXLAN{Name: "vx", VNI: 7, Port: 4789, Local: netip.MustParseAddr("192.0.2.1"), MAC: "66:00:00:00:00:01", MTU: 1400}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{false, true, true, false} {
		if err := h.SetThreaded("vx", want); err != nil {
			t.Fatal(err)
		}
		if got, err := h.Threaded("vx"); err != nil || got != want {
			t.Errorf("Threaded = %t, %v; want %t", got, err, want)
		}
	}
	for _, absent := range []string{"absent", "", "..", "vx/../lo"} {
		if _, err := h.Threaded(absent); !errors.Is(err, rtnl.ErrNotFound) {
			t.Errorf("of a device %q that is not there: %v", absent, err)
		}
		if err := h.SetThreaded(absent, true); !errors.Is(err, rtnl.ErrNotFound) {
			t.Errorf("of a device %q that is not there: %v", absent, err)
		}
	}
}
