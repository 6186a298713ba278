package calctest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// allSlots is every place where a resource may be.
func (w *Cluster) allSlots() []slot {
	var out []slot
	add := func(chance float64, plural, namespace, name string, make func() object) {
		out = append(out, slot{key(plural, namespace, name), make, chance})
	}
	for i := 1; i <= w.cfg.Nodes; i++ {
		name := numbered("h", i)
		add(1, "nodes", "", name, func() object { return w.node(i) })
		add(0.3, "felixconfigurations", "", "node."+name, func() object { return w.felix("node." + name) })
		add(0.75, "hostendpoints", "", name+"-eth0", func() object { return w.hostEndpoint(i) })
	}
	add(0.5, "felixconfigurations", "", "default", func() object { return w.felix("default") })
	if w.cfg.Pools > 0 || w.cfg.Services {
		for _, name := range []string{"default", "node.h1", "node.h2"} {
			add(0.3, "bgpconfigurations", "", name, func() object { return w.bgp(name) })
		}
	}
	for _, name := range []string{"t1", "t2", "t3"} {
		add(0.85, "tiers", "", name, func() object { return w.tier(name) })
	}
	// Whatever the store says of a built-in tier, it stays what it is.
	add(0.2, "tiers", "", api.TierDefault, func() object { return w.tier(api.TierDefault) })
	add(0.1, "tiers", "", api.TierKubeAdmin, func() object { return w.tier(api.TierKubeAdmin) })
	for i := 1; i <= w.cfg.Namespaces; i++ {
		ns := numbered("ns", i)
		add(0.95, "profiles", "", "kns."+ns, func() object { return w.profile("kns."+ns, "pcns.") })
		for _, sa := range accounts {
			add(0.9, "profiles", "", "ksa."+ns+"."+sa, func() object { return w.profile("ksa."+ns+"."+sa, "pcsa.") })
		}
		for _, name := range []string{"set1", "set2"} {
			add(0.7, "networksets", ns, name, func() object { return w.networkSet(ns, name) })
		}
		for _, name := range []string{"svc1-a", "svc1-b", "svc2-a"} {
			add(0.85, "kubernetesendpointslices", ns, name, func() object { return w.endpointSlice(ns, name) })
		}
		add(0.5, "livemigrations", ns, "move", func() object { return w.migration(ns, "move") })
		add(0.4, "stagedkubernetesnetworkpolicies", ns, "kube", func() object { return w.stagedKubernetes(ns, "kube") })
		add(0.3, "networkpolicies", ns, "knp.default.kube", func() object { return w.policy(api.KindNetworkPolicy, ns, "knp.default.kube") })
		add(0.3, "stagednetworkpolicies", ns, "staged", func() object { return w.staged(api.KindStagedNetworkPolicy, ns, "staged") })
	}
	add(0.8, "profiles", "", "custom", func() object { return w.profile("custom", "") })
	add(0.95, "profiles", "", "open", func() object {
		allow := []object{{"action": "Allow"}}
		return resource(api.KindProfile, "", "open", nil, object{"ingress": allow, "egress": allow})
	})
	add(0.8, "profiles", "", "closed", func() object { return w.denyProfile("closed") })
	for _, name := range []string{"gset1", "gset2"} {
		add(0.8, "globalnetworksets", "", name, func() object { return w.networkSet("", name) })
	}
	add(0.3, "stagedglobalnetworkpolicies", "", "staged", func() object { return w.staged(api.KindStagedGlobalNetworkPolicy, "", "staged") })
	for i := range w.cfg.Policies {
		ns, name := numbered("ns", 1+i%w.cfg.Namespaces), numbered("p", i)
		add(0.8, "networkpolicies", ns, name, func() object { return w.policy(api.KindNetworkPolicy, ns, name) })
		add(0.8, "globalnetworkpolicies", "", numbered("g", i), func() object { return w.policy(api.KindGlobalNetworkPolicy, "", numbered("g", i)) })
		add(0.15, "stagednetworkpolicies", ns, name, func() object { return w.staged(api.KindStagedNetworkPolicy, ns, name) })
		add(0.15, "stagedglobalnetworkpolicies", "", numbered("g", i), func() object { return w.staged(api.KindStagedGlobalNetworkPolicy, "", numbered("g", i)) })
	}
	return append(append(out, w.addressSlots()...), w.blockSlots()...)
}

// addressSlots are workloads, and the pools that they have addresses of.
func (w *Cluster) addressSlots() (out []slot) {
	add := func(chance float64, plural, namespace, name string, make func() object) {
		out = append(out, slot{key(plural, namespace, name), make, chance})
	}
	for i := range w.cfg.Workloads {
		e := w.place(i)
		add(0.95, "workloadendpoints", e.namespace, e.resource, func() object { return w.workload(i) })
	}
	if w.cfg.Pools > 0 { // with the CIDRs of pools that are there, before those and after them
		add(0.3, "ippools", "", "again", func() object { return resource(api.KindIPPool, "", "again", nil, w.pool("10.65.0.0/16")) })
		add(0.3, "ippools", "", "second", func() object { return resource(api.KindIPPool, "", "second", nil, w.pool("fd00:65::/64")) })
	}
	for i := range w.cfg.Pools {
		cidr := fmt.Sprintf("10.%d.0.0/16", 65+i)
		switch i % 3 {
		case 1:
			cidr = "fd00:65::/64"
		case 2: // within the first
			cidr = "10.65.1.0/24"
		}
		add(0.7, "ippools", "", numbered("pool", i), func() object {
			return resource(api.KindIPPool, "", numbered("pool", i), nil, w.pool(cidr))
		})
	}
	return out
}

// pool is one of any mode that its family may have.
func (w *Cluster) pool(cidr string) object {
	spec := object{"cidr": cidr, "natOutgoing": w.maybe(0.5), "allowedUses": pick(w, [][]string{nil, {"Workload", "Tunnel"}, {"Workload"}, {"Tunnel"}})}
	modes := []string{"vxlanMode", "ipipMode"}
	if strings.Contains(cidr, ":") {
		modes = modes[:1]
	}
	spec[pick(w, modes)] = pick(w, []string{"Never", "Always", "Always", "CrossSubnet"})
	return spec
}

// blockSlots are blocks of addresses, some of which hold workloads' addresses.
func (w *Cluster) blockSlots() []slot {
	var out []slot
	for i := range w.cfg.Blocks {
		cidr := netip.MustParsePrefix(fmt.Sprintf("10.65.%d.0/26", i))
		if i%3 == 2 { // as small as an address, and a workload's
			cidr = netip.MustParsePrefix(w.place(i%w.cfg.Workloads).v4 + "/32")
		} else if i%3 == 1 && w.cfg.Pools > 0 {
			cidr = netip.MustParsePrefix(fmt.Sprintf("fd00:65::%x:0/122", i))
		}
		out = append(out, slot{api.BlockKey(cidr), func() object {
			b := object{"cidr": cidr.String(), "affinity": nil, "allocations": []any{}, "unallocated": []int{}, "attributes": []any{}}
			if w.cfg.Pools > 0 && w.maybe(0.5) {
				w.lend(b, cidr)
			}
			if w.maybe(0.8) {
				b["affinity"] = "host:" + numbered("h", 1+w.rng.IntN(w.cfg.Nodes))
			}
			return b
		}, 0.7})
	}
	return out
}

// tunnelEnd gives a node an end of a tunnel, at times another node's, and a network that others are on or are not.
func (w *Cluster) tunnelEnd(i int, spec object) {
	v4, v6 := nodeAddrs(i)
	if w.maybe(0.3) {
		spec["bgp"] = object{"ipv4Address": v4 + "/32", "ipv6Address": v6 + "/64"}
	}
	if bgp, is := spec["bgp"].(object); is && w.maybe(0.8) {
		bgp["ipv4IPIPTunnelAddr"] = fmt.Sprintf("10.65.8.%d", i)
		if w.maybe(0.1) {
			bgp["ipv4IPIPTunnelAddr"] = "10.65.8.1"
		}
	}
	if bgp, is := spec["bgp"].(object); is && w.maybe(0.2) { // Kubernetes alone knows its address
		delete(bgp, "ipv4Address")
		spec["addresses"] = []object{{"address": fmt.Sprintf("198.51.100.%d", i), "type": "ExternalIP"}, {"address": v4, "type": "InternalIP"}}[pick(w, []int{0, 1}):]
	}
	if w.maybe(0.8) {
		spec["ipv4VXLANTunnelAddr"] = fmt.Sprintf("10.65.9.%d", i)
	}
	if w.maybe(0.1) {
		spec["ipv4VXLANTunnelAddr"] = "10.65.9.1"
	}
	if w.maybe(0.1) {
		spec["vxlanTunnelMACAddr"] = "66:ac:4a:e9:72:85" // h1's
	}
	if w.maybe(0.7) {
		spec["ipv6VXLANTunnelAddr"] = fmt.Sprintf("fd00:65::9:%x", i)
	}
}

var accounts = []string{"sa1", "sa2"}

// place is what never changes about a workload.
type place struct {
	namespace, resource, workload, node, link string
	v4, v6                                    string
}

func (w *Cluster) place(i int) place {
	node := numbered("h", 1+i%w.cfg.Nodes)
	if i%2 == 0 {
		node = "h1" // half of all, so that both ends are often on one host
	}
	name := numbered("w", i)
	return place{
		namespace: numbered("ns", 1+(i/2)%w.cfg.Namespaces), resource: node + "-k8s-" + name + "-eth0", workload: name, node: node,
		link: numbered("cali", i), v4: fmt.Sprintf("10.65.%d.%d", i/4, 1+i), v6: fmt.Sprintf("fd00:65::%x:%x", i/4, 1+i),
	}
}

func nodeAddrs(i int) (v4, v6 string) {
	return fmt.Sprintf("192.0.2.%d", i), fmt.Sprintf("2001:db8::%x", i)
}

func (w *Cluster) node(i int) object {
	v4, v6 := nodeAddrs(i)
	spec := object{"bgp": object{"ipv4Address": v4 + "/24", "ipv6Address": v6 + "/64"}}
	if w.maybe(0.3) {
		spec["addresses"] = []object{{"address": v4 + "/24"}, {"address": fmt.Sprintf("198.51.100.%d", i)}}
	}
	if w.cfg.Pools > 0 {
		w.tunnelEnd(i, spec)
	}
	n := resource(api.KindNode, "", numbered("h", i), object{"rack": pick(w, []string{"a", "b"})}, spec)
	if w.cfg.Pools > 0 {
		w.wireguardEnd(i, n)
	}
	return n
}

func (w *Cluster) felix(name string) object {
	spec := object{"defaultEndpointToHostAction": pick(w, []string{"Drop", "Return", "Accept"})}
	if w.maybe(0.3) {
		spec["failsafeInboundHostPorts"] = pick(w, [][]object{{}, {{"protocol": "tcp", "port": 443}}, {{"protocol": "udp", "port": 53, "net": "203.0.113.0/24"}}})
	}
	if w.maybe(0.3) {
		spec["failsafeOutboundHostPorts"] = pick(w, [][]object{{}, {{"protocol": "tcp", "port": 53}}, {{"protocol": "tcp", "port": 443, "net": "2001:db8::/32"}}})
	}
	if w.maybe(0.3) {
		spec["allowVXLANPacketsFromWorkloads"] = w.maybe(0.6)
	}
	if w.maybe(0.1) {
		spec["vxlanPort"] = 8472
	}
	if w.cfg.Services && w.maybe(0.3) {
		spec["serviceLoopPrevention"] = pick(w, []string{"Drop", "disabled"})
	}
	if w.cfg.Pools > 0 {
		w.nat(spec)
	} else if w.maybe(0.3) {
		spec["interfacePrefix"] = pick(w, []string{"cali", "tap,cali", "tap,cali"})
	}
	return resource(api.KindFelixConfiguration, "", name, nil, spec)
}

// nat is what only worlds with pools have: package verdict/world does not read it.
func (w *Cluster) nat(spec object) {
	for _, s := range []struct {
		name   string
		values []any
	}{
		{"natOutgoingExclusions", []any{"IPPoolsOnly", "IPPoolsAndHostIPs"}},
		{"serviceLoopPrevention", []any{"Drop", "Reject", "Disabled"}},
		{"localSubnetL2Reachability", []any{"PodsAndLoadBalancers", "PodsAndLoadBalancers", "Disabled"}},
		{"floatingIPs", []any{"Enabled", "Enabled", "Enabled", "Disabled"}},
		{"natPortRange", []any{"32768:65535", "1024:2000"}},
		{"metadataAddr", []any{"192.0.2.1", "127.0.0.1", "None"}},
		{"metadataPort", []any{80, 8775}},
		{"natOutgoingAddress", []any{"192.0.2.1", "192.0.2.77"}},
		{"interfacePrefix", []any{"cali", "tap,cali"}},
		{"allowIPIPPacketsFromWorkloads", []any{true, false}},
		{"vxlanEnabled", []any{true, false}},
		{"vxlanVNI", []any{4096, 77}},
		{"vxlanMTU", []any{0, 1400}},
		{"vxlanMTUV6", []any{0, 1300}},
		{"ipipEnabled", []any{true, false}},
		{"ipipMTU", []any{0, 1400}},
		{"wireguardEnabled", []any{true, false, false}},
		{"wireguardEnabledV6", []any{true, false, false}},
		{"wireguardAllowUnencrypted", []any{true, false}},
		{"wireguardHostEncryptionEnabled", []any{true, true, false}},
		{"wireguardListeningPort", []any{51820, 3784, 7777}},
		{"mtuIfacePattern", []any{"^bond.*"}},
		{"programClusterRoutes", []any{"Enabled", "EnabledNoEncapOnly", "EnabledIPIPOnly", "Disabled"}},
		{"externalNodesList", []any{[]string{"198.51.100.0/24"}, []string{"198.51.100.9", "192.0.2.2", "2001:db8:9::/64"}, []string{}}},
	} {
		if w.maybe(0.4) {
			spec[s.name] = pick(w, s.values)
		}
	}
}

func (w *Cluster) hostEndpoint(i int) object {
	v4, v6 := nodeAddrs(i)
	spec := object{
		"node": numbered("h", i), "interfaceName": "eth0", "expectedIPs": []string{v4, v6}, "ports": w.ports(),
		"profiles": pick(w, [][]string{{"open"}, {"open"}, {"open"}, {"custom", "open"}, {"kns.ns1"}, nil}),
	}
	switch {
	case w.maybe(0.2):
		spec["interfaceName"] = "*"
	case w.maybe(0.4): // the interface alone says where it is
		delete(spec, "expectedIPs")
	case w.maybe(0.1): // addresses that nobody has
		spec["expectedIPs"] = []string{"198.51.100.77"}
	}
	made := resource(api.KindHostEndpoint, "", numbered("h", i)+"-eth0", w.claims(w.labels()), spec)
	if !w.cfg.Unlimited && w.maybe(0.2) {
		made["metadata"].(object)["annotations"] = object{api.AnnotationDSCP: pick(w, []string{"EF", "af11", "63"})}
	}
	return made
}

func (w *Cluster) tier(name string) object {
	spec := object{}
	if w.maybe(0.9) {
		spec["order"] = pick(w, []float64{10, 20, 20, 500, 2_000_000, 20_000_000})
	}
	if w.maybe(0.8) {
		spec["defaultAction"] = pick(w, []string{"Deny", "Pass", "Pass", "Pass"})
	}
	return resource(api.KindTier, "", name, nil, spec)
}

func (w *Cluster) labels() object {
	out := object{}
	for _, l := range []struct {
		name   string
		values []string
	}{{"app", []string{"web", "db", "cache"}}, {"role", []string{"a", "b"}}, {"zone", []string{"north", "north-east"}}} {
		if w.maybe(0.7) {
			out[l.name] = pick(w, l.values)
		}
	}
	return out
}

func (w *Cluster) profile(name, prefix string) object {
	labels := object{}
	for _, l := range [][]string{{"env", "prod", "test"}, {"team", "red", "blue"}} {
		if w.maybe(0.7) {
			labels[prefix+l[0]] = pick(w, l[1:])
		}
	}
	if w.maybe(0.3) {
		labels[pick(w, []string{"app", "role"})] = pick(w, []string{"web", "a", "db"})
	}
	spec := object{"labelsToApply": w.claims(labels)}
	switch {
	case prefix == "pcns." && w.maybe(0.6):
		spec["ingress"], spec["egress"] = []object{{"action": "Allow"}}, []object{{"action": "Allow"}}
	case prefix != "pcsa.":
		spec["ingress"], spec["egress"] = w.rules(3, false, false), w.rules(3, false, true)
	}
	return resource(api.KindProfile, "", name, nil, spec)
}

// claims adds, at times, a label that would make something one of another namespace or account, and must count for nothing. On a
// profile, those with a prefix count.
func (w *Cluster) claims(labels object) object {
	if w.cfg.Wrong > 0 && w.maybe(0.3) {
		label := pick(w, [][2]string{{"pcns.env", "prod"}, {"pcns.team", "red"}, {"pcsa.team", "red"}, {api.LabelNamespace, "ns1"}, {api.LabelServiceAccount, accounts[0]}})
		labels[label[0]] = label[1]
	}
	return labels
}

// endpointSlice is a part of the service that its name begins with.
func (w *Cluster) endpointSlice(namespace, name string) object {
	var v4, v6 []object
	for _, i := range w.rng.Perm(w.cfg.Workloads)[w.rng.IntN(w.cfg.Workloads):] {
		v4, v6 = append(v4, object{"addresses": []string{w.place(i).v4}}), append(v6, object{"addresses": []string{w.place(i).v6}})
	}
	kind, endpoints := "IPv4", slices.Concat(v4, []object{{"addresses": []string{"203.0.113.5"}, "conditions": object{"ready": false}}})
	if w.maybe(0.5) {
		kind, endpoints = "IPv6", v6
	}
	o := resource(api.KindKubernetesEndpointSlice, namespace, name, object{api.LabelServiceName: name[:4]}, nil)
	delete(o, "spec")
	o["addressType"], o["endpoints"] = kind, endpoints
	o["ports"] = some(w, 6, object{"name": "http", "port": 80}, object{"protocol": "UDP", "port": 53}, object{"protocol": "UDP", "port": 80}, object{"protocol": "TCP", "port": 443}, object{"name": "none"},
		object{"protocol": "TCP", "port": 53})
	return o
}

func (w *Cluster) denyProfile(name string) object {
	rules := []object{{"action": "Deny", "protocol": pick(w, []string{"TCP", "UDP"})}, {"action": pick(w, []string{"Log", "Deny"})}}
	return resource(api.KindProfile, "", name, nil, object{"ingress": rules, "egress": rules})
}

func (w *Cluster) networkSet(namespace, name string) object {
	kind := api.KindNetworkSet
	if namespace == "" {
		kind = api.KindGlobalNetworkSet
	}
	return resource(kind, namespace, name, w.claims(w.labels()), object{"nets": some(w, 3, w.allNets()...)})
}

// allNets are prefixes around the addresses that queries use; in sets they may
// be unmasked.
func (w *Cluster) allNets() []string {
	return append(w.maskedNets(), "203.0.113.77/25", "fd00:65::1/112", "10.65.1.9/23", "192.0.2.1/30")
}

func (w *Cluster) maskedNets() []string {
	out := []string{
		"10.65.0.0/16", "10.65.0.0/24", "10.65.1.0/24", "fd00:65::/64", "fd00:65::/112", "192.0.2.0/24", "2001:db8::/64",
		"203.0.113.0/24", "203.0.113.0/25", "2001:db8:ffff::/48", "0.0.0.0/0", "::/0", "203.0.113.5/32",
	}
	for range 3 {
		p := w.place(w.rng.IntN(w.cfg.Workloads))
		out = append(out, p.v4+"/32", p.v6+"/128")
	}
	return out
}

func (w *Cluster) workload(i int) object {
	p := w.place(i)
	labels := w.labels()
	labels[api.LabelNamespace], labels[api.LabelOrchestrator] = p.namespace, "k8s"
	if w.cfg.Wrong > 0 && w.maybe(0.1) {
		labels["pcns.env"] = "prod" // must count for nothing
	}
	if w.cfg.Wrong > 0 && w.maybe(0.05) {
		labels[api.LabelNamespace] = "ns1" // a lie, at times
	}
	nets := [][]string{{p.v4 + "/32", p.v6 + "/128"}, {p.v4 + "/32", p.v6 + "/128"}, {p.v4 + "/32"}, {p.v6 + "/128"}}
	spec := object{
		"orchestrator": "k8s", "workload": p.workload, "pod": p.workload, "endpoint": "eth0", "node": p.node, "containerID": "c" + p.workload,
		"interfaceName": p.link, "mac": "ee:ee:ee:ee:ee:ee", "ipNetworks": pick(w, nets), "allowedIps": pick(w, [][]string{{}, {}, {p.v4 + "/32"}, {p.v6}}), "ports": w.ports(),
	}
	profiles := []string{"kns." + p.namespace}
	if w.maybe(0.8) {
		sa := pick(w, accounts)
		spec["serviceAccountName"] = sa
		profiles = append(profiles, "ksa."+p.namespace+"."+sa)
	}
	switch {
	case w.maybe(0.12):
		profiles = nil
	case w.maybe(0.3):
		profiles = append([]string{pick(w, []string{"custom", "closed", "closed", "missing"})}, profiles...)
	case w.maybe(0.1):
		profiles = append(profiles[1:], api.ProfileDefaultAllow)
	}
	spec["profiles"] = profiles
	made := resource(api.KindWorkloadEndpoint, p.namespace, p.resource, labels, spec)
	if w.cfg.Pools > 0 && w.maybe(0.5) {
		if w.float(p, spec); w.maybe(0.2) {
			spec["orchestrator"], labels[api.LabelOrchestrator] = "openstack", "openstack"
		}
	}
	if w.maybe(0.7) {
		made["metadata"].(object)["creationTimestamp"] = pick(w, []string{"2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"})
	}
	if !w.cfg.Unlimited && w.maybe(0.2) {
		spec["qosControls"] = w.limits()
	}
	if w.cfg.Wrong > 0 && w.maybe(0.05) {
		spec["interfaceName"] = w.place((i + 2) % w.cfg.Workloads).link // perhaps another's
	}
	return made
}

// limits are a rate of one direction at least; a wrong one is a burst of the other.
func (w *Cluster) limits() object {
	way := pick(w, []string{"ingress", "egress"})
	q := object{way + "PacketRate": 1 + w.rng.IntN(100)}
	if w.cfg.Wrong > 0 && w.maybe(0.1) {
		way = pick(w, []string{"ingress", "egress"})
	}
	if w.maybe(0.5) {
		q[way+"PacketBurst"] = 1 + w.rng.IntN(100)
	}
	if w.maybe(0.5) {
		q["egressMaxConnections"] = w.rng.IntN(3) * 2_000_000_000
	}
	if w.maybe(0.3) {
		q["dscp"] = pick(w, []any{"EF", "af11", 0, 63})
	}
	if way := pick(w, []string{"ingress", "egress"}); w.maybe(0.5) {
		q[way+"Bandwidth"] = 1000 * (1 + w.rng.IntN(9))
		if w.maybe(0.5) {
			q[way+"Burst"] = 1000 * w.rng.IntN(9)
		}
		if w.maybe(0.5) {
			q[way+"Peakrate"], q[way+"Minburst"] = 10_000, 1500
		}
	}
	return q
}

// float gives a workload floating addresses, some of which others have, or want, too, or are in no pool.
func (w *Cluster) float(p place, spec object) {
	var nats []object
	for _, n := range w.rng.Perm(5)[:1+w.rng.IntN(2)] {
		external := []string{"10.65.200.1", "10.65.200.2", "203.0.113.9", "10.65.9.1", w.place(w.rng.IntN(w.cfg.Workloads)).v4}[n]
		nats = append(nats, object{"internalIP": p.v4, "externalIP": external})
	}
	if w.maybe(0.5) {
		nats = append(nats, object{"internalIP": p.v6, "externalIP": "fd00:65::f:1"})
	}
	spec["ipNATs"] = nats
}

func (w *Cluster) ports() []object {
	var out []object
	for _, name := range portNames {
		if w.maybe(0.9) {
			out = append(out, object{"name": name, "protocol": pick(w, []string{"TCP", "TCP", "TCP", "UDP"}), "port": pick(w, portNumbers[name])})
		}
	}
	return out
}
