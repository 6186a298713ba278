package host_test

import (
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

// TestAnInterfaceThatComesLaterAcceptsRouterAdvertisements, as those do that were there before the host became a router: a device, or what is made of
// devices, or what settings name; nobody's workload, and no veth, at whose other end somebody else's container may be.
func TestAnInterfaceThatComesLaterAcceptsRouterAdvertisements(t *testing.T) {
	r := newRig(t)
	r.ns.Veth("eth0", "peer0")
	r.ns.Sysctl("ipv6/conf/peer0/accept_ra", "0")
	b := endpoints(true, "net1")
	b.Host = &intent.HostSettings{Prefixes: []string{"cali"}, MTU: intent.MTUSettings{Links: "^(eth|net).*"}}
	start := func() {
		r.h.Merge(b)
		r.links()
		r.open()
		r.apply()
	}
	start()
	r.ns.Veth("eth1", "peer1")
	r.ns.Veth("cali1", "veth1")
	r.ns.Veth("net1", "eth2")
	r.ns.Sysctl("ipv6/conf/eth2/accept_ra", "0")
	r.ns.Run("ip", "link", "add", "br0", "type", "bridge")
	r.links()
	r.apply()
	r.want(map[string]string{
		"ipv6/conf/eth0/accept_ra": "2", "ipv6/conf/eth1/accept_ra": "2", "ipv6/conf/eth2/accept_ra": "0",
		"ipv6/conf/cali1/accept_ra": "1", "ipv6/conf/veth1/accept_ra": "1", "ipv6/conf/br0/accept_ra": "1", "ipv6/conf/net1/accept_ra": "0",
	})

	r.restart() // the next agent finds a host that forwards
	start()
	r.ns.Run("ip", "link", "del", "eth1")
	r.ns.Veth("eth1", "peer1") // another, with the name of one that was there
	r.links()
	r.apply()
	r.want(map[string]string{"ipv6/conf/eth1/accept_ra": "2", "ipv6/conf/peer1/accept_ra": "1"})
}

// TestAHostThatWasARouterAcceptsNoAdvertisements: somebody made it forward before Twill came, and its interfaces accept none.
func TestAHostThatWasARouterAcceptsNoAdvertisements(t *testing.T) {
	r := newRig(t)
	r.ns.Sysctl("ipv6/conf/all/forwarding", "1")
	r.ns.Veth("eth0", "peer0")
	b := endpoints(true)
	b.Host = &intent.HostSettings{MTU: intent.MTUSettings{Links: "^eth.*"}}
	r.h.Merge(b)
	r.links()
	r.open()
	r.apply()
	r.ns.Veth("eth1", "peer1")
	r.links()
	r.apply()
	r.want(map[string]string{"ipv6/conf/eth0/accept_ra": "1", "ipv6/conf/eth1/accept_ra": "1"})
}
