package doctor

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// node tells the book of a Node.
func (f *Facts) node(name, v4 string) {
	n := api.New(api.KindNode).(*api.Node)
	n.Metadata.Name = name
	if v4 != "" {
		n.Spec.BGP = &api.NodeBGPSpec{IPv4Address: v4}
	}
	key, _ := api.Key(n)
	value, _ := api.EncodeStored(n)
	f.Nodes.Update(api.Update{Key: key, Value: value})
}

// healthy is a host with one workload, one uplink and one peer, where all is well.
func healthy() *Facts {
	f := &Facts{
		Node: "h1", Kernel: Kernel{Release: "6.1"},
		Sysctl: map[string]string{
			conntrackMax: "1000", conntrackCount: "10", "ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
			"ipv4/conf/all/rp_filter": "1", "ipv4/conf/eth0/rp_filter": "0", "ipv4/conf/eth1/rp_filter": "0", "ipv4/conf/cali1/rp_filter": "1",
		},
		Store: Store{Latency: time.Millisecond, Members: []Member{{Endpoint: "http://192.0.2.9:2379", Version: "3.5.1"}}},
		BGP: BGP{
			Mode: "on", Listen: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:179")},
			Sessions: []Session{{Peer: addr("192.0.2.2"), Node: "h2", State: "Established", Up: true}},
		},
		Pools:      []netip.Prefix{prefix("10.65.0.0/16")},
		Neighbours: []Neighbours{{"ipv4", 5, 1024, 0}, {"ipv6", 7, 1024, 0}},
		Source:     addr("192.0.2.1"),
		Links: []Link{
			{Name: "lo", Up: true, Addrs: []netip.Prefix{prefix("127.0.0.1/8")}},
			{Name: "eth0", Up: true, MTU: 1500, Addrs: []netip.Prefix{prefix("192.0.2.1/24")}},
			{Name: "cali1", Up: true, Workload: true, Addrs: []netip.Prefix{prefix("169.254.1.1/32")}},
			{Name: "tunl0"},
			{Name: "docker0", Up: true, Addrs: []netip.Prefix{prefix("172.17.0.1/16")}},
		},
		Duplicates: []Duplicate{{Addr: addr("192.0.2.1"), Link: "eth0"}},
		Listeners:  []Listener{{At: netip.MustParseAddrPort("0.0.0.0:179"), Process: "twill", PID: 7, Ours: true}},
		Paths:      []Path{{Node: "h2", Addr: addr("192.0.2.2"), Link: "eth0", MTU: 1500, Largest: 1500}, {Node: "h3", Addr: addr("192.0.2.3"), Link: "eth0", MTU: 1500}},
		Routes: []Route{
			{Dst: prefix("0.0.0.0/0"), Protocol: 4, Link: "eth0"},
			{Dst: prefix("192.0.2.0/24"), Protocol: 2, Link: "eth0"},
			{Dst: prefix("10.65.0.5/32"), Protocol: 80, Link: "cali1"},
			{Dst: prefix("10.65.1.0/26"), Protocol: 186, Metric: 2048, Link: "eth0"},
			{Dst: prefix("10.0.0.0/8"), Protocol: 4, Link: "eth0"}, // wider than a pool: less specific than ours
		},
		Processes: []Process{{"twill", 7}, {"kube-proxy", 8}},
		Chains: []Chain{
			{Family: "inet", Table: "twill", Name: "forward", Hook: "forward", Drop: true},
			{Family: "ip", Table: "nat", Name: "KUBE-SERVICES"},
			{Family: "ip", Table: "filter", Name: "FORWARD", Hook: "forward"},
		},
	}
	f.node("h1", "192.0.2.1/24")
	f.node("h2", "192.0.2.2/24")
	return f
}

func text(found []Finding) string {
	var b strings.Builder
	for _, f := range found {
		if f.Verdict != OK {
			b.WriteString(f.Check + " " + string(f.Verdict) + ": " + f.Found + "\n")
		}
	}
	return b.String()
}

func TestAHealthyHostHasNothing(t *testing.T) {
	found := Judge(healthy())
	if got := text(found); got != "" {
		t.Errorf("found:\n%s", got)
	}
	if len(found) != len(checks) || Failed(found) {
		t.Errorf("%d findings of %d checks", len(found), len(checks))
	}
	for _, f := range found {
		if f.Check == "" || f.Found == "" || f.Fix != "" {
			t.Errorf("%+v", f)
		}
	}
}

func TestEachFaultIsFound(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plant func(*Facts)
		want  string // lines; each must be found, and nothing else
	}{
		{"a kernel without a tunnel that a pool wants", func(f *Facts) {
			f.Kernel.Lacks, f.Tunnels = []Lack{{WireGuard, "wireguard", "x"}, {IPIP, "ipip", "add ip: operation not supported"}}, map[string][]string{IPIP: {"one", "two"}, VXLAN: {"three"}}
		}, "kernel fail: Linux 6.1 makes no IPIP device, as pools want (one, two): add ip: operation not supported"},
		{"no nf_tables", func(f *Facts) { f.Kernel.Err = "kernel does not support nftables" }, "kernel fail: Linux 6.1: kernel does not support nftables"},
		{"connections nearly full", func(f *Facts) { f.Sysctl[conntrackCount] = "950" }, "conntrack warn: 950 of at most 1000 connections are tracked; beyond that, new ones are dropped"},
		{"neighbours nearly full", func(f *Facts) { f.Neighbours[1].Count = 950 }, "neighbours warn: of ipv6: 950 of at most 1024; beyond that, what is sent to one more is lost"},
		{"neighbours that were too many once, for which there is room now", func(f *Facts) { f.Neighbours[0].Full = 7 }, ""},
		{"neighbours that were too many", func(f *Facts) { f.Neighbours[0] = Neighbours{"ipv4", 600, 1024, 7} }, "neighbours warn: of ipv4: 600 of at most 1024, and 7 times there was no room since the machine started: what is sent to one more is lost"},
		{"in a namespace", func(f *Facts) { f.Neighbours = nil }, ""},
		{"no connection tracking", func(f *Facts) { delete(f.Sysctl, conntrackMax) }, "conntrack warn: the kernel does not say how many connections it tracks"},
		{"the store is away", func(f *Facts) { f.Store.Err = "datastore is unavailable" }, `store fail: datastore is unavailable
node warn: not known: the datastore does not answer
duplicates warn: not known: the datastore does not answer
source warn: not known: the datastore does not answer
port warn: not known: the datastore does not answer
path-mtu warn: not known: the datastore does not answer
routes warn: not known: the datastore does not answer`},
		{"a host that has no key, and one that the agent does not report", func(f *Facts) {
			f.Agent.Encryption = []Encryption{{Family: "IPv4", Interface: "wireguard.cali", Problem: "no threads"}}
			f.Agent.Others = []Other{{Node: "h9", Family: "IPv4", By: "WireGuard", Encrypted: true, State: Unreachable, Problem: "unreachable: no key"}, {Node: "h8", Family: "IPv4", By: "VXLAN", State: InClear, Problem: "in clear: it has no key"}}
		}, "tunnels warn: wireguard.cali, WireGuard of IPv4: no threads\ntunnels fail: h9, IPv4 by WireGuard: unreachable: no key\ntunnels warn: h8, IPv4 by VXLAN: in clear: it has no key\ntunnels warn: h2 has no key of WireGuard of IPv4: what is for its workloads goes nowhere"},
		{"a path that takes less than a tunnel needs", func(f *Facts) {
			f.Agent.Encryption = []Encryption{{Family: "IPv4", Interface: "wg0"}}
			f.Agent.Others = []Other{{Node: "h2", Family: "IPv4", By: "WireGuard", Encrypted: true}}
			f.Links = append(f.Links, Link{Name: "wg0", MTU: 1440}, Link{Name: "vxlan.calico", MTU: 1450, Ours: true})
			f.Paths[0].Largest, f.Paths[0].Behind = 1400, addr("192.0.2.99")
		}, `path-mtu fail: to h2 (192.0.2.2) packets of 1400 bytes arrive, and larger ones do not, though eth0 takes 1500: large transfers hang; they come as far as 192.0.2.99, and are lost behind it
path-mtu fail: h2 (192.0.2.2): wg0 takes packets of 1440 bytes, which are 1500 with its own 60: workloads' large ones are lost`},
		{"a tunnel that is small enough", func(f *Facts) {
			f.Agent.Others = []Other{{Node: "h2", Family: "IPv4", By: "VXLAN"}}
			f.Links = append(f.Links, Link{Name: "vxlan.calico", MTU: 1350, Ours: true})
			f.Paths[0].Largest, f.Paths[0].Behind, f.Paths[0].Says = 1400, addr("192.0.2.99"), true
		}, `path-mtu fail: to h2 (192.0.2.2) packets of 1400 bytes arrive, and larger ones do not, though eth0 takes 1500: large transfers hang; 192.0.2.99 answers that its next link takes less`},
		{"a member is away", func(f *Facts) {
			f.Store.Members = append(f.Store.Members, Member{Endpoint: "http://192.0.2.8:2379", Err: "unavailable"})
		}, "store warn: http://192.0.2.8:2379 does not answer: unavailable"},
		{"the store is slow", func(f *Facts) { f.Store.Latency = time.Second }, "store warn: a small read takes 1s"},
		{"the store is full", func(f *Facts) { f.Store.Members[0].Full = true }, `store fail: http://192.0.2.9:2379 is full (etcd's alarm NOSPACE): nothing can be written, and all goes on as it is stored`},
		{"the store is frozen", func(f *Facts) { f.Store.Frozen = true }, "store warn: it says that it is not ready (datastoreReady is false): nothing changes and nothing is written"},
		{"the store does not say whether it is ready", func(f *Facts) { f.Store.Unsaid = "it has no ClusterInformation default" }, "store warn: it has no ClusterInformation default, so it does not say whether it is ready: it may be lost or empty, agents that knew it otherwise leave everything as it is, and Calico's wait"},
		{"no agent", func(f *Facts) { f.Agent.Err = "no agent answers"; f.Sysctl["ipv4/ip_forward"] = "0" }, "agent fail: no agent answers\nforwarding warn: IPv4 is not forwarded yet"},
		{"the agent is not ready", func(f *Facts) { f.Agent.NotReady = []string{"never yet in sync"} }, "agent fail: not ready: never yet in sync"},
		{
			"wrong resources", func(f *Facts) { f.Agent.Wrong = []string{"a", "b", "c", "d", "e", "f", "g"} },
			"agent warn: wrong: a\nagent warn: wrong: b\nagent warn: wrong: c\nagent warn: wrong: d\nagent warn: wrong: e\nagent warn: and 2 more",
		},
		{
			"fields without effect", func(f *Facts) { f.Agent.NoEffect = []string{"a", "b", "c", "d", "e", "f"} },
			"fields warn: a\nfields warn: b\nfields warn: c\nfields warn: d\nfields warn: e\nfields warn: and 1 more",
		},
		{"a workload endpoint took the uplink", func(f *Facts) { f.Links[1].Held = true }, "endpoints fail: eth0 has this host's address 192.0.2.1, and table inet twill has it as a workload's: a WorkloadEndpoint took it, and what policy does not allow is dropped there"},
		{"a workload endpoint took lo", func(f *Facts) { f.Links[0].Held = true }, "endpoints fail: lo is the host's own traffic, and table inet twill has it as a workload's: a WorkloadEndpoint took it, and what policy does not allow is dropped there"},
		{"a workload endpoint took an uplink that has only the default route", func(f *Facts) {
			f.Links = append(f.Links, Link{Name: "ppp0", Up: true, Held: true})
			f.Routes = append(f.Routes, Route{Dst: prefix("::/0"), Link: "ppp0"})
		}, "endpoints fail: ppp0 has this host's default route, and table inet twill has it as a workload's: a WorkloadEndpoint took it, and what policy does not allow is dropped there"},
		{"a workload's interface is as it should be", func(f *Facts) { f.Links[2].Held = true }, ""},
		{"an endpoint was refused", func(f *Facts) { f.Agent.Errors = []string{"prod/a: interface eth0 is not a workload's"} }, "endpoints warn: prod/a: interface eth0 is not a workload's"},
		{"forwarding was turned off", func(f *Facts) { f.Sysctl["ipv6/conf/all/forwarding"] = "0" }, "forwarding fail: IPv6 is not forwarded, though the agent is ready"},
		{"IPv6 is not wanted", func(f *Facts) { f.Sysctl["ipv6/conf/all/forwarding"], f.Agent.Unforwarded = "0", []string{"IPv6"} }, ""},
		{"networkd takes routes for its own", func(f *Facts) { f.Networkd = &Networkd{RemovesRoutes: true, RemovesRules: true} }, "writers warn: systemd-networkd removes routes to other hosts' workloads when it starts or sets an interface up anew: packets are lost until they are back"},
		{"networkd takes rules for its own, of which there are some", func(f *Facts) {
			f.Networkd, f.Agent.Encryption = &Networkd{RemovesRules: true}, []Encryption{{Family: "IPv4", Interface: "wireguard.cali"}}
		}, "tunnels warn: h2 has no key of WireGuard of IPv4: what is for its workloads goes nowhere\nwriters warn: systemd-networkd removes WireGuard's rules when it starts: packets go without encryption until they are back"},
		{"networkd lets all stay", func(f *Facts) { f.Networkd = &Networkd{} }, ""},
		{"strict with two uplinks", func(f *Facts) {
			f.Links = append(f.Links, Link{Name: "eth1", Up: true, Addrs: []netip.Prefix{prefix("198.51.100.1/24")}})
		}, "reverse-path warn: strict on eth0, eth1, and the host has several uplinks (eth0, eth1): packets that take another way back are dropped"},
		{"strict on all, loose on each", func(f *Facts) {
			f.Links = append(f.Links, Link{Name: "eth1", Up: true, Addrs: []netip.Prefix{prefix("198.51.100.1/24")}})
			f.Sysctl["ipv4/conf/eth0/rp_filter"], f.Sysctl["ipv4/conf/eth1/rp_filter"] = "2", "2"
		}, ""},
		{"a name that no Node can have", func(f *Facts) { f.Node = "web_1" }, "node fail: the datastore has no Node web_1, and it can have none: metadata.name is \"web_1\": want lower-case letters, digits, dashes and dots; each part begins and ends with a letter or digit"},
		{"no Node", func(f *Facts) { f.Node = "h9" }, "node fail: the datastore has no Node h9"},
		{"a Node without an address", func(f *Facts) { f.node("h1", "") }, "node fail: Node h1 has no address: no BGP, no routes to its workloads"},
		{"an address of nobody", func(f *Facts) { f.node("h1", "192.0.2.77/24") }, "node fail: Node h1 says 192.0.2.77, which no interface of this host has"},
		{"an interface that is down", func(f *Facts) { f.Links[1].Up = false }, "node fail: 192.0.2.1 is on eth0, which is down"},
		{"another Node has it", func(f *Facts) { f.node("h3", "192.0.2.1") }, "duplicates fail: 192.0.2.1 is also that of node h3 (spec.bgp.ipv4Address)"},
		{"another host has it", func(f *Facts) { f.Duplicates[0].MAC = "02:00:00:00:00:09" }, "duplicates fail: 192.0.2.1 is also that of 02:00:00:00:00:09 on eth0"},
		{"nobody could be asked", func(f *Facts) { f.Duplicates[0].Err = "not permitted" }, "duplicates warn: 192.0.2.1: nobody on eth0 could be asked: not permitted"},
		{"no speaker", func(f *Facts) { f.BGP.Err, f.BGP.Sessions, f.Listeners = "no BGP daemon answers", nil, nil }, "bgp fail: no BGP daemon answers"},
		{"it is to be off", func(f *Facts) { f.BGP = BGP{Mode: "off", Err: "no BGP daemon answers"}; f.Listeners = nil }, ""},
		{"BIRD is to speak", func(f *Facts) {
			f.BGP.Mode = "bird"
			f.Processes = append(f.Processes, Process{"bird", 9})
			f.Listeners = []Listener{{At: netip.MustParseAddrPort("0.0.0.0:179"), Process: "bird", PID: 9}}
			f.Routes = append(f.Routes, Route{Dst: prefix("10.65.2.0/26"), Protocol: 12, Link: "eth0"})
		}, ""},
		{"BIRD speaks, and nobody keeps its configuration", func(f *Facts) {
			f.BGP, f.Processes = BGP{Mode: "bird", Err: "no BGP daemon answers"}, append(f.Processes, Process{"bird", 9})
		}, "bgp fail: no BGP daemon answers"},
		{"BIRD is to speak, and does not", func(f *Facts) { f.BGP = BGP{Mode: "bird", Err: "no BGP daemon answers"} }, "bgp fail: BIRD is to speak here, and does not run"},
		{"a session is down", func(f *Facts) {
			f.BGP.Sessions[0].Up, f.BGP.Sessions[0].State, f.BGP.Sessions[0].Why = false, "Active", "no answer yet"
			f.Peers = []Peer{{At: netip.MustParseAddrPort("192.0.2.2:179"), Node: "h2", Result: PortRefused}, {At: netip.MustParseAddrPort("192.0.2.3:179"), Result: PortSilent}, {At: netip.MustParseAddrPort("192.0.2.4:179"), Result: PortOpen}}
		}, "bgp fail: h2 (192.0.2.2): Active: no answer yet\nport warn: h2 (192.0.2.2:179): nobody listens\nport warn: 192.0.2.3:179: no answer"},
		{"somebody else has the port", func(f *Facts) {
			f.Listeners = []Listener{{At: netip.MustParseAddrPort("0.0.0.0:179"), Process: "bgpd", PID: 9}}
		}, "port fail: 0.0.0.0:179 is bgpd's (pid 9)"},
		{"nobody has the port", func(f *Facts) { f.Listeners = nil }, "port fail: nobody listens on [0.0.0.0:179]"},
		{"workloads know the host by an address that is not its Node's", func(f *Facts) { f.Source = addr("172.17.0.1") }, "source warn: the host sends to its workloads from 172.17.0.1 on docker0, and Node h1 is 192.0.2.1: policy and lists of trusted addresses that name the Node's do not mean what workloads get from it"},
		{"a host that sends to its workloads from nowhere, as where all its addresses are in VRFs", func(f *Facts) { f.Source = netip.IPv4Unspecified() }, "source warn: the host sends to its workloads from 0.0.0.0, and Node h1 is 192.0.2.1: policy and lists of trusted addresses that name the Node's do not mean what workloads get from it"},
		{"no workload to send to", func(f *Facts) { f.Source = netip.Addr{} }, ""},
		{"a narrow way", func(f *Facts) { f.Paths[0].Largest = 1400 }, "path-mtu fail: to h2 (192.0.2.2) packets of 1400 bytes arrive, and larger ones do not, though eth0 takes 1500: large transfers hang"},
		{"BIRD's routes", func(f *Facts) {
			f.Routes = append(f.Routes, Route{Dst: prefix("10.65.2.0/26"), Protocol: 12, Link: "eth0"})
		}, "routes warn: 10.65.2.0/26 dev eth0 is within pool 10.65.0.0/16, and made by BIRD"},
		{"another BGP daemon's routes", func(f *Facts) {
			f.Routes = append(f.Routes, Route{Dst: prefix("10.65.2.0/26"), Protocol: 186, Metric: 20, Link: "eth0"})
		}, "routes warn: 10.65.2.0/26 dev eth0 is within pool 10.65.0.0/16, and made by another BGP daemon"},
		{"the host's own network in a pool", func(f *Facts) {
			f.Routes = append(f.Routes, Route{Dst: prefix("10.65.0.0/16"), Protocol: 2, Link: "eth1"})
		}, "routes warn: 10.65.0.0/16 dev eth1 is within pool 10.65.0.0/16, and made by the kernel, for an address of an interface"},
		{"Calico's agent", func(f *Facts) { f.Processes = append(f.Processes, Process{"calico-felix", 9}) }, "writers fail: calico-felix runs here (pid 9): Calico's agent: both write routes of protocol 80, and each removes the other's"},
		{"kube-proxy's leftovers", func(f *Facts) { f.Processes = nil }, "chains warn: chains KUBE-… of kube-proxy are left in ip nat: they go on dropping and translating"},
		{"Calico's leftovers", func(f *Facts) {
			f.Chains = append(f.Chains, Chain{Family: "ip6", Table: "filter", Name: "cali-INPUT"}, Chain{Family: "ip6", Table: "filter", Name: "cali-FORWARD"},
				Chain{Family: "ip", Table: "raw", Name: "felix-PREROUTING", Legacy: true}, Chain{Family: "ip", Table: "calico", Name: "x"})
			f.Tables = append(f.Tables, Table{"ip", "calico"}, Table{"ip6", "calico"}, Table{"ip", "filter"})
			f.Sets = []string{"KUBE-CLUSTER-IP", "cali40a", "cali40b", "cali60a", "cali6t1", "calico-dhcp"}
			f.Routes = append(f.Routes, Route{Dst: prefix("10.77.0.5/32"), Protocol: 3, Link: "cali1"}, Route{Dst: prefix("10.77.0.9/32"), Protocol: 3, Link: "eth0"})
		}, `leftovers warn: 1 chain of iptables-legacy, ip (raw)
leftovers warn: 2 chains of iptables-nft, ip6 (filter)
leftovers warn: table ip calico
leftovers warn: table ip6 calico
leftovers warn: 4 ipsets: cali40a, cali40b, cali60a and 1 more
leftovers warn: 1 route: 10.77.0.5/32 dev cali1 proto 3`},
		{"routes to workloads, by settings", func(f *Facts) {
			f.Agent.RouteProtocol = 3
			f.Routes = append(f.Routes, Route{Dst: prefix("10.65.0.5/32"), Protocol: 3, Link: "cali1"}, Route{Dst: prefix("10.65.0.9/32"), Protocol: 3, Link: "eth0"})
		}, "routes warn: 10.65.0.9/32 dev eth0 is within pool 10.65.0.0/16, and made by boot scripts"},
		{"Calico's agent runs, and what it made is no leftover", func(f *Facts) {
			f.Processes = append(f.Processes, Process{"calico-node", 9})
			f.Sets = []string{"cali40a"}
		}, "writers fail: calico-node runs here (pid 9): Calico's agent: both write routes of protocol 80, and each removes the other's"},
		{"Calico's routes to other nodes", func(f *Facts) {
			f.Routes = append(f.Routes, Route{Dst: prefix("10.65.2.0/26"), Gateway: addr("192.0.2.2"), Protocol: 80, Link: "eth0"})
		}, "routes warn: 10.65.2.0/26 dev eth0 is within pool 10.65.0.0/16, and made by Calico's agent"},
		{"Docker's policy", func(f *Facts) { f.Chains[2].Drop = true }, "chains warn: chain FORWARD of table ip filter drops what no rule of it accepts: also what policy allows workloads"},
		{
			"services by IPVS", func(f *Facts) { f.Links = append(f.Links, Link{Name: "kube-ipvs0"}) },
			"services fail: kube-proxy is in mode IPVS (interface kube-ipvs0): what it forwards passes as the host's own, so that policy of workloads is not asked about it",
		},
		{"devices", func(f *Facts) {
			f.Links[3].Up = true
			f.Links = append(f.Links, Link{Name: "vxlan.calico"}, Link{Name: "cilium_host"})
		}, "leftovers warn: devices tunl0, vxlan.calico\ndevices warn: cilium_host is Cilium's"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy()
			tt.plant(f)
			found := Judge(f)
			if got := strings.TrimSpace(text(found)); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
			if Failed(found) != strings.Contains(tt.want, " fail: ") {
				t.Errorf("failed is %v", Failed(found))
			}
			for _, x := range found {
				if (x.Fix == "") != (x.Verdict == OK) {
					t.Errorf("%+v: what is not ok has a fix, and nothing else", x)
				}
			}
		})
	}
}
