package sysctl_test

import (
	"errors"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

func open(t *testing.T, ns *netnstest.NS) *sysctl.Handle {
	t.Helper()
	h, err := sysctl.OpenIn(ns.Handle())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func TestHandleSpeaksOfItsOwnNamespaceWhereverItIsUsed(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	ha := open(t, a)
	if changed, err := ha.Set("ipv4/ip_forward", "1"); err != nil || !changed {
		t.Fatalf("Set = %v, %v; want a change", changed, err)
	}
	if changed, err := ha.Set("ipv4/ip_forward", "1"); err != nil || changed {
		t.Errorf("Set again = %v, %v; want no change", changed, err)
	}
	if got := a.SysctlValue("ipv4/ip_forward"); got != "1" {
		t.Errorf("ip_forward = %s, want 1", got)
	}
	if got := b.SysctlValue("ipv4/ip_forward"); got != "0" {
		t.Errorf("the other namespace has ip_forward = %s, want 0", got)
	}
}

func TestMissingAndWrongPathsAreErrors(t *testing.T) {
	h := open(t, netnstest.New(t))
	for _, tt := range []struct {
		name, path string
		notFound   bool
	}{
		{name: "an interface that is not there", path: "ipv4/conf/none/rp_filter", notFound: true},
		{name: "a path that leaves the tree", path: "ipv4/conf/../../../../kernel/hostname"},
		{name: "an absolute path", path: "/etc/passwd"},
		{name: "nothing", path: ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := h.Get(tt.path)
			if err == nil || errors.Is(err, sysctl.ErrNotFound) != tt.notFound {
				t.Errorf("Get = %v", err)
			}
			if _, err = h.Set(tt.path, "1"); err == nil || errors.Is(err, sysctl.ErrNotFound) != tt.notFound {
				t.Errorf("Set = %v", err)
			}
		})
	}
}
