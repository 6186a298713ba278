// Package ways prints in words how packets go through the kernel's table.
package ways

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/terminal"
)

// Print prints the ways of packets, one section for each chain that interfaces lead to.
func Print(w io.Writer, addr netip.Addr, found []agent.Way, wide bool) error {
	if len(found) == 0 {
		fmt.Fprintln(w, "No interface of a workload or of a host endpoint leads anywhere in the kernel's table.")
		return nil
	}
	in := strings.Join(found[0].Selected, "; ")
	if in == "" {
		in = "none"
	}
	fmt.Fprintf(w, "%s is in these selections of local policy: %s\n", addr, in)
	for len(found) > 0 {
		first := found[0]
		n := slices.IndexFunc(found, func(x agent.Way) bool {
			return x.Chain != first.Chain || x.Direction != first.Direction || x.Stage != first.Stage
		})
		if n < 0 {
			n = len(found)
		}
		preposition := map[string]string{"receives": "from", "sends": "to"}[first.Direction]
		fmt.Fprintf(w, "\n%s %s %s %s%s:\n", who(first), first.Direction, preposition, addr, stages[first.Stage])
		if err := printGroup(w, found[:n], wide); err != nil {
			return err
		}
		found = found[n:]
	}
	return nil
}

// stages says when host endpoints are asked, by the chain that leads to theirs.
var stages = map[string]string{
	"host-untracked-in":  ", asked before connection tracking (doNotTrack)",
	"host-untracked-out": ", asked before connection tracking (doNotTrack)",
	"host-pre-dnat":      ", asked before DNAT (preDNAT)",
	"host-forward-in":    ", asked about what is forwarded (applyOnForward)",
	"host-forward-out":   ", asked about what is forwarded (applyOnForward)",
	"host-in":            ", asked about what is for the host itself, failsafe ports apart",
	"host-out":           ", asked about what the host itself sends, failsafe ports apart",
}

// who has the interfaces.
func who(x agent.Way) string {
	if x.Host == "" {
		return strings.Join(x.Workloads, ", ")
	}
	on := strings.Join(x.Interfaces, ", ")
	if on == "*" {
		on = "any other interface"
	}
	return fmt.Sprintf("host endpoint %s (%s)", x.Host, on)
}

func printGroup(w io.Writer, ways []agent.Way, wide bool) error {
	first := ways[0]
	if len(first.ByChains) == 0 && first.Program == "" {
		fmt.Fprintf(w, "  denied: %s, by chain %s\n", strings.Join(first.By, "; "), first.Chain)
		return nil
	}
	if len(first.ByChains) > 0 {
		fmt.Fprintf(w, "  by chains: %s asks %s\n", first.Chain, strings.Join(first.ByChains, ", "))
		return nil
	}
	class := "class " + first.Class + ", by map " + first.ClassMap
	if first.Class == "" {
		class = "no class"
	}
	fmt.Fprintf(w, "  %s: %s\n  program %s, by maps of %s\n  %s\n", class, first.Addresses, first.Program, first.Chain, first.Policies)
	t := terminal.NewTable(w)
	for _, x := range ways {
		row := []string{"    " + x.Packets, x.Answer, "by " + strings.Join(x.By, "; ")}
		if wide {
			row = append(row, "code "+x.Code)
		}
		t.Row(row...)
	}
	return t.Flush()
}
