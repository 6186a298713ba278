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
		leaving := slices.Concat(nftables.MatchNFProto(nfFamily(f)),
			matchNets(rules.Term{Kind: rules.Nets, Side: rules.Src, Nets: from}, f),
			matchNets(rules.Term{Kind: rules.Nets, Side: rules.Dst, Nets: all, Not: true}, f))
		if link := d.host.NAT.Link; link != "" {
			leaving = append(leaving, nftables.MatchOIFName(link)...)
		}
		rs = append(rs, d.translations(leaving, f)...)
	}
	if len(rs) == 0 {
		d.dropChain(baseNAT, intent.Key{})
		return
	}
	d.setChain(nftables.Chain{Name: baseNAT, Base: &nftables.Hook{
		Type: nftables.TypeNAT, Hook: nftables.HookPostrouting, Priority: prioritySourceNAT, Policy: nftables.VerdictAccept,
	}}, rs, intent.Key{})
}

// translations give what matches another source. A range of ports is for protocols that have some.
func (d *Driver) translations(leaving exprs, f intent.Family) (rs []nftables.Rule) {
	n := d.host.NAT
	if n.Ports != (intent.PortRange{}) {
		for _, proto := range []uint8{protoTCP, protoUDP} {
			rs = append(rs, rule("NAT outgoing", slices.Concat(leaving, nftables.MatchL4Proto(proto), translation(n, f, true))...))
		}
	}
	return append(rs, rule("NAT outgoing", slices.Concat(leaving, translation(n, f, false))...))
}

func translation(n intent.NATOutgoing, f intent.Family, ports bool) exprs {
	out := exprs{nftables.Counter{}}
	addr, first, last := nftables.R1, nftables.R2, nftables.R3
	var min, max *nftables.Reg
	if ports {
		out = append(out, nftables.Load{Data: nftables.KeyPort(n.Ports.Min), Reg: first}, nftables.Load{Data: nftables.KeyPort(n.Ports.Max), Reg: last})
		min, max = &first, &last
	}
	if !n.Addr.IsValid() || f != intent.IPv4 {
		return append(out, nftables.Masq{ProtoMin: min, ProtoMax: max})
	}
	return append(out, nftables.Load{Data: n.Addr.AsSlice(), Reg: addr}, nftables.NAT{Source: true, Family: nfFamily(f), AddrMin: &addr, ProtoMin: min, ProtoMax: max})
}

// ofFamily are the prefixes of a family.
func ofFamily(ps []netip.Prefix, f intent.Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(ps), func(p netip.Prefix) bool { return p.Addr().Is6() != (f == intent.IPv6) })
}
