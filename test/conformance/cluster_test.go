package conformance

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nflog"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/translate"
)

// cluster is two hosts with a link between them, and the pods that have been on them so far.
type cluster struct {
	t     *testing.T
	form  string // policyRendering
	hosts [2]*host
	pods  map[string]*pod // by namespace/name; they stay when Kubernetes deletes them, and nothing allows them anything
	state map[string]string
}

type host struct {
	*netnstest.NS
	name   string
	uplink netip.Addr // IPv4; that of IPv6 ends alike
	graph  *calc.Graph
	driver *nft.Driver
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

func newCluster(t *testing.T, form string) *cluster {
	c := &cluster{t: t, form: form, pods: map[string]*pod{}, state: map[string]string{}}
	for i := range c.hosts {
		h := &host{NS: netnstest.New(t), name: fmt.Sprintf("node-%d", i), uplink: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)})}
		h.Forward()
		h.graph = calc.New(h.name)
		h.graph.SetInSync()
		h.Do(func() {
			conn, err := nftables.Open()
			must(t, err)
			t.Cleanup(func() { conn.Close() })
			h.driver = nft.New(conn, nft.Config{Names: attribution.New()})
			h.drops, err = nflog.Open(nflog.Config{Group: kernel.NFLogVerdicts, Collect: 1})
			must(t, err)
			t.Cleanup(func() { must(t, h.drops.Close()) })
		})
		must(t, h.driver.Resync(t.Context()))
		c.hosts[i] = h
	}
	a, b := c.hosts[0], c.hosts[1]
	a.VethTo(b.NS, "eth0", "eth0")
	for i, h := range c.hosts {
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
	p.Addr("eth0", p.addrs[0].String()+"/32", p.addrs[1].String()+"/128")
	for i, gateway := range []string{"169.254.1.1", "fe80::1"} {
		p.Run("ip", "neigh", "replace", gateway, "lladdr", p.host.Link(link).MAC, "dev", "eth0", "nud", "permanent")
		p.Run("ip", "route", "add", "default", "via", gateway, "dev", "eth0", "onlink")
		p.host.Run("ip", "route", "add", p.addrs[i].String(), "dev", link)
		p.host.neighbour(link, p.addrs[i], p.Link("eth0").MAC)
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
	p.serve(t)
	return p
}

// ports are those of cyclonus' containers.
var ports = []int{80, 81}

func (p *pod) serve(t *testing.T) {
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

// resources returns what cyclonus has put into the cluster, as Twill stores it.
func (c *cluster) resources(s *connectivity.TestCaseState) map[string]string {
	var objects []translate.Object
	add := func(o translate.Object) { objects = append(objects, o) }
	for _, name := range slices.Sorted(maps.Keys(s.Resources.Namespaces)) {
		add(translate.Of(probe.KubeNamespace(name, s.Resources.Namespaces[name])))
	}
	for _, p := range s.Resources.Pods {
		k, mine := p.KubePod(), c.pod(p.PodString().String())
		k.Spec.NodeName = mine.host.name
		k.Status.PodIPs = []corev1.PodIP{{IP: mine.addrs[0].String()}, {IP: mine.addrs[1].String()}}
		add(translate.Of(k))
		add(translate.Of(p.KubeService()))
	}
	for _, np := range s.Policies {
		add(translate.Of(np))
	}
	out := map[string]string{}
	put := func(rs []api.Resource) {
		for _, r := range rs {
			api.Default(r)
			key, err := api.Key(r)
			must(c.t, err)
			value, err := api.EncodeStored(r)
			must(c.t, err)
			out[key] = string(value)
		}
	}
	for _, o := range objects {
		rs, err := translate.Resources(o)
		must(c.t, err)
		put(rs)
	}
	put(translate.Implied(objects))
	form := &api.FelixConfiguration{Spec: api.FelixConfigurationSpec{PolicyRendering: c.form}}
	form.TypeMeta = api.TypeMeta{Kind: api.KindFelixConfiguration, APIVersion: api.GroupVersion}
	form.Metadata.Name = "default"
	put([]api.Resource{form})
	return out
}

// program brings both hosts from the last step's state to this one's, by what has changed.
func (c *cluster) program(want map[string]string) (all []api.Update) {
	c.t.Helper()
	var changed []api.Update
	for _, key := range slices.Sorted(maps.Keys(want)) {
		u := api.Update{Key: key, Value: []byte(want[key])}
		all = append(all, u)
		if c.state[key] != want[key] {
			changed = append(changed, u)
		}
	}
	for key := range c.state {
		if _, ok := want[key]; !ok {
			changed = append(changed, api.Update{Key: key})
		}
	}
	c.state = want
	for _, h := range c.hosts {
		h.graph.Update(changed)
		h.driver.Merge(h.graph.Flush())
		outcomes, err := h.driver.Apply(c.t.Context())
		must(c.t, err)
		for _, o := range outcomes {
			must(c.t, o.Err)
		}
	}
	return all
}

// inForm wants each host to have policy in the cluster's form.
func (c *cluster) inForm() {
	for _, h := range c.hosts {
		table := h.Run("nft", "list", "table", "inet", kernel.TableName)
		if is := strings.Contains(table, "map program-port"); is != (c.form == "Compiled") {
			c.t.Errorf("%s has policy as look-ups: %v; policyRendering: %s", h.name, is, c.form)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
