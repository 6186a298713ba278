package ifmon

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// TestWhatNoEventSaysIsFoundByReading, as often as the setting says: what changed, and nothing of what did not. A read that fails
// ends nothing, and with zero nothing is read.
func TestWhatNoEventSaysIsFoundByReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links := []rtnl.Link{{Index: 2, Name: "eth0", Up: true}, {Index: 3, Name: "cali1", Up: true}}
		addrs := []rtnl.Addr{{Link: 2, Prefix: netip.MustParsePrefix("192.0.2.1/24")}}
		reads, fail := 0, error(nil)
		m := New(nil)
		m.watch = func(context.Context) (<-chan received, error) { return nil, nil } // a kernel that says nothing
		m.read = func() ([]rtnl.Link, []rtnl.Addr, error) { reads++; return links, addrs, fail }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		next := func() (out []Change) {
			synctest.Wait()
			select {
			case out = <-m.Changes():
			default:
			}
			synctest.Wait()
			return out
		}
		after := func(d time.Duration) []Change {
			<-time.After(d) // virtual
			return next()
		}
		if first := next(); len(first) != 2 {
			t.Fatalf("the first value is %+v", first)
		}
		links, addrs = links[:1], append(addrs, rtnl.Addr{Link: 2, Prefix: netip.MustParsePrefix("192.0.2.9/24")})
		if got := after(time.Hour); len(got) != 0 || reads != 1 {
			t.Errorf("without a setting: %+v, %d reads", got, reads)
		}
		for range 3 {
			m.Refresh(90 * time.Second)
			synctest.Wait()
		}
		if got := after(89 * time.Second); len(got) != 0 {
			t.Errorf("too early: %+v", got)
		}
		m.Refresh(90 * time.Second) // the same again puts nothing off
		if got := after(2 * time.Second); len(got) != 2 || !got[0].Gone || got[0].Name != "cali1" || len(got[1].Addrs) != 2 || got[1].Downs != 1 {
			t.Errorf("%+v, want cali1 gone, and eth0 with two addresses, whose routes are to be read", got)
		}
		if got := after(time.Hour); len(got) != 0 || reads < 40 {
			t.Errorf("nothing has changed: %+v, %d reads", got, reads)
		}
		fail = errors.New("interrupted")
		if got := after(3 * time.Minute); len(got) != 0 {
			t.Errorf("it cannot be read: %+v", got)
		}
		fail, links = nil, append(links, rtnl.Link{Index: 4, Name: "cali2"})
		if got := after(2 * time.Minute); len(got) != 1 || got[0].Name != "cali2" {
			t.Errorf("%+v, want cali2", got)
		}
		m.Refresh(0)
		synctest.Wait()
		reads = 0
		if after(time.Hour); reads != 0 {
			t.Errorf("it is read %d times, and is to be never", reads)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v", err)
		}
	})
}
