package tunnel_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// changed passes the driver one interface as it is now.
func (r rig) changed(name string) {
	r.Helper()
	links, err := ifmon.List(r.ns.Rtnl())
	if err != nil {
		r.Fatal(err)
	}
	for _, c := range links {
		if c.Name == name {
			r.d.Links([]ifmon.Change{c})
			return
		}
	}
	r.d.Links([]ifmon.Change{{Link: ifmon.Link{Name: name}, Gone: true}})
}

// TestSizesFollowTheInterfaces while packets travel, and stand where plugins find them.
func TestSizesFollowTheInterfaces(t *testing.T) {
	r := newRig(t)
	r.ns.Run("ip", "link", "set", "peer", "mtu", "1200") // matches nothing
	file := filepath.Join(t.TempDir(), "calico", "mtu")
	var is tunnel.MTU
	r.d = tunnel.New(r.ns.Rtnl(), tunnel.Config{MTUFile: file, Notify: func(m tunnel.MTU) { is = m }})
	want := wanted(own, own6)
	r.apply(intent.Batch{Host: want})
	if _, err := os.Stat(file); err == nil || is != (tunnel.MTU{}) {
		t.Errorf("before all pools are known: %+v, %v", is, err)
	}
	r.apply(intent.Batch{InSync: true})
	device := r.ns.Link(intent.LinkVXLAN).Index
	ip := func(args string) func() {
		return func() { r.ns.Run("ip", strings.Fields(args)...) }
	}
	plugged := func(far, state string) func() {
		return func() {
			ip("link set " + far + " " + state)()
			for r.ns.Link("eth1").Running != (state == "up") {
				runtime.Gosched()
			}
		}
	}
	setting := func(change func(*intent.MTUSettings)) func() {
		return func() {
			h := *want
			change(&h.MTU)
			r.d.Merge(intent.Batch{Host: &h})
		}
	}
	for _, tt := range []struct {
		name    string
		do      func()
		changed string // the interface
		link    string
		carries int
		devices string // sizes of the devices, of IPv4 and IPv6, and of workloads
	}{
		{"one interface", func() {}, "", "eth0", 1400, "1350 1330 1330"},
		{"it carries less", ip("link set eth0 mtu 1390"), "eth0", "eth0", 1390, "1340 1320 1320"},
		{"a second that is down", ip("link add eth1 mtu 1380 type veth peer name far1"), "eth1", "eth0", 1390, "1340 1320 1320"},
		{"and is up, and nothing is plugged in", ip("link set eth1 up"), "eth1", "eth0", 1390, "1340 1320 1320"},
		{"and is plugged in", plugged("far1", "up"), "eth1", "eth1", 1380, "1330 1310 1310"},
		{"and plugged out", plugged("far1", "down"), "eth1", "eth1", 1380, "1330 1310 1310"},
		{"and turned off and on", func() {
			ip("link set eth1 down")()
			r.changed("eth1")
			r.apply(intent.Batch{})
			ip("link set eth1 up")()
		}, "eth1", "eth0", 1390, "1340 1320 1320"},
		{"and a part of a bridge that leads elsewhere", func() { ip("link add br7 up type bridge")(); ip("link set eth1 master br7")(); plugged("far1", "up")() }, "eth1", "eth0", 1390, "1340 1320 1320"},
		{"which then has the host's address", ip("addr add 192.0.2.1/24 dev br7"), "br7", "br7", 1380, "1330 1310 1310"},
		{"and is gone", ip("link del br7"), "br7", "eth1", 1380, "1330 1310 1310"},
		{"it has another name", func() { ip("link set eth1 down")(); ip("link set eth1 name bond0 up")() }, "eth1", "eth0", 1390, "1340 1320 1320"},
		{"but then the host's address", ip("addr add 192.0.2.1/24 dev bond0"), "bond0", "bond0", 1380, "1330 1310 1310"},
		{"and no more", ip("addr del 192.0.2.1/24 dev bond0"), "bond0", "eth0", 1390, "1340 1320 1320"},
		{"a workload's interface that any pattern matches", ip("link add cali1 mtu 1300 up type veth peer name far2"), "cali1", "eth0", 1390, "1340 1320 1320"},
		{"such a pattern", setting(func(m *intent.MTUSettings) { m.Links = "." }), "", "peer", 1200, "1150 1280 1150"},
		{"a size that settings say", setting(func(m *intent.MTUSettings) { m.Tunnels[intent.VXLAN6] = 1290 }), "", "eth0", 1390, "1340 1290 1290"},
		{"one that is too large", setting(func(m *intent.MTUSettings) { m.Tunnels = [intent.TunnelKinds]int{9000, 9000} }), "", "eth0", 1390, "9000 9000 1390"},
		{"no tunnel of IPv6 is wanted", setting(func(m *intent.MTUSettings) { m.Wanted[intent.VXLAN6] = false }), "", "eth0", 1390, "1340 1320 1340"},
		{"none at all is", setting(func(m *intent.MTUSettings) { m.Wanted = [intent.TunnelKinds]bool{} }), "", "eth0", 1390, "1340 1320 1390"},
		{"no interface", setting(func(m *intent.MTUSettings) { m.Links, m.Own = "^wan", [2]netip.Addr{} }), "", "", 1460, "1410 1390 1390"},
		{"as at first", setting(func(*intent.MTUSettings) {}), "", "eth0", 1390, "1340 1320 1320"},
		{"the file is gone", func() {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := r.d.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, "", "eth0", 1390, "1340 1320 1320"},
	} {
		tt.do()
		if tt.changed != "" {
			r.changed(tt.changed)
		}
		r.apply(intent.Batch{})
		text, err := os.ReadFile(file)
		got := fmt.Sprintf("%d %d %s", r.ns.Link(intent.LinkVXLAN).MTU, r.ns.Link(intent.LinkVXLAN6).MTU, text)
		if err != nil || got != tt.devices || is.Link != tt.link || is.Carries != tt.carries || fmt.Sprint(is.Workloads) != string(text) {
			t.Errorf("%s: %s, %+v, %v; want %s of %s, which carries %d", tt.name, got, is, err, tt.devices, tt.link, tt.carries)
		}
		r.verified(tt.name, 0)
	}
	if now := r.ns.Link(intent.LinkVXLAN).Index; now != device {
		t.Error("the device was made again")
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("files %v, %v", left, err)
	}
}

// TestASizeThatCannotBeWritten is said, and tried again; the devices do without.
func TestASizeThatCannotBeWritten(t *testing.T) {
	r := newRig(t)
	blocked := filepath.Join(t.TempDir(), "calico")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var is tunnel.MTU
	r.d = tunnel.New(r.ns.Rtnl(), tunnel.Config{MTUFile: filepath.Join(blocked, "mtu"), Notify: func(m tunnel.MTU) { is = m }})
	r.apply(intent.Batch{Host: wanted(own, intent.Tunnel{}), InSync: true})
	if !strings.Contains(is.Unwritten, "not a directory") || is.Workloads != 1350 {
		t.Errorf("%+v", is)
	}
	r.verified("not written", 0)
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	if err := r.d.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.apply(intent.Batch{})
	if text, err := os.ReadFile(filepath.Join(blocked, "mtu")); string(text) != "1350" || is.Unwritten != "" {
		t.Errorf("%q, %v, %+v", text, err, is)
	}
}
