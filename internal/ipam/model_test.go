package ipam

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/seedtest"
)

const (
	modelHosts = 50
	modelOps   = 25 // of each host
)

// TestFiftyHostsRaceForAddresses lets hosts take turns at every single call of
// the store, in an order that the seed decides, with conflicts, crashes, outages
// and lost answers, and looks at all data after every change.
func TestFiftyHostsRaceForAddresses(t *testing.T) {
	for _, twoPhase := range phases() {
		name := "in transactions"
		if twoPhase {
			name = "in two phases"
		}
		t.Run(name, func(t *testing.T) {
			seedtest.Each(t, []uint64{422642615}, 2, func(t *testing.T, seed uint64) { newModel(t, seed, twoPhase).run() })
		})
	}
}

// model is the hosts, and what must be so.
type model struct {
	*fixture
	rand     *rand.Rand
	twoPhase bool
	hosts    []*host
	held     map[netip.Addr]lease
	live     map[string]bool // handles that somebody has, or had when it crashed
	seen     cache
	checked  int64 // revision of the last look
	tally    map[string]int
}

type lease struct {
	Address
	handle string
}

// host is one that asks for addresses and gives them back. It runs only between
// a message on wake and the next on asks.
type host struct {
	m      *model
	name   string
	rand   *rand.Rand
	alloc  *Allocator
	wake   chan fault
	asks   chan bool // true: it is at a call; false: it has ended
	leases []lease
	old    []lease  // released, by address and sequence
	doubt  []string // handles of which nobody knows what they have
	ended  bool
	n      int
}

func newModel(t *testing.T, seed uint64, twoPhase bool) *model {
	m := &model{
		fixture: newFixture(t), rand: rand.New(rand.NewPCG(seed, 0)), twoPhase: twoPhase, held: map[netip.Addr]lease{}, live: map[string]bool{},
		tally: map[string]int{}, seen: cache{},
	}
	m.put("ippools/p", `"cidr":"10.0.0.0/26","blockSize":29`)
	m.put("ippools/p6", `"cidr":"fd65::/122","blockSize":126`)
	m.put("ipreservations/r", `"reservedCIDRs":["10.0.0.16/30"]`)
	for i := range modelHosts {
		h := &host{m: m, name: fmt.Sprintf("h%02d", i), rand: rand.New(rand.NewPCG(seed, uint64(i)+1)), wake: make(chan fault), asks: make(chan bool)}
		h.start()
		m.hosts = append(m.hosts, h)
	}
	return m
}

// start gives a host an allocator, as after a restart of its process.
func (h *host) start() {
	at := func(string, string) fault { h.asks <- true; return <-h.wake }
	h.alloc = h.m.through(at, h.m.twoPhase, func() error { return nil })
}

func (m *model) run() {
	for _, h := range m.hosts {
		go h.run()
		<-h.asks
	}
	running := slices.Clone(m.hosts)
	for steps := 0; len(running) > 0 && !m.Failed(); steps++ {
		i := m.rand.IntN(len(running))
		h := running[i]
		m.now = m.now.Add(time.Second)
		h.wake <- m.fault()
		if <-h.asks; h.ended {
			running = slices.Delete(running, i, i+1)
		}
		m.look()
	}
	if m.Failed() {
		return // its hosts wait for ever, which the end of the process ends
	}
	for _, what := range []string{"assigned", "borrowed", "none left", "crashed", "unknown", "released", "too late", "by handle"} {
		if m.tally[what] == 0 {
			m.Errorf("nothing was ever %s: %v", what, m.tally)
		}
	}
	m.finish()
}

// fault is what happens to the next call: mostly nothing.
func (m *model) fault() fault {
	switch n := m.rand.IntN(200); n {
	case 0, 1:
		return conflicts
	case 2:
		return down
	case 3:
		return lost
	case 4:
		return crashesFirst
	case 5:
		return crashesAfter
	}
	return works
}

func (h *host) run() {
	h.asks <- true
	<-h.wake
	for range modelOps {
		h.operate()
	}
	h.ended = true
	h.asks <- false
}

// operate does one thing, or dies in it and starts again.
func (h *host) operate() {
	defer func() {
		switch r := recover(); r.(type) {
		case nil:
		case crash:
			h.m.tally["crashed"]++
			h.start()
		default:
			panic(r)
		}
	}()
	if len(h.doubt) > 0 {
		h.settle()
		return
	}
	switch n := h.rand.IntN(20); {
	case n < 9 && len(h.leases) < 8:
		h.assign()
	case n < 11:
		h.assignIP()
	case n < 15 && len(h.leases) > 0:
		h.release()
	case n < 17 && len(h.leases) > 0:
		h.doubt = append(h.doubt, h.leases[0].handle) // give all of one handle back
		h.settle()
	case n < 19 && len(h.old) > 0:
		h.releaseLate()
	default:
		_ = h.alloc.ReleaseHostAffinities(context.Background(), h.name, false) // what fails stays, and does no harm
	}
}

func (h *host) newHandle() string {
	h.n++
	handle := fmt.Sprintf("net.%s-%d", h.name, h.n)
	if len(h.leases) > 0 && h.rand.IntN(4) == 0 {
		handle = h.leases[h.rand.IntN(len(h.leases))].handle // more for the same user
	}
	h.m.live[handle] = true
	h.doubt = append(h.doubt, handle)
	return handle
}

func (h *host) assign() {
	handle := h.newHandle()
	args := AutoArgs{Node: h.name, Handle: handle, Num4: 1 + h.rand.IntN(2), Num6: h.rand.IntN(2)}
	got, err := h.alloc.Assign(context.Background(), args)
	if err == nil && len(got) != args.Num4+args.Num6 {
		h.m.Errorf("%s: got %v", args, got)
	}
	h.result(handle, got, err)
}

func (h *host) assignIP() {
	handle := h.newHandle()
	a := netip.AddrFrom4([4]byte{10, 0, 0, byte(h.rand.IntN(64))})
	got, err := h.alloc.AssignIP(context.Background(), IPArgs{Addr: a, Node: h.name, Handle: handle})
	h.result(handle, []Address{got}, err)
}

// result notes what was given out. After a refusal nothing was, and after any
// other error nobody knows.
func (h *host) result(handle string, got []Address, err error) {
	switch {
	case err == nil:
		h.m.tally["assigned"]++
		h.doubt = nil
		for _, a := range got {
			l := lease{a, handle}
			if other, taken := h.m.held[a.Addr]; taken {
				h.m.Errorf("%s was given to %s, and %s has it", a.Addr, handle, other.handle)
			}
			h.leases = append(h.leases, l)
			h.m.held[a.Addr] = l
		}
	case errors.Is(err, ErrNoAddress):
		h.m.tally["none left"]++
	case errors.Is(err, ErrAssigned):
	default:
		h.m.tally["unknown"]++
	}
}

// settle gives back all that a handle has, as a runtime's DEL does after a crash.
func (h *host) settle() {
	handle := h.doubt[len(h.doubt)-1]
	h.forget(func(l lease) bool { return l.handle == handle })
	if _, err := h.alloc.ReleaseByHandle(context.Background(), handle); err != nil {
		return // again next time
	}
	h.m.tally["by handle"]++
	delete(h.m.live, handle)
	h.doubt = h.doubt[:len(h.doubt)-1]
}

// forget takes leases for given back: from now on others may have them.
func (h *host) forget(which func(lease) bool) {
	h.leases = slices.DeleteFunc(h.leases, func(l lease) bool {
		if which(l) {
			delete(h.m.held, l.Addr)
			h.old = append(h.old, l)
			return true
		}
		return false
	})
}

func (h *host) release() {
	l := h.leases[h.rand.IntN(len(h.leases))]
	h.forget(func(o lease) bool { return o == l })
	if !slices.ContainsFunc(h.leases, func(o lease) bool { return o.handle == l.handle }) {
		h.doubt = append(h.doubt, l.handle)
	}
	freed, err := h.alloc.Release(context.Background(), Release{Addr: l.Addr, Handle: l.handle, Sequence: &l.Sequence})
	if err == nil && len(freed) == 1 {
		h.m.tally["released"]++
	}
}

// releaseLate gives back what was given back already, and may be anybody's.
func (h *host) releaseLate() {
	l := h.old[h.rand.IntN(len(h.old))]
	before := h.m.held[l.Addr]
	freed, err := h.alloc.Release(context.Background(), Release{Addr: l.Addr, Handle: l.handle, Sequence: &l.Sequence})
	if errors.Is(err, ErrReused) {
		h.m.tally["too late"]++
	}
	// It may have been the first to do it, if the one before had no answer; and in two phases somebody else may have been given the address
	// since, before this call returned. Who has it now, and had it when this began, had it all the time.
	if other, taken := h.m.held[l.Addr]; taken && other == before && len(freed) > 0 {
		h.m.Errorf("%s of %s was freed by a late release of %s", l.Addr, other.handle, l.handle)
	}
}

// finish lets everybody give back what they have, and wants nothing left.
func (m *model) finish() {
	if found := m.check(0); len(found) > 0 && !m.twoPhase {
		m.Errorf("in transactions nothing is left behind, but found %+v", found)
	}
	v, err := m.ReadSurvey(m.Context())
	if err != nil {
		m.Fatal(err)
	}
	for _, r := range m.Repair(m.Context(), v.Check(CheckOptions{Now: m.now})) {
		if r.Err != nil {
			m.Errorf("repair %s %s %s %s: %v", r.Kind, r.Address, r.Block, r.Handle, r.Err)
		}
	}
	m.clean()
	m.look() // nobody lost anything by that
	for handle := range m.live {
		if _, err := m.ReleaseByHandle(m.Context(), handle); err != nil {
			m.Error(err)
		}
	}
	for _, h := range m.hosts {
		if err := m.ReleaseHostAffinities(m.Context(), h.name, true); err != nil {
			m.Error(err)
		}
	}
	m.equal("in the end", m.state(), "")
}

// cache are decoded values by key and revision.
type cache map[string]*doc

// look holds all data to what must be so at any time.
func (m *model) look() {
	if m.store.Revision() == m.checked {
		return
	}
	m.checked = m.store.Revision()
	snap, err := m.store.List(context.Background(), api.IPAMPrefix)
	if err != nil {
		m.Fatal(err)
	}
	docs := cache{}
	for _, u := range snap.Items {
		e := m.seen[u.Key]
		if e == nil || e.was.Revision != u.Revision {
			e = &doc{key: u.Key}
			e.decode(u)
			if e.bad != nil {
				m.Errorf("%s: %v", u.Key, e.bad)
				return
			}
		}
		docs[u.Key] = e
	}
	m.seen = docs
	m.lookAtBlocks(docs)
}

func (m *model) lookAtBlocks(docs cache) {
	counts := map[string]map[string]int{}
	found := 0
	for _, e := range docs {
		if e.block == nil {
			continue
		}
		if faults := e.block.Faults(); len(faults) > 0 {
			m.Errorf("block %s: %v", e.block.CIDR, faults)
		}
		if own, ok := e.block.Owner(); ok && docs[api.AffinityKey(own, e.block.CIDR)] == nil {
			m.Errorf("block %s is %s's, which has no claim to it", e.block.CIDR, own.Name)
		}
		for _, l := range Allocations(e.block) {
			handle := handleOf(l.Attr)
			if counts[handle] == nil {
				counts[handle] = map[string]int{}
			}
			counts[handle][e.block.CIDR.String()]++
			if !m.live[handle] {
				m.Errorf("%s is allocated to %s, which nobody has", l.Addr, handle)
			}
			if has, ok := m.held[l.Addr]; ok {
				found++
				if has.handle != handle || has.Sequence != e.block.SequenceOf(l.ord) {
					m.Errorf("%s is held by %s, sequence %d, and allocated to %s, sequence %d", l.Addr, has.handle, has.Sequence, handle, e.block.SequenceOf(l.ord))
				}
			}
			if own, ok := e.block.Owner(); ok && m.held[l.Addr].handle != "" && own.Name != m.held[l.Addr].handle[4:7] {
				m.tally["borrowed"]++
			}
		}
	}
	if found != len(m.held) {
		m.Errorf("%d addresses are held, %d of them are allocated", len(m.held), found)
	}
	m.lookAtHandles(docs, counts)
}

func (m *model) lookAtHandles(docs cache, counts map[string]map[string]int) {
	for handle, blocks := range counts {
		e := docs[api.HandleKey(handle)]
		for block, n := range blocks {
			if e == nil || e.handle.Block[block] < n {
				m.Errorf("handle %s has %d addresses of %s, and counts fewer", handle, n, block)
			}
		}
	}
	if m.twoPhase {
		return // a handle may count too many, for a while or after a crash
	}
	for key, e := range docs {
		id, _ := api.ParseHandleKey(key)
		if e.handle != nil {
			for cidr, counted := range e.handle.Block {
				if n := counts[id][cidr]; n != counted {
					m.Errorf("handle %s counts %d addresses of %s, and has %d", id, counted, cidr, n)
				}
			}
		}
		if own, p, ok := api.ParseAffinityKey(key); ok {
			if b := docs[api.BlockKey(p)]; b == nil || b.block.Affinity == nil || *b.block.Affinity != own.String() || e.affinity.State != api.AffinityConfirmed {
				m.Errorf("%s has a claim to %s, state %q, and not the block", own.Name, p, e.affinity.State)
			}
		}
	}
}
