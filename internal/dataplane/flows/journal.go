package flows

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Bounds of what is logged in one [BudgetTime], so that a tenant whose rules log much fills neither the disk nor the others' share:
// lines of the policies of one namespace (global ones count as one), and lines in all. The rest is counted, and the count is logged.
const (
	BudgetTime      = 10 * time.Second
	BudgetNamespace = 20
	Budget          = 100
)

// journal logs flows. One goroutine may use it.
type journal struct {
	out   *slog.Logger   // nil: nothing is logged
	begin time.Time      // start of the present interval; zero: nothing was logged since the last one ended
	lines map[string]int // by namespace
	all   int
	left  uint64 // flows that were left out
	last  string // the policy of the last of them
}

// print logs a flow, if the budget has room for it.
func (j *journal) print(f Flow) {
	if j.out == nil {
		return
	}
	j.turn(f.Time)
	if j.begin.IsZero() {
		j.begin, j.lines, j.all = f.Time, map[string]int{}, 0
	}
	namespace := ""
	if parts := strings.Split(f.Policy, "/"); len(parts) == 3 {
		namespace = parts[1]
	}
	if j.lines[namespace] >= BudgetNamespace || j.all >= Budget {
		j.left++
		j.last = f.Policy
		return
	}
	j.lines[namespace]++
	j.all++
	text := fmt.Sprintf("%s %s[%d]", f.Policy, strings.ToLower(f.Dir), f.Rule)
	if f.Prefix != "" {
		text = f.Prefix + ": " + text
	}
	args := []any{"src", f.Src, "dst", f.Dst, "proto", f.Proto}
	if f.SrcPort != 0 || f.DstPort != 0 {
		args = append(args, "spt", f.SrcPort, "dpt", f.DstPort)
	}
	for _, a := range [][2]string{{"from", f.From}, {"to", f.To}, {"in", f.In}, {"out", f.Out}, {"endpoint", f.Endpoint}} {
		if a[1] != "" {
			args = append(args, a[0], a[1])
		}
	}
	j.out.Info(text, args...)
}

// turn ends the present interval, if it is over, and logs how many flows were left out.
func (j *journal) turn(now time.Time) {
	if j.begin.IsZero() || now.Sub(j.begin) < BudgetTime {
		return
	}
	if j.left > 0 {
		j.out.Warn("packets that rules logged are left out here: twill flows --log has them", "left_out", j.left, "last_policy", j.last, "in", BudgetTime)
	}
	j.begin, j.left, j.last = time.Time{}, 0, ""
}
