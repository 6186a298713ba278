package lab

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// reach are packets both ways between a container's interface and another container.
func (c *container) reach(t *testing.T, peer *container) {
	t.Helper()
	c.reaches(t, peer, 80)
	for i, a := range c.addrs {
		netnstest.Probe{From: peer.NS, To: c.NS, Proto: "tcp", Src: peer.addrs[i], Dst: netip.AddrPortFrom(a, 80)}.WantReach(t)
	}
}

// twoInterfaces: a container's second interface, in the same network or another, comes and goes on its own, also while the agent is restarted.
func twoInterfaces(t *testing.T, r *caller) {
	net, two := r.list("net", both), r.list("two", both)
	for _, pod := range []bool{false, true} {
		for _, list := range []*libcni.NetworkConfigList{net, two} {
			t.Run(fmt.Sprintf("pod %v, second in %s", pod, list.Name), func(t *testing.T) {
				inner := *r
				inner.t = t
				inner.twoInterfaces(t, net, list, pod)
				inner.wantNothingLeft()
				r.made = inner.made
			})
		}
	}
}

func (r *caller) twoInterfaces(t *testing.T, net, list *libcni.NetworkConfigList, pod bool) {
	a, peer, peerOfB := r.container(), r.container(), r.container()
	if pod {
		a.pod("web")
		peer.pod("peer")
		peerOfB.pod("other")
		defer r.allowAll("kns.prod")()
	}
	b := a.again("net1")
	r.add(net, a)
	r.add(net, peer)
	r.add(list, peerOfB)
	result := r.add(list, b)
	works := func(when string, one *container) {
		t.Helper()
		l, p := net, peer
		if one == b {
			l, p = list, peerOfB
		}
		one.reach(t, p)
		if err := r.in(func() error { return r.cni.CheckNetworkList(t.Context(), l, one.conf) }); err != nil {
			t.Errorf("%s: CHECK of %s: %v", when, one.conf.IfName, err)
		}
	}
	works("at first", a)
	works("at first", b)
	if len(result.Routes) > 0 || strings.Count(a.Run("ip", "route", "show", "default")+a.Run("ip", "-6", "route", "show", "default"), "dev eth0") != 2 ||
		strings.Contains(a.Run("ip", "route")+a.Run("ip", "-6", "route", "show", "default"), "net1") {
		t.Errorf("main has\n%s%s, the result %v", a.Run("ip", "route"), a.Run("ip", "-6", "route"), result.Routes)
	}

	r.restartAgent(net)
	works("after a restart", a)
	works("after a restart", b)

	r.del(net, a)
	works("without the first", b)
	r.add(net, a)
	works("with a new first", a)
	works("with a new first", b)

	must(t, r.in(func() error {
		valid := []types.GCAttachment{{ContainerID: a.conf.ContainerID, IfName: "eth0"}, {ContainerID: peer.conf.ContainerID, IfName: "eth0"}, {ContainerID: peerOfB.conf.ContainerID, IfName: "eth0"}}
		return r.cni.GCNetworkList(t.Context(), list, &libcni.GCArgs{ValidAttachments: valid})
	}))
	works("after GC of the second", a)
	if links := a.Run("ip", "link"); strings.Contains(links, "net1") {
		t.Errorf("GC left the second: %s", links)
	}
	r.add(list, b)
	works("with a new second", b)
	r.del(list, b)
	works("without the second", a)
	for _, family := range []string{"-4", "-6"} {
		if rules := a.Run("ip", family, "rule"); strings.Contains(rules, b.addrs[0].String()) || strings.Contains(rules, b.addrs[1].String()) {
			t.Errorf("rules of the second stay: %s", rules)
		}
	}
	r.del(list, b)
	r.del(net, a)
	r.del(net, peer)
	r.del(list, peerOfB)
}

// restartAgent kills the host's agent, and returns when another one is ready.
func (r *caller) restartAgent(l *libcni.NetworkConfigList) {
	r.t.Helper()
	old := r.agentPID(r.Spec.Hosts[0])
	must(r.t, syscall.Kill(old, syscall.SIGKILL))
	await(r.t, "another agent is ready", func() bool {
		pid := r.agentPID(r.Spec.Hosts[0])
		return pid != 0 && pid != old && r.in(func() error { return r.cni.GetStatusNetworkList(r.t.Context(), l) }) == nil
	})
}

// secondUnderPolicy: what a policy denies is denied on each interface of a pod from the moment that ADD returns.
func secondUnderPolicy(t *testing.T, r *caller) {
	net, two := r.list("net", both), r.list("two", both)
	defer r.allowAll("kns.prod")()
	defer r.onlyPort80()()
	a, peer := r.container().pod("web"), r.container().pod("peer")
	b := a.again("net1")
	r.add(net, a)
	r.add(net, peer)
	r.add(two, b)
	for _, one := range []*container{a, b} {
		peer.reaches(t, one, 80)
		for i, addr := range one.addrs {
			netnstest.Probe{From: peer.NS, To: one.NS, Proto: "tcp", Src: peer.addrs[i], Dst: netip.AddrPortFrom(addr, 81)}.WantBlocked(t)
		}
	}
	must(t, a.Rtnl().DeleteRules(10_000+a.Link("net1").Index)) // then what comes from it leaves by the other's link, where nobody may use its address
	netnstest.Probe{From: peer.NS, To: b.NS, Proto: "tcp", Src: peer.addrs[0], Dst: netip.AddrPortFrom(b.addrs[0], 80)}.WantBlocked(t)
	r.del(two, b)
	r.del(net, a)
	r.del(net, peer)
}

func (r *caller) addFails(l *libcni.NetworkConfigList, c *container, want string) {
	r.t.Helper()
	err := r.in(func() error { _, err := r.cni.AddNetworkList(r.t.Context(), l, c.conf); return err })
	if err == nil || !strings.Contains(err.Error(), want) {
		r.t.Errorf("ADD says %v, want %q", err, want)
	}
}

// olderInterface: an older version called the link of each interface after the container, or the pod, alone. DEL takes it away.
func olderInterface(t *testing.T, r *caller) {
	l := r.list("net", both)
	defer r.allowAll("kns.prod")()
	for _, pod := range []bool{false, true} {
		c, peer := r.container(), r.container()
		if pod {
			c.pod("web")
			peer.pod("peer")
		}
		c = c.again("net1")
		ref := wire.Ref{Network: "net", ContainerID: c.conf.ContainerID, Ifname: "net1"}
		if pod {
			ref.Pod = &wire.Pod{Namespace: "prod", Name: "web"}
		}
		r.add(l, c)
		r.add(l, peer)
		near := r.link(ref.Link())
		must(t, r.host.nl.SetUp(near.Index, false))
		if out, err := r.host.ns.Output(t.Context(), "ip", "link", "set", near.Name, "name", ref.Links()[1]); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		must(t, r.host.nl.SetUp(near.Index, true))
		r.addFails(l, c.again("eth0"), "has the interface net1 of network net already, by "+ref.Links()[1])
		r.del(l, c)
		if _, err := r.host.nl.Link(ref.Links()[1]); err == nil {
			t.Errorf("pod %v: DEL left the link", pod)
		}
		r.del(l, peer)
	}
}
