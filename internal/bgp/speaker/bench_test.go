package speaker_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// many are BIRD's statics: n blocks of /26.
func many(n int) string {
	var b strings.Builder
	b.WriteString("protocol static many { ipv4;\n")
	for i := range n {
		at := 10<<24 | i<<6
		fmt.Fprintf(&b, "route %d.%d.%d.%d/26 blackhole;\n", at>>24, at>>16&255, at>>8&255, at&255)
	}
	b.WriteString("}\n")
	return b.String()
}

// BenchmarkRoutesOfAPeer is from the start of a speaker to the last of its peer's routes in the kernel, and then to the
// last of them gone when the peer withdraws all.
func BenchmarkRoutesOfAPeer(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for range b.N {
				h, birds := network(b, 1)
				birds[0].run(many(n) + speaks("twill", "local as 64512; direct;", "", ""))
				began := time.Now()
				h.start(planOf(session("192.0.2.2", 64512)))
				h.kernel(b, n)
				b.ReportMetric(time.Since(began).Seconds(), "s/learned")
				b.ReportMetric(float64(resident(b, h.cmd.Process.Pid)), "MB")
				await(b, patience, func() error { // routes stay for a moment after the first of them
					if r := h.ask(request{}).Report; time.Since(r.Sessions[0].Since) < 6*time.Second {
						return fmt.Errorf("just up")
					}
					return nil
				})
				birds[0].ask("disable", "many")
				began = time.Now()
				h.kernel(b, 0)
				b.ReportMetric(time.Since(began).Seconds(), "s/withdrawn")
				h.kill()
				birds[0].kill()
			}
		})
	}
}

// kernel waits until so many learned routes are in the kernel.
func (h *host) kernel(b *testing.B, n int) {
	b.Helper()
	await(b, 5*time.Minute, func() error {
		out := h.Run("sh", "-c", "ip -4 route show proto bgp | wc -l")
		if got, _ := strconv.Atoi(strings.TrimSpace(out)); got != n {
			return fmt.Errorf("%d routes, want %d", got, n)
		}
		return nil
	})
}

// resident is the memory of a process.
func resident(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, _ := strconv.Atoi(strings.Fields(rest)[0])
	return kb >> 10
}
