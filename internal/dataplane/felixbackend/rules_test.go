package felixbackend

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/dataplane/felixwire"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/match"
	"github.com/twillnet/twill/internal/seedtest"
)

// Numbers of protocols (IANA).
const (
	icmp, tcp, udp, icmpv6, sctp, udplite = 1, 6, 17, 58, 132, 136
)

// world has what random rules and packets are made of: little, so that they meet. Set x has the addresses that end in an odd number, and pX each odd
// address with port 1 of TCP.
type world struct{ *rand.Rand }

func odd(a netip.Addr) bool { return a.AsSlice()[len(a.AsSlice())-1]%2 == 1 }

func (world) Has(id intent.SetID, a netip.Addr) bool { return id == "x" && odd(a) }

func (world) HasPort(id intent.SetID, a netip.Addr, number uint8, port uint16) bool {
	return id == "px" && odd(a) && number == tcp && port == 1
}

var (
	places = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::1:2")}
	nets   = []netip.Prefix{prefix("10.0.0.0/24"), prefix("10.0.0.0/8"), prefix("fd00::/112"), prefix("::/0")}
	ranges = []intent.PortRange{{Min: 1, Max: 1}, {Min: 2, Max: 3}, {Min: 3, Max: 2}}
)

// some is each of a list once in n times.
func some[T any](w world, n int, of ...T) (out []T) {
	for _, x := range of {
		if w.IntN(n) == 0 {
			out = append(out, x)
		}
	}
	return out
}

func (w world) packet() match.Packet {
	family := w.IntN(2) * 2
	p := match.Packet{Src: places[family+w.IntN(2)], Dst: places[family+w.IntN(2)]}
	p.Proto = []uint8{[]uint8{icmp, 0, icmpv6}[family], tcp, udp, sctp, udplite, 47}[w.IntN(6)]
	if match.HasPorts(p.Proto) {
		p.SrcPort, p.DstPort = uint16(1+w.IntN(4)), uint16(1+w.IntN(4))
	}
	if p.Proto == icmp || p.Proto == icmpv6 {
		p.ICMPType, p.ICMPCode = uint8(w.IntN(2)), uint8(w.IntN(2))
	}
	return p
}

func (w world) rule() intent.Rule {
	r := intent.Rule{Action: intent.Action(w.IntN(4)), Void: w.IntN(30) == 0, Family: []intent.Family{0, 0, 0, intent.IPv4, intent.IPv6}[w.IntN(5)]}
	r.Protocol = []uint8{0, 0, tcp, udp, udplite, icmp, icmpv6, 47}[w.IntN(8)]
	r.NotProtocol = []uint8{0, 0, 0, tcp, 47}[w.IntN(5)]
	i := &intent.ICMP{Type: uint8(w.IntN(2)), Code: uint8(w.IntN(2)), AnyCode: w.IntN(2) == 0}
	switch w.IntN(6) {
	case 0:
		r.ICMP = i
	case 1:
		r.NotICMP = i
	}
	for _, p := range []*intent.Peer{&r.Src, &r.Dst} {
		p.Nets, p.NotNets, p.Sets, p.NotSets = some(w, 6, nets...), some(w, 12, nets...), some[intent.SetID](w, 8, "x"), some[intent.SetID](w, 8, "x")
		p.PortSets, p.NotPortSets = some[intent.SetID](w, 8, "px"), some[intent.SetID](w, 8, "px")
		if w.IntN(3) == 0 {
			p.Ports, p.NotPorts = some(w, 4, ranges...), some(w, 8, ranges...)
		}
	}
	return r
}

// reads is what a driver takes a rule to be, by the numbers of its fields.
func (w world) reads(t *testing.T, b []byte, p match.Packet) bool {
	version, number := value(b, 2), value(b, 3, 1)
	if v4 := p.Src.Is4(); version != "" && (version == "4") != v4 {
		return false
	}
	own := func(path ...protowire.Number) bool { return value(b, path...) == strconv.Itoa(int(p.Proto)) }
	if number != "" && !own(3, 1) || value(b, 102, 1) != "" && own(102, 1) {
		return false
	}
	for n, field := range []protowire.Number{8, 9, 107, 108} {
		if v, is := at(b, field); is {
			if (number != "1" || version != "4") && (number != "58" || version != "6") {
				t.Errorf("a type of ICMP in a rule of protocol %q and version %q", number, version)
			}
			same := string(v) == strconv.Itoa(int(p.ICMPType))
			if n%2 == 1 {
				same = orZero(value(v, 1)) == strconv.Itoa(int(p.ICMPType)) && orZero(value(v, 2)) == strconv.Itoa(int(p.ICMPCode))
			}
			if same == (n >= 2) {
				return false
			}
		}
	}
	src := sideFields{nets: 4, ports: 5, sets: 10, named: 12, notNets: 103, notPorts: 104, notSets: 109, notNamed: 112}
	dst := sideFields{nets: 6, ports: 7, sets: 11, named: 13, notNets: 105, notPorts: 106, notSets: 110, notNamed: 113}
	return w.side(t, b, src, p.Src, p.Proto, p.SrcPort) && w.side(t, b, dst, p.Dst, p.Proto, p.DstPort)
}

func orZero(s string) string { return max(s, "0") }

// sideFields are the numbers of the fields about one end of a packet.
type sideFields struct{ nets, ports, sets, named, notNets, notPorts, notSets, notNamed protowire.Number }

func (w world) side(t *testing.T, b []byte, f sideFields, a netip.Addr, proto uint8, port uint16) bool {
	inNets := func(field protowire.Number) bool {
		return slices.ContainsFunc(all(b, field), func(text []byte) bool {
			n := prefix(string(text))
			if want := map[bool]string{true: "4", false: "6"}[n.Addr().Is4()]; value(b, 2) != want {
				t.Errorf("%s in a rule of version %q", n, value(b, 2))
			}
			return n.Contains(a)
		})
	}
	inPorts := func(ports, named protowire.Number) bool {
		if number, _ := strconv.Atoi(value(b, 3, 1)); len(all(b, ports))+len(all(b, named)) > 0 && !match.HasPorts(uint8(number)) {
			t.Errorf("ports in a rule of protocol %d", number)
		}
		for _, r := range all(b, ports) {
			first, _ := strconv.Atoi(value(r, 1))
			last, _ := strconv.Atoi(value(r, 2))
			if first > last {
				t.Errorf("ports %d to %d", first, last)
			}
			if first <= int(port) && int(port) <= last {
				return true
			}
		}
		return slices.ContainsFunc(all(b, named), func(id []byte) bool { return w.HasPort(intent.SetID(id), a, proto, port) })
	}
	has := func(id []byte) bool { return w.Has(intent.SetID(id), a) }
	lacks := func(id []byte) bool { return !has(id) }
	switch {
	case len(all(b, f.nets)) > 0 && !inNets(f.nets), inNets(f.notNets):
		return false
	case slices.ContainsFunc(all(b, f.sets), lacks), slices.ContainsFunc(all(b, f.notSets), has):
		return false
	case len(all(b, f.ports))+len(all(b, f.named)) > 0 && !inPorts(f.ports, f.named):
		return false
	}
	return !inPorts(f.notPorts, f.notNamed)
}

// TestRulesSayWhatTheyMean: what a driver reads in the messages of a rule matches what the rule does; one that cannot be said matches less if it allows, and
// more if it denies, and is an error.
func TestRulesSayWhatTheyMean(t *testing.T) {
	w := world{rand.New(rand.NewPCG(seedtest.New(t), 0))}
	matched, refused := 0, 0
	for range 3000 {
		r := w.rule()
		list, err := felixwire.Rules(web, intent.Ingress, []intent.Rule{{Action: intent.Allow, Void: true}, r})
		if err != nil {
			refused++
		}
		for range 30 {
			p := w.packet()
			want, n := match.Any(match.Lower(r), p, w), 0
			for _, x := range list {
				if wire(t, x, func(b []byte) bool { return w.reads(t, b, p) }) {
					n++
				}
			}
			is := n > 0
			if is {
				matched++
			}
			wrong := is != want
			if err != nil {
				wrong = r.Action == intent.Deny && want && !is || r.Action != intent.Deny && is && !want
			}
			if wrong || r.Action == intent.Log && n > 1 {
				t.Fatalf("%+v\nof %+v: %d of %v match, want %v (%v)", r, p, n, list, want, err)
			}
		}
	}
	if matched < 1000 || refused < 50 {
		t.Errorf("%d matched, %d could not be said", matched, refused)
	}
}

// wire is a rule as its bytes.
func wire(t *testing.T, x *pb.Rule, f func([]byte) bool) bool {
	t.Helper()
	b, err := proto.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(value(b, 201), "/1") || !slices.Contains([]string{"allow", "deny", "pass", "log"}, value(b, 1)) {
		t.Errorf("rule %q has action %q", value(b, 201), value(b, 1))
	}
	return f(b)
}
