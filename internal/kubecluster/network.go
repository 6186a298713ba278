package kubecluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

const (
	nsPrefix   = "twill-kube-"
	controlNS  = nsPrefix + "control"
	bridge     = "br0"        // in the control plane's namespace: all machines are on it
	uplink     = "eth0"       // of nodes
	userLink   = "twill-kube" // this machine's
	routeProto = 4            // RTPROT_STATIC: an administrator's route, rtnetlink(7)
)

// place is an open network namespace.
type place struct {
	ns *netns.Handle
	nl *rtnl.Handle
}

func enter(ns *netns.Handle, err error) (*place, error) {
	if err != nil {
		return nil, err
	}
	nl, err := rtnl.OpenIn(ns)
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return &place{ns, nl}, nil
}

func (p *place) close() {
	p.nl.Close()
	_ = p.ns.Close()
}

// up sets a link up, with addresses.
func (p *place) up(link string, addrs ...netip.Addr) error {
	l, err := p.nl.Link(link)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		err = errors.Join(err, p.nl.AddAddr(rtnl.Addr{Link: l.Index, Prefix: netip.PrefixFrom(a, prefixLength)}))
	}
	return errors.Join(err, p.nl.SetUp(l.Index, true))
}

// plug makes a link between the bridge, where it has the name port, and another namespace.
func (p *place) plug(port, peer string, in *netns.Handle) error {
	br, err := p.nl.Link(bridge)
	if err != nil {
		return err
	}
	if err := p.nl.AddVeth(rtnl.Veth{Name: port, Peer: peer, PeerIn: in}); err != nil {
		return err
	}
	l, err := p.nl.Link(port)
	if err != nil {
		return err
	}
	return errors.Join(p.nl.SetMaster(l.Index, br.Index), p.nl.SetUp(l.Index, true))
}

// makeNetwork makes the namespaces, a link that all are on, and one to it from here.
func (c *Cluster) makeNetwork(context.Context) error {
	p, err := enter(netns.Create(controlNS))
	if err != nil {
		return err
	}
	defer p.close()
	if err := errors.Join(p.up("lo"), p.nl.AddBridge(bridge), p.up(bridge, control)); err != nil {
		return err
	}
	for n := 1; n <= c.Workers; n++ {
		if err := c.makeNodeNetwork(p, n); err != nil {
			return fmt.Errorf("node %s: %w", worker(n), err)
		}
	}
	here, err := enter(netns.Current())
	if err != nil {
		return err
	}
	defer here.close()
	return errors.Join(p.plug("user", userLink, here.ns), here.up(userLink, user))
}

func (c *Cluster) makeNodeNetwork(sw *place, n int) error {
	p, err := enter(netns.Create(nsPrefix + worker(n)))
	if err != nil {
		return err
	}
	defer p.close()
	if err := errors.Join(p.up("lo"), sw.plug(worker(n), uplink, p.ns), p.up(uplink, address(n))); err != nil {
		return err
	}
	l, err := p.nl.Link(uplink)
	if err != nil {
		return err
	}
	// Addresses of services need a route before kube-proxy has its say.
	return p.nl.AddRoute(rtnl.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: l.Index, Gateway: control, Protocol: routeProto})
}

// removeNetwork removes the namespaces, and with them all links.
func removeNetwork() error {
	names, err := netns.List()
	for _, n := range names {
		if len(n) > len(nsPrefix) && n[:len(nsPrefix)] == nsPrefix {
			err = errors.Join(err, netns.Delete(n))
		}
	}
	return errors.Join(err, removeUserLink())
}

// removeUserLink does not leave it to the end of the other namespace: somebody's mount namespace, made meanwhile, may keep that alive.
func removeUserLink() error {
	here, err := enter(netns.Current())
	if err != nil {
		return err
	}
	defer here.close()
	l, err := here.nl.Link(userLink)
	if err == nil {
		err = here.nl.DeleteLink(l.Index)
	}
	if errors.Is(err, rtnl.ErrNotFound) {
		return nil
	}
	return err
}
