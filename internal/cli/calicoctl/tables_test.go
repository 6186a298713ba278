package calicoctl_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestTablesHaveCalicoctlsColumns, narrow and wide, without a resource and with one, by each name of a kind.
func TestTablesHaveCalicoctlsColumns(t *testing.T) {
	long := make([]string, 60)
	for i := range long {
		long[i] = fmt.Sprintf("10.0.%d.0/28", i)
	}
	const cut = "10.0.0.0/28,10.0.1.0/28,10.0.2.0/28,10.0.3.0/28,10.0.4.0/28,10.0.5.0/28,10.0...."
	few := func(kind, meta string) string {
		return resource(kind, meta, "nets: [10.0.0.1, 11.0.0.0/16, 'feed:beef::1']")
	}
	policyTitles, policyWide := "NAME TIER", "NAME TIER ORDER SELECTOR"
	for _, k := range []struct {
		names, titles, wide string
		resource            string   // empty: calicoctl makes none
		row, wideRow        []string // its cells
	}{
		{"bgpconfiguration bgpconfigurations bgpconfig bgpconfigs", "NAME LOGSEVERITY MESHENABLED ASNUMBER", "NAME LOGSEVERITY MESHENABLED ASNUMBER", resource("BGPConfiguration", "name: default", "logSeverityScreen: Info, nodeToNodeMeshEnabled: false"), []string{"default", "Info", "false", "-"}, []string{"default", "Info", "false", "-"}},
		{"bgpfilter bgpfilters bgpf bgpfs bf bfs", "NAME NUMEXPORT NUMIMPORT", "NAME NUMEXPORT NUMIMPORT", resource("BGPFilter", "name: f", "exportV4: [{action: Accept, cidr: 10.0.0.0/8, matchOperator: In}], exportV6: [{action: Reject}]"), []string{"f", "2", "0"}, []string{"f", "2", "0"}},
		{"bgppeer bgppeers bgpp bgpps bp bps", "NAME PEERIP NODE ASN", "NAME PEERIP NODE ASN", peer, []string{"peer-a", "192.168.0.250", "node1", "64514"}, []string{"peer-a", "192.168.0.250", "node1", "64514"}},
		{"bgppeer", "NAME PEERIP NODE ASN", "NAME PEERIP NODE ASN", resource("BGPPeer", "name: rr", "nodeSelector: has(rr), peerSelector: has(rr)"), []string{"rr", "", "has(rr)", "0"}, []string{"rr", "", "has(rr)", "0"}},
		{"bgppeer", "NAME PEERIP NODE ASN", "NAME PEERIP NODE ASN", resource("BGPPeer", "name: all", "peerSelector: has(rr)"), []string{"all", "", "(global)", "0"}, []string{"all", "", "(global)", "0"}},
		{"caliconodestatus caliconodestatuses nodestatus nodestatuses", "NAME NODE", "NAME NODE CLASSES", resource("CalicoNodeStatus", "name: s", "node: n1, classes: [Agent, BGP], updatePeriodSeconds: 10"), []string{"s", "n1"}, []string{"s", "n1", "Agent,BGP"}},
		{"clusterinformation clusterinformations clusterinfo clusterinfos", "NAME CLUSTERGUID CLUSTERTYPE CALICOVERSION DATASTOREREADY", "NAME CLUSTERGUID CLUSTERTYPE CALICOVERSION DATASTOREREADY", "", nil, nil},
		{"felixconfiguration felixconfigurations felixconfig felixconfigs", "NAME", "NAME", resource("FelixConfiguration", "name: node.h1", "ipv6Support: false"), []string{"node.h1"}, []string{"node.h1"}},
		{"globalnetworkpolicy globalnetworkpolicies gnp gnps", policyTitles, policyWide, gnp, []string{"all", "default"}, []string{"all", "default", "100", "type=='database'"}},
		{"globalnetworkset globalnetworksets gnetsets", "NAME", "NAME NETS", few("GlobalNetworkSet", "name: s"), []string{"s"}, []string{"s", "10.0.0.1,11.0.0.0/16,feed:beef::1"}},
		{"globalnetworkset", "NAME", "NAME NETS", resource("GlobalNetworkSet", "name: s", "nets: ["+strings.Join(long, ", ")+"]"), []string{"s"}, []string{"s", cut}},
		{"hostendpoint hostendpoints hep heps", "NAME NODE", "NAME NODE INTERFACE IPS PROFILES", resource("HostEndpoint", "name: e", "node: h1, interfaceName: eth0, expectedIPs: [10.0.0.1, 10.0.0.2], profiles: [p1, p2]"), []string{"e", "h1"}, []string{"e", "h1", "eth0", "10.0.0.1,10.0.0.2", "p1,p2"}},
		{"ipamconfiguration ipamconfigurations ipamconfig ipamconfigs", "NAME STRICTAFFINITY AUTOALLOCATEBLOCKS", "NAME STRICTAFFINITY AUTOALLOCATEBLOCKS MAXBLOCKSPERHOST", resource("IPAMConfiguration", "name: default", "strictAffinity: true, autoAllocateBlocks: true, maxBlocksPerHost: 4"), []string{"default", "true", "true"}, []string{"default", "true", "true", "4"}},
		{"ippool ippools ipp ipps pool pools", "NAME CIDR SELECTOR", "NAME CIDR NAT IPIPMODE VXLANMODE DISABLED DISABLEBGPEXPORT SELECTOR", pool4, []string{"pool-a", "10.0.1.0/24", "foo == 'bar'"}, []string{"pool-a", "10.0.1.0/24", "false", "Always", "Never", "false", "false", "foo == 'bar'"}},
		{"ipreservation ipreservations reservation reservations", "NAME", "NAME CIDRS", resource("IPReservation", "name: r", "reservedCIDRs: [10.0.1.0/24, 11.0.0.1/32]"), []string{"r"}, []string{"r", "10.0.1.0/24,11.0.0.1/32"}},
		{"kubecontrollersconfiguration kubecontrollersconfigurations kubecontrollersconfig kubecontrollersconfigs", "NAME", "NAME", resource("KubeControllersConfiguration", "name: default", "logSeverityScreen: Info, controllers: {node: {syncLabels: Enabled}}"), []string{"default"}, []string{"default"}},
		{"networkpolicy networkpolicies policy np policies pol pols", policyTitles, policyWide, np, []string{"web", "default"}, []string{"web", "default", "100", "app == 'web'"}},
		{"networkpolicy", policyTitles, policyWide, resource("NetworkPolicy", "name: a", "selector: all()"), []string{"a", "default"}, []string{"a", "default", "<nil>", "all()"}},
		{"networkset networksets netsets", "NAME", "NAME NETS", few("NetworkSet", "name: s, namespace: default"), []string{"s"}, []string{"s", "10.0.0.1,11.0.0.0/16,feed:beef::1"}},
		{"node nodes no nos", "NAME", "NAME ASN IPV4 IPV6", node1, []string{"node1"}, []string{"node1", "(64512)", "1.2.3.4/24", "aa:bb:cc::ff/120"}},
		{"node", "NAME", "NAME ASN IPV4 IPV6", resource("Node", "name: n2", "bgp: {ipv4Address: 1.2.3.4/24, asNumber: 65001}"), []string{"n2"}, []string{"n2", "65001", "1.2.3.4/24", ""}},
		{"node", "NAME", "NAME ASN IPV4 IPV6", resource("Node", "name: n3", ""), []string{"n3"}, []string{"n3", "", "", ""}},
		{"profile profiles pro pros", "NAME", "NAME LABELS", resource("Profile", "name: p", "labelsToApply: {b: c, a: d}"), []string{"p"}, []string{"p", "a=d,b=c"}},
		{"stagedglobalnetworkpolicy stagedglobalnetworkpolicies sgnp sgnps", policyTitles, policyWide, resource("StagedGlobalNetworkPolicy", "name: a", "order: 1.5, selector: all()"), []string{"a", "default"}, []string{"a", "default", "1.5", "all()"}},
		{"stagedkubernetesnetworkpolicy stagedkubernetesnetworkpolicies stagedkubernetespolicy sknp stagedkubernetespolicies skpol skpols", "NAME", "NAME PODSELECTOR", resource("StagedKubernetesNetworkPolicy", "name: a", "podSelector: {matchLabels: {role: db}}, policyTypes: [Ingress]"), []string{"a"}, []string{"a", "{map[role:db] []}"}},
		{"stagednetworkpolicy stagednetworkpolicies stagedpolicy snp stagedpolicies spol spols", policyTitles, policyWide, resource("StagedNetworkPolicy", "name: a", "order: 10, selector: all()"), []string{"a", "default"}, []string{"a", "default", "10", "all()"}},
		{"tier tiers", "NAME ORDER", "NAME ORDER", resource("Tier", "name: t", "order: 5"), []string{"t", "5"}, []string{"t", "5"}},
		{"workloadendpoint workloadendpoints wep weps", "WORKLOAD NODE NETWORKS INTERFACE", "NAME WORKLOAD NODE NETWORKS INTERFACE PROFILES NATS", strings.Replace(wep1, "ns1", "default", 1), []string{"abcd", "node1", "1.2.3.4/32", "cali1"}, []string{"node1-k8s-abcd-eth0", "abcd", "node1", "1.2.3.4/32", "cali1", "p1,p2", ""}},
	} {
		s := start(t)
		for _, name := range strings.Fields(k.names) {
			s.wantTable("get "+name, k.titles, nil)
			s.wantTable("get "+strings.ToUpper(name)+" -o wide", k.wide, nil)
		}
		if k.resource == "" {
			continue
		}
		name, _, _ := strings.Cut(k.names, " ")
		s.follow(step{args: "create -f {}", text: k.resource})
		s.wantTable("get "+name+" -o ps", k.titles, k.row)
		s.wantTable("get "+name+" -o wide", k.wide, k.wideRow)
		s.follow(step{args: "get -f {} -o wide", text: k.resource, has: []string{strings.Fields(k.wide)[0]}}, step{args: "delete -f {}", text: k.resource})
	}
}

// wantTable runs a get that must print this table: titles, and if there is a row, it among others.
func (s *session) wantTable(args, titles string, row []string) {
	s.Helper()
	code, out := s.run(args, "")
	lines := strings.Split(out, "\n")
	if code != 0 || strings.Join(strings.Fields(lines[0]), " ") != titles {
		s.Errorf("calicoctl %s: %d, titles %q, want %q\n%s", args, code, lines[0], titles, out)
		return
	}
	if row == nil {
		return
	}
	var at []int // where columns begin
	for _, t := range strings.Fields(titles) {
		at = append(at, strings.Index(lines[0]+" ", t+" "))
	}
	for _, l := range lines[1:] {
		if same(l, at, row) {
			return
		}
	}
	s.Errorf("calicoctl %s: no row %q in\n%s", args, row, out)
}

// same reports whether a line has these cells at the columns.
func same(line string, at []int, cells []string) bool {
	for i, c := range cells {
		end := len(line)
		if i+1 < len(at) {
			end = at[i+1]
		}
		if end > len(line) || at[i] > end || strings.TrimSpace(line[at[i]:end]) != c {
			return false
		}
	}
	return len(cells) == len(at)
}

// TestDocumentsAndTemplates: what scripts take apart.
func TestDocumentsAndTemplates(t *testing.T) {
	s := start(t)
	s.follow(
		step{args: "create -f {}", text: list(pool4, pool6, np, node1)},
		step{args: "get profile -o yaml", has: []string{"apiVersion: projectcalico.org/v3\nitems:\n- apiVersion: projectcalico.org/v3\n  kind: Profile\n  metadata:\n    creationTimestamp: null\n    name: projectcalico-default-allow\n    resourceVersion: \"0\"\n" +
			"  spec:\n    egress:\n    - action: Allow\n      destination: {}\n      source: {}\n    ingress:\n    - action: Allow\n      destination: {}\n      source: {}\nkind: ProfileList\nmetadata:\n  resourceVersion: "}},
		step{args: "get ippool pool-a -o json", has: []string{"{\n  \"kind\": \"IPPool\",\n  \"apiVersion\": \"projectcalico.org/v3\",\n  \"metadata\": {", `"cidr": "10.0.1.0/24"`}},
		step{args: "get ippool pool-a pool-b -o json", has: []string{"[\n  {\n    \"kind\": \"IPPool\""}},
		step{args: "get -f {} -o yaml", text: list(pool4, np), has: []string{"- apiVersion: projectcalico.org/v3\n  kind: IPPool\n", "- apiVersion: projectcalico.org/v3\n  kind: NetworkPolicy\n"}},
		step{args: "get np web -o yaml --export", has: []string{"creationTimestamp: null", "name: web"}, not: []string{"uid:", "resourceVersion:", "namespace: default"}},
		step{args: "get np -o yaml --export", has: []string{"uid: ", "namespace: default", "resourceVersion: "}, not: []string{"creationTimestamp: null"}},
		step{args: "get ippool -o custom-columns=CIDR,NAME", want: "CIDR             NAME     \n10.0.1.0/24      pool-a   \nfed0:8001::/64   pool-b"},
		step{args: "get ippool -o custom-columns=FOO", fails: true, has: []string{"Unknown heading FOO, valid values are: NAME, CIDR, NAT"}},
		step{args: "get ippool -o custom-columns=", fails: true, want: "need to specify at least one column"},
		step{args: "get np -A -o 'go-template={{range .}}{{range .Items}}{{.ObjectMeta.Namespace}}/{{.Name}} {{.Spec.Selector}} {{.Spec.Order}}{{end}}{{end}}'", want: "default/web app == 'web' 100"},
		step{args: "get node node1 -o 'go-template={{range .}}{{.Spec.BGP.IPv4Address}} {{config \"asnumber\"}} {{join .Spec.Addresses \",\"}}{{end}}'", want: "1.2.3.4/24 64512"},
		step{args: "get ippool -o go-template-file={}", text: "{{range .}}{{len .Items}}{{end}}", want: "2"},
		step{args: "get ippool -o go-template=", fails: true, want: "need to specify a template"},
		step{args: "get ippool -o name", want: "ippool/pool-a\nippool/pool-b"},
		step{args: "validate -f {}", text: list(np, gnp), want: "Successfully validated 2 resource(s)"},
		step{args: "validate -f {}", text: badPeer("a"), fails: true, has: []string{"BGPPeer(a): error with field PeerIP = 'badpeerIP'"}},
	)
}
