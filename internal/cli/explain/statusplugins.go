package explain

import (
	"io"
	"time"

	"github.com/twillnet/twill/internal/orchestrator/endpointapi"
	"github.com/twillnet/twill/internal/terminal"
)

// printPlugins prints the interfaces that are not provisioned, and groups that are not in force, or all.
func printPlugins(w io.Writer, r *endpointapi.Report, wide bool, now time.Time) {
	if r == nil {
		return
	}
	t := terminal.NewTable(w)
	for _, i := range r.Interfaces {
		if i.State == endpointapi.Provisioned && i.Reason == "" && !wide {
			continue
		}
		if t.Len() == 0 {
			t.Row()
			t.Row("INTERFACE", "PLUGIN", "STATE", "FOR", "REASON")
		}
		t.Row(i.Interface, i.Plugin, string(i.State), terminal.Ago(now, i.Since), i.Reason)
	}
	t.Flush()
	printGroups(w, r.Groups, wide, now)
}

func printGroups(w io.Writer, groups []endpointapi.GroupReport, wide bool, now time.Time) {
	t := terminal.NewTable(w)
	for _, g := range groups {
		if g.State == endpointapi.InForce && g.Reason == "" && !wide {
			continue
		}
		if t.Len() == 0 {
			t.Row()
			t.Row("GROUP", "PLUGIN", "STATE", "FOR", "REASON")
		}
		t.Row(g.Group, g.Plugin, string(g.State), terminal.Ago(now, g.Since), g.Reason)
	}
	t.Flush()
}
