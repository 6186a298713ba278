package tunnel_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

var (
	ownIPIP = intent.Tunnel{Host: own.Host, Addr: own.Addr}
	h2IPIP  = intent.TunnelPeer{Node: "h2", Kind: intent.IPIP, Host: h2.Host, Addr: h2.Addr}
)

func wantedIPIP(t intent.Tunnel) *intent.HostSettings {
	return settingsOf(intent.Tunnels{intent.IPIP: t})
}

// newIPIP is a rig whose kernel has IPIP.
func newIPIP(t *testing.T) rig {
	r := newRig(t)
	if err := r.ns.Rtnl().AddIPIP(intent.LinkIPIP); !errors.Is(err, rtnl.ErrExists) {
		machinetest.Supported(t, err)
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// state is what the device shows: its flags, MTU, alias and addresses.
func (r rig) state() string {
	r.Helper()
	return r.ns.Run("ip", "-o", "link", "show", "dev", intent.LinkIPIP) + r.ns.Run("ip", "-o", "addr", "show", "dev", intent.LinkIPIP)
}

func TestTheDeviceOfIPIPFollowsTheIntents(t *testing.T) {
	r := newIPIP(t)
	if o := r.apply(intent.Batch{Peers: []intent.TunnelPeer{h2IPIP}})["h2 IPIP"]; o.Err != nil || !strings.Contains(o.Reason, "no device") {
		t.Errorf("a peer before the device: %+v", o)
	}
	if o := r.apply(intent.Batch{Host: wantedIPIP(ownIPIP), InSync: true})["h2 IPIP"]; o.Err != nil || o.Reason != "" {
		t.Errorf("a peer: %+v", o)
	}
	isRight := func(what string) {
		t.Helper()
		r.verified(what, 0)
		if s := r.state(); !strings.Contains(s, ",UP") || !strings.Contains(s, "mtu 1380") || !strings.Contains(s, "10.65.1.1/32") || strings.Contains(s, "10.99.0.1") || !strings.Contains(s, kernel.TunnelAlias) {
			t.Errorf("%s: %s", what, s)
		}
	}
	isRight("made")
	for _, do := range []string{
		"addr del 10.65.1.1/32 dev tunl0", "addr add 10.99.0.1/24 dev tunl0", "link set tunl0 down", "link set tunl0 mtu 1000",
	} {
		r.ns.Run("ip", strings.Fields(do)...)
		if err := r.d.Resync(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.apply(intent.Batch{})
		isRight(do)
	}
	smaller := wantedIPIP(ownIPIP)
	smaller.MTU.Tunnels[intent.IPIP] = 1300
	r.apply(intent.Batch{Host: smaller})
	if s := r.state(); !strings.Contains(s, "mtu 1300") {
		t.Errorf("a size of the settings: %s", s)
	}
	r.apply(intent.Batch{Host: wantedIPIP(ownIPIP)})
	isRight("no such size")
	r.d = tunnel.New(r.ns.Rtnl(), tunnel.Config{}) // the agent starts again
	r.apply(intent.Batch{Host: wantedIPIP(intent.Tunnel{})})
	if s := r.state(); !strings.Contains(s, ",UP") || !strings.Contains(s, "10.65.1.1/32") {
		t.Errorf("not in sync: %s", s)
	}
	r.apply(intent.Batch{InSync: true})
	r.verified("not wanted", 0)
	if s := r.state(); strings.Contains(s, ",UP") || strings.Contains(s, "inet ") || strings.Contains(s, kernel.TunnelAlias) {
		t.Errorf("not wanted: %s", s)
	}
}

// TestAnUpstreamAgentsIPIPIsTakenOverWhereOneIsWanted, and left alone where none is.
func TestAnUpstreamAgentsIPIPIsTakenOverWhereOneIsWanted(t *testing.T) {
	r := newIPIP(t)
	r.ns.Run("ip", "addr", "add", "10.65.1.1/32", "dev", intent.LinkIPIP)
	r.ns.Up(intent.LinkIPIP)
	r.apply(intent.Batch{Host: wantedIPIP(intent.Tunnel{}), InSync: true})
	if s := r.state(); !strings.Contains(s, ",UP") || !strings.Contains(s, "10.65.1.1/32") {
		t.Errorf("nobody wants one: %s", s)
	}
	r.apply(intent.Batch{Host: wantedIPIP(ownIPIP)})
	r.verified("taken over", 0)
	if got := r.d.Repairs(); len(got) != 1 || got[0].Cause != intent.ByTakeOver {
		t.Errorf("repairs %+v", got)
	}
}

// TestADeviceOfThatNameThatIsNone: a device of another kind is an error, and is left as it is.
func TestADeviceOfThatNameThatIsNone(t *testing.T) {
	r := newRig(t)
	r.ns.Run("ip", "link", "add", "was-there", "type", "veth", "peer", "name", "was-there2")
	if _, err := r.ns.Rtnl().Link(intent.LinkIPIP); err == nil {
		r.ns.Run("ip", "link", "set", intent.LinkIPIP, "name", "kernels")
	}
	r.ns.Run("ip", "link", "set", "was-there", "name", intent.LinkIPIP)
	r.d.Merge(intent.Batch{Host: wantedIPIP(ownIPIP), InSync: true})
	if _, err := r.d.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "is of kind veth") {
		t.Errorf("a veth: %v", err)
	}
	r.verified("a veth", 1)
	if s := r.state(); strings.Contains(s, netip.MustParseAddr("10.65.1.1").String()) {
		t.Errorf("it was changed: %s", s)
	}
}
