package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/terminal"
	"github.com/twillnet/twill/internal/verdict/world"
)

// report is what a node says of something on the way that is not in force there, or not in the form that the settings want: resources
// alone do not say it.
type report struct {
	Resource string `json:"resource"`
	Node     string `json:"node"`
	Status   string `json:"status"`
	Reason   string `json:"reason"`
	Chains   string `json:"chains,omitempty"` // why its policy is asked rule by rule
	Note     string `json:"note,omitempty"`   // that its virtual machine comes from another host
}

// reported are the endpoints on the way that are not up, are asked rule by rule, or move, as their nodes last wrote it to the datastore.
func reported(us []api.Update, answers []world.Answer) (out []report) {
	stored := status.States(us)
	for _, h := range hopsOf(answers) {
		id, resource := intent.EndpointID{Kind: intent.Host, Name: strings.TrimPrefix(h.Endpoint, "host/")}, "hostendpoint/"+strings.TrimPrefix(h.Endpoint, "host/")
		if h.Stage == world.StageWorkload {
			namespace, name, _ := strings.Cut(h.Endpoint, "/")
			id, resource = intent.EndpointID{Kind: intent.Workload, Namespace: namespace, Name: name}, "workloadendpoint/"+h.Endpoint
		}
		key, _ := status.EndpointKey(h.Node, id)
		var is status.Endpoint
		r := report{Resource: resource, Node: h.Node}
		if json.Unmarshal(stored[key], &is) == nil && is.Status != "" && (is.Status != status.Up || is.Chains != "" || is.Note != "") {
			r.Status, r.Reason, r.Chains, r.Note = is.Status, is.Reason, is.Chains, is.Note
			if !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return append(out, failedThere(us, answers)...)
}

// failedThere are the policies on the way that a node does not have in force, as it last wrote it to the datastore.
func failedThere(us []api.Update, answers []world.Answer) (out []report) {
	failed := status.Failed(us)
	for _, h := range hopsOf(answers) {
		for _, p := range policiesOf(h) {
			key, err := (api.Ref{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}).Key()
			why, is := failed[h.Node][key]
			if r := (report{Resource: refOf(p.String()), Node: h.Node, Status: status.Error, Reason: why}); err == nil && is && !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

// policiesOf are those that are asked on a hop.
func policiesOf(h world.Hop) (out []intent.PolicyID) {
	policies := slices.Clone(h.Profiles)
	for _, t := range h.Tiers {
		policies = append(policies, t.Policies...)
	}
	for _, p := range policies {
		out = append(out, intent.PolicyID{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name})
	}
	return out
}

// notInForce adds the policies on the way that the agent of this host does not have in force, such as one that is over its
// budget; none, if no agent answers or the way does not lead by this host.
func notInForce(ctx context.Context, answers []world.Answer, out []report) []report {
	ctx, cancel := context.WithTimeout(ctx, conn.Patience)
	defer cancel()
	answer, err := agent.Ask(ctx, conn.AgentSocket())
	if err != nil {
		return out
	}
	for _, h := range hopsOf(answers) {
		if h.Node != answer.Node {
			continue
		}
		for _, p := range policiesOf(h) {
			id := p.String()
			for _, failed := range answer.Failed {
				why, is := strings.CutPrefix(failed, id+": ")
				r := report{Resource: refOf(id), Node: answer.Node, Status: status.Error, Reason: why}
				if is && !slices.Contains(out, r) {
					out = append(out, r)
				}
			}
		}
	}
	return out
}

func hopsOf(answers []world.Answer) (hops []world.Hop) {
	for _, a := range answers {
		hops = append(hops, a.Hops...)
	}
	return hops
}

// reportsText says what nodes report. It is apart from the answer, which is of the resources.
func reportsText(rs []report) string {
	var b strings.Builder
	var down, slow, come []string
	for _, r := range rs {
		if r.Status != status.Up {
			down = append(down, fmt.Sprintf("%s on %s: %s: %s", r.Resource, r.Node, r.Status, r.Reason))
		}
		if r.Chains != "" {
			slow = append(slow, fmt.Sprintf("%s on %s: %s", r.Resource, r.Node, r.Chains))
		}
		if r.Note != "" {
			come = append(come, fmt.Sprintf("%s on %s: %s", r.Resource, r.Node, r.Note))
		}
	}
	section(&b, terminal.Warn.Render("Not in force, as nodes report it; until it is, packets may fare otherwise than this answer says"), down)
	section(&b, byChains, slow)
	section(&b, "Live migrations (docs/live-migration.md)", come)
	return b.String()
}
