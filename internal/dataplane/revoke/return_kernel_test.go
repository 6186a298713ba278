package revoke_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// talk is a connection on which both ends speak all the time, and what came through it.
type talk struct{ up, down stream }

// talks opens one to a port of the server.
func (l *looped) talks(port uint16) *talk {
	l.t.Helper()
	x := &talk{}
	accepted := make(chan net.Conn, 1)
	l.serve(port, func(c net.Conn) { accepted <- c })
	c := l.dial(port)
	s := <-accepted
	go x.up.write(c)
	go x.up.read(s)
	go x.down.write(s)
	go x.down.read(c)
	return x
}

func (x *talk) streams() []*stream { return []*stream{&x.up, &x.down} }

func removed(name string) intent.Batch {
	return intent.Batch{Removed: []intent.Key{intent.EndpointID{Kind: intent.Workload, Namespace: "prod", Name: name}}}
}

// again is one of the two endpoints, as it was, under a name.
func (l *looped) again(which int, name string) intent.Batch {
	b := l.workloads(intent.Batch{})
	b.Endpoints = b.Endpoints[which : which+1]
	b.Endpoints[0].ID.Name = name
	return b
}

// inForce waits for the pass that follows a batch.
func (l *looped) inForce(b intent.Batch) {
	l.t.Helper()
	for len(l.passes) > 0 {
		<-l.passes
	}
	l.batches <- b
	select {
	case x := <-l.passes:
		if x.Err != nil {
			l.t.Fatal(x.Err)
		}
	case <-time.After(patience):
		l.t.Fatal("no pass after a change")
	}
}

// TestWhatPolicyDeniesStaysCutWhenAWorkloadReturns: an endpoint is deleted and written again under a policy that denies one of
// its connections, to itself or, by its own egress, from itself. The other end is a workload of the host, or of another.
func TestWhatPolicyDeniesStaysCutWhenAWorkloadReturns(t *testing.T) {
	deny := policy(denied(6, clientStreams))
	for _, tt := range []struct {
		name   string
		which  int  // of the endpoints goes and returns
		alone  bool // the other end is not of this host
		before bool // policy denies before the endpoint goes, not while it is gone
		egress bool // of the client denies
	}{
		{"the server, of a client of its host", 1, false, true, false},
		{"the server, of a client elsewhere", 1, true, true, false},
		{"the server, while policy changes, of a client of its host", 1, false, false, false},
		{"the server, while policy changes, of a client elsewhere", 1, true, false, false},
		{"the client, whose egress is denied, of a server of its host", 0, false, true, true},
		{"the client, whose egress is denied, of a server elsewhere", 0, true, true, true},
		{"the client, whose egress came to be denied, of a server elsewhere", 0, true, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLooped(t)
			name := []string{"client", "server"}[tt.which]
			all := l.workloads(policy())
			if tt.alone {
				all.Endpoints = all.Endpoints[tt.which : tt.which+1]
				l.policyLeavesAlone(1 - tt.which)
			}
			deny := deny
			if tt.egress {
				deny = policy()
				deny.Policies[0].Egress = append([]intent.Rule{denied(6, clientStreams)}, deny.Policies[0].Egress...)
			}
			l.inForce(all)
			x, other := l.talks(clientStreams), l.talks(serverStreams)
			l.moving(append(x.streams(), other.streams()...), "before the change")
			if tt.before {
				l.inForce(deny)
				l.silent(x.streams(), "denied")
			}
			l.inForce(removed(name))
			l.silent(x.streams(), "without the endpoint")
			if !tt.before {
				l.batches <- deny
			}
			l.batches <- l.again(tt.which, name)
			l.moving(other.streams(), "a flow that is allowed, after the endpoint returned")
			l.silent(x.streams(), "after the endpoint returned")
			l.inForce(policy())
			l.moving(x.streams(), "allowed again")
		})
	}
}

// policyLeavesAlone renames an end's interface, so that no policy of workloads concerns it: it is as if it were elsewhere.
func (l *looped) policyLeavesAlone(which int) {
	l.t.Helper()
	link, a := fmt.Sprintf("cali%d", which), []netip.Addr{l.from, l.to}[which]
	l.host.Run("ip", "link", "set", link, "down")
	l.host.Run("ip", "link", "set", link, "name", "uplink")
	l.host.Run("ip", "link", "set", "uplink", "up")
	l.host.Route(netip.PrefixFrom(a, a.BitLen()).String() + " dev uplink")
}

// TestWhoGetsAnAddressInheritsNothing: a workload of another name gets the address of one that went.
func TestWhoGetsAnAddressInheritsNothing(t *testing.T) {
	l := newLooped(t)
	l.begin(policy())
	c, err := l.client.ListenUDP(netip.AddrPortFrom(l.from, 7000))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s, err := l.server.ListenUDP(netip.AddrPortFrom(l.to, 7000))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	in := &stream{}
	go in.read(c)
	if _, err := c.WriteTo([]byte("x"), s.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	go (&stream{}).write(to{s, c.LocalAddr()})
	l.moving([]*stream{in}, "answers")
	l.inForce(removed("client"))
	deny := policy()
	deny.Policies[0].Egress = append([]intent.Rule{denied(17, 7000)}, deny.Policies[0].Egress...)
	l.batches <- deny // of the server, too: only as an answer may its words pass
	l.silent([]*stream{in}, "without the endpoint")
	before := in.bytes.Load()
	l.batches <- l.again(0, "other")
	probe := l.dial(allowed)
	l.lives(probe, "a new flow of the new workload")
	<-time.After(time.Second)
	if n := in.bytes.Load(); n != before {
		t.Errorf("the new workload got %d bytes of what the former had asked for", n-before)
	}
}

// TestWhoGetsAnAddressWaitsForNoReading: when the workload that had it has gone and was looked at, the kernel's table of connections cannot be read
// any more. Another gets the address, and is in force at once; it gets nothing of what the former had asked for, nor does what it sends on
// the former's flows arrive where policy denies it.
func TestWhoGetsAnAddressWaitsForNoReading(t *testing.T) {
	for _, family := range [][2]string{{"10.65.0.1", "10.65.0.2"}, {"fd65::a", "fd65::b"}} {
		t.Run(family[0], func(t *testing.T) {
			l := newLooped(t, family[0], family[1])
			l.begin(policy())
			forth, back := l.datagramFlow(datagrams)
			l.inForce(removed("client"))
			l.table.fails.Store(true)
			next := l.again(0, "other") // of a policy of its own, which alone denies the flow, in either direction
			deny := policy(denied(17, datagrams)).Policies[0]
			deny.ID.Name, deny.Egress = "q", deny.Ingress
			next.Policies, next.Endpoints[0].Group = []intent.Policy{deny}, intent.GroupOf(intent.Stages{Normal: []intent.Tier{{
				Name: "t", Ingress: []intent.PolicyID{deny.ID}, Egress: []intent.PolicyID{deny.ID},
			}}})
			l.batches <- next
			probe := l.dial(allowed) // is patient, while the workload is not in force
			l.lives(probe, "a new flow of the new workload")
			if n := l.table.failed.Load(); n != 0 {
				t.Errorf("the table was to be read %d times for it", n)
			}
			if n := back.arrive(t, 50, netnstest.Silence); n != 0 {
				t.Errorf("the new workload gets %d packets of a flow of the former", n)
			}
			if n := forth.arrive(t, 50, netnstest.Silence); n != 0 {
				t.Errorf("%d packets of the new workload pass by a flow of the former", n)
			}
		})
	}
}
