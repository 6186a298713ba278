package nft

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// TestATableIsReplacedUnderTraffic has no allowed packet lost and no denied one let through, however often.
func TestATableIsReplacedUnderTraffic(t *testing.T) {
	h := newHosted(t)
	machinetest.Supported(t, h.ProbeOwner())
	from := np("from-a")
	rule := intent.Rule{Action: intent.Allow, Src: intent.Peer{Sets: []intent.SetID{"s:a"}}}
	a, b := wl("a", "calia"), wl("b", "calib")
	for _, e := range []*intent.Endpoint{&a, &b} {
		intenttest.Normal(e, tier("default", intent.Deny, []intent.PolicyID{from}, []intent.PolicyID{from}))
	}
	h.d.Merge(intent.Batch{
		IPSets:    []intent.IPSet{{ID: "s:a", Members: []intent.Member{member(addrs["a"][0] + "/32")}}},
		Policies:  []intent.Policy{{ID: from, Tier: "default", Ingress: []intent.Rule{rule}, Egress: []intent.Rule{{Action: intent.Allow}}}},
		Endpoints: []intent.Endpoint{a, b}, Host: &intent.HostSettings{}, InSync: true,
	})
	apply(t, h.d)
	allowed, denied := h.send(t, "a", "b", true), h.send(t, "b", "a", false)
	const often = 50
	for range often {
		for _, flags := range []nftables.TableFlags{ownedFlags, 0} {
			until := allowed.sent.Load() + window // some before it, and some after
			if err := h.Remake(kernel.TableName, flags); err != nil {
				t.Fatal(err)
			}
			for allowed.received.Load() < until {
				if allowed.lost.Load() > 0 || denied.received.Load() > 0 {
					t.Fatalf("lost %d allowed, and %d denied passed", allowed.lost.Load(), denied.received.Load())
				}
			}
		}
	}
	t.Logf("%d allowed and %d denied packets", allowed.sent.Load(), denied.sent.Load())
}

// TestATableGoesUnderTraffic has no packet lost while our table goes, and comes: another agent guards the host then.
func TestATableGoesUnderTraffic(t *testing.T) {
	h := newHosted(t)
	any := np("any")
	a, b := wl("a", "calia"), wl("b", "calib")
	for _, e := range []*intent.Endpoint{&a, &b} {
		intenttest.Normal(e, tier("default", intent.Deny, []intent.PolicyID{any}, []intent.PolicyID{any}))
	}
	allow := []intent.Rule{{Action: intent.Allow}}
	h.d.Merge(intent.Batch{
		Policies:  []intent.Policy{{ID: any, Tier: "default", Ingress: allow, Egress: allow}},
		Endpoints: []intent.Endpoint{a, b}, Host: &intent.HostSettings{}, InSync: true,
	})
	flow := h.send(t, "a", "b", true)
	for range 100 {
		if err := h.d.Resync(t.Context()); err != nil {
			t.Fatal(err)
		}
		apply(t, h.d)
		until := flow.sent.Load() + window // some before it goes, and some after
		if err := h.Dissolve(nftables.FamilyINet, kernel.TableName); err != nil {
			t.Fatal(err)
		}
		for flow.received.Load() < until {
			if lost := flow.lost.Load(); lost > 0 {
				t.Fatalf("%d packets were lost", lost)
			}
		}
	}
	if tables, err := h.ListTables(); err != nil || len(tables) > 0 {
		t.Errorf("tables are %q, %v", tables, err)
	}
}

// numbered is a flow of numbered datagrams.
type numbered struct{ sent, received, lost atomic.Uint64 }

const (
	window = 128 // datagrams that may be under way: the receiver's buffer holds them
	atOnce = 32
)

// send sends datagrams in bursts; of a flow that passes, never more at once than the receiver's buffer holds.
func (h *hosted) send(t *testing.T, from, to string, passes bool) *numbered {
	t.Helper()
	dst := netip.AddrPortFrom(netip.MustParseAddr(addrs[to][0]), 9)
	rx, err := h.party(to).ListenUDP(dst)
	if err != nil {
		t.Fatal(err)
	}
	var tx *net.UDPConn
	h.party(from).Do(func() { tx, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(dst)) })
	if err != nil {
		t.Fatal(err)
	}
	f := &numbered{}
	var ends sync.WaitGroup
	end := make(chan struct{})
	ends.Go(func() { f.receive(rx) })
	ends.Go(func() {
		netnstest.OneCore(t) // until the goroutine ends, and its thread with it
		every := func(d time.Duration, burst func() error) {
			tick := time.NewTicker(d)
			defer tick.Stop()
			for burst() == nil {
				select {
				case <-end:
					return
				case <-tick.C:
				}
			}
		}
		done := errors.New("done")
		write := func(n uint64) error {
			_, err := tx.Write(binary.BigEndian.AppendUint64(nil, n))
			return err
		}
		every(50*time.Millisecond, func() error { // few: each may lie in the receiver's buffer
			if !passes || f.received.Load() > 0 {
				return done
			}
			return write(0)
		})
		f.sent.Store(1)
		every(time.Millisecond, func() error {
			for range atOnce {
				if passes && f.sent.Load()-f.received.Load() >= window {
					break
				}
				if err := write(f.sent.Load()); err != nil {
					return err
				}
				f.sent.Add(1)
			}
			return nil
		})
	})
	t.Cleanup(func() {
		close(end)
		_ = tx.Close()
		_ = rx.Close()
		ends.Wait()
	})
	return f
}

// receive counts what comes, until the socket is closed. All is sent by one processor, so that it comes in order: what a later one has
// passed is lost.
func (f *numbered) receive(rx *net.UDPConn) {
	buf := make([]byte, 8)
	for next := uint64(0); ; {
		if _, err := rx.Read(buf); err != nil {
			return
		}
		n := binary.BigEndian.Uint64(buf)
		if n == 0 && next > 0 {
			continue // one more of the first, which were sent until neighbours were found
		}
		f.lost.Add(max(n, next) - next)
		next = max(n+1, next)
		f.received.Add(1)
	}
}
