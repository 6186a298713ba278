package leftovers_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/hostfacts"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/leftovers"
)

// read is what doctor reads of a namespace.
func read(t *testing.T, ns *netnstest.NS) *doctor.Facts {
	t.Helper()
	f := &doctor.Facts{Pools: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/16"), netip.MustParsePrefix("2001:db8::/64")}}
	ns.Do(func() {
		h, err := hostfacts.Open()
		if err == nil {
			defer h.Close()
			err = h.Read(f, []string{"cali"})
		}
		if err != nil {
			t.Error(err)
		}
	})
	return f
}

// remove removes what doctor finds, and says what was done.
func remove(t *testing.T, ns *netnstest.NS, force bool) (lines []string, err error) {
	t.Helper()
	f := read(t, ns)
	ns.Do(func() {
		err = leftovers.Remove(t.Context(), leftovers.Config{Facts: f, Force: force, Say: func(line string) { lines = append(lines, line) }})
	})
	return lines, err
}

func want(t *testing.T, lines []string, want ...string) {
	t.Helper()
	if !slices.Equal(lines, want) {
		t.Errorf("it says\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

const rules = `*filter
:cali-FORWARD - [0:0]
:cali-tw-a - [0:0]
-A FORWARD -m comment --comment "cali:a" -j cali-FORWARD
-A FORWARD -p tcp -j ACCEPT
-A cali-FORWARD -m set --match-set SET src -j cali-tw-a
COMMIT
`

// uplink gives the namespace an interface to other hosts, and one to a workload.
func uplink(t *testing.T) *netnstest.NS {
	for _, p := range []string{"iptables-legacy-restore", "iptables-nft-restore", "ipset", "nft"} {
		machinetest.Program(t, p)
	}
	ns := netnstest.New(t)
	ns.Veth("eth0", "far")
	ns.Veth("cali1", "peer1")
	ns.Addr("eth0", "192.0.2.1/24")
	return ns
}

func plant(ns *netnstest.NS) {
	for _, family := range []struct{ inet, ipt, set string }{{"inet", "iptables", "cali40a"}, {"inet6", "ip6tables", "cali60a"}} {
		ns.Run("ipset", "create", family.set, "hash:net", "family", family.inet)
		for _, backend := range []string{"legacy", "nft"} {
			ns.Run("sh", "-c", "echo '"+strings.ReplaceAll(rules, "SET", family.set)+"' | "+family.ipt+"-"+backend+"-restore --noflush")
		}
	}
}

func TestAllOfAnUpstreamAgentGoesAndNothingOfOthers(t *testing.T) {
	ns := uplink(t)
	before := map[string]string{}
	state := func() map[string]string {
		out := map[string]string{}
		for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save"} {
			var kept []string
			for line := range strings.Lines(ns.Run(program)) {
				if strings.HasPrefix(line, "-A") {
					kept = append(kept, line)
				}
			}
			out[program] = strings.Join(kept, "")
		}
		out["sets"] = ns.Run("ipset", "list", "-n")
		out["tables"] = ns.Run("sh", "-c", "nft list tables | grep -v 'filter$'")
		return out
	}
	ns.Run("sh", "-c", "for i in iptables ip6tables; do $i-legacy -A FORWARD -p tcp -j ACCEPT; $i-nft -A FORWARD -p tcp -j ACCEPT; done")
	ns.Run("ipset", "create", "KUBE-X", "hash:ip")
	ns.Run("nft", "add table inet other")
	for k, v := range state() {
		before[k] = v
	}
	plant(ns)
	for _, family := range []string{"ip", "ip6", "inet", "arp"} {
		ns.Run("nft", "add table "+family+" calico; add chain "+family+" calico x")
	}
	ns.Route("10.65.0.9/32 dev cali1 proto boot scope link")
	ns.Route("2001:db8::9/128 dev cali1 proto boot")
	ns.Route("blackhole 10.65.3.0/26 proto bird")

	lines, err := remove(t, ns, false)
	if err != nil {
		t.Error(err)
	}
	slices.Sort(lines)
	want(
		t, lines, "ipset: 2 sets",
		"iptables-legacy (IPv4): 2 chains, and 1 rule in chains of others", "iptables-legacy (IPv6): 2 chains, and 1 rule in chains of others",
		"iptables-nft (IPv4): 2 chains, and 1 rule in chains of others", "iptables-nft (IPv6): 2 chains, and 1 rule in chains of others",
		"nftables: table arp calico", "nftables: table inet calico", "nftables: table ip calico", "nftables: table ip6 calico",
		"route 10.65.0.9/32 dev cali1 proto 3", "route 2001:db8::9/128 dev cali1 proto 3", "route blackhole 10.65.3.0/26 proto 12",
	)
	after := state()
	for what, was := range before {
		is := after[what]
		if strings.HasSuffix(what, "-save") { // plant had a rule of somebody else's, too
			is = strings.Replace(is, was, "", 1)
		}
		if is != was {
			t.Errorf("%s: there was\n%s\nis\n%s", what, was, is)
		}
	}
	if left := read(t, ns).Leftovers().Lines(); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	if lines, err := remove(t, ns, false); err != nil || len(lines) > 0 {
		t.Errorf("a second time: %q, %v", lines, err)
	}
}

// TestTheMasqueradeOfVersion1Goes: its agent made one rule of its own form in a chain of the host.
func TestTheMasqueradeOfVersion1Goes(t *testing.T) {
	ns := uplink(t)
	const others = "POSTROUTING -s 172.17.0.0/16 -o tunl0 -j MASQUERADE"
	for _, backend := range []string{"legacy", "nft"} {
		ns.Run("sh", "-c", "iptables-"+backend+" -t nat -N felix-POSTROUTING; iptables-"+backend+" -t nat -A "+others)
		ns.Run("sh", "-c", "iptables-"+backend+" -t nat -A POSTROUTING --out-interface tunl0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE")
	}
	lines, err := remove(t, ns, false)
	if err != nil {
		t.Error(err)
	}
	want(t, lines, "iptables-legacy (IPv4): 1 chain, and 1 rule in chains of others", "iptables-nft (IPv4): 1 chain, and 1 rule in chains of others")
	for _, backend := range []string{"legacy", "nft"} {
		if rules := ns.Run("iptables-"+backend, "-t", "nat", "-S", "POSTROUTING"); !strings.Contains(rules, others) || strings.Contains(rules, "addrtype") {
			t.Errorf("%s: left are\n%s", backend, rules)
		}
	}
}

func TestRoutesThatNothingReplacesStayWithTheirTunnel(t *testing.T) {
	ns := uplink(t)
	ns.Veth("vxlan.calico", "vx")
	ns.Veth("wireguard.cali", "wg")
	ns.Route("10.65.2.0/26 dev vxlan.calico proto 80 via 10.65.2.0 onlink")
	ns.Route("10.65.4.0/26 via 192.0.2.4 dev eth0 proto bird")
	ns.Route("2001:db8::4:0/122 dev eth0 via fe80::4 proto 80")
	lines, err := remove(t, ns, false)
	want(t, lines, "device wireguard.cali")
	for _, stays := range []string{"route 10.65.2.0/26 via 10.65.2.0 dev vxlan.calico proto 80 stays", "route 10.65.4.0/26 via 192.0.2.4 dev eth0 proto 12 stays", "route 2001:db8::4:0/122 via fe80::4 dev eth0 proto 80 stays", "device vxlan.calico stays"} {
		if err == nil || !strings.Contains(err.Error(), stays) {
			t.Errorf("the error is %v, want %q", err, stays)
		}
	}
	for _, ours := range []string{"10.65.2.0/26", "10.65.4.0/25"} {
		ns.Route(ours + " via 192.0.2.4 dev eth0 proto bgp metric 2048")
	}
	ns.Route("2001:db8::4:0/122 dev eth0 via fe80::4 proto bgp metric 2049")
	lines, err = remove(t, ns, false)
	if err != nil {
		t.Error(err)
	}
	want(
		t, lines, "route 10.65.2.0/26 via 10.65.2.0 dev vxlan.calico proto 80", "route 10.65.4.0/26 via 192.0.2.4 dev eth0 proto 12",
		"route 2001:db8::4:0/122 via fe80::4 dev eth0 proto 80", "device vxlan.calico",
	)
	ns.WantRoute(t, "10.65.2.0/26 via 192.0.2.4 dev eth0 proto 186")
}

func TestAHostThatWouldDropWhatPassesNowIsNotChangedUnlessForced(t *testing.T) {
	ns := uplink(t)
	plant(ns)
	ns.Run("ip6tables-nft", "-P", "FORWARD", "DROP")
	ns.Run("iptables-legacy", "-P", "OUTPUT", "DROP") // where nothing of the agent is
	lines, err := remove(t, ns, false)
	if err == nil || !strings.Contains(err.Error(), "chain FORWARD of filter in iptables-nft (IPv6) is DROP") || strings.Contains(err.Error(), "OUTPUT") || len(lines) > 0 {
		t.Errorf("it did %q: %v", lines, err)
	}
	if got := len(read(t, ns).Leftovers().Chains); got != 8 {
		t.Errorf("%d chains are left of 8", got)
	}
	if lines, err = remove(t, ns, true); err != nil || len(lines) != 5 {
		t.Errorf("by force it did %q: %v", lines, err)
	}
}

func TestWithoutTheirProgramChainsStayAndSoDoesAllElse(t *testing.T) {
	ns := uplink(t)
	plant(ns)
	facts := read(t, ns)
	t.Setenv("PATH", t.TempDir())
	ns.Do(func() {
		err := leftovers.Remove(t.Context(), leftovers.Config{Facts: facts, Say: func(line string) { t.Errorf("it did: %s", line) }})
		if err == nil || !strings.Contains(err.Error(), "iptables-legacy (IPv4): iptables-legacy-save: the program is not installed") {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestWhatWouldDropIsFoundBefore: nothing is changed by asking, and what cannot be seen is named.
func TestWhatWouldDropIsFoundBefore(t *testing.T) {
	ns := uplink(t)
	plant(ns)
	ns.Run("ip6tables-nft", "-P", "FORWARD", "DROP")
	ns.Run("iptables-legacy", "-P", "FORWARD", "DROP")
	ns.Run("iptables-legacy", "-P", "OUTPUT", "DROP") // where nothing of the agent is
	left := read(t, ns).Leftovers()
	ns.Do(func() {
		drops, unseen := leftovers.Drops(t.Context(), left)
		want(t, drops, "FORWARD of filter in iptables-legacy (IPv4)", "FORWARD of filter in iptables-nft (IPv6)")
		want(t, unseen)
		t.Setenv("PATH", t.TempDir())
		drops, unseen = leftovers.Drops(t.Context(), left)
		want(t, drops)
		if len(unseen) != 4 || !strings.Contains(unseen[0], "iptables-legacy (IPv4): iptables-legacy-save: the program is not installed") {
			t.Errorf("unseen: %q", unseen)
		}
	})
	if got := len(read(t, ns).Leftovers().Chains); got != 8 {
		t.Errorf("%d chains are left of 8", got)
	}
}

// foreign are rules as a VPN and a firewall write them with nft into the tables of iptables, which iptables cannot express.
const foreign = `
add chain FAMILY filter ts-input
add rule FAMILY filter ts-input ct label 0 accept
add chain FAMILY filter INPUT { type filter hook input priority 0; }
add rule FAMILY filter INPUT counter jump ts-input
add rule FAMILY filter FORWARD ct label 0 accept
`

// TestRulesThatIPTablesCannotReadKeepNothing: somebody's rules in the same tables make iptables report nothing of them; upstream's go nevertheless, and theirs stay.
func TestRulesThatIPTablesCannotReadKeepNothing(t *testing.T) {
	state := func(ns *netnstest.NS) string {
		return ns.Run("nft", "-s", "list", "table", "ip", "filter") + ns.Run("nft", "-s", "list", "table", "ip6", "filter")
	}
	host := func(upstreams bool) *netnstest.NS {
		ns := uplink(t)
		for _, family := range []struct{ name, ipt string }{{"ip", "iptables-nft"}, {"ip6", "ip6tables-nft"}} {
			ns.Run(family.ipt, "-A", "FORWARD", "-p", "tcp", "-j", "ACCEPT")
			if upstreams {
				ns.Run("sh", "-c", "echo '"+strings.ReplaceAll(rules, "-m set --match-set SET src", "")+"' | "+family.ipt+"-restore --noflush")
				ns.Run(family.ipt, "-D", "FORWARD", "-p", "tcp", "-j", "ACCEPT") // of the two
				ns.Run(family.ipt, "-I", "FORWARD", "-m", "comment", "--comment", "cali:b", "-m", "mark", "--mark", "0x10000/0x10000", "-j", "ACCEPT")
			}
			ns.Run("nft", strings.ReplaceAll(foreign, "FAMILY", family.name))
			ns.Run("nft", strings.ReplaceAll(`add rule FAMILY filter FORWARD ct mark 7 accept comment "calico is not cali:"`, "FAMILY", family.name))
			if upstreams { // newer iptables gives comments as nft does
				ns.Run("nft", strings.ReplaceAll(`add rule FAMILY filter FORWARD ct mark 8 accept comment "cali:c"`, "FAMILY", family.name))
			}
		}
		return ns
	}
	ns, others := host(true), state(host(false))
	if saved := ns.Run("iptables-nft-save"); !strings.Contains(saved, "incompatible") {
		t.Fatalf("iptables reads it:\n%s", saved)
	}
	ns.Run("nft", "add chain ip6 filter FORWARD { policy drop; }")
	lines, err := remove(t, ns, false)
	if err == nil || !strings.Contains(err.Error(), "chain FORWARD of filter in iptables-nft (IPv6) is DROP") || len(lines) > 0 {
		t.Errorf("it did %q: %v", lines, err)
	}
	ns.Run("nft", "add chain ip6 filter FORWARD { policy accept; }")
	lines, err = remove(t, ns, false)
	if err != nil {
		t.Error(err)
	}
	want(t, lines, "iptables-nft (IPv4): 2 chains, and 3 rules in chains of others", "iptables-nft (IPv6): 2 chains, and 3 rules in chains of others")
	if left := state(ns); left != others {
		t.Errorf("left are\n%s\nof others are\n%s", left, others)
	}
}
