package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

// linkPair has both ends of a container's link.
type linkPair struct {
	host, inside            *rtnl.Handle
	ns                      *netns.Handle
	path                    string // of ns
	request                 wire.Request
	hostLink, containerLink rtnl.Link           // what connect made
	apart                   map[netip.Addr]bool // by gateway: what the container routes over this link depends on its source, see routes
}

// open opens the namespaces of a request. Without the container's, inside is nil: it is gone or unknown.
func open(path string, r wire.Request) (*linkPair, error) {
	e := &linkPair{path: path, request: r}
	var err error
	if e.host, err = rtnl.Open(); err != nil {
		return nil, err
	}
	if path == "" {
		return e, nil
	}
	if e.ns, err = netns.OpenPath(path); err == nil {
		e.inside, err = rtnl.OpenIn(e.ns)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *linkPair) close() {
	e.host.Close()
	if e.inside != nil {
		e.inside.Close()
	}
	if e.ns != nil {
		_ = e.ns.Close()
	}
}

// connect makes the link. The container's end is down and has no address, so that nothing can pass.
func (e *linkPair) connect(c *conf) error {
	pair := rtnl.Veth{Name: e.request.Link, Peer: e.request.Ifname, PeerIn: e.ns, PeerMAC: e.request.MAC, MTU: c.MTU, Queues: c.Queues}
	err := e.host.AddVeth(pair)
	if errors.Is(err, rtnl.ErrExists) { // left by a container of the same name
		last, failed := e.host.Link(e.request.Link)
		if failed == nil {
			failed = e.remove(last.Index)
		}
		if failed != nil && !errors.Is(failed, rtnl.ErrNotFound) {
			return failed
		}
		err = e.host.AddVeth(pair)
	}
	if err != nil {
		return err
	}
	near, err := e.host.Link(e.request.Link)
	if err != nil {
		return err
	}
	e.hostLink = near
	e.containerLink = rtnl.Link{Index: near.Peer, Name: e.request.Ifname, MAC: e.request.MAC, MTU: near.MTU}
	// In this order: an alias of a link that is up, without a carrier, has the kernel look at each IPv6 route of the host [tried: 0.1 ms of 1,200].
	return errors.Join(e.host.SetAlias(near.Index, e.request.Alias()), e.host.SetUp(near.Index, true), e.sysctls(c))
}

// free: ADD must not harm what an earlier ADD made.
func (e *linkPair) free() error {
	_, err := e.inside.Link(e.request.Ifname)
	switch {
	case err == nil:
		return fmt.Errorf("the container has an interface %s already", e.request.Ifname)
	case errors.Is(err, rtnl.ErrNotFound):
		return nil
	}
	return err
}

// checkDistinct refuses a link whose name on the host another one has: one of an older version, which called the only interface of a container so,
// or one that is not ours. A link of an earlier container of the pod is no conflict: connect removes it.
func (e *linkPair) checkDistinct() error {
	l, err := e.host.Link(e.request.Link)
	if errors.Is(err, rtnl.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r := e.request.Ref
	if has, ok := wire.ParseAlias(l.Alias); ok {
		switch {
		case has.ContainerID == r.ContainerID && (has.Ifname != r.Ifname || has.Network != r.Network):
			return fmt.Errorf("container %s has the interface %s of network %s already, by %s of this host", r.ContainerID, has.Ifname, has.Network, l.Name)
		case has.ContainerID == r.ContainerID || r.Pod != nil:
			return nil
		}
	}
	switch far, err := e.containerEndOf(l); {
	case err != nil:
		return err
	case far != "":
		return fmt.Errorf("the container has the interface %s already, by %s of this host", far, l.Name)
	case l.Kind != "veth" || l.Alias != "" || r.Pod == nil:
		return fmt.Errorf("interface %s of this host is a %s %q, and not this container's", l.Name, l.Kind, l.Alias)
	}
	return nil // of the pod's last container, made by Calico's plugin, or by one that was killed
}

// containerEndOf returns the name of a link's other end, if that is in the container.
func (e *linkPair) containerEndOf(l rtnl.Link) (string, error) {
	if e.inside == nil || l.Kind != "veth" {
		return "", nil
	}
	links, err := e.inside.Links()
	for _, in := range links {
		if in.Peer == l.Index && in.Index == l.Peer {
			return in.Name, err
		}
	}
	return "", err
}

// remove deletes a link, if it is there.
func (e *linkPair) remove(index int) error {
	err := e.host.DeleteLink(index)
	if errors.Is(err, rtnl.ErrNotFound) {
		return nil
	}
	return err
}

// own returns the host's end of this attachment's link: it is known by its alias or, where a plugin was killed before it wrote one, or upstream's
// made it, by its other end. It may have the name that older versions gave it. Of others that have one of the names, the last is named in
// an error that is rtnl.ErrNotFound: another container of the same pod may have taken its place, or be about to.
func (e *linkPair) own() (rtnl.Link, error) {
	none := fmt.Errorf("%s of this host: %w", e.request.Link, rtnl.ErrNotFound)
	for _, name := range e.request.Links() {
		l, err := e.host.Link(name)
		if errors.Is(err, rtnl.ErrNotFound) {
			continue
		}
		mine := l.Alias == e.request.Alias()
		if err == nil && l.Alias == "" {
			var far string
			far, err = e.containerEndOf(l)
			mine = far == e.request.Ifname
		}
		if err != nil || mine {
			return l, err
		}
		none = fmt.Errorf("%s is %q, another attachment's: %w", l.Name, l.Alias, rtnl.ErrNotFound)
	}
	return rtnl.Link{}, none
}

// removeOwn deletes this attachment's link, and no other, and what the container routes by it.
func (e *linkPair) removeOwn() error {
	l, err := e.own()
	if errors.Is(err, rtnl.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(e.unroute(l), e.remove(l.Index))
}

// follow makes the link, whose container's end is down, what the agent says that the pod asks for, and as large as it says that packets may be, where that is not what connect made.
func (e *linkPair) follow(out wire.Attached, c *conf) error {
	if out.MAC != "" {
		if err := e.inside.SetMAC(e.containerLink.Index, out.MAC); err != nil {
			return fmt.Errorf("the container's end of the link cannot have the address %s, which its pod asks for: %w", out.MAC, err)
		}
		e.containerLink.MAC = out.MAC
	}
	if c.MTU == 0 && out.MTU != 0 && out.MTU != e.hostLink.MTU {
		if err := errors.Join(e.host.SetMTU(e.hostLink.Index, out.MTU), e.inside.SetMTU(e.containerLink.Index, out.MTU)); err != nil {
			return err
		}
		e.hostLink.MTU, e.containerLink.MTU = out.MTU, out.MTU
	}
	if e.six() || !slices.ContainsFunc(out.Addrs, netip.Addr.Is6) {
		return nil
	}
	e.request.Addrs = out.Addrs
	return e.sysctls(c)
}

// six reports whether the link is to have IPv6, as far as the request says.
func (e *linkPair) six() bool {
	r := e.request
	return r.IPAM.V6 || slices.ContainsFunc(slices.Concat(r.Addrs, r.IPAM.Addrs), netip.Addr.Is6)
}

// waitUsable waits until the kernel has processed, asynchronously, that the link is up: before, the host's end drops
// packets, and IPv6 addresses are not usable.
func (e *linkPair) waitUsable(link int, addrs []netip.Addr) error {
	const tableLocal = 255
	for deadline := time.Now().Add(commandTimeout / 3); ; {
		near, err := e.host.Link(e.hostLink.Name)
		if err != nil {
			return err
		}
		routes, err := e.inside.Routes(rtnl.RouteFilter{Table: tableLocal, Link: link})
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
			return a.Is4() || slices.ContainsFunc(routes, func(r rtnl.Route) bool { return r.Dst == netip.PrefixFrom(a, a.BitLen()) })
		})
		if near.Running && len(missing) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the link %s does not come up, for %v", near.Name, addrs)
		}
		time.Sleep(blink)
	}
}

const blink = 200 * time.Microsecond

// sysctls turns duplicate address detection off: the datastore ensures that addresses are unique.
func (e *linkPair) sysctls(c *conf) error {
	h, err := sysctl.OpenIn(e.ns)
	if err != nil {
		return err
	}
	defer h.Close()
	link := sysctl.Link(e.request.Ifname)
	forward, err := e.forwarding(c)
	if err != nil {
		return err
	}
	var settings []sysctl.Setting
	if forward != "" {
		settings = append(settings, sysctl.Setting{Path: "ipv4/ip_forward", Value: forward})
	}
	if e.six() {
		settings = append(settings,
			sysctl.Setting{Path: "ipv6/conf/" + link + "/accept_dad", Value: "0"},
			sysctl.Setting{Path: "ipv6/conf/" + link + "/accept_ra", Value: "0"},
			sysctl.Setting{Path: "ipv6/conf/" + link + "/disable_ipv6", Value: "0"})
		if forward != "" {
			settings = append(settings, sysctl.Setting{Path: "ipv6/conf/all/forwarding", Value: forward})
		}
	}
	_, err = h.SetAll(settings)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("this host has no IPv6: %w", err)
	}
	return err
}

// forwarding is what the container's forwarding is to be; empty: as it is. A later interface does not turn off what the network of another one asked for.
func (e *linkPair) forwarding(c *conf) (string, error) {
	if c.ContainerSettings.AllowIPForwarding {
		return "1", nil
	}
	if e.request.First() {
		return "0", nil
	}
	links, err := e.inside.Links()
	if slices.ContainsFunc(links, func(l rtnl.Link) bool { return l.Name != "lo" && l.Name != e.request.Ifname }) {
		return "", err
	}
	return "0", err
}

// check returns an error if part of what connect and configure made is missing.
func (e *linkPair) check(addrs []netip.Addr) error {
	if _, err := e.own(); err != nil {
		return fmt.Errorf("the host's end: %w", err)
	}
	far, err := e.inside.Link(e.request.Ifname)
	if err != nil {
		return fmt.Errorf("the container's end: %w", err)
	}
	if !far.Up {
		return fmt.Errorf("%s is down in the container", far.Name)
	}
	have, err := e.inside.Addrs()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		found := false
		for _, h := range have {
			found = found || h.Link == far.Index && h.Prefix.Addr() == a
		}
		if !found {
			return fmt.Errorf("%s lacks the address %s in the container", far.Name, a)
		}
	}
	return nil
}

// sweep deletes the links of a network whose containers are not valid.
func sweep(network string, valid []wire.Ref) error {
	host, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	links, err := host.Links()
	keep := map[string]bool{}
	for _, r := range valid {
		keep[wire.Ref{Network: network, ContainerID: r.ContainerID, Ifname: r.Ifname}.Alias()] = true
	}
	for _, l := range links {
		if strings.HasPrefix(l.Alias, wire.AliasOf(network)) && !keep[l.Alias] {
			err = errors.Join(err, host.DeleteLink(l.Index))
		}
	}
	return err
}
