package agent

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/dataplane/iptables"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func TestWherePolicyGoes(t *testing.T) {
	const there = "unix:///run/driver.sock"
	off := config.Settings{Nftables: "Disabled", IptablesBackend: "Auto"}
	for _, tt := range []struct {
		name, plant  string
		settings     config.Settings
		wants, first backend
		noted        backend
	}{
		{"nothing is there", "true", config.Settings{Nftables: "Enabled"}, inNftables, inNftables, ""},
		{"the kernel's choice", "true", config.Settings{Nftables: "Auto", IptablesBackend: "Legacy"}, inNftables, inNftables, ""},
		{"legacy by name", "true", config.Settings{Nftables: "Disabled", IptablesBackend: "Legacy"}, inLegacy, inLegacy, ""},
		{"nft by name", "iptables-legacy -N KUBE-FORWARD", config.Settings{Nftables: "Disabled", IptablesBackend: "NFT"}, inNFT, inNFT, ""},
		{"a host that uses neither", "true", off, inNFT, inNFT, ""},
		{"a host that uses the legacy one", "ip6tables-legacy -N KUBE-FORWARD", off, inLegacy, inLegacy, ""},
		{"a host that uses both", "iptables-legacy -N KUBE-FORWARD; iptables-nft -t nat -N KUBE-NODES", off, inNFT, inNFT, ""},
		{"chains of ours are nobody else's", "iptables-legacy -N " + iptables.Root, off, inNFT, inLegacy, ""},
		{"an agent left policy in nftables", "nft add table inet twill", off, inNFT, inNftables, ""},
		{"an agent left policy in iptables", "iptables-nft -N " + iptables.Root, config.Settings{Nftables: "Enabled"}, inNftables, inNFT, ""},
		{"a change of settings was cut short", "nft add table inet twill; iptables-nft -N " + iptables.Root, off, inNFT, inNFT, ""},
		{"another process, by settings of this host", "nft add table inet twill", config.Settings{DataplaneDriver: there}, there, there, ""},
		{"another process, as the datastore said once", "nft add table inet twill", config.Settings{InternalDataplane: true}, inNftables, there, there},
		{"a program that the agent starts", "nft add table inet twill", config.Settings{DataplaneDriver: "/usr/bin/driver"}, "/usr/bin/driver", "/usr/bin/driver", ""},
		{"a program, as the datastore said once", "nft add table inet twill", config.Settings{InternalDataplane: true}, inNftables, "/usr/bin/driver", "/usr/bin/driver"},
		{"upstream's name of no driver", "true", config.Settings{DataplaneDriver: "calico-iptables-plugin"}, inNftables, inNftables, ""},
		{"the address alone", "true", config.Settings{DataplaneDriver: there, InternalDataplane: true}, inNftables, inNftables, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machinetest.Program(t, "iptables-legacy-restore")
			machinetest.Program(t, "iptables-nft-restore")
			ns := netnstest.New(t)
			ns.Run("sh", "-c", tt.plant)
			ns.Do(func() {
				d, err := openKernel()
				if err != nil {
					t.Error(err)
					return
				}
				defer d.close()
				if got := d.wanted(tt.settings); got != tt.wants {
					t.Errorf("settings want %s, not %s", got, tt.wants)
				}
				if got, err := d.begins(tt.settings, tt.noted); err != nil || got != tt.first {
					t.Errorf("an agent begins with %s (%v), not %s", got, err, tt.first)
				}
			})
		})
	}
}

// TestPolicyLeavesTablesThatIPTablesCannotRead: others' rules, made with nft in the same tables, stop the programs of iptables. What is ours goes nevertheless.
func TestPolicyLeavesTablesThatIPTablesCannotRead(t *testing.T) {
	machinetest.Program(t, "iptables-nft-restore")
	machinetest.Program(t, "ipset")
	ns := netnstest.New(t)
	const ours, other = "tw4-net-ofNobodyAAAAAAAAAAAAAA", "KUBE-CLUSTER-IP"
	ns.Run("ipset", "create", ours, "hash:ip")
	ns.Run("ipset", "create", other, "hash:ip")
	for _, family := range []struct{ name, ipt string }{{"ip", "iptables-nft"}, {"ip6", "ip6tables-nft"}} {
		for _, table := range []string{"filter", "raw"} {
			ns.Run(family.ipt, "-t", table, "-N", iptables.Root)
			ns.Run(family.ipt, "-t", table, "-A", "OUTPUT", "-j", iptables.Root)
			ns.Run(family.ipt, "-t", table, "-N", "others")
			ns.Run("nft", "add rule "+family.name+" "+table+" others ct label 0 accept")
		}
	}
	ns.Run("iptables-nft", "-I", iptables.Root, "-m", "set", "--match-set", ours, "src", "-j", "DROP")
	if saved := ns.Run("iptables-nft-save"); !strings.Contains(saved, "incompatible") {
		t.Fatalf("iptables reads it:\n%s", saved)
	}
	ns.Do(func() {
		d, err := openKernel()
		if err != nil {
			t.Error(err)
			return
		}
		defer d.close()
		if did, err := d.leavePolicy(t.Context()); err != nil || len(did) != 1 {
			t.Errorf("it did %q: %v", did, err)
		}
	})
	left := ns.Run("nft", "list", "ruleset")
	if strings.Contains(left, iptables.Root) || strings.Count(left, "ct label") != 4 {
		t.Errorf("left are\n%s", left)
	}
	if sets := strings.Fields(ns.Run("ipset", "list", "-n")); len(sets) != 1 || sets[0] != other {
		t.Errorf("left are the sets %q", sets)
	}
}

func TestABackendWithoutItsProgramsIsNotGoneTo(t *testing.T) {
	machinetest.Program(t, "iptables-nft-restore")
	machinetest.Program(t, "ipset")
	for _, b := range []backend{inNftables, inNFT} {
		if why := missing(b); why != "" {
			t.Errorf("%s: %s", b, why)
		}
	}
	for _, b := range []backend{"/nowhere", "/dev/null", "/etc/passwd"} {
		if missing(b) == "" {
			t.Errorf("%s would be started", b)
		}
	}
	ns := netnstest.New(t)
	t.Setenv("PATH", t.TempDir())
	ns.Do(func() {
		d, err := openKernel()
		if err != nil {
			t.Error(err)
			return
		}
		defer d.close()
		if got, err := d.begins(config.Settings{Nftables: "Disabled", IptablesBackend: "NFT"}, ""); got != inNftables || err != nil {
			t.Errorf("an agent begins with %s, %v", got, err)
		}
	})
	for b, lacks := range map[backend]bool{inNftables: false, inNFT: true, inLegacy: true} {
		if why := missing(b); (why != "") != lacks {
			t.Errorf("%s lacks %q", b, why)
		}
	}
}

// TestTheNoteOfAnotherProcess: the next agent begins with it, until one has policy in the kernel again.
func TestTheNoteOfAnotherProcess(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	for _, b := range []backend{"unix:///run/a.sock", "unix:///run/b.sock", inNftables, inNFT} {
		if err := b.note(socket); err != nil {
			t.Fatal(err)
		}
		if got := noted(socket); got.remote() != b.remote() || got.remote() && got != b {
			t.Errorf("%s is noted as %q", b, got)
		}
	}
	if err := backend("unix:///run/a.sock").note(""); err != nil || noted("") != "" {
		t.Error(err)
	}
}
