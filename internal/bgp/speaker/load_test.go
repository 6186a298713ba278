package speaker_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// load is many peers in this process, each with an address and routes of its own, and none more than it must be: a
// message is read for the prefixes that are in it, and that is all.
type load struct {
	ns     *netnstest.NS
	peers  []*loadPeer
	each   int          // routes of each peer
	full   atomic.Int64 // peers that have all routes of the others
	empty  atomic.Int64 // peers that have none
	change chan struct{}
	end    chan struct{}
	done   sync.WaitGroup
	once   sync.Once
}

type loadPeer struct {
	*raw
	number int
	has    []bool // routes, by number
	count  int
	err    error // why it stopped reading
}

// loadAddr is a peer's, in 10.99.0.0/16.
func loadAddr(i int) string { return fmt.Sprintf("10.99.%d.%d", i/200, i%200+1) }

const loadTarget = "10.99.255.1"

// loadDst is a route by its number.
func loadDst(n int) netip.Prefix {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 11<<24|uint32(n)<<6)
	return netip.PrefixFrom(netip.AddrFrom4(a), 26)
}

// newLoad makes a namespace for the peers, on a link to the target.
func newLoad(t testing.TB, target *netnstest.NS, peers, each int) *load {
	t.Helper()
	l := &load{ns: netnstest.New(t), each: each, change: make(chan struct{}, 1), end: make(chan struct{})}
	target.VethTo(l.ns, "load0", "eth0")
	target.Addr("load0", loadTarget+"/16")
	for i := range peers {
		l.ns.Addr("eth0", loadAddr(i)+"/16")
		l.peers = append(l.peers, &loadPeer{number: i, has: make([]bool, peers*each)})
	}
	l.empty.Store(int64(peers))
	t.Cleanup(l.shut)
	return l
}

// addrs are the addresses of the peers.
func (l *load) addrs() []string {
	out := make([]string, len(l.peers))
	for i, p := range l.peers {
		out[i] = loadAddr(p.number)
	}
	return out
}

// shut ends all sessions without a word.
func (l *load) shut() {
	l.once.Do(func() { close(l.end) })
	for _, p := range l.peers {
		if p.raw != nil {
			_ = p.Close()
		}
	}
	l.done.Wait()
}

// call establishes all sessions. Each peer sends End-of-RIB at once, or its routes first.
func (l *load) call(t testing.TB, tell bool) {
	t.Helper()
	errs := make(chan error, len(l.peers))
	l.ns.Do(func() {
		for _, p := range l.peers {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(loadAddr(p.number))}, Timeout: patience}
			c, err := d.Dial("tcp", loadTarget+":179")
			if err != nil {
				t.Fatal(err)
			}
			p.raw = &raw{c, loadAddr(p.number)}
		}
	})
	for _, p := range l.peers {
		go func() {
			err := p.establish(64512)
			if err == nil && tell {
				err = l.tell(false, p)
			}
			if err == nil {
				_, err = p.Write(endOfRIB)
			}
			errs <- err
		}()
	}
	for range l.peers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range l.peers {
		_ = p.SetReadDeadline(time.Time{})
		l.done.Go(func() { l.read(p) })
	}
	l.done.Go(l.live)
}

// live keeps the sessions alive.
func (l *load) live() {
	tick := time.NewTicker(20 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-l.end:
			return
		case <-tick.C:
		}
		for _, p := range l.peers {
			_, _ = p.Write(message(msgKeepalive, nil)) // its reader tells of a session that is down
		}
	}
}

// tell makes peers tell their routes, or withdraw them.
func (l *load) tell(withdraw bool, peers ...*loadPeer) error {
	const perMessage = 700
	for _, p := range peers {
		attributes := join(origin, asPath, nextHopOf(loadAddr(p.number)), localPref)
		for at := 0; at < l.each; at += perMessage {
			var dsts []byte
			for n := at; n < min(at+perMessage, l.each); n++ {
				dsts = append(dsts, wire(loadDst(p.number*l.each+n))...)
			}
			m := update(nil, attributes, dsts)
			if withdraw {
				m = update(dsts, nil, nil)
			}
			if _, err := p.Write(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads what is sent to a peer until the connection ends.
func (l *load) read(p *loadPeer) {
	in := bufio.NewReaderSize(p.Conn, 1<<16)
	var head [headerLength]byte
	body := make([]byte, 1<<12)
	for {
		if _, p.err = io.ReadFull(in, head[:]); p.err != nil {
			return
		}
		body = body[:binary.BigEndian.Uint16(head[16:])-headerLength]
		if _, p.err = io.ReadFull(in, body); p.err != nil {
			return
		}
		switch head[18] {
		case msgUpdate:
			l.take(p, body)
		case msgNotification:
			p.err = fmt.Errorf("notification %v", body)
			return
		}
		body = body[:cap(body)]
	}
}

// take counts the routes of an update.
func (l *load) take(p *loadPeer, body []byte) {
	was := p.count
	gone := int(binary.BigEndian.Uint16(body))
	p.mark(body[2:2+gone], false)
	body = body[2+gone:]
	p.mark(body[2+int(binary.BigEndian.Uint16(body)):], true)
	all := l.each * (len(l.peers) - 1)
	l.note(was == all, p.count == all, &l.full)
	l.note(was == 0, p.count == 0, &l.empty)
}

func (l *load) note(was, is bool, counter *atomic.Int64) {
	if was == is {
		return
	}
	if is {
		counter.Add(1)
	} else {
		counter.Add(-1)
	}
	select {
	case l.change <- struct{}{}:
	default:
	}
}

// mark takes in prefixes of 26 bits: 11.0.0.0/8 has 2^18 of them. Others are not the load's.
func (p *loadPeer) mark(b []byte, is bool) {
	for len(b) > 0 {
		size := 1 + int(b[0]+7)/8
		if b[0] == 26 && b[1] == 11 {
			n := int(binary.BigEndian.Uint32(b[1:])>>6) & (1<<18 - 1)
			if n < len(p.has) && p.has[n] != is {
				p.has[n] = is
				if is {
					p.count++
				} else {
					p.count--
				}
			}
		}
		b = b[size:]
	}
}

// await waits until so many peers are counted.
func (l *load) await(t testing.TB, within time.Duration, counter *atomic.Int64, want int) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for counter.Load() != int64(want) {
		select {
		case <-l.change:
		case <-deadline.C:
			t.Fatalf("after %s: %d of %d peers; the first has %d routes, %v", within, counter.Load(), want, l.peers[0].count, l.peers[0].err)
		}
	}
}

// out makes all peers tell their routes, and returns how long that took to reach all.
func (l *load) out(t testing.TB, within time.Duration) time.Duration {
	return l.round(t, within, false, &l.full)
}

// back makes them withdraw them again.
func (l *load) back(t testing.TB, within time.Duration) time.Duration {
	return l.round(t, within, true, &l.empty)
}

func (l *load) round(t testing.TB, within time.Duration, withdraw bool, until *atomic.Int64) time.Duration {
	t.Helper()
	began := time.Now()
	if err := l.tell(withdraw, l.peers...); err != nil {
		t.Fatal(err)
	}
	l.await(t, within, until, len(l.peers))
	return time.Since(began)
}
