package agreetest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nflog"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

const (
	uplink    = "eth0"
	workloads = 9 // of a world; their links are cali0 … cali8
	nodeName  = "h1"
	ownV4     = "192.0.2.1" // of h1 in random worlds
	ownV6     = "2001:db8::1"
)

var wireMAC = packet.MAC{0x02, 0, 0, 0, 0, 0x01} // of all ends in the wires' namespace

// node is a host in a namespace of its own. All its links end in another
// namespace, which has no addresses: there, packets are made and seen.
type node struct {
	t        *testing.T
	on       string // which dataplane
	host     *netnstest.NS
	wires    *netnstest.NS
	socket   *packet.Socket // in wires
	own      *packet.Host   // in host: what its processes send
	conn     *nftables.Conn // in host
	drops    *nflog.Conn    // in host: what policy dropped, and why
	inputs   *nflog.Conn    // in host: what reached its processes
	names    *attribution.Table
	index    map[string]int // of a link's end in wires, by the link's name in host
	links    map[int]string
	mac      map[string]packet.MAC // of the link in host
	routes   map[netip.Prefix]rtnl.Route
	mark     uint16
	worlds   int                    // that were programmed: of three, two as tables
	sent     map[packet.Packet]bool // tuples, so that no packet is a reply to an earlier one
	far      *farHost               // nil: policy is in this process
	farAgent func()                 // ends the last agent of that
	tabled   map[string]int         // stages of host endpoints at which the tables were asked, by the kernel's own word
}

func newNode(t *testing.T, dataplane string) *node {
	checkOn(t, dataplane)
	n := &node{
		t: t, on: dataplane, host: netnstest.New(t), wires: netnstest.New(t), index: map[string]int{}, links: map[int]string{}, names: attribution.New(),
		mac: map[string]packet.MAC{}, routes: map[netip.Prefix]rtnl.Route{}, sent: map[packet.Packet]bool{}, tabled: map[string]int{},
	}
	for i := range workloads {
		n.addLink(fmt.Sprintf("cali%d", i))
	}
	n.addLink(uplink)
	n.host.Forward()
	for _, link := range append(slices.Collect(maps.Keys(n.mac)), "all") {
		n.host.Sysctl("ipv4/conf/"+link+"/rp_filter", "0")
		n.host.Sysctl("ipv4/conf/"+link+"/send_redirects", "0")
	}
	n.host.Sysctl("ipv4/icmp_ratelimit", "0") // each packet that is rejected is answered
	n.host.Sysctl("ipv6/icmp/ratelimit", "0")
	n.host.Run("ip", "addr", "add", ownV4+"/32", "dev", uplink)
	n.host.Run("ip", "addr", "add", ownV6+"/128", "dev", uplink, "nodad")
	for began := time.Now(); !strings.HasPrefix(n.host.Run("ip", "-6", "route", "get", ownV6), "local"); {
		if time.Since(began) > netnstest.Patience {
			t.Fatalf("%s is not the host's own: its link has not come up", ownV6)
		}
	}
	n.open()
	n.wires.Do(func() {
		var err error
		n.socket, err = packet.Open()
		must(t, err)
	})
	t.Cleanup(func() { n.socket.Close() })
	// Whatever is not here is behind the uplink.
	out := n.link(uplink)
	for _, via := range []string{"192.0.2.254", "2001:db8::ffff"} {
		gw := netip.MustParseAddr(via)
		must(t, n.host.Rtnl().SetNeighbour(rtnl.Neighbour{Link: out, Addr: gw, MAC: "02:00:00:00:00:01", Permanent: true}))
		world := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if gw.Is6() {
			world = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		must(t, n.host.Rtnl().AddRoute(rtnl.Route{Dst: world, Link: out, Gateway: gw, OnLink: true, Protocol: 4}))
	}
	if dataplane == inFar {
		n.far = newFarHost(n)
	}
	return n
}

// open opens all doors of the host. Behind our own stages, a chain reports what its processes would get, and ends it there,
// so that nothing is answered.
func (n *node) open() {
	t := n.t
	n.host.Run("nft", fmt.Sprintf(`table inet probe { chain input { type filter hook input priority 1000; log group %d snaplen 128 drop; }; }`, groupInput))
	n.host.Do(func() {
		var err error
		n.conn, err = nftables.Open()
		must(t, err)
		n.own, err = packet.OpenHost()
		must(t, err)
		n.drops, err = nflog.Open(nflog.Config{Group: kernel.NFLogVerdicts, Collect: 1})
		must(t, err)
		n.inputs, err = nflog.Open(nflog.Config{Group: groupInput, Collect: 1})
		must(t, err)
	})
	t.Cleanup(func() {
		n.conn.Close()
		n.own.Close()
		must(t, n.drops.Close())
		must(t, n.inputs.Close())
	})
}

const groupInput = 900

func (n *node) link(name string) int {
	return n.host.Link(name).Index
}

func (n *node) addLink(name string) {
	n.host.VethTo(n.wires, name, "w"+name)
	n.host.Up(name)
	n.wires.Up("w" + name)
	h, w := n.host.Link(name), n.wires.Link("w"+name)
	n.index[name], n.links[w.Index] = w.Index, name
	n.mac[name] = parseMAC(n.t, h.MAC)
}

func parseMAC(t *testing.T, s string) (m packet.MAC) {
	if _, err := fmt.Sscanf(s, "%02x:%02x:%02x:%02x:%02x:%02x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]); err != nil {
		t.Fatalf("MAC %q: %v", s, err)
	}
	return m
}

// program makes the kernel what a batch from an empty start says, with a new
// driver each time: what the last world left is the agent's restart.
func (n *node) program(b intent.Batch) {
	n.t.Helper()
	n.names = attribution.New()
	d := n.driver(false)
	d.Links([]ifmon.Change{{Link: ifmon.Link{Name: uplink, Addrs: []netip.Prefix{netip.MustParsePrefix(ownV4 + "/32"), netip.MustParsePrefix(ownV6 + "/128")}}}})
	if n.worlds++; b.Host != nil {
		b.Host = compiled(*b.Host, n.worlds%3 != 0)
	}
	d.Merge(b)
	n.inForce(d)
	n.countTabled(b.Endpoints)
	n.setRoutes(b.Routes)
}

var hostStages = map[string]rules.Stage{"untracked": rules.Untracked, "pre-DNAT": rules.PreDNAT, "forward": rules.HostForward, "host": rules.HostNormal}

// countTabled counts the stages of host endpoints that have maps.
func (n *node) countTabled(es []intent.Endpoint) {
	if n.onIPTables() {
		return // it has no policy as look-ups
	}
	for _, e := range es {
		for name, stage := range hostStages {
			for dir, begin := range []string{intent.Ingress: "in-", intent.Egress: "out-"} {
				chain := rules.HostChain(e.ID, stage, intent.Direction(dir))
				if _, err := n.conn.ListSet(kernel.TableName, begin+chain+"-ipv4"); e.ID.Kind == intent.Host && err == nil {
					n.tabled[name+" "+intent.Direction(dir).String()]++
				}
			}
		}
	}
}

// checkTabled demands that tables were asked: of few worlds, at the stage that all host endpoints have.
func checkTabled(t *testing.T, tabled map[string]int, few bool) {
	t.Helper()
	t.Logf("stages of host endpoints in tables: %v", tabled)
	stages := []string{"host Ingress", "host Egress", "pre-DNAT Ingress", "untracked Ingress", "untracked Egress", "forward Ingress", "forward Egress"}
	if few {
		stages = stages[:2]
	}
	for _, stage := range stages {
		if tabled[stage] == 0 {
			t.Errorf("no host endpoint was asked by tables at the stage %s", stage)
		}
	}
}

// compiled is a host whose policy is tables, or chains.
func compiled(h intent.HostSettings, yes bool) *intent.HostSettings {
	h.Compiled = yes
	return &h
}

// setRoutes makes the routes to local endpoints exactly these; a driver in another process has done so itself.
func (n *node) setRoutes(want []intent.Route) {
	if n.far != nil {
		for _, r := range want {
			must(n.t, n.host.Rtnl().SetNeighbour(rtnl.Neighbour{Link: n.link(r.Link), Addr: r.Dst.Addr(), MAC: "02:00:00:00:00:01", Permanent: true}))
		}
		return
	}
	next := map[netip.Prefix]rtnl.Route{}
	for _, r := range want {
		next[r.Dst] = rtnl.Route{Dst: r.Dst, Link: n.link(r.Link), Protocol: kernel.RouteProtocolAgent}
	}
	for dst, r := range n.routes {
		if next[dst] != r {
			must(n.t, n.host.Rtnl().DeleteRoute(r))
		}
	}
	for dst, r := range next {
		if n.routes[dst] != r {
			must(n.t, n.host.Rtnl().AddRoute(r))
			must(n.t, n.host.Rtnl().SetNeighbour(rtnl.Neighbour{Link: r.Link, Addr: dst.Addr(), MAC: "02:00:00:00:00:01", Permanent: true}))
		}
	}
	n.routes = next
}

// fresh reports whether a packet opens a flow that conntrack has not seen, in
// either direction.
func (n *node) fresh(p packet.Packet) bool {
	p.Mark = 0
	back := p
	back.Src, back.Dst, back.SrcPort, back.DstPort = p.Dst, p.Src, p.DstPort, p.SrcPort
	if n.sent[p] || n.sent[back] {
		return false
	}
	n.sent[p] = true
	return true
}

// send puts a packet on a link of the host, as if its other end had sent it; without a link, as one of its own.
func (n *node) send(link string, p packet.Packet) {
	n.t.Helper()
	if link == "" {
		must(n.t, n.own.Send(p))
		return
	}
	must(n.t, n.socket.Send(n.index[link], p.Frame(wireMAC, n.mac[link])))
}

// fates are what became of packets, by mark.
type fates struct {
	out      map[uint16]string          // the links on which they came out; empty: they reached a process of the host
	dropped  map[uint16]intent.Decision // what reported to have dropped them
	rejected map[uint16]string          // the links on which a reset or ICMP error went to the sender
	sent     map[uint16]packet.Packet
}

// is finds the packet that was seen: what the host says itself may have any mark.
func (f fates) is(seen packet.Packet) bool {
	p, mine := f.sent[seen.Mark]
	return mine && p.Src == seen.Src && p.Dst == seen.Dst && p.Proto == seen.Proto
}

// answered finds the packet that the host answered for another: by a reset of its connection, or by an error that quotes it.
func (f fates) answered(seen packet.Seen) (uint16, bool) {
	if q := seen.Quoted; q != (packet.Packet{}) {
		return q.Mark, f.is(q) && q.Proto != 6
	}
	for mark, p := range f.sent {
		if seen.Proto == 6 && p.Proto == 6 && p.Src == seen.Dst && p.Dst == seen.Src && p.SrcPort == seen.DstPort && p.DstPort == seen.SrcPort {
			return mark, true
		}
	}
	return 0, false
}

// readReports reads what the host's rules report.
func (n *node) readReports(f fates) {
	n.t.Helper()
	read := func(c *nflog.Conn, each func(nflog.Packet, packet.Packet)) {
		for {
			p, ok, err := c.Receive(time.Now())
			must(n.t, err)
			if !ok {
				break
			}
			if seen, ip := packet.ParseIP(p.Payload); ip && f.is(seen) {
				each(p, seen)
			}
		}
		if c.Lost() > 0 {
			n.t.Fatal("reports were lost")
		}
	}
	read(n.inputs, func(_ nflog.Packet, seen packet.Packet) { f.out[seen.Mark] = "" })
	read(n.drops, func(p nflog.Packet, seen packet.Packet) {
		d, current, known := n.names.Reported(p.Prefix, p.Mark)
		if !known || !current {
			n.t.Errorf("a packet was dropped under the name %q, mark %x: known %v, current %v: %+v", p.Prefix, p.Mark, known, current, d)
		}
		if d.Allowed {
			return // it goes on; where there are staged policies, that is reported, too
		}
		if _, twice := f.dropped[seen.Mark]; twice {
			n.t.Errorf("%+v was dropped twice: by %+v, then by %+v", seen, f.dropped[seen.Mark], d)
		}
		f.dropped[seen.Mark] = d
	})
}

// deliver sends packets, each on its link, and returns what became of them.
//
// All is sent from one core, in whose queue packets keep their order: also those that a router or an answer sends on.
func (n *node) deliver(ps []sending) fates {
	n.t.Helper()
	defer netnstest.OneCore(n.t)()
	f := fates{map[uint16]string{}, map[uint16]intent.Decision{}, map[uint16]string{}, map[uint16]packet.Packet{}}
	for i := range ps {
		n.mark++
		ps[i].Mark = n.mark
		f.sent[n.mark] = ps[i].Packet
		n.send(ps[i].link, ps[i].Packet)
	}
	// The last one always comes out: no policy closes the way of multicast listeners. What was sent before has met its fate.
	n.mark++
	last := packet.Packet{Src: netip.MustParseAddr("2001:db8:99::1"), Dst: netip.MustParseAddr("2001:db8:99::2"), Proto: 58, ICMPType: 132, Mark: n.mark}
	n.send(uplink, last)
	deadline := time.Now().Add(netnstest.Patience)
	for {
		seen, ok, err := n.socket.Receive(deadline)
		must(n.t, err)
		if !ok {
			n.t.Fatal("the packet that always passes did not come out")
		}
		if seen.Packet == last {
			n.readReports(f)
			return f
		}
		if f.is(seen.Packet) {
			f.out[seen.Mark] = n.links[seen.Link]
		} else if mark, answer := f.answered(seen); answer {
			f.rejected[mark] = n.links[seen.Link]
		}
	}
}

// sending is a packet and the link on which it comes to the host.
type sending struct {
	packet.Packet
	link string
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
