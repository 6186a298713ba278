package lab

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// BenchmarkThroughputBetweenHosts is what one TCP connection carries from a workload of one host to one of another, beside the same made by hand: as many
// namespaces, veths and a bridge, routes and a VXLAN device, and nothing else. Each transfer by Twill's way is followed by one by the other.
func BenchmarkThroughputBetweenHosts(b *testing.B) {
	for _, mode := range []string{"Never", "Always"} {
		b.Run("vxlanMode="+mode, func(b *testing.B) {
			s := Spec{Hosts: Demo().Hosts[:2]}
			for i, name := range []string{"a", "b"} {
				s.Workloads = append(s.Workloads, Workload{
					Namespace: "demo", Name: name, Host: s.Hosts[i].Name, Port: 80, Labels: map[string]string{"app": name},
					V4: netip.MustParseAddr(fmt.Sprintf("10.65.%d.2", i+1)), V6: netip.MustParseAddr(fmt.Sprintf("fd65:0:0:%d::2", i+1)),
				})
			}
			s.Manifests = fmt.Appendf(nil, "---\napiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: ipv4}\nspec: {cidr: 10.65.0.0/16, vxlanMode: %s}\n"+
				"---\napiVersion: projectcalico.org/v3\nkind: Profile\nmetadata: {name: kns.demo}\nspec: {ingress: [{action: Allow}], egress: [{action: Allow}]}\n", mode)
			l := testLab(b, s)
			x, y := &l.Spec.Workloads[0], &l.Spec.Workloads[1]
			ours := carrier{
				listen: func() (lis net.Listener, err error) {
					return lis, inside(l.Spec.workloadNS(*y), func() (err error) { lis, err = net.Listen("tcp4", y.V4.String()+":0"); return err })
				},
				dial: func(to string) (c net.Conn, err error) {
					return c, inside(l.Spec.workloadNS(*x), func() (err error) { c, err = net.DialTimeout("tcp4", to, patience); return err })
				},
			}
			lis, err := ours.listen()
			must(b, err)
			await(b, "the workloads reach each other", func() bool {
				c, err := ours.dial(lis.Addr().String())
				return err == nil && c.Close() == nil
			})
			must(b, lis.Close())
			compare(b, ours, handMade(b, mode == "Always"))
		})
	}
}

// carrier is a way from one workload to another.
type carrier struct {
	listen func() (net.Listener, error)
	dial   func(to string) (net.Conn, error)
}

const carried = 128 << 20 // bytes of a transfer

// rate transfers, and returns bytes a second.
func (c carrier) rate(b *testing.B) float64 {
	b.Helper()
	lis, err := c.listen()
	must(b, err)
	defer lis.Close()
	tx, err := c.dial(lis.Addr().String())
	must(b, err)
	rx, err := lis.Accept()
	must(b, err)
	defer rx.Close()
	begin := time.Now()
	go func() {
		buf := make([]byte, 1<<20)
		for range carried / len(buf) {
			if _, err := tx.Write(buf); err != nil {
				break
			}
		}
		_ = tx.Close()
	}()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{rx}, make([]byte, 1<<20))
	must(b, err)
	if n != carried {
		b.Fatalf("%d bytes came, want %d", n, carried)
	}
	return float64(n) / time.Since(begin).Seconds()
}

// compare transfers by both in turn.
func compare(b *testing.B, ours, other carrier) {
	var ratios, rates []float64
	for b.Loop() {
		mine, its := ours.rate(b), other.rate(b)
		ratios, rates = append(ratios, mine/its), append(rates, mine)
	}
	slices.Sort(ratios)
	slices.Sort(rates)
	b.ReportMetric(rates[len(rates)/2]/1e6, "MB/s")
	b.ReportMetric(ratios[len(ratios)/2], "of-hand-made")
}

// handMade makes what the lab has of two hosts and their workloads by plain commands.
func handMade(b *testing.B, vxlan bool) carrier {
	b.Helper()
	sw := netnstest.New(b)
	sw.Run("ip", "link", "add", "br0", "type", "bridge")
	sw.Up("br0")
	var hosts, workloads [2]*netnstest.NS
	for i := range hosts {
		h, w := netnstest.New(b), netnstest.New(b)
		hosts[i], workloads[i] = h, w
		port := fmt.Sprintf("p%d", i)
		sw.VethTo(h, port, "eth0")
		sw.Run("ip", "link", "set", port, "master", "br0")
		h.Forward()
		h.Addr("eth0", fmt.Sprintf("172.31.0.%d/24", i+1))
		h.VethTo(w, "cali0", "eth0")
		if vxlan {
			h.Run("ip", "link", "add", "vx0", "type", "vxlan", "id", "9", "dstport", "4789", "local", fmt.Sprintf("172.31.0.%d", i+1),
				"remote", fmt.Sprintf("172.31.0.%d", 2-i), "dev", "eth0")
			h.Run("ip", "link", "set", "vx0", "up", "mtu", "1450")
			h.Addr("vx0", fmt.Sprintf("10.99.0.%d/24", i+1))
			h.Run("ip", "link", "set", "cali0", "mtu", "1450")
			w.Run("ip", "link", "set", "eth0", "mtu", "1450")
		}
		h.Addr("cali0", "169.254.1.1/32")
		w.Addr("eth0", fmt.Sprintf("10.66.%d.2/32", i+1))
		h.Route(fmt.Sprintf("10.66.%d.2 dev cali0", i+1))
		w.Route("169.254.1.1 dev eth0 scope link")
		w.Route("default via 169.254.1.1 dev eth0")
		via := "172.31.0."
		if vxlan {
			via = "10.99.0."
		}
		h.Route(fmt.Sprintf("10.66.%d.0/24 via %s%d", 2-i, via, 2-i))
	}
	return carrier{
		listen: func() (net.Listener, error) { return workloads[1].ListenTCP(netip.MustParseAddrPort("10.66.2.2:0")) },
		dial: func(to string) (net.Conn, error) {
			return workloads[0].DialTCP(netip.MustParseAddrPort("10.66.1.2:0"), netip.MustParseAddrPort(to), time.Now().Add(5*time.Second))
		},
	}
}
