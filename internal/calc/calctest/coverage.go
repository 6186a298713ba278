package calctest

import (
	"fmt"
	"slices"
	"strings"
)

// Coverage counts what decided packets, so that a run over random worlds can
// show that it asked about everything. Its zero value is empty.
type Coverage struct {
	Packets, Allowed int
	counts           map[string]int
}

// Wanted are the tags that a run must show, as world's Answer.Tags gives them.
func Wanted() []string {
	out := []string{
		"action Allow", "action Deny", "action Log", "action Pass", "reject",
		"tier allow", "tier deny", "tier pass", "tier end of tier: deny", "tier end of tier: pass", "tier skipped",
		"profile Allow", "profile Deny", "decided no profile", "decided no profile matched", "decided profile is missing",
		"decided endpoint is closed", "decided a host always reaches its own workloads", "decided setting defaultEndpointToHostAction", "decided failsafe port",
		"decided encapsulation from a workload",
		"field source.services", "field destination.services", "field ipVersion", "field protocol", "field notProtocol", "field icmp", "field notICMP",
		"families both", "families not in everything of the other", "families passed over", "families passed over by notNets",
		"ports without a protocol", "notPorts without a protocol",
		"host endpoint without expectedIPs", "negative serviceAccountSelector", "negative namespaceSelector",
		"negative serviceAccounts of a rule", "negative namespaceSelector of a rule",
		"no account, though its labels would match", "no namespace, though its labels would match",
	}
	for _, stage := range []string{"untracked", "pre-DNAT", "host", "forward", "workload"} {
		out = append(out, "stage "+stage)
	}
	for _, side := range []string{"source", "destination"} {
		for _, f := range []string{"nets", "notNets", "selector", "notSelector", "namespaceSelector", "serviceAccounts", "ports", "notPorts", "named ports"} {
			out = append(out, "field "+side+"."+f)
		}
	}
	return out
}

// Count adds one packet. A tag counts once for each packet.
func (c *Coverage) Count(allowed bool, tags []string) {
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.Packets++
	if allowed {
		c.Allowed++
	}
	tags = slices.Clone(tags)
	slices.Sort(tags)
	for _, t := range slices.Compact(tags) {
		c.counts[t]++
	}
}

// Share is the part of all packets, 0 to 1, that had a tag.
func (c *Coverage) Share(tag string) float64 {
	if c.Packets == 0 {
		return 0
	}
	return float64(c.counts[tag]) / float64(c.Packets)
}

// Missing are the wanted tags that fewer than this part of the packets had.
func (c *Coverage) Missing(share float64) []string {
	var out []string
	for _, t := range Wanted() {
		if c.Share(t) < share {
			out = append(out, t)
		}
	}
	return out
}

// Table is the counts for people: what is wanted, then what came besides.
func (c *Coverage) Table() string {
	var b strings.Builder
	percent := func(n int) float64 { return 100 * float64(n) / float64(max(1, c.Packets)) }
	fmt.Fprintf(&b, "%-50s %8d\n%-50s %8d %5.1f %%\n", "packets", c.Packets, "allowed", c.Allowed, percent(c.Allowed))
	tags := Wanted()
	var more []string
	for t := range c.counts {
		if !slices.Contains(tags, t) {
			more = append(more, t)
		}
	}
	slices.Sort(more)
	for _, t := range append(tags, more...) {
		fmt.Fprintf(&b, "%-50s %8d %5.1f %%\n", t, c.counts[t], percent(c.counts[t]))
	}
	return b.String()
}
