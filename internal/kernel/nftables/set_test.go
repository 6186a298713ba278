package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func addr(s string) []byte { return netip.MustParseAddr(s).AsSlice() }

func host(i int) Element {
	return Element{Key: []byte{10, byte(i >> 16), byte(i >> 8), byte(i)}}
}

func hosts(n int) []Element {
	els := make([]Element, n)
	for i := range els {
		els[i] = host(i)
	}
	return els
}

func prefixes(ss ...string) []Element {
	els := make([]Element, len(ss))
	for i, s := range ss {
		els[i] = PrefixElement(netip.MustParsePrefix(s))
	}
	return els
}

type setCase struct {
	set  Set
	els  []Element
	want []string // lines of nft
}

func setCases() map[string]setCase {
	svc := Concat(TypeIPv4Addr, TypeInetProto, TypeInetService)
	svc6 := Concat(TypeIPv6Addr, TypeInetProto, TypeInetService)
	tcp, udp := []byte{6}, []byte{17}
	return map[string]setCase{
		"IPv4 hosts with comments": {
			Set{Key: TypeIPv4Addr, Comment: "all hosts"},
			[]Element{{Key: addr("10.0.0.1"), Comment: "one"}, {Key: addr("10.0.0.2")}},
			[]string{`type ipv4_addr`, `comment "all hosts"`, `elements = { 10.0.0.1 comment "one", 10.0.0.2 }`},
		},
		"IPv6 hosts": {Set{Key: TypeIPv6Addr}, []Element{{Key: addr("fd00::1")}}, []string{`type ipv6_addr`, `{ fd00::1 }`}},
		"interfaces": {
			Set{Key: TypeIfname},
			[]Element{{Key: KeyIfname("cali1")}, {Key: KeyIfname("cali2")}},
			[]string{`type ifname`, `"cali1"`, `"cali2"`},
		},
		"protocols": {Set{Key: TypeInetProto}, []Element{{Key: tcp}, {Key: udp}}, []string{`type inet_proto`, `{ tcp, udp }`}},
		"ports":     {Set{Key: TypeInetService}, []Element{{Key: KeyPort(80)}}, []string{`type inet_service`, `{ 80 }`}},
		"port ranges": {
			Set{Key: TypeInetService, Interval: true},
			[]Element{RangeElement(KeyPort(0), KeyPort(79)), {Key: KeyPort(80)}, RangeElement(KeyPort(60000), KeyPort(65535))},
			[]string{`flags interval`, `0-79, 80`, `60000-65535`},
		},
		"marks": {Set{Key: TypeMark}, []Element{{Key: U32(0x10000)}}, []string{`type mark`, `{ 0x00010000 }`}},
		"named ports": {
			Set{Key: svc},
			[]Element{{Key: KeyConcat(addr("10.0.0.1"), tcp, KeyPort(80))}},
			[]string{`type ipv4_addr . inet_proto . inet_service`, `{ 10.0.0.1 . tcp . 80 }`},
		},
		"named ports of IPv6": {
			Set{Key: svc6},
			[]Element{{Key: KeyConcat(addr("fd00::1"), udp, KeyPort(53))}},
			[]string{`type ipv6_addr . inet_proto . inet_service`, `{ fd00::1 . udp . 53 }`},
		},
		"concatenation of ranges": {
			Set{Key: svc, Interval: true},
			[]Element{
				{Key: KeyConcat(addr("10.0.0.0"), tcp, KeyPort(80)), End: KeyConcat(addr("10.0.0.255"), tcp, KeyPort(90))},
				{Key: KeyConcat(addr("10.0.0.1"), udp, KeyPort(53))},
			},
			[]string{`10.0.0.0/24 . tcp . 80-90`, `10.0.0.1 . udp . 53`},
		},
		"interface and mark": {
			Set{Key: Concat(TypeIfname, TypeMark)},
			[]Element{{Key: KeyConcat(KeyIfname("cali1"), U32(7))}},
			[]string{`type ifname . mark`},
		},
		"verdict map": {
			Set{Key: TypeIfname, Data: TypeVerdict},
			[]Element{
				{Key: KeyIfname("cali1"), Verdict: new(Goto("other"))},
				{Key: KeyIfname("cali2"), Verdict: new(Jump("other"))},
				{Key: KeyIfname("cali3"), Verdict: new(Drop())},
			},
			[]string{`type ifname : verdict`, `"cali1" : goto other`, `"cali2" : jump other`, `"cali3" : drop`},
		},
		"verdict map of prefixes": {
			Set{Key: TypeIPv4Addr, Data: TypeVerdict, Interval: true},
			[]Element{
				{Key: addr("10.0.0.0"), End: addr("10.0.0.255"), Verdict: new(Accept())},
				{Key: addr("10.0.1.0"), End: addr("10.0.1.255"), Verdict: new(Return())},
			},
			[]string{`10.0.0.0/24 : accept`, `10.0.1.0/24 : return`},
		},
		"map of marks": {
			Set{Key: TypeIPv4Addr, Data: TypeMark},
			[]Element{{Key: addr("10.0.0.1"), Data: U32(0x20000)}},
			[]string{`type ipv4_addr : mark`, `10.0.0.1 : 0x00020000`},
		},
		"map of addresses and ports": {
			Set{Key: TypeInetService, Data: Concat(TypeIPv4Addr, TypeInetService)},
			[]Element{{Key: KeyPort(80), Data: KeyConcat(addr("10.0.0.1"), KeyPort(8080))}},
			[]string{`80 : 10.0.0.1 . 8080`},
		},
		"counters": {
			Set{Key: TypeIPv4Addr, Counter: true},
			[]Element{{Key: addr("10.0.0.1")}},
			[]string{`10.0.0.1 counter packets 0 bytes 0`},
		},
		"size":                           {Set{Key: TypeIPv4Addr, Size: 100}, []Element{host(1)}, []string{`size 100`}},
		"constant":                       {Set{Key: TypeIPv4Addr, Constant: true}, []Element{host(1)}, []string{`flags constant`}},
		"catch-all":                      {Set{Key: TypeIPv4Addr, Data: TypeVerdict}, []Element{{CatchAll: true, Verdict: new(Drop())}}, []string{`* : drop`}},
		"all of IPv4":                    {Set{Key: TypeIPv4Addr, Interval: true}, prefixes("0.0.0.0/0"), []string{`0.0.0.0/0`}},
		"all of IPv6":                    {Set{Key: TypeIPv6Addr, Interval: true}, prefixes("::/0"), []string{`::/0`}},
		"the lower and the upper half":   {Set{Key: TypeIPv4Addr, Interval: true}, prefixes("0.0.0.0/1", "128.0.0.0/1"), []string{`0.0.0.0/1, 128.0.0.0/1`}},
		"the first and the last address": {Set{Key: TypeIPv4Addr, Interval: true}, prefixes("0.0.0.0/32", "255.255.255.255/32"), []string{`0.0.0.0, 255.255.255.255`}},
		"the last IPv6 address":          {Set{Key: TypeIPv6Addr, Interval: true}, prefixes("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"), []string{`ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff`}},
		"adjacent prefixes":              {Set{Key: TypeIPv4Addr, Interval: true}, prefixes("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/32"), []string{`10.0.0.0/24, 10.0.1.0/24`, `10.0.2.0 }`}},
	}
}

func TestEachKindOfSetIsPrintedByNftAndReadBackEqualAndEmptiedByDelete(t *testing.T) {
	n := newNet(t)
	for name, c := range setCases() {
		t.Run(name, func(t *testing.T) {
			c.set.Table, c.set.Name = "t", "s"
			b := NewBatch()
			b.PurgeTable("t")
			b.AddTable(Table{Name: "t", Comment: "ours"})
			b.AddChain(Chain{Table: "t", Name: "other", Comment: "a chain"})
			b.AddSet(c.set)
			b.AddElements(c.set, c.els...)
			n.mustCommit(t, b)

			rs := n.mustList(t, "t")
			got, _ := rs.Set("s")
			els := append([]Element(nil), got.Elements...)
			for i := range els {
				if (els[i].Counter != nil) != c.set.Counter {
					t.Errorf("element %d: counter is %v", i, els[i].Counter)
				}
				els[i].Counter = nil
			}
			if want := sortedElements(c.els); !reflect.DeepEqual(els, want) {
				t.Errorf("elements\n%v\nwant\n%v", els, want)
			}
			got.Handle = 0
			if got.Set != c.set {
				t.Errorf("set %+v, want %+v", got.Set, c.set)
			}
			if rs.Table.Comment != "ours" || rs.Chains[0].Comment != "a chain" {
				t.Errorf("comments %q, %q", rs.Table.Comment, rs.Chains[0].Comment)
			}
			kind := "set"
			if c.set.Data != TypeNone {
				kind = "map"
			}
			out := strings.Join(strings.Fields(n.nft(t, "list", kind, "inet", "t", "s")), " ")
			for _, w := range c.want {
				if !strings.Contains(out, w) {
					t.Errorf("nft prints %s\nwant %s", out, w)
				}
			}
			if c.set.Constant {
				return
			}
			b = NewBatch()
			b.DeleteElements(c.set, c.els...)
			n.mustCommit(t, b)
			if st, err := n.ListSet("t", "s"); err != nil || len(st.Elements) != 0 {
				t.Errorf("after delete: %v, %v", st.Elements, err)
			}
		})
	}
}

func TestManyElementsAllArrive(t *testing.T) {
	n := newNet(t)
	hash := Set{Table: "t", Name: "hash", Key: TypeIPv4Addr}
	tree := Set{Table: "t", Name: "tree", Key: TypeIPv4Addr, Interval: true}
	vmap := Set{Table: "t", Name: "vmap", Key: TypeIPv4Addr, Data: TypeVerdict}
	counts := map[string]int{"hash": 100_000, "tree": 10_000, "vmap": 1_000}
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	for _, s := range []Set{hash, tree, vmap} {
		b.AddSet(s)
		els := hosts(counts[s.Name])
		if s.Data == TypeVerdict {
			for i := range els {
				chain := fmt.Sprintf("chain-%d-with-a-name-that-is-long-enough-to-fill-messages-sooner", i)
				b.AddChain(Chain{Table: "t", Name: chain})
				els[i].Verdict = new(Goto(chain))
			}
		}
		b.AddElements(s, els...)
	}
	n.mustCommit(t, b)
	rs := n.mustList(t, "t")
	for _, st := range rs.Sets {
		if len(st.Elements) != counts[st.Name] {
			t.Errorf("%s has %d elements, want %d", st.Name, len(st.Elements), counts[st.Name])
		}
	}
	if st, _ := rs.Set("tree"); !reflect.DeepEqual(st.Elements, hosts(10_000)) {
		t.Error("the tree's elements are not those that were put in")
	}
	outline, err := n.Outline("t")
	if err != nil || len(outline.Sets) != 3 || len(outline.Sets[0].Elements) != 0 || len(outline.Chains) != 1_000 {
		t.Errorf("outline: %v", err)
	}
	b = NewBatch()
	b.FlushSet("t", "hash")
	b.AddElements(hash, host(7))
	n.mustCommit(t, b)
	if st, err := n.ListSet("t", "hash"); err != nil || len(st.Elements) != 1 {
		t.Errorf("after flush and refill: %d elements, %v", len(st.Elements), err)
	}
	if _, err := n.ListSet("t", "none"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a set that is not there: %v", err)
	}
}

func TestWhatKernelAndToolWriteIsReadTheSame(t *testing.T) {
	n := newNet(t)
	n.nft(t, `add table inet t { set s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 12.0.0.1, 255.255.255.0/24 } ; }; }`)
	st, err := n.ListSet("t", "s")
	want := prefixes("10.0.0.0/8", "12.0.0.1/32", "255.255.255.0/24")
	if err != nil || !reflect.DeepEqual(st.Elements, want) {
		t.Errorf("%v, %v", st.Elements, err)
	}
	n.nft(t, `add chain inet t c; add rule inet t c log prefix "x" level debug; add rule inet t c numgen random mod 2 0`)
	rules := n.mustList(t, "t").ChainRules("c")
	if len(rules) != 2 {
		t.Fatal(rules)
	}
	if r, ok := rules[0].Exprs[0].(Raw); !ok || r.Name != "log" {
		t.Errorf("a log to the kernel's own log is read as %v", rules[0])
	}
	if r, ok := rules[1].Exprs[0].(Raw); !ok || r.Name != "numgen" {
		t.Errorf("an unknown expression is read as %v", rules[1])
	}
}
