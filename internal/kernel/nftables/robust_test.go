package nftables

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/seedtest"
)

// decoders read what the kernel sends; none may panic, whatever it is.
func decoders(b []byte) {
	_, _ = decodeTable(b)
	_, _ = decodeChain(b)
	_, _ = decodeRule(b)
	_, _ = decodeExpr(b)
	if s, err := decodeSet(b); err == nil {
		_ = s.String()
		if els, err := decodeElements(b); err == nil {
			for _, el := range joinIntervals(s.Set, els) {
				_ = el.text(s.Set)
			}
		}
	}
	_, _ = extendedAnswer(message{flags: unix.NLM_F_ACK_TLVS, body: b})
	_ = userText(b, udataComment)
}

// sample is a message of each kind, as written (the kernel's have the same attributes).
func sample() *Batch {
	b := NewBatch()
	skeleton(b)
	for _, c := range exprCases() {
		b.AddRule(Rule{Table: "t", Chain: "c", Exprs: c.exprs, Comment: "why"})
	}
	for _, c := range setCases() {
		c.set.Table, c.set.Name = "t", "s"
		b.AddSet(c.set)
		b.AddElements(c.set, c.els...)
	}
	b.AddChain(Chain{Table: "t", Name: "c", Base: &Hook{Type: TypeFilter}, Comment: "why"})
	return b
}

func TestDecodersSurviveMessagesCutAnywhere(t *testing.T) {
	b := sample()
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	cuts := 0
	err := eachMessage(b.enc.buf, func(m message) error {
		for n := range len(m.body) + 1 {
			decoders(m.body[:n])
			decoders(m.body[n:])
			cuts++
		}
		return nil
	})
	if err != nil || cuts < 10_000 {
		t.Errorf("%d cuts, %v", cuts, err)
	}
	for n := range 200 {
		_ = eachMessage(b.enc.buf[:n], func(m message) error { decoders(m.body); return nil })
	}
}

func TestDecodersSurviveDamagedMessages(t *testing.T) {
	b := sample()
	rng := seedtest.Rand(t)
	for range 20_000 {
		o := b.ops[rng.IntN(len(b.ops))]
		end := min(o.at+600, len(b.enc.buf))
		body := append([]byte(nil), b.enc.buf[o.at+headerLen+nfgenLen:end]...)
		for range 1 + rng.IntN(4) {
			body[rng.IntN(len(body))] = byte(rng.Uint32())
		}
		decoders(body)
	}
}

func FuzzDecoders(f *testing.F) {
	_ = eachMessage(sample().enc.buf, func(m message) error { f.Add(m.body); return nil })
	f.Fuzz(func(_ *testing.T, b []byte) {
		decoders(b)
		_ = eachMessage(b, func(m message) error { decoders(m.body); return nil })
	})
}

func TestCanonicalTextIsTheSameWhateverTheOrderInWhichThingsWereMade(t *testing.T) {
	hosts := Set{Table: "t", Name: "hosts", Key: TypeIPv4Addr, Comment: "all"}
	from := Set{Table: "t", Name: "from", Key: TypeIfname, Data: TypeVerdict}
	rules := func(b *Batch) {
		b.AddRule(Rule{Table: "t", Chain: "b", Exprs: join(MatchL4Proto(6), MatchPorts(DstPort(), [][2]uint16{{443, 443}, {80, 90}}, false)[0],
			one(Counter{}, Jump("a"))), Comment: "web"})
		b.AddRule(Rule{Table: "t", Chain: "b", Exprs: one(Meta{Key: MetaIIFName}, LookupVerdict{Map: "from"})})
	}
	base := &Hook{Type: TypeFilter, Hook: HookForward, Priority: -2}
	forward, backward := newNet(t), newNet(t)
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	b.AddChain(Chain{Table: "t", Name: "a"})
	b.AddChain(Chain{Table: "t", Name: "b", Base: base})
	b.AddSet(hosts)
	b.AddSet(from)
	b.AddElements(hosts, host(1), host(2))
	b.AddElements(from, Element{Key: KeyIfname("w1"), Verdict: new(Goto("a"))})
	rules(b)
	forward.mustCommit(t, b)

	b = NewBatch()
	b.AddTable(Table{Name: "t"})
	b.AddSet(from)
	b.AddSet(hosts)
	b.AddChain(Chain{Table: "t", Name: "b", Base: base})
	b.AddChain(Chain{Table: "t", Name: "a"})
	b.AddElements(from, Element{Key: KeyIfname("w1"), Verdict: new(Goto("a"))})
	b.AddElements(hosts, host(2))
	rules(b)
	backward.mustCommit(t, b)
	b = NewBatch()
	b.AddElements(hosts, host(1))
	backward.mustCommit(t, b)

	one, two := forward.mustList(t, "t").Canonical(), backward.mustList(t, "t").Canonical()
	if one != two {
		t.Errorf("texts differ:\n%s\n%s", one, two)
	}
	want := `table inet t
chain a
chain b type filter hook 2 priority -2 policy drop
  r0 = meta l4proto; r0 == 06; r0 = transport 2+2; r0 in { 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 443 }; counter; jump a comment "web"
  r0 = meta iifname; r0 vmap @from
map from key ifname data verdict
  "w1" : goto a
set hosts key ipv4_addr comment "all"
  10.0.0.1
  10.0.0.2
`
	if one != want {
		t.Errorf("text is\n%s\nwant\n%s", one, want)
	}
}

func TestReadersSeeOneGenerationWhileWritersChangeTheTable(t *testing.T) {
	n := newNet(t)
	var writer *Conn
	var err error
	n.do(func() { writer, err = Open() })
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	pair := [2]Set{{Table: "t", Name: "one", Key: TypeIPv4Addr}, {Table: "t", Name: "two", Key: TypeIPv4Addr}}
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	b.AddSet(pair[0])
	b.AddSet(pair[1])
	n.mustCommit(t, b)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := range 300 {
			b := NewBatch() // both sets always have the same elements
			for _, s := range pair {
				b.AddElements(s, host(i))
				if i > 20 {
					b.DeleteElements(s, host(i-20))
				}
			}
			if err := writer.Commit(b); err != nil {
				t.Error(err)
			}
		}
		close(stop)
	})
	reads := 0
	for done := false; !done; {
		select {
		case <-stop:
			done = true
		default:
		}
		rs, err := n.List("t")
		if errors.Is(err, ErrInterrupted) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		reads++
		one, _ := rs.Set("one")
		two, _ := rs.Set("two")
		if fmt.Sprint(one.Elements) != fmt.Sprint(two.Elements) {
			t.Fatalf("generation %d: %d and %d elements", rs.Generation, len(one.Elements), len(two.Elements))
		}
	}
	wg.Wait()
	if reads == 0 {
		t.Error("nothing was read")
	}
}

func TestOneConnectionServesManyGoroutines(t *testing.T) {
	n := newNet(t)
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	n.mustCommit(t, b)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				b := NewBatch()
				b.AddChain(Chain{Table: "t", Name: fmt.Sprintf("c%d-%d", g, i)})
				if i%5 == 4 {
					b.FlushChain("t", "missing")
				}
				if err := n.Commit(b); (err != nil) != (i%5 == 4) {
					t.Errorf("chain %d-%d: %v", g, i, err)
				}
				if _, err := n.Outline("t"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(n.mustList(t, "t").Chains); got != 8*16 {
		t.Errorf("%d chains", got)
	}
}

func TestKernelFindsTheEdgesOfIntervalsAndAddingAgainIsNoError(t *testing.T) {
	n := newNet(t)
	v4 := Set{Table: "t", Name: "v4", Key: TypeIPv4Addr, Interval: true}
	v6 := Set{Table: "t", Name: "v6", Key: TypeIPv6Addr, Interval: true}
	vm := Set{Table: "t", Name: "vm", Key: TypeIPv4Addr, Data: TypeVerdict}
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	for _, s := range []Set{v4, v6, vm} {
		b.AddSet(s)
	}
	els4 := prefixes("0.0.0.0/32", "10.0.0.0/24", "10.0.1.0/24", "255.255.255.0/24")
	b.AddElements(v4, els4...)
	b.AddElements(v6, prefixes("::/0")...)
	n.mustCommit(t, b)
	n.mustCommit(t, b)
	for _, in := range []string{"0.0.0.0", "10.0.0.0", "10.0.0.255", "10.0.1.0", "10.0.1.255", "255.255.255.0", "255.255.255.255"} {
		n.nft(t, "get element inet t v4 { "+in+" }")
	}
	for _, in := range []string{"::", "fd00::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"} {
		n.nft(t, "get element inet t v6 { "+in+" }")
	}
	for _, s := range []string{"10.0.2.0", "9.255.255.255", "0.0.0.1", "255.255.254.255"} {
		b := NewBatch()
		b.DeleteElements(v4, Element{Key: addr(s)})
		if err := n.Commit(b); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s is in the set: %v", s, err)
		}
	}
	b = NewBatch()
	b.DeleteElements(v4, prefixes("10.0.0.0/24")...)
	b.AddElements(v4, prefixes("10.0.0.128/25")...)
	n.mustCommit(t, b)
	if st, err := n.ListSet("t", "v4"); err != nil || !strings.Contains(fmt.Sprint(texts(st)), "10.0.0.128 - 10.0.0.255 10.0.1.0 - 10.0.1.255") {
		t.Errorf("after one of two adjacent prefixes shrank: %v, %v", texts(st), err)
	}
	// Another verdict for a key is refused, unless the old one goes in the same transaction.
	b = NewBatch()
	b.AddElements(vm, Element{Key: addr("10.0.0.1"), Verdict: new(Drop())})
	n.mustCommit(t, b)
	b = NewBatch()
	b.AddElements(vm, Element{Key: addr("10.0.0.1"), Verdict: new(Accept())})
	if err := n.Commit(b); !errors.Is(err, unix.EEXIST) {
		t.Errorf("another verdict: %v", err)
	}
	b = NewBatch()
	b.DeleteElements(vm, Element{Key: addr("10.0.0.1")})
	b.AddElements(vm, Element{Key: addr("10.0.0.1"), Verdict: new(Accept())})
	n.mustCommit(t, b)
}

func texts(st SetState) []string {
	var out []string
	for _, el := range st.Elements {
		out = append(out, el.text(st.Set))
	}
	return out
}
