package speaker_test

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// reflectorPlan is that of a dedicated reflector for the peers of a load.
func reflectorPlan(peers int) plan.Plan {
	p := planOf()
	p.RouterID, p.Cluster, p.Dedicated = netip.MustParseAddr(loadTarget), netip.MustParseAddr("244.0.0.1"), true
	for i := range peers {
		s := session(loadAddr(i), 64512)
		s.Source, s.Passive, s.Client, s.Cluster = p.RouterID, true, true, p.Cluster
		s.Keepalive, s.Hold = 30*time.Second, 90*time.Second
		s.Export = []plan.Rule{{Name: "IPPool", Prefix: prefix("11.0.0.0/8"), Min: 8, Max: 32, Accept: true}}
		p.Sessions = append(p.Sessions, s)
	}
	return p
}

// birdReflector is the same for BIRD.
func birdReflector(peers int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "router id %s;\nprotocol device {}\nprotocol direct { ipv4; }\n", loadTarget)
	b.WriteString("filter pools { if net ~ [ 11.0.0.0/8{8,32} ] then accept; reject; }\n")
	for i := range peers {
		fmt.Fprintf(&b, "protocol bgp p%d { local %s as 64512; neighbor %s as 64512; direct; passive; rr client; rr cluster id 244.0.0.1; ipv4 { import all; export filter pools; }; }\n",
			i, loadTarget, loadAddr(i))
	}
	return b.String()
}

func TestAllClientsOfAReflectorHaveTheRoutesOfAllOthers(t *testing.T) {
	t.Parallel()
	machinetest.Root(t)
	const peers, each = 10, 100
	h := &host{NS: netnstest.New(t), t: t}
	l := newLoad(t, h.NS, peers, each)
	h.start(reflectorPlan(peers))
	h.active(l.addrs()...)
	l.call(t, false)
	l.out(t, patience)
	r := h.ask(request{})
	if r.Report.Learned != peers*each || r.Report.Kernel != 0 || r.Report.Advertised != 0 || !r.Report.Reflects {
		t.Errorf("%+v", r.Report)
	}
	if table := h.Run("ip", "route", "show", "proto", "bgp"); table != "" {
		t.Errorf("in the kernel of a reflector:\n%s", table)
	}
	// One peer dies, and comes back with nothing: its routes go everywhere.
	if err := l.tell(true, l.peers[0]); err != nil {
		t.Fatal(err)
	}
	l.await(t, patience, &l.full, 1) // it still has those of all others
	l.back(t, patience)
}

// usage is what a process has used of processors, and its memory.
func usage(t testing.TB, pid int) (cpu time.Duration, mb int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	const tick = 10 * time.Millisecond // USER_HZ
	return time.Duration(user+system) * tick, resident(t, pid)
}

// TWILL_PROFILE is where profiles of our own side go: FILE of the processor, FILE.heap of the memory.
const profiles = "TWILL_PROFILE"

// BenchmarkReflector is one reflector with many clients that each have routes: from when they begin to tell them until
// each has those of all others, and then until each has received that all are withdrawn.
func BenchmarkReflector(b *testing.B) {
	for _, size := range []struct{ peers, each int }{{100, 10}, {500, 2}, {100, 100}, {200, 100}, {500, 100}} {
		for _, who := range []string{"bird", "twill"} {
			b.Run(fmt.Sprintf("%dx%d/%s", size.peers, size.each, who), func(b *testing.B) {
				for range b.N {
					r := newReflecting(b, who, size.peers, size.each)
					r.load.call(b, false)
					<-time.After(3 * time.Second) // what comes with sessions is over
					r.measure(b, func() { r.load.out(b, 10*time.Minute) })
					r.rest(b)
					b.ReportMetric(r.load.back(b, 10*time.Minute).Seconds(), "s/withdrawn")
					r.end()
				}
			})
		}
	}
}

// BenchmarkReflectorStart is a reflector that comes back: all clients call it at once and tell their routes.
func BenchmarkReflectorStart(b *testing.B) {
	for _, size := range []struct{ peers, each int }{{100, 10}, {500, 2}, {100, 100}, {200, 100}} {
		for _, who := range []string{"bird", "twill"} {
			b.Run(fmt.Sprintf("%dx%d/%s", size.peers, size.each, who), func(b *testing.B) {
				b.Setenv(asReturning, "1")
				for range b.N {
					r := newReflecting(b, who, size.peers, size.each)
					r.measure(b, func() {
						r.load.call(b, true)
						r.load.await(b, 10*time.Minute, &r.load.full, size.peers)
					})
					r.rest(b)
					r.end()
				}
			})
		}
	}
}

// reflecting is a reflector that is measured.
type reflecting struct {
	load *load
	host *host // ours; nil: BIRD
	pid  int
	end  func()
}

func newReflecting(b *testing.B, who string, peers, each int) *reflecting {
	h := &host{NS: netnstest.New(b), t: b}
	r := &reflecting{load: newLoad(b, h.NS, peers, each)}
	if who == "bird" {
		machinetest.Program(b, "bird")
		bird := &bird{NS: h.NS, t: b, addr: loadTarget, dir: b.TempDir(), config: birdReflector(peers)}
		bird.start("-f")
		r.pid, r.end = bird.cmd.Process.Pid, func() { r.load.shut(); bird.kill() }
		return r
	}
	h.start(reflectorPlan(peers))
	h.active(r.load.addrs()...)
	r.host, r.pid, r.end = h, h.cmd.Process.Pid, func() { r.load.shut(); h.kill() }
	return r
}

// measure does something and reports how long it took, and what it took of processors here and there.
func (r *reflecting) measure(b *testing.B, do func()) {
	if file := os.Getenv(profiles); file != "" && r.host != nil {
		r.host.ask(request{Profile: file})
	}
	mine, _ := usage(b, os.Getpid())
	its, _ := usage(b, r.pid)
	began := time.Now()
	do()
	b.ReportMetric(time.Since(began).Seconds(), "s/advertised")
	after, _ := usage(b, r.pid)
	b.ReportMetric((after - its).Seconds(), "cpu-s/advertised")
	after, _ = usage(b, os.Getpid())
	b.ReportMetric((after - mine).Seconds(), "cpu-s/load")
	if file := os.Getenv(profiles); file != "" && r.host != nil {
		r.host.ask(request{Profile: file + ".heap"})
	}
}

// rest reports memory, and what is used of a processor when nothing happens.
func (r *reflecting) rest(b *testing.B) {
	before, mb := usage(b, r.pid)
	const quiet = 10 * time.Second
	<-time.After(quiet)
	after, _ := usage(b, r.pid)
	b.ReportMetric((after-before).Seconds()/quiet.Seconds()*100, "%cpu/rest")
	b.ReportMetric(float64(mb), "MB")
}
