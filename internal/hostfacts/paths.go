package hostfacts

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/kernel/probe"
	"github.com/twillnet/twill/internal/nodeaddr"
)

// Measure measures how large packets may be on the ways to nodes: to those that are named, or to ten others at most. The facts have
// the Nodes and the links.
func (h *Host) Measure(f *doctor.Facts, nodes ...string) []doctor.Path {
	paths := h.ways(f, nodes)
	mark, err := h.rtnl.EncryptedMark() // what is measured is the way of encrypted packets, and not that into the device which encrypts
	if err != nil {
		return nil
	}
	var wait sync.WaitGroup
	for i := range paths {
		wait.Go(func() { h.measure(&paths[i], mark) })
	}
	wait.Wait()
	slices.SortFunc(paths, func(a, b doctor.Path) int { return a.Addr.Compare(b.Addr) })
	return paths
}

// ways are those to nodes; without names, to the first of the others, by name after this one, so that not all ask the same.
func (h *Host) ways(f *doctor.Facts, only []string) (out []doctor.Path) {
	nodes := f.Nodes.Nodes()
	at, _ := slices.BinarySearchFunc(nodes, f.Node, func(n *api.Node, name string) int { return strings.Compare(n.Metadata.Name, name) })
	nodes = slices.Concat(nodes[at:], nodes[:at])
	for _, n := range nodes {
		if n.Metadata.Name == f.Node || len(only) == 0 && len(out) >= mostPaths || len(only) > 0 && !slices.Contains(only, n.Metadata.Name) {
			continue
		}
		for _, a := range nodeaddr.Addrs(n) {
			hop, err := h.rtnl.Lookup(a)
			if err != nil {
				continue // there is no way; what needs one says so
			}
			for _, l := range f.Links {
				if link, err := h.rtnl.Link(l.Name); err == nil && link.Index == hop.Link {
					out = append(out, doctor.Path{Node: n.Metadata.Name, Addr: a, Link: l.Name, MTU: l.MTU})
				}
			}
		}
	}
	return out
}

// measure finds the largest packet that comes back, and behind whom larger ones are lost.
func (h *Host) measure(p *doctor.Path, mark uint32) {
	// Twice: the first may wait for the neighbour to be found, and one may be lost.
	echo := func(size int) bool {
		for range 2 {
			if h.ns.Do(func() error { return probe.Echo(p.Addr, size, mark, echoWithin) }) == nil {
				return true
			}
		}
		return false
	}
	if !echo(smallest) {
		return
	}
	if echo(p.MTU) {
		p.Largest = p.MTU
		return
	}
	low, high := smallest, p.MTU
	for high-low > 1 {
		if mid := (low + high) / 2; echo(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	p.Largest = low
	h.behind(p, mark)
}

// mostHops is how far a packet is followed.
const mostHops = 16

// behind finds the last who answers to a packet that is too large, where one that is not is answered farther on.
func (h *Host) behind(p *doctor.Path, mark uint32) {
	trace := func(size, hops int) (hop probe.Hop, err error) {
		for range 2 {
			err = h.ns.Do(func() (err error) { hop, err = probe.Trace(p.Addr, size, hops, mark, echoWithin); return err })
			if err == nil {
				break
			}
		}
		return hop, err
	}
	last := netip.Addr{}
	for hops := 1; hops <= mostHops; hops++ {
		large, err := trace(p.MTU, hops)
		if err != nil {
			if _, err := trace(p.Largest, hops); err != nil {
				continue // nobody answers there, whatever the size
			}
			p.Behind = last
			return
		}
		switch last = large.From; large.What {
		case probe.TooLarge:
			p.Behind, p.Says = large.From, true
			return
		case probe.Arrived: // it was lost before by chance, or on the way back
			return
		}
	}
}
