package bench

import (
	"encoding/json"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Figures are the values of one thing, one for each time that it was measured.
type Figures []float64

// Quantile is the value below which that part of them is; 0.5 is the median. Of none it is NaN.
func (f Figures) Quantile(q float64) float64 {
	if len(f) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(f))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Median is the middle one.
func (f Figures) Median() float64 { return f.Quantile(0.5) }

// Over divides each by that of the same round of another.
func (f Figures) Over(other Figures) (out Figures) {
	for i := range min(len(f), len(other)) {
		out = append(out, f[i]/other[i])
	}
	return out
}

// Clear says whether ratios of pairs tell on which side of a limit their median is: 1 above, -1 below, 0 if more pairs are needed. It asks
// that the limit is outside of the order statistics between which the median is in 99.9 of 100 cases: half of the number and
// 1.65 times its root, by the normal form of the binomial distribution.
func Clear(ratios Figures, limit float64) int {
	sorted := slices.Sorted(slices.Values(ratios))
	n := float64(len(sorted))
	low := int(n/2 - 1.65*math.Sqrt(n))
	if low < 1 {
		return 0
	}
	switch {
	case sorted[low-1] > limit:
		return 1
	case sorted[len(sorted)-low] < limit:
		return -1
	}
	return 0
}

// Machine is where and when something was measured.
type Machine struct {
	Date, Kernel, Processor, Go, Version string
	Processors                           int
	MemoryGB                             float64
	LoadBefore, LoadAfter                string // of one, five and fifteen minutes
}

// Results are all figures of a run.
type Results struct {
	Machine     Machine
	Connections []Path
	Changes     []Change
}

// Path is what one way through a host costs.
type Path struct {
	Policies int
	Way      string
	// In rounds, in each of which all ways of one number of policies were measured.
	PerSecond, CPU, Gbps Figures
	Failed               int // connections
}

// Change is what changes cost one rendering in a world.
type Change struct {
	Policies, Endpoints int
	Rendering           string
	Remote, Policy, New Figures // ms from the write's answer to the first packet
	RemoteCPU           Figures // ms of the agent's processor for a change, one for each round
	PolicyCPU, NewCPU   Figures
	Cold, ColdCPU       Figures // s from the agent's start until each workload is reached
	PeakMB, KernelMB    Figures
	ListMB, ListSeconds Figures // what `nft list ruleset` wrote, and how long it took
	ListErrors          []string
}

// find returns the row that fits, or a new one.
func find[T any](rows *[]T, fresh T, fits func(*T) bool) *T {
	for i := range *rows {
		if fits(&(*rows)[i]) {
			return &(*rows)[i]
		}
	}
	*rows = append(*rows, fresh)
	return &(*rows)[len(*rows)-1]
}

func (r *Results) path(policies int, way string) *Path {
	return find(&r.Connections, Path{Policies: policies, Way: way}, func(p *Path) bool { return p.Policies == policies && p.Way == way })
}

func (r *Results) change(at Point, rendering string) *Change {
	return find(&r.Changes, Change{Policies: at.Policies, Endpoints: at.Endpoints, Rendering: rendering},
		func(c *Change) bool {
			return c.Policies == at.Policies && c.Endpoints == at.Endpoints && c.Rendering == rendering
		})
}

// Save writes the results to a file, as JSON.
func (r *Results) Save(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// Read reads what Save wrote.
func Read(file string) (*Results, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Results{}
	return r, json.Unmarshal(text, r)
}

// ThisMachine describes where this process runs, before it measures; version is of what it measures. What cannot be read is left empty.
func ThisMachine(version string) Machine {
	m := Machine{Date: time.Now().UTC().Format("2006-01-02"), Go: runtime.Version(), Version: version, Processors: runtime.NumCPU(), LoadBefore: loads()}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	if kb, err := number("/proc/meminfo", "MemTotal:"); err == nil {
		m.MemoryGB = kb / (1 << 20)
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, rest, _ := strings.Cut(string(text), "model name")
		line, _, _ := strings.Cut(rest, "\n")
		m.Processor = strings.TrimLeft(line, "\t :")
	}
	return m
}

// Ended notes how busy the machine was at the end.
func (m *Machine) Ended() { m.LoadAfter = loads() }

func loads() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
