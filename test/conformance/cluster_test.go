package conformance

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nflog"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/translate"
)

// cluster is two hosts with a link between them, and the pods that have been on them so far.
type cluster struct {
	enforcer
	t     *testing.T
	hosts [2]*host
	ports []int           // on which pods serve TCP and UDP
	pods  map[string]*pod // by namespace/name; they stay when Kubernetes deletes them, and nothing allows them anything
}

// enforcer has the hosts of a cluster enforce policy.
type enforcer interface {
	// program brings both hosts to what cyclonus has put into the cluster, and returns what Twill has in its datastore then.
	program(*connectivity.TestCaseState) []api.Update
	// joined is told of a pod that is new.
	joined(*pod)
}

type host struct {
	*netnstest.NS
	name   string
	uplink netip.Addr // IPv4; that of IPv6 ends alike
	drops  *nflog.Conn
}

type pod struct {
	*netnstest.NS
	key   string
	host  *host
	addrs [2]netip.Addr  // IPv4, IPv6
	raw   *packet.Host   // sends SCTP, which this kernel may have no sockets for
	wire  *packet.Socket // sees it arrive
	next  uint16         // source port: no flow is like an earlier one
}

// newCluster is one in which nobody enforces anything yet.
func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, ports: ports, pods: map[string]*pod{}}
	for i := range c.hosts {
		h := &host{NS: netnstest.New(t), name: fmt.Sprintf("node-%d", i), uplink: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)})}
		h.Forward()
		h.Do(func() {
			var err error
			h.drops, err = nflog.Open(nflog.Config{Group: kernel.NFLogVerdicts, Collect: 1})
			must(t, err)
			t.Cleanup(func() { must(t, h.drops.Close()) })
		})
		c.hosts[i] = h
	}
	a, b := c.hosts[0], c.hosts[1]
	a.VethTo(b.NS, "eth0", "eth0")
	for i, h := range c.hosts {
		running(t, h.NS, "eth0")
		h.Addr("eth0", h.uplink.String()+"/24", uplink6(h).String()+"/64")
		h.neighbour("eth0", c.hosts[1-i].uplink, c.hosts[1-i].Link("eth0").MAC)
		h.neighbour("eth0", uplink6(c.hosts[1-i]), c.hosts[1-i].Link("eth0").MAC)
	}
	return c
}

func uplink6(h *host) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 15: h.uplink.As4()[3]})
}

func (h *host) neighbour(link string, a netip.Addr, mac string) {
	h.Run("ip", "neigh", "replace", a.String(), "lladdr", mac, "dev", link, "nud", "permanent")
}

// podAddrs: the pods of one host are within the prefixes that cyclonus makes of an address, but not all in the one that it
// excepts.
func podAddrs(n int) [2]netip.Addr {
	node, last := byte(n%2), byte(8+3*n)
	return [2]netip.Addr{netip.AddrFrom4([4]byte{10, 65, node, last}), netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x65, 14: node, 15: last})}
}

// pod makes one where there is none yet of this name: a link as a CNI plugin makes it, and servers.
func (c *cluster) pod(key string) *pod {
	if p := c.pods[key]; p != nil {
		return p
	}
	t, n := c.t, len(c.pods)
	p := &pod{NS: netnstest.New(t), key: key, host: c.hosts[n%2], addrs: podAddrs(n), next: 10000}
	c.pods[key] = p
	namespace, name, _ := cut(key)
	link := translate.InterfaceName(namespace, name)
	p.host.VethTo(p.NS, link, "eth0")
	running(t, p.host.NS, link)
	running(t, p.NS, "eth0")
	p.Addr("eth0", p.addrs[0].String()+"/32", p.addrs[1].String()+"/128")
	for _, gateway := range []string{"169.254.1.1", "fe80::1"} {
		p.Run("ip", "neigh", "replace", gateway, "lladdr", p.host.Link(link).MAC, "dev", "eth0", "nud", "permanent")
		p.Run("ip", "route", "add", "default", "via", gateway, "dev", "eth0", "onlink")
	}
	other := c.hosts[(n+1)%2]
	other.Run("ip", "route", "add", p.addrs[0].String(), "via", p.host.uplink.String())
	other.Run("ip", "route", "add", p.addrs[1].String(), "via", uplink6(p.host).String())
	p.Do(func() {
		var err error
		p.raw, err = packet.OpenHost()
		must(t, err)
		p.wire, err = packet.Open()
		must(t, err)
	})
	t.Cleanup(func() { p.raw.Close(); must(t, p.wire.Close()) })
	p.serve(t, c.ports)
	c.joined(p)
	return p
}

// running waits until a link throws away no more what is to be sent.
func running(t *testing.T, n *netnstest.NS, link string) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(patience); !n.Link(link).Running; <-look.C {
		if time.Now().After(end) {
			t.Fatalf("%s is up, and does not run", link)
		}
	}
}

// ports are those of cyclonus' containers.
var ports = []int{80, 81}

func (p *pod) serve(t *testing.T, ports []int) {
	for _, a := range p.addrs {
		for _, port := range ports {
			at := netip.AddrPortFrom(a, uint16(port))
			l, err := p.ListenTCP(at)
			must(t, err)
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					c.Close()
				}
			}()
			u, err := p.ListenUDP(at)
			must(t, err)
			t.Cleanup(func() { u.Close() })
			go echo(u)
		}
	}
}

func echo(u *net.UDPConn) {
	buf := make([]byte, 100)
	for {
		n, from, err := u.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		_, _ = u.WriteToUDPAddrPort(buf[:n], from)
	}
}

// inForm wants each host to have policy in a form of policyRendering.
func (c *cluster) inForm(form string) {
	for _, h := range c.hosts {
		table := h.Run("nft", "list", "table", "inet", kernel.TableName)
		if is := strings.Contains(table, "map program-port"); is != (form == "Compiled") {
			c.t.Errorf("%s has policy as look-ups: %v; policyRendering: %s", h.name, is, form)
		}
	}
}

// kubePod is a pod of cyclonus as Kubernetes has it once it runs.
func (c *cluster) kubePod(p *probe.Pod) *corev1.Pod {
	out, mine := p.KubePod(), c.pod(p.PodString().String())
	out.Spec.NodeName = mine.host.name
	out.Status.Phase = corev1.PodRunning
	out.Status.PodIP = mine.addrs[0].String()
	out.Status.PodIPs = []corev1.PodIP{{IP: mine.addrs[0].String()}, {IP: mine.addrs[1].String()}}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
