package bench

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Markers in a page between which Publish writes.
const (
	markBegin = "<!-- make bench: begin -->"
	markEnd   = "<!-- make bench: end -->"
)

// Publish writes the tables of the results into a page, between its markers, and plots into a directory next to it, which is made.
func (r *Results) Publish(page, plots string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), markBegin)
	_, after, ok2 := strings.Cut(rest, markEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s: no markers %q and %q", page, markBegin, markEnd)
	}
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(r.Tables())
	for _, p := range r.plots() {
		if err := os.WriteFile(filepath.Join(plots, p.file), []byte(p.SVG()), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n![%s](%s/%s)\n", p.Title, filepath.Base(plots), p.file)
	}
	return os.WriteFile(page, []byte(before+markBegin+"\n"+b.String()+markEnd+after), 0o644)
}

// Tables are all tables, as text of a page.
func (r *Results) Tables() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s, twill %s: Linux %s, %d × %s, %.0f GiB, %s. Load (1, 5, 15 minutes) before: %s; after: %s.\n",
		m.Date, m.Version, m.Kernel, m.Processors, m.Processor, m.MemoryGB, m.Go, m.LoadBefore, m.LoadAfter)
	if len(r.Connections) > 0 {
		for _, t := range []struct {
			title string
			cell  func(p, conntrack *Path) string
		}{
			{"New TCP connections a second, of conntrack alone in the same round (goal ≥ 0.95)", func(p, ct *Path) string { return spread(p.PerSecond.Over(ct.PerSecond), 2) }},
			{"New TCP connections a second", func(p, _ *Path) string { return spread(p.PerSecond, 0) + failed(p.Failed) }},
			{"µs of processor for a connection: client, kernel and server (goal ≤ 80; at 10,000 policies within 10 % of that at 1)", func(p, _ *Path) string { return spread(p.CPU, 0) }},
			{"The same, of conntrack alone in the same round", func(p, ct *Path) string { return spread(p.CPU.Over(ct.CPU), 2) }},
			{"One TCP stream, of conntrack alone in the same round (goal ≥ 0.97)", func(p, ct *Path) string { return spread(p.Gbps.Over(ct.Gbps), 2) }},
			{"One TCP stream, Gb/s", func(p, _ *Path) string { return spread(p.Gbps, 1) }},
		} {
			r.byWay(&b, t.title, t.cell)
		}
	}
	if len(r.Changes) > 0 {
		r.changeTables(&b)
	}
	return b.String()
}

// byWay is a table of ways by numbers of policies.
func (r *Results) byWay(b *strings.Builder, title string, cell func(p, conntrack *Path) string) {
	fmt.Fprintf(b, "\n%s:\n\n| policies | %s |\n|---|%s\n", title, strings.Join(Ways, " | "), strings.Repeat("---|", len(Ways)))
	for _, n := range r.policies() {
		fmt.Fprintf(b, "| %s |", short(float64(n)))
		for _, w := range Ways {
			fmt.Fprintf(b, " %s |", cell(r.path(n, w), r.path(n, WayConntrack)))
		}
		b.WriteString("\n")
	}
}

// policies are the numbers of policies at which connections were measured.
func (r *Results) policies() (out []int) {
	for _, p := range r.Connections {
		if !slices.Contains(out, p.Policies) {
			out = append(out, p.Policies)
		}
	}
	slices.Sort(out)
	return out
}

func (r *Results) changeTables(b *strings.Builder) {
	rows := slices.SortedFunc(slices.Values(r.Changes), func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Endpoints, b.Endpoints), cmp.Compare(a.Policies, b.Policies), cmp.Compare(a.Rendering, b.Rendering))
	})
	fmt.Fprint(b, "\nFrom the answer of the datastore until the first packet, ms, p50 / p99 (most); CPU: ms of the agent's processor for one change:\n\n"+
		"| endpoints | policies | policy is | remote endpoint | CPU | policy's rule | CPU | new workload | CPU |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range rows {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", short(float64(c.Endpoints)), short(float64(c.Policies)), c.Rendering,
			tail(c.Remote), spread(c.RemoteCPU, 1), tail(c.Policy), spread(c.PolicyCPU, 1), tail(c.New), spread(c.NewCPU, 1))
	}
	fmt.Fprint(b, "\nStart with an empty kernel until all 100 workloads are reached, and what is there then:\n\n"+
		"| endpoints | policies | policy is | start, s | CPU, s | peak RSS, MB | kernel's memory, MB | `nft list ruleset`: MB | s | |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range rows {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", short(float64(c.Endpoints)), short(float64(c.Policies)), c.Rendering,
			spread(c.Cold, 2), spread(c.ColdCPU, 2), spread(c.PeakMB, 0), spread(c.KernelMB, 1), spread(c.ListMB, 1), spread(c.ListSeconds, 2), strings.Join(c.ListErrors, "; "))
	}
}

// spread is a median and what is around it.
func spread(f Figures, digits int) string {
	if len(f) == 0 {
		return "–"
	}
	of := func(v float64) string {
		if digits == 0 {
			return short(float64(int(v + 0.5)))
		}
		return fmt.Sprintf("%.*f", digits, v)
	}
	return fmt.Sprintf("**%s** (%s–%s)", of(f.Median()), of(slices.Min(f)), of(slices.Max(f)))
}

// tail is what matters of many.
func tail(f Figures) string {
	if len(f) == 0 {
		return "–"
	}
	return fmt.Sprintf("**%.1f / %.1f** (%.0f)", f.Median(), f.Quantile(0.99), slices.Max(f))
}

func failed(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d failed", n)
}

// named is a plot and its file.
type named struct {
	file string
	Plot
}

// plots are those for which there are at least two points.
func (r *Results) plots() (out []named) {
	add := func(file string, p Plot) {
		p.Lines = slices.DeleteFunc(p.Lines, func(l Line) bool { return len(l.Points) < 2 })
		if len(p.Lines) > 0 {
			out = append(out, named{file, p})
		}
	}
	add("connections.svg", r.pathPlot("New TCP connections", "connections a second", true, func(p *Path) Figures { return p.PerSecond }))
	add("cpu.svg", r.pathPlot("Processor time of a new TCP connection", "µs", true, func(p *Path) Figures { return p.CPU }))
	add("stream.svg", r.pathPlot("One TCP stream", "Gb/s", false, func(p *Path) Figures { return p.Gbps }))
	policies := func(c Change) int { return c.Policies }
	endpoints := func(c Change) int { return c.Endpoints }
	add("latency-policies.svg", r.changePlot("A change, until packets see it", "policies", "ms, median", policies, endpoints, latencies))
	add("latency-endpoints.svg", r.changePlot("A change, until packets see it", "endpoints", "ms, median", endpoints, policies, latencies))
	add("change-cpu-policies.svg", r.changePlot("The agent's processor time of a change", "policies", "ms", policies, endpoints, costs))
	add("change-cpu-endpoints.svg", r.changePlot("The agent's processor time of a change", "endpoints", "ms", endpoints, policies, costs))
	return out
}

func (r *Results) pathPlot(title, y string, log bool, of func(*Path) Figures) Plot {
	p := Plot{Title: title + " by policies that apply, three rules each", X: "policies", Y: y, LogY: log}
	for _, w := range Ways {
		l := Line{Name: w}
		for _, n := range r.policies() {
			if f := of(r.path(n, w)); len(f) > 0 {
				l.Points = append(l.Points, Spot{float64(n), f.Median(), slices.Min(f), slices.Max(f)})
			}
		}
		p.Lines = append(p.Lines, l)
	}
	return p
}

// of is a kind of change and its figures.
type of struct {
	name    string
	figures func(Change) Figures
}

var latencies = []of{
	{"remote endpoint", func(c Change) Figures { return c.Remote }},
	{"policy's rule", func(c Change) Figures { return c.Policy }},
	{"new workload", func(c Change) Figures { return c.New }},
}

var costs = []of{
	{"remote endpoint", func(c Change) Figures { return c.RemoteCPU }},
	{"policy's rule", func(c Change) Figures { return c.PolicyCPU }},
	{"new workload", func(c Change) Figures { return c.NewCPU }},
}

// changePlot is by one number, where the other is the one with most points. Ranges are the middle half.
func (r *Results) changePlot(title, x, y string, by, other func(Change) int, kinds []of) Plot {
	count, most := map[int]int{}, 0
	for _, c := range r.Changes {
		if count[other(c)]++; count[other(c)] > count[most] || count[other(c)] == count[most] && other(c) < most {
			most = other(c)
		}
	}
	with := "endpoints"
	if x == with {
		with = "policies"
	}
	p := Plot{Title: fmt.Sprintf("%s (%s %s)", title, short(float64(most)), with), X: x, Y: y, LogY: true}
	rows := slices.SortedFunc(slices.Values(r.Changes), func(a, b Change) int { return cmp.Compare(by(a), by(b)) })
	for _, rendering := range []string{"Chains", "Compiled"} {
		for _, k := range kinds {
			l := Line{Name: k.name + ", " + strings.ToLower(rendering)}
			for _, c := range rows {
				if f := k.figures(c); c.Rendering == rendering && other(c) == most && f.Median() > 0 {
					l.Points = append(l.Points, Spot{float64(by(c)), f.Median(), max(f.Quantile(0.25), f.Median()/10), f.Quantile(0.75)})
				}
			}
			p.Lines = append(p.Lines, l)
		}
	}
	return p
}
