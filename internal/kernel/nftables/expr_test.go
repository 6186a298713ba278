package nftables

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func join(parts ...[]Expr) []Expr {
	var out []Expr
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func one(x ...Expr) []Expr { return x }

type exprCase struct {
	name  string
	base  *Hook // nil: a regular chain
	exprs []Expr
	want  string // as nft prints it; empty: nft 1.0.6 need not know it
	back  []Expr // what List gives; nil: the same
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func exprCases() []exprCase {
	raw := &Hook{Type: TypeFilter, Hook: HookPrerouting, Priority: -300, Policy: VerdictAccept}
	dstnat := &Hook{Type: TypeNAT, Hook: HookPrerouting, Priority: -100, Policy: VerdictAccept}
	srcnat := &Hook{Type: TypeNAT, Hook: HookPostrouting, Priority: 100, Policy: VerdictAccept}
	tcp := MatchL4Proto(6)
	v4 := MatchNFProto(FamilyIPv4)
	return []exprCase{
		{name: "iifname", exprs: MatchIIFName("cali0"), want: `iifname "cali0"`},
		{name: "iifname prefix", exprs: MatchIIFName("cali*"), want: `iifname "cali*"`},
		{name: "oifname", exprs: MatchOIFName("eth0"), want: `oifname "eth0"`},
		{name: "iif index", exprs: one(Meta{Key: MetaIIF}, Cmp{Op: Eq, Data: U32(1)}), want: `iif "lo"`},
		{name: "oif index", exprs: one(Meta{Key: MetaOIF}, Cmp{Op: Neq, Data: U32(1)}), want: `oif != "lo"`},
		{name: "nfproto", exprs: v4, want: `meta nfproto ipv4`},
		{name: "l4proto", exprs: tcp, want: `meta l4proto tcp`},
		{name: "mark", exprs: MatchMark(0x10000, 0x30000), want: `meta mark & 0x00030000 == 0x00010000`},
		{name: "set mark bits", exprs: SetMarkBits(0x10000, 0x20000), want: `meta mark set meta mark & 0xfffdffff | 0x00010000`},
		{name: "set priority", exprs: one(Load{Data: U32(0x10002)}, SetMeta{Key: MetaPriority}), want: `meta priority set 1:2`},
		{name: "priority", exprs: one(Meta{Key: MetaPriority}, Cmp{Op: Eq, Data: U32(0x10002)}), want: `meta priority 1:2`},
		{name: "source of whole bytes", exprs: MatchSrc(prefix("10.1.0.0/16"), false), want: `ip saddr 10.1.0.0/16`},
		{name: "source of bits", exprs: MatchSrc(prefix("10.1.16.0/20"), false), want: `ip saddr 10.1.16.0/20`},
		{name: "not destination", exprs: MatchDst(prefix("10.1.2.3/32"), true), want: `ip daddr != 10.1.2.3`},
		{name: "any IPv4 source", exprs: MatchSrc(prefix("0.0.0.0/0"), false), want: `meta nfproto ipv4`},
		{name: "no IPv4 source", exprs: MatchSrc(prefix("0.0.0.0/0"), true)},
		{name: "IPv6 source", exprs: MatchSrc(prefix("fd00:1::/33"), false), want: `ip6 saddr fd00:1::/33`},
		{name: "IPv6 destination", exprs: MatchDst(prefix("fd00::1/128"), false), want: `ip6 daddr fd00::1`},
		{
			name: "source port range", exprs: join(tcp, MatchPorts(SrcPort(), [][2]uint16{{1000, 2000}}, false)[0]),
			want: `tcp sport 1000-2000`,
		},
		{
			name: "not a port range", exprs: join(tcp, MatchPorts(DstPort(), [][2]uint16{{1000, 2000}}, true)[0]),
			want: `tcp dport != 1000-2000`,
		},
		{
			name: "ports that follow on each other", exprs: join(tcp, MatchPorts(DstPort(), [][2]uint16{{82, 90}, {81, 81}, {80, 80}, {85, 95}, {9, 7}, {65535, 65535}, {96, 65534}}, false)[0]),
			want: `tcp dport 80-65535`,
		},
		{name: "one port", exprs: join(tcp, MatchPorts(DstPort(), [][2]uint16{{443, 443}}, false)[0]), want: `tcp dport 443`},
		{
			name: "many ports", exprs: join(tcp, MatchPorts(DstPort(), [][2]uint16{{443, 443}, {80, 80}}, false)[0]),
			want: `tcp dport { 80, 443 }`,
		},
		{
			name:  "many ports and ranges, negated",
			exprs: join(tcp, MatchPorts(DstPort(), [][2]uint16{{443, 443}, {1, 80}, {60000, 65535}}, true)[0]),
			want:  `tcp dport != 1-80 tcp dport != 60000-65535 tcp dport != 443`,
		},
		{
			name:  "one of some prefixes of a length",
			exprs: join(v4, MatchAddrs(IPv4Src(), prefixesOf("10.2.0.0/16", "10.1.0.0/16", "10.1.7.0/24", "10.1.0.9/16"), false)[0]),
			want:  `ip saddr & 255.255.0.0 == { 10.1.0.0, 10.2.0.0 }`,
		},
		{
			name:  "in none of some prefixes",
			exprs: join(v4, MatchAddrs(IPv4Dst(), prefixesOf("192.0.2.1/32", "10.1.0.0/16", "192.0.2.2/32", "10.1.0.0/24", "203.0.113.0/24"), true)[0]),
			want:  `ip daddr != 10.1.0.0/16 ip daddr != 203.0.113.0/24 ip daddr != { 192.0.2.1, 192.0.2.2 }`,
		},
		{
			name:  "IPv6 prefixes",
			exprs: join(MatchNFProto(FamilyIPv6), MatchAddrs(IPv6Src(), prefixesOf("fd00:1::/33", "fd00:2::/33"), false)[0]),
			want:  `ip6 saddr & ffff:ffff:8000:: == { fd00:1::, fd00:2:: }`,
		},
		{name: "ordered comparison", exprs: join(tcp, one(DstPort(), Cmp{Op: Gte, Data: KeyPort(1024)})), want: `tcp dport >= 1024`},
		{name: "ICMP type and code", exprs: join(v4, MatchL4Proto(1), one(ICMPType(), Cmp{Op: Eq, Data: []byte{8}},
			ICMPCode(), Cmp{Op: Eq, Data: []byte{1}})), want: `icmp type echo-request icmp code host-unreachable`},
		{name: "ICMPv6 type", exprs: join(MatchNFProto(FamilyIPv6), MatchL4Proto(58),
			one(ICMPType(), Cmp{Op: Eq, Data: []byte{135}})), want: `icmpv6 type nd-neighbor-solicit`},
		{name: "protocols", exprs: one(Meta{Key: MetaL4Proto}, In{
			Set:      Set{Key: TypeInetProto},
			Elements: []Element{{Key: []byte{6}}, {Key: []byte{17}}},
		}), want: `meta l4proto { tcp, udp }`},
		{
			name: "anonymous verdict map", exprs: one(Meta{Key: MetaL4Proto}, In{
				Set:      Set{Key: TypeInetProto, Data: TypeVerdict},
				Elements: []Element{{Key: []byte{6}, Verdict: new(Jump("other"))}, {Key: []byte{17}, Verdict: new(Drop())}},
			}),
			want: `meta l4proto vmap { tcp : jump other, udp : drop }`,
		},
		{
			name: "anonymous data map", exprs: one(Meta{Key: MetaL4Proto}, In{
				Set:      Set{Key: TypeInetProto, Data: TypeMark},
				Elements: []Element{{Key: []byte{6}, Data: U32(1)}, {Key: []byte{17}, Data: U32(2)}},
			}, SetMeta{Key: MetaMark}),
			want: `meta mark set meta l4proto map { tcp : 0x00000001, udp : 0x00000002 }`,
		},
		{name: "set of hosts", exprs: join(v4, one(IPv4Src(), Lookup{Set: "hosts"})), want: `ip saddr @hosts`},
		{name: "not in set of nets", exprs: join(v4, one(IPv4Dst(), Lookup{Set: "nets", Not: true})), want: `ip daddr != @nets`},
		{name: "concatenation", exprs: join(v4, one(IPv4Dst(), Meta{Key: MetaL4Proto, Reg: 1}, DstPort().In(2),
			Lookup{Set: "svc"})), want: `ip daddr . meta l4proto . th dport @svc`},
		{name: "concatenation of IPv6", exprs: join(MatchNFProto(FamilyIPv6), one(IPv6Dst(), Meta{Key: MetaL4Proto, Reg: R2},
			DstPort().In(5), Lookup{Set: "svc6"})), want: `ip6 daddr . meta l4proto . th dport @svc6`},
		{name: "verdict map", exprs: one(Meta{Key: MetaIIFName}, LookupVerdict{Map: "from"}), want: `iifname vmap @from`},
		{
			name: "data map", exprs: join(v4, one(IPv4Dst(), LookupData{Map: "fip"}, NAT{Family: FamilyIPv4, AddrMin: new(R1)})),
			base: dstnat, want: `dnat ip to ip daddr map @fip`,
		},
		{name: "counter", exprs: one(Counter{Packets: 3, Bytes: 4}), want: `counter packets 3 bytes 4`},
		{name: "accept", exprs: one(Accept()), want: `accept`},
		{name: "drop", exprs: one(Drop()), want: `drop`},
		{name: "return", exprs: one(Return()), want: `return`},
		{name: "jump", exprs: one(Jump("other")), want: `jump other`},
		{name: "goto", exprs: one(Goto("other")), want: `goto other`},
		{name: "state", exprs: MatchCTState(StateEstablished | StateRelated), want: `ct state established,related`},
		{name: "connection mark", exprs: MatchCTMark(0x10000, 0x10000), want: `ct mark & 0x00010000 == 0x00010000`},
		{name: "set connection mark", exprs: one(CT{Key: CTMark}, Bitwise{Mask: U32(0xfffeffff), Xor: U32(0x10000)}, SetCT{Key: CTMark}), want: `ct mark set ct mark | 0x00010000`},
		{name: "DSCP", exprs: join(v4, one(Payload{Base: NetworkHeader, Len: 2}, Bitwise{Mask: []byte{0xff, 3}, Xor: []byte{0, 46 << 2}}, Write{Base: NetworkHeader, Len: 2, Checksum: true})), want: `ip dscp set ef`},
		{name: "DSCP of IPv6", exprs: join(MatchNFProto(FamilyIPv6), one(Payload{Base: NetworkHeader, Len: 2}, Bitwise{Mask: []byte{0xf0, 0x3f}, Xor: []byte{11, 0x80}}, Write{Base: NetworkHeader, Len: 2})), want: `ip6 dscp set ef`},
		{name: "direction", exprs: one(CT{Key: CTDirection}, Cmp{Op: Eq, Data: []byte{DirReply}}), want: `ct direction reply`},
		{name: "status", exprs: one(CT{Key: CTStatus}, Bitwise{Mask: U32(StatusDNAT), Xor: U32(0)}, Cmp{Op: Neq, Data: U32(0)}), want: `ct status dnat`},
		{
			name: "original port", exprs: join(tcp, one(CT{Key: CTProtoDst, Dir: new(DirOriginal)}, Cmp{Op: Eq, Data: KeyPort(80)})),
			want: `ct original proto-dst 80`,
		},
		{
			name: "original address", exprs: one(CT{Key: CTDstIPv4, Dir: new(DirOriginal)}, Cmp{Op: Eq, Data: []byte{10, 0, 0, 1}}),
			want: `ct original ip daddr 10.0.0.1`,
		},
		{name: "reverse path", base: raw, exprs: one(Fib{Flags: FibSaddr | FibIIF | FibPresent, Result: FibResultOIF}, Cmp{Op: Eq, Data: U32(0)}, Drop()), want: `fib saddr . iif oif missing drop`},
		{name: "reverse path with mark", base: raw, exprs: one(Fib{
			Flags:  FibSaddr | FibMark | FibIIF | FibPresent,
			Result: FibResultOIF,
		}, Cmp{Op: Eq, Data: U32(1)}), want: `fib saddr . mark . iif oif exists`},
		{name: "local destination", base: raw, exprs: one(Fib{Flags: FibDaddr, Result: FibResultAddrType}, Cmp{Op: Eq, Data: U32(2)}), want: `fib daddr type local`},
		{
			name: "log to group", exprs: one(NFLog{Group: 801, Prefix: "g1|7f", Snaplen: 80, Threshold: 4}),
			want: `log prefix "g1|7f" group 801 snaplen 80 queue-threshold 4`,
		},
		{
			name: "limit", exprs: one(Limit{Rate: 10}), want: `limit rate 10/second`,
			back: one(Limit{Rate: 10, Per: 1, Burst: 5}),
		},
		{
			name: "limit exceeded", exprs: one(Limit{Rate: 10, Per: 60, Burst: 7, Over: true}),
			want: `limit rate over 10/minute burst 7 packets`,
		},
		{
			name: "limit of bytes", exprs: one(Limit{Rate: 2048, Per: 1, Burst: 4096, Bytes: true}),
			want: `limit rate 2 kbytes/second burst 4 kbytes`,
		},
		{name: "connections", exprs: one(ConnLimit{Count: 3}), want: `ct count 3`},
		{name: "connections exceeded", exprs: one(ConnLimit{Count: 3, Over: true}), want: `ct count over 3`},
		{name: "reject", exprs: one(Reject{Type: RejectICMPX, Code: 3}), want: `reject with icmpx admin-prohibited`},
		{name: "reject by reset", exprs: join(tcp, one(Reject{Type: RejectReset})), want: `reject with tcp reset`},
		{name: "masquerade", base: srcnat, exprs: one(Masq{Flags: NATFullyRandom}), want: `masquerade fully-random`},
		{name: "masquerade to ports", base: srcnat, exprs: join(tcp, one(Load{Data: KeyPort(1000)},
			Load{Data: KeyPort(2000), Reg: R2}, Masq{ProtoMin: new(R1), ProtoMax: new(R2)})), want: `masquerade to :1000-2000`},
		{name: "snat", base: srcnat, exprs: one(Load{Data: []byte{10, 0, 0, 1}},
			NAT{Source: true, Family: FamilyIPv4, AddrMin: new(R1)}), want: `snat ip to 10.0.0.1`},
		{name: "snat6", base: srcnat, exprs: one(Load{Data: addr("fd00::1")},
			NAT{Source: true, Family: FamilyIPv6, AddrMin: new(R1)}), want: `snat ip6 to fd00::1`},
		{name: "dnat with port", base: dstnat, exprs: join(tcp, one(Load{Data: []byte{10, 0, 0, 1}}, Load{Data: KeyPort(8080), Reg: R2},
			NAT{Family: FamilyIPv4, AddrMin: new(R1), ProtoMin: new(R2)})), want: `dnat ip to 10.0.0.1:8080`},
		{
			name: "redirect", base: dstnat, exprs: join(tcp, one(Load{Data: KeyPort(8080)}, Redirect{ProtoMin: new(R1)})),
			want: `redirect to :8080`,
		},
		{name: "notrack", base: raw, exprs: one(NoTrack{}), want: `notrack`},
	}
}

// skeleton is what the expressions of the test refer to.
func skeleton(b *Batch) {
	svc := Concat(TypeIPv4Addr, TypeInetProto, TypeInetService)
	svc6 := Concat(TypeIPv6Addr, TypeInetProto, TypeInetService)
	b.AddTable(Table{Name: "t"})
	b.AddChain(Chain{Table: "t", Name: "other"})
	b.AddSet(Set{Table: "t", Name: "hosts", Key: TypeIPv4Addr})
	b.AddSet(Set{Table: "t", Name: "nets", Key: TypeIPv4Addr, Interval: true})
	b.AddSet(Set{Table: "t", Name: "svc", Key: svc})
	b.AddSet(Set{Table: "t", Name: "svc6", Key: svc6})
	b.AddSet(Set{Table: "t", Name: "from", Key: TypeIfname, Data: TypeVerdict})
	b.AddSet(Set{Table: "t", Name: "fip", Key: TypeIPv4Addr, Data: TypeIPv4Addr})
}

func TestEachExpressionIsAcceptedAndPrintedByNftAndReadBackEqual(t *testing.T) {
	n := newNet(t)
	b := NewBatch()
	skeleton(b)
	n.mustCommit(t, b)
	for _, c := range exprCases() {
		t.Run(c.name, func(t *testing.T) {
			b := NewBatch()
			b.AddChain(Chain{Table: "t", Name: "c", Base: c.base})
			b.AddRule(Rule{Table: "t", Chain: "c", Exprs: c.exprs, Comment: "why"})
			n.mustCommit(t, b)
			defer func() {
				b := NewBatch()
				b.FlushChain("t", "c")
				b.DeleteChain("t", "c")
				n.mustCommit(t, b)
			}()
			rules := n.mustList(t, "t").ChainRules("c")
			if len(rules) != 1 {
				t.Fatalf("%d rules", len(rules))
			}
			want := c.back
			if want == nil {
				want = c.exprs
			}
			if got := rules[0]; !sameExprs(got.Exprs, want) || got.Comment != "why" {
				t.Errorf("read back\n%v %q\nwant\n%v", got.Exprs, got.Comment, want)
			}
			out := n.nft(t, "list", "chain", "inet", "t", "c")
			if !strings.Contains(out, c.want+` comment "why"`) && !(c.want == "" && strings.Contains(out, "why")) {
				t.Errorf("nft prints\n%s\nwant %s", out, c.want)
			}
		})
	}
}

// sameExprs compares deeply, and the texts too.
func sameExprs(a, b []Expr) bool {
	b = append([]Expr(nil), b...)
	for i, x := range b {
		if in, ok := x.(In); ok { // the kernel's order is that of the keys
			in.Elements = sortedElements(in.Elements)
			b[i] = in
		}
	}
	return reflect.DeepEqual(a, b) && Rule{Exprs: a}.String() == Rule{Exprs: b}.String()
}

func prefixesOf(ss ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(ss))
	for i, s := range ss {
		ps[i] = prefix(s)
	}
	return ps
}

// TestAPacketMatchesAtMostOneAlternative counts the alternatives, each of which the test above has.
func TestAPacketMatchesAtMostOneAlternative(t *testing.T) {
	for _, tt := range []struct {
		name string
		ways [][]Expr
		want int
	}{
		{"prefixes of three lengths, of which two are within others", MatchAddrs(IPv4Src(), prefixesOf("10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24", "192.0.2.7/32"), false), 2},
		{"all addresses", MatchAddrs(IPv4Src(), prefixesOf("0.0.0.0/0", "10.1.0.0/16"), false), 1},
		{"no prefix", MatchAddrs(IPv4Src(), nil, false), 1},
		{"none that is valid", MatchAddrs(IPv4Src(), []netip.Prefix{{}}, true), 1},
		{"negation", MatchAddrs(IPv4Src(), prefixesOf("10.0.0.0/8", "192.0.2.0/24"), true), 1},
		{"ports, narrow ranges", MatchPorts(DstPort(), [][2]uint16{{80, 80}, {100, 131}, {443, 443}}, false), 1},
		{"ports, wide ranges", MatchPorts(DstPort(), [][2]uint16{{80, 80}, {100, 132}, {1000, 65535}}, false), 3},
		{"no port", MatchPorts(DstPort(), [][2]uint16{{9, 7}}, false), 1},
		{"not no port", MatchPorts(DstPort(), nil, true), 1},
	} {
		if len(tt.ways) != tt.want {
			t.Errorf("%s: %d alternatives, want %d: %v", tt.name, len(tt.ways), tt.want, tt.ways)
		}
	}
}
