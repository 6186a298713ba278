package revoke_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

var _ dataplane.Judging = (*revoke.Driver)(nil)

// TestWhatWaitsForFlowsToBeJudgedWaitsForThePassThatSawThem: what is asked after a change is answered by a pass that began after it and
// succeeded, or at once, if the change concerns no flow.
func TestWhatWaitsForFlowsToBeJudgedWaitsForThePassThatSawThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &table{flows: []conntrack.Flow{flow("192.0.2.9", "10.65.0.2", 6, 80)}}
		d := revoke.New(revoke.Config{Table: x, Local: func() ([]netip.Addr, error) { return nil, nil }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = d.Run(ctx) }()
		answered := false
		ask := func(b intent.Batch) {
			answered = false
			d.InForce(b, false)
			d.WhenJudged(func() { answered = true })
			looked()
		}
		b := server()
		b.InSync = false
		ask(b)
		if answered {
			t.Error("the source is not in sync, and nothing was judged")
		}
		ask(intent.Batch{InSync: true})
		if !answered {
			t.Error("all was judged, and nobody was answered")
		}
		<-time.After(time.Second) // the rest after a pass
		x.fail = errors.New("interrupted")
		ask(policy(denied(6, 80)))
		if answered {
			t.Error("the table could not be read")
		}
		x.fail = nil
		<-time.After(2 * time.Second)
		if synctest.Wait(); !answered || x.flows[0].Mark&kernel.ConntrackRevoked == 0 {
			t.Errorf("answered %v, and the flow has mark %#x", answered, x.flows[0].Mark)
		}
		reads := x.reads
		ask(intent.Batch{Members: []intent.MemberDelta{{Set: "s:nobody's"}}})
		if !answered || x.reads != reads {
			t.Errorf("nothing to judge: answered %v, after %d looks at the table", answered, x.reads-reads)
		}
	})
}

// unreadable is a table of connections that cannot be read now and then.
type unreadable struct {
	*conntrack.Conn
	fails  atomic.Bool
	failed atomic.Int64
	finds  atomic.Bool // the flows of an address by itself, however few flows there are
}

func (u *unreadable) EachOf(of map[netip.Addr]bool, f func(conntrack.Flow)) error {
	if u.fails.Load() {
		u.failed.Add(1)
		return errors.New("it cannot be read")
	}
	return u.Conn.EachOf(of, f)
}

func (u *unreadable) Count() (int, error) {
	if u.finds.Load() {
		return 1_000_000, nil
	}
	return u.Conn.Count()
}

func (u *unreadable) Each(f func(conntrack.Flow)) error {
	if u.fails.Load() {
		u.failed.Add(1)
		return errors.New("it cannot be read")
	}
	return u.Conn.Each(f)
}

// volleys numbers what counters send, so that what arrives late is not counted as later ones.
var volleys atomic.Int64

// counter sends datagrams, and says how many of them arrived.
type counter struct {
	from, to *net.UDPConn
	at       net.Addr
}

func (c counter) arrive(t testing.TB, n int, within time.Duration) (arrived int) {
	t.Helper()
	volley := fmt.Sprint("volley ", volleys.Add(1))
	for range n {
		if _, err := c.from.WriteTo([]byte(volley), c.at); err != nil {
			t.Error(err)
		}
	}
	_ = c.to.SetReadDeadline(time.Now().Add(within))
	for buf := make([]byte, 64); arrived < n; {
		size, _, err := c.to.ReadFrom(buf)
		if err != nil {
			break
		}
		if string(buf[:size]) == volley {
			arrived++
		}
	}
	return arrived
}

// datagramFlow begins a flow of UDP from the client, and has it answered.
func (p *pair) datagramFlow(port uint16) (forth, back counter) {
	p.t.Helper()
	server, err := p.server.ListenUDP(netip.AddrPortFrom(p.to, port))
	if err != nil {
		p.t.Fatal(err)
	}
	client, err := p.client.ListenUDP(netip.AddrPortFrom(p.from, port))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = server.Close(); _ = client.Close() })
	forth, back = counter{client, server, server.LocalAddr()}, counter{server, client, client.LocalAddr()}
	await(p.t, "the flow begins", func() bool {
		return forth.arrive(p.t, 1, netnstest.Silence) == 1 && back.arrive(p.t, 1, netnstest.Silence) == 1
	})
	return forth, back
}

// rechecked are the interfaces whose established flows the kernel decides about again.
func (l *looped) rechecked() string {
	l.t.Helper()
	out := l.host.Run("nft", "list", "ruleset")
	_, set, _ := strings.Cut(out, "set "+kernel.SetRecheck+" {")
	set, _, _ = strings.Cut(set, "chain ")
	_, elements, some := strings.Cut(set, "elements = {")
	elements, _, _ = strings.Cut(elements, "}")
	if hooked := strings.Contains(out, "chain recheck-"); hooked != some {
		return fmt.Sprintf("chains %v, elements %q", hooked, elements)
	}
	return strings.TrimSpace(elements)
}

// TestADeniedFlowIsCutBeforeItIsFoundInTheTable: while the kernel's table of connections cannot be read, a change cuts what goes as the flow
// began; when it can be, both directions are cut by the mark, and what decided until then goes. What is allowed loses nothing.
func TestADeniedFlowIsCutBeforeItIsFoundInTheTable(t *testing.T) {
	for _, family := range [][2]string{{"10.65.0.1", "10.65.0.2"}, {"fd65::a", "fd65::b"}} {
		t.Run(family[0], func(t *testing.T) {
			l := newLooped(t, family[0], family[1])
			l.begin(policy())
			forth, back := l.datagramFlow(datagrams)
			others, answers := l.datagramFlow(allowed)
			lives := func(when string) {
				t.Helper()
				const n = 50
				if a, b := others.arrive(t, n, patience), answers.arrive(t, n, patience); a != n || b != n {
					t.Errorf("%s, of a flow that is allowed %d and %d packets of %d arrive", when, a, b, n)
				}
			}
			l.table.fails.Store(true)
			l.batches <- policy(denied(17, datagrams))
			await(t, "the change is in force", func() bool { return l.rechecked() != "" })
			if forth.arrive(t, 50, netnstest.Silence) > 0 {
				t.Error("what is denied arrives")
			}
			if n := back.arrive(t, 50, patience); n != 50 {
				t.Errorf("%d of 50 answers arrive, of a flow without a mark", n)
			}
			lives("before the flows were looked at")
			l.table.fails.Store(false)
			await(t, "the flows were judged", func() bool { return l.rechecked() == "" })
			if forth.arrive(t, 50, netnstest.Silence) > 0 || back.arrive(t, 50, netnstest.Silence) > 0 {
				t.Error("what is denied and marked arrives")
			}
			lives("when they were")
			l.batches <- policy()
			await(t, "what is allowed again arrives", func() bool {
				return forth.arrive(t, 1, netnstest.Silence) == 1 && back.arrive(t, 1, netnstest.Silence) == 1
			})
			await(t, "nothing is left", func() bool { return l.rechecked() == "" })
		})
	}
}
