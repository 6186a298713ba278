package metrics

import "github.com/prometheus/client_golang/prometheus"

// Objects is what policy of this node is in the kernel. Where a driver in another process has it, there is nothing here.
type Objects struct {
	Tables []Table
	Sets   map[string]int // by IP version: those of addresses
}

// Table is how much of ours is in a table.
type Table struct {
	NFT       bool   // it is of nftables; else of iptables, of either backend
	IPVersion string // 4 or 6; of nftables: both, whose one table sees packets of either
	Name      string
	Chains    int
	Rules     int
}

// objects are the metrics of Objects.
type objects struct {
	chains, rules map[bool]*prometheus.Desc // by Table.NFT
	sets          *prometheus.Desc
}

func newObjects(desc func(name, help string, labels ...string) *prometheus.Desc) objects {
	o := objects{chains: map[bool]*prometheus.Desc{}, rules: map[bool]*prometheus.Desc{}}
	o.chains[false] = desc("felix_iptables_chains", "Chains of ours in a table of iptables, where policy is in those.", "ip_version", "table")
	o.rules[false] = desc("felix_iptables_rules", "Rules in these, and those by which chains of the kernel call them.", "ip_version", "table")
	o.chains[true] = desc("felix_nft_chains", "Chains of table inet twill, where policy is in nftables; its ip_version is both.", "ip_version", "table")
	o.rules[true] = desc("felix_nft_rules", "Rules in these.", "ip_version", "table")
	o.sets = desc("felix_ipsets_calico", "Sets of addresses of ours in the kernel: of ipset, or sets and maps in table inet twill.", "ip_version")
	return o
}

func (o objects) describe(ch chan<- *prometheus.Desc) {
	for _, nft := range []bool{false, true} {
		ch <- o.chains[nft]
		ch <- o.rules[nft]
	}
	ch <- o.sets
}

func (o objects) collect(now Objects, ch chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for _, t := range now.Tables {
		put(o.chains[t.NFT], t.Chains, t.IPVersion, t.Name)
		put(o.rules[t.NFT], t.Rules, t.IPVersion, t.Name)
	}
	for version, n := range now.Sets {
		put(o.sets, n, version)
	}
}
