package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// debian has the plugins of the CNI project.
const debian = "/usr/lib/cni"

// caller is what calls plugins on a host, by the library that runtimes use.
type caller struct {
	*Lab
	t    testing.TB
	host *place
	cni  *libcni.CNIConfig
	made int
}

func newCaller(t testing.TB) *caller {
	machinetest.Program(t, filepath.Join(debian, "portmap")) // scripts/deps.sh installs it
	s := Spec{Hosts: Demo().Hosts[:1]}
	s.Manifests = []byte(cniPools)
	r := &caller{Lab: testLab(t, s), t: t}
	bin := t.TempDir()
	dir, err := programs()
	must(t, err)
	for _, name := range []string{"twill", "calico", "calico-ipam", "twill-ipam"} {
		must(t, os.Symlink(filepath.Join(dir, "twill-cni"), filepath.Join(bin, name)))
	}
	r.host, err = open(r.Spec.hostNS(r.Spec.Hosts[0]))
	must(t, err)
	t.Cleanup(r.host.close)
	r.cni = libcni.NewCNIConfigWithCacheDir([]string{bin, debian}, t.TempDir(), nil)
	return r
}

// list is a network's configuration; more plugins are chained behind ours.
func (r *caller) list(name, ipam string, more ...string) *libcni.NetworkConfigList {
	r.t.Helper()
	ours := fmt.Sprintf(`{"type": "twill", "socket": %q, "ipam": %s}`, r.AgentSocket("h1"), ipam)
	version := "1.1.0"
	if len(more) > 0 || strings.Contains(ipam, "host-local") {
		version = "1.0.0" // as far as Debian's plugins go
	}
	l, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": %q, "name": %q, "plugins": [%s]}`, version, name, strings.Join(append([]string{ours}, more...), ",")))
	must(r.t, err)
	return l
}

const (
	both  = `{"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": true}`
	local = `{"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.77.0.0/24"}]]}`
)

// container is one to attach.
type container struct {
	*netnstest.NS
	conf  *libcni.RuntimeConf
	addrs []netip.Addr
}

func (r *caller) container() *container {
	r.t.Helper()
	r.made++
	ns := netnstest.New(r.t)
	return &container{NS: ns, conf: &libcni.RuntimeConf{
		ContainerID: fmt.Sprintf("%04d%08x", r.made, os.Getpid()), IfName: "eth0", NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Handle().FD()),
	}}
}

// in calls the library in the host's namespace.
func (r *caller) in(f func() error) error { return r.host.ns.Do(f) }

func (r *caller) add(l *libcni.NetworkConfigList, c *container) *current.Result {
	r.t.Helper()
	var out types.Result
	must(r.t, r.in(func() (err error) { out, err = r.cni.AddNetworkList(r.t.Context(), l, c.conf); return err }))
	res, err := current.NewResultFromResult(out)
	must(r.t, err)
	c.addrs = nil
	for _, ip := range res.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		c.addrs = append(c.addrs, a.Unmap())
	}
	return res
}

func (r *caller) del(l *libcni.NetworkConfigList, c *container) {
	r.t.Helper()
	must(r.t, r.in(func() error { return r.cni.DelNetworkList(r.t.Context(), l, c.conf) }))
}

// left is what there still is of containers: endpoints, addresses, links and their routes.
func (r *caller) left() []string {
	r.t.Helper()
	store, err := r.store(r.t.Context())
	must(r.t, err)
	defer store.Close()
	var out []string
	for _, prefix := range []string{api.ResourcesPrefix + "workloadendpoints/", api.IPAMPrefix + "handle/"} {
		snap, err := store.List(r.t.Context(), prefix)
		must(r.t, err)
		for _, u := range snap.Items {
			out = append(out, u.Key)
		}
	}
	links, err := r.host.nl.Links()
	must(r.t, err)
	for _, l := range links {
		if strings.HasPrefix(l.Name, "cali") {
			out = append(out, "link "+l.Name)
		}
	}
	routes, err := r.host.nl.Routes(rtnl.RouteFilter{})
	must(r.t, err)
	for _, route := range routes {
		if route.Dst.IsSingleIP() && route.Protocol == 80 {
			out = append(out, "route "+route.Dst.String())
		}
	}
	return out
}

func (r *caller) wantNothingLeft() {
	r.t.Helper()
	var left []string
	await(r.t, "nothing is left of any container", func() bool { left = r.left(); return len(left) == 0 || r.t.Context().Err() != nil })
}

func (c *container) reaches(t *testing.T, to *container, port uint16) {
	t.Helper()
	for i, a := range to.addrs {
		netnstest.Probe{From: c.NS, To: to.NS, Proto: "tcp", Src: c.addrs[i], Dst: netip.AddrPortFrom(a, port)}.WantReach(t)
	}
}

func TestCNI(t *testing.T) {
	r := newCaller(t)
	for name, test := range map[string]func(*testing.T, *caller){
		"alone, in both families":              aloneInBothFamilies,
		"alone, with IPv6":                     aloneWithIPv6,
		"from pools that it names":             namedPools,
		"with an MTU":                          withMTU,
		"with the host's MTU":                  withTheHostsMTU,
		"a router without default routes":      routerWithoutDefaultRoutes,
		"the result is what the standard says": resultIsStandard,
		"chained with portmap and bandwidth":   chained,
		"with host-local's addresses":          hostLocal,
		"with host-local's routes":             hostLocalsRoutes,
		"GC takes what has no container":       collected,
		"a second ADD harms nothing":           secondAdd,
		"two interfaces":                       twoInterfaces,
		"a second interface under policy":      secondUnderPolicy,
		"an interface of an older version":     olderInterface,
		"an old sandbox's DEL comes late":      lateDel,
		"a note of an earlier DEL":             staleNote,
		"twill-ipam under another main plugin": ipamAlone("twill-ipam"),
		"calico with calico-ipam, by name":     calledCalico,
		"calico-ipam, by name":                 ipamAlone("calico-ipam"),
		"the binary of the daemons":            wholeBinary,
		"policy is in force when ADD returns":  policyFirst,
		"a capture of all that comes":          capturedFromBefore,
		"without an agent":                     withoutAgent,
		"killed at any moment":                 killed,
	} {
		t.Run(name, func(t *testing.T) {
			inner := *r
			inner.t = t
			test(t, &inner)
			inner.wantNothingLeft()
			r.made = inner.made
		})
	}
}

func aloneInBothFamilies(t *testing.T, r *caller) {
	l := r.list("net", both)
	must(t, r.in(func() error { return r.cni.GetStatusNetworkList(t.Context(), l) }))
	a, b := r.container(), r.container()
	r.add(l, a)
	r.add(l, b)
	a.reaches(t, b, 80)
	b.reaches(t, a, 80)
	must(t, r.in(func() error { return r.cni.CheckNetworkList(t.Context(), l, a.conf) }))
	a.Delete("eth0")
	if err := r.in(func() error { return r.cni.CheckNetworkList(t.Context(), l, a.conf) }); err == nil {
		t.Error("CHECK misses that the interface is gone")
	}
	for range 2 {
		r.del(l, a)
		r.del(l, b)
		a.conf.NetNS = "/run/netns/gone" // as after the sandbox died
	}
}

func aloneWithIPv6(t *testing.T, r *caller) {
	l := r.list("net", `{"type": "twill-ipam", "assign_ipv4": "false", "assign_ipv6": "true", "ipv6_pools": ["six"]}`)
	must(t, r.in(func() error { _, err := r.cni.ValidateNetworkList(t.Context(), l); return err })) // by VERSION of both plugins
	a, b := r.container(), r.container()
	r.add(l, a)
	r.add(l, b)
	if len(a.addrs) != 1 || !netip.MustParsePrefix("fd66::/48").Contains(a.addrs[0]) {
		t.Errorf("addresses: %v", a.addrs)
	}
	a.reaches(t, b, 80)
	r.del(l, a)
	r.del(l, b)
}

func resultIsStandard(t *testing.T, r *caller) {
	l, c := r.list("net", both), r.container()
	got := r.add(l, c)
	defer r.del(l, c)
	if len(got.Interfaces) != 2 || got.Interfaces[0].Sandbox != "" || got.Interfaces[1].Sandbox != c.conf.NetNS || got.Interfaces[1].Name != "eth0" {
		t.Errorf("interfaces: %v", got.Interfaces)
	}
	far := c.Link("eth0")
	if got.Interfaces[1].Mac != far.MAC || got.Interfaces[0].Mac != r.link(got.Interfaces[0].Name).MAC {
		t.Errorf("MACs: %v, the kernel has %s", got.Interfaces, far.MAC)
	}
	if len(got.IPs) != 2 || *got.IPs[0].Interface != 1 || got.IPs[0].Address.String() != c.addrs[0].String()+"/32" || got.IPs[1].Address.String() != c.addrs[1].String()+"/128" {
		t.Errorf("addresses: %v", got.IPs)
	}
	if len(got.Routes) != 2 || got.Routes[0].GW.String() != "169.254.1.1" || got.Routes[1].GW.String() != "fe80::1" {
		t.Errorf("routes: %v", got.Routes)
	}
	c.WantRoute(t, "default via 169.254.1.1 dev eth0")
}

func (r *caller) link(name string) rtnl.Link {
	r.t.Helper()
	l, err := r.host.nl.Link(name)
	must(r.t, err)
	return l
}

func chained(t *testing.T, r *caller) {
	l := r.list("net", `{"type": "calico-ipam"}`,
		`{"type": "portmap", "capabilities": {"portMappings": true}, "backend": "nftables"}`,
		`{"type": "bandwidth", "ingressRate": 100000000, "ingressBurst": 100000000}`, `{"type": "tuning", "mtu": 1400}`)
	a, b := r.container(), r.container()
	b.conf.CapabilityArgs = map[string]any{"portMappings": []map[string]any{{"hostPort": 8099, "containerPort": 80, "protocol": "tcp"}}}
	r.add(l, a)
	r.add(l, b)
	a.reaches(t, b, 80)
	must(t, r.in(func() error { return r.cni.CheckNetworkList(t.Context(), l, a.conf) }))
	if got := a.Link("eth0").MTU; got != 1400 {
		t.Errorf("tuning did not see the container's interface: its MTU is %d", got)
	}
	r.del(l, a)
	r.del(l, b)
}

func hostLocal(t *testing.T, r *caller) {
	l := r.list("net", fmt.Sprintf(local, t.TempDir()))
	a, b := r.container(), r.container()
	r.add(l, a)
	r.add(l, b)
	if in := netip.MustParsePrefix("10.77.0.0/24"); len(a.addrs) != 1 || !in.Contains(a.addrs[0]) || a.addrs[0] == b.addrs[0] {
		t.Errorf("addresses %v and %v, want two of %s", a.addrs, b.addrs, in)
	}
	a.reaches(t, b, 80)
	r.del(l, a)
	r.del(l, b)
}

func collected(t *testing.T, r *caller) {
	l := r.list("net", both)
	a, b := r.container(), r.container()
	r.add(l, a)
	r.add(l, b)
	other := r.list("another", both)
	c := r.container()
	r.add(other, c)
	must(t, r.in(func() error {
		return r.cni.GCNetworkList(t.Context(), l, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: b.conf.ContainerID, IfName: "eth0"}}})
	}))
	left := strings.Join(r.left(), " ")
	if strings.Contains(left, a.conf.ContainerID) || !strings.Contains(left, b.conf.ContainerID) || !strings.Contains(left, c.conf.ContainerID) {
		t.Errorf("left after GC: %s", left)
	}
	b.reaches(t, b, 80)
	r.del(l, b)
	r.del(other, c)
}

func secondAdd(t *testing.T, r *caller) {
	l := r.list("net", both)
	a, b := r.container(), r.container()
	r.add(l, a)
	r.add(l, b)
	if err := r.in(func() error { _, err := r.cni.AddNetworkList(t.Context(), l, a.conf); return err }); err == nil || !strings.Contains(err.Error(), "has an interface eth0 already") {
		t.Errorf("a second ADD says %v", err)
	}
	a.reaches(t, b, 80)
	r.del(l, a)
	r.del(l, b)
}

// policyFirst: from the moment ADD returns, what is allowed passes at the first try, and what is denied never does.
func policyFirst(t *testing.T, r *caller) {
	l := r.list("net", `{"type": "calico-ipam"}`)
	client := r.container()
	r.add(l, client)
	defer r.onlyPort80()()
	for range 20 {
		c := r.container()
		open, err := c.ListenTCP(netip.MustParseAddrPort("0.0.0.0:80"))
		must(t, err)
		netnstest.Echo(open)
		closed, err := c.ListenTCP(netip.MustParseAddrPort("0.0.0.0:81"))
		must(t, err)
		netnstest.Echo(closed)
		r.add(l, c)
		conn, err := client.DialTCP(netip.AddrPort{}, netip.AddrPortFrom(c.addrs[0], 80), time.Now().Add(netnstest.Patience))
		if err != nil {
			t.Errorf("nothing comes through after ADD: %v", err)
		} else {
			if n := sentAgain(t, conn); n > 0 {
				t.Errorf("the first packet after ADD was lost: %d were sent again", n)
			}
			conn.Close()
		}
		if conn, err := client.DialTCP(netip.AddrPort{}, netip.AddrPortFrom(c.addrs[0], 81), time.Now().Add(50*time.Millisecond)); err == nil {
			conn.Close()
			t.Error("what policy denies passed after ADD")
		}
		open.Close()
		closed.Close()
		r.del(l, c)
	}
	r.del(l, client)
}

func must2[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// onlyPort80 denies all other ingress of all workloads; undo takes that back.
func (r *caller) onlyPort80() (undo func()) {
	r.t.Helper()
	store, err := r.store(r.t.Context())
	must(r.t, err)
	deny := api.Update{Key: key(api.KindGlobalNetworkPolicy, "", "only-80"), Value: []byte(`{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"only-80"},"spec":{"selector":"all()","types":["Ingress"],"ingress":[{"action":"Allow","protocol":"TCP","destination":{"ports":[80]}}]}}`)}
	_, err = store.Create(r.t.Context(), deny)
	must(r.t, err)
	return func() {
		must(r.t, store.Delete(r.t.Context(), deny.Key, api.Revision{}))
		store.Close()
	}
}

func withoutAgent(t *testing.T, r *caller) {
	l := r.list("net", both)
	a, b := r.container(), r.container()
	r.add(l, a)
	pid := r.agentPID(r.Spec.Hosts[0])
	machinetest.Freeze(t, pid) // so that its supervisor does not start another
	socket := r.AgentSocket("h1")
	must(t, os.Rename(socket, socket+".away"))
	err := r.in(func() error { _, err := r.cni.AddNetworkList(t.Context(), l, b.conf); return err })
	if err == nil || !strings.Contains(err.Error(), "no agent answers on this host") {
		t.Errorf("ADD without an agent: %v", err)
	}
	var status *types.Error
	if err := r.in(func() error { return r.cni.GetStatusNetworkList(t.Context(), l) }); !errors.As(err, &status) || status.Code != types.ErrPluginNotAvailable {
		t.Errorf("STATUS without an agent: %v", err)
	}
	r.del(l, b)
	r.del(l, a)
	if _, err := r.host.nl.Link("cali" + a.conf.ContainerID[:11]); err == nil {
		t.Error("DEL without an agent leaves the link")
	}
	must(t, os.Rename(socket+".away", socket))
	must(t, syscall.Kill(pid, syscall.SIGCONT))
}

// sentAgain is how many packets of a connection were sent again so far, SYN among them.
func sentAgain(t *testing.T, c net.Conn) (n uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	must(t, err)
	var failed error
	must(t, raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); failed == nil {
			n = info.Total_retrans
		}
	}))
	must(t, failed)
	return n
}

// killed: a plugin or an agent that is killed while it works leaves nothing that DEL does not find.
func killed(t *testing.T, r *caller) {
	l := r.list("net", both)
	for i := range 12 {
		c := r.container()
		conf, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "net", "type": "twill", "socket": r.AgentSocket("h1"), "ipam": json.RawMessage(both)})
		must(t, err)
		r.addAndKill(c, conf, time.Duration(i)*2*time.Millisecond)
		r.del(l, c)
	}
}

// addAndKill begins ADD and kills the plugin after a while.
func (r *caller) addAndKill(c *container, conf []byte, after time.Duration) {
	r.t.Helper()
	cmd := r.plugin(c, conf, "ADD")
	must(r.t, r.host.ns.Start(cmd))
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
}

// plugin is a call of it, as a runtime makes it.
func (r *caller) plugin(c *container, conf []byte, command string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(r.cni.Path[0], "twill"))
	cmd.Stdin = bytes.NewReader(conf)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+c.conf.ContainerID, "CNI_NETNS="+c.conf.NetNS, "CNI_IFNAME=eth0", "CNI_PATH="+r.cni.Path[0])
	return cmd
}
