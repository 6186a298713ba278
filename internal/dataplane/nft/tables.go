package nft

import (
	"net/netip"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// Sets and maps by which a packet is classified. All have numbers of package classify, kept in meta priority from look-up to look-up.
const (
	mapPorts    = "program-port"     // program, protocol and destination port → code
	mapProtos   = "program-protocol" // program and protocol → code
	mapPrograms = "program"          // program → code
	setCounts   = kernel.SetCodes    // codes, each with a counter
	setAllowed  = "code-allowed"     // codes that allow. No verdicts: the kernel walks all of those that there are when a chain or a verdict comes
	mapActions  = "code-action"      // code → the chain that decides
	mapRejects  = "code-reject"      // code → the chain that decides, if that may answer the sender
	mapReports  = "code-report"      // code → the mark under which a packet that it denies is reported
	chainJudge  = "code"             // program → code → verdict; it returns what is allowed
	chainPass   = "allowed"          // the end of what is allowed

	// The same for what processes of the host send: it has a priority of its own, and meets nothing that rejects, which
	// the kernel takes in no chain that postrouting leads to.
	chainKeep     = "sent"         // keeps the priority in the mark
	chainSilent   = "sent-code"    // as chainJudge
	chainPassSent = "sent-allowed" // as chainPass
)

// Chains that find the class of the remote end of a packet.
var peerChains = [...]string{rules.Src: "class-of-source", rules.Dst: "class-of-destination"}

// hostMaps map addresses to classes, by family.
var hostMaps = [2]string{"class4", "class6"}

// tables is what is known of the maps of compiled policy.
type tables struct {
	groups  map[classify.Group][2]*kset // by family: class → program
	live    map[string]int              // how many addresses and prefixes have a class
	lengths [2]map[int]int              // how many prefixes have a length, by family
	bodies  map[classify.Program]classify.Body
	codes   map[classify.Code]string // and what decides there, for people
	marks   kernel.Marks             // in the rules of priorities
	about   map[string]string        // of classes: which addresses these are, for people
	// since is the number of the transaction before which nothing leads any more to what is to be deleted late.
	since    map[rest]int
	settled  int // the number of the transaction since which each packet has left our chains
	settling bool
}

// numberOf is a class, program or code as a key or value of a map.
func numberOf[N classify.Class | classify.Program | classify.Code](n N) string {
	return string(nftables.U32(uint32(n)))
}

// members gives desired the members of sets.
type members struct{ *Driver }

// Each calls f for each member of a set.
func (d members) Each(id intent.SetID, f func(intent.Member)) {
	if s := d.sets[id]; s != nil {
		s.each(f)
	}
}

// each calls f for each member.
func (s *ipset) each(f func(intent.Member)) {
	for i := range families {
		for key := range s.exact[i].elems.All() {
			f(s.memberOf(i, key))
		}
	}
	for p := range s.masked {
		f(intent.Member{Prefix: p})
	}
}

// memberOf turns the key of a host back.
func (s *ipset) memberOf(family int, key string) (m intent.Member) {
	n := [2]int{4, 16}[family]
	addr, _ := netip.AddrFromSlice([]byte(key[:n]))
	m.Prefix = netip.PrefixFrom(addr, addr.BitLen())
	if s.kind == intent.SetPorts {
		m.Proto, m.Port = key[n], uint16(key[n+4])<<8|uint16(key[n+5])
	}
	return m
}

func newTables() *tables {
	return &tables{settled: -1, codes: map[classify.Code]string{}, about: map[string]string{}, bodies: map[classify.Program]classify.Body{}, groups: map[classify.Group][2]*kset{}, live: map[string]int{}, lengths: [2]map[int]int{{}, {}}, since: map[rest]int{}}
}

func (d *Driver) tableSet(spec nftables.Set) *kset {
	spec.Table = d.cfg.Table
	k := d.kset(spec)
	k.owner = desired.Tables
	d.want(k, true)
	return k
}

// setTables takes over what changed in the tables.
func (d *Driver) setTables(c desired.Changes) {
	if d.tables != nil && (c.Restarted || !d.state.Compiled()) {
		d.endTables()
	}
	if d.tables != nil && d.tables.marks != d.marks() {
		d.setSentChains()
	}
	if c.Tables == nil {
		return
	}
	if d.tables == nil {
		d.tables = newTables()
		d.startTables()
	}
	t := d.tables
	for delta := c.Tables; delta != nil; delta = delta.Next {
		d.setDelta(delta)
	}
	for _, x := range c.Codes {
		t.codes[x.Code] = rules.DecisionComment(x.By)
		d.setCode(x)
	}
	for _, code := range c.GoneCodes {
		for _, name := range []string{setCounts, setAllowed, mapActions, mapRejects, mapReports} {
			d.drop(d.ksets[name], numberOf(code))
		}
		d.cfg.Names.Chain(codeName(code), nil)
		delete(t.codes, code)
	}
}

// setDelta takes over what changed in the maps.
func (d *Driver) setDelta(delta *classify.Delta) {
	t := d.tables
	// What goes is first: a group may go, and one of the same policies come, which has the same maps.
	for number, why := range delta.Plain {
		if why != "" {
			d.dropGroup(number)
		}
	}
	for class, about := range delta.Grow.Classes {
		t.about[numberOf(class)] = d.addressesOf(about)
	}
	for _, class := range delta.Shrink.Classes {
		delete(t.about, numberOf(class))
	}
	for _, number := range delta.Shrink.Groups {
		d.dropGroup(number)
	}
	for _, e := range delta.Shrink.Entries {
		d.setEntry(e, 0)
	}
	for p, class := range delta.Flip.Addrs {
		d.setClass(p, class)
	}
	for number, world := range delta.Flip.World {
		for i, k := range d.groupMaps(number) {
			d.put(k, "", numberOf(world[i]))
		}
	}
	for _, entries := range []map[classify.Entry]classify.Program{delta.Grow.Entries, delta.Flip.Entries} {
		for e, program := range entries {
			d.setEntry(e, program)
		}
	}
	for program, body := range delta.Grow.Programs {
		t.bodies[program] = body
		d.setBody(program, body, true)
	}
	for _, program := range delta.Shrink.Programs {
		d.setBody(program, t.bodies[program], false)
		delete(t.bodies, program)
	}
}

// endTables makes all sets and chains unwanted that are only of tables.
func (d *Driver) endTables() {
	for number := range d.tables.groups {
		d.dropGroup(number)
	}
	for _, k := range d.ksets {
		if k.owner == desired.Tables {
			k.undesireAll()
			k.held = false
			d.want(k, false)
		}
	}
	for _, c := range d.chains {
		if c.owner == desired.Tables {
			c.wanted, c.rules = false, nil
			d.checkChain(c)
		}
	}
	for code := range d.tables.codes {
		d.cfg.Names.Chain(codeName(code), nil)
	}
	d.tables = nil
}

// codeName is under which name the decision of a code is known.
func codeName(code classify.Code) string { return attribution.OfCode(uint32(code)) }

// setCode says what a code leads to. What denies without a chain needs no element: that is the end of the way.
func (d *Driver) setCode(x desired.Code) {
	key := numberOf(x.Code)
	var name attribution.Name
	chains := map[string]string{mapActions: x.Chain}
	if x.Rejects {
		chains = map[string]string{mapRejects: x.Chain}
	}
	for _, name := range []string{mapActions, mapRejects} {
		d.set(name, key, chains[name])
	}
	if x.Chain == "" && x.By.Reason != "" {
		name = d.cfg.Names.Name(x.By, 0)
		d.put(d.ksets[setCounts], key, "")
		d.cfg.Names.Chain(codeName(x.Code), []attribution.Name{name})
	} else {
		d.drop(d.ksets[setCounts], key)
		d.cfg.Names.Chain(codeName(x.Code), nil)
	}
	if x.Allow && x.Chain == "" {
		d.put(d.ksets[setAllowed], key, "")
	} else {
		d.drop(d.ksets[setAllowed], key)
	}
	mark := ""
	if x.Chain == "" && !x.Allow && d.state.Reports(x.By) {
		mark = string(nftables.U32(name.ID))
	}
	d.set(mapReports, key, mark)
}

// set puts an element into a map, or takes it out if it has no value.
func (d *Driver) set(name, key, value string) {
	if value == "" {
		d.drop(d.ksets[name], key)
		return
	}
	d.put(d.ksets[name], key, value)
}

func (d *Driver) put(k *kset, key, value string) {
	k.elems.Desire(key, value)
	d.checkKset(k)
}

func (d *Driver) drop(k *kset, key string) {
	k.elems.Undesire(key)
	d.checkKset(k)
}

// setClass says of which class an address is, or all of a prefix that no longer one has.
func (d *Driver) setClass(p netip.Prefix, class classify.Class) {
	t, i := d.tables, slot(p.Addr())
	name := hostMaps[i]
	if !p.IsSingleIP() {
		name = prefixMap(i, p.Bits())
		if t.lengths[i][p.Bits()] == 0 {
			k := d.tableSet(nftables.Set{Name: name, Key: d.ksets[hostMaps[i]].spec.Key, Data: nftables.TypeClassID, Comment: "address of a prefix: class"})
			defer d.setPeerChains()
			k.undesireAll()
		}
	}
	k, key := d.ksets[name], string(p.Addr().AsSlice())
	was, had := k.elems.Desired(key)
	if had {
		if t.live[was]--; t.live[was] == 0 {
			delete(t.live, was)
		}
	}
	if class != 0 {
		t.live[numberOf(class)]++
		d.put(k, key, numberOf(class))
	} else {
		d.drop(k, key)
	}
	if p.IsSingleIP() || had == (class != 0) {
		return
	}
	if t.lengths[i][p.Bits()] += map[bool]int{true: -1, false: 1}[had]; t.lengths[i][p.Bits()] == 0 {
		delete(t.lengths[i], p.Bits())
		k.held = false
		d.want(k, false)
		d.setPeerChains()
	}
}

// setEntry says which program a group has for a class; zero: that of the world.
func (d *Driver) setEntry(e classify.Entry, program classify.Program) {
	maps, known := d.tables.groups[e.Group]
	if !known && program == 0 {
		return
	}
	if !known {
		maps = d.groupMaps(e.Group)
	}
	k := maps[0]
	if e.Class >= classify.FirstClass6 {
		k = maps[1]
	}
	if program == 0 {
		d.drop(k, numberOf(e.Class))
	} else {
		d.put(k, numberOf(e.Class), numberOf(program))
	}
}

// groupMaps are a group's maps, which are made if there are none.
func (d *Driver) groupMaps(number classify.Group) [2]*kset {
	t := d.tables
	maps, known := t.groups[number]
	if known {
		return maps
	}
	name := d.state.GroupName(number)
	for i := range families {
		maps[i] = d.tableSet(nftables.Set{Name: groupMap(name, i), Key: nftables.TypeClassID, Data: nftables.TypeClassID, Comment: "class: program"})
		maps[i].late = func(class string) bool { return t.live[class] == 0 }
		maps[i].lateSet, maps[i].family = true, i
		maps[i].about = func(class string) string {
			if class == "" {
				return "all other addresses"
			}
			return t.about[class]
		}
	}
	t.groups[number] = maps
	return maps
}

func (d *Driver) dropGroup(number classify.Group) {
	for _, k := range d.tables.groups[number] {
		if k != nil {
			k.undesireAll()
			k.held = false
			d.want(k, false)
		}
	}
	delete(d.tables.groups, number)
}

// setBody puts the cells of a program into the maps, or takes them out.
func (d *Driver) setBody(program classify.Program, b classify.Body, wanted bool) {
	cell := func(name string, code classify.Code, key ...[]byte) {
		id := string(nftables.KeyConcat(append([][]byte{nftables.U32(uint32(program))}, key...)...))
		if wanted {
			d.put(d.ksets[name], id, numberOf(code))
		} else {
			d.drop(d.ksets[name], id)
		}
	}
	for at, code := range b.Port {
		cell(mapPorts, code, nftables.KeyProto(at.Proto), nftables.KeyPort(at.Port))
	}
	for proto, code := range b.Proto {
		cell(mapProtos, code, nftables.KeyProto(proto))
	}
	cell(mapPrograms, b.Else)
}
