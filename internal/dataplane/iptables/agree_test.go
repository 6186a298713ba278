package iptables

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/verdict"
)

// What random rules and packets are made of: little, so that they meet.
var (
	somewhere = prefixes("10.0.0.1/32", "10.0.1.1/32", "10.1.0.1/32", "10.1.1.1/32", "fd00::1/128", "fd00:1::1/128", "fd01::1/128", "fd01:1::1/128")
	someNets  = prefixes("10.0.0.0/16", "10.0.1.0/24", "10.1.0.0/16", "10.1.1.1/32", "10.0.0.0/15", "0.0.0.0/0",
		"fd00::/32", "fd00:1::/32", "fd01::/16", "fd01::1/128", "fd00::/15", "::/0")
	someProtos = []uint8{6, 17, 132, 136, 47, 1, 58}
	someSets   = []intent.IPSet{
		{ID: "s:a", Members: members(0, "10.0.0.1/32", "10.1.0.0/16", "fd00::1/128", "fd01::/16")},
		{ID: "s:b", Members: members(0, "10.0.1.0/24", "fd00:1::/32", "fd01::1/128")},
		{ID: "s:c", Members: members(0, "0.0.0.0/0", "fd00:1::1/128")},
		{ID: "p:6", Kind: intent.SetPorts, Members: members(6, "10.0.0.1/32", "10.1.1.1/32", "fd00::1/128")},
		{ID: "p:17", Kind: intent.SetPorts, Members: members(17, "10.0.0.1/32", "10.0.1.1/32", "fd01::1/128")},
	}
)

// members with a protocol have port 1000.
func members(proto uint8, list ...string) []intent.Member {
	var out []intent.Member
	for _, p := range prefixes(list...) {
		m := intent.Member{Prefix: p, Proto: proto}
		if proto != 0 {
			m.Port = 1000
		}
		out = append(out, m)
	}
	return out
}

type random struct{ *rand.Rand }

func (r random) chance(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r random, list []T) T { return list[r.IntN(len(list))] }

func (r random) sets(kind intent.SetKind) []intent.SetID {
	var out []intent.SetID
	for _, s := range someSets {
		if s.Kind == kind && r.chance(16) {
			out = append(out, s.ID)
		}
	}
	return out
}

func (r random) ports() []intent.PortRange {
	var out []intent.PortRange
	if r.chance(10) {
		out = evens(pick(r, []int{1, 15, 16, 40, 130}))
	}
	for r.chance(10) {
		low := uint16(1000 + r.IntN(8))
		out = append(out, intent.PortRange{Min: low, Max: low + uint16(r.IntN(5))})
	}
	return out
}

func (r random) nets() []netip.Prefix {
	var out []netip.Prefix
	for r.chance(4) {
		out = append(out, pick(r, someNets))
	}
	return out
}

func (r random) peer() intent.Peer {
	return intent.Peer{
		Nets: r.nets(), NotNets: r.nets(), Ports: r.ports(), NotPorts: r.ports(), Sets: r.sets(intent.SetAddrs), NotSets: r.sets(intent.SetAddrs),
		PortSets: r.sets(intent.SetPorts), NotPortSets: r.sets(intent.SetPorts),
	}
}

func (r random) icmp() *intent.ICMP {
	if !r.chance(8) {
		return nil
	}
	return &intent.ICMP{Type: pick(r, []uint8{1, 3, 13}), Code: uint8(r.IntN(2)), AnyCode: r.chance(2)}
}

// lists is a rule that has nothing but lists too long for one line, so that several blocks often decide together.
func (r random) lists() intent.Rule {
	some := func() []netip.Prefix { return []netip.Prefix{pick(r, someNets), pick(r, someNets), pick(r, someNets)} }
	out := intent.Rule{Action: pick(r, []intent.Action{intent.Deny, intent.Allow, intent.Pass}), Src: intent.Peer{Nets: some()}, Dst: intent.Peer{Nets: some()}, Reject: r.chance(2)}
	if r.chance(3) {
		out.Protocol, out.Src.Ports = pick(r, withPorts), evens(16)
	}
	if r.chance(3) {
		out.Dst.NotNets = []netip.Prefix{pick(r, someNets[:4]), pick(r, someNets[6:10])}
	}
	return out
}

func (r random) rule() intent.Rule {
	if r.chance(3) {
		return r.lists()
	}
	out := intent.Rule{
		Action: pick(r, []intent.Action{intent.Deny, intent.Allow, intent.Allow, intent.Pass, intent.Log}),
		Void:   r.chance(20), Reject: r.chance(2), Src: r.peer(), Dst: r.peer(), ICMP: r.icmp(), NotICMP: r.icmp(),
	}
	if r.chance(6) {
		out.Family = pick(r, families[:])
	}
	if r.chance(3) {
		out.Protocol = pick(r, someProtos)
	}
	if r.chance(4) {
		out.NotProtocol = pick(r, someProtos)
	}
	return out
}

func (r random) policy(id intent.PolicyID) intent.Policy {
	p := intent.Policy{ID: id}
	for range 1 + r.IntN(5) {
		p.Ingress = append(p.Ingress, r.rule())
	}
	return p
}

// batch is one workload with some tiers and profiles.
func (r random) batch() intent.Batch {
	e := intent.Endpoint{ID: pod, Label: "prod/web-0", Link: "cali1"}
	var b intent.Batch
	for i := range 1 + r.IntN(3) {
		t := intent.Tier{Name: fmt.Sprint("t", i), Default: pick(r, []intent.Action{intent.Deny, intent.Pass, intent.Pass})}
		for j := range 1 + r.IntN(2) {
			p := r.policy(intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: fmt.Sprintf("p%d.%d", i, j)})
			b.Policies, t.Ingress = append(b.Policies, p), append(t.Ingress, p.ID)
		}
		intenttest.Normal(&e, append(slices.Clone(e.Policies().Normal), t)...)
	}
	for i := range 2 {
		p := r.policy(intent.PolicyID{Kind: "Profile", Name: fmt.Sprint("k", i)})
		b.Policies = append(b.Policies, p)
		intenttest.Profiles(&e, append(slices.Clone(e.Policies().Profiles), p.ID)...)
	}
	b.Endpoints = []intent.Endpoint{e}
	return b
}

// twice is one rule that asks the source for a list and against one prefix, which one rule of iptables cannot: few random ones are so that a packet shows it.
func twice() intent.Batch {
	p := intent.Policy{ID: intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "twice"}, Ingress: []intent.Rule{{
		Action: intent.Allow, Src: intent.Peer{Nets: prefixes("10.0.0.0/16", "10.0.1.0/24", "fd00::/32", "fd00:1::/32"), NotNets: prefixes("10.1.1.1/32", "fd01::1/128")},
	}}}
	e := intent.Endpoint{ID: pod, Label: "prod/web-0", Link: "cali1"}
	intenttest.Normal(&e, intent.Tier{Name: "t", Default: intent.Deny, Ingress: []intent.PolicyID{p.ID}})
	return intent.Batch{Policies: []intent.Policy{p}, Endpoints: []intent.Endpoint{e}}
}

// packet is one that a workload on cali1 would receive.
func (r random) packet() verdict.Packet {
	p := verdict.Packet{InLink: "up0", OutLink: "cali1", Src: pick(r, somewhere).Addr(), Proto: pick(r, someProtos[:6])}
	for p.Dst = pick(r, somewhere).Addr(); p.Dst.Is4() != p.Src.Is4(); {
		p.Dst = pick(r, somewhere).Addr()
	}
	switch {
	case p.Proto == 1:
		p.ICMPType, p.ICMPCode = pick(r, []uint8{1, 3, 13}), uint8(r.IntN(2))
		if p.Src.Is6() {
			p.Proto = 58
		}
	case p.Proto != 47:
		p.SrcPort, p.DstPort = uint16(1000+r.IntN(12)), uint16(1000+r.IntN(12))
	}
	return p
}

// sender has raw sockets, whose packets begin where the payload of IP does.
type sender struct {
	k     tools
	socks map[string]net.PacketConn
}

// send reports whether the packet passed the hook of output: the kernel tells the sender of one that is dropped there.
func (s sender) send(t *testing.T, p verdict.Packet) bool {
	t.Helper()
	network := fmt.Sprintf("ip4:%d", p.Proto)
	if p.Src.Is6() {
		network = fmt.Sprintf("ip6:%d", p.Proto)
	}
	c := s.socks[network+p.Src.String()]
	if c == nil {
		var err error
		s.k.Do(func() { c, err = net.ListenPacket(network, p.Src.String()) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		s.socks[network+p.Src.String()] = c
	}
	payload := make([]byte, 20)
	if p.SrcPort != 0 {
		payload[0], payload[1], payload[2], payload[3] = byte(p.SrcPort>>8), byte(p.SrcPort), byte(p.DstPort>>8), byte(p.DstPort)
	} else {
		payload[0], payload[1] = p.ICMPType, p.ICMPCode
	}
	_, err := c.WriteTo(payload, &net.IPAddr{IP: p.Dst.AsSlice()})
	if err != nil && !errors.Is(err, syscall.EPERM) {
		t.Fatalf("send %+v: %v", p, err)
	}
	return err == nil
}

// load brings the chains of a batch into the kernel, and asks that of the workload about all that is sent here.
func (k tools) load(t *testing.T, b intent.Batch) {
	t.Helper()
	var chains []rules.Chain
	for _, p := range b.Policies {
		chains = append(chains, rules.Policy(p, intent.Ingress))
	}
	end := rules.Endpoint(b.Endpoints[0], intent.Ingress)
	for _, f := range families {
		text, err := Renderer{Family: f}.Render(append(chains, end))
		if err != nil {
			t.Fatal(err)
		}
		k.restore(t, f, text.Restore)
		dirty := setMark(0, 0xf0000, 0xf0000) // what an earlier chain left must not matter
		k.restore(t, f, fmt.Sprintf("*filter\n-F OUTPUT\n-A OUTPUT %s\n-A OUTPUT -j %s\n-A OUTPUT %s -j ACCEPT\n-A OUTPUT -j DROP\nCOMMIT\n",
			dirty, ChainName(end.Name), matchMark(0, kernel.MarkAllowed, kernel.MarkAllowed)))
	}
}

// TestKernelAgreesWithVerdict has verdict for its oracle, which knows nothing of chains, marks or tools.
func TestKernelAgreesWithVerdict(t *testing.T) {
	const batches, packets = 40, 200
	seed := seedtest.New(t)
	eachBackend(t, func(t *testing.T, k tools) {
		for _, a := range somewhere {
			k.Addr("lo", a.String())
		}
		for _, f := range families {
			k.feed(t, RestoreSets(f, someSets), "ipset", "restore")
		}
		s := sender{k, map[string]net.PacketConn{}}
		passed := 0
		for i := range batches {
			r := random{rand.New(rand.NewPCG(seed, uint64(i)))}
			b := r.batch()
			if i == 0 {
				b = twice()
			}
			k.load(t, b)
			var state verdict.State
			state.Merge(intent.Batch{IPSets: someSets, Policies: b.Policies, Endpoints: b.Endpoints})
			for range packets {
				p := r.packet()
				got, want := s.send(t, p), state.Judge(p)
				if got != want.Allowed {
					t.Fatalf("seed %d, batch %d: %+v: the kernel lets it pass: %v; verdict %+v\nof %s", seed, i, p, got, want, rules.Policy(policyOf(b, want.Rule.Policy), intent.Ingress))
				}
				if got {
					passed++
				}
			}
		}
		t.Logf("%d of %d packets passed", passed, batches*packets)
		if all := batches * packets; passed < all/10 || passed > all*9/10 {
			t.Errorf("%d of %d packets passed: that tells little", passed, all)
		}
	})
}

func policyOf(b intent.Batch, id intent.PolicyID) intent.Policy {
	for _, p := range b.Policies {
		if p.ID == id {
			return p
		}
	}
	return intent.Policy{}
}
