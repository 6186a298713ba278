package nft

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/flows"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nflog"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/nlsock"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// Ways in which packets may be attributed to rules. The first one is the measure: counters alone.
var attributed = []struct {
	name            string
	log, read, also bool // rules report what they drop; somebody reads; what is allowed is reported, too
}{
	{"none", false, false, false}, {"unread", true, false, false}, {"read", true, true, false}, {"allowed", true, true, true},
}

// burst is how many packets one measurement sends: no more than there are source ports.
const burst = 50_000

const marked = "02:00:00:00:00:99" // of nobody: what comes out is thrown away at once

// flood is a host between two workloads, a and b; what b receives is asked of one policy of ten rules.
type flood struct {
	*hosted
	wire      *packet.Socket // of a
	link      int            // in a
	frames    [2][]byte      // to a port that the policy allows, and one that it denies
	collected *flows.Collector
	flush     *nlsock.Socket
}

func newFlood(b *testing.B, log, read, also bool) *flood {
	names := attribution.New()
	f := floodOf(b, Config{Names: names}, &intent.HostSettings{ReportAllowed: also}, 10)
	if !log {
		f.silence(b)
	}
	if read {
		f.read(b, names)
	}
	return f
}

// floodOf has a policy of so many rules, of which the last but one allows, and the last denies.
func floodOf(b *testing.B, cfg Config, host *intent.HostSettings, rules int) *flood {
	f := &flood{hosted: newHosted(b)}
	f.d = New(f.kernelConn, cfg)
	batch := pair(nil)
	p := floodPolicy(rules)
	batch.Policies = append(batch.Policies, p)
	intenttest.Normal(&batch.Endpoints[1], tier("t", intent.Deny, []intent.PolicyID{p.ID}, nil))
	batch.Host = host
	f.d.Merge(batch)
	apply(b, f.d)
	f.wires(b)
	return f
}

func floodPolicy(rules int) intent.Policy {
	var rs []intent.Rule
	for i := range rules - 2 {
		rs = append(rs, intent.Rule{Action: intent.Allow, Protocol: 17, Dst: intent.Peer{Ports: []intent.PortRange{{Min: uint16(1000 + i), Max: uint16(1000 + i)}}}})
	}
	return pol("p", append(rs, intent.Rule{Action: intent.Allow, Protocol: 17, Dst: intent.Peer{Ports: []intent.PortRange{{Min: 53, Max: 53}}}}, intent.Rule{Action: intent.Deny}), nil)
}

// silence takes the reports out of our rules.
func (f *flood) silence(b *testing.B) {
	rs, err := f.List(kernel.TableName)
	if err != nil {
		b.Fatal(err)
	}
	changes := nftables.NewBatch()
	for _, r := range rs.Rules {
		n := len(r.Exprs)
		r.Exprs = slices.DeleteFunc(slices.Clone(r.Exprs), func(x nftables.Expr) bool { _, reports := x.(nftables.NFLog); return reports })
		if len(r.Exprs) < n {
			changes.ReplaceRule(r)
		}
	}
	if changes.Len() == 0 {
		b.Fatal("no rule reports anything")
	}
	if err := f.Commit(changes); err != nil {
		b.Fatal(err)
	}
}

// read is the agent's reader.
func (f *flood) read(b *testing.B, names *attribution.Table) {
	f.collected = flows.New(flows.Config{Names: names, Open: func() (s flows.Source, err error) {
		f.ns.Do(func() { s, err = nflog.Open(nflog.Config{Group: kernel.NFLogVerdicts}) })
		return s, err
	}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = f.collected.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
}

func (f *flood) wires(b *testing.B) {
	var err error
	f.a.Do(func() { f.wire, err = packet.Open() })
	if err == nil {
		f.ns.Do(func() { f.flush, err = nlsock.Open(1 << 16) })
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = f.wire.Close(), f.flush.Close() })
	if err := f.ns.Rtnl().SetNeighbour(rtnl.Neighbour{Link: f.ns.Link("calib").Index, Addr: netip.MustParseAddr(addrs["b"][0]), MAC: marked, Permanent: true}); err != nil {
		b.Fatal(err)
	}
	f.link = f.a.Link("eth0").Index
	p := packet.Packet{Src: netip.MustParseAddr(addrs["a"][0]), Dst: netip.MustParseAddr(addrs["b"][0]), Proto: 17, SrcPort: 1}
	for i, port := range []uint16{53, 54} {
		p.DstPort = port
		f.frames[i] = p.Frame(packet.MAC{2}, mac(b, f.ns.Link("calia").MAC))
		f.frames[i][40], f.frames[i][41] = 0, 0 // no UDP checksum, so that the port may change
	}
}

func mac(b *testing.B, s string) (m packet.MAC) {
	if _, err := fmt.Sscanf(s, "%02x:%02x:%02x:%02x:%02x:%02x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]); err != nil {
		b.Fatal(err)
	}
	return m
}

// send sends a burst: all of one flow, or each of its own.
func (f *flood) send(b *testing.B, frame []byte, each bool) {
	for i := range burst {
		if each {
			binary.BigEndian.PutUint16(frame[34:], uint16(i+1000))
		}
		if err := f.wire.Send(f.link, frame); err != nil {
			b.Fatal(err)
		}
	}
}

// establish forgets all flows and makes the one of the first frame, of which an answer has been seen.
func (f *flood) establish(b *testing.B) {
	f.forget(b)
	binary.BigEndian.PutUint16(f.frames[0][34:], 1)
	if err := f.wire.Send(f.link, f.frames[0]); err != nil {
		b.Fatal(err)
	}
	reply := packet.Packet{Src: netip.MustParseAddr(addrs["b"][0]), Dst: netip.MustParseAddr(addrs["a"][0]), Proto: 17, SrcPort: 53, DstPort: 1}
	f.b.Do(func() {
		s, err := packet.Open()
		if err == nil {
			err = s.Send(f.b.Link("eth0").Index, reply.Frame(packet.MAC{2}, mac(b, f.ns.Link("calib").MAC)))
			_ = s.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}

// forget empties the table of connections.
func (f *flood) forget(b *testing.B) {
	m := make([]byte, unix.SizeofNlMsghdr+4)
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	const ctDelete = 2
	binary.NativeEndian.PutUint16(m[4:], unix.NFNL_SUBSYS_CTNETLINK<<8|ctDelete)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err := unix.Sendto(f.flush.FD(), m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		b.Fatal(err)
	}
	n, _, err := unix.Recvfrom(f.flush.FD(), make([]byte, 4096), 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		b.Fatal("forget flows: ", n, err)
	}
}

// came is how many packets were sent to b so far.
func (f *flood) came(b *testing.B) int {
	var links []struct {
		Stats64 struct{ Tx struct{ Packets int } }
	}
	if err := json.Unmarshal([]byte(f.ns.Run("ip", "-s", "-j", "link", "show", "dev", "calib")), &links); err != nil || len(links) != 1 {
		b.Fatal("packets of calib: ", err)
	}
	return links[0].Stats64.Tx.Packets
}

// cpu is what this process and the kernel on its behalf have used.
func cpu() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cost is what one packet took: until it was sent and through, and of all processors until all reports were read.
type cost struct{ wall, cpu float64 }

// measure sends a burst and says what it cost.
func (f *flood) measure(b *testing.B, kind string) cost {
	frame, want := f.frames[0], burst
	if kind == "dropped" {
		frame, want = f.frames[1], 0
	}
	if f.forget(b); kind == "established" {
		f.establish(b)
	}
	before := f.came(b)
	runtime.GC() // not in the midst
	used, start := cpu(), time.Now()
	f.send(b, frame, kind == "new")
	wall := time.Since(start)
	f.settle()
	used = cpu() - used
	const others = 9 // neighbours are looked for, too
	if n := f.came(b) - before; n < want || n > want+others {
		b.Fatalf("%s: %d of %d came through, want %d", kind, n, burst, want)
	}
	return cost{float64(wall.Nanoseconds()) / burst, float64(used.Nanoseconds()) / burst}
}

// settle returns when the reader has nothing more to read.
func (f *flood) settle() {
	if f.collected == nil {
		return
	}
	for last, same := uint64(1), 0; same < 3; {
		n := f.collected.Counts()
		if sum := n.Dropped + n.Allowed + n.Lost; sum == last {
			same++
		} else {
			last, same = sum, 0
		}
		<-time.After(15 * time.Millisecond) // longer than the kernel collects
	}
}

// What it costs to say which rule decided. One operation is a burst in each of the ways, one after the other, so that all
// of them have the same share of what else the machine does; figures are medians.
func BenchmarkAttribution(b *testing.B) {
	var floods []*flood
	for _, way := range attributed {
		floods = append(floods, newFlood(b, way.log, way.read, way.also))
	}
	for _, kind := range []string{"established", "new", "dropped"} {
		b.Run(kind, func(b *testing.B) {
			walls, cpus := make([][]float64, len(floods)), make([][]float64, len(floods))
			reports, lost := make([]uint64, len(floods)), make([]uint64, len(floods))
			for i, f := range floods {
				if f.collected != nil {
					n := f.collected.Counts()
					reports[i], lost[i] = n.Dropped+n.Allowed, n.Lost
				}
			}
			rounds := 0
			for b.Loop() {
				for i, f := range floods {
					c := f.measure(b, kind)
					walls[i], cpus[i] = append(walls[i], c.wall), append(cpus[i], c.cpu)
				}
				rounds++
			}
			for i, f := range floods {
				name := attributed[i].name
				b.ReportMetric(1e9/median(walls[i]), name+"-packets/s")
				b.ReportMetric(median(walls[i])/median(walls[0]), name+"-time-ratio")
				b.ReportMetric(median(cpus[i])/median(cpus[0]), name+"-cpu-ratio")
				if f.collected != nil {
					n := f.collected.Counts()
					b.ReportMetric(float64(n.Dropped+n.Allowed-reports[i])/float64(rounds*burst), name+"-reports/packet")
					b.ReportMetric(float64(n.Lost-lost[i])/float64(rounds), name+"-overruns/burst")
				}
			}
		})
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
