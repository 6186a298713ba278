// Package reach lists the flows that a peer and workloads may open to each other, by what decides about them.
//
// In: the resources of a datastore or of files, and names. Out: a [Line] for each protocol and port at which a workload's
// policy makes a difference for the peer. Each node is calculated as its agent would.
package reach

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/verdict/world"
)

// Line is the decision about some flows between a peer and one workload.
type Line struct {
	Workload  string     `json:"workload"`
	Peer      netip.Addr `json:"peer"`
	Direction string     `json:"direction"`      // Ingress: the workload receives; Egress: it sends
	Flows     string     `json:"flows"`          // "tcp/80,443", "icmp", "all else"
	Action    string     `json:"action"`         // allow, deny, reset, reject
	When      string     `json:"when,omitempty"` // further conditions on these packets
	By        string     `json:"by"`
}

// List returns the flows that a peer and the workloads of a datastore's resources, or some of them, may open to each other. A peer is
// namespace/workload, host/NODE or an address. An error names an unknown peer or workload.
func List(us []api.Update, peer string, workloads ...string) ([]Line, error) {
	w := world.New(us)
	from, err := w.Resolve(peer)
	if err != nil {
		return nil, err
	}
	if len(from.Addrs) == 0 {
		return nil, fmt.Errorf("%s has no address", peer)
	}
	only := map[string]bool{}
	for _, name := range workloads {
		p, err := w.Resolve(name)
		if err != nil {
			return nil, err
		}
		if p.Endpoint == "" {
			return nil, fmt.Errorf("%s is no workload, and only a workload's policy is listed", name)
		}
		only[p.Endpoint] = true
	}
	out := []Line{}
	for _, node := range nodesOf(us) {
		out = append(out, onNode(us, node, from.Addrs, only)...)
	}
	slices.SortStableFunc(out, func(a, b Line) int { return strings.Compare(a.Workload, b.Workload) })
	return out, nil
}

// nodesOf returns the nodes that have workloads.
func nodesOf(us []api.Update) []string {
	nodes := map[string]bool{}
	for _, u := range us {
		var e api.WorkloadEndpoint
		if strings.HasPrefix(u.Key, api.KeyPrefix(api.KindWorkloadEndpoint, "")) && json.Unmarshal(u.Value, &e) == nil && e.Spec.Node != "" {
			nodes[e.Spec.Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// setMembers are the sets of a batch, with their members, as classify needs them.
type setMembers map[intent.SetID][]intent.Member

// Each calls f for each member of a set.
func (s setMembers) Each(id intent.SetID, f func(intent.Member)) {
	for _, m := range s[id] {
		f(m)
	}
}

func onNode(us []api.Update, node string, peers []netip.Addr, only map[string]bool) (out []Line) {
	graph := calc.New(node)
	graph.Update(us)
	batch := graph.Flush()
	sets := setMembers{}
	for _, s := range batch.IPSets {
		sets[s.ID] = s.Members
	}
	state := classify.New(classify.Limits{}, sets)
	for _, p := range batch.Policies {
		state.SetPolicy(p)
	}
	type asked struct {
		workload string
		walk     classify.Walk
	}
	var all []asked
	for _, e := range batch.Endpoints {
		name := e.ID.Namespace + "/" + e.ID.Name
		if e.ID.Kind != intent.Workload || len(only) > 0 && !only[name] {
			continue
		}
		label := e.Label
		if label == "" {
			label = name
		}
		for _, direction := range []intent.Direction{intent.Ingress, intent.Egress} {
			all = append(all, asked{label, classify.WalkOf(e, direction)})
			state.SetWalk(classify.Group(len(all)), all[len(all)-1].walk)
		}
	}
	tables := classify.Tables{}
	if err := tables.Apply(state.Flush()); err != nil {
		panic(err) // the first delta refers only to what it makes itself
	}
	for i, a := range all {
		for _, peer := range peers {
			for _, l := range lines(&tables, classify.Group(i+1), peer) {
				l.Workload, l.Peer, l.Direction = a.workload, peer, a.walk.Direction.String()
				out = append(out, l)
			}
		}
	}
	return out
}

// lines returns the decisions of a group about a peer, from the specific to the general.
func lines(t *classify.Tables, g classify.Group, peer netip.Addr) (out []Line) {
	body, ok := t.Program(g, peer)
	if !ok {
		return []Line{{Flows: "all", Action: "unknown", By: "too much to list; ask twill why about one flow"}}
	}
	type cell struct {
		proto uint8
		code  classify.Code
	}
	ports := map[cell][]uint16{}
	for k, code := range body.Port {
		ports[cell{k.Proto, code}] = append(ports[cell{k.Proto, code}], k.Port)
	}
	var named []Line
	for c, list := range ports {
		slices.Sort(list)
		flows := fmt.Sprintf("%s/%s", protocolName(c.proto), strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ","))
		named = append(named, branches(flows, t.Codes[c.code])...)
	}
	slices.SortStableFunc(named, func(a, b Line) int { return strings.Compare(a.Flows, b.Flows) })
	for _, proto := range slices.Sorted(maps.Keys(body.Proto)) {
		flows := protocolName(proto)
		if slices.ContainsFunc(named, func(r Line) bool { return strings.HasPrefix(r.Flows, flows+"/") }) {
			flows += ", other ports"
		}
		out = append(out, branches(flows, t.Codes[body.Proto[proto]])...)
	}
	rest := "all else"
	if len(named)+len(out) == 0 {
		rest = "all"
	}
	return slices.Concat(named, out, branches(rest, t.Codes[body.Else]))
}

// branches returns the lines of one outcome.
func branches(flows string, o classify.Outcome) (out []Line) {
	for _, b := range o {
		if b.Action == rules.Log {
			continue
		}
		var when []string
		for _, t := range b.Terms {
			when = append(when, t.String())
		}
		out = append(out, Line{Flows: flows, Action: b.Action.String(), When: strings.Join(when, " and "), By: decisionText(b.By)})
	}
	return out
}

// decisionText names a decision, for people.
func decisionText(by intent.Decision) string {
	switch {
	case by.Reason == intent.ReasonRule:
		return rules.RuleComment(by.Rule)
	case by.Tier != "":
		return by.Reason + " " + by.Tier
	}
	return by.Reason
}

func protocolName(n uint8) string {
	for _, name := range []string{"TCP", "UDP", "SCTP", "UDPLite", "ICMP", "ICMPv6"} {
		if is, ok := (api.Protocol{Name: name}).Number(); ok && is == n {
			return strings.ToLower(name)
		}
	}
	return fmt.Sprint(n)
}
