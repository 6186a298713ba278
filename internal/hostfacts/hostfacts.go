// Package hostfacts gathers what package doctor judges: from the kernel, from /proc, and from other hosts on the wire.
//
// In: the network namespace of the calling thread, and what the datastore says ([Host]). Out: the parts of
// [doctor.Facts] that are the host's. Nothing of the host is changed; what must be tried is tried in a namespace of its
// own. What cannot be read is absent, or says why.
package hostfacts

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/ipset"
	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/probe"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
	"github.com/twillnet/twill/internal/kernel/xtables"
)

// Host reads a host. Its namespace is that of the thread that opened it.
type Host struct {
	rtnl   *rtnl.Handle
	sysctl *sysctl.Handle
	ns     *netns.Handle

	dialWithin time.Duration // how long a connection may take
}

// Open opens the kernel's interfaces in the calling thread's namespace.
func Open() (*Host, error) {
	h := &Host{dialWithin: time.Second}
	var err error
	if h.rtnl, err = rtnl.Open(); err == nil {
		h.sysctl, err = sysctl.Open()
	}
	if err == nil {
		h.ns, err = netns.Current()
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// Close closes them.
func (h *Host) Close() {
	if h.rtnl != nil {
		h.rtnl.Close()
	}
	if h.sysctl != nil {
		h.sysctl.Close()
	}
	_ = h.ns.Close()
}

// Kernel tries what an agent needs in a namespace of its own: table is the least that an agent programs.
func Kernel(table func() error) doctor.Kernel {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	k := doctor.Kernel{Release: strings.TrimSpace(string(release))}
	var err error
	if k.Lacks, err = tryKernel(table); err != nil {
		k.Err = err.Error()
	}
	return k
}

// tryKernel returns the kinds of devices that cannot be made, and why what every host needs cannot.
func tryKernel(table func() error) (lacks []doctor.Lack, err error) {
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	h, err := rtnl.OpenIn(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	for _, d := range []struct {
		device, module string
		err            error
	}{
		{doctor.VXLAN, "vxlan", h.AddVXLAN(rtnl.VXLAN{Name: "vx", VNI: 1, Port: 4789, MAC: "66:00:00:00:00:01", MTU: 1400})},
		{doctor.IPIP, "ipip", h.AddIPIP("ip")},
		{doctor.WireGuard, "wireguard", h.AddWireGuard("wg")},
	} {
		if d.err != nil {
			lacks = append(lacks, doctor.Lack{Device: d.device, Module: d.module, Err: d.err.Error()})
		}
	}
	return lacks, errors.Join(h.AddVeth(rtnl.Veth{Name: "a", Peer: "b"}), ns.Do(table))
}

// Read fills in what the kernel says of the host. Names of workloads' interfaces begin with one of the prefixes.
func (h *Host) Read(f *doctor.Facts, prefixes []string) error {
	links, err := h.rtnl.Links()
	if err != nil {
		return err
	}
	addrs, err := h.rtnl.Addrs()
	if err != nil {
		return err
	}
	names, workloads := map[int]string{}, map[int]bool{}
	paths := []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "netfilter/nf_conntrack_max", "netfilter/nf_conntrack_count", "ipv4/conf/all/rp_filter"}
	for _, l := range links {
		names[l.Index] = l.Name
		paths = append(paths, "ipv4/conf/"+sysctl.Link(l.Name)+"/rp_filter")
		link := doctor.Link{Name: l.Name, Kind: l.Kind, Up: l.Up, MTU: l.MTU, Ours: l.Alias == kernel.TunnelAlias, Workload: slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(l.Name, p) })}
		workloads[l.Index] = link.Workload
		for _, a := range addrs {
			if a.Link == l.Index {
				link.Addrs = append(link.Addrs, a.Prefix)
			}
		}
		f.Links = append(f.Links, link)
	}
	f.Sysctl = map[string]string{}
	for _, p := range paths {
		if value, err := h.sysctl.Get(p); err == nil {
			f.Sysctl[p] = value
		}
	}
	f.Neighbours = h.neighbours()
	routes, err := h.routes(f, names)
	if err == nil {
		err = h.source(f, routes, workloads)
	}
	if err != nil {
		return err
	}
	if err := h.rules(f); err != nil {
		return err
	}
	f.Processes = h.Processes()
	f.Networkd = Networkd(f.Processes)
	return nil
}

func (h *Host) routes(f *doctor.Facts, names map[int]string) ([]rtnl.Route, error) {
	routes, err := h.rtnl.Routes(rtnl.RouteFilter{})
	for _, r := range routes {
		if (r.Kind == rtnl.Unicast || r.Kind == rtnl.Blackhole) && !r.Dst.Addr().IsLinkLocalUnicast() && !r.Dst.Addr().IsMulticast() {
			f.Routes = append(f.Routes, doctor.Route{Dst: r.Dst, Gateway: r.Gateway, Protocol: r.Protocol, Metric: r.Metric, Link: names[r.Link], Blackhole: r.Kind == rtnl.Blackhole})
		}
	}
	return routes, err
}

// source fills in from where the host sends to its workloads: to each of them from the same address, unless the route to it says from where.
func (h *Host) source(f *doctor.Facts, routes []rtnl.Route, workloads map[int]bool) error {
	for _, r := range routes {
		if !workloads[r.Link] || r.Kind != rtnl.Unicast || !r.Dst.Addr().Is4() || !r.Dst.IsSingleIP() || r.Gateway.IsValid() || r.Source.IsValid() {
			continue
		}
		to, err := h.rtnl.RouteTo(r.Dst.Addr())
		switch {
		case errors.Is(err, rtnl.ErrNotFound):
			continue // it has just gone
		case err != nil:
			return err
		case to.Link != r.Link:
			continue
		}
		if f.Source = to.Source; !f.Source.IsValid() {
			f.Source = netip.IPv4Unspecified()
		}
		return nil
	}
	return nil
}

var hooks = map[nftables.HookNum]string{
	nftables.HookPrerouting: "prerouting", nftables.HookInput: "input", nftables.HookForward: "forward", nftables.HookOutput: "output", nftables.HookPostrouting: "postrouting",
}

// rules fills in what packets may meet: chains of all kinds, and sets.
func (h *Host) rules(f *doctor.Facts) error {
	return h.ns.Do(func() error {
		c, err := nftables.Open()
		if err != nil {
			return err
		}
		defer c.Close()
		h.held(c, f)
		return errors.Join(chains(c, f), legacy(f))
	})
}

// legacy fills in what only iptables-legacy and ipset show.
func legacy(f *doctor.Facts) error {
	chains, err := xtables.LegacyChains()
	for _, ch := range chains {
		f.Chains = append(f.Chains, doctor.Chain{Family: string(ch.Family), Table: ch.Table, Name: ch.Name, Legacy: true})
	}
	sets, err2 := ipset.Names()
	f.Sets = sets
	return errors.Join(err, err2)
}

func chains(c *nftables.Conn, f *doctor.Facts) error {
	tables, err := c.AllTables()
	for _, t := range tables {
		f.Tables = append(f.Tables, doctor.Table{Family: t.Family, Name: t.Name})
	}
	if err != nil {
		return err
	}
	chains, err := c.AllChains()
	for _, ch := range chains {
		out := doctor.Chain{Family: ch.Family, Table: ch.Table, Name: ch.Name}
		if ch.Base != nil && slices.Contains([]string{"ip", "ip6", "inet"}, ch.Family) {
			out.Hook, out.Drop = hooks[ch.Base.Hook], ch.Base.Policy == nftables.VerdictDrop
		}
		f.Chains = append(f.Chains, out)
	}
	return err
}

// Leftovers fills in what an agent of another network may have left that is cheap to look for: all but routes.
func (h *Host) Leftovers(f *doctor.Facts) error {
	links, err := h.rtnl.Links()
	if err != nil {
		return err
	}
	for _, l := range links {
		f.Links = append(f.Links, doctor.Link{Name: l.Name, Kind: l.Kind, Up: l.Up, Ours: l.Alias == kernel.TunnelAlias})
	}
	return h.rules(f)
}

// held finds interfaces that our table has as workloads'. Without a table there are none.
func (h *Host) held(c *nftables.Conn, f *doctor.Facts) {
	for _, name := range []string{kernel.SetWorkloads, kernel.SetClosed} {
		set, err := c.ListSet(kernel.TableName, name)
		if err != nil {
			continue
		}
		for i, l := range f.Links {
			key := nftables.KeyIfname(l.Name)
			f.Links[i].Held = l.Held || slices.ContainsFunc(set.Elements, func(e nftables.Element) bool { return bytes.Equal(e.Key, key) })
		}
	}
}

// Times of questions to other hosts.
const (
	askWithin  = 900 * time.Millisecond
	echoWithin = 500 * time.Millisecond
	smallest   = 576 // what every host takes
	mostPaths  = 10  // nodes whose way is measured
)

// Ask probes for other hosts with this node's addresses, and for the path MTU to other nodes.
func (h *Host) Ask(f *doctor.Facts) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, a := range f.Own() {
		wait.Go(func() {
			if d, ok := h.duplicate(a, f.Links); ok {
				mu.Lock()
				f.Duplicates = append(f.Duplicates, d)
				mu.Unlock()
			}
		})
	}
	wait.Go(func() { f.Paths = h.Measure(f) })
	for _, s := range f.BGP.Sessions {
		if at := peerPort(f, s); !s.Up && at.IsValid() {
			wait.Go(func() {
				p := doctor.Peer{At: at, Node: s.Node, Result: h.dial(at)}
				mu.Lock()
				f.Peers = append(f.Peers, p)
				mu.Unlock()
			})
		}
	}
	wait.Wait()
	slices.SortFunc(f.Duplicates, func(a, b doctor.Duplicate) int { return a.Addr.Compare(b.Addr) })
	slices.SortFunc(f.Peers, func(a, b doctor.Peer) int { return a.At.Compare(b.At) })
}

// duplicate probes an address's link for another host that has it; false if its link cannot be probed.
func (h *Host) duplicate(a netip.Addr, links []doctor.Link) (doctor.Duplicate, bool) {
	i := slices.IndexFunc(links, func(l doctor.Link) bool {
		return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	})
	if i < 0 {
		return doctor.Duplicate{}, false
	}
	l, err := h.rtnl.Link(links[i].Name)
	if err != nil || len(l.MAC) != len("02:00:00:00:00:01") || l.Name == "lo" {
		return doctor.Duplicate{}, false
	}
	d := doctor.Duplicate{Addr: a, Link: l.Name}
	err = h.ns.Do(func() (err error) {
		d.MAC, err = probe.Holder(probe.Link{Index: l.Index, MAC: l.MAC}, a, askWithin)
		return err
	})
	if err != nil {
		d.Err = err.Error()
	}
	return d, true
}

func peerPort(f *doctor.Facts, s doctor.Session) netip.AddrPort {
	for _, p := range f.BGP.Wanted {
		if p.Addr() == s.Peer {
			return p
		}
	}
	return netip.AddrPort{}
}

// dial tries a port, as any client would.
func (h *Host) dial(at netip.AddrPort) doctor.PortResult {
	err := h.ns.Do(func() error {
		c, err := net.DialTimeout("tcp", at.String(), h.dialWithin) // of an address, so that it stays on this thread
		if err != nil {
			return err
		}
		return c.Close()
	})
	switch {
	case err == nil:
		return doctor.PortOpen
	case errors.Is(err, syscall.ECONNREFUSED):
		return doctor.PortRefused
	}
	return doctor.PortSilent
}
