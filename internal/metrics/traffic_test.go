package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestRulesAreCountedWhenSomebodyAsks(t *testing.T) {
	reg := prometheus.NewRegistry()
	asked := 0.0
	New(reg).Traffic(func() Traffic {
		asked++
		return Traffic{
			Rules: []RuleCount{
				{Policy: "NetworkPolicy/ns/p", Direction: "Ingress", Rule: "0", Action: "deny", Packets: 7 * asked, Bytes: 420},
				{Policy: "NetworkPolicy/ns/p", Direction: "Egress", Rule: "0", Action: "deny", Packets: 1},
			},
			Staged:  []RuleCount{{Policy: "StagedNetworkPolicy/ns/p", Direction: "Egress", Rule: "1", Action: "deny", Packets: 2}},
			Allowed: 8, Denied: 9, Logged: 4, Unknown: 3, Lost: 1,
			Objects: Objects{Tables: []Table{{IPVersion: "4", Name: "filter", Chains: 5, Rules: 9}, {IPVersion: "6", Name: "raw", Chains: 1, Rules: 2}, {NFT: true, IPVersion: "both", Name: "twill", Chains: 3, Rules: 4}}, Sets: map[string]int{"4": 6}},
		}
	})
	names := []string{
		"twill_policy_packets_total", "twill_policy_bytes_total", "twill_staged_policy_packets_total",
		"twill_flow_reports_total", "twill_flow_reports_lost_total",
		"felix_iptables_chains", "felix_iptables_rules", "felix_nft_chains", "felix_nft_rules", "felix_ipsets_calico",
	}
	if n, err := testutil.GatherAndCount(reg, names...); err != nil || n != 17 || asked != 1 {
		t.Fatalf("%d numbers, %v, asked %v times", n, err, asked)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP felix_ipsets_calico Sets of addresses of ours in the kernel: of ipset, or sets and maps in table inet twill.
# TYPE felix_ipsets_calico gauge
felix_ipsets_calico{ip_version="4"} 6
# HELP felix_iptables_chains Chains of ours in a table of iptables, where policy is in those.
# TYPE felix_iptables_chains gauge
felix_iptables_chains{ip_version="4",table="filter"} 5
felix_iptables_chains{ip_version="6",table="raw"} 1
# HELP felix_iptables_rules Rules in these, and those by which chains of the kernel call them.
# TYPE felix_iptables_rules gauge
felix_iptables_rules{ip_version="4",table="filter"} 9
felix_iptables_rules{ip_version="6",table="raw"} 2
# HELP felix_nft_chains Chains of table inet twill, where policy is in nftables; its ip_version is both.
# TYPE felix_nft_chains gauge
felix_nft_chains{ip_version="both",table="twill"} 3
# HELP felix_nft_rules Rules in these.
# TYPE felix_nft_rules gauge
felix_nft_rules{ip_version="both",table="twill"} 4
# HELP twill_flow_reports_lost_total Times at which the kernel threw reports away, because they came faster than they were read.
# TYPE twill_flow_reports_lost_total counter
twill_flow_reports_lost_total 1
# HELP twill_flow_reports_total Reports of packets that rules dropped or logged or, if settings ask for it, allowed.
# TYPE twill_flow_reports_total counter
twill_flow_reports_total{action="allow"} 8
twill_flow_reports_total{action="deny"} 9
twill_flow_reports_total{action="log"} 4
twill_flow_reports_total{action="unknown"} 3
# HELP twill_policy_bytes_total Bytes of these.
# TYPE twill_policy_bytes_total counter
twill_policy_bytes_total{action="deny",direction="Egress",policy="NetworkPolicy/ns/p",rule="0"} 0
twill_policy_bytes_total{action="deny",direction="Ingress",policy="NetworkPolicy/ns/p",rule="0"} 420
# HELP twill_policy_packets_total Packets that a rule of a policy or profile allowed, denied or logged on this node, since the rule is in the kernel as it is; of a flow only the first one is asked about. Rules that nothing has matched are left out.
# TYPE twill_policy_packets_total counter
twill_policy_packets_total{action="deny",direction="Egress",policy="NetworkPolicy/ns/p",rule="0"} 1
twill_policy_packets_total{action="deny",direction="Ingress",policy="NetworkPolicy/ns/p",rule="0"} 14
# HELP twill_staged_policy_packets_total Packets for which staged policies would have decided otherwise, by what they would have done.
# TYPE twill_staged_policy_packets_total counter
twill_staged_policy_packets_total{action="deny",direction="Egress",policy="StagedNetworkPolicy/ns/p",rule="1"} 2
`), names...); err != nil {
		t.Error(err)
	}
}
