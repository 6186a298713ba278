package revoke_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/dataplane/nft"
)

// BenchmarkAChangeThatDenies is, among so many flows that are no workload's, the time until a change that denies flows of one workload is in
// force on what its peers send, and until its flows are marked: by a reading of all, or of its flows alone.
func BenchmarkAChangeThatDenies(b *testing.B) {
	for _, flows := range []int{10_000, 100_000} {
		for _, how := range []string{"all are read", "its own are found"} {
			b.Run(fmt.Sprintf("%d flows/%s", flows, how), func(b *testing.B) {
				p := newPair(b, "10.65.0.1", "10.65.0.2")
				p.policy = nft.New(p.conn, nft.Config{Recheck: true})
				one := p.workloads(policy())
				one.Endpoints = one.Endpoints[1:]
				p.apply(one)
				p.others(flows)
				p.table.finds.Store(how != "all are read")
				var force, marks, work time.Duration
				n := 0
				for b.Loop() {
					change := policy(denied(6, uint16(1000+n)))
					n++
					began := time.Now()
					p.policy.Merge(change)
					if _, err := p.policy.Apply(b.Context()); err != nil {
						b.Fatal(err)
					}
					force += time.Since(began)
					before := cpu()
					p.revoke.InForce(change, false)
					x := <-p.passes
					if x.Err != nil || (x.Flows < flows) != p.table.finds.Load() {
						b.Fatalf("%+v", x)
					}
					marks, work = marks+x.Took, work+cpu()-before
				}
				b.ReportMetric(force.Seconds()*1000/float64(n), "ms/in-force")
				b.ReportMetric(marks.Seconds()*1000/float64(n), "ms/marked")
				b.ReportMetric(work.Seconds()*1000/float64(n), "cpu-ms/marked")
			})
		}
	}
}

// cpu is the processor time of this process, in the kernel, too.
func cpu() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// others makes flows from the host to itself.
func (p *pair) others(n int) {
	p.t.Helper()
	p.host.Sysctl("netfilter/nf_conntrack_udp_timeout", "3600")
	p.host.Run("nft", "add table inet other; add chain inet other c { type filter hook output priority 0; }; add rule inet other c ct state new counter")
	var sock *net.UDPConn
	for i := range n {
		if i%50_000 == 0 {
			var err error
			if sock, err = p.host.ListenUDP(netip.MustParseAddrPort("127.0.0.1:0")); err != nil {
				p.t.Fatal(err)
			}
			p.t.Cleanup(func() { _ = sock.Close() })
		}
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), uint16(1024+i%50_000))
		_, _ = sock.WriteToUDPAddrPort([]byte("x"), at) // an error is that of the one before, whom nobody received
	}
	if is, err := p.table.Conn.Count(); err != nil || is < n*9/10 {
		p.t.Fatalf("%d flows, want %d: %v", is, n, err)
	}
}
