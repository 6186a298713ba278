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
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// The receiver is behind the reflector.
const (
	reflectorSide = "10.98.0.1"
	receiverSide  = "10.98.0.2"
)

// BenchmarkReflectorToKernel is from when a client of a reflector begins to tell its routes until another client has
// them in its kernel; and until they are gone again. BIRD and ours are reflector and receiver, in turn.
func BenchmarkReflectorToKernel(b *testing.B) {
	const routes = 100_000
	for _, who := range [][2]string{{"bird", "bird"}, {"bird", "twill"}, {"twill", "bird"}, {"twill", "twill"}} {
		b.Run(fmt.Sprintf("%d/%s-reflects/%s-receives", routes, who[0], who[1]), func(b *testing.B) {
			for range b.N {
				toKernel(b, who[0], who[1], routes)
			}
		})
	}
}

func toKernel(b *testing.B, reflector, receiver string, routes int) {
	rr := &host{NS: netnstest.New(b), t: b}
	l := newLoad(b, rr.NS, 1, routes)
	in := &host{NS: netnstest.New(b), t: b}
	rr.VethTo(in.NS, "in0", "eth0")
	rr.Addr("in0", reflectorSide+"/24")
	in.Addr("eth0", receiverSide+"/24")
	in.Route("10.99.0.0/16 via " + reflectorSide)
	var pids [2]int
	if reflector == "bird" {
		client := "protocol bgp receiver { local " + reflectorSide + " as 64512; neighbor " + receiverSide + " as 64512; direct; passive; rr client; rr cluster id 244.0.0.1; ipv4 { import all; export filter pools; }; }\n"
		bird := &bird{NS: rr.NS, t: b, addr: loadTarget, dir: b.TempDir(), config: birdReflector(1) + client}
		bird.start("-f")
		pids[0] = bird.cmd.Process.Pid
		defer bird.kill()
	} else {
		p := reflectorPlan(1)
		s := p.Sessions[0]
		s.Peer, s.Source = netip.MustParseAddr(receiverSide), netip.MustParseAddr(reflectorSide)
		p.Sessions = append(p.Sessions, s)
		rr.start(p)
		rr.active(l.addrs()...)
		pids[0] = rr.cmd.Process.Pid
		defer rr.kill()
	}
	if receiver == "bird" {
		bird := &bird{NS: in.NS, t: b, addr: receiverSide, dir: b.TempDir(), config: "router id " + receiverSide + ";\nprotocol device {}\n" +
			"protocol static { ipv4; route 10.99.0.0/16 via " + reflectorSide + "; route 10.98.0.0/24 via \"eth0\"; }\n" +
			"protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }\n" +
			"protocol bgp reflector { local " + receiverSide + " as 64512; neighbor " + reflectorSide + " as 64512; connect delay time 1; ipv4 { import all; export none; gateway recursive; }; }\n"}
		bird.start("-f")
		pids[1] = bird.cmd.Process.Pid
		defer bird.kill()
	} else {
		p := planOf(session(reflectorSide, 64512))
		p.RouterID, p.Sessions[0].Source = netip.MustParseAddr(receiverSide), netip.MustParseAddr(receiverSide)
		p.Sessions[0].Export = []plan.Rule{}
		in.start(p)
		pids[1] = in.cmd.Process.Pid
		defer in.kill()
	}
	l.call(b, false)
	l.peers[0].has = nil
	others := probe(b, in, l)
	if file := os.Getenv(profiles); file != "" && receiver == "twill" {
		in.ask(request{Profile: file})
	}
	began := time.Now()
	if err := l.tell(false, l.peers...); err != nil {
		b.Fatal(err)
	}
	awaitPrefixes(b, in.NS, others+routes)
	b.ReportMetric(time.Since(began).Seconds(), "s/learned")
	if file := os.Getenv(profiles); file != "" && receiver == "twill" {
		in.ask(request{Profile: file + ".heap"})
	}
	for i, name := range []string{"reflector", "receiver"} {
		cpu, mb := usage(b, pids[i])
		b.ReportMetric(float64(mb), "MB/"+name)
		b.ReportMetric(cpu.Seconds(), "cpu-s/"+name)
	}
	<-time.After(6 * time.Second) // what a session brought at its begin stays for a moment
	began = time.Now()
	if err := l.tell(true, l.peers...); err != nil {
		b.Fatal(err)
	}
	awaitPrefixes(b, in.NS, others)
	b.ReportMetric(time.Since(began).Seconds(), "s/withdrawn")
	l.shut()
}

// probe waits until a single route goes all the way, and is gone again: sessions are up, and nothing is held. It returns
// how many other routes the kernel has.
func probe(b *testing.B, in *host, l *load) (others int) {
	p, before := l.peers[0], prefixes(b, in.NS)
	dst := wire(prefix("11.255.255.0/26"))
	attributes := join(origin, asPath, nextHopOf(loadAddr(0)), localPref)
	for _, m := range [][]byte{update(nil, attributes, dst), update(dst, nil, nil)} {
		if _, err := p.Write(m); err != nil {
			b.Fatal(err)
		}
		want := before + 1
		if len(m) < 40 {
			want = before
		}
		awaitPrefixes(b, in.NS, want)
	}
	return before
}

// awaitPrefixes waits until the kernel has so many prefixes of the load.
func awaitPrefixes(b *testing.B, ns *netnstest.NS, want int) {
	b.Helper()
	deadline := time.NewTimer(5 * time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		got := prefixes(b, ns)
		if got == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			b.Fatalf("%d routes in the kernel, want %d", got, want)
		}
	}
}

// prefixes are how many the kernel has in its main table.
func prefixes(b *testing.B, ns *netnstest.NS) int {
	b.Helper()
	var text []byte
	var err error
	ns.Do(func() { text, err = os.ReadFile("/proc/thread-self/net/fib_triestat") })
	_, rest, ok := strings.Cut(string(text), "Main:")
	_, rest, found := strings.Cut(rest, "Prefixes:")
	if err != nil || !ok || !found {
		b.Fatalf("%v in\n%s", err, text)
	}
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return n
}
