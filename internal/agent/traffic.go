package agent

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"syscall"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/flows"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/metrics"
)

// RuleCount counts the packets that a rule of a policy, or the end of a tier, decided about or logged on this node, since its rule in
// the kernel last changed. Of a flow, only the first packet is counted.
type RuleCount struct {
	Policy    string `json:"policy,omitempty"` // kind/namespace/name, or kind/name; of the end of a tier: its last policy
	Direction string `json:"direction"`
	Rule      int    `json:"rule"` // -1: no rule
	Reason    string `json:"reason"`
	Tier      string `json:"tier,omitempty"`
	Allowed   bool   `json:"allowed"`
	Logged    bool   `json:"logged,omitempty"` // a rule with action Log; Allowed has no meaning
	Packets   uint64 `json:"packets"`
	Bytes     uint64 `json:"bytes,omitempty"`
	// Staged: of a staged policy; counts the packets whose verdict it would have changed.
	Staged bool `json:"staged,omitempty"`
}

// tally reads the counters of rules, and flows.
type tally struct {
	conn   *nftables.Conn
	names  *attribution.Table
	flows  flowSource
	logged flowSource // of rules with action Log
	policy policyPart
}

// flowSource is a collector of flows.
type flowSource interface {
	Counts() flows.Counts
	Last(n int) []flows.Flow
	Listen() (<-chan flows.Flow, func())
}

// counts reads the kernel's counters, and those of staged policies.
func (t tally) counts() ([]RuleCount, error) {
	rs, err := t.conn.Outline(kernel.TableName)
	if err != nil {
		return nil, err
	}
	return t.counted(rs)
}

// counted is counts of a table that has been read.
func (t tally) counted(rs *nftables.Ruleset) ([]RuleCount, error) {
	chains := map[string][]nftables.Counter{}
	for _, r := range rs.Rules {
		var n nftables.Counter
		for _, x := range r.Exprs {
			if c, ok := x.(nftables.Counter); ok {
				n = c
			}
		}
		chains[r.Chain] = append(chains[r.Chain], n)
	}
	if err := t.codes(rs, chains); err != nil {
		return nil, err
	}
	sums := map[RuleCount]nftables.Counter{}
	for chain, counters := range chains {
		names := t.names.Rules(chain)
		if len(names) != len(counters) {
			continue // it is about to change
		}
		for i, d := range names {
			if d.Reason == "" || counters[i].Packets == 0 {
				continue
			}
			key := RuleCount{Direction: d.Rule.Direction.String(), Rule: d.Rule.Index, Reason: d.Reason, Tier: d.Tier, Allowed: d.Allowed, Logged: d.Reason == intent.ReasonLogged}
			if d.Rule.Policy != (intent.PolicyID{}) {
				key.Policy = d.Rule.Policy.String()
			}
			n := sums[key]
			sums[key] = nftables.Counter{Packets: n.Packets + counters[i].Packets, Bytes: n.Bytes + counters[i].Bytes}
		}
	}
	out := []RuleCount{}
	for key, n := range sums {
		key.Packets, key.Bytes = n.Packets, n.Bytes
		out = append(out, key)
	}
	for w, n := range t.flows.Counts().Staged {
		out = append(out, RuleCount{Policy: w.Policy, Direction: w.Dir, Rule: w.Rule, Reason: w.Reason, Tier: w.Tier, Allowed: w.Allowed, Packets: n, Staged: true})
	}
	slices.SortFunc(out, func(a, b RuleCount) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Tier, b.Tier))
	})
	return out, nil
}

// codes reads the counters of codes, if policy is look-ups.
func (t tally) codes(rs *nftables.Ruleset, chains map[string][]nftables.Counter) error {
	if !slices.ContainsFunc(rs.Sets, func(s nftables.SetState) bool { return s.Name == kernel.SetCodes }) {
		return nil
	}
	st, err := t.conn.ListSet(kernel.TableName, kernel.SetCodes)
	if errors.Is(err, syscall.ENOENT) {
		return nil // it went meanwhile
	}
	for _, el := range st.Elements {
		if el.Counter != nil && len(el.Key) == 4 {
			chains[attribution.OfCode(binary.NativeEndian.Uint32(el.Key))] = []nftables.Counter{*el.Counter}
		}
	}
	return err
}

// traffic returns the counts for metrics.
func (t tally) traffic() metrics.Traffic {
	n, l := t.flows.Counts(), t.logged.Counts()
	out := metrics.Traffic{
		Allowed: float64(n.Allowed), Denied: float64(n.Dropped), Logged: float64(l.Logged), Unknown: float64(n.Unknown + l.Unknown), Lost: float64(n.Lost + l.Lost),
	}
	rs, err := t.conn.Outline(kernel.TableName)
	if err != nil {
		return out // the next scrape reads again
	}
	out.Objects = t.objects(rs)
	counts, err := t.counted(rs)
	if err != nil {
		return out
	}
	out.Rules, out.Staged = labelled(counts)
	return out
}

// labelled sums counts by label: the end of a tier and a closed policy are both a policy's, and
// neither is one of its rules.
func labelled(counts []RuleCount) (rules, staged []metrics.RuleCount) {
	type sum struct{ packets, bytes uint64 }
	sums := map[bool]map[metrics.RuleCount]sum{false: {}, true: {}}
	for _, c := range counts {
		r := metrics.RuleCount{Policy: c.Policy, Direction: c.Direction, Rule: strconv.Itoa(c.Rule), Action: "deny"}
		switch {
		case c.Logged:
			r.Action = "log"
		case c.Allowed:
			r.Action = "allow"
		}
		if c.Staged || c.Policy != "" {
			n := sums[c.Staged][r]
			sums[c.Staged][r] = sum{n.packets + c.Packets, n.bytes + c.Bytes}
		}
	}
	list := func(m map[metrics.RuleCount]sum) (out []metrics.RuleCount) {
		for r, n := range m {
			r.Packets, r.Bytes = float64(n.packets), float64(n.bytes)
			out = append(out, r)
		}
		return out
	}
	return list(sums[false]), list(sums[true])
}

// serve serves flows and counts.
func (t tally) serve(mux *http.ServeMux) {
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) {
		counts, err := t.counts()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(counts) // the reader has gone
	})
	mux.HandleFunc("GET /flows", func(w http.ResponseWriter, r *http.Request) {
		last, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("last"), "0"))
		if err != nil {
			http.Error(w, "last: want a number", http.StatusBadRequest)
			return
		}
		from := t.flows
		if r.URL.Query().Get("logged") != "" {
			from = t.logged
		}
		stream(w, r, from, last)
	})
}

// stream writes the last flows, a line each, and with follow all later ones until the client disconnects.
func stream(w http.ResponseWriter, r *http.Request, from flowSource, last int) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	e := json.NewEncoder(w)
	out := http.NewResponseController(w)
	// Listen first, so that nothing is missed in between; duplicates are recognised by their time.
	more, end := from.Listen()
	defer end()
	var latest flows.Flow
	for _, f := range from.Last(last) {
		if latest = f; e.Encode(f) != nil {
			return
		}
	}
	if r.URL.Query().Get("follow") == "" {
		return
	}
	for {
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case f := <-more:
			if f.Time.After(latest.Time) && e.Encode(f) != nil {
				return
			}
		}
	}
}

// WhichFlows selects flows.
type WhichFlows struct {
	Last   int  // how many of the past ones
	Follow bool // and all later ones
	Logged bool // what rules with action Log reported, instead of what was dropped or allowed
}

// Flows fetches flows from the agent at a socket, until there are no more, the context ends or each fails.
func Flows(ctx context.Context, socket string, which WhichFlows, each func(flows.Flow) error) error {
	path := "/flows?last=" + strconv.Itoa(which.Last)
	if which.Follow {
		path += "&follow=1"
	}
	if which.Logged {
		path += "&logged=1"
	}
	resp, err := ask(ctx, socket, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := eachFlow(resp.Body, each); err != nil {
		return err
	}
	return ctx.Err()
}

func eachFlow(answer io.Reader, each func(flows.Flow) error) error {
	d := json.NewDecoder(answer)
	for d.More() {
		var f flows.Flow
		if err := d.Decode(&f); err != nil {
			return fmt.Errorf("the agent's answer: %w", err)
		}
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// Counted fetches the rules' counts from the agent at a socket.
func Counted(ctx context.Context, socket string) ([]RuleCount, error) {
	resp, err := ask(ctx, socket, "/counts")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out []RuleCount
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, fmt.Errorf("the agent's answer: %w", err)
	}
	return out, nil
}
