package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/usage"
)

// usageOf is what there is to report. Policy is in nftables unless settings say otherwise.
func usageOf(g *calc.Graph, version string) usage.Report {
	c := g.Cluster()
	return usage.Report{
		GUID: c.GUID, Type: c.Type, CalicoVersion: c.CalicoVersion, Version: version, Nftables: g.Settings().Settings.Nftables != "Disabled",
		Hosts: c.Hosts, WorkloadEndpoints: c.WorkloadEndpoints, HostEndpoints: c.HostEndpoints, Policies: c.Policies, Profiles: c.Profiles,
	}
}

// UsageReport is what an agent would report of usage now.
type UsageReport struct {
	URL        string     `json:"url,omitempty"` // where; empty: nowhere
	Off        string     `json:"off,omitempty"` // why nothing is sent
	Parameters url.Values `json:"parameters"`    // of the request; nil: the datastore has not been read
}

func (r *reporter) usageReport(w http.ResponseWriter, _ *http.Request) {
	var out UsageReport
	s, facts, known := r.usage.Next()
	out.Off = s.Off()
	if u, err := url.Parse(s.URL); err == nil {
		out.URL = u.Redacted()
	}
	if known {
		out.Parameters = facts.Parameters()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the reader has gone
}

// AskUsage fetches what the agent at a socket would report.
func AskUsage(ctx context.Context, socket string) (UsageReport, error) {
	resp, err := ask(ctx, socket, "/usage")
	if err != nil {
		return UsageReport{}, err
	}
	defer resp.Body.Close()
	var out UsageReport
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return UsageReport{}, fmt.Errorf("the agent's answer: %w", err)
	}
	return out, nil
}
