package explain

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/orchestrator/endpointapi"
	"github.com/twillnet/twill/internal/terminal"
)

// plugins is a line about plugins of the Endpoint API.
func plugins(r *endpointapi.Report) string {
	names, states := []string{}, map[endpointapi.State]int{}
	for _, p := range r.Plugins {
		names = append(names, p.Name)
	}
	for _, i := range r.Interfaces {
		states[i.State]++
	}
	who := "none connected"
	if len(names) > 0 {
		who = strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s; %d interfaces provisioned, %d failed, %d nobody's", who, states[endpointapi.Provisioned], states[endpointapi.Failed], states[endpointapi.Nobody]+states[endpointapi.Asked])
}

// printPlugins prints the interfaces that are not provisioned, or all.
func printPlugins(w io.Writer, r *endpointapi.Report, wide bool, now time.Time) {
	if r == nil {
		return
	}
	t := terminal.NewTable(w)
	for _, i := range r.Interfaces {
		if i.State == endpointapi.Provisioned && !wide {
			continue
		}
		if t.Len() == 0 {
			t.Row()
			t.Row("INTERFACE", "PLUGIN", "STATE", "FOR", "REASON")
		}
		t.Row(i.Interface, i.Plugin, string(i.State), terminal.Ago(now, i.Since), i.Reason)
	}
	t.Flush()
}
