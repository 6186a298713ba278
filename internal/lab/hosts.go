package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

const (
	uplink         = "eth0" // of hosts, and of workloads in their own namespace
	switchBridge   = "br0"  // in the switch's namespace: all hosts are on it
	protocolStatic = 4      // RTPROT_STATIC: an administrator's route, rtnetlink(7)
)

var (
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fe80::1")
	world4   = netip.MustParsePrefix("0.0.0.0/0")
	world6   = netip.MustParsePrefix("::/0")
)

// place is an open network namespace with its routing netlink handle.
type place struct {
	ns *netns.Handle
	nl *rtnl.Handle
}

// create makes a namespace with loopback up and no wait for duplicate addresses: all of the lab's are its own.
func create(name string) (*place, error) {
	ns, err := netns.Create(name)
	if err != nil {
		return nil, err
	}
	return enter(ns, func(p *place) error {
		err := ns.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0o644)
		})
		return errors.Join(err, p.up("lo"))
	})
}

func open(name string) (*place, error) {
	ns, err := netns.Open(name)
	if err != nil {
		return nil, err
	}
	return enter(ns, func(*place) error { return nil })
}

func enter(ns *netns.Handle, prepare func(*place) error) (*place, error) {
	nl, err := rtnl.OpenIn(ns)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	p := &place{ns, nl}
	if err := prepare(p); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *place) close() {
	p.nl.Close()
	_ = p.ns.Close()
}

func (p *place) up(link string) error {
	l, err := p.nl.Link(link)
	if err != nil {
		return err
	}
	return p.nl.SetUp(l.Index, true)
}

// address gives a link its addresses.
func (p *place) address(link string, addrs ...netip.Prefix) error {
	l, err := p.nl.Link(link)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		err = errors.Join(err, p.nl.AddAddr(rtnl.Addr{Link: l.Index, Prefix: a}))
	}
	return err
}

func (p *place) route(link string, dst netip.Prefix, via netip.Addr) error {
	l, err := p.nl.Link(link)
	if err != nil {
		return err
	}
	return p.nl.AddRoute(rtnl.Route{Dst: dst, Link: l.Index, Gateway: via, Protocol: protocolStatic, OnLink: via.IsValid()})
}

// makeHosts makes the hosts' namespaces and their common link. Routes to each other's workloads are BGP's.
func (l *Lab) makeHosts() error {
	sw, err := create(l.Spec.switchNS())
	if err != nil {
		return err
	}
	defer sw.close()
	if err := errors.Join(sw.nl.AddBridge(switchBridge), sw.up(switchBridge)); err != nil {
		return err
	}
	bridge, err := sw.nl.Link(switchBridge)
	if err != nil {
		return err
	}
	for _, h := range l.Spec.Hosts {
		if err := l.makeHost(sw, bridge.Index, h); err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	return nil
}

func (l *Lab) makeHost(sw *place, bridge int, h Host) error {
	p, err := create(l.Spec.hostNS(h))
	if err != nil {
		return err
	}
	defer p.close()
	if err := sw.nl.AddVeth(rtnl.Veth{Name: h.Name, Peer: uplink, PeerIn: p.ns}); err != nil {
		return err
	}
	port, err := sw.nl.Link(h.Name)
	if err != nil {
		return err
	}
	return errors.Join(sw.nl.SetMaster(port.Index, bridge), sw.up(h.Name), p.up(uplink),
		p.address(uplink, netip.PrefixFrom(h.V4, 24), netip.PrefixFrom(h.V6, 64)))
}

// makeWorkload makes a workload's namespace and veth pair, and nothing else: nobody has assigned its addresses, and no
// endpoint says whose they are.
func (l *Lab) makeWorkload(w Workload) error {
	h, ok := l.Spec.host(w.Host)
	if !ok {
		return fmt.Errorf("no host %s", w.Host)
	}
	host, err := open(l.Spec.hostNS(*h))
	if err != nil {
		return err
	}
	defer host.close()
	p, err := create(l.Spec.workloadNS(w))
	if err != nil {
		return err
	}
	defer p.close()
	if err := host.nl.AddVeth(rtnl.Veth{Name: w.link(), Peer: uplink, PeerIn: p.ns}); err != nil {
		return err
	}
	// The workload is made ready first, so that it can answer as soon as its host's end is up.
	return errors.Join(
		p.address(uplink, netip.PrefixFrom(w.V4, 32), netip.PrefixFrom(w.V6, 128)),
		p.up(uplink),
		host.up(w.link()),
		p.route(uplink, netip.PrefixFrom(gateway4, 32), netip.Addr{}),
		p.route(uplink, world4, gateway4),
		p.route(uplink, world6, gateway6),
	)
}
