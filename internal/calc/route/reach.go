package route

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// Mode is how packets to addresses of a pool reach other hosts.
type Mode uint8

// Modes. CrossSubnet is a tunnel to hosts on other networks, and none to those on a network of this host.
const (
	ByBGP Mode = iota // without a tunnel, by routes that are learned
	Always
	CrossSubnet
)

// Node is what routes need of a node; of IPv4, and of IPv6.
type Node struct {
	Net  [2]netip.Prefix // its address, with the length of its network
	Addr [2]netip.Addr   // its end of the tunnel
	MAC  [2]string       // of that end
}

// Pool is what routes need of an IPPool.
type Pool struct {
	CIDR netip.Prefix // masked
	Mode Mode
}

// Block is what routes need of a block of addresses.
type Block struct {
	CIDR  netip.Prefix
	Owner string                // the node that it belongs to; empty: none
	Lent  map[netip.Addr]string // addresses of it that other nodes have
}

// Reach works out how this node reaches addresses of blocks: what is its own, what leads through a tunnel, what straight to another
// host, and what is left to BGP. It is the one place where that is decided. Use NewReach.
//
// A change costs what depends on it: a block its own routes, a node those of the blocks of which it has addresses, a pool, this node's
// own addresses and the first and last tunnel those of all blocks.
type Reach struct {
	self   string
	table  *Table
	nodes  map[string]Node
	pools  map[string]Pool // by key
	modes  map[netip.Prefix]Mode
	bits   map[int]int // how many pools have a CIDR of that length
	blocks map[string]Block
	users  map[string]map[string]struct{} // keys of blocks of which a node has addresses
	claims map[end]map[string]struct{}    // nodes by the ends of tunnels that they say are theirs: the first has it

	dirty map[string]struct{} // keys of blocks
	again map[string]struct{} // nodes whose peers may have changed
	all   bool                // every block and peer

	peers map[intent.PeerID]intent.TunnelPeer // what batches so far add up to
	hosts map[netip.Addr]int                  // how many of them have the address
	open  bool                                // the set of them was sent
}

// end is an address of an end of a tunnel, or the hardware address of one.
type end struct {
	family int
	addr   netip.Addr
	mac    string
}

// NewReach returns one that knows nothing, whose routes go to the table.
func NewReach(self string, t *Table) *Reach {
	return &Reach{
		self: self, table: t, nodes: map[string]Node{}, pools: map[string]Pool{}, modes: map[netip.Prefix]Mode{}, bits: map[int]int{}, blocks: map[string]Block{},
		users: map[string]map[string]struct{}{}, claims: map[end]map[string]struct{}{}, dirty: map[string]struct{}{}, again: map[string]struct{}{},
		peers: map[intent.PeerID]intent.TunnelPeer{}, hosts: map[netip.Addr]int{},
	}
}

// SetNode takes over a node; the zero value: nothing is known of it.
func (r *Reach) SetNode(name string, n Node) {
	old := r.nodes[name]
	if old == n {
		return
	}
	for f := range old.Addr {
		r.claim(name, end{family: f, addr: old.Addr[f]}, false)
		r.claim(name, end{family: f, mac: old.MAC[f]}, false)
		r.claim(name, end{family: f, addr: n.Addr[f]}, true)
		r.claim(name, end{family: f, mac: n.MAC[f]}, true)
	}
	if r.nodes[name] = n; n == (Node{}) {
		delete(r.nodes, name)
	}
	r.all = r.all || name == r.self
	r.touch(name)
}

// claim notes which end of a tunnel is a node's, or not any more. Of two nodes with one address, the first by name has it.
func (r *Reach) claim(name string, a end, has bool) {
	if !a.addr.IsValid() && a.mac == "" {
		return
	}
	if has && r.claims[a] == nil {
		r.claims[a] = map[string]struct{}{}
	}
	if has {
		r.claims[a][name] = struct{}{}
	} else {
		delete(r.claims[a], name)
	}
	for other := range r.claims[a] {
		r.all = r.all || other == r.self
		r.touch(other)
	}
	if len(r.claims[a]) == 0 {
		delete(r.claims, a)
	}
}

// touch marks what depends on a node.
func (r *Reach) touch(node string) {
	r.again[node] = struct{}{}
	for key := range r.users[node] {
		r.dirty[key] = struct{}{}
	}
}

// SetPool takes over a pool; the zero value: there is none of that key.
func (r *Reach) SetPool(key string, p Pool) {
	old := r.pools[key]
	if old == p {
		return
	}
	if r.pools[key] = p; p == (Pool{}) {
		delete(r.pools, key)
	}
	for _, cidr := range []netip.Prefix{old.CIDR, p.CIDR} {
		if !cidr.IsValid() {
			continue
		}
		if _, had := r.modes[cidr]; had {
			r.count(cidr, -1)
			delete(r.modes, cidr)
		}
		for _, k := range slices.Backward(slices.Sorted(maps.Keys(r.pools))) { // the first by key has the last word
			if q := r.pools[k]; q.CIDR == cidr {
				r.modes[cidr] = q.Mode
			}
		}
		if _, has := r.modes[cidr]; has {
			r.count(cidr, 1)
		}
	}
	r.all = true
}

func (r *Reach) count(cidr netip.Prefix, by int) {
	if r.bits[cidr.Bits()] += by; r.bits[cidr.Bits()] == 0 {
		delete(r.bits, cidr.Bits())
	}
}

// mode is that of the smallest pool that a block is in; without one it is left to BGP.
func (r *Reach) mode(block netip.Prefix) Mode {
	longest, mode := -1, ByBGP
	for bits := range r.bits {
		if bits > longest && bits <= block.Bits() {
			p, err := block.Addr().Prefix(bits)
			if m, is := r.modes[p]; err == nil && is {
				longest, mode = bits, m
			}
		}
	}
	return mode
}

// SetBlock takes over a block; the zero value: there is none of that key.
func (r *Reach) SetBlock(key string, b Block) {
	old := r.blocks[key]
	if old.CIDR == b.CIDR && old.Owner == b.Owner && maps.Equal(old.Lent, b.Lent) {
		return
	}
	old.each(func(node string) {
		if delete(r.users[node], key); len(r.users[node]) == 0 {
			delete(r.users, node)
		}
	})
	b.each(func(node string) {
		if r.users[node] == nil {
			r.users[node] = map[string]struct{}{}
		}
		r.users[node][key] = struct{}{}
	})
	if r.blocks[key] = b; !b.CIDR.IsValid() {
		delete(r.blocks, key)
	}
	r.dirty[key] = struct{}{}
}

// each calls yield for each node that has addresses of a block, perhaps more than once.
func (b Block) each(yield func(node string)) {
	if b.Owner != "" {
		yield(b.Owner)
	}
	for _, node := range b.Lent {
		yield(node)
	}
}

// Flush puts the routes of blocks into the table, and peers and their set into the batch; it returns what is gone. Call it before the
// table's Flush.
func (r *Reach) Flush(b *intent.Batch) (goneSet, gonePeers []intent.Key) {
	if r.all {
		for key := range r.blocks {
			r.dirty[key] = struct{}{}
		}
		for name := range r.nodes {
			r.again[name] = struct{}{}
		}
		r.all = false
	}
	for key := range r.dirty {
		r.table.Set(key, r.routes(r.blocks[key]))
	}
	clear(r.dirty)
	changed := map[netip.Addr]bool{} // whether the set had it
	for _, name := range slices.Sorted(maps.Keys(r.again)) {
		for f := range r.nodes[name].Addr {
			if id, gone := r.flushPeer(b, name, f, changed); gone {
				gonePeers = append(gonePeers, id)
			}
		}
	}
	clear(r.again)
	return r.flushSet(b, changed), gonePeers
}

// flushPeer sends the peer of one family if it changed, and returns its ID if it is gone.
func (r *Reach) flushPeer(b *intent.Batch, name string, f int, changed map[netip.Addr]bool) (id intent.PeerID, gone bool) {
	p, is := r.peer(name, f)
	id = intent.PeerID{Node: name, Family: families[f]}
	was, had := r.peers[id]
	if is == had && p == was {
		return id, false
	}
	note := func(a netip.Addr) {
		if _, known := changed[a]; !known {
			changed[a] = r.hosts[a] > 0
		}
	}
	if had {
		note(was.Host)
		if r.hosts[was.Host]--; r.hosts[was.Host] == 0 {
			delete(r.hosts, was.Host)
		}
		delete(r.peers, id)
	}
	if is {
		note(p.Host)
		r.hosts[p.Host]++
		r.peers[id] = p
		b.Peers = append(b.Peers, p)
	}
	return id, had && !is
}

// flushSet sends the set of the peers' addresses: whole if it is new, and what changed of it otherwise.
func (r *Reach) flushSet(b *intent.Batch, changed map[netip.Addr]bool) (gone []intent.Key) {
	_, is4 := r.Tunnel(0)
	_, is6 := r.Tunnel(1)
	was := r.open
	r.open = is4 || is6
	switch {
	case r.open && !was:
		b.IPSets = append(b.IPSets, r.set())
	case was && !r.open:
		return []intent.Key{intent.SetVXLANPeers}
	case r.open:
		d := intent.MemberDelta{Set: intent.SetVXLANPeers}
		for _, a := range slices.SortedFunc(maps.Keys(changed), netip.Addr.Compare) {
			switch has := r.hosts[a] > 0; {
			case has && !changed[a]:
				d.Added = append(d.Added, memberOf(a))
			case !has && changed[a]:
				d.Removed = append(d.Removed, memberOf(a))
			}
		}
		if len(d.Added)+len(d.Removed) > 0 {
			b.Members = append(b.Members, d)
		}
	}
	return nil
}

func memberOf(a netip.Addr) intent.Member {
	return intent.Member{Prefix: netip.PrefixFrom(a, a.BitLen())}
}

func (r *Reach) set() intent.IPSet {
	s := intent.IPSet{ID: intent.SetVXLANPeers, Comment: "hosts at the other ends of VXLAN tunnels"}
	for _, a := range slices.SortedFunc(maps.Keys(r.hosts), netip.Addr.Compare) {
		s.Members = append(s.Members, memberOf(a))
	}
	return s
}

// Present returns the set of peers if it was sent, and the peers, as of the last flush.
func (r *Reach) Present() (sets []intent.IPSet, peers []intent.TunnelPeer) {
	if r.open {
		sets = append(sets, r.set())
	}
	return sets, slices.SortedFunc(maps.Values(r.peers), func(a, b intent.TunnelPeer) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Family, b.Family))
	})
}

// Len is how much is remembered.
func (r *Reach) Len() int {
	return len(r.nodes) + len(r.pools) + len(r.modes) + len(r.bits) + len(r.blocks) + len(r.users) + len(r.claims) + len(r.peers) + len(r.hosts)
}

var (
	families = [2]intent.Family{intent.IPv4, intent.IPv6}
	devices  = [2]string{intent.LinkVXLAN, intent.LinkVXLAN6}
)

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// Tunnel returns this node's end of the tunnel of a family; false: it has none, since no pool wants one, or it has no address for one yet.
func (r *Reach) Tunnel(f int) (intent.Tunnel, bool) {
	n := r.nodes[r.self]
	if !n.Net[f].IsValid() || !r.owns(r.self, n, f) || !r.wanted(f) {
		return intent.Tunnel{}, false
	}
	return intent.Tunnel{Host: n.Net[f].Addr(), Addr: n.Addr[f], MAC: n.MAC[f]}, true
}

func (r *Reach) wanted(f int) bool {
	for p, mode := range r.modes {
		if mode != ByBGP && familyOf(p.Addr()) == f {
			return true
		}
	}
	return false
}

// owns reports whether a node has an end of a tunnel, and no node with a name before its own says that it has the same.
func (r *Reach) owns(name string, n Node, f int) bool {
	for _, e := range []end{{family: f, addr: n.Addr[f]}, {family: f, mac: n.MAC[f]}} {
		for other := range r.claims[e] {
			if other < name {
				return false
			}
		}
	}
	return n.Addr[f].IsValid()
}

// peer returns the other end of the tunnel of a family at a node.
func (r *Reach) peer(name string, f int) (intent.TunnelPeer, bool) {
	n := r.nodes[name]
	if _, ours := r.Tunnel(f); !ours || name == r.self || !n.Net[f].IsValid() || !r.owns(name, n, f) {
		return intent.TunnelPeer{}, false
	}
	return intent.TunnelPeer{Node: name, Family: families[f], Host: n.Net[f].Addr(), Addr: n.Addr[f], MAC: n.MAC[f]}, true
}

// routes returns those of a block. The addresses of an own one that no endpoint has lead nowhere: else a packet to one would follow the
// default route, and perhaps loop.
func (r *Reach) routes(b Block) []intent.Route {
	if !b.CIDR.IsValid() {
		return nil
	}
	mode := r.mode(b.CIDR)
	var out []intent.Route
	if b.Owner == r.self {
		out = append(out, intent.Route{Dst: b.CIDR, Kind: intent.RouteBlackhole})
	} else if mode != ByBGP && b.Owner != "" {
		out = append(out, r.to(b.Owner, b.CIDR, mode))
	}
	for a, node := range b.Lent {
		if dst := netip.PrefixFrom(a, a.BitLen()); mode != ByBGP && node != r.self && dst != b.CIDR {
			out = append(out, r.to(node, dst, mode))
		}
	}
	return out
}

// to returns the route to addresses of another node that are not left to BGP.
func (r *Reach) to(node string, dst netip.Prefix, mode Mode) intent.Route {
	f := familyOf(dst.Addr())
	here, there := r.nodes[r.self].Net[f], r.nodes[node].Net[f]
	if mode == CrossSubnet && here.IsValid() && there.IsValid() && here.Masked().Contains(there.Addr()) {
		return intent.Route{Dst: dst, Kind: intent.RouteDirect, Node: node, Via: there.Addr()}
	}
	p, _ := r.peer(node, f)
	return intent.Route{Dst: dst, Kind: intent.RouteTunnel, Link: devices[f], Node: node, Via: p.Addr}
}
