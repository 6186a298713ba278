package nft

import (
	"flag"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

var moves = flag.Int("moves", 60, "how often all addresses of TestAddressesMoveUnderStreams change their sets, and its policy a rule")

// stream is UDP to one port, whose packets are each of a new flow, since none is confirmed.
type stream struct {
	name  string
	port  uint16
	rules []intent.Rule
	turns [2][]string // the sets that all senders are in, by turns
	want  bool        // its packets are allowed, before and after
}

// between stands between two rules, and takes a packet some microseconds: so that members change while packets are on their way
// from one to the other.
func between() []intent.Rule {
	var out []intent.Rule
	for range 100 {
		out = append(out, intent.Rule{Action: intent.Deny, Src: intent.Peer{Sets: []intent.SetID{"nobody"}}})
	}
	return out
}

func (s stream) rule(action intent.Action, src intent.Peer) intent.Rule {
	return intent.Rule{Action: action, Protocol: 17, Src: src, Dst: intent.Peer{Ports: []intent.PortRange{{Min: s.port, Max: s.port}}}}
}

func inSet(sets ...intent.SetID) intent.Peer { return intent.Peer{Sets: sets} }

func movingStreams() []stream {
	a := stream{name: "allowed in either set", port: 1001, turns: [2][]string{{"a1"}, {"a2"}}, want: true}
	a.rules = append(append([]intent.Rule{a.rule(intent.Allow, inSet("a1"))}, between()...), a.rule(intent.Allow, inSet("a2")))
	b := stream{name: "denied in either set", port: 1002, turns: [2][]string{{"d1"}, {"d2"}}}
	b.rules = append(append([]intent.Rule{b.rule(intent.Deny, inSet("d1"))}, between()...), b.rule(intent.Deny, inSet("d2")), b.rule(intent.Allow, intent.Peer{}))
	c := stream{name: "denied before it is in any set, and by the first that it is in", port: 1003, turns: [2][]string{{}, {"d3", "a3"}}}
	c.rules = append(append([]intent.Rule{c.rule(intent.Deny, inSet("d3"))}, between()...), c.rule(intent.Allow, inSet("a3")))
	d := stream{name: "allowed unless in a set, and denied by another", port: 1004, turns: [2][]string{{"n4"}, {"d4"}}}
	d.rules = append(append([]intent.Rule{d.rule(intent.Deny, inSet("d4"))}, between()...), d.rule(intent.Allow, intent.Peer{NotSets: []intent.SetID{"n4"}}))
	e := stream{name: "allowed by an address, then by a prefix", port: 1005, turns: [2][]string{{"h5"}, {"p5"}}, want: true}
	e.rules = append(append([]intent.Rule{e.rule(intent.Allow, inSet("h5"))}, between()...), e.rule(intent.Allow, inSet("p5")))
	return []stream{a, b, c, d, e}
}

// TestAddressesMoveUnderStreams: what is denied before and after its address moves is denied meanwhile, and what is allowed is
// allowed meanwhile, though the kernel looks into one set after the other; and in tables, though a rule that tells the senders
// apart comes with the move, flips, or goes.
func TestAddressesMoveUnderStreams(t *testing.T) {
	for _, compiled := range []bool{false, true} {
		t.Run(fmt.Sprintf("compiled=%v", compiled), func(t *testing.T) { addressesMoveUnderStreams(t, compiled) })
	}
}

func addressesMoveUnderStreams(t *testing.T, compiled bool) {
	h := newHosted(t)
	h.d.Merge(intent.Batch{Host: &intent.HostSettings{Compiled: compiled}})
	all := movingStreams()
	var senders []netip.Addr
	for i := range 8 {
		senders = append(senders, netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 16+i)))
		h.out.Addr("eth0", senders[i].String()+"/24")
	}
	b := pair([]intent.Tier{{Name: "t", Ingress: ids("moving"), Default: intent.Deny}})
	var rs []intent.Rule
	sets, half := map[string]bool{"nobody": true}, intent.IPSet{ID: "half"}
	for _, s := range all {
		rs = append(rs, s.rules...)
		for _, turn := range s.turns {
			for _, set := range turn {
				sets[set] = true
			}
		}
	}
	for set := range sets {
		b.IPSets = append(b.IPSets, intent.IPSet{ID: intent.SetID(set), Members: []intent.Member{member("198.51.100.1/32"), member("198.51.100.128/25")}})
	}
	for _, a := range senders[:len(senders)/2] {
		half.Members = append(half.Members, intent.Member{Prefix: netip.PrefixFrom(a, 32)})
	}
	b.IPSets = append(b.IPSets, half)
	b.Policies = append(b.Policies, pol("moving", rs, nil))
	h.d.Merge(b)
	apply(t, h.d)
	h.d.Merge(turn(all, 1, senders))
	apply(t, h.d)
	h.countStreams(all)

	stop := make(chan struct{})
	var sending sync.WaitGroup
	for i, src := range senders {
		sending.Go(func() { h.stream(t, src, all[i%len(all):], stop) })
	}
	for i := range *moves {
		b := turn(all, i, senders)
		if compiled { // chains change in steps only where nothing but members does
			b.Policies = []intent.Policy{pol("moving", append(flipping(i), rs...), nil)}
		}
		h.d.Merge(b)
		apply(t, h.d)
	}
	close(stop)
	sending.Wait()
	for _, s := range all {
		came, passed := h.counted(t, s, "came"), h.counted(t, s, "passed")
		t.Logf("%s: %d packets, %d passed", s.name, came, passed)
		switch {
		case came == 0:
			t.Errorf("%s: no packet came", s.name)
		case s.want && passed != came:
			t.Errorf("%s: %d of %d packets were lost", s.name, came-passed, came)
		case !s.want && passed != 0:
			t.Errorf("%s: %d of %d packets passed", s.name, passed, came)
		}
	}
}

// flipping is what the policy has before its rules: nothing, or a rule that half of the senders are told apart by, which denies and then
// allows. No stream is to its port.
func flipping(i int) []intent.Rule {
	if i%3 == 0 {
		return nil
	}
	s := stream{port: 2000}
	return []intent.Rule{s.rule([]intent.Action{intent.Deny, intent.Allow}[i%3-1], inSet("half"))}
}

// turn moves all senders from the sets of the other turn into those of this one.
func turn(all []stream, i int, senders []netip.Addr) (b intent.Batch) {
	for _, s := range all {
		for n, to := range s.turns {
			for _, set := range to {
				d := intent.MemberDelta{Set: intent.SetID(set)}
				var ms []intent.Member
				for _, a := range senders {
					ms = append(ms, intent.Member{Prefix: netip.PrefixFrom(a, 32)})
				}
				if set == "p5" {
					ms = []intent.Member{member("192.0.2.16/28")}
				}
				if n == i%2 {
					d.Added = ms
				} else {
					d.Removed = ms
				}
				b.Members = append(b.Members, d)
			}
		}
	}
	return b
}

// countStreams counts what comes to the host and what has passed all policy, and takes it away there. In between is no queue.
func (h *hosted) countStreams(all []stream) {
	text := "table inet streams {\n"
	came, passed := "", ""
	for _, s := range all {
		text += fmt.Sprintf("counter came%d {}\ncounter passed%d {}\n", s.port, s.port)
		came += fmt.Sprintf("udp dport %d counter name came%d\n", s.port, s.port)
		passed += fmt.Sprintf("udp dport %d counter name passed%d drop\n", s.port, s.port)
	}
	h.ns.Run("nft", text+"chain came { type filter hook prerouting priority -500\n"+came+"}\nchain passed { type filter hook postrouting priority 500\n"+passed+"}\n}")
}

var counterPackets = regexp.MustCompile(`packets (\d+)`)

func (h *hosted) counted(t *testing.T, s stream, what string) int {
	t.Helper()
	out := h.ns.Run("nft", "list", "counter", "inet", "streams", fmt.Sprintf("%s%d", what, s.port))
	n, err := strconv.Atoi(counterPackets.FindStringSubmatch(out)[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stream sends packets of these streams in turn until it is to stop.
func (h *hosted) stream(t *testing.T, src netip.Addr, streams []stream, stop chan struct{}) {
	var conns []*net.UDPConn
	h.out.Do(func() {
		for _, s := range streams {
			c, err := net.DialUDP("udp4", &net.UDPAddr{IP: src.AsSlice()}, &net.UDPAddr{IP: net.ParseIP(addrs["a"][0]), Port: int(s.port)})
			if err != nil {
				t.Error(err)
				return
			}
			conns = append(conns, c)
		}
	})
	for {
		for _, c := range conns {
			_, _ = c.Write([]byte("x")) // what the sending host drops does not come, and is not counted
		}
		select {
		case <-stop:
			for _, c := range conns {
				c.Close()
			}
			return
		default:
		}
	}
}
