package speaker_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// frr is Debian's FRR, zebra and bgpd, in a namespace.
type frr struct {
	*netnstest.NS
	t   *testing.T
	dir string
}

const frrDaemons = "/usr/lib/frr"

func startFRR(t *testing.T, ns *netnstest.NS, config string) *frr {
	t.Helper()
	machinetest.Program(t, "vtysh")
	dir, err := os.MkdirTemp("", "frr") // short: it is in the names of sockets
	if err != nil {
		t.Fatal(err)
	}
	f := &frr{NS: ns, t: t, dir: dir}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	_ = os.Chmod(dir, 0o777) // the daemons are another user's
	path := filepath.Join(dir, "frr.conf")
	if err := os.WriteFile(path, []byte("hostname frr\n"+config), 0o644); err != nil {
		t.Fatal(err)
	}
	f.daemon("zebra", path)
	await(t, patience, func() error { _, err := os.Stat(filepath.Join(dir, "zserv.api")); return err })
	f.daemon("bgpd", path)
	await(t, patience, func() error {
		if out := f.ask("show bgp summary"); strings.Contains(out, "failed") || strings.Contains(out, "not running") {
			return fmt.Errorf("bgpd: %s", out)
		}
		return nil
	})
	return f
}

func (f *frr) daemon(name, config string) {
	f.t.Helper()
	log, err := os.Create(filepath.Join(f.dir, name+".log"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(frrDaemons, name), "-f", config, "-i", filepath.Join(f.dir, name+".pid"), "-z", filepath.Join(f.dir, "zserv.api"),
		"--vty_socket", f.dir, "-A", "127.0.0.1", "--log", "stdout")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := f.Handle().Start(cmd); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); f.t.Failed() {
			f.t.Logf("%s:\n%s", name, text)
		}
	})
}

func (f *frr) ask(command string) string {
	out, _ := exec.Command("vtysh", "--vty_socket", f.dir, "-c", command).CombinedOutput() // its text says what failed
	return string(out)
}

// shows waits until FRR's answer has all of these words.
func (f *frr) shows(command string, words ...string) {
	f.t.Helper()
	await(f.t, patience, func() error {
		out := f.ask(command)
		for _, w := range words {
			if !strings.Contains(out, w) {
				return fmt.Errorf("no %q in the answer to %q:\n%s", w, command, out)
			}
		}
		return nil
	})
}

func TestFRRLearnsAndTells(t *testing.T) {
	h, birds := network(t, 1)
	f := startFRR(t, birds[0].NS, `
router bgp 65001
 bgp router-id 192.0.2.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 bgp graceful-restart
 neighbor 192.0.2.1 remote-as 64512
 neighbor 192.0.2.1 password sesame
 neighbor 192.0.2.1 timers connect 1
 neighbor 2001:db8:1::1 remote-as 64512
 neighbor 2001:db8:1::1 timers connect 1
 address-family ipv4 unicast
  network 10.204.0.0/26
  no neighbor 2001:db8:1::1 activate
 exit-address-family
 address-family ipv6 unicast
  network fd00:204::/64
  neighbor 2001:db8:1::1 activate
 exit-address-family
`)
	four, six := session("192.0.2.2", 65001), session("2001:db8:1::2", 65001)
	four.Password = &plan.Secret{Name: "bgp", Key: "right"}
	four.Export = append([]plan.Rule{marking("10.65.0.0/16", "64512:120", "64512:300:100")}, four.Export...)
	p := planOf(four, six)
	h.agent("10.65.1.0/26", "fd00:65::/122")
	h.start(p)
	f.shows("show bgp ipv4 unicast 10.65.1.0/26", "192.0.2.1", "64512", "Community: 64512:120", "Large Community: 64512:300:100")
	f.shows("show bgp ipv6 unicast fd00:65::/122", "2001:db8:1::1", "64512")
	f.shows("show bgp neighbors 192.0.2.1", "BGP state = Established", "Graceful Restart Capability: advertised and received")
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186 metric 2048")
	h.wantRoute("fd00:204::/64 via 2001:db8:1::2 proto 186 metric 2048")

	h.agentDrops("10.65.1.0/26")
	f.shows("show bgp ipv4 unicast 10.65.1.0/26", "Network not in table")
	h.agent("10.65.1.0/26")
	f.shows("show bgp ipv4 unicast 10.65.1.0/26", "192.0.2.1")

	// It, too, keeps the routes of a speaker that restarts.
	gone := withdrawals(t, h.Rtnl(), kernel.RouteProtocolSpeaker)
	h.kill()
	f.shows("show bgp ipv4 unicast 10.65.1.0/26", "192.0.2.1", "stale")
	h.start(p)
	h.up("192.0.2.2", "2001:db8:1::2")
	f.shows("show bgp ipv4 unicast 10.65.1.0/26", "192.0.2.1")
	await(t, patience, func() error {
		if out := f.ask("show bgp ipv4 unicast 10.65.1.0/26"); strings.Contains(out, "stale") {
			return fmt.Errorf("still stale:\n%s", out)
		}
		if r := h.ask(request{}).Report; !r.Holding.IsZero() {
			return fmt.Errorf("still holding: %+v", r)
		}
		return nil
	})
	if went := gone(); len(went) > 0 {
		t.Errorf("here went %v", went)
	}
}
