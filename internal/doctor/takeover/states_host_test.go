package takeover

import (
	"net/netip"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/doctor"
)

// settled is a host on which our agent is ready, and nothing of upstream's runs.
func settled(f *Facts) { f.Agent.Err, f.Processes, f.Agents = "", nil, nil }

var ofHost = []planted{
	{"not root", func(f *Facts) {
		*f.Facts = doctor.Facts{Node: f.Node, Nodes: f.Nodes, Agent: f.Agent, BGP: f.BGP}
		f.Agents, f.HostErr = nil, "operation not permitted"
	}, `+blocks host: this host cannot be read, and nothing is known of what runs and is left here: operation not permitted
+same cluster: Twill's agent reports from 0 of 2 nodes; no agent, or one that reports nothing, as Calico's outside of OpenStack: h1, h2
` + gone("agent", "rules", "kernel", "workloads", "cluster")},
	{
		"another name than Calico's", func(f *Facts) { f.Agents[0].Environ = append(f.Agents[0].Environ, "FELIX_FELIXHOSTNAME=h1.example") },
		"+blocks node: Calico's agent is node h1.example, and Twill would be h1: its endpoints and addresses would be another's",
	},
	{"no Node of that name", func(f *Facts) { f.Node = "h9" }, `+blocks node: the datastore has no Node h9: endpoints and addresses of this host are under another name
` + gone("node", "bgp", "cluster") + "\n+same cluster: Twill's agent reports from 0 of 2 nodes; no agent, or one that reports nothing, as Calico's outside of OpenStack: h1, h2"},
	{"the Node's address is nowhere", func(f *Facts) { f.Links[0].Addrs = nil }, "+changes node: 192.0.2.1, the address of Node h1, is on no interface here [when Twill starts]"},
	{"a machine that is no node", func(f *Facts) {
		settled(f)
		f.Agent.Err, f.Node, f.Chains, f.own = "no agent answers", "laptop", nil, nil
		f.Links = f.Links[:1]
	}, `+same node: this machine (laptop) is no node of the datastore, and nothing of Calico's is here: only the datastore was judged. Its nodes: h1, h2
+same cluster: Twill's agent reports from 0 of 2 nodes; no agent, or one that reports nothing, as Calico's outside of OpenStack: h1, h2
` + gone("node", "agent", "bgp", "kernel", "rules", "workloads", "cluster")},
	{"a machine that is no node, where nobody is root", func(f *Facts) {
		*f.Facts = doctor.Facts{Node: "laptop", Nodes: f.Nodes, Agent: f.Agent, BGP: f.BGP}
		f.Agents, f.own, f.HostErr = nil, nil, "operation not permitted"
	}, `+same node: this machine (laptop) is no node of the datastore, and what is here cannot be read (operation not permitted): only the datastore was judged. Its nodes: h1, h2
+same cluster: Twill's agent reports from 0 of 2 nodes; no agent, or one that reports nothing, as Calico's outside of OpenStack: h1, h2
` + gone("node", "agent", "bgp", "kernel", "rules", "workloads", "cluster")},
	{"our agent does not answer", func(f *Facts) { f.AgentErr = "deadline exceeded" }, "+blocks agent: whether Twill's agent runs is not known: deadline exceeded\n" + gone("agent")},
	{
		"somebody at the agents' port", func(f *Facts) { f.Health = []doctor.Listener{{At: netip.MustParseAddrPort("127.0.0.1:9099")}} },
		"+blocks agent: somebody whose process cannot be seen from here listens on 127.0.0.1:9099, as an agent does: which agent runs is not known",
	},
	{"both agents", func(f *Facts) { f.Agent.Err = "" }, `+blocks agent: calico-felix (pid 7) and Twill's agent both run: each removes the other's routes
+same cluster: Twill's agent reports from 1 of 2 nodes; Twill's: h1; no agent, or one that reports nothing, as Calico's outside of OpenStack: h2
` + gone("agent", "cluster")},
	{"ours is not ready", func(f *Facts) { settled(f); f.Agent.NotReady = []string{"never yet in sync"} }, `+blocks agent: Twill's agent runs, and is not ready: never yet in sync
+same cluster: Twill's agent reports from 1 of 2 nodes; Twill's: h1; no agent, or one that reports nothing, as Calico's outside of OpenStack: h2
` + gone("agent", "cluster")},
	{"ours has taken over", func(f *Facts) { settled(f); f.Chains = nil }, `+same agent: Twill's agent runs, and is ready; Calico's does not run
+same cluster: Twill's agent reports from 1 of 2 nodes; Twill's: h1; no agent, or one that reports nothing, as Calico's outside of OpenStack: h2
` + gone("agent", "cluster", "rules")},
	{"Calico's is stopped", func(f *Facts) { settled(f); f.Agent.Err = "no agent answers" }, `+same agent: no agent runs: what Calico's left in the kernel guards workloads as it was last, and follows no change
+same cluster: Twill's agent reports from 0 of 2 nodes; no agent, or one that reports nothing, as Calico's outside of OpenStack: h1, h2
` + gone("agent", "cluster")},
	{"a node on which nothing of Calico's is", func(f *Facts) { settled(f); f.Agent.Err, f.Chains = "no agent answers", nil }, `+changes agent: no agent runs, and no rules of Calico's are here [when Twill starts]
+same cluster: Twill's agent reports from 0 of 2 nodes; no agent, or one that reports nothing, as Calico's outside of OpenStack: h1, h2
` + gone("agent", "cluster", "rules")},
	{
		"eBPF by the environment", func(f *Facts) { f.Agents[0].Environ = append(f.Agents[0].Environ, "FELIX_BPFENABLED=true") },
		"+blocks ebpf: Calico's eBPF dataplane is on (FELIX_BPFENABLED of Calico's agent): its programs decide before any table, translate services in place of kube-proxy, and Twill has none",
	},
	{
		"eBPF by the file", func(f *Facts) { f.File.Text = "[global]\nBpfEnabled = true\n" },
		"+blocks ebpf: Calico's eBPF dataplane is on (bpfEnabled of /etc/calico/felix.cfg): its programs decide before any table, translate services in place of kube-proxy, and Twill has none",
	},
	{
		"eBPF by the datastore", func(f *Facts) { f.put("felixconfigurations/default", `{"spec":{"bpfEnabled":true}}`) },
		"+blocks ebpf: Calico's eBPF dataplane is on (bpfEnabled of FelixConfiguration default): its programs decide before any table, translate services in place of kube-proxy, and Twill has none",
	},
	{
		"eBPF of another node", func(f *Facts) { f.put("felixconfigurations/node.h2", `{"spec":{"bpfEnabled":true}}`) },
		"+changes resources: FelixConfiguration node.h2: spec.bpfEnabled has no effect: policy is enforced with nftables, not eBPF; services are kube-proxy's to translate [when Twill starts]",
	},
	{"eBPF by the datastore, and Twill has taken over", func(f *Facts) {
		settled(f)
		f.Chains = nil
		f.put("felixconfigurations/node.h1", `{"spec":{"bpfEnabled":true}}`)
	}, `+changes resources: FelixConfiguration node.h1: spec.bpfEnabled has no effect: policy is enforced with nftables, not eBPF; services are kube-proxy's to translate
+same agent: Twill's agent runs, and is ready; Calico's does not run
+same cluster: Twill's agent reports from 1 of 2 nodes; Twill's: h1; no agent, or one that reports nothing, as Calico's outside of OpenStack: h2
` + gone("agent", "cluster", "rules")},
	{"eBPF is left", func(f *Facts) {
		f.Links, f.Pins = append(f.Links, doctor.Link{Name: "bpfin.cali"}), []string{"/sys/fs/bpf/tc/globals/cali_v4_routes"}
	}, "+blocks ebpf: devices, programs or maps of Calico's eBPF dataplane are in the kernel: bpfin.cali, /sys/fs/bpf/tc/globals/cali_v4_routes\n+changes rules: what Calico made in the kernel is removed: 1 chain of iptables-legacy, ip (filter); devices bpfin.cali [when the leftovers go]\n-changes rules: what Calico made in the kernel is removed: 1 chain of iptables-legacy, ip (filter) [when the leftovers go]"},
	{"eBPF is on, and in the kernel", func(f *Facts) {
		f.put("felixconfigurations/default", `{"spec":{"bpfEnabled":true,"bpfLogLevel":"Debug"}}`)
		f.Agents[0].Environ, f.Pins = append(f.Agents[0].Environ, "FELIX_BPFLOGLEVEL=debug", "FELIX_WAT=1"), []string{"/sys/fs/bpf/tc/globals/cali_v4_routes"}
	}, "+changes settings: FELIX_WAT of environment of calico-felix: there is no such parameter; `twill config params` lists those there are [when Twill starts]" + `
+blocks ebpf: Calico's eBPF dataplane is on (bpfEnabled of FelixConfiguration default): its programs decide before any table, translate services in place of kube-proxy, and Twill has none
+blocks ebpf: devices, programs or maps of Calico's eBPF dataplane are in the kernel: /sys/fs/bpf/tc/globals/cali_v4_routes`},
	{"eBPF is left, and no agent runs", func(f *Facts) {
		settled(f)
		f.Agent.Err, f.Pins = "no agent answers", []string{"/sys/fs/bpf/tc/globals/cali_v4_routes"}
	}, `+blocks ebpf: devices, programs or maps of Calico's eBPF dataplane are in the kernel: /sys/fs/bpf/tc/globals/cali_v4_routes
+same agent: no agent runs: what Calico's left in the kernel guards workloads as it was last, and follows no change
+same cluster: Twill's agent reports from 0 of 2 nodes; no agent, or one that reports nothing, as Calico's outside of OpenStack: h1, h2
` + gone("agent", "cluster")},
	{
		"XDP", func(f *Facts) { f.Pins = []string{"/sys/fs/bpf/calico/xdp/prefilter"} },
		"+changes ebpf: programs by which Calico drops early for untracked policy (XDP) are in the kernel, and go on as they were last: /sys/fs/bpf/calico/xdp/prefilter [when Twill starts]",
	},
	{"pins cannot be seen", func(f *Facts) { f.BPFErr = "permission denied" }, "+blocks ebpf: whether programs of Calico's eBPF dataplane are pinned cannot be seen: permission denied"},
	{"interfaces by other names", func(f *Facts) {
		f.own = append(f.own, endpoint("vm", "tap1"), endpoint("gone", "cali9"))
		f.Links = append(f.Links, doctor.Link{Name: "tap1"}, doctor.Link{Name: "cali8", Workload: true})
		f.hosts = 1
	}, `+blocks workloads: interfaces of default/vm (tap1) do not begin with cali: Twill lets no endpoint have such an interface, and it carries nothing
+changes workloads: 1 endpoint of this node: no such interface here: default/gone (cali9) [when Twill starts]
+changes workloads: 1 interface of workloads by name, and of no endpoint: cali8 [when Twill starts]
+same workloads: 1 host endpoint of this node: policy of the host is in force with the first transaction`},
	{"Calico's network", func(f *Facts) {
		f.Networks = []Network{{File: "/etc/cni/net.d/10-calico.conflist", Types: []string{"calico", "portmap"}, IPAM: "host-local", Idle: []string{"nodename_file_optional"}}}
		f.Plugins = []Plugin{{Name: "calico", There: true}}
	}, `+changes cni: /etc/cni/net.d/10-calico.conflist: runtimes call calico, which is Calico's binary now and Twill's from then on; a file 10-twill.conflist would come after it and be passed over [when the plugin is installed]
+changes cni: /etc/cni/net.d/10-calico.conflist: no effect: nodename_file_optional [when the plugin is installed]
+same cni: /etc/cni/net.d/10-calico.conflist: addresses are those of host-local, which Twill's plugin asks, too`},
	{"Calico's network, and Twill's binary", func(f *Facts) {
		f.Networks = []Network{{File: "10-calico.conflist", Types: []string{"calico"}, IPAM: "calico-ipam"}}
		f.Plugins = []Plugin{{Name: "calico", There: true, Our: true}}
	}, "+same cni: 10-calico.conflist: runtimes call calico, which is Twill's binary"},
	{"Twill's network", func(f *Facts) {
		f.Networks = []Network{{File: "05-twill.conflist", Types: []string{"twill"}, IPAM: "twill-ipam"}}
	}, "+same cni: 05-twill.conflist: runtimes call twill"},
	{"another's network comes first", func(f *Facts) {
		f.Networks = []Network{{File: "05-flannel.conflist", Types: []string{"flannel"}}, {File: "10-calico.conflist", Types: []string{"calico"}}}
	}, "+blocks cni: 05-flannel.conflist, which container runtimes take first, is a network of the plugin flannel"},
	{"a network that cannot be read", func(f *Facts) { f.Networks = []Network{{File: "10-calico.conflist", Err: "not JSON"}} }, "+blocks cni: 10-calico.conflist, which container runtimes take first, cannot be used: not JSON"},
	{"networks cannot be read", func(f *Facts) { f.NetworksErr = "permission denied" }, "+blocks cni: networks of container runtimes cannot be read: permission denied"},
	{
		"the host drops", func(f *Facts) { f.Drops = []string{"FORWARD of filter in iptables-legacy (IPv4)"} },
		"+blocks rules: the policy of chain FORWARD of filter in iptables-legacy (IPv4) is DROP, and rules of Calico's accept in it: when these go, it drops what they accepted",
	},
	{
		"the host drops, which is provided for", func(f *Facts) { f.Drops, f.Force = []string{"FORWARD"}, true },
		"+changes rules: the policy of chain FORWARD is DROP, and rules of Calico's accept in it: when these go, it drops what they accepted [when the leftovers go]",
	},
	{"no program for a backend", func(f *Facts) { f.RulesErr = []string{"iptables-legacy (IPv4): not installed"} }, "+blocks rules: iptables-legacy (IPv4): not installed"},
}

func endpoint(name, link string) *api.WorkloadEndpoint {
	w := api.New(api.KindWorkloadEndpoint).(*api.WorkloadEndpoint)
	w.Metadata.Namespace, w.Metadata.Name, w.Spec.InterfaceName = "default", name, link
	return w
}

var ofSettings = []planted{
	{
		"another etcd", func(f *Facts) { f.Endpoints = []string{"unix:///run/twill/etcd/client.sock"} },
		"+blocks datastore: Calico's agent reads etcd at 192.0.2.8:2379, 192.0.2.9:2379, and this command did at unix:///run/twill/etcd/client.sock",
	},
	{"another kind of datastore", func(f *Facts) { f.Agents[0].Environ = []string{"DATASTORE_TYPE=kubernetes"} }, "+blocks datastore: Calico's agent has its data in Kubernetes' API, and this command read etcd"},
	{
		"the environment is closed", func(f *Facts) { f.Agents[0].Environ, f.Agents[0].EnvironErr = nil, "permission denied" },
		"+blocks settings: the environment of calico-felix (pid 7) cannot be read, and what it sets is not known: permission denied",
	},
	{"the file is closed", func(f *Facts) { f.File.Err = "permission denied" }, "+blocks settings: /etc/calico/felix.cfg cannot be read, and what it sets is not known: permission denied"},
	{"settings that Twill would not have", func(f *Facts) {
		f.put("felixconfigurations/default", `{"spec":{"reportingInterval":"10s"}}`)
		f.Agents[0].Environ = append(f.Agents[0].Environ, "Felix_LogSeverityScreen=Debug", "FELIX_REPORTINGINTERVALSECS=60", "TWILL_VXLANPORT=1", "FELIX_IPIPMTU=many", "FELIX_WAT=1")
		f.File.Text = "DefaultEndpointToHostAction = ACCEPT\nInterfacePrefix = cali\nNoSuch = 1\nIptablesPostWriteCheckInterval = 10\nMTUIfacePattern =\n"
		f.Idle = []string{"SLEEP", "USE_POD_CIDR"}
	}, `+changes settings: variables of the environment of Calico's agent that have no effect: SLEEP, USE_POD_CIDR [when Twill starts]
+changes settings: FELIX_WAT of environment of calico-felix: there is no such parameter; ` + "`twill config params`" + ` lists those there are [when Twill starts]
+changes settings: IptablesPostWriteCheckInterval of /etc/calico/felix.cfg:4: has no effect: what is written into iptables is read back at once, after each time [when Twill starts]
+changes settings: NoSuch of /etc/calico/felix.cfg:3: there is no such parameter; ` + "`twill config params`" + ` lists those there are [when Twill starts]
+blocks settings: defaultEndpointToHostAction is ACCEPT by /etc/calico/felix.cfg, and Twill would have Drop (default): what workloads send to this host would be dropped
+changes settings: ipipMTU of environment of calico-felix is not understood: is "many": want a whole number, 68 to 65535 [when Twill starts]
+changes settings: logSeverityScreen is Debug by environment of calico-felix, and Twill would have Info (default) [when Twill starts]
+changes settings: reportingInterval is 60 by environment of calico-felix, and Twill would have 10s (FelixConfiguration default) [when Twill starts]
+same settings: 1 setting of this host alone, which Twill has, too`},
	{"the environment of Calico's manifest for Kubernetes", func(f *Facts) {
		f.Kubernetes, f.Endpoints = true, nil
		f.Agents[0].Environ = []string{
			"DATASTORE_TYPE=kubernetes", "WAIT_FOR_DATASTORE=true", "NODENAME=h1", "CALICO_NETWORKING_BACKEND=bird", "CLUSTER_TYPE=k8s,bgp", "IP=autodetect",
			"CALICO_IPV4POOL_IPIP=Always", "CALICO_IPV4POOL_VXLAN=Never", "CALICO_IPV6POOL_VXLAN=Never", "FELIX_IPINIPMTU=0", "FELIX_VXLANMTU=0", "FELIX_WIREGUARDMTU=0",
			"CALICO_DISABLE_FILE_LOGGING=true", "FELIX_DEFAULTENDPOINTTOHOSTACTION=ACCEPT", "FELIX_IPV6SUPPORT=false", "FELIX_HEALTHENABLED=true",
		}
	}, `+blocks settings: defaultEndpointToHostAction is ACCEPT by environment of calico-felix, and Twill would have Drop (default): what workloads send to this host would be dropped
+changes settings: ipv6Support is false by environment of calico-felix, and Twill would have true (default) [when Twill starts]
+same settings: 4 settings of this host alone, which Twill has, too`},
	{"what of eBPF has no effect, and it is off", func(f *Facts) { f.Agents[0].Environ = append(f.Agents[0].Environ, "FELIX_BPFLOGLEVEL=debug") }, "+changes settings: FELIX_BPFLOGLEVEL of environment of calico-felix: has no effect: policy is enforced with nftables, not eBPF [when Twill starts]"},
	{"settings that differ, and drop nothing", func(f *Facts) {
		f.File.Text = "DefaultEndpointToHostAction = RETURN\nFailsafeInboundHostPorts = 22\n"
		f.Local = []config.Layer{{Name: "environment", Values: map[string]string{"defaultEndpointToHostAction": "Accept"}}}
	}, `+changes settings: defaultEndpointToHostAction is RETURN by /etc/calico/felix.cfg, and Twill would have Accept (environment) [when Twill starts]
+changes settings: failsafeInboundHostPorts is 22 by /etc/calico/felix.cfg, and Twill would have tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,udp:3784,tcp:5473,tcp:6443,tcp:6666,tcp:6667 (default) [when Twill starts]`},
	{"Typha, and a relay for Twill", func(f *Facts) {
		f.File.Text = "TyphaAddr = 192.0.2.7:5473\n"
		f.Local = []config.Layer{{Name: "environment", Values: map[string]string{"typhaAddr": "192.0.2.7:5474"}}}
	}, "+changes settings: Calico's agent reads by Typha (typhaAddr), whose protocol Twill does not speak [when Twill starts]"},
	{"ports of the host that are always open", func(f *Facts) {
		f.File.Text = "FailsafeInboundHostPorts = 22,8022\n"
		f.put("hostendpoints/h", `{"spec":{"node":"h1","interfaceName":"eth0"}}`)
	}, `+blocks settings: failsafeInboundHostPorts is 22,8022 by /etc/calico/felix.cfg, and Twill would have tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,udp:3784,tcp:5473,tcp:6443,tcp:6666,tcp:6667 (default): policy of this host would close ports that are open now, or open others
+same resources: 1 global policy, 1 host endpoint, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys
+same workloads: 1 host endpoint of this node: policy of the host is in force with the first transaction
` + gone("resources")},
	{"the same settings", func(f *Facts) {
		f.File.Text = "LogSeverityScreen = DEBUG\nReportingIntervalSecs = 60\n"
		f.Local = []config.Layer{{Name: "/etc/twill/twill.conf", Values: map[string]string{"logSeverityScreen": "Debug", "reportingInterval": "1m"}}}
	}, "+same settings: 2 settings of this host alone, which Twill has, too"},
	{
		"Typha", func(f *Facts) {
			f.Agents[0].Environ = append(f.Agents[0].Environ, "FELIX_TYPHAK8SSERVICENAME=calico-typha")
			f.File.Text = "TyphaAddr = 192.0.2.7:5473\n"
		},
		"+changes settings: Calico's agent reads by Typha (typhaAddr, typhaK8sServiceName), whose protocol Twill does not speak [when Twill starts]",
	},
	{"Typha for Twill", func(f *Facts) {
		f.File.Text = "TyphaAddr = 192.0.2.7:5473\n"
		f.Local = []config.Layer{{Name: "environment", Values: map[string]string{"typhaAddr": "192.0.2.7:5473"}}}
	}, "+blocks settings: Twill would read by 192.0.2.7:5473, which is Calico's Typha, whose protocol it does not speak"},
	{
		"Typha for Twill, by its Service", func(f *Facts) {
			f.Agents[0].Environ = append(f.Agents[0].Environ, "FELIX_TYPHAK8SSERVICENAME=calico-typha")
			f.Local = []config.Layer{{Name: "environment", Values: map[string]string{"typhaK8sServiceName": "calico-typha"}}}
		},
		"+blocks settings: Twill would read by the Service kube-system/calico-typha, which is Calico's Typha, whose protocol it does not speak",
	},
}

var ofNetwork = []planted{
	{"a kernel without tables", func(f *Facts) { f.Kernel.Err = "no nf_tables" }, "+blocks kernel: Linux 6.1: no nf_tables\n" + gone("kernel")},
	{"tunnels, of which the kernel lacks one", func(f *Facts) {
		f.Kernel.Lacks = []doctor.Lack{{Device: doctor.IPIP, Module: "ipip", Err: "not supported"}, {Device: doctor.WireGuard, Module: "wireguard", Err: "not supported"}}
		f.Tunnels = map[string][]string{doctor.VXLAN: {"b", "a"}, doctor.IPIP: {"c"}}
	}, `+blocks kernel: Linux 6.1 makes no IPIP device, as c want: not supported
+same kernel: VXLAN (a, b): device, numbers and fields of the datastore are the same, so that hosts with either agent reach each other`},
	{"WireGuard, which the kernel lacks, and another node has no key for", func(f *Facts) {
		f.Kernel.Lacks = []doctor.Lack{{Device: doctor.WireGuard, Module: "wireguard", Err: "not supported"}}
		f.put("felixconfigurations/default", `{"spec":{"wireguardEnabled":true}}`)
	}, `+blocks kernel: Linux 6.1 makes no WireGuard device, as wireguardEnabled want: not supported
+blocks encryption: WireGuard of IPv4: h2 has no key: Calico sends in clear there, Twill sends nothing`},
	{"WireGuard, in clear where there is no key", func(f *Facts) {
		f.put("felixconfigurations/default", `{"spec":{"wireguardEnabledV6":true,"wireguardAllowUnencrypted":true}}`)
	}, `+same kernel: WireGuard (wireguardEnabled): device, numbers and fields of the datastore are the same, so that hosts with either agent reach each other
+same encryption: WireGuard of IPv6: to h2, which have no key, it goes in clear, as with Calico`},
	{"WireGuard, with keys", func(f *Facts) {
		f.put("felixconfigurations/default", `{"spec":{"wireguardEnabled":true}}`)
		f.put("nodes/h2", `{"spec":{"bgp":{"ipv4Address":"192.0.2.2/24"}},"status":{"wireguardPublicKey":"jlkVyQYooZYzI2wFfNhSZez5eWh44yfq1wKVjLvSXgY="}}`)
	}, `+same kernel: WireGuard (wireguardEnabled): device, numbers and fields of the datastore are the same, so that hosts with either agent reach each other
+same encryption: WireGuard of IPv4: each other node has a key
+same resources: 1 global policy, 1 workload endpoint, 3 nodes, 1 pool: read where they are, by the same keys
` + gone("resources")},
	{
		"no BGP at Calico's", func(f *Facts) { f.Agents[0].Environ = append(f.Agents[0].Environ, "CALICO_NETWORKING_BACKEND=vxlan") },
		"+blocks bgp: Calico's node speaks no BGP (CALICO_NETWORKING_BACKEND=vxlan), and Twill's would",
	},
	{"BGP by BIRD, which stays", func(f *Facts) {
		f.BGP.Mode = "bird-reflector"
		f.Processes = append(f.Processes, doctor.Process{Name: "bird", PID: 9})
	}, ""},
	{"BGP by a BIRD of this host, which stays", func(f *Facts) {
		f.BGP.Mode = "bird"
		f.Processes = append(f.Processes, doctor.Process{Name: "bird", PID: 9})
	}, ""},
	{"no BGP, as Calico has none", func(f *Facts) {
		f.BGP.Mode = "off"
		f.Agents[0].Environ = append(f.Agents[0].Environ, "CALICO_NETWORKING_BACKEND=none")
	}, gone("bgp")},
	{
		"BIRD, and nobody after it", func(f *Facts) {
			f.BGP.Mode = "off"
			f.Processes = append(f.Processes, doctor.Process{Name: "bird", PID: 9})
		},
		"+changes bgp: bird (pid 9) runs, and with --bgp=off nobody speaks BGP once Calico's node is stopped [when Twill starts]\n" + gone("bgp"),
	},
	{
		"BIRD", func(f *Facts) {
			f.Processes = append(f.Processes, doctor.Process{Name: "bird", PID: 9}, doctor.Process{Name: "bird6", PID: 10})
		},
		"+changes bgp: bird (pid 9) and bird6 (pid 10) speaks BGP here, and its sessions end; Twill's speaker has the same ones. Routes that BIRD made stay until they are replaced [when Twill starts]",
	},
	{"BIRD beside Twill", func(f *Facts) { settled(f); f.Chains = nil; f.Processes = []doctor.Process{{Name: "bird", PID: 9}} }, `+blocks bgp: bird (pid 9) runs beside Twill: both want port 179 and the same sessions
+same agent: Twill's agent runs, and is ready; Calico's does not run
+same cluster: Twill's agent reports from 1 of 2 nodes; Twill's: h1; no agent, or one that reports nothing, as Calico's outside of OpenStack: h2
` + gone("agent", "cluster", "rules")},
	{"passwords", func(f *Facts) {
		a, b := plan.Secret{Name: "bgp", Key: "a"}, plan.Secret{Name: "bgp", Key: "b"}
		f.Plan.Sessions = []plan.Session{
			{Peer: netip.MustParseAddr("192.0.2.2"), PeerNode: "h2", Why: "mesh", Password: &a},
			{Peer: netip.MustParseAddr("192.0.2.70"), Why: "BGPPeer rack", Password: &b},
			{Peer: netip.MustParseAddr("192.0.2.71"), Why: "BGPPeer rack", Password: &b},
			{Peer: netip.MustParseAddr("192.0.2.72"), Why: "BGPPeer x", Closed: "no readable configuration"},
		}
		f.Secrets = map[plan.Secret]string{b: "no such file"}
	}, `+blocks bgp: the password of the session with 192.0.2.70 (BGPPeer rack), b of bgp, cannot be read: no such file
+blocks bgp: the session with 192.0.2.72 (BGPPeer x): no readable configuration
+same bgp: the password of mesh (192.0.2.2) is found
+same bgp: 4 sessions of BGP, AS 64512: 192.0.2.70, 192.0.2.71, 192.0.2.72, h2
` + gone("bgp")},
	{"what the plan says", func(f *Facts) {
		f.Plan.Problems, f.Plan.Unread = []string{"BGPPeer a: nobody", "GlobalNetworkPolicy web: known"}, []string{"BGPFilter x: not JSON", "GlobalNetworkPolicy web: known"}
		f.note(note{kind: "x", reason: "y", grade: Changes}, "GlobalNetworkPolicy web")
	}, `+blocks bgp: BGPFilter x: not JSON
+changes bgp: BGPPeer a: nobody [when Twill starts]
+changes resources: GlobalNetworkPolicy web: y [when Twill starts]`},
	{"no BGP on this node", func(f *Facts) { f.Plan = plan.Plan{Off: "Node h1 has no address"} }, "+changes bgp: no BGP: Node h1 has no address [when Twill starts]\n" + gone("bgp")},
}
