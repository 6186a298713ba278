package diags

// source is one file of the archive, or several.
type source struct {
	name string   // in the archive
	args []string // a program and its arguments; "twill" is this binary
	ask  string   // or a path of the agent's socket
	glob string   // or files, which have their own names below name

	needs string // a former source, without which there is nothing
}

const twill = "twill"

// kinds are those whose resources say what the cluster should be; endpoints of workloads are too many, and status has those of this host.
var kinds = []string{
	"nodes", "ippools", "ipamconfigurations", "felixconfigurations", "bgpconfigurations", "bgppeers", "bgpfilters", "clusterinformations", "kubecontrollersconfigurations",
	"tiers", "globalnetworkpolicies", "networkpolicies", "stagedglobalnetworkpolicies", "stagednetworkpolicies", "globalnetworksets", "networksets", "hostendpoints", "profiles",
}

// sources are what is collected, in this order: what says most about a fault first.
func sources(logs []string) []source {
	all := []source{
		{name: "twill/version.txt", args: []string{twill, "version"}},
		{name: "twill/status.txt", args: []string{twill, "status", "-o", "wide"}},
		{name: "twill/status.json", args: []string{twill, "status", "-o", "json"}},
		{name: "twill/status-of-all.txt", args: []string{twill, "status", "--all"}},
		{name: "twill/doctor.txt", args: []string{twill, "doctor", "-o", "wide"}},
		{name: "twill/verify.txt", args: []string{twill, "verify"}},
		{name: "twill/config.txt", args: []string{twill, "config", "--all"}},
		{name: "twill/node-address.txt", args: []string{twill, "node", "address"}},
		{name: "twill/flows.txt", args: []string{twill, "flows"}},
		{name: "twill/flows-logged.txt", args: []string{twill, "flows", "--log"}},
		{name: "twill/bgp-peers.txt", args: []string{twill, "bgp", "peers", "-o", "wide"}},
		{name: "twill/bgp-peers.json", args: []string{twill, "bgp", "peers", "-o", "json"}},
		{name: "twill/bgp-routes.txt", args: []string{twill, "bgp", "routes"}},
		{name: "twill/ipam.txt", args: []string{twill, "ipam", "show"}},
		{name: "twill/metrics.txt", ask: "/metrics"},
	}
	for _, k := range kinds {
		all = append(all, resourceSource(k))
	}
	all = append(all, system...)
	for _, l := range logs {
		all = append(all, source{name: "logs", glob: l})
	}
	return all
}

var namespaced = map[string]bool{"networkpolicies": true, "stagednetworkpolicies": true, "networksets": true}

// system is what the host itself says. Programs that it has not are named in the index.
var system = []source{
	{name: "network/addresses.txt", args: []string{"ip", "-d", "-s", "address", "show"}},
	{name: "network/routes.txt", args: []string{"ip", "route", "show", "table", "all"}},
	{name: "network/routes6.txt", args: []string{"ip", "-6", "route", "show", "table", "all"}},
	{name: "network/rules.txt", args: []string{"ip", "rule", "show"}},
	{name: "network/rules6.txt", args: []string{"ip", "-6", "rule", "show"}},
	{name: "network/neighbours.txt", args: []string{"ip", "-s", "neighbour", "show"}},
	{name: "network/fdb.txt", args: []string{"bridge", "fdb", "show"}},
	{name: "network/shaping.txt", args: []string{"tc", "-s", "qdisc", "show"}},
	{name: "network/sockets.txt", args: []string{"ss", "-anp"}},
	{name: "network/wireguard.txt", args: []string{"wg", "show", "all"}}, // which hides keys
	{name: "network/conntrack.txt", args: []string{"conntrack", "-S"}},
	{name: "network/counters.txt", args: []string{"nstat", "-az"}},
	{name: "rules/nftables.txt", args: []string{"nft", "-a", "list", "ruleset"}},
	{name: "rules/iptables.txt", args: []string{"iptables-save", "-c"}},
	{name: "rules/ip6tables.txt", args: []string{"ip6tables-save", "-c"}},
	{name: "rules/iptables-legacy.txt", args: []string{"iptables-legacy-save", "-c"}},
	{name: "rules/ip6tables-legacy.txt", args: []string{"ip6tables-legacy-save", "-c"}},
	{name: "rules/ipset.txt", args: []string{"ipset", "list"}},
	{name: "host/uname.txt", args: []string{"uname", "-a"}},
	{name: "host/sysctl.txt", args: []string{"sysctl", "-a", "-r", `^(net|kernel\.(osrelease|tainted))\.?`}},
	{name: "host/modules.txt", args: []string{"lsmod"}},
	{name: "host/processes.txt", args: []string{"ps", "auxww"}},
	{name: "host/disks.txt", args: []string{"df", "-h"}},
	{name: "host/kernel-log.txt", args: []string{"dmesg"}},
	{name: "host/units.txt", args: []string{"systemctl", "--no-pager", "status", "twill*"}},
	{name: "host", glob: "/etc/os-release"},
	{name: "host", glob: "/proc/meminfo"},
	{name: "host", glob: "/proc/loadavg"},
	{name: "host", glob: "/proc/net/softnet_stat"},
	{name: "files", glob: "/etc/twill/*.conf"},
	{name: "files", glob: "/etc/twill/*.env"},
	{name: "files", glob: "/etc/calico/*.cfg"},
	{name: "files", glob: "/etc/bird/*.conf"},
	{name: "files", glob: "/etc/cni/net.d/*"},
	{name: "files", glob: "/var/lib/calico/*"},
	{name: "logs/journal.txt", args: []string{"journalctl", "--no-pager", "-n", "20000", "-u", "twill*"}},
}
