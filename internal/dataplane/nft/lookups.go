package nft

import (
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// startTables makes the shared sets and chains of the tables.
func (d *Driver) startTables() {
	class := nftables.TypeClassID
	proto, port := nftables.TypeInetProto, nftables.TypeInetService
	for i, key := range []nftables.Type{nftables.TypeIPv4Addr, nftables.TypeIPv6Addr} {
		d.tableSet(nftables.Set{Name: hostMaps[i], Key: key, Data: class, Comment: "address: class"})
	}
	for _, spec := range []nftables.Set{
		{Name: mapPorts, Key: nftables.Concat(class, proto, port), Data: class, Comment: "program . protocol . port: code"},
		{Name: mapProtos, Key: nftables.Concat(class, proto), Data: class, Comment: "program . protocol: code"},
		{Name: mapPrograms, Key: class, Data: class, Comment: "program: code"},
		{Name: setCounts, Key: class, Counter: true, Comment: "packets by what decided"},
		{Name: setAllowed, Key: class, Comment: "codes that allow"},
		{Name: mapActions, Key: class, Data: nftables.TypeVerdict, Comment: "code: the chain that decides"},
		{Name: mapRejects, Key: class, Data: nftables.TypeVerdict, Comment: "code: who answers the sender"},
		{Name: mapReports, Key: class, Data: nftables.TypeMark, Comment: "code that denies: the rule's number"},
	} {
		d.tableSet(spec).late = func(string) bool { return true }
	}
	d.ksets[mapPrograms].about = d.deciders
	d.ksets[setCounts].about = func(code string) string { return d.tables.codes[codeOf(code)] }
	d.setKernelChain(chainJudge, "program: code: verdict", judge(mapActions, mapRejects))
	d.setKernelChain(chainPass, "allowed by policy", restorePriority())
	d.setKernelChain(chainSilent, "the same, and nothing is rejected", judge(mapActions))
	d.setSentChains()
	d.setPeerChains()
}

// setSentChains wants the chains that keep the priority of what the host sends in bits of the mark, and give it back.
func (d *Driver) setSentChains() {
	d.tables.marks = d.marks()
	d.setKernelChain(chainKeep, "keep the priority of what the host sends", d.keepPriority())
	d.setKernelChain(chainPassSent, "allowed by policy", d.returnPriority())
}

// setKernelChain wants a chain whose rules are of this backend alone.
func (d *Driver) setKernelChain(name, about string, rs []nftables.Rule) {
	c := d.chainOf(name)
	for i := range rs {
		rs[i].Table, rs[i].Chain = d.cfg.Table, name
	}
	c.spec = nftables.Chain{Table: d.cfg.Table, Name: name, Comment: about}
	c.wanted, c.rules, c.owner, c.sum = true, rs, desired.Tables, sumOf(rs)
	d.checkChain(c)
}

// setPriority puts what was looked up last in the place of what is in meta priority.
var setPriority = nftables.SetMeta{Key: nftables.MetaPriority}

func priority() nftables.Meta { return nftables.Meta{Key: nftables.MetaPriority} }

// setPeerChains says how the class of an address is found: that of a host, or of the longest prefix that covers it.
func (d *Driver) setPeerChains() {
	for side, name := range peerChains {
		rs := []nftables.Rule{{Exprs: exprs{nftables.Load{Data: nftables.U32(0)}, setPriority}}}
		for i, f := range families {
			load := address(rules.Side(side), f)
			of := nftables.MatchNFProto(nfFamily(f))
			rs = append(rs, nftables.Rule{Exprs: slices.Concat(of, exprs{load, nftables.LookupData{Map: hostMaps[i]}, setPriority})})
			for _, bits := range slices.Backward(slices.Sorted(maps.Keys(d.tables.lengths[i]))) {
				rs = append(rs, nftables.Rule{Exprs: slices.Concat(of, exprs{
					priority(),
					nftables.Cmp{Op: nftables.Eq, Data: nftables.U32(0)},
					load,
					nftables.Bitwise{Mask: net.CIDRMask(bits, 8*int(load.Len)), Xor: make([]byte, load.Len)},
					nftables.LookupData{Map: prefixMap(i, bits)},
					setPriority,
				})})
			}
		}
		d.setKernelChain(name, "address: class", rs)
	}
}

// prefixMap is the map of prefixes of one length.
func prefixMap(family, bits int) string { return fmt.Sprintf("%s-%d", hostMaps[family], bits) }

// judge decides what has a program in meta priority. The look-up that finds something makes those after it miss, since numbers of codes
// are none of programs. What has no code at the end is dropped. The maps say what becomes of what has one.
func judge(of ...string) []nftables.Rule {
	rule := func(about string, xs ...nftables.Expr) nftables.Rule { return nftables.Rule{Exprs: xs, Comment: about} }
	out := []nftables.Rule{
		rule("", priority(), nftables.Meta{Key: nftables.MetaL4Proto, Reg: nftables.R1 + 1}, nftables.DstPort().In(nftables.R1+2), nftables.LookupData{Map: mapPorts}, setPriority),
		rule("", priority(), nftables.Meta{Key: nftables.MetaL4Proto, Reg: nftables.R1 + 1}, nftables.LookupData{Map: mapProtos}, setPriority),
		rule("", priority(), nftables.LookupData{Map: mapPrograms}, setPriority),
		rule("count", priority(), nftables.Lookup{Set: setCounts}),
		rule("allowed", priority(), nftables.Lookup{Set: setAllowed}, nftables.Return()),
	}
	for _, m := range of {
		out = append(out, rule("", priority(), nftables.LookupVerdict{Map: m}))
	}
	return append(out,
		rule("report", priority(), nftables.LookupData{Map: mapReports}, nftables.SetMeta{Key: nftables.MetaMark},
			nftables.NFLog{Group: kernel.NFLogVerdicts, Prefix: attribution.MarkPrefix}),
		rule("denied", nftables.Drop()),
	)
}

// restorePriority gives a packet that passes the priority back that it came with: that which ip_forward made of its type of service
// (rt_tos2priority), and none for IPv6.
func restorePriority() []nftables.Rule {
	const tosBits = 0x18 // of IPTOS_TOS_MASK, those of which the kernel's table makes a difference
	rs := []nftables.Rule{{Exprs: exprs{nftables.Load{Data: nftables.U32(0)}, setPriority}}}
	for _, of := range []struct {
		tos      byte
		priority uint32
	}{{0x08, 2}, {0x10, 6}, {0x18, 4}} {
		rs = append(rs, nftables.Rule{Exprs: slices.Concat(nftables.MatchNFProto(nftables.FamilyIPv4), exprs{
			nftables.Payload{Base: nftables.NetworkHeader, Offset: 1, Len: 1},
			nftables.Bitwise{Mask: []byte{tosBits}, Xor: []byte{0}},
			nftables.Cmp{Op: nftables.Eq, Data: []byte{of.tos}},
			nftables.Load{Data: nftables.U32(of.priority)},
			setPriority,
		})})
	}
	return append(rs, nftables.Rule{Exprs: exprs{nftables.Accept()}})
}

// classify asks the tables about a group's packets: class, program, and what follows from it.
func (d *Driver) classify(g desired.Guard) []nftables.Rule {
	code, pass := chainJudge, chainPass
	var rs []nftables.Rule
	if g.Sent {
		code, pass = chainSilent, chainPassSent
		rs = append(rs, nftables.Rule{Exprs: exprs{nftables.Jump(chainKeep)}})
	}
	rs = append(rs, nftables.Rule{Exprs: exprs{nftables.Jump(peerChains[g.Peer])}})
	for i, f := range families {
		rs = append(rs, nftables.Rule{Exprs: append(nftables.MatchNFProto(nfFamily(f)), priority(), nftables.LookupData{Map: groupMap(d.state.GroupName(g.Group), i)}, setPriority)})
	}
	return append(rs, nftables.Rule{Exprs: exprs{nftables.Jump(code)}}, nftables.Rule{Exprs: exprs{nftables.Goto(pass)}})
}

// groupMap is the name of a group's map of programs in a family.
func groupMap(chain string, family int) string {
	return chain + [...]string{"-ipv4", "-ipv6"}[family]
}
