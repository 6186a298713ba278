package nft

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
)

// BenchmarkRecheck is the time until a change that may deny is in force, by who decides about established flows: nobody, until somebody has
// found them; the kernel, from this change on; or the kernel already, for a change before. "judged" is the time of the
// transaction that takes it away.
func BenchmarkRecheck(b *testing.B) {
	for _, change := range []string{"one member leaves", "one policy changes"} {
		for _, how := range []string{"without", "with", "standing"} {
			b.Run(change+"/"+how, func(b *testing.B) {
				d := New(newKernel(b), Config{Recheck: how != "without"})
				d.Merge(node(20, 9))
				apply(b, d)
				var took, judged time.Duration
				i := 0
				for b.Loop() {
					i++
					p := nodePolicy(i%900, 80)
					p.Ingress = nodePolicy(i%900, uint16(i)).Ingress
					c := intent.Batch{Policies: []intent.Policy{p}}
					if change == "one member leaves" {
						m := []intent.Member{host(9_000_000 + i)}
						d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: sid(0), Added: m}}})
						apply(b, d)
						c = intent.Batch{Members: []intent.MemberDelta{{Set: sid(0), Removed: m}}}
					}
					began := time.Now()
					d.Merge(c)
					apply(b, d)
					took += time.Since(began)
					if how == "with" {
						began = time.Now()
						d.Judged(d.Standing())
						apply(b, d)
						judged += time.Since(began)
					}
				}
				b.ReportMetric(took.Seconds()*1000/float64(i), "ms/change")
				if how == "with" {
					b.ReportMetric(judged.Seconds()*1000/float64(i), "ms/judged")
				}
			})
		}
	}
}

// BenchmarkRecheckedPacket is what a packet of an established flow costs, by the form and length of its policy, while nobody decides about it
// again, and while the kernel does. One operation is a burst in each of the ways; figures are medians, of all processors.
func BenchmarkRecheckedPacket(b *testing.B) {
	for _, compiled := range []bool{false, true} {
		for _, rules := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("compiled=%v/%d rules", compiled, rules), func(b *testing.B) {
				var floods []*flood
				for _, again := range []bool{false, true} {
					f := floodOf(b, Config{Recheck: true}, &intent.HostSettings{Compiled: compiled}, rules)
					if f.d.Merge(intent.Batch{InSync: true}); again {
						f.d.Merge(intent.Batch{Policies: []intent.Policy{floodPolicy(rules + 1)}})
					}
					if apply(b, f.d); (f.d.Standing() > 0) != again {
						b.Fatal("what is decided again: ", f.d.Standing())
					}
					floods = append(floods, f)
				}
				cpus := make([][]float64, len(floods))
				for b.Loop() {
					for i, f := range floods {
						cpus[i] = append(cpus[i], f.measure(b, "established").cpu)
					}
				}
				for i, name := range []string{"ns/packet", "ns/rechecked"} {
					slices.Sort(cpus[i])
					b.ReportMetric(cpus[i][len(cpus[i])/2], name)
				}
			})
		}
	}
}
