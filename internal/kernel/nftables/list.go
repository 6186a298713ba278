package nftables

import (
	"errors"
	"fmt"
	"sort"

	"golang.org/x/sys/unix"
)

// attempts to read a ruleset that keeps changing.
const attempts = 10

// List reads a table of the inet family with all that is in it, as of one generation.
func (c *Conn) List(table string) (*Ruleset, error) { return c.list(table, true) }

// Outline is List without the elements of named sets, which may be many.
func (c *Conn) Outline(table string) (*Ruleset, error) { return c.list(table, false) }

func (c *Conn) list(table string, elements bool) (*Ruleset, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range attempts {
		rs, err := c.listOnce(table, elements)
		switch {
		case errors.Is(err, errDumpInterrupted):
		case errors.Is(err, unix.ENOENT):
			// Something went away while we read; the next attempt sees whether the table itself did.
		case err != nil:
			return nil, fmt.Errorf("nftables: list table %s: %w", table, err)
		default:
			return rs, nil
		}
	}
	return nil, fmt.Errorf("nftables: list table %s: %w", table, ErrInterrupted)
}

// listOnce reads the table once, and fails with errDumpInterrupted if it changed in the meantime.
func (c *Conn) listOnce(table string, elements bool) (*Ruleset, error) {
	gen, err := c.genID()
	if err != nil {
		return nil, err
	}
	rs := &Ruleset{Generation: gen}
	if err := c.readTable(rs, table); err != nil || !rs.Exists {
		return rs, err
	}
	sets, err := c.readSets(table)
	if err != nil {
		return nil, err
	}
	if err := c.readChains(rs, table); err != nil {
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
	after, err := c.genID()
	if err != nil {
		return nil, err
	}
	if after != gen {
		return nil, errDumpInterrupted
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

// dump asks for all objects of a kind of the inet family, and hands over the attributes of each message.
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

// AllChains lists the chains of all tables of all families.
func (c *Conn) AllChains() ([]FamilyChain, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []FamilyChain
	var err error
	for range attempts {
		out = out[:0]
		err = c.dumpFamily(unix.NFPROTO_UNSPEC, unix.NFT_MSG_GETCHAIN, func(*encoder) {}, func(m message) error {
			ch, err := decodeChain(m.body)
			out = append(out, FamilyChain{familyNames[m.family], ch})
			return err
		})
		if !errors.Is(err, errDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("nftables: list chains: %w", err)
	}
	return out, nil
}

// ListTables names the tables of the inet family.
func (c *Conn) ListTables() ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	var err error
	for range attempts {
		names = names[:0]
		err = c.dump(unix.NFT_MSG_GETTABLE, func(*encoder) {}, func(body []byte) error {
			t, err := decodeTable(body)
			names = append(names, t.Name)
			return err
		})
		if !errors.Is(err, errDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("nftables: list tables: %w", err)
	}
	sort.Strings(names)
	return names, nil
}

func (c *Conn) readTable(rs *Ruleset, table string) error {
	return c.dump(unix.NFT_MSG_GETTABLE, func(*encoder) {}, func(body []byte) error {
		t, err := decodeTable(body)
		if err == nil && t.Name == table {
			rs.Table, rs.Exists = t, true
		}
		return err
	})
}

// readChains reads chains and their rules. Rules come chain by chain, in order.
func (c *Conn) readChains(rs *Ruleset, table string) error {
	err := c.dump(unix.NFT_MSG_GETCHAIN, func(e *encoder) { e.str(unix.NFTA_CHAIN_TABLE, table) },
		func(body []byte) error {
			ch, err := decodeChain(body)
			if err == nil && ch.Table == table {
				rs.Chains = append(rs.Chains, ch)
			}
			return err
		})
	if err != nil {
		return err
	}
	return c.dump(unix.NFT_MSG_GETRULE, func(e *encoder) { e.str(unix.NFTA_RULE_TABLE, table) },
		func(body []byte) error {
			r, err := decodeRule(body)
			if err == nil && r.Table == table {
				rs.Rules = append(rs.Rules, r)
			}
			return err
		})
}

func (c *Conn) readSets(table string) ([]rawSet, error) {
	var sets []rawSet
	err := c.dump(unix.NFT_MSG_GETSET, func(e *encoder) { e.str(unix.NFTA_SET_TABLE, table) },
		func(body []byte) error {
			s, err := decodeSet(body)
			if err == nil && s.Table == table {
				sets = append(sets, s)
			}
			return err
		})
	return sets, err
}

func (c *Conn) readElements(s Set) ([]Element, error) {
	var raw []rawElement
	err := c.dump(unix.NFT_MSG_GETSETELEM, func(e *encoder) {
		e.str(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table)
		e.str(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	}, func(body []byte) error {
		els, err := decodeElements(body)
		raw = append(raw, els...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return joinIntervals(s, raw), nil
}

// ListSet reads one set with its elements; errors.Is ENOENT if there is none.
func (c *Conn) ListSet(table, set string) (SetState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for range attempts {
		var st SetState
		if st, err = c.listSetOnce(table, set); err == nil {
			return st, nil
		}
		if !errors.Is(err, errDumpInterrupted) {
			break
		}
	}
	return SetState{}, fmt.Errorf("nftables: list set %s/%s: %w", table, set, err)
}

func (c *Conn) listSetOnce(table, set string) (SetState, error) {
	sets, err := c.readSets(table)
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
