package xtables

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func TestChainsOfLegacyTablesAreListed(t *testing.T) {
	machinetest.Program(t, "iptables-legacy-restore")
	ns := netnstest.New(t)
	list := func() (out []string) {
		t.Helper()
		var err error
		var chains []Chain
		ns.Do(func() { chains, err = LegacyChains() })
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chains {
			out = append(out, fmt.Sprint(c.Family, " ", c.Table, " ", c.Name))
		}
		slices.Sort(out)
		return out
	}
	if got := list(); len(got) != 0 {
		t.Errorf("a new namespace has %q", got)
	}
	text := "*filter\n:cali-FORWARD - [0:0]\n:a-name-of-just-28-characters - [0:0]\n-A FORWARD -m comment --comment \"cali:abc\" -j cali-FORWARD\n" +
		"-A cali-FORWARD -i cali+ -m comment --comment \"a long one, so that entries differ in size\" -j DROP\nCOMMIT\n*raw\n:cali-PREROUTING - [0:0]\nCOMMIT\n"
	ns.Do(func() {
		for _, f := range []Family{IPv4, IPv6} {
			if err := Restore(t.Context(), Legacy, f, text); err != nil {
				t.Error(err)
			}
		}
	})
	want := []string{
		"ip filter a-name-of-just-28-characters", "ip filter cali-FORWARD", "ip raw cali-PREROUTING",
		"ip6 filter a-name-of-just-28-characters", "ip6 filter cali-FORWARD", "ip6 raw cali-PREROUTING",
	}
	if got := list(); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestTextGoesToTheBackendThatIsMeantAndBack(t *testing.T) {
	machinetest.Program(t, "iptables-legacy-restore")
	machinetest.Program(t, "iptables-nft-restore")
	ns := netnstest.New(t)
	ns.Do(func() {
		for _, b := range []Backend{Legacy, NFT} {
			for _, f := range []Family{IPv4, IPv6} {
				chain := fmt.Sprintf("cali-%s-%s", b, f)
				if err := Restore(t.Context(), b, f, "*filter\n:"+chain+" - [0:0]\nCOMMIT\n"); err != nil {
					t.Error(err)
				}
			}
		}
		for _, b := range []Backend{Legacy, NFT} {
			for _, f := range []Family{IPv4, IPv6} {
				got, err := Save(t.Context(), b, f)
				if chain := fmt.Sprintf(":cali-%s-%s -", b, f); err != nil || !strings.Contains(got, chain) || strings.Count(got, ":cali-") != 1 {
					t.Errorf("%s %s: %v\n%s", b, f, err, got)
				}
			}
		}
		if err := Restore(t.Context(), Legacy, IPv4, "*filter\n-D FORWARD -j nobody\nCOMMIT\n"); err == nil || !strings.Contains(err.Error(), "nobody") {
			t.Errorf("a text that is refused: %v", err)
		}
	})
}

// TestTablesAreReadWhileSetsOfThemGo: the legacy programs read the rules first, and then ask for the name of each set that a rule has as a number. Another program may
// have deleted both in between.
func TestTablesAreReadWhileSetsOfThemGo(t *testing.T) {
	machinetest.Program(t, "iptables-legacy-restore")
	machinetest.Program(t, "ipset")
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock")) // that of the machine is one for all namespaces
	ns := netnstest.New(t)
	other := exec.Command("sh", "-c", `for i in $(seq 200); do
		ipset create s$i hash:ip && iptables-legacy -w 60 -A INPUT -m set --match-set s$i src -j ACCEPT && iptables-legacy -w 60 -F INPUT && ipset destroy s$i || exit 1
	done`)
	ns.Do(func() {
		if err := other.Start(); err != nil {
			t.Error(err)
			return
		}
		ended := make(chan error, 1)
		go func() { ended <- other.Wait() }()
		for {
			if text, err := Save(t.Context(), Legacy, IPv4); err != nil || strings.Contains(text, "--match-set") && !strings.Contains(text, "COMMIT") {
				t.Errorf("%v\n%s", err, text)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
				return
			default:
			}
		}
	})
}

func TestATableThatIPTablesCannotReadIsNoEmptyTable(t *testing.T) {
	machinetest.Program(t, "iptables-nft-restore")
	for _, tt := range []struct{ name, plant string }{
		{"a rule", "iptables-nft -N cali-FORWARD; nft add rule ip filter cali-FORWARD ct state vmap { established : accept, invalid : drop }"},
		{"a base chain", "nft add table ip filter; nft add chain ip filter FORWARD '{ type filter hook forward priority 5; policy accept; }'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := netnstest.New(t)
			ns.Run("sh", "-c", tt.plant)
			ns.Do(func() {
				if got, err := Save(t.Context(), NFT, IPv4); !errors.Is(err, ErrNotIPTables) || !strings.Contains(err.Error(), "Table `filter'") {
					t.Errorf("Save = %q, %v", got, err)
				}
			})
		})
	}
}

func TestAProgramOfTheOtherBackendIsNotTaken(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		want          Backend
	}{
		{"iptables 1.8 with nf_tables", "iptables-save v1.8.9 (nf_tables)", NFT},
		{"iptables 1.8 without", "iptables-save v1.8.9 (legacy)", Legacy},
		{"before there were two", "iptables-save v1.6.2", Legacy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			sh, err := exec.LookPath("/bin/sh")
			if err != nil {
				t.Fatal(err)
			}
			script := "#!" + sh + "\necho '" + tt.version + "'\n"
			if err := os.WriteFile(filepath.Join(dir, "iptables-save"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, b := range []Backend{Legacy, NFT} {
				_, err := Save(t.Context(), b, IPv4)
				if (err == nil) != (b == tt.want) || err != nil && !errors.Is(err, ErrNoProgram) {
					t.Errorf("%s: %v", b, err)
				}
				if _, err := Save(t.Context(), b, IPv6); !errors.Is(err, ErrNoProgram) {
					t.Errorf("%s of IPv6, for which there is nothing: %v", b, err)
				}
			}
		})
	}
}

// FuzzChains: whatever the kernel says, reading it ends.
func FuzzChains(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(make([]byte, 400), true)
	f.Fuzz(func(t *testing.T, b []byte, six bool) {
		l := layouts[0]
		if six {
			l = layouts[1]
		}
		if n := len(l.chains(b)); n*l.size > len(b) {
			t.Errorf("%d chains in %d bytes", n, len(b))
		}
	})
}
