// Package paths is what the command line says of the ways from this host to others: by which tunnel, and how large packets may be.
//
// In: what the agent reports, resources, and echoes that other hosts answer. Out: lines, and the command `twill check path`.
package paths

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/terminal"
)

// Summary has rows about other hosts, and about the devices of WireGuard.
func Summary(t *terminal.Table, r agent.Report) {
	if by := ways(r.Others); by != "" {
		t.Row("  other hosts", by)
	}
	for i, line := range devices(r.WireGuard) {
		t.Row(map[bool]string{true: "  WireGuard"}[i == 0], line)
	}
}

// ways says in a line by which ways other hosts are reached; empty: the agent makes no routes to any.
func ways(others []agent.OtherReport) string {
	count := map[string]int{}
	for _, o := range others {
		count[o.By+" ("+o.Family+")"]++
	}
	var out []string
	for by, n := range count {
		out = append(out, fmt.Sprintf("%d × %s", n, by))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// devices are lines about the devices of WireGuard.
func devices(ds []agent.WireGuardReport) (out []string) {
	for _, d := range ds {
		if d.By == "" {
			out = append(out, fmt.Sprintf("%s (%s): %s", d.Interface, d.Family, d.Problem))
			continue
		}
		by := map[string]string{"kernel": "the kernel", "process": "a process"}[d.By]
		line := fmt.Sprintf("%s (%s) by %s, UDP %d, peers: %d", d.Interface, d.Family, by, d.Port, d.Peers)
		if d.AllowUnencrypted {
			line += "; what is for hosts without a key goes in clear"
		}
		if d.Problem != "" {
			line += "; " + d.Problem
		}
		out = append(out, line)
	}
	return out
}

// Print prints the ways to other hosts: those with which something is wrong, or all.
func Print(w io.Writer, others []agent.OtherReport, wide bool, now time.Time) {
	t := terminal.NewTable(w)
	more := 0
	for _, o := range others {
		if o.Problem == "" && !wide {
			continue
		}
		if t.Len() >= console.MostErrors+2 && !wide { // an empty line and the header
			more++
			continue
		}
		if t.Len() == 0 {
			t.Row()
			t.Row("OTHER HOST", "FAMILY", "BY", "ADDRESS", "BLOCKS", "HANDSHAKE", "RECEIVED", "SENT", "PROBLEM")
		}
		hand, got, sent := "-", "-", "-"
		if o.Encrypted {
			hand, got, sent = "none", strconv.FormatInt(o.Received, 10), strconv.FormatInt(o.Sent, 10)
			if o.Handshake != nil {
				hand = terminal.Ago(now, *o.Handshake) + " ago"
			}
		}
		t.Row(o.Node, o.Family, o.By, cmp.Or(o.Address, "-"), strconv.Itoa(o.Blocks), hand, got, sent, o.Problem)
	}
	t.Flush()
	if more > 0 {
		fmt.Fprintf(w, "and %d more; -o wide lists them\n", more)
	}
}
