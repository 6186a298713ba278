package agreetest

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/verdict"
	"github.com/twillnet/twill/internal/verdict/world"
)

// handCase is a policy whose answers were derived by hand from what is documented, and not by any code of ours: so the three
// judges, which might share an error, are each held to it.
type handCase struct {
	name   string
	source string // of the expectation
	// rules are those of a global policy for the workload web, as YAML: of ingress or, after "egress:", of egress.
	rules string
	// allowed and denied are packets: "203.0.113.5 tcp/80" comes from that address to web, ">203.0.113.5 tcp/80" goes from web
	// to it. After the slash: the destination port, or the ICMP type; "from 99" is the source port.
	allowed, denied []string
	more            string // resources besides handBase, as YAML
}

// handBase is web, which has the ports web-tcp, web-udp and both.
const handBase = `
- {kind: Node, metadata: {name: h1}, spec: {bgp: {ipv4Address: 192.0.2.1/32, ipv6Address: "2001:db8::1/128"}}}
- kind: WorkloadEndpoint
  metadata: {namespace: prod, name: h1-k8s-web-eth0, labels: {app: web}}
  spec:
    {orchestrator: k8s, node: h1, workload: web, pod: web, endpoint: eth0, interfaceName: cali0,
     ipNetworks: [10.65.0.1/32, "fd00:65::1/128"], profiles: [projectcalico-default-allow],
     ports: [{name: web-tcp, protocol: TCP, port: 80}, {name: web-udp, protocol: UDP, port: 80},
             {name: both, protocol: TCP, port: 53}, {name: both, protocol: UDP, port: 53}, {name: sctp, protocol: SCTP, port: 80}]}
- {kind: Profile, metadata: {name: kns.prod}, spec: {labelsToApply: {pcns.env: live, pcns.projectcalico.org/name: prod}}}
- {kind: Profile, metadata: {name: claims}, spec: {labelsToApply: {projectcalico.org/namespace: prod, projectcalico.org/serviceaccount: robot}}}
- {kind: GlobalNetworkSet, metadata: {name: four, labels: {set: four}}, spec: {nets: [203.0.113.0/24]}}
`

var handPlurals = map[string]string{
	"FelixConfiguration": "felixconfigurations", "BGPConfiguration": "bgpconfigurations", "KubernetesEndpointSlice": "kubernetesendpointslices",
	"Node": "nodes", "Profile": "profiles", "NetworkSet": "networksets", "NetworkPolicy": "networkpolicies", "HostEndpoint": "hostendpoints", "WorkloadEndpoint": "workloadendpoints", "GlobalNetworkSet": "globalnetworksets", "GlobalNetworkPolicy": "globalnetworkpolicies",
}

func (c handCase) updates(t *testing.T) []api.Update {
	t.Helper()
	rules, egress := strings.CutPrefix(c.rules, "egress:")
	field, types := "ingress", "Ingress"
	if egress {
		field, types = "egress", "Egress"
	}
	text := handBase + c.more + `
- {kind: GlobalNetworkPolicy, metadata: {name: p}, spec: {selector: app == "web", types: [` + types + `], ` + field + `: [` + rules + `]}}`
	var docs []struct {
		Kind     string
		Metadata struct{ Namespace, Name string }
	}
	must(t, yaml.Unmarshal([]byte(text), &docs))
	var values []json.RawMessage
	must(t, yaml.Unmarshal([]byte(text), &values))
	var out []api.Update
	for i, d := range docs {
		name := strings.TrimPrefix(d.Metadata.Namespace+"/"+d.Metadata.Name, "/")
		out = append(out, api.Update{Key: "/calico/resources/v3/projectcalico.org/" + handPlurals[d.Kind] + "/" + name, Value: values[i]})
	}
	return out
}

var (
	webAddrs     = map[bool]netip.Addr{true: netip.MustParseAddr("10.65.0.1"), false: netip.MustParseAddr("fd00:65::1")} // by Is4
	protoNumbers = map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17, "icmp6": 58, "ipip": 4, "sctp": 132, "udplite": 136}
)

// handPacket reads one of a case's packets, and says by which link it comes, and by which it goes; "" is the host itself.
func handPacket(t *testing.T, text string) (p packet.Packet, in, out string) {
	t.Helper()
	text, leaves := strings.CutPrefix(text, ">")
	f := strings.Fields(text)
	name, number, _ := strings.Cut(f[1], "/")
	addr := netip.MustParseAddr(f[0])
	p = packet.Packet{Src: addr, Dst: webAddrs[addr.Is4()], Proto: protoNumbers[name]}
	if p.Proto == 0 {
		t.Fatalf("packet %q", text)
	}
	in, out = uplink, "cali0"
	if leaves {
		p.Src, p.Dst, in, out = p.Dst, p.Src, out, in
	}
	if isOwn(p.Dst) {
		out = ""
	}
	if name == "icmp" || name == "icmp6" {
		p.ICMPType = uint8(handNumber(t, number))
		return p, in, out
	}
	p.SrcPort, p.DstPort = 20000, handNumber(t, number)
	if len(f) > 3 {
		p.SrcPort = handNumber(t, f[3])
	}
	return p, in, out
}

func handNumber(t *testing.T, s string) uint16 {
	t.Helper()
	v, err := strconv.ParseUint(s, 10, 16)
	must(t, err)
	return uint16(v)
}

func TestHandCases(t *testing.T) {
	n := newNode(t, *on)
	for _, cases := range [][]handCase{familyCases, protocolCases, labelCases, tunnelCases, loopCases, serviceCases, uplinkCases, everyCases, dnsCases, negationCases, profileCases} {
		for _, c := range cases {
			if !t.Run(c.name, func(t *testing.T) { c.judge(t, n) }) {
				t.Logf("expected because: %s", c.source)
			}
		}
	}
}

// judge asks all three about each packet: the resources, the intents and the kernel.
func (c handCase) judge(t *testing.T, n *node) {
	n.forgetFlows()
	updates := c.updates(t)
	g := calc.New(nodeName)
	g.Update(updates)
	g.SetInSync()
	batch := g.Flush()
	n.program(batch)
	var v verdict.State
	v.Merge(batch)
	v.SetLink(uplink, []netip.Addr{netip.MustParseAddr(ownV4), netip.MustParseAddr(ownV6)})
	oracle := world.New(updates)
	for _, text := range append(slices.Clone(c.allowed), c.denied...) {
		want := slices.Contains(c.allowed, text)
		p, in, out := handPacket(t, text)
		sent := []sending{{p, in}}
		came, passed := n.deliver(sent).out[sent[0].Mark]
		if passed = passed && came == out; passed != want {
			t.Errorf("%s: the kernel lets it pass: %v", text, passed)
		}
		if got := v.Judge(verdict.Packet{
			InLink: in, OutLink: out, Src: p.Src, Dst: p.Dst, Proto: p.Proto,
			SrcPort: p.SrcPort, DstPort: p.DstPort, ICMPType: p.ICMPType,
		}); got.Allowed != want {
			t.Errorf("%s: by the intents it is allowed: %v, %+v", text, got.Allowed, got.Decision)
		}
		q := world.Query{Uplink: uplink, Family: 4, Proto: p.Proto, SrcPort: p.SrcPort, DstPort: p.DstPort, ICMPType: p.ICMPType}
		if p.Dst.Is6() {
			q.Family = 6
		}
		var err1, err2 error
		q.Src, err1 = oracle.Resolve(p.Src.String())
		q.Dst, err2 = oracle.Resolve(p.Dst.String())
		must(t, errors.Join(err1, err2))
		if got := oracle.Judge(q); got.Allowed != want {
			t.Errorf("%s: by the resources it is allowed: %v, %+v", text, got.Allowed, got.Decided)
		}
	}
}

// forgetFlows takes all connections from the kernel, so that no packet is of one that another case has opened.
func (n *node) forgetFlows() {
	n.host.Do(func() {
		c, err := conntrack.Open()
		must(n.t, err)
		defer func() { must(n.t, c.Close()) }()
		var all []conntrack.Flow
		must(n.t, c.Each(func(f conntrack.Flow) { all = append(all, f) }))
		_, err = c.Forget(all)
		must(n.t, err)
	})
}

// TestNothingStopsAHostOnItsWayToAWorkload: no chain is on the way from a host's processes to its workloads, and verdict says so.
// An endpoint that is closed gets no route from us, which is why the resources say that the host does not reach it; here
// somebody else has made one. What the workload answers is dropped.
func TestNothingStopsAHostOnItsWayToAWorkload(t *testing.T) {
	n := newNode(t, *on)
	updates := handCase{rules: "{action: Allow}", more: `
- {kind: GlobalNetworkPolicy, metadata: {name: deny}, spec: {order: 1, selector: all(), types: [Ingress, Egress]}}
- kind: WorkloadEndpoint
  metadata: {namespace: prod, name: h1-k8s-shut-eth0}
  spec: {orchestrator: k8s, node: h1, workload: shut, pod: shut, endpoint: eth0, interfaceName: cali1, ipNetworks: []}`}.updates(t)
	g := calc.New(nodeName)
	g.Update(updates)
	g.SetInSync()
	batch := g.Flush()
	n.program(batch)
	var v verdict.State
	v.Merge(batch)
	if !slices.ContainsFunc(batch.Endpoints, func(e intent.Endpoint) bool { return e.Link == "cali1" && e.Closed != "" }) {
		t.Fatalf("no endpoint is closed: %+v", batch.Endpoints)
	}
	for _, tt := range []struct{ name, addr, link string }{
		{"one that policy denies all", "10.65.0.1", ""},
		{"one that is closed", "10.65.0.2", "cali1"},
		{"one that nobody knows", "10.65.0.3", "cali2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			to, link := netip.MustParseAddr(tt.addr), tt.link
			if link != "" {
				must(t, n.host.Rtnl().AddRoute(rtnl.Route{Dst: netip.PrefixFrom(to, to.BitLen()), Link: n.link(link), Protocol: 4}))
				must(t, n.host.Rtnl().SetNeighbour(rtnl.Neighbour{Link: n.link(link), Addr: to, MAC: "02:00:00:00:00:01", Permanent: true}))
			} else {
				link = "cali0"
			}
			host := netip.MustParseAddr(ownV4)
			sent := []sending{
				{packet.Packet{Src: host, Dst: to, Proto: 17, SrcPort: 20000, DstPort: 80}, ""},
				{packet.Packet{Src: to, Dst: host, Proto: 17, SrcPort: 30000, DstPort: 80}, link},
			}
			fates := n.deliver(sent)
			if out, passed := fates.out[sent[0].Mark]; !passed || out != link {
				t.Errorf("what the host sends comes out by %q (%v), want by %s", out, passed, link)
			}
			if _, passed := fates.out[sent[1].Mark]; passed {
				t.Error("what the workload sends reaches the host")
			}
			for _, p := range []verdict.Packet{{OutLink: link}, {InLink: link}} {
				p.Src, p.Dst, p.Proto, p.SrcPort, p.DstPort = sent[0].Src, sent[0].Dst, 17, 20000, 80
				if p.InLink != "" {
					p.Src, p.Dst, p.SrcPort = p.Dst, p.Src, 30000
				}
				if got := v.Judge(p); got.Allowed != (p.InLink == "") {
					t.Errorf("verdict for what goes from %q to %q: %+v", p.InLink, p.OutLink, got.Decision)
				}
			}
		})
	}
}
