package nft

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// closedWorkload is a host that drops whatever workload a sends and receives, as far as policy can say so: its own, and that of the host endpoint for
// all interfaces before DNAT.
func closedWorkload(t *testing.T) *hosted {
	h := newHosted(t)
	deny := []intent.Rule{{Action: intent.Deny}}
	p, all := pol("deny", deny, deny), hep("*")
	q := pol("early", deny, nil)
	intenttest.PreDNAT(&all, ask(q, in)...)
	b := pair([]intent.Tier{tier("t", intent.Deny, ids("deny"), ids("deny"))}, p, q)
	b.Endpoints = append(b.Endpoints, all)
	h.d.Merge(b)
	apply(t, h.d)
	return h
}

func TestEveryWorkloadMayAskItsHostForAnAddress(t *testing.T) {
	h := closedWorkload(t)
	for i, service := range []struct {
		name             string
		client, at, next uint16
	}{{"DHCP", 68, 67, 69}, {"DHCPv6", 546, 547, 548}} {
		for _, tt := range []struct {
			name     string
			from, to uint16
			want     bool
		}{
			{"a client", service.client, service.at, true},
			{"from another port", 999, service.at, false},
			{"to another port", service.client, service.next, false},
		} {
			t.Run(service.name+", "+tt.name, func(t *testing.T) {
				p := netnstest.Probe{From: h.a, To: h.ns, Proto: "udp", SrcPort: tt.from, Dst: netip.AddrPortFrom(netip.MustParseAddr(addrs["host"][i]), tt.to)}
				within := netnstest.Silence
				if tt.want {
					within = netnstest.Patience
				}
				if err := try(p, within); (err == nil) != tt.want {
					t.Errorf("%s: %v", p, err)
				}
			})
		}
	}
}

// TestDNSOfTheHostNeedsNoPolicyIfSettingsSayIt, whatever the action for what goes to the host is, in both forms; it begins and ends with the setting.
// Policy before DNAT is asked, as upstream's is.
func TestDNSOfTheHostNeedsNoPolicyIfSettingsSayIt(t *testing.T) {
	h := newHosted(t)
	closed := pol("closed", nil, []intent.Rule{{Action: intent.Deny}})
	b := pair([]intent.Tier{tier("t", intent.Deny, nil, ids("closed"))}, closed)
	set := func(s intent.HostSettings) {
		b.Host = &s
		h.d.Merge(b)
		apply(t, h.d)
	}
	for _, compiled := range []bool{false, true} {
		for _, action := range []intent.ToHost{intent.ToHostDrop, intent.ToHostReturn} {
			set(intent.HostSettings{EndpointToHost: action, Compiled: compiled})
			h.check(t, "!a>host udp/53")
			set(intent.HostSettings{EndpointToHost: action, Compiled: compiled, DNS: true})
			h.check(t, "a>host udp/53", "b>host udp/53", "!a>host tcp/53", "!a>host udp/54", "!a>out udp/53", "!a>b udp/53")
		}
	}
	all, early := hep("*"), pol("early", []intent.Rule{{Action: intent.Deny, Protocol: 17}}, nil)
	intenttest.PreDNAT(&all, ask(early, in)...)
	b.Policies, b.Endpoints = append(b.Policies, early), append(b.Endpoints, all)
	set(intent.HostSettings{DNS: true})
	h.check(t, "!a>host udp/53")
}

// TestNeighbourDiscoveryIsAlwaysAnswered sends solicitations and advertisements, of routers and of neighbours, from a workload, which is no router of its host.
func TestNeighbourDiscoveryIsAlwaysAnswered(t *testing.T) {
	h := closedWorkload(t)
	var in *net.IPConn
	var err error
	h.ns.Do(func() { in, err = net.ListenIP("ip6:ipv6-icmp", nil) })
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	const echo, last = 128, 136
	h.a.Do(func() {
		// By its number: package net remembers which interface a name stands for, and each namespace has an eth0.
		out, err := net.Dial("ip6:ipv6-icmp", fmt.Sprintf("fe80::1:1%%%d", h.a.Link("eth0").Index))
		if err != nil {
			t.Error(err)
			return
		}
		defer out.Close()
		for _, kind := range []byte{echo, 133, 134, 135, last} {
			m := make([]byte, 24)
			if m[0] = kind; kind != echo {
				m[23] = 77 // what tells it from those of the kernel
			}
			if _, err := out.Write(m); err != nil {
				t.Error(err)
			}
		}
	})
	received, b := map[byte]bool{}, make([]byte, 100)
	for !received[last] {
		if err := in.SetReadDeadline(time.Now().Add(netnstest.Patience)); err != nil {
			t.Fatal(err)
		}
		n, _, err := in.ReadFrom(b)
		if err != nil {
			t.Fatalf("received %v: %v", received, err)
		}
		if b[0] == echo || n == 24 && b[23] == 77 {
			received[b[0]] = true
		}
	}
	for kind, want := range map[byte]bool{echo: false, 133: true, 134: false, 135: true, last: true} {
		if received[kind] != want {
			t.Errorf("ICMPv6 type %d arrived: %v, want %v", kind, received[kind], want)
		}
	}
}

// TestRouterAdvertisementsReachWorkloads: what the host advertises reaches a workload that policy lets nothing to.
func TestRouterAdvertisementsReachWorkloads(t *testing.T) {
	h := closedWorkload(t)
	h.check(t, "!out>a icmp")
	var in *net.IPConn
	var err error
	h.a.Do(func() { in, err = net.ListenIP("ip6:ipv6-icmp", nil) })
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	const advertisement, mark = 134, 77
	h.ns.Do(func() {
		out, err := net.Dial("ip6:ipv6-icmp", addrs["a"][1])
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		m := make([]byte, 24)
		m[0], m[23] = advertisement, mark
		if _, err := out.Write(m); err != nil {
			t.Fatal(err)
		}
	})
	for b := make([]byte, 100); ; {
		if err := in.SetReadDeadline(time.Now().Add(netnstest.Patience)); err != nil {
			t.Fatal(err)
		}
		n, _, err := in.ReadFrom(b)
		if err != nil {
			t.Fatalf("no router advertisement is received: %v", err)
		}
		if n == 24 && b[0] == advertisement && b[23] == mark {
			return
		}
	}
}
