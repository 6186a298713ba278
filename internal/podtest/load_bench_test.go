package podtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// load is what service accounts have asked of the API server, by its audit log.
type load struct {
	requests map[string]int // by verb, each once, watches among them
	refused  int            // of them: who asks too much, or may not
	why      []string       // of each that was refused
}

// total counts all requests that are no watch.
func (l load) total() (n int) {
	for verb, of := range l.requests {
		if verb != "watch" {
			n += of
		}
	}
	return n
}

// since is what came after an earlier look.
func (l load) since(before load) load {
	out := load{requests: map[string]int{}, refused: l.refused - before.refused, why: l.why[len(before.why):]}
	for verb, n := range l.requests {
		out.requests[verb] = n - before.requests[verb]
	}
	return out
}

// loadOf reads the log. A request has a line for each stage: a watch one when it begins and one when it ends.
func loadOf(t testing.TB, log string) load {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, seen := load{requests: map[string]int{}}, map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var r struct {
			AuditID, Verb, RequestURI string
			Response                  struct {
				Code    int
				Message string
			} `json:"responseStatus"`
		}
		if json.Unmarshal(lines.Bytes(), &r) != nil || seen[r.AuditID] {
			continue // the last line, which is being written, or a later stage
		}
		seen[r.AuditID] = true
		out.requests[r.Verb]++
		if r.Response.Code == http.StatusForbidden || r.Response.Code == http.StatusTooManyRequests {
			out.refused++
			out.why = append(out.why, fmt.Sprintf("%s %s: %d %s", r.Verb, r.RequestURI, r.Response.Code, r.Response.Message))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// collections are those of garbage in the agent so far, in MB.
type collections struct {
	most     float64 // of the heap, at the end of one
	mostLive float64 // in use
	live     float64 // at the last
}

// traced is a line of GODEBUG=gctrace=1 (package runtime): the heap when a collection began, when it ended, and what of it was in use, in MiB.
var traced = regexp.MustCompile(`^gc \d+ @.* (\d+)->(\d+)->(\d+) MB,`)

// collections reads the log of an agent that writes one.
func (n *node) collections() (out collections) {
	n.t.Helper()
	f, err := os.Open(n.log)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	mb := func(text string) float64 { return float64(number(n.t, text)) * (1 << 20) / 1e6 }
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m := traced.FindStringSubmatch(lines.Text()); m != nil {
			out.most, out.live = max(out.most, mb(m[2])), mb(m[3])
			out.mostLive = max(out.mostLive, out.live)
		}
	}
	return out
}

// figures are what a benchmark measured, each as often as it did.
type figures struct {
	b     *testing.B
	names []string // in their order
	of    map[string][]float64
}

func (f *figures) add(name string, v float64) {
	if f.of == nil {
		f.of = map[string][]float64{}
	}
	if f.of[name] == nil {
		f.names = append(f.names, name)
	}
	f.of[name] = append(f.of[name], v)
	f.b.Logf("%s %.4g", name, v)
}

func (f *figures) report() {
	for _, name := range f.names {
		f.b.ReportMetric(quantile(f.of[name], 50), name)
	}
}

// quantile is the value that so many of a hundred do not exceed.
func quantile(of []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(of))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[(len(sorted)-1)*percent/100]
}

func number(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
