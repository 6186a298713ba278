package nftables

import (
	"errors"
	"fmt"
	"sort"

	"golang.org/x/sys/unix"
)

// List reads a table of the inet family with all that is in it, as it was at one moment.
func (c *Conn) List(table string) (*Ruleset, error) { return c.list(table, true) }

// Outline is List without the elements of named sets, which may be many.
func (c *Conn) Outline(table string) (*Ruleset, error) { return c.list(table, false) }

func (c *Conn) list(table string, elements bool) (*Ruleset, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rs, err := readConsistent(c, func() (*Ruleset, error) { return c.listOnce(table, elements) }, (*Ruleset).Canonical)
	if err != nil {
		return nil, fmt.Errorf("nftables: list table %s: %w", table, err)
	}
	return rs, nil
}

// listOnce reads the table once.
func (c *Conn) listOnce(table string, elements bool) (*Ruleset, error) {
	gen, err := c.genID()
	if err != nil {
		return nil, err
	}
	rs := &Ruleset{Generation: gen}
	users, err := c.readTable(rs, table)
	if err != nil || !rs.Exists {
		return rs, err
	}
	sets, err := c.readSets(table)
	if err != nil {
		return nil, err
	}
	if err := c.readChains(rs, table, users-len(sets)); err != nil {
		return nil, err
	}
	if err := c.readRules(rs, table); err != nil {
		return nil, err
	}
	anonymous := map[string]SetState{}
	for _, s := range sets {
		st := SetState{Set: s.Set}
		if elements || s.anonymous {
			if st.Elements, err = c.readElements(s.Set); err != nil {
				return nil, err
			}
		}
		if s.anonymous {
			anonymous[s.Name] = st
		} else {
			rs.Sets = append(rs.Sets, st)
		}
	}
	for _, r := range rs.Rules {
		for i, x := range r.Exprs {
			r.Exprs[i] = inline(x, anonymous)
		}
	}
	return rs, nil
}

// inline puts the elements of an anonymous set in the place of its name.
func inline(x Expr, anonymous map[string]SetState) Expr {
	var in In
	var name string
	switch l := x.(type) {
	case Lookup:
		name, in = l.Set, In{Not: l.Not, Reg: l.Reg}
	case LookupVerdict:
		name, in = l.Map, In{Reg: l.Reg}
	case LookupData:
		name, in = l.Map, In{Reg: l.Reg, Dst: l.Dst}
	}
	st, ok := anonymous[name]
	if !ok {
		return x
	}
	in.Set = Set{Key: st.Key, Interval: st.Interval, Data: st.Data}
	in.Elements = st.Elements
	return in
}

// dump lists all objects of a kind of the inet family, and passes the attributes of each message to a function.
func (c *Conn) dump(typ uint16, fill func(*encoder), f func(body []byte) error) error {
	return c.dumpFamily(uint8(FamilyINet), typ, fill, func(m message) error {
		if m.family != uint8(FamilyINet) {
			return nil
		}
		return f(m.body)
	})
}

func (c *Conn) dumpFamily(family uint8, typ uint16, fill func(*encoder), f func(message) error) error {
	var e encoder
	seq := c.take(1)
	e.begin(unix.NFNL_SUBSYS_NFTABLES<<8|typ, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, 0, seq)
	fill(&e)
	e.end()
	if e.err != nil {
		return e.err
	}
	return c.request(e.buf, seq, true, f)
}

// FamilyChain is a chain of any family, and of anybody: iptables-nft has its own there too.
type FamilyChain struct {
	Family string // ip, ip6, inet, arp, bridge, netdev
	Chain
}

var familyNames = map[uint8]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev",
}

// AllChains lists the chains of all tables of all families. Where others change theirs all the time, one that comes or
// goes meanwhile may be there or not.
func (c *Conn) AllChains() ([]FamilyChain, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := c.chainsOf(unix.NFPROTO_UNSPEC, nil)
	if err != nil && !errors.Is(err, errDumpInterrupted) {
		return nil, fmt.Errorf("nftables: list chains: %w", err)
	}
	return out, nil
}

func (c *Conn) chainsOf(family uint8, enough func([]FamilyChain) bool) ([]FamilyChain, error) {
	return gather(func(keep func(FamilyChain)) error {
		return c.dumpFamily(family, unix.NFT_MSG_GETCHAIN, func(*encoder) {}, func(m message) error {
			ch, err := decodeChain(m.body)
			keep(FamilyChain{familyNames[m.family], ch})
			return err
		})
	}, func(ch FamilyChain) string { return ch.Family + " " + ch.Table + " " + ch.Name }, enough)
}

// ListTables names the tables of the inet family. Where others change theirs all the time, one that comes or goes
// meanwhile may be there or not.
func (c *Conn) ListTables() ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, err := gather(func(keep func(string)) error {
		return c.dump(unix.NFT_MSG_GETTABLE, func(*encoder) {}, func(body []byte) error {
			t, err := decodeTable(body)
			keep(t.Name)
			return err
		})
	}, func(name string) string { return name }, nil)
	if err != nil && !errors.Is(err, errDumpInterrupted) {
		return nil, fmt.Errorf("nftables: list tables: %w", err)
	}
	sort.Strings(names)
	return names, nil
}

// FamilyTable is a table of any family.
type FamilyTable struct {
	Family string // as of FamilyChain
	Name   string
}

// AllTables lists the tables of all families. Where others change theirs all the time, one that comes or goes meanwhile may
// be there or not.
func (c *Conn) AllTables() ([]FamilyTable, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := gather(func(keep func(FamilyTable)) error {
		return c.dumpFamily(unix.NFPROTO_UNSPEC, unix.NFT_MSG_GETTABLE, func(*encoder) {}, func(m message) error {
			t, err := decodeTable(m.body)
			keep(FamilyTable{familyNames[m.family], t.Name})
			return err
		})
	}, func(t FamilyTable) string { return t.Family + " " + t.Name }, nil)
	if err != nil && !errors.Is(err, errDumpInterrupted) {
		return nil, fmt.Errorf("nftables: list tables: %w", err)
	}
	return out, nil
}

// FamilyOf is the number of a family; zero: there is none of that name.
func FamilyOf(name string) Family {
	for number, n := range familyNames {
		if n == name {
			return Family(number)
		}
	}
	return 0
}

// readTable reads the table itself, and how many chains, sets, objects and flowtables it has.
func (c *Conn) readTable(rs *Ruleset, table string) (users int, err error) {
	const tableUse = 3 // NFTA_TABLE_USE
	var e encoder
	seq := c.take(1)
	e.begin(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_REQUEST, uint8(FamilyINet), 0, seq)
	e.str(unix.NFTA_TABLE_NAME, table)
	e.end()
	if e.err != nil {
		return 0, e.err
	}
	err = c.request(e.buf, seq, false, func(m message) error {
		t, err := decodeTable(m.body)
		if err != nil {
			return err
		}
		as, err := parseAttrs(m.body)
		t.Mine = t.Owner != 0 && t.Owner == c.port
		rs.Table, rs.Exists, users = t, true, int(as.u32(tableUse))
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	return users, err
}

// readChains reads the table's chains. Since the kernel does not confine this dump to one table, it may be known by
// number alone that none is missing: want counts chains, objects and flowtables.
func (c *Conn) readChains(rs *Ruleset, table string, want int) error {
	ours := func(all []FamilyChain) (out []Chain) {
		for _, ch := range all {
			if ch.Table == table {
				out = append(out, ch.Chain)
			}
		}
		return out
	}
	counted := false
	var failed error
	all, err := c.chainsOf(uint8(FamilyINet), func(all []FamilyChain) bool {
		if !counted {
			var others int
			others, failed = c.countOthers(table)
			want, counted = want-others, true
		}
		return failed != nil || len(ours(all)) == want
	})
	rs.Chains = ours(all)
	return errors.Join(failed, err)
}

// countOthers counts what a table has besides chains and sets. None of it is ours.
func (c *Conn) countOthers(table string) (n int, err error) {
	const getFlowtable = 23 // NFT_MSG_GETFLOWTABLE
	for _, typ := range []uint16{unix.NFT_MSG_GETOBJ, getFlowtable} {
		const tableName = 1 // NFTA_OBJ_TABLE, NFTA_FLOWTABLE_TABLE
		err := ofTable(c.dump(typ, func(e *encoder) { e.str(tableName, table) }, func(body []byte) error {
			as, err := parseAttrs(body)
			if as.str(tableName) == table {
				n++
			}
			return err
		}))
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

// readRules reads the rules of all chains: chain by chain, in order.
func (c *Conn) readRules(rs *Ruleset, table string) error {
	return ofTable(c.dump(unix.NFT_MSG_GETRULE, func(e *encoder) { e.str(unix.NFTA_RULE_TABLE, table) },
		func(body []byte) error {
			r, err := decodeRule(body)
			if err == nil && r.Table == table {
				rs.Rules = append(rs.Rules, r)
			}
			return err
		}))
}

func (c *Conn) readSets(table string) ([]rawSet, error) {
	var sets []rawSet
	err := ofTable(c.dump(unix.NFT_MSG_GETSET, func(e *encoder) { e.str(unix.NFTA_SET_TABLE, table) },
		func(body []byte) error {
			s, err := decodeSet(body)
			if err == nil && s.Table == table {
				sets = append(sets, s)
			}
			return err
		}))
	return sets, err
}

func (c *Conn) readElements(s Set) ([]Element, error) {
	var raw []rawElement
	err := ofTable(c.dump(unix.NFT_MSG_GETSETELEM, func(e *encoder) {
		e.str(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table)
		e.str(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	}, func(body []byte) error {
		els, err := decodeElements(body)
		raw = append(raw, els...)
		return err
	}))
	if err != nil {
		return nil, err
	}
	return joinIntervals(s, raw), nil
}

// ListSet reads one set with its elements; errors.Is ENOENT if there is none.
func (c *Conn) ListSet(table, set string) (SetState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st, err := readConsistent(c, func() (SetState, error) { return c.listSetOnce(table, set) }, func(st SetState) string {
		return (&Ruleset{Exists: true, Sets: []SetState{st}}).Canonical()
	})
	if err != nil {
		return SetState{}, fmt.Errorf("nftables: list set %s/%s: %w", table, set, err)
	}
	return st, nil
}

func (c *Conn) listSetOnce(table, set string) (SetState, error) {
	sets, err := c.readSets(table)
	if errors.Is(err, errGone) { // there is no such table
		return SetState{}, unix.ENOENT
	}
	if err != nil {
		return SetState{}, err
	}
	for _, s := range sets {
		if s.Name == set {
			els, err := c.readElements(s.Set)
			return SetState{Set: s.Set, Elements: els}, err
		}
	}
	return SetState{}, unix.ENOENT
}

// ChainRules are the rules of one chain, in order.
func (r *Ruleset) ChainRules(chain string) []Rule {
	var out []Rule
	for _, x := range r.Rules {
		if x.Chain == chain {
			out = append(out, x)
		}
	}
	return out
}

// Set finds a set by name.
func (r *Ruleset) Set(name string) (SetState, bool) {
	for _, s := range r.Sets {
		if s.Name == name {
			return s, true
		}
	}
	return SetState{}, false
}

// Chain finds a chain by name.
func (r *Ruleset) Chain(name string) (Chain, bool) {
	for _, c := range r.Chains {
		if c.Name == name {
			return c, true
		}
	}
	return Chain{}, false
}
