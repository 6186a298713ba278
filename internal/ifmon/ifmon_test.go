package ifmon_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func TestMonitorTellsTheFullStateAndThenWhatChanges(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("wl1", "wl1p")
	m := ifmon.New(ns.Rtnl())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	now := map[string]ifmon.Link{}
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.After(time.Minute); !ok(); {
			select {
			case cs := <-m.Changes():
				for _, c := range cs {
					if now[c.Name] = c.Link; c.Gone {
						delete(now, c.Name)
					}
				}
			case <-deadline:
				t.Fatalf("never heard of %s; have %+v", what, now)
			}
		}
	}
	first := <-m.Changes()
	if len(first) != 3 {
		t.Errorf("the first value is %+v, want three interfaces", first)
	}
	for _, c := range first {
		now[c.Name] = c.Link
	}
	ns.Addr("wl1", "192.0.2.1/24", "2001:db8::1/64")
	until("addresses", func() bool {
		return slices.Contains(now["wl1"].Addrs, netip.MustParsePrefix("192.0.2.1/24")) &&
			slices.Contains(now["wl1"].Addrs, netip.MustParsePrefix("2001:db8::1/64"))
	})
	before := now["wl1"].Downs
	ns.Flap("wl1")
	until("a flap", func() bool { return now["wl1"].Downs > before && now["wl1"].Up })
	ns.Down("wl1p")
	until("a lost carrier", func() bool { return now["wl1"].Up && !now["wl1"].Running })
	ns.Delete("wl1")
	until("the end", func() bool { return len(now) == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
}
