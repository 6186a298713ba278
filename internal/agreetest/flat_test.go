package agreetest

import (
	"flag"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/sim"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

var flatSteps = flag.Int("flat", 2400, "the number of random changes of TestAfterManyChangesNothingIsLeft")

// tabled is what is desired if policy is look-ups, with the members that a backend would keep.
type tabled struct {
	state *desired.State
	sets  members
}

type members map[intent.SetID]map[intent.Member]bool

func (s members) Each(id intent.SetID, f func(intent.Member)) {
	for m := range s[id] {
		f(m)
	}
}

func (s members) Has(id intent.SetID, a netip.Addr) bool {
	for m := range s[id] {
		if m.Proto == 0 && m.Prefix.Contains(a) {
			return true
		}
	}
	return false
}

func (s members) HasPort(id intent.SetID, a netip.Addr, proto uint8, port uint16) bool {
	return s[id][intent.Member{Prefix: netip.PrefixFrom(a, a.BitLen()), Proto: proto, Port: port}]
}

// change changes the members of a set, and returns which came and went.
func (s members) change(d intent.MemberDelta) intent.MemberDelta {
	moved := intent.MemberDelta{Set: d.Set}
	is := s[d.Set]
	for _, m := range d.Removed {
		if is[m] && !slices.Contains(d.Added, m) {
			delete(is, m)
			moved.Removed = append(moved.Removed, m)
		}
	}
	for _, m := range d.Added {
		if is != nil && !is[m] {
			is[m] = true
			moved.Added = append(moved.Added, m)
		}
	}
	return moved
}

func newTabled() *tabled {
	x := &tabled{sets: members{}}
	x.state = desired.New(desired.Config{Members: x.sets})
	return x
}

// apply does what a backend does whose transactions all succeed.
func (x *tabled) apply(b intent.Batch) {
	var moved []intent.MemberDelta
	for _, s := range b.IPSets {
		d := intent.MemberDelta{Set: s.ID, Added: s.Members}
		for m := range x.sets[s.ID] {
			if !slices.Contains(s.Members, m) {
				d.Removed = append(d.Removed, m)
			}
		}
		if x.sets[s.ID] == nil {
			x.sets[s.ID] = map[intent.Member]bool{}
		}
		moved = append(moved, x.sets.change(d))
	}
	for _, d := range b.Members {
		moved = append(moved, x.sets.change(d))
	}
	for _, k := range b.Removed {
		if id, ok := k.(intent.SetID); ok {
			moved = append(moved, x.sets.change(intent.MemberDelta{Set: id, Removed: slices.Collect(maps.Keys(x.sets[id]))}))
			delete(x.sets, id)
		}
	}
	if b.Host != nil {
		h := *b.Host
		h.Compiled = true
		b.Host = &h
	}
	x.state.Members(moved)
	x.state.Merge(b)
	x.state.Changes()
	if x.state.Compiled() {
		x.state.Rested()
	}
}

// census counts, by type and field, the elements of all that a value leads to.
func census(of any) map[string]int {
	c := counting{counts: map[string]int{}, seen: map[visit]bool{}}
	c.count("", reflect.ValueOf(of))
	return c.counts
}

type visit struct {
	at unsafe.Pointer
	as reflect.Type
}

type counting struct {
	counts map[string]int
	seen   map[visit]bool
}

func (c counting) count(name string, v reflect.Value) {
	if name == "classify.list.made" {
		return // what a group remembers of its programs; it forgets all when there are twice as many as entries
	}
	switch v.Kind() {
	case reflect.Pointer:
		at := visit{v.UnsafePointer(), v.Type()}
		if v.IsNil() || c.seen[at] {
			return
		}
		c.seen[at] = true
		c.count(name, v.Elem())
	case reflect.Interface:
		if !v.IsNil() {
			c.count(name, v.Elem())
		}
	case reflect.Map:
		at := visit{v.UnsafePointer(), v.Type()}
		if c.seen[at] {
			return
		}
		c.seen[at] = true
		c.counts[name] += v.Len()
		for each := v.MapRange(); each.Next(); {
			c.count(name, each.Key())
			c.count(name, each.Value())
		}
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice {
			c.counts[name] += v.Len()
		}
		for i := range v.Len() {
			c.count(name, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			c.count(v.Type().String()+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
}

const selectionsInUse = "classify.selections.byID"

// TestAfterManyChangesNothingIsLeft: of what is desired, as chains and as look-ups, and of the tables' classes, programs and numbers, there is as much as
// if an agent had started with the resources as they are in the end.
func TestAfterManyChangesNothingIsLeft(t *testing.T) {
	seed := seedtest.New(t)
	m := newMemory(t, rand.New(rand.NewPCG(seed, 0)))
	m.node.Trusting = true
	start := func() (*sim.Dataplane, *tabled) {
		graph := calc.New(nodeName)
		graph.Update(m.good.State())
		graph.SetInSync()
		b, node, x := graph.Flush(), sim.NewDataplane(desired.Config{}), newTabled()
		own := []desired.Addrs{{Link: uplink, Addrs: []netip.Addr{netip.MustParseAddr(ownV4), netip.MustParseAddr(ownV6)}}}
		node.Links(own)
		x.state.Links(own)
		node.Merge(b)
		_, err := node.Apply(t.Context())
		must(t, err)
		x.apply(b)
		return node, x
	}
	_, tables := start()
	inUse := 0
	for step := range *flatSteps {
		for _, u := range m.good.Keep(change(m.world, m.rng)) {
			m.graph.Update([]api.Update{u})
		}
		b := m.graph.Flush()
		m.node.Merge(b)
		_, err := m.node.Apply(t.Context())
		must(t, err)
		tables.apply(b)
		if step%20 == 0 {
			inUse = max(inUse, census(tables)[selectionsInUse])
		}
	}
	if inUse == 0 {
		t.Error("no selection was ever in use")
	}
	node, fresh := start()
	for _, x := range []*tabled{tables, fresh} {
		x.apply(intent.Batch{}) // so that nobody holds the last change
	}
	for _, x := range []struct {
		name     string
		is, want map[string]int
	}{{"chains", census(m.node), census(node)}, {"look-ups", census(tables), census(fresh)}} {
		total := 0
		for field, n := range x.want {
			if _, some := x.is[field]; n > 0 && !some {
				t.Errorf("%s: no elements in %s, and %d after a fresh start", x.name, field, n)
			}
		}
		for field, n := range x.is {
			total += n
			switch {
			case field == "classify.ids.free" && n <= 2*inUse: // numbers of selections that were in use at one time
			case n != x.want[field]:
				t.Errorf("%s: %d elements in %s, and %d after a fresh start", x.name, n, field, x.want[field])
			}
		}
		t.Logf("%s: %d elements in %d fields", x.name, total, len(x.is))
	}
}
