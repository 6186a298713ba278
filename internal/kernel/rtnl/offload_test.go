package rtnl_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

func TestChecksumsAreTheDevicesOrTheKernels(t *testing.T) {
	ns := netnstest.New(t)
	h := ns.Rtnl()
	if err := h.AddVXLAN(rtnl.VXLAN{Name: "vx", VNI: 7, Port: 4789, Local: netip.MustParseAddr("192.0.2.1"), MAC: "66:00:00:00:00:01", MTU: 1400}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{false, false, true, false} {
		if err := h.SetTxChecksum("vx", want); err != nil {
			t.Fatal(err)
		}
		if got, err := h.TxChecksum("vx"); err != nil || got != want {
			t.Errorf("TxChecksum = %t, %v; want %t", got, err, want)
		}
	}
	if _, err := h.TxChecksum("absent"); !errors.Is(err, rtnl.ErrNotFound) {
		t.Errorf("of a device that is not there: %v", err)
	}
}
