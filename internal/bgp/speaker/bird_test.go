package speaker_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// bird is Debian's BIRD 2 in a namespace.
type bird struct {
	*netnstest.NS
	t      testing.TB
	addr   string
	dir    string
	config string
	cmd    *exec.Cmd
}

// network is a host, and BIRDs at the other ends of links of its own: 192.0.2.0/24 and 2001:db8:1::/64 are on a bridge.
func network(t testing.TB, birds int) (*host, []*bird) {
	t.Helper()
	if p, ok := t.(*testing.T); ok {
		p.Parallel()
	}
	machinetest.Program(t, "bird")
	h := &host{NS: netnstest.New(t), t: t}
	nl := h.Rtnl()
	if err := nl.AddBridge("br0"); err != nil {
		t.Fatal(err)
	}
	h.Up("br0")
	h.Addr("br0", "192.0.2.1/24", "2001:db8:1::1/64")
	h.Forward()
	var out []*bird
	for i := range birds {
		b := &bird{NS: netnstest.New(t), t: t, addr: fmt.Sprintf("192.0.2.%d", i+2), dir: t.TempDir()}
		port := fmt.Sprintf("p%d", i)
		h.VethTo(b.NS, port, "eth0")
		if err := nl.SetMaster(h.Link(port).Index, h.Link("br0").Index); err != nil {
			t.Fatal(err)
		}
		b.Addr("eth0", b.addr+"/24", fmt.Sprintf("2001:db8:1::%d/64", i+2))
		out = append(out, b)
	}
	return h, out
}

// run starts BIRD with a configuration, after what each needs.
func (b *bird) run(config string) {
	b.t.Helper()
	b.config = "router id " + b.addr + ";\nprotocol device {}\nprotocol direct { ipv4; ipv6; interface \"eth0\"; }\n" + config
	b.start("-f")
}

// restart starts BIRD again as after a crash: it tells nothing before all its peers are back.
func (b *bird) restart() { b.start("-f", "-R") }

func (b *bird) start(args ...string) {
	b.t.Helper()
	path := filepath.Join(b.dir, "bird.conf")
	if err := os.WriteFile(path, []byte(b.config), 0o600); err != nil {
		b.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(b.dir, "log"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	b.cmd = exec.Command(machinetest.Program(b.t, "bird"), append(args, "-c", path, "-s", b.socket())...)
	b.cmd.Stdout, b.cmd.Stderr = log, log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.Handle().Start(b.cmd); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		b.kill()
		if text, _ := os.ReadFile(log.Name()); b.t.Failed() {
			b.t.Logf("bird %s:\n%s", b.addr, text)
		}
	})
	await(b.t, patience, func() error {
		if out := b.ask("show", "status"); !strings.Contains(out, "up and running") {
			return fmt.Errorf("bird: %s", out)
		}
		return nil
	})
}

func (b *bird) socket() string { return filepath.Join(b.dir, "ctl") }

// kill ends BIRD without a word.
func (b *bird) kill() {
	if b.cmd != nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		b.cmd = nil
	}
}

func (b *bird) ask(words ...string) string {
	out, _ := exec.Command("birdc", append([]string{"-s", b.socket()}, words...)...).CombinedOutput() // its text says what failed
	return string(out)
}

// configure changes the configuration of a BIRD that runs.
func (b *bird) configure(from, to string) {
	b.t.Helper()
	if !strings.Contains(b.config, from) {
		b.t.Fatalf("no %q in the configuration", from)
	}
	b.config = strings.Replace(b.config, from, to, 1)
	if err := os.WriteFile(filepath.Join(b.dir, "bird.conf"), []byte(b.config), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if out := b.ask("configure"); !strings.Contains(out, "econfigur") {
		b.t.Fatalf("bird: %s", out)
	}
}

// wants waits until BIRD shows a route with all of these words.
func (b *bird) wants(dst string, words ...string) {
	b.t.Helper()
	await(b.t, patience, func() error {
		out := b.ask("show", "route", dst, "all")
		for _, w := range append([]string{dst}, words...) {
			if !strings.Contains(out, w) {
				return fmt.Errorf("bird has not %q in:\n%s", w, out)
			}
		}
		return nil
	})
}

func (b *bird) lacks(dst string) {
	b.t.Helper()
	await(b.t, patience, func() error {
		if out := b.ask("show", "route", dst); strings.Contains(out, dst) {
			return fmt.Errorf("bird has:\n%s", out)
		}
		return nil
	})
}

// speaks is a BIRD protocol towards the host.
func speaks(name, more, four, six string) string {
	return fmt.Sprintf(`
protocol bgp %[1]s4 { %[2]s connect delay time 1; error wait time 1,2; graceful restart on; neighbor 192.0.2.1 as 64512; ipv4 { import all; export where source = RTS_STATIC; %[3]s }; }
protocol bgp %[1]s6 { %[2]s connect delay time 1; error wait time 1,2; graceful restart on; neighbor 2001:db8:1::1 as 64512; ipv6 { import all; export where source = RTS_STATIC; %[4]s }; }
`, name, more, four, six)
}

const statics = `
protocol static s4 { ipv4; route 10.204.0.0/26 blackhole; }
protocol static s6 { ipv6; route fd00:204::/64 blackhole; }
`

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// pools are what export rules of a plan made by hand allow.
var pools = []plan.Rule{
	{Name: "IPPool four", Prefix: prefix("10.65.0.0/16"), Min: 16, Max: 32, Accept: true},
	{Name: "IPPool six", Prefix: prefix("fd00:65::/48"), Min: 48, Max: 128, Accept: true},
}

// session is one with an address, with the rules of pools of its family.
func session(peer string, as uint32) plan.Session {
	a := netip.MustParseAddr(peer)
	s := plan.Session{
		Peer: a, Port: 179, Why: "BGPPeer test", AS: as, LocalAS: 64512, Source: netip.MustParseAddr("192.0.2.1"),
		Keepalive: 10 * time.Second, Hold: 30 * time.Second, Restart: time.Minute, Export: pools[:1],
	}
	if a.Is6() {
		s.Source, s.Export = netip.MustParseAddr("2001:db8:1::1"), pools[1:]
	}
	return s
}

func planOf(sessions ...plan.Session) plan.Plan {
	return plan.Plan{
		Node: "h1", AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Sessions: sessions,
		Listen: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:179"), netip.MustParseAddrPort("[::]:179")},
	}
}

// agent puts routes into the kernel as the agent does.
func (h *host) agent(dsts ...string) {
	h.t.Helper()
	for _, dst := range dsts {
		if err := h.Rtnl().AddRoute(agentRoute(dst)); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *host) agentDrops(dst string) {
	h.t.Helper()
	if err := h.Rtnl().DeleteRoute(agentRoute(dst)); err != nil {
		h.t.Fatal(err)
	}
}

func agentRoute(dst string) rtnl.Route {
	return rtnl.Route{Dst: prefix(dst), Kind: rtnl.Blackhole, Protocol: kernel.RouteProtocolAgent}
}

func TestInternalPeersLearnAndTellBothFamilies(t *testing.T) {
	h, birds := network(t, 1)
	b := birds[0]
	h.agent("10.65.1.0/26", "10.65.1.5/32", "10.65.9.9/32", "198.51.100.0/24", "fd00:65::/122", "fd00:65::5/128")
	b.run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	h.start(planOf(session("192.0.2.2", 64512), session("2001:db8:1::2", 64512)))
	b.wants("10.65.1.0/26", "192.0.2.1", "BGP.local_pref: 2147482623")
	b.wants("10.65.9.9/32", "192.0.2.1") // within no block of ours: borrowed
	b.wants("fd00:65::/122", "2001:db8:1::1")
	for _, dst := range []string{"10.65.1.5/32", "fd00:65::5/128", "198.51.100.0/24"} {
		b.lacks(dst)
	}
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186 metric 2048")
	h.wantRoute("fd00:204::/64 via 2001:db8:1::2 proto 186 metric 2048")

	// Changes while all is up, both ways.
	h.agent("10.65.2.0/26")
	b.wants("10.65.2.0/26")
	h.agentDrops("10.65.1.0/26")
	b.lacks("10.65.1.0/26")
	b.wants("10.65.1.5/32") // nothing covers it any more
	b.configure("route 10.204.0.0/26 blackhole;", "route 10.205.0.0/26 blackhole;")
	h.wantRoute("10.205.0.0/26 via 192.0.2.2 proto 186 metric 2048")
	h.wantNoRoute("10.204.0.0/26")

	// A peer that says that it goes takes its routes with it.
	b.ask("disable", "twill4")
	h.wantNoRoute("10.205.0.0/26")
	if s := h.session("192.0.2.2"); s.State == speaker.Established || !strings.Contains(s.Why, "the peer closed it") {
		t.Errorf("session %+v", s)
	}
	b.ask("enable", "twill4")
	h.wantRoute("10.205.0.0/26 via 192.0.2.2 proto 186 metric 2048")
}

func TestExternalPeersWithAPassword(t *testing.T) {
	h, birds := network(t, 1)
	b := birds[0]
	h.agent("10.65.1.0/26")
	b.run(statics + speaks("twill", "local as 65001; multihop; password \"sesame\";", "", ""))
	four, six := session("192.0.2.2", 65001), session("2001:db8:1::2", 65001)
	four.Password, six.Password = &plan.Secret{Name: "bgp", Key: "wrong"}, &plan.Secret{Name: "bgp", Key: "none"}
	h.start(planOf(four, six))
	await(t, patience, func() error {
		if s := h.session("192.0.2.2"); s.State != "Active" || !strings.Contains(s.Why, "packets whose password is not that of their session") {
			return fmt.Errorf("with the wrong password: %+v", s)
		}
		return nil
	})
	if s := h.session("2001:db8:1::2"); s.State != "Closed" || !strings.Contains(s.Why, "no such secret") {
		t.Errorf("without its password: %+v", s)
	}
	four.Password, six.Password = &plan.Secret{Name: "bgp", Key: "right"}, &plan.Secret{Name: "bgp", Key: "right"}
	h.plan(planOf(four, six))
	h.up("192.0.2.2", "2001:db8:1::2")
	b.wants("10.65.1.0/26", "BGP.as_path: 64512", "192.0.2.1")
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186 metric 2048")

	// One end has none.
	four.Password = nil
	h.plan(planOf(four, six))
	await(t, patience, func() error {
		if s := h.session("192.0.2.2"); s.State == speaker.Established || !strings.Contains(s.Why, "packets with a password where the session has none") {
			return fmt.Errorf("without a password: %+v", s)
		}
		return nil
	})
	if s := h.session("2001:db8:1::2"); s.State != speaker.Established {
		t.Errorf("the session that is right: %+v", s)
	}

	// Without a password on both ends: the listener must forget it, too.
	b.configure("password \"sesame\";", "passive;")
	h.up("192.0.2.2", "2001:db8:1::2")
}

func TestOtherSessionsDoNotNoticeAChange(t *testing.T) {
	h, birds := network(t, 2)
	for _, b := range birds {
		b.run(statics + speaks("twill", "local as 65001; multihop;", "", ""))
	}
	one, two := session("192.0.2.2", 65001), session("192.0.2.3", 65001)
	h.start(planOf(one, two))
	h.agent("10.65.1.0/26")
	birds[0].wants("10.65.1.0/26")
	birds[1].wants("10.65.1.0/26")
	h.up("192.0.2.2", "192.0.2.3") // now: before a route came by it, one of two connections at once could be the one that ends
	before := h.session("192.0.2.2")

	two.Keepalive, two.Hold = 5*time.Second, 15*time.Second // a change that needs a new session
	h.plan(planOf(one, two))
	await(t, patience, func() error {
		if out := birds[1].ask("show", "protocols", "all", "twill4"); !strings.Contains(out, "/15.000") && !strings.Contains(out, "/15\n") {
			return fmt.Errorf("no hold time of 15 s in:\n%s", out)
		}
		return nil
	})
	one.Export = []plan.Rule{{Name: "nothing"}} // a change that needs none
	h.plan(planOf(one, two))
	birds[0].lacks("10.65.1.0/26")
	birds[1].wants("10.65.1.0/26")
	if after := h.session("192.0.2.2"); after.State != speaker.Established || !after.Since.Equal(before.Since) {
		t.Errorf("session was %+v, is %+v", before, after)
	}

	h.plan(planOf(one)) // and the end of one
	await(t, patience, func() error {
		if out := birds[1].ask("show", "protocols", "twill4"); strings.Contains(out, "Established") {
			return fmt.Errorf("still up:\n%s", out)
		}
		return nil
	})
	if after := h.session("192.0.2.2"); after.State != speaker.Established || !after.Since.Equal(before.Since) {
		t.Errorf("session was %+v, is %+v", before, after)
	}
}
