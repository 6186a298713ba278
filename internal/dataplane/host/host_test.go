package host_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/host"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

// rig is a driver in a namespace of its own.
type rig struct {
	t  *testing.T
	ns *netnstest.NS
	h  *host.Host
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, ns: netnstest.New(t)}
	r.restart()
	return r
}

// restart replaces the driver with one that knows nothing.
func (r *rig) restart() {
	r.t.Helper()
	s, err := sysctl.OpenIn(r.ns.Handle())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	r.h = host.New(r.ns.Rtnl(), s, host.Config{})
	r.resync()
}

func (r *rig) resync() {
	r.t.Helper()
	if err := r.h.Resync(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// workload makes a namespace with one address of each family, behind an interface of the host.
func (r *rig) workload(link, v4, v6 string) *netnstest.NS {
	r.t.Helper()
	w := netnstest.New(r.t)
	r.ns.VethTo(w, link, "eth0")
	w.Addr("eth0", v4+"/32", v6+"/128")
	w.Route("169.254.1.1 dev eth0 scope link")
	w.Route("default via 169.254.1.1 dev eth0")
	w.Route("default via fe80::1 dev eth0")
	r.ns.Route(v4 + " dev " + link + " scope link")
	r.ns.Route(v6 + " dev " + link)
	return w
}

// links passes the present state of all interfaces on, as ifmon does.
func (r *rig) links() {
	r.t.Helper()
	links, err := r.ns.Rtnl().Links()
	if err != nil {
		r.t.Fatal(err)
	}
	all, err := r.ns.Rtnl().Addrs()
	if err != nil {
		r.t.Fatal(err)
	}
	addrs := func(link int) (out []netip.Prefix) {
		for _, a := range all {
			if a.Link == link {
				out = append(out, a.Prefix)
			}
		}
		return out
	}
	var out []ifmon.Change
	for _, l := range links {
		out = append(out, ifmon.Change{Link: ifmon.Link{Index: l.Index, Name: l.Name, Up: l.Up, Addrs: addrs(l.Index)}})
	}
	r.h.Links(out)
}

func (r *rig) apply() map[string]intent.Outcome {
	r.t.Helper()
	out, err := r.h.Apply(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	m := map[string]intent.Outcome{}
	for _, o := range out {
		m[o.Key.String()] = o
	}
	return m
}

func (r *rig) open() { r.h.Gate(true, func(string) bool { return false }) }

func endpoints(inSync bool, links ...string) intent.Batch {
	b := intent.Batch{InSync: inSync}
	for _, l := range links {
		b.Endpoints = append(b.Endpoints, intent.Endpoint{ID: intent.EndpointID{Namespace: "ns", Name: l}, Link: l})
	}
	return b
}

func (r *rig) want(values map[string]string) {
	r.t.Helper()
	for path, want := range values {
		if got := r.ns.SysctlValue(path); got != want {
			r.t.Errorf("%s = %s, want %s", path, got, want)
		}
	}
}

func TestWhatFailedIsTriedAgainAfterRetryOnly(t *testing.T) {
	r := newRig(t)
	r.h.Merge(endpoints(true, "lo"))
	r.ns.Run("ip", "link", "set", "lo", "mtu", "60") // too small for IPv4, so that it has no settings; other kinds of link refuse that
	r.links()
	r.open()
	const id = "workload/ns/lo"
	if o := r.apply()[id]; o.Err == nil {
		t.Fatalf("without its settings: %+v", o)
	}
	r.ns.Run("ip", "link", "set", "lo", "mtu", "1500")
	if out := r.apply(); len(out) > 0 {
		t.Errorf("it was tried, and nothing had changed: %v", out)
	}
	r.h.Retry()
	if o, tried := r.apply()[id]; !tried || o.Err != nil || o.Reason != "" {
		t.Errorf("tried again: %v, %+v", tried, o)
	}
	if r.h.Retry(); len(r.apply()) > 0 {
		t.Error("what is in order is tried again")
	}
}

func TestGatewayAnswersOnAHostWithoutDefaultRoute(t *testing.T) {
	r := newRig(t)
	w1 := r.workload("cali1", "10.65.0.5", "2001:db8::5")
	w2 := r.workload("cali2", "10.65.0.6", "2001:db8::6")
	r.ns.WantNoRoute(t, "default")
	r.h.Merge(endpoints(true, "cali1", "cali2"))
	r.links()
	r.open()
	for id, o := range r.apply() {
		if o.Err != nil || o.Reason != "" {
			t.Errorf("outcome of %s = %+v", id, o)
		}
	}
	for _, gateway := range []string{"169.254.1.1", "fe80::1%eth0"} {
		if err := w1.Ping(netip.Addr{}, netip.MustParseAddr(gateway), time.Now().Add(netnstest.Patience)); err != nil {
			t.Errorf("ping %s: %v", gateway, err)
		}
	}
	for _, dst := range []string{"10.65.0.6", "2001:db8::6"} {
		for _, proto := range []string{"icmp", "tcp"} {
			netnstest.Probe{From: w1, To: w2, Proto: proto, Dst: netip.AddrPortFrom(netip.MustParseAddr(dst), 80)}.WantReach(t)
		}
	}
	r.want(map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		"ipv4/conf/cali1/forwarding": "1", "ipv4/conf/cali1/rp_filter": "1", "ipv4/conf/cali1/route_localnet": "1",
		"ipv4/conf/cali1/proxy_arp": "1", "ipv4/neigh/cali1/proxy_delay": "0",
		"ipv6/conf/cali1/forwarding": "1", "ipv6/conf/cali1/accept_ra": "0", "ipv6/conf/cali1/proxy_ndp": "1",
	})
}

// TestAWorkloadThatMaySendFromOtherAddressesIsNotHeldToItsRoute: the kernel's check knows no exceptions, and policy's does.
func TestAWorkloadThatMaySendFromOtherAddressesIsNotHeldToItsRoute(t *testing.T) {
	r := newRig(t)
	r.workload("cali1", "10.65.0.5", "2001:db8::5")
	r.links()
	r.open()
	for _, step := range []struct {
		says string
		also []netip.Prefix
		want string
	}{
		{"it may not", nil, "1"},
		{"it may", []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, "0"},
		{"it may no more", nil, "1"},
	} {
		t.Run(step.says, func(t *testing.T) {
			b := endpoints(true, "cali1")
			b.Endpoints[0].Spoofable = step.also
			r.h.Merge(b)
			r.apply()
			r.want(map[string]string{"ipv4/conf/cali1/rp_filter": step.want})
		})
	}
}

func TestNothingIsForwardedBeforePolicyIsInForce(t *testing.T) {
	r := newRig(t)
	r.workload("cali1", "10.65.0.5", "2001:db8::5")
	r.h.Merge(endpoints(true, "cali1"))
	r.links()
	const id = "workload/ns/cali1"
	if o := r.apply()[id]; o.Reason != "policy is not in force yet" {
		t.Errorf("before the first transaction: %+v", o)
	}
	r.want(map[string]string{"ipv4/ip_forward": "0", "ipv6/conf/all/forwarding": "0", "ipv4/conf/cali1/forwarding": "0", "ipv4/conf/cali1/proxy_arp": "0"})
	r.h.Gate(true, func(link string) bool { return link == "cali1" })
	if o := r.apply()[id]; o.Reason != "policy is not in force yet" {
		t.Errorf("before the endpoint's policy: %+v", o)
	}
	r.want(map[string]string{"ipv4/ip_forward": "1", "ipv4/conf/cali1/proxy_arp": "0"})
	r.open()
	if o := r.apply()[id]; o.Reason != "" || o.Err != nil {
		t.Errorf("with policy: %+v", o)
	}
	r.want(map[string]string{"ipv4/conf/cali1/proxy_arp": "1"})
}

// TestSettingsOfTheWholeHost: the host forwards, and IPv6 too, unless settings want it not, at once when they want it again; connections
// count what they carry while flows are reported.
func TestSettingsOfTheWholeHost(t *testing.T) {
	r := newRig(t)
	r.workload("cali1", "10.65.0.5", "2001:db8::5")
	b := endpoints(true, "cali1")
	b.Host = &intent.HostSettings{NoForwarding: true, NoIPv6: true}
	r.h.Merge(b)
	r.links()
	r.open()
	r.apply()
	r.want(map[string]string{"ipv4/ip_forward": "0", "ipv6/conf/all/forwarding": "0"})
	asWanted := func() {
		t.Helper()
		if found, err := r.h.Differences(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("differences: %q, %v", found, err)
		}
	}
	asWanted()
	r.h.Merge(intent.Batch{Host: &intent.HostSettings{NoIPv6: true}})
	r.apply()
	asWanted()
	const acct = "netfilter/nf_conntrack_acct"
	r.want(map[string]string{
		"ipv4/ip_forward": "1", "ipv4/conf/cali1/proxy_arp": "1", "ipv6/conf/all/forwarding": "0", "ipv6/conf/cali1/forwarding": "0", "ipv6/conf/cali1/proxy_ndp": "0", acct: "0",
		"ipv6/conf/cali1/accept_ra": "0", // or the workload could be the router of a host that is none
	})
	r.ns.Sysctl("ipv6/conf/cali1/accept_ra", "1")
	if found, err := r.h.Differences(t.Context()); err != nil || len(found) != 1 || !strings.Contains(found[0], "accept_ra") {
		t.Errorf("differences: %q, %v", found, err)
	}
	if err := r.h.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.apply()
	asWanted()
	r.h.Merge(intent.Batch{Host: &intent.HostSettings{ReportAllowed: true}})
	r.apply()
	r.want(map[string]string{"ipv6/conf/all/forwarding": "1", "ipv6/conf/cali1/forwarding": "1", "ipv6/conf/cali1/proxy_ndp": "1", acct: "1"})
	r.h.Merge(intent.Batch{Host: &intent.HostSettings{NoIPv6: true}})
	r.apply()
	r.want(map[string]string{"ipv6/conf/all/forwarding": "1", acct: "1"}) // who else needs it is not known
}

func TestHostKeepsAcceptingRouterAdvertisementsWhenItBecomesARouter(t *testing.T) {
	r := newRig(t)
	r.ns.Veth("uplink0", "uplink1")
	r.ns.Veth("cali1", "cali1p")
	r.ns.Veth("net1", "net1p")
	r.ns.Sysctl("ipv6/conf/uplink1/accept_ra", "0")
	b := endpoints(true)
	b.Host = &intent.HostSettings{Prefixes: []string{"cali", "net"}}
	r.h.Merge(b)
	r.links()
	r.open()
	r.apply()
	r.want(map[string]string{
		"ipv6/conf/uplink0/accept_ra": "2", "ipv6/conf/uplink1/accept_ra": "0",
		"ipv6/conf/cali1/accept_ra": "1", // not ours yet, and as a router the kernel takes 1 for no
		"ipv6/conf/net1/accept_ra":  "1", // the settings say what begins the names of workloads' interfaces
	})
}

func TestMissingInterfaceIsAReasonAndAFlapIsRepaired(t *testing.T) {
	r := newRig(t)
	r.h.Merge(endpoints(true, "cali1"))
	r.links()
	r.open()
	const id = "workload/ns/cali1"
	if o := r.apply()[id]; o.Err != nil || o.Reason != "interface cali1 is absent" {
		t.Errorf("outcome = %+v", o)
	}
	w := r.workload("cali1", "10.65.0.5", "2001:db8::5")
	r.links()
	r.apply()
	r.ns.Flap("cali1") // the kernel drops IPv6 addresses with the link
	l := r.ns.Link("cali1")
	r.h.Links([]ifmon.Change{{Link: ifmon.Link{Index: l.Index, Name: l.Name, Up: true, Downs: 1}}})
	if o := r.apply()[id]; o.Err != nil || o.Reason != "" {
		t.Errorf("outcome = %+v", o)
	}
	if err := w.Ping(netip.Addr{}, netip.MustParseAddr("fe80::1%eth0"), time.Now().Add(netnstest.Patience)); err != nil {
		t.Errorf("ping: %v", err)
	}
}

// TestAnInterfaceThatIsReplacedIsNoFailure: the driver has not got the event that one is gone, and another has its name or none.
func TestAnInterfaceThatIsReplacedIsNoFailure(t *testing.T) {
	for _, another := range []bool{false, true} {
		r := newRig(t)
		r.h.Merge(endpoints(true, "cali1"))
		r.workload("cali1", "10.65.0.5", "2001:db8::5")
		r.links()
		r.open()
		r.ns.Run("ip", "link", "del", "cali1")
		if another {
			r.workload("cali1", "10.65.0.5", "2001:db8::5")
		}
		const id = "workload/ns/cali1"
		if o := r.apply()[id]; o.Err != nil || o.Reason != "interface cali1 is absent" {
			t.Errorf("outcome = %+v", o)
		}
		if another {
			r.links()
			if o := r.apply()[id]; o.Err != nil || o.Reason != "" {
				t.Errorf("outcome = %+v", o)
			}
		}
	}
}

func TestInterfaceIsGivenBackWhenItsEndpointGoes(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(r *rig)
	}{
		{name: "while the agent runs", lose: func(r *rig) {
			r.h.Merge(intent.Batch{Removed: []intent.Key{intent.EndpointID{Kind: intent.Workload, Namespace: "ns", Name: "cali1"}}})
		}},
		{name: "while the agent is down", lose: func(r *rig) {
			r.restart()
			r.h.Merge(endpoints(false, "cali2"))
			r.links()
			r.apply()
			if got := r.ns.Run("ip", "addr", "show", "cali1"); !strings.Contains(got, "169.254.1.1") {
				t.Error("the address went before the source was in sync")
			}
			r.h.Merge(endpoints(true))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.ns.Veth("cali1", "cali1p")
			r.ns.Veth("cali2", "cali2p")
			r.h.Merge(endpoints(true, "cali1", "cali2"))
			r.links()
			r.open()
			r.apply()
			tt.lose(r)
			r.apply()
			if got := r.ns.Run("ip", "addr", "show", "cali1"); strings.Contains(got, "169.254.1.1") || strings.Contains(got, "fe80::1/") {
				t.Errorf("addresses stayed:\n%s", got)
			}
			if got := r.ns.Run("ip", "addr", "show", "cali2"); !strings.Contains(got, "169.254.1.1/32 scope link") || !strings.Contains(got, "fe80::1/64") {
				t.Errorf("the other endpoint lost its gateway:\n%s", got)
			}
			r.want(map[string]string{"ipv4/conf/cali1/proxy_arp": "0", "ipv4/conf/cali1/route_localnet": "0", "ipv4/conf/cali2/proxy_arp": "1"})
		})
	}
}

func TestResyncUndoesWhatOthersDid(t *testing.T) {
	r := newRig(t)
	r.ns.Veth("cali1", "cali1p")
	r.h.Merge(endpoints(true, "cali1"))
	r.links()
	r.open()
	r.apply()
	r.ns.Sysctl("ipv4/conf/cali1/proxy_arp", "0")
	r.ns.Sysctl("ipv4/ip_forward", "0")
	r.ns.Run("ip", "addr", "del", "169.254.1.1/32", "dev", "cali1")
	r.resync()
	r.apply()
	r.want(map[string]string{"ipv4/conf/cali1/proxy_arp": "1", "ipv4/ip_forward": "1"})
	if got := r.ns.Run("ip", "addr", "show", "cali1"); !strings.Contains(got, "169.254.1.1/32 scope link") {
		t.Errorf("the gateway is gone:\n%s", got)
	}
}

func TestIPv6TurnedOffIsLeftOff(t *testing.T) {
	r := newRig(t)
	r.ns.Veth("cali1", "cali1p")
	r.ns.Sysctl("ipv6/conf/cali1/disable_ipv6", "1")
	r.h.Merge(endpoints(true, "cali1"))
	r.links()
	r.open()
	if o := r.apply()["workload/ns/cali1"]; o.Err != nil || o.Reason != "" {
		t.Errorf("outcome = %+v", o)
	}
	r.want(map[string]string{"ipv6/conf/cali1/disable_ipv6": "1", "ipv4/conf/cali1/proxy_arp": "1"})
}

// An endpoint that is refused has no link: what it had before must be the host's again.
func TestAnInterfaceThatIsNoWorkloadsAnyMoreHasItsOwnSettingsAgain(t *testing.T) {
	refused := endpoints(true, "up1")
	refused.Endpoints[0].Link, refused.Endpoints[0].Closed = "", "refused"
	cali := &intent.HostSettings{Prefixes: []string{"cali"}}
	before := map[string]string{"ipv4/conf/up1/rp_filter": "2", "ipv4/neigh/up1/proxy_delay": "70", "ipv6/conf/up1/accept_ra": "1"}
	for _, tt := range []struct {
		name string
		lose func(r *rig)
		want map[string]string
	}{
		{"as it was found", func(r *rig) { r.h.Merge(refused) }, map[string]string{"ipv4/conf/up1/rp_filter": "2", "ipv4/neigh/up1/proxy_delay": "70", "ipv6/conf/up1/accept_ra": "2"}},
		{"when its endpoint is deleted", func(r *rig) {
			r.h.Merge(intent.Batch{Removed: []intent.Key{intent.EndpointID{Kind: intent.Workload, Namespace: "ns", Name: "up1"}}})
		}, map[string]string{"ipv4/conf/up1/rp_filter": "2", "ipv4/neigh/up1/proxy_delay": "70", "ipv6/conf/up1/accept_ra": "2"}},
		{"an earlier agent gave it away: as the kernel makes interfaces; whether it listened to routers nobody knows", func(r *rig) {
			r.restart()
			r.h.Merge(intent.Batch{Host: cali})
			r.h.Merge(refused)
			r.links()
			r.open()
		}, map[string]string{"ipv4/conf/up1/rp_filter": "0", "ipv6/conf/up1/accept_ra": "0"}},
		{"an earlier agent was given it, and this one takes it back when prefixes change", func(r *rig) {
			r.restart()
			r.h.Merge(intent.Batch{Host: &intent.HostSettings{Prefixes: []string{"cali", "up"}}})
			r.h.Merge(endpoints(true, "up1"))
			r.links()
			r.open()
			r.apply()
			r.h.Merge(intent.Batch{Host: cali})
			r.h.Merge(refused)
		}, map[string]string{"ipv4/conf/up1/rp_filter": "0", "ipv6/conf/up1/accept_ra": "0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.ns.Veth("up1", "up2")
			r.ns.Sysctl("ipv4/conf/default/rp_filter", "0")
			for path, value := range before {
				r.ns.Sysctl(path, value)
			}
			r.h.Merge(intent.Batch{Host: cali})
			r.h.Merge(endpoints(true, "up1"))
			r.links()
			r.open()
			r.apply()
			r.want(map[string]string{"ipv4/conf/up1/rp_filter": "1", "ipv6/conf/up1/accept_ra": "0"})
			tt.lose(r)
			out := r.apply()
			if got := r.ns.Run("ip", "addr", "show", "up1"); strings.Contains(got, "169.254.1.1") || strings.Contains(got, "fe80::1/") {
				t.Errorf("addresses stayed:\n%s", got)
			}
			tt.want["ipv4/conf/up1/proxy_arp"], tt.want["ipv4/conf/up1/route_localnet"] = "0", "0"
			r.want(tt.want)
			if o, ok := out["workload/ns/up1"]; ok && o.Err != nil {
				t.Errorf("outcome of an endpoint without an interface: %+v", o)
			}
		})
	}
}
