package simulate

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
)

// Report is what a simulation found.
type Report struct {
	Nodes     int      `json:"nodes"`
	Endpoints int      `json:"endpoints"`
	Policies  int      `json:"policies"`
	Churn     float64  `json:"churn"`
	Seconds   float64  `json:"seconds"` // of virtual time
	Seed      uint64   `json:"seed"`
	Sample    []string `json:"sample"` // nodes whose agents were calculated in full
	Changes   int      `json:"changes"`
	State     string   `json:"state"` // a hash of what the agents of the sample want of their kernels at the end
	Figures   []Figure `json:"figures"`
	// Limit is what is used up first when there are more changes a second, and how many those are.
	Limit Limit `json:"limit"`
	// Overloaded: churn is above the limit, so that figures of convergence grow with the duration.
	Overloaded bool `json:"overloaded"`
}

// Limit is the most changes a second, and what cannot do more.
type Limit struct {
	Changes float64 `json:"changes"`
	By      string  `json:"by"` // store or agent
}

// Known is how a figure is known.
type Known string

// Ways to know. What is counted or estimated follows from the seed.
const (
	Counted   Known = "counted"   // of all agents
	Estimated Known = "estimated" // counted in the sample, for all
	Measured  Known = "measured"  // in the sample, on this machine
	Modelled  Known = "modelled"  // from what was measured, see model.go
)

// Unit is what a figure is in.
type Unit string

// Units.
const (
	Number  Unit = ""
	Bytes   Unit = "bytes"
	Seconds Unit = "s"
	PerSec  Unit = "/s"
	BytesPS Unit = "bytes/s"
	Percent Unit = "%"
	Cores   Unit = "cores"
)

// Figure is one figure.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  Unit    `json:"unit,omitempty"`
	Known Known   `json:"known"`
	About string  `json:"about"`
	// Full is the figure of all agents calculated in full, and Error how far Value is from it, in percent of it. Nil: nobody checked.
	Full  *float64 `json:"full,omitempty"`
	Error *float64 `json:"errorPercent,omitempty"`
}

// report makes a report of agents, those of the sample among them.
func report(p *plan, done []result) *Report {
	r := &Report{
		Nodes: p.Nodes, Endpoints: p.Endpoints, Policies: p.Policies, Churn: p.Churn, Seconds: p.Duration.Seconds(), Seed: p.Seed,
		Changes: len(p.events),
	}
	h := sha256.New()
	var sample []result
	for _, d := range done {
		if slices.Contains(p.sample, d.node) {
			sample = append(sample, d)
			r.Sample = append(r.Sample, p.nodeName(d.node))
			h.Write([]byte(d.state))
		}
	}
	r.State = hex.EncodeToString(h.Sum(nil)[:8])
	r.Figures, r.Limit = p.figures(sample)
	r.Overloaded = r.Churn > r.Limit.Changes
	if p.Check {
		full, _ := p.figures(done)
		for i := range r.Figures {
			f := &r.Figures[i]
			f.Full, f.Error = &full[i].Value, new(float64)
			if f.Value != full[i].Value {
				*f.Error = 100 * math.Abs(f.Value-full[i].Value) / max(math.Abs(full[i].Value), math.SmallestNonzeroFloat64)
			}
		}
	}
	return r
}
