package chaostest_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/terminal"
)

// report prints what each kind of fault cost, and the log of faults if something was wrong.
func (r *run) report() {
	byKind := map[string][]outcome{}
	for _, o := range r.done {
		byKind[o.kind] = append(byKind[o.kind], o)
		byKind["all"] = append(byKind["all"], o)
	}
	var b strings.Builder
	tab := terminal.NewTable(&b, "FAULT", "TIMES", "RIGHT AFTER: MEDIAN", "WORST", "SESSIONS UP: WORST", "WORDS LOST", "LONGEST SILENCE")
	for _, kind := range slices.SortedFunc(maps.Keys(byKind), func(a, b string) int {
		return cmp.Or(cmp.Compare(worst(byKind[b]), worst(byKind[a])), cmp.Compare(a, b))
	}) {
		os := byKind[kind]
		var missing uint64
		var silence, sessions time.Duration
		for _, o := range os {
			missing += o.missing
			silence, sessions = max(silence, o.silence), max(sessions, o.sessions)
		}
		slices.SortFunc(os, func(a, b outcome) int { return cmp.Compare(a.took, b.took) })
		tab.Row(kind, fmt.Sprint(len(os)), round(os[len(os)/2].took).String(), round(worst(os)).String(), round(sessions).String(), fmt.Sprint(missing), round(silence).String())
	}
	_ = tab.Flush()
	r.t.Logf("%s\n%s", r.traffic(), b.String())
	if r.t.Failed() || *kinds != "" {
		r.t.Logf("seed %d; faults, in seconds since the begin:\n%s", *seed, strings.Join(r.events, "\n"))
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

func worst(os []outcome) time.Duration {
	return slices.MaxFunc(os, func(a, b outcome) int { return cmp.Compare(a.took, b.took) }).took
}

// traffic says how much the flows saw.
func (r *run) traffic() string {
	var packets, attempts, passed, words, flows uint64
	for _, f := range r.flows {
		switch {
		case f.policy == denied && f.proto == "udp":
			packets += f.sent.Load()
			passed += f.received.Load()
		case f.policy == denied:
			attempts += f.sent.Load()
			passed += f.received.Load()
		default:
			flows++
			words += f.received.Load()
		}
	}
	return fmt.Sprintf("%d faults in %s: %d denied packets and %d denied connections tried, %d passed; %d words came over %d other flows",
		len(r.done), time.Since(r.began).Round(time.Second), packets, attempts, passed, words, flows)
}

// sample is what the agents and speakers of all hosts take.
type sample struct{ goroutines, rss, fds int }

// sample looks at all hosts, once all is right.
func (r *run) sample() {
	var s sample
	for _, h := range hosts {
		metrics, err := ask(r.t.Context(), r.AgentSocket(h), "/metrics")
		if err != nil {
			return // it has just gone: the next look will do
		}
		for line := range strings.Lines(string(metrics)) {
			if v, ok := strings.CutPrefix(line, "go_goroutines "); ok {
				n, _ := strconv.ParseFloat(strings.TrimSpace(v), 64)
				s.goroutines += int(n)
			}
		}
		for _, what := range []string{"node", "agent", "bgp", "bfd"} {
			pid := r.pid(h, what)
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
			if f := strings.Fields(string(text)); len(f) > 1 {
				n, _ := strconv.Atoi(f[1])
				s.rss += n * os.Getpagesize() >> 10
			}
			fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			s.fds += len(fds)
		}
	}
	r.samples = append(r.samples, s)
}

// growth compares the first quarter of the run with the last. Daemons that were killed start over in both.
func (r *run) growth() {
	quarter := len(r.samples) / 4
	if quarter < 5 {
		return
	}
	for _, x := range []struct {
		what  string
		of    func(sample) int
		slack int // that is no growth: garbage that waits, a connection that is being closed
	}{
		{"goroutines", func(s sample) int { return s.goroutines }, 30},
		{"resident KiB", func(s sample) int { return s.rss }, 60 << 10},
		{"descriptors", func(s sample) int { return s.fds }, 30},
	} {
		median := func(all []sample) int {
			var ns []int
			for _, s := range all {
				ns = append(ns, x.of(s))
			}
			slices.Sort(ns)
			return ns[len(ns)/2]
		}
		first, last := median(r.samples[:quarter]), median(r.samples[len(r.samples)-quarter:])
		r.t.Logf("%s of all daemons of three hosts: first quarter %d, last quarter %d", x.what, first, last)
		if last > first+first/5+x.slack {
			r.fails("%s grew from %d to %d", x.what, first, last)
		}
	}
}
