package nftables

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Unhooking is a transaction that takes somebody's chains out of tables in which others have theirs, too, as the programs of iptables have them.
type Unhooking struct {
	Batch  *Batch
	Chains int      // that go
	Rules  int      // in chains of others, that go: they lead to those chains, or their comment says whose they are
	Drops  []string // chains that drop what no rule accepts, and lose rules: "FORWARD of filter"
}

// Unhook plans it for the tables of those names of one family, of what the kernel has at one moment; a table that is not there has nothing. Chains go
// by their name, rules in chains of others also by their comment, whether iptables or nft gave it. Nothing is changed before the batch is
// committed, which changes all or nothing: if one of those rules went meanwhile, or another one leads to those chains, it is a *BatchError.
func (c *Conn) Unhook(f Family, tables []string, ours, marked func(string) bool) (Unhooking, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rs, err := readConsistent(c, func() (*Ruleset, error) { return c.readFamily(f, tables) }, (*Ruleset).handles)
	if err != nil {
		return Unhooking{}, fmt.Errorf("nftables: list tables %s: %w", strings.Join(tables, ", "), err)
	}
	out := Unhooking{Batch: NewBatch()}
	out.Batch.Family = f
	var going []Chain
	drops := map[[2]string]bool{}
	for _, ch := range rs.Chains {
		if ours(ch.Name) {
			out.Batch.FlushChain(ch.Table, ch.Name) // so that none leads to another one
			going = append(going, ch)
		} else if ch.Base != nil && ch.Base.Policy == VerdictDrop {
			drops[[2]string{ch.Table, ch.Name}] = true
		}
	}
	for _, r := range rs.Rules {
		if ours(r.Chain) || !r.leads(ours) && !marked(r.comment()) {
			continue
		}
		out.Batch.DeleteRule(r.Table, r.Chain, r.Handle)
		out.Rules++
		if drop := r.Chain + " of " + r.Table; drops[[2]string{r.Table, r.Chain}] && !slices.Contains(out.Drops, drop) {
			out.Drops = append(out.Drops, drop)
		}
	}
	for _, ch := range going {
		out.Batch.DeleteChain(ch.Table, ch.Name)
	}
	out.Chains = len(going)
	return out, nil
}

// readFamily reads the chains and rules of tables of one family.
func (c *Conn) readFamily(f Family, tables []string) (*Ruleset, error) {
	all, err := c.chainsOf(uint8(f), nil)
	if err != nil {
		return nil, err
	}
	rs, there := &Ruleset{}, map[string]bool{}
	for _, ch := range all {
		if slices.Contains(tables, ch.Table) {
			rs.Chains = append(rs.Chains, ch.Chain)
			there[ch.Table] = true
		}
	}
	for _, table := range slices.Sorted(maps.Keys(there)) {
		err := ofTable(c.dumpFamily(uint8(f), unix.NFT_MSG_GETRULE, func(e *encoder) { e.str(unix.NFTA_RULE_TABLE, table) }, func(m message) error {
			r, err := decodeRule(m.body)
			if err == nil && r.Table == table {
				rs.Rules = append(rs.Rules, r)
			}
			return err
		}))
		if err != nil {
			return nil, err
		}
	}
	return rs, nil
}

// handles is a text that is other whenever a chain or a rule came or went: each has a number, which the kernel gives to no later one. What may change of
// a chain that stays, its policy, is in it, too.
func (r *Ruleset) handles() string {
	var b strings.Builder
	for _, ch := range r.Chains {
		fmt.Fprintf(&b, "%s %d %s;", ch.Table, ch.Handle, ch.Base.text())
	}
	for _, x := range r.Rules {
		fmt.Fprintf(&b, "%s %d,", x.Table, x.Handle)
	}
	return b.String()
}

// leads reports whether a rule jumps or goes to one of those chains.
func (r Rule) leads(to func(chain string) bool) bool {
	return slices.ContainsFunc(r.Exprs, func(x Expr) bool {
		v, is := x.(Verdict)
		return is && v.Chain != "" && to(v.Chain)
	})
}

// comment is what nft gives a rule as user data, and iptables as its match of that name: the first one.
func (r Rule) comment() string {
	const name, info = 1, 3 // NFTA_MATCH_NAME, NFTA_MATCH_INFO
	for _, x := range r.Exprs {
		match, is := x.(Raw)
		if !is || match.Name != "match" {
			continue
		}
		if as, err := parseAttrs(match.Data); err == nil && as.str(name) == "comment" {
			return as.str(info)
		}
	}
	return r.Comment
}
