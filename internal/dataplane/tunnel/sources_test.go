package tunnel_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

// TestATunnelTakesWhatIsAnsweredByAnotherWay where the host's rp_filter is strict: another host sends from its own address, which is reached
// without a tunnel, or does not know that both are on one network.
func TestATunnelTakesWhatIsAnsweredByAnotherWay(t *testing.T) {
	ns, other := netnstest.New(t), netnstest.New(t)
	ns.VethTo(other, "eth0", "eth0")
	ns.Addr("eth0", "192.0.2.1/24", "10.65.1.5/32")
	other.Addr("eth0", "192.0.2.2/24", "10.65.2.7/32")
	ns.Route("10.65.2.7 via 192.0.2.2 dev eth0")
	for _, of := range []string{"all", "default"} {
		ns.Sysctl("ipv4/conf/"+of+"/rp_filter", "1")
	}
	s, err := sysctl.OpenIn(ns.Handle())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r := rig{t, ns, tunnel.New(ns.Rtnl(), tunnel.Config{Sysctl: s})}
	r.apply(intent.Batch{Host: wanted(own, intent.Tunnel{}), Peers: []intent.TunnelPeer{h2}, InSync: true})

	other.Run("ip", "link", "add", "vx", "address", h2.MAC, "type", "vxlan", "id", "4096", "dstport", "4789", "local", h2.Host.String(), "nolearning")
	other.Run("ip", "link", "set", "vx", "up")
	other.Run("bridge", "fdb", "append", own.MAC, "dev", "vx", "dst", own.Host.String())
	other.Run("ip", "neigh", "add", own.Addr.String(), "lladdr", own.MAC, "dev", "vx")
	other.Route("10.65.1.5 via " + own.Addr.String() + " dev vx onlink")
	ping := func(when string) {
		t.Helper()
		for _, from := range []string{"192.0.2.2", "10.65.2.7"} {
			if err := other.Ping(netip.MustParseAddr(from), netip.MustParseAddr("10.65.1.5"), time.Now().Add(netnstest.Patience)); err != nil {
				t.Errorf("%s: from %s: %v", when, from, err)
			}
		}
	}
	ping("made")
	r.verified("made", 0)
	ns.Sysctl("ipv4/conf/"+intent.LinkVXLAN+"/rp_filter", "1")
	r.verified("somebody makes it strict", 1)
	if err := r.d.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.apply(intent.Batch{})
	ping("read back")
}
