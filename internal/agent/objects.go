package agent

import (
	"strconv"

	"github.com/twillnet/twill/internal/dataplane/iptables"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/metrics"
)

// objects are the chains, rules and sets of policy, for metrics: of iptables as they were read last, of nftables those that are in the table now.
func (t tally) objects(rs *nftables.Ruleset) metrics.Objects {
	out := metrics.Objects{Sets: map[string]int{}}
	if d, is := t.policy.(*iptables.Driver); is {
		now := d.Sizes()
		for f, n := range now.Sets {
			out.Sets[strconv.Itoa(int(f))] = n
		}
		for _, x := range now.Tables {
			out.Tables = append(out.Tables, metrics.Table{IPVersion: strconv.Itoa(int(x.Family)), Name: string(x.Table), Chains: x.Chains, Rules: x.Rules})
		}
		return out
	}
	if !rs.Exists {
		return out
	}
	out.Tables = []metrics.Table{{NFT: true, IPVersion: "both", Name: kernel.TableName, Chains: len(rs.Chains), Rules: len(rs.Rules)}}
	out.Sets = map[string]int{"4": 0, "6": 0}
	for _, s := range rs.Sets {
		switch s.Key.Fields()[0] {
		case nftables.TypeIPv4Addr:
			out.Sets["4"]++
		case nftables.TypeIPv6Addr:
			out.Sets["6"]++
		}
	}
	return out
}
