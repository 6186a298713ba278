package revoke

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/conntrack"
)

// maxCuts bounds how many flows that have the mark are known, which are 5 MB.
const maxCuts = 10_000

// cuts are flows that have the mark, as readings of the table found them: those that a change allows again are looked at one by one. They are hints.
// A flow may have ended since, or be another that began likewise, and beyond the bound others have the mark: the next pass finds those.
type cuts struct {
	most  int
	flows map[conntrack.Tuple]cutFlow
	of    map[netip.Addr]map[conntrack.Tuple]bool // by the workloads at their ends
	began map[netip.Addr]int                      // how many flows count for a workload: those that it began, and those of other hosts that it answers
	share int                                     // of one workload; zero: no bound, since there are few
}

type cutFlow struct {
	conntrack.Flow
	workloads [2]netip.Addr // at its ends, first the one for whom it counts; the second may not be valid
}

func newCuts(most int) *cuts {
	return &cuts{most: most, flows: map[conntrack.Tuple]cutFlow{}, of: map[netip.Addr]map[conntrack.Tuple]bool{}, began: map[netip.Addr]int{}}
}

// add adds a flow, or what has come to be at its ends, unless its workload has its share of all that may be known, or it has none.
func (x *cuts) add(f conntrack.Flow, links map[netip.Addr]string) {
	c := cutFlow{Flow: f}
	n := 0
	for _, a := range []netip.Addr{f.Original.Src, f.Reply.Src} {
		if _, is := links[a]; is && (n == 0 || a != c.workloads[0]) {
			c.workloads[n] = a
			n++
		}
	}
	if n > 0 && x.flows[f.Original] != c {
		x.put(c)
	}
}

func (x *cuts) put(c cutFlow) {
	x.remove(c.Original)
	who := c.workloads[0]
	if x.share > 0 && x.began[who] >= x.share {
		return
	}
	x.flows[c.Original] = c
	x.began[who]++
	x.link(c, true)
	if len(x.flows) >= 2*x.most {
		x.trim()
	}
}

func (x *cuts) remove(t conntrack.Tuple) {
	c, is := x.flows[t]
	if !is {
		return
	}
	delete(x.flows, t)
	if x.began[c.workloads[0]]--; x.began[c.workloads[0]] == 0 {
		delete(x.began, c.workloads[0])
	}
	x.link(c, false)
}

func (x *cuts) link(c cutFlow, on bool) {
	for _, a := range c.workloads {
		if a.IsValid() {
			link(x.of, a, c.Original, on)
		}
	}
}

// trim leaves as many flows as may be known: of workloads with many flows as many each, and all of the others.
func (x *cuts) trim() {
	left := x.most
	if len(x.flows) <= left {
		return
	}
	counts := slices.Sorted(maps.Values(x.began))
	for i, n := range counts {
		if x.share = max(left/(len(counts)-i), 1); n > x.share {
			break
		}
		left -= n
	}
	for t, c := range x.flows {
		if x.began[c.workloads[0]] > x.share {
			x.remove(t)
		}
	}
}

// replace forgets some flows, and takes those of others.
func (x *cuts) replace(old []conntrack.Tuple, by *cuts) {
	for _, t := range old {
		x.remove(t)
	}
	x.share = 0
	for _, c := range by.flows {
		x.put(c)
	}
	x.trim()
}

// at returns the flows of workloads with some addresses.
func (x *cuts) at(addrs map[netip.Addr]bool) []conntrack.Tuple {
	found := map[conntrack.Tuple]bool{}
	for a := range addrs {
		maps.Copy(found, x.of[a])
	}
	return slices.Collect(maps.Keys(found))
}

// concerned are the workloads whose flows a change may concern.
type concerned struct {
	addrs    map[netip.Addr]bool
	policies map[intent.PolicyID]bool // those of whom every workload is, too
}

func newConcerned() concerned {
	return concerned{addrs: map[netip.Addr]bool{}, policies: map[intent.PolicyID]bool{}}
}

func (c concerned) some() bool { return len(c.addrs)+len(c.policies) > 0 }

func (c concerned) clear() {
	clear(c.addrs)
	clear(c.policies)
}
