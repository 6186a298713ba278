package nft

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// baseNAT is the stage in which sources are rewritten. It exists only while a pool asks for it.
const baseNAT = "postrouting-nat"

const prioritySourceNAT = 100 // NF_IP_PRI_NAT_SRC

// natOutgoing wants packets from pools that ask for it, to what is in no pool, to leave with the host's own address.
// Until the source is in sync it is left as it is: a pool that is not known yet would be taken for the world outside.
func (d *Driver) natOutgoing() {
	if !d.inSync {
		return
	}
	var rs []nftables.Rule
	for _, f := range families {
		from, all := ofFamily(d.host.NAT.From, f), ofFamily(d.host.NAT.Pool, f)
		if len(from) == 0 {
			continue
		}
		rs = append(rs, rule("NAT outgoing", slices.Concat(nftables.MatchNFProto(nfFamily(f)),
			matchNets(rules.Term{Kind: rules.Nets, Side: rules.Src, Nets: from}, f),
			matchNets(rules.Term{Kind: rules.Nets, Side: rules.Dst, Nets: all, Not: true}, f),
			exprs{nftables.Counter{}, nftables.Masq{}})...))
	}
	if len(rs) == 0 {
		d.dropChain(baseNAT)
		return
	}
	d.setChain(nftables.Chain{Name: baseNAT, Base: &nftables.Hook{
		Type: nftables.TypeNAT, Hook: nftables.HookPostrouting, Priority: prioritySourceNAT, Policy: nftables.VerdictAccept,
	}}, rs, intent.Key{})
}

// ofFamily are the prefixes of a family.
func ofFamily(ps []netip.Prefix, f intent.Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(ps), func(p netip.Prefix) bool { return p.Addr().Is6() != (f == intent.IPv6) })
}
