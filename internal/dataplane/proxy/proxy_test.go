package proxy_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/proxy"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

var id = intent.EndpointID{Namespace: "default", Name: "a"}

// The workload has its floating addresses as its own, too, for want of translation. Of those that nobody on eth0 asks for, one is in no network of it.
var floating = []string{"192.0.2.77", "2001:db8::77", "198.51.100.9"}

// rig is a host with a workload at cali1, and another host of its network that has no route to the workload.
type rig struct {
	*testing.T
	host, workload, other *netnstest.NS
	d                     *proxy.Driver
}

func newRig(t *testing.T) rig {
	r := rig{t, netnstest.New(t), netnstest.New(t), netnstest.New(t), nil}
	r.host.Forward()
	r.host.VethTo(r.workload, "cali1", "eth0")
	r.host.VethTo(r.other, "eth0", "eth0")
	r.host.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64")
	r.other.Addr("eth0", "192.0.2.2/24", "2001:db8::2/64")
	r.host.Addr("cali1", "169.254.1.1/32", "fe80::1:1/64")
	r.workload.Addr("eth0", floating[0]+"/32", floating[1]+"/128")
	r.host.Route(floating[0] + " dev cali1")
	r.host.Route(floating[1] + "/128 dev cali1")
	r.workload.Route("169.254.1.1 dev eth0 scope link")
	r.workload.Route("default via 169.254.1.1 dev eth0 src " + floating[0])
	r.workload.Route("::/0 via fe80::1:1 dev eth0")
	r.host.Sysctl("ipv4/neigh/eth0/proxy_delay", "0") // up to 0.8 s
	r.host.Sysctl("ipv6/neigh/eth0/proxy_delay", "0")
	r.d = r.next()
	return r
}

// next is a driver that knows the interfaces, and that policy is in force.
func (r rig) next() *proxy.Driver {
	r.Helper()
	var s *sysctl.Handle
	var err error
	r.host.Do(func() { s, err = sysctl.Open() })
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { s.Close() })
	links, err := ifmon.List(r.host.Rtnl())
	if err != nil {
		r.Fatal(err)
	}
	d := proxy.New(r.host.Rtnl(), s)
	d.Links(links)
	d.Gate(true, func(string) bool { return false })
	return d
}

func (r rig) apply(b intent.Batch) {
	r.Helper()
	r.d.Merge(b)
	out, err := r.d.Apply(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	for _, o := range out {
		if o.Err != nil {
			r.Error(o.Err)
		}
	}
}

// with is a batch of a workload with those addresses.
func with(addrs ...string) intent.Batch {
	e := intent.Endpoint{ID: id, Link: "cali1"}
	for _, a := range addrs {
		e.NATs = append(e.NATs, intent.NAT{External: netip.MustParseAddr(a)})
	}
	return intent.Batch{Endpoints: []intent.Endpoint{e}, InSync: true}
}

// entries are the proxies that the host has.
func (r rig) entries() string {
	r.Helper()
	return r.host.Run("ip", "-4", "neigh", "show", "proxy") + r.host.Run("ip", "-6", "neigh", "show", "proxy")
}

// reached reports whether the other host reaches the workload by an address.
func (r rig) reached(addr string, within time.Duration) bool {
	r.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(addr), 80)
	l, err := r.workload.ListenTCP(at)
	if err != nil {
		r.Fatal(err)
	}
	defer l.Close()
	c, err := r.other.DialTCP(netip.AddrPort{}, at, time.Now().Add(within))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// TestHostsOfTheNetworkFindAFloatingAddress that have no route to it, as soon as policy is in force, and not when the workload has it no more.
func TestHostsOfTheNetworkFindAFloatingAddress(t *testing.T) {
	r := newRig(t)
	for _, a := range floating[:2] {
		if r.reached(a, netnstest.Silence) {
			t.Errorf("%s is found without the driver", a)
		}
	}
	r.other.Run("ip", "neigh", "flush", "all")
	r.d.Gate(false, func(string) bool { return false })
	r.apply(with(floating...))
	if got := r.entries(); got != "" {
		t.Errorf("policy is not in force: %s", got)
	}
	r.d.Gate(true, func(string) bool { return false })
	r.apply(intent.Batch{})
	for _, a := range floating[:2] {
		if !r.reached(a, netnstest.Patience) {
			t.Errorf("%s is not found", a)
		}
	}
	if got := r.entries(); strings.Count(got, "\n") != 2 || strings.Contains(got, "cali1") {
		t.Errorf("want an entry of each family on eth0, and none elsewhere:\n%s", got)
	}

	r.host.Run("ip", "neigh", "del", "proxy", floating[0], "dev", "eth0") // another process
	if err := r.d.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.apply(intent.Batch{})
	if got := r.d.Repairs(); len(got) != 1 || !strings.Contains(r.entries(), floating[0]+" dev eth0") {
		t.Errorf("repairs %v, entries %s", got, r.entries())
	}

	r.host.Run("ip", "neigh", "add", "proxy", "192.0.2.78", "dev", "eth0") // another's own
	before := r.entries()
	r.d = r.next() // the next agent
	r.apply(intent.Batch{})
	if got := r.entries(); got != before {
		t.Errorf("changed before all was known: %s", got)
	}
	r.apply(with(floating[1]))
	if got := r.entries(); strings.Contains(got, floating[0]) || !strings.Contains(got, floating[1]) || !strings.Contains(got, "192.0.2.78") {
		t.Errorf("one address is another's now: %s", got)
	}
	if found, err := r.d.Differences(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("differ: %v, %v", found, err)
	}
	r.apply(intent.Batch{Removed: []intent.Key{id}})
	if got := r.entries(); strings.Contains(got, floating[1]) || !strings.Contains(got, "192.0.2.78") {
		t.Errorf("the endpoint is gone: %s", got)
	}
	r.other.Run("ip", "neigh", "flush", "all")
	for _, a := range floating[:2] {
		if r.reached(a, netnstest.Silence) {
			t.Errorf("%s is found, and nobody has it", a)
		}
	}
}

// TestAnAddressThatComesIsAnnounced: who knows another host's link-layer address for it takes this one's.
func TestAnAddressThatComesIsAnnounced(t *testing.T) {
	r := newRig(t)
	mac := r.host.Link("eth0").MAC
	for _, a := range floating[:2] {
		r.other.Run("ip", "neigh", "replace", a, "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "stale")
	}
	r.apply(with(floating...))
	for _, a := range floating[:2] {
		for deadline := time.Now().Add(netnstest.Patience); ; {
			got := r.other.Run("ip", "neigh", "show", a)
			if strings.Contains(got, mac) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is at %s, and known is %s", a, mac, got)
			}
		}
	}
}
