package iptables

import (
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// between is a host between a workload on cali1 and an outside behind eth0, with rules of others in its tables.
type between struct {
	driven
	workload, outside *netnstest.NS
}

// addresses of the workload, the outside and the host, IPv4 and IPv6.
var (
	atWorkload = [2]string{"10.65.0.5", "fd65::5"}
	atOutside  = [2]string{"192.0.2.2", "fd00::2"}
	atHost     = [2]string{"192.0.2.1", "fd00::1"}
)

func newBetween(t *testing.T, k tools) *between {
	t.Helper()
	b := &between{newDriven(t, k), netnstest.New(t), netnstest.New(t)}
	k.Forward()
	k.VethTo(b.workload, "cali1", "eth0")
	k.VethTo(b.outside, "eth0", "eth0")
	k.Addr("cali1", "169.254.1.1/32", "fe80::1:1/64")
	k.Addr("eth0", atHost[0]+"/24", atHost[1]+"/64")
	b.workload.Addr("eth0", atWorkload[0]+"/32", atWorkload[1]+"/128")
	b.outside.Addr("eth0", atOutside[0]+"/24", atOutside[1]+"/64")
	for _, route := range []string{atWorkload[0] + " dev cali1", atWorkload[1] + "/128 dev cali1"} {
		k.Route(route)
	}
	for _, route := range []string{"169.254.1.1 dev eth0 scope link", "default via 169.254.1.1 dev eth0", "::/0 via fe80::1:1 dev eth0"} {
		b.workload.Route(route)
	}
	for _, route := range []string{"default via " + atHost[0], "::/0 via " + atHost[1]} {
		b.outside.Route(route)
	}
	return b
}

// others runs commands of iptables, of both families, as another program would.
func (b *between) others(args ...string) {
	b.t.Helper()
	for _, name := range []string{"iptables-", "ip6tables-"} {
		b.k.Run(name+b.k.backend, append([]string{"-w", "60"}, args...)...)
	}
}

// check probes TCP ports in both families.
func (b *between) check(from, to *netnstest.NS, at [2]string, port uint16, reaches bool) {
	b.t.Helper()
	for _, a := range at {
		p := netnstest.Probe{From: from, To: to, Proto: "tcp", Dst: netip.AddrPortFrom(netip.MustParseAddr(a), port)}
		within := netnstest.Patience
		if !reaches {
			within = netnstest.Silence
		}
		if err := try(p, within); (err == nil) != reaches {
			b.t.Errorf("%s, which should pass: %v: %v", p, reaches, err)
		}
	}
	if b.t.Failed() {
		b.t.Fatal(b.everything())
	}
}

// try probes, and tries again while the port is still an earlier probe's, whose listener lives until its goroutine has seen that it is closed.
func try(p netnstest.Probe, within time.Duration) error {
	for deadline := time.Now().Add(netnstest.Patience); ; runtime.Gosched() {
		if err := p.Try(within); !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
	}
}

// oneWorkload receives TCP at port 80, and sends to ports 81 and 82.
func oneWorkload(host intent.HostSettings) intent.Batch {
	id := intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: "web"}
	tcp := func(port uint16) intent.Rule {
		return intent.Rule{Action: intent.Allow, Protocol: 6, Dst: intent.Peer{Ports: []intent.PortRange{{Min: port, Max: port}}}}
	}
	return intent.Batch{
		InSync: true, Host: &host, Policies: []intent.Policy{{ID: id, Ingress: []intent.Rule{tcp(80)}, Egress: []intent.Rule{tcp(81), tcp(82)}}},
		Endpoints: []intent.Endpoint{{
			ID: pod, Label: "prod/web-0", Link: "cali1",
			Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "default", Default: intent.Deny, Ingress: []intent.PolicyID{id}, Egress: []intent.PolicyID{id}}}}),
		}},
	}
}

// oneHost has policy for an interface of the host, "*" for all: in all that comes to port 80 is allowed, before DNAT, to the host, and through it.
func oneHost(link string, host intent.HostSettings) intent.Batch {
	id := intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "in"}
	tiers := []intent.Tier{{Name: "default", Default: intent.Deny, Ingress: []intent.PolicyID{id}}}
	return intent.Batch{
		InSync: true, Host: &host,
		Policies:  []intent.Policy{{ID: id, Ingress: []intent.Rule{{Action: intent.Allow, Protocol: 6, Dst: intent.Peer{Ports: []intent.PortRange{{Min: 80, Max: 80}}}}}}},
		Endpoints: []intent.Endpoint{{ID: intent.EndpointID{Kind: intent.Host, Name: "h1"}, Link: link, Group: intent.GroupOf(intent.Stages{PreDNAT: tiers, Normal: tiers, Forward: tiers})}},
	}
}

// TestWhatPolicyAllowsPassesWhereOthersDrop: where the policy of chain FORWARD is DROP, as Docker makes it, workloads have what policy allows, unless
// settings leave that to others.
func TestWhatPolicyAllowsPassesWhereOthersDrop(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		b.others("-P", "FORWARD", "DROP")
		b.check(b.outside, b.workload, atWorkload, 80, false)
		b.apply(oneWorkload(intent.HostSettings{}))
		b.check(b.outside, b.workload, atWorkload, 80, true)
		b.check(b.workload, b.outside, atOutside, 81, true)
		b.check(b.outside, b.workload, atWorkload, 83, false)
		b.check(b.workload, b.outside, atOutside, 83, false)

		returned := intent.HostSettings{IPTables: intent.IPTablesSettings{FilterReturn: true}}
		b.apply(intent.Batch{Host: &returned})
		b.check(b.outside, b.workload, atWorkload, 80, false)
		b.others("-A", "FORWARD", "-p", "tcp", "--dport", "80", "-j", "ACCEPT")
		b.others("-A", "FORWARD", "-p", "tcp", "--sport", "80", "-j", "ACCEPT")
		b.check(b.outside, b.workload, atWorkload, 80, true)
		b.check(b.workload, b.outside, atOutside, 81, false)
	})
}

// TestAnInterfaceThatNobodyProgrammedCarriesNothing, whatever others accept.
func TestAnInterfaceThatNobodyProgrammedCarriesNothing(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		b.others("-A", "FORWARD", "-j", "ACCEPT")
		b.check(b.outside, b.workload, atWorkload, 80, true)
		b.apply(oneWorkload(intent.HostSettings{}))
		b.check(b.outside, b.workload, atWorkload, 80, true)
		b.apply(intent.Batch{Removed: []intent.Key{pod}})
		b.check(b.outside, b.workload, atWorkload, 80, false)
		b.check(b.workload, b.outside, atOutside, 81, false)
		b.check(b.workload, b.k.NS, atHost, 81, false)
	})
}

// TestWhatIsSentToTheHostIsAcceptedIfSettingsSayIt: else it is as others decide.
func TestWhatIsSentToTheHostIsAcceptedIfSettingsSayIt(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		b.others("-P", "INPUT", "DROP")
		b.others("-A", "INPUT", "-p", "icmpv6", "-j", "ACCEPT")
		for _, tt := range []struct {
			host    intent.HostSettings
			reaches bool
		}{
			{intent.HostSettings{EndpointToHost: intent.ToHostAccept}, true},
			{intent.HostSettings{EndpointToHost: intent.ToHostReturn}, false},
			{intent.HostSettings{EndpointToHost: intent.ToHostAccept, IPTables: intent.IPTablesSettings{FilterReturn: true}}, false},
		} {
			b.apply(oneWorkload(tt.host))
			b.check(b.workload, b.k.NS, atHost, 81, tt.reaches)
			b.check(b.workload, b.k.NS, atHost, 83, false)
			b.check(b.outside, b.k.NS, atHost, 81, false)
		}
	})
}

// TestWhatAHostEndpointAllowsIsAccepted, of one interface or of all, in both tables.
func TestWhatAHostEndpointAllowsIsAccepted(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		for _, chain := range []string{"INPUT", "FORWARD"} {
			b.others("-P", chain, "DROP")
		}
		b.others("-A", "FORWARD", "-i", "cali1", "-j", "ACCEPT") // answers: the workload here is nobody's
		b.others("-A", "INPUT", "-i", "cali1", "-p", "icmpv6", "-j", "ACCEPT")
		for _, link := range []string{"eth0", "*"} {
			settings := intent.HostSettings{Prefixes: []string{"tap"}}
			b.apply(oneHost(link, settings))
			b.check(b.outside, b.k.NS, atHost, 80, true)
			b.check(b.outside, b.k.NS, atHost, 81, false)
			b.check(b.outside, b.workload, atWorkload, 80, true)
			b.check(b.outside, b.workload, atWorkload, 81, false)
			settings.IPTables.FilterReturn = true
			b.apply(intent.Batch{Host: &settings})
			b.check(b.outside, b.k.NS, atHost, 80, false)
			b.check(b.outside, b.workload, atWorkload, 80, false)
		}
	})
}

// TestWhatAHostEndpointAllowsOutIsAccepted where the policy of chain OUTPUT is DROP, of one interface or of all: not what others translate, which is asked
// later, nor what goes to workloads.
func TestWhatAHostEndpointAllowsOutIsAccepted(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		b.others("-P", "OUTPUT", "DROP")
		b.others("-A", "OUTPUT", "-p", "icmpv6", "-j", "ACCEPT")
		server := netip.AddrPortFrom(netip.MustParseAddr(atOutside[0]), 80)
		k.Run("iptables-"+k.backend, "-w", "60", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "8080", "-j", "DNAT", "--to-destination", server.String())
		id := intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "out"}
		tiers := []intent.Tier{{Name: "default", Default: intent.Deny, Egress: []intent.PolicyID{id}}}
		b.apply(intent.Batch{
			InSync: true, Host: &intent.HostSettings{},
			Policies: []intent.Policy{{ID: id, Egress: []intent.Rule{{Action: intent.Allow, Protocol: 6, Dst: intent.Peer{Ports: []intent.PortRange{{Min: 80, Max: 80}}}}}}},
		})
		b.check(k.NS, b.outside, atOutside, 80, false)
		for _, link := range []string{"eth0", "*"} {
			host := intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "h1"}, Link: link, Group: intent.GroupOf(intent.Stages{Normal: tiers})}
			b.apply(intent.Batch{Host: &intent.HostSettings{}, Endpoints: []intent.Endpoint{host}})
			b.check(k.NS, b.outside, atOutside, 80, true)
			b.check(k.NS, b.outside, atOutside, 81, false)
			b.check(k.NS, b.workload, atWorkload, 80, false)
			b.dials(server, 8080, false)
			b.apply(intent.Batch{Host: &intent.HostSettings{IPTables: intent.IPTablesSettings{FilterReturn: true}}})
			b.check(k.NS, b.outside, atOutside, 80, false)
		}
		b.others("-A", "OUTPUT", "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT")
		b.dials(server, 8080, true)
	})
}

// dials has the host connect to another port than that of a server outside.
func (b *between) dials(server netip.AddrPort, port uint16, reaches bool) {
	b.t.Helper()
	l, err := b.outside.ListenTCP(server)
	if err != nil {
		b.t.Fatal(err)
	}
	defer l.Close()
	within := netnstest.Patience
	if !reaches {
		within = netnstest.Silence
	}
	c, err := b.k.DialTCP(netip.AddrPort{}, netip.AddrPortFrom(server.Addr(), port), time.Now().Add(within))
	if (err == nil) != reaches {
		b.t.Fatalf("port %d, translated to %s, should be reached: %v: %v\n%s", port, server, reaches, err, b.everything())
	}
	if err == nil {
		_ = c.Close()
	}
}

// TestTableMangleHasASettingOfItsOwn, for what is allowed before DNAT.
func TestTableMangleHasASettingOfItsOwn(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		b.others("-t", "mangle", "-A", "PREROUTING", "-p", "tcp", "-j", "DROP")
		b.apply(oneHost("eth0", intent.HostSettings{}))
		b.check(b.outside, b.k.NS, atHost, 80, true)
		b.apply(oneHost("eth0", intent.HostSettings{IPTables: intent.IPTablesSettings{MangleReturn: true}}))
		b.check(b.outside, b.k.NS, atHost, 80, false)
	})
}

// TestWhatIsDeniedIsRejectedIfSettingsSayIt: who is refused knows it at once.
func TestWhatIsDeniedIsRejectedIfSettingsSayIt(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		for _, reject := range []bool{true, false} {
			b.apply(oneWorkload(intent.HostSettings{IPTables: intent.IPTablesSettings{Reject: reject}}))
			b.check(b.outside, b.workload, atWorkload, 80, true)
			for _, a := range atWorkload {
				to := netip.AddrPortFrom(netip.MustParseAddr(a), 83)
				patience := netnstest.Silence
				if reject {
					patience = netnstest.Patience
				}
				c, err := b.outside.DialTCP(netip.AddrPort{}, to, time.Now().Add(patience))
				if err == nil {
					_ = c.Close()
				}
				if err == nil || errors.Is(err, syscall.ECONNREFUSED) != reject {
					t.Errorf("%s, rejected: %v: %v", to, reject, err)
				}
			}
		}
	})
}

// TestOursIsFirstOrAfterWhatIsThere, as settings say, and live.
func TestOursIsFirstOrAfterWhatIsThere(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		forward := func() string {
			out := ""
			for line := range strings.Lines(k.Run("iptables-"+k.backend, "-w", "60", "-S", "FORWARD")) {
				if target := strings.Fields(line); target[0] == "-A" {
					out += target[len(target)-1] + " "
				}
			}
			return strings.TrimSpace(out)
		}
		last := intent.HostSettings{IPTables: intent.IPTablesSettings{Append: true}}
		b.others("-A", "FORWARD", "-p", "tcp", "--dport", "83", "-j", "ACCEPT")
		for _, tt := range []struct {
			name   string
			before func() // what others do
			batch  intent.Batch
			want   string
			reach  bool // what others accept, and policy does not allow
		}{
			{"first", func() {}, oneWorkload(intent.HostSettings{}), "tw-forward ACCEPT", false},
			{"the setting changes", func() {}, intent.Batch{Host: &last}, "ACCEPT tw-forward", true},
			{"somebody appends", func() { b.others("-A", "FORWARD", "-j", "RETURN") }, intent.Batch{}, "ACCEPT tw-forward RETURN", true},
			{"somebody deletes it", func() { b.others("-D", "FORWARD", "-j", "tw-forward") }, intent.Batch{}, "ACCEPT RETURN tw-forward", true},
			{"and back", func() {}, intent.Batch{Host: &intent.HostSettings{}}, "tw-forward ACCEPT RETURN", false},
		} {
			tt.before()
			if err := b.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.apply(tt.batch)
			if got := forward(); got != tt.want {
				t.Errorf("%s: FORWARD is %q, want %q", tt.name, got, tt.want)
			}
			b.check(b.outside, b.workload, atWorkload, 80, true)
			b.check(b.outside, b.workload, atWorkload, 83, tt.reach)
			if d, err := b.Differences(t.Context()); err != nil || len(d) > 0 {
				t.Errorf("%s: %v, %v", tt.name, d, err)
			}
		}
		b.apply(intent.Batch{Host: &last})
		next := b.again()
		next.apply(intent.Batch{Host: &intent.HostSettings{}}) // not in sync: it does not know the settings
		if got := forward(); got != "ACCEPT RETURN tw-forward" {
			t.Errorf("an agent that restarts moves it early: %q", got)
		}
	})
}
