package agent

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

func TestBootClosesTheHostAndLeaveGivesItBack(t *testing.T) {
	ns := netnstest.New(t)
	var before, after map[string]string
	var first, second bool
	var errs [6]error
	ns.Do(func() {
		before, errs[0] = Found()
		first, errs[1] = Boot(t.Context(), Config{Node: "h1"})
		second, errs[2] = Boot(t.Context(), Config{Node: "h1"})
	})
	if !first || second {
		t.Errorf("boot did something: %v, and again: %v; want true, false", first, second)
	}
	ruleset := ns.Run("nft", "list", "chain", "inet", "twill", "forward-from-workload")
	if want := `iifname "cali*" iifname != @wl-links counter`; !strings.Contains(ruleset, want) {
		t.Errorf("the table does not close workloads' interfaces:\n%s", ruleset)
	}
	// What an agent does since.
	ns.Veth("cali1", "peer1")
	ns.Run("sysctl", "-qw", "net.ipv4.ip_forward=1")
	ns.Run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	ns.Run("ip", "route", "add", "10.65.0.2/32", "dev", "cali1", "proto", "80")
	ns.Run("ip", "route", "add", "10.65.0.3/32", "dev", "cali1", "proto", "99")                    // by a deviceRouteProtocol that it had
	ns.Run("ip", "route", "add", "10.67.0.0/26", "dev", "cali1", "proto", "186", "metric", "2049") // BGP's
	ns.Run("ip", "route", "add", "10.66.0.0/24", "dev", "cali1")                                   // somebody else's
	ns.Run("ip", "route", "add", "10.68.0.0/24", "dev", "cali1", "proto", "186", "metric", "20")   // another speaker's
	var did []string
	ns.Do(func() {
		did, errs[3] = Leave(t.Context(), before)
		after, errs[4] = Found()
	})
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, value := range before { // an interface may have come since
		if after[path] != value {
			t.Errorf("%s is %s, was %s", path, after[path], value)
		}
	}
	if got := ns.Run("nft", "list", "ruleset"); got != "" {
		t.Errorf("the ruleset is\n%s", got)
	}
	if got := ns.Run("ip", "-4", "route"); strings.Contains(got, "10.65.0.") || strings.Contains(got, "10.67.0.0") || !strings.Contains(got, "10.66.0.0/24") || !strings.Contains(got, "10.68.0.0/24") {
		t.Errorf("routes are\n%s", got)
	}
	if !slices.Contains(did, "nftables table inet twill is deleted") || !slices.Contains(did, "route 10.65.0.2/32 is deleted") {
		t.Errorf("it says that it did %q; settings were %v", did, slices.Sorted(maps.Keys(before)))
	}
}

func TestLeaveSeesThatAnAgentIsAlive(t *testing.T) {
	ns := netnstest.New(t)
	var agent *nftables.Conn
	var err error
	ns.Do(func() {
		if agent, err = nftables.Open(); err == nil {
			_, err = Boot(t.Context(), Config{Node: "h1"})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	machinetest.Supported(t, agent.ProbeOwner())
	own := nftables.NewBatch()
	own.SetTableFlags(table, nftables.TableOwner|nftables.TablePersist) // boot's table has persist
	if err := agent.Commit(own); err != nil {
		t.Fatal(err)
	}
	ns.Do(func() { _, err = Leave(t.Context(), nil) })
	if err == nil || !strings.Contains(err.Error(), "table inet twill is owned by another process") || !strings.Contains(err.Error(), "stop the agent first") {
		t.Errorf("while an agent lives: %v", err)
	}
	_ = agent.Close()
	ns.Do(func() { _, err = Leave(t.Context(), nil) })
	if got := ns.Run("nft", "list", "ruleset"); err != nil || got != "" {
		t.Errorf("after it has gone: %v\n%s", err, got)
	}
}

func TestBootLeavesAHostOpenThatAnotherAgentsRulesGuard(t *testing.T) {
	for _, tt := range []struct {
		name, plant string
		boots       bool
	}{
		{"its chains decide about forwarded packets", "iptables-legacy -N cali-FORWARD", false},
		{"those of the other backend do, of the other family", "ip6tables-nft -N cali-FORWARD", false},
		{"its table does", "nft 'add table ip calico'", false},
		{"only a chain of NAT is left, which guards nothing", "iptables-nft -t nat -N cali-POSTROUTING", true},
		{"only its sets are left", "ipset create cali40a hash:net", true},
		{"there are chains of others", "iptables-nft -N KUBE-FORWARD", true},
		{"policy of ours is in iptables", "iptables-nft -N tw-forward", false},
		{"policy of ours is in iptables, of the other backend", "iptables-legacy -N tw-forward", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machinetest.Program(t, "iptables-legacy-restore")
			machinetest.Program(t, "ipset")
			ns := netnstest.New(t)
			ns.Run("sh", "-c", tt.plant)
			var did bool
			var err error
			ns.Do(func() { did, err = Boot(t.Context(), Config{Node: "h1"}) })
			if err != nil || did != tt.boots {
				t.Errorf("boot closed the host: %v, %v; want %v", did, err, tt.boots)
			}
		})
	}
}

func TestWhereAnotherAgentRunsItKeepsWhatItNeeds(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("cali1", "peer1")
	var before map[string]string
	var errs [3]error
	ns.Do(func() {
		before, errs[0] = Found()
		_, errs[1] = Boot(t.Context(), Config{Node: "h1"})
	})
	ns.Run("sysctl", "-qw", "net.ipv4.ip_forward=1")
	ns.Route("10.65.0.2/32 dev cali1 proto 80 scope link")
	ns.Route("10.67.0.0/26 dev cali1 proto 186 metric 2048")
	other := filepath.Join(t.TempDir(), "calico-node")
	program, err := os.ReadFile(machinetest.Program(t, "sleep"))
	if err == nil {
		err = os.WriteFile(other, program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(other, "60")
	if err := ns.Handle().Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	var did []string
	ns.Do(func() { did, errs[2] = Leave(t.Context(), before) })
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"route 10.67.0.0/26 is deleted", "routes of protocol 80 and forwarding stay: calico-node runs here, and has them from now on", "nftables table inet twill is deleted"}; !slices.Equal(did, want) {
		t.Errorf("it did %q\nwant %q", did, want)
	}
	ns.WantRoute(t, "10.65.0.2 dev cali1 proto 80 scope link")
	if got := ns.SysctlValue("ipv4/ip_forward"); got != "1" {
		t.Errorf("ip_forward is %s", got)
	}
}
