package agent

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/dataplane/fib"
	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// BenchmarkRoutesToOtherHosts is how long a host takes to reach 5,000 others with 20,000 blocks through VXLAN: from nothing, and after a
// block went to another host. It is of the calculation and of the kernel, without a datastore, and in processor time of this process, the kernel's for
// it included, so that a machine that is busy otherwise counts little.
func BenchmarkRoutesToOtherHosts(b *testing.B) {
	const nodes, blocks = 5000, 20_000
	w := newReaching(b, nodes, blocks)
	for b.Loop() {
		w.fromNothing()
	}
	b.ReportMetric(w.calc.Seconds()/float64(b.N), "cpu-s/calc")
	b.ReportMetric(w.kernel.Seconds()/float64(b.N), "cpu-s/kernel")
	w.calc, w.kernel = 0, 0
	const changes = 200
	for i := range changes {
		w.change(blocks/2, i%2)
	}
	b.ReportMetric(float64(w.calc.Microseconds())/changes, "cpu-us/calc-change")
	b.ReportMetric(float64(w.kernel.Microseconds())/changes, "cpu-us/kernel-change")
	b.ReportMetric(resident(b), "MB")
	if rs, err := w.ns.Rtnl().Routes(rtnl.RouteFilter{Protocol: 81}); err != nil || len(rs) != blocks {
		b.Fatalf("%d routes, %v; want %d", len(rs), err, blocks)
	}
}

// reaching is a host that reaches others.
type reaching struct {
	b            *testing.B
	world        []api.Update
	nodes        int
	ns           *netnstest.NS
	graph        *calc.Graph
	fib          *fib.Table
	tunnel       *tunnel.Driver
	calc, kernel time.Duration // processor time
}

func newReaching(b *testing.B, nodes, blocks int) *reaching {
	w := &reaching{b: b, nodes: nodes}
	add := func(key, format string, args ...any) {
		w.world = append(w.world, api.Update{Key: key, Value: fmt.Appendf(nil, format, args...)})
	}
	add(api.ResourcesPrefix+"ippools/a", `{"metadata":{"name":"a"},"spec":{"cidr":"10.0.0.0/8","vxlanMode":"Always"}}`)
	for i := range nodes + 1 {
		end := netip.AddrFrom4([4]byte{100, 64 + byte(i>>16), byte(i >> 8), byte(i)})
		add(api.ResourcesPrefix+"nodes/"+node(i), `{"metadata":{"name":%q},"spec":{"bgp":{"ipv4Address":"172.16.%d.%d/12"},"ipv4VXLANTunnelAddr":%q}}`, node(i), (i+1)>>8, (i+1)&0xff, end)
	}
	for i := range blocks {
		w.world = append(w.world, block(i, 1+i%nodes))
	}
	return w
}

func node(i int) string { return fmt.Sprintf("n%05d", i) }

// block is the i-th one, of a node.
func block(i, of int) api.Update {
	cidr := fmt.Sprintf("10.%d.%d.%d", i>>10, i>>2&0xff, i<<6&0xff)
	return api.Update{
		Key:   fmt.Sprintf("/calico/ipam/v2/assignment/ipv4/block/%s-26", cidr),
		Value: fmt.Appendf(nil, `{"cidr":"%s/26","affinity":"host:%s","allocations":[null%s],"attributes":[]}`, cidr, node(of), strings.Repeat(",null", 63)),
	}
}

func (w *reaching) fromNothing() {
	w.b.StopTimer()
	w.ns = netnstest.New(w.b)
	w.ns.Veth("eth0", "peer")
	w.ns.Addr("eth0", "172.16.0.1/12")
	w.graph, w.fib, w.tunnel = calc.New(node(0)), fib.New(w.ns.Rtnl()), tunnel.New(w.ns.Rtnl(), tunnel.Config{})
	if err := w.fib.Resync(w.b.Context()); err != nil {
		w.b.Fatal(err)
	}
	w.b.StartTimer()
	began := used()
	w.graph.Update(w.world)
	w.graph.SetInSync()
	batch := w.graph.Flush()
	w.calc += used() - began
	w.apply(batch)
}

// change gives a block to another node.
func (w *reaching) change(i, by int) {
	began := used()
	w.graph.Update([]api.Update{block(i, 1+(i+by)%w.nodes)})
	batch := w.graph.Flush()
	w.calc += used() - began
	w.apply(batch)
}

func (w *reaching) apply(batch intent.Batch) {
	began := used()
	w.tunnel.Merge(batch)
	w.fib.Merge(batch)
	_, err := w.tunnel.Apply(w.b.Context())
	if err == nil && batch.Host != nil { // the device is there since
		var links []ifmon.Change
		if links, err = ifmon.List(w.ns.Rtnl()); err == nil {
			w.fib.Links(links)
		}
	}
	if err != nil {
		w.b.Fatal(err)
	}
	outcomes, err := w.fib.Apply(w.b.Context())
	w.kernel += used() - began
	for _, o := range outcomes {
		if o.Err != nil || o.Reason != "" {
			w.b.Fatalf("%s: %v %s", o.Key, o.Err, o.Reason)
		}
	}
	if err != nil {
		w.b.Fatal(err)
	}
}

// used is the processor time that this process has had.
func used() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// resident is how much memory this process has, in megabytes.
func resident(b *testing.B) float64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / 1e6
}
