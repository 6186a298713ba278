package status

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// NodeStatus is the status of one node in the datastore.
type NodeStatus struct {
	Node      string         `json:"node"`
	Region    string         `json:"region,omitempty"`
	Alive     bool           `json:"alive"`               // the agent is alive, see the function Alive
	Last      Process        `json:"last"`                // its last report
	Endpoints map[string]int `json:"endpoints,omitempty"` // by state
	Summary   *Summary       `json:"-"`                   // nil: there is none
}

// Skew is how far the clocks of two hosts may be apart.
const Skew = 30 * time.Second

// Alive reports whether the value of a node's `status` still says that its agent lives. Where keys expire, it does as long as it is
// there. Elsewhere it says until when, by the agent's clock: whoever reads it once compares that with a clock of its own, and takes
// an agent for dead no earlier than Skew after it, since the mistake that costs is to delete what belongs to one that lives. Who
// goes on watching the key should judge by when it last changed, which needs no clock but its own.
func Alive(value []byte, now time.Time) bool {
	var p Process
	if json.Unmarshal(value, &p) != nil || p.Expires == "" {
		return true
	}
	until, err := time.Parse(time.RFC3339, p.Expires)
	return err != nil || now.Before(until.Add(Skew))
}

// Nodes reads what agents have reported, by name of node.
func Nodes(ctx context.Context, store datastore.Store) ([]NodeStatus, error) {
	found := map[[2]string]*NodeStatus{}
	prefix := api.Root + "felix/v2/"
	all, err := store.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	for _, kv := range all.Items {
		parts := strings.Split(strings.TrimPrefix(kv.Key, prefix), "/")
		if len(parts) < 4 || parts[1] != "host" {
			continue
		}
		region, _ := url.PathUnescape(strings.TrimPrefix(parts[0], "region-"))
		if parts[0] == "no-region" {
			region = ""
		}
		node, _ := url.PathUnescape(parts[2])
		n := found[[2]string{region, node}]
		if n == nil {
			n = &NodeStatus{Node: node, Region: region, Endpoints: map[string]int{}}
			found[[2]string{region, node}] = n
		}
		n.take(parts[3:], kv.Value)
	}
	var out []NodeStatus
	for _, n := range found {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b NodeStatus) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Region, b.Region)) })
	return out, nil
}

// take takes over one key. What is not JSON is ignored.
func (n *NodeStatus) take(key []string, value []byte) {
	switch key[0] {
	case "status":
		n.Alive = Alive(value, time.Now())
		fallthrough
	case "last_reported_status":
		var p Process
		if json.Unmarshal(value, &p) == nil && p.Time >= n.Last.Time {
			n.Last = p
		}
	case "summary":
		var s Summary
		if json.Unmarshal(value, &s) != nil {
			return
		}
		n.Summary = &s
		for state, count := range s.Endpoints {
			n.Endpoints[state] += count
		}
	case "workload":
		var e Endpoint
		if json.Unmarshal(value, &e) == nil {
			n.Endpoints[e.Status]++
		}
	}
}

// KeysOf returns the keys of all that a node has reported, in any region, and whether its agent is [Alive].
func KeysOf(ctx context.Context, store datastore.Store, node string) (keys []string, alive bool, err error) {
	prefix := api.Root + "felix/v2/"
	all, err := store.List(ctx, prefix)
	if err != nil {
		return nil, false, err
	}
	name := Part(node)
	for _, kv := range all.Items {
		if parts := strings.Split(strings.TrimPrefix(kv.Key, prefix), "/"); len(parts) > 3 && parts[1] == "host" && parts[2] == name {
			keys = append(keys, kv.Key)
			alive = alive || parts[3] == "status" && Alive(kv.Value, time.Now())
		}
	}
	hosts, err := store.List(ctx, place{node: node}.hosts())
	if err != nil {
		return nil, false, err
	}
	for _, kv := range hosts.Items {
		keys = append(keys, kv.Key)
	}
	return keys, alive, nil
}

// States are the values of endpoints' states among updates, by key as EndpointKey has it: each that a node wrote by itself, or in its summary.
func States(us []api.Update) map[string][]byte {
	stored := map[string][]byte{}
	put := func(key string, value []byte) {
		key = current(key)
		if rest, ok := strings.CutPrefix(key, api.Root+"felix/v2/"); ok {
			_, rest, _ = strings.Cut(rest, "/")
			key = Prefix("") + strings.TrimPrefix(rest, "host/")
		}
		stored[key] = value
	}
	for _, u := range us {
		if !strings.HasPrefix(u.Key, api.Root+"felix/") {
			continue
		}
		put(u.Key, u.Value)
		_, s := summaryOf(u)
		for key, e := range s.NotUp {
			if value, err := json.Marshal(e); err == nil {
				put(key, value)
			}
		}
	}
	return stored
}

// Failed are the policies that nodes do not have in force, by node and the policy's key, with the reason.
func Failed(us []api.Update) map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, u := range us {
		if node, s := summaryOf(u); node != "" {
			out[node] = s.Failed
		}
	}
	return out
}

// summaryOf reads an update of a summary; an empty node: it is none, or cannot be read.
func summaryOf(u api.Update) (node string, s Summary) {
	rest, ok := strings.CutPrefix(u.Key, api.Root+"felix/v2/")
	parts := strings.Split(rest, "/") // region, host, node, summary
	if !ok || len(parts) != 4 || parts[3] != "summary" || json.Unmarshal(u.Value, &s) != nil {
		return "", Summary{}
	}
	node, _ = url.PathUnescape(parts[2])
	return node, s
}
