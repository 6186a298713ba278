package wording

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/ipam"
)

// Checked is what a check of addresses found.
type Checked struct {
	Survey  *ipam.Survey
	Found   []ipam.Finding
	Records []ipam.Record // of this survey, by these findings
}

// check prints one.
type check struct {
	io.Writer
	Checked
	all, problems bool
	wrong         int // problems so far
}

// Check prints the counts by which scripts know a check of addresses; with problems also each thing that is wrong, and with all each address.
//
// What is counted as leaked is what twill's check proves: a young allocation without an endpoint is no leak yet. What calicoctl does not look for
// is always printed, and counted.
func Check(w io.Writer, of Checked, all, problems bool) {
	c := &check{w, of, all, problems, 0}
	c.printf("Checking IPAM for inconsistencies...\n\n")
	c.blocks()
	c.pools()
	c.users()
	c.nodes()
	leaked := c.leaks()
	c.unallocated()
	miscounted := c.handles()
	for _, f := range c.Found {
		switch {
		case f.Kind == ipam.FoundBlock, f.Kind == ipam.FoundClaim, f.Kind == ipam.FoundBroken:
		case f.Kind == ipam.FoundHandle && miscounted[f.Handle]:
		case f.Kind == ipam.FoundLeak && f.Fix != "" && !leaked[f.Address]: // of an endpoint that is to go, too, whose it is to calicoctl
			c.wrong++
			c.printf("%s %s: %s\n", f.Address, f.Problem, f.Proof)
			continue
		default:
			continue
		}
		c.wrong++
		c.printf("%s %s: %s\n", cmp.Or(f.Handle, f.Block), f.Problem, f.Proof)
	}
	c.printf("Check complete; found %d problems.\n", c.wrong)
}

func (c *check) printf(format string, args ...any) { fmt.Fprintf(c, format, args...) }

// blocks prints the blocks, and the addresses that are allocated in each.
func (c *check) blocks() {
	of := map[string][]ipam.Record{}
	for _, r := range c.Records {
		of[r.Block.CIDR.String()] = append(of[r.Block.CIDR.String()], r)
	}
	c.printf("Loading all IPAM blocks...\nFound %d IPAM blocks.\n", len(c.Survey.Blocks))
	for _, b := range c.Survey.Blocks {
		affinity := "<none>"
		if own, ok := b.Owner(); ok {
			affinity = own.String()
		}
		c.printf(" IPAM block %s affinity=%s:\n", b.CIDR, affinity)
		for _, r := range of[b.CIDR.String()] {
			if c.all {
				c.printf("  %s allocated; attrs %s\n", r.Addr, attributesOf(r))
			}
		}
	}
	c.printf("IPAM blocks record %d allocations.\n\n", len(c.Records))
}

// active are the pools that give addresses.
func (c *check) active() (out []ipam.Pool) {
	for _, p := range c.Survey.Pools {
		if !c.Survey.Spec(p.Name).Disabled {
			out = append(out, p)
		}
	}
	return out
}

func (c *check) pools() {
	c.printf("Loading all IPAM pools...\n")
	pools := c.active()
	for _, p := range pools {
		c.printf("  %s\n", p.CIDR)
	}
	c.printf("Found %d active IP pools.\n\n", len(pools))
}

// users prints who has addresses.
func (c *check) users() {
	addresses := map[netip.Addr]bool{}
	count := func(nodes bool) (n int) {
		for _, u := range c.Survey.Uses() {
			addresses[u.Addr] = true
			if u.Node != nodes {
				continue
			}
			n++
			if c.all {
				c.printf("  %s belongs to %s\n", u.Addr, u.By)
			}
		}
		return n
	}
	c.printf("Loading all nodes.\n")
	c.printf("Found %d node tunnel IPs.\n\n", count(true))
	c.printf("Loading all workload endpoints.\n")
	c.printf("Found %d workload IPs.\n", count(false))
	c.printf("Workloads and nodes are using %d IPs.\n\n", len(addresses))
}

// nodes prints those with the most addresses.
func (c *check) nodes() {
	const most = 20
	of := map[string]int{}
	for _, r := range c.Records {
		of[r.Node]++
	}
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(of[b]-of[a], cmp.Compare(a, b)) })
	c.printf("Loading all handles\nLooking for top (up to %d) nodes by allocations...\n", most)
	for _, n := range names[:min(most, len(names))] {
		c.printf("  %s has %d allocations\n", n, of[n])
	}
	if len(names) > 0 {
		c.printf("Node with most allocations has %d; median is %d\n", of[names[0]], of[names[len(names)/2]])
	}
	c.printf("\n")
}

func (c *check) leaks() map[netip.Addr]bool {
	c.printf("Scanning for IPs that are allocated but not actually in use...\n")
	leaked := map[netip.Addr]bool{}
	for _, r := range c.Records {
		if !r.Leaked {
			continue
		}
		leaked[r.Addr] = true
		if c.problems {
			c.printf("  %s leaked; attrs %s\n", r.Addr, attributesOf(r))
		}
	}
	c.wrong += len(leaked)
	c.printf("Found %d IPs that are allocated in IPAM but not actually in use.\n", len(leaked))
	return leaked
}

// unallocated prints addresses that somebody has, and that are not allocated.
func (c *check) unallocated() {
	c.printf("Scanning for IPs that are in use by a workload or node but not allocated in IPAM...\n")
	allocated, of := map[netip.Addr]bool{}, map[netip.Addr][]ipam.Use{}
	for _, r := range c.Records {
		allocated[r.Addr] = allocated[r.Addr] || !r.Cooling
	}
	for _, u := range c.Survey.Uses() {
		of[u.Addr] = append(of[u.Addr], u)
	}
	pools := c.active()
	outside, inside := 0, 0
	for _, a := range slices.SortedFunc(maps.Keys(of), netip.Addr.Compare) {
		if c.problems && len(of[a]) > 1 {
			c.printf("  %s has multiple owners.\n", a)
		}
		if allocated[a] {
			continue
		}
		what := "  %s in use by %s is not in any active IP pool.\n"
		if slices.ContainsFunc(pools, func(p ipam.Pool) bool { return p.CIDR.Contains(a) }) {
			what = "  %s in use by %s and in active IPAM pool but has no IPAM allocation.\n"
			inside++
		} else {
			outside++
		}
		for _, u := range of[a] {
			if c.problems {
				c.printf(what, a, u.By)
			}
		}
	}
	c.wrong += outside + inside
	c.printf("Found %d in-use IPs that are not in active IP pools.\n", outside)
	c.printf("Found %d in-use IPs that are in active IP pools but have no corresponding IPAM allocation.\n\n", inside)
}

// handles prints those without addresses, and those that there are not; it returns the others, of which a finding says that they count wrongly.
func (c *check) handles() map[string]bool {
	good, bad, missing := map[string]bool{}, 0, 0
	all := c.Survey.Handles()
	c.printf("Scanning for IPAM handles with no matching IPs...\n")
	for _, h := range all {
		switch {
		case h.Stored && h.Named:
			good[h.ID] = true
		case h.Stored:
			bad++
			if c.all {
				c.printf("  %s doesn't have any active IPs.\n", h.ID)
			}
		}
	}
	c.wrong += bad
	c.printf("Found %d handles with no matching IPs (and %d handles with matches).\nScanning for IPs with missing handle...\n", bad, len(good))
	for _, h := range all {
		if h.Stored {
			continue
		}
		missing++
		if c.problems {
			c.printf("  %s is in use in a block but doesn't exist.\n", h.ID)
		}
	}
	c.printf("Found %d handles mentioned in blocks with no matching handle resource.\n", missing)
	return good
}

// attributesOf are the handle of an allocation, and all that is kept with it.
func attributesOf(r ipam.Record) string {
	handle := "<none>"
	if h := r.Attr.Handle; h != nil {
		handle = *h
	}
	text := "Main:" + handle + " Extra:" + pairs(r.Attr.Owner)
	if len(r.Attr.Alternate) > 0 {
		text += " Alternate:" + pairs(r.Attr.Alternate)
	}
	return text
}

func pairs(of map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		out = append(out, k+"="+of[k])
	}
	return strings.Join(out, ",")
}
