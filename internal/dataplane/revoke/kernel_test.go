package revoke_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

const patience = time.Minute

// pair is a host with two workloads, client and server, whose policy is in the kernel.
type pair struct {
	t              testing.TB
	client, server *netnstest.NS
	from, to       netip.Addr
	host           *netnstest.NS
	conn           *nftables.Conn
	policy         *nft.Driver
	revoke         *revoke.Driver
	passes         chan revoke.Pass
	table          *unreadable
}

func newPair(t testing.TB, from, to string) *pair {
	t.Helper()
	host := netnstest.New(t)
	p := &pair{
		t: t, client: netnstest.New(t), server: netnstest.New(t), passes: make(chan revoke.Pass, 100),
		from: netip.MustParseAddr(from), to: netip.MustParseAddr(to), host: host,
	}
	host.Forward()
	host.KeepFlows()
	for i, ns := range []*netnstest.NS{p.client, p.server} {
		link, a := fmt.Sprintf("cali%d", i), []netip.Addr{p.from, p.to}[i]
		host.VethTo(ns, link, "eth0")
		ns.Addr("eth0", netip.PrefixFrom(a, a.BitLen()).String())
		host.Route(netip.PrefixFrom(a, a.BitLen()).String() + " dev " + link)
		if a.Is4() {
			host.Addr(link, fmt.Sprintf("169.254.%d.1/32", i+1))
			ns.Route(fmt.Sprintf("169.254.%d.1 dev eth0 scope link", i+1))
			ns.Route(fmt.Sprintf("default via 169.254.%d.1 dev eth0 src %s", i+1, a))
		} else {
			host.Addr(link, fmt.Sprintf("fe80::%d:1/64", i+1))
			ns.Route(fmt.Sprintf("::/0 via fe80::%d:1 dev eth0", i+1))
		}
	}
	var table *conntrack.Conn
	var conn *nftables.Conn
	host.Do(func() {
		var err, err2 error
		conn, err = nftables.Open()
		table, err2 = conntrack.Open()
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
	})
	p.conn, p.policy, p.table = conn, nft.New(conn, nft.Config{}), &unreadable{Conn: table}
	p.revoke = revoke.New(revoke.Config{
		Table: p.table, Share: 1, Local: func() ([]netip.Addr, error) { return nil, nil }, Done: func(x revoke.Pass) { p.passes <- x },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.revoke.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; _ = conn.Close(); _ = table.Close() })
	return p
}

// apply brings a batch into force, and waits for the pass that follows.
func (p *pair) apply(b intent.Batch) revoke.Pass {
	p.t.Helper()
	p.policy.Merge(b)
	if _, err := p.policy.Apply(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.revoke.InForce(b, false)
	select {
	case x := <-p.passes:
		if x.Err != nil {
			p.t.Fatal(x.Err)
		}
		return x
	case <-time.After(patience):
		p.t.Fatal("no pass after a change")
	}
	return revoke.Pass{}
}

var policyID = intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: "p"}

func denied(proto uint8, port uint16) intent.Rule {
	return intent.Rule{Action: intent.Deny, Protocol: proto, Dst: intent.Peer{Ports: []intent.PortRange{{Min: port, Max: port}}}}
}

// policy lets the server receive what no rule denies.
func policy(rules ...intent.Rule) intent.Batch {
	return intent.Batch{Policies: []intent.Policy{{
		ID: policyID, Tier: "t", Ingress: append(rules, intent.Rule{Action: intent.Allow}), Egress: []intent.Rule{{Action: intent.Allow}},
	}}, InSync: true}
}

func (p *pair) start() { p.apply(p.workloads(policy())) }

// workloads adds the two endpoints.
func (p *pair) workloads(b intent.Batch) intent.Batch {
	for i, name := range []string{"client", "server"} {
		ids := []intent.PolicyID{policyID}
		b.Endpoints = append(b.Endpoints, intent.Endpoint{
			ID: intent.EndpointID{Namespace: "prod", Name: name}, Link: fmt.Sprintf("cali%d", i), Addrs: []netip.Addr{[]netip.Addr{p.from, p.to}[i]},
			Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "t", Ingress: ids, Egress: ids}}}),
		})
	}
	return b
}

const (
	quiet           = 5000 // the server answers what it is sent
	serverStreams   = 5001
	clientStreams   = 5002
	datagrams       = 5003
	wantRevoked     = 30
	wantUndisturbed = 970
)

// stream is a flow that never rests, and what came through it.
type stream struct{ bytes atomic.Int64 }

func (s *stream) write(w io.Writer) {
	for block := make([]byte, 512); ; {
		if _, err := w.Write(block); err != nil {
			return
		}
		// A short delay, so that thirty streams leave some of the machine to the test.
		<-time.After(time.Millisecond)
	}
}

func (s *stream) read(r io.Reader) {
	for block := make([]byte, 4096); ; {
		n, err := r.Read(block)
		s.bytes.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// serve accepts connections to a port for as long as the test lasts.
func (p *pair) serve(port uint16, f func(net.Conn)) {
	p.t.Helper()
	l, err := p.server.ListenTCP(netip.AddrPortFrom(p.to, port))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f(c)
		}
	}()
}

func (p *pair) dial(port uint16) net.Conn {
	p.t.Helper()
	c, err := p.client.DialTCP(netip.AddrPort{}, netip.AddrPortFrom(p.to, port), time.Now().Add(patience))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

// streams opens ten flows of each kind that the policy will deny.
func (p *pair) streams() []*stream {
	p.t.Helper()
	var all []*stream
	p.serve(serverStreams, func(c net.Conn) { (&stream{}).write(c) })
	received := make(chan net.Conn, 10)
	p.serve(clientStreams, func(c net.Conn) { received <- c })
	for range 10 {
		s, up := &stream{}, &stream{}
		go s.read(p.dial(serverStreams))
		c := p.dial(clientStreams)
		go up.write(c)
		go up.read(<-received)
		all = append(all, s, up)
	}
	for i := range 10 {
		s := &stream{}
		l, err := p.server.ListenUDP(netip.AddrPortFrom(p.to, datagrams+uint16(i)))
		if err != nil {
			p.t.Fatal(err)
		}
		c, err := p.client.ListenUDP(netip.AddrPortFrom(p.from, 7000+uint16(i)))
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { _ = l.Close(); _ = c.Close() })
		go s.read(l)
		go s.write(to{c, l.LocalAddr()})
		all = append(all, s)
	}
	return all
}

// to sends datagrams to one address. A full queue is no end.
type to struct {
	*net.UDPConn
	dst net.Addr
}

func (t to) Write(b []byte) (int, error) { return t.WriteTo(b, t.dst) }

func (p *pair) moving(all []*stream, what string) {
	p.t.Helper()
	before := count(all)
	for deadline := time.Now().Add(patience); ; {
		still := 0
		for i, s := range all {
			if s.bytes.Load() == before[i] {
				still++
			}
		}
		if still == 0 {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %d of %d streams stand still", what, still, len(all))
		}
		<-time.After(10 * time.Millisecond)
	}
}

// silent waits until nothing arrives for a second, by ten looks: streams never rest, so one that is not cut has none; and a process that does not run
// does not look. What was on its way may be long in coming on a busy machine.
func (p *pair) silent(all []*stream, what string) {
	p.t.Helper()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	before, quiet := count(all), 0
	for deadline := time.Now().Add(patience); quiet < 10; {
		<-look.C
		now := count(all)
		if quiet++; !slices.Equal(before, now) {
			quiet = 0
		}
		if quiet == 0 && time.Now().After(deadline) {
			p.t.Errorf("%s: bytes come through: of each %v, and %v at the next look", what, before, now)
			return
		}
		before = now
	}
}

func count(all []*stream) []int64 {
	out := make([]int64, len(all))
	for i, s := range all {
		out[i] = s.bytes.Load()
	}
	return out
}

// TestFlowsThatPolicyDeniesDieAndTheOthersLoseNothing is criterion 4 of issue 4.
func TestFlowsThatPolicyDeniesDieAndTheOthersLoseNothing(t *testing.T) {
	for _, family := range [][2]string{{"10.65.0.1", "10.65.0.2"}, {"fd65::a", "fd65::b"}} {
		t.Run(family[0], func(t *testing.T) {
			p := newPair(t, family[0], family[1])
			p.start()
			p.serve(quiet, func(c net.Conn) { _, _ = io.Copy(c, c) })
			var others []net.Conn
			for range wantUndisturbed {
				others = append(others, p.dial(quiet))
			}
			exchange := func() {
				t.Helper()
				for i, c := range others {
					if err := netnstest.Exchange(c, time.Now().Add(patience)); err != nil {
						t.Fatalf("flow %d, which no rule denies: %v", i, err)
					}
				}
			}
			exchange()
			all := p.streams()
			p.moving(all, "before the change")

			deny := denied(17, datagrams)
			deny.Dst.Ports[0].Max = datagrams + 9
			x := p.apply(policy(denied(6, serverStreams), denied(6, clientStreams), deny))
			if x.Revoked != wantRevoked || x.Restored != 0 {
				t.Errorf("%d flows revoked and %d restored, want %d and 0: %+v", x.Revoked, x.Restored, wantRevoked, x)
			}
			exchange()
			p.silent(all, "after the commit")
			exchange()

			x = p.apply(policy())
			if x.Restored+x.Revoked != 0 {
				t.Errorf("the pass restores %d flows and revokes %d: what is allowed again lives before it: %+v", x.Restored, x.Revoked, x)
			}
			p.moving(all, "after the change back")
			exchange()
		})
	}
}
