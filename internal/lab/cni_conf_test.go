package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// cniPools are the pools of a caller.
const cniPools = `
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: four}
spec: {cidr: 10.66.0.0/16}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: six}
spec: {cidr: "fd66::/48"}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: asked}
spec: {cidr: 10.67.0.0/24, assignmentMode: Manual}
`

func namedPools(t *testing.T, r *caller) {
	for _, pools := range []string{`["10.67.0.0/24"]`, `["asked"]`} {
		l, c := r.list("net", `{"type": "calico-ipam", "ipv4_pools": `+pools+`}`), r.container()
		r.add(l, c)
		if len(c.addrs) != 1 || !netip.MustParsePrefix("10.67.0.0/24").Contains(c.addrs[0]) {
			t.Errorf("of %s: %v", pools, c.addrs)
		}
		r.del(l, c)
	}
}

func withMTU(t *testing.T, r *caller) {
	l, c := r.list("net", both+`, "mtu": 1380`), r.container()
	got := r.add(l, c)
	defer r.del(l, c)
	for where, mtu := range map[string]int{"the container": c.Link("eth0").MTU, "the host": r.link(got.Interfaces[0].Name).MTU} {
		if mtu != 1380 {
			t.Errorf("in %s the MTU is %d", where, mtu)
		}
	}
}

// withTheHostsMTU: without one in the configuration, it is what the host's interface carries now; a container that was attached before is named.
func withTheHostsMTU(t *testing.T, r *caller) {
	l, c, before := r.list("net", both), r.container(), r.container()
	was := r.add(l, before)
	defer r.del(l, before)
	uplink := r.link("eth0").Index
	must(t, r.host.nl.SetMTU(uplink, 1400))
	defer func() { must(t, r.host.nl.SetMTU(uplink, 1500)) }()
	await(t, "the agent knows it", func() bool {
		report, err := agent.Ask(t.Context(), r.AgentSocket("h1"))
		return err == nil && report.MTU != nil && report.MTU.Workloads == 1400 || t.Context().Err() != nil
	})
	if text, err := os.ReadFile(wire.MTUFileOf(r.AgentSocket("h1"))); string(text) != "1400" {
		t.Errorf("the file has %q, %v", text, err)
	}
	got := r.add(l, c)
	defer r.del(l, c)
	for where, mtu := range map[string]int{
		"the container": c.Link("eth0").MTU, "the host": r.link(got.Interfaces[0].Name).MTU, "the result, of the host": got.Interfaces[0].Mtu, "the result, of the container": got.Interfaces[1].Mtu,
	} {
		if mtu != 1400 {
			t.Errorf("in %s the MTU is %d", where, mtu)
		}
	}
	c.reaches(t, before, 80)
	report, err := agent.Ask(t.Context(), r.AgentSocket("h1"))
	must(t, err)
	if problems := strings.Join(report.MTU.Problems, "\n"); !strings.Contains(problems, "its interface "+was.Interfaces[0].Name+" takes packets of 1500 bytes") || strings.Contains(problems, got.Interfaces[0].Name) {
		t.Errorf("the agent says %q", problems)
	}
}

func routerWithoutDefaultRoutes(t *testing.T, r *caller) {
	for _, tt := range []struct {
		keys, forwarding string
		routes           int // to all destinations
	}{
		{"", "0", 2},
		{`, "include_default_routes": false, "container_settings": {"allow_ip_forwarding": true}`, "1", 0},
	} {
		l, c := r.list("net", both+tt.keys), r.container()
		got := r.add(l, c)
		if len(got.Routes) != tt.routes {
			t.Errorf("with %q: the result has the routes %v, want %d", tt.keys, got.Routes, tt.routes)
		}
		for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if is := c.SysctlValue(path); is != tt.forwarding {
				t.Errorf("with %q: %s is %s, want %s", tt.keys, path, is, tt.forwarding)
			}
		}
		routes, err := c.Rtnl().Routes(rtnl.RouteFilter{Link: c.Link("eth0").Index})
		must(t, err)
		defaults := 0
		for _, route := range routes {
			if route.Dst.Bits() == 0 {
				defaults++
			}
		}
		if defaults != tt.routes {
			t.Errorf("with %q: %d default routes of %v, want %d", tt.keys, defaults, routes, tt.routes)
		}
		r.del(l, c)
	}
}

// hostLocalsRoutes lead by the link in place of the default route, or beside it, whatever gateway they name.
func hostLocalsRoutes(t *testing.T, r *caller) {
	for _, tt := range []struct {
		keys string
		want []string // destinations by the link's gateway
	}{
		{"", []string{"10.66.0.0/16"}},
		{`, "include_default_routes": true`, []string{"10.66.0.0/16", "default"}},
		{`, "include_default_routes": false`, []string{"10.66.0.0/16"}},
	} {
		ipam := fmt.Sprintf(`{"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.77.0.0/24"}]], "routes": [{"dst": "10.66.0.0/16", "gw": "10.77.0.9"}, {"dst": "fd66::/48"}]}`, t.TempDir())
		l, c := r.list("net", ipam+tt.keys), r.container()
		got := r.add(l, c)
		if len(got.Routes) != len(tt.want) || got.Routes[0].Dst.String() != tt.want[0] {
			t.Errorf("with %q: the result has the routes %v, want %v", tt.keys, got.Routes, tt.want)
		}
		for _, dst := range tt.want {
			c.WantRoute(t, dst+" via 169.254.1.1 dev eth0")
		}
		if all := strings.Count(c.Run("ip", "route"), " via "); all != len(tt.want) {
			t.Errorf("with %q: %d routes by a gateway, want %d", tt.keys, all, len(tt.want))
		}
		r.del(l, c)
	}
}

// calledCalico: a network whose plugins have upstream's names, as its manifest has them.
func calledCalico(t *testing.T, r *caller) {
	l, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": "0.3.1", "name": "k8s-pod-network", "plugins": [{"type": "calico", "socket": %q, "ipam": %s}]}`, r.AgentSocket("h1"), both))
	must(t, err)
	must(t, r.in(func() error { _, err := r.cni.ValidateNetworkList(t.Context(), l); return err }))
	a, b := r.container(), r.container()
	r.add(l, a)
	r.add(l, b)
	a.reaches(t, b, 80)
	r.del(l, a)
	r.del(l, b)
}

// wholeBinary: twill is the same plugins under the same names as twill-cni, which is only smaller.
func wholeBinary(t *testing.T, r *caller) {
	inner, bin := *r, t.TempDir()
	for _, name := range []string{"twill", "calico", "calico-ipam"} {
		must(t, os.Symlink(r.Exe, filepath.Join(bin, name)))
	}
	inner.cni = libcni.NewCNIConfigWithCacheDir([]string{bin, debian}, t.TempDir(), nil)
	aloneInBothFamilies(t, &inner)
	calledCalico(t, &inner)
	inner.ipamAlone(t, "calico-ipam")
	r.made = inner.made
}
