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

// Node is what routes need of a node.
type Node struct {
	Net  [2]netip.Prefix // its address, with the length of its network; of IPv4, and of IPv6
	Ends [intent.TunnelKinds]End
}

// End is a node's end of a tunnel. Without an address there is none; of WireGuard, without a key.
type End struct {
	Addr netip.Addr
	MAC  string // of VXLAN
	Key  string // of WireGuard
}

// there reports whether a node says that it has an end of a kind.
func (e End) there(k intent.TunnelKind) bool {
	if encrypts(k) {
		return e.Key != ""
	}
	return e.Addr.IsValid()
}

func encrypts(k intent.TunnelKind) bool { return k == intent.WireGuard || k == intent.WireGuard6 }

// Pool is what routes need of an IPPool.
type Pool struct {
	CIDR netip.Prefix // masked
	Mode Mode
	By   intent.TunnelKind // unless Mode is ByBGP
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
	pools  map[netip.Prefix]Pool
	bits   map[int]int // how many pools have a CIDR of that length
	blocks map[string]Block
	users  map[string]map[string]struct{} // keys of blocks of which a node has addresses
	claims map[end]map[string]struct{}    // nodes by the ends of tunnels that they say are theirs: the first has it

	dirty map[string]struct{}      // keys of blocks
	again map[string]struct{}      // nodes whose peers may have changed
	all   bool                     // every block and peer
	off   [intent.TunnelKinds]bool // settings want no tunnel of the kind
	clear bool                     // what is for a node without a key is not encrypted

	direct   bool           // routes of pools without a tunnel to hosts on a network of this host are made, too
	external []netip.Prefix // hosts that are no nodes, and may send encapsulated packets

	peers map[intent.PeerID]intent.TunnelPeer // what batches so far add up to
	sets  map[intent.SetID]*hosts             // of peers
}

// end is an address of an end of a tunnel, or the hardware address or the key of one.
type end struct {
	kind intent.TunnelKind
	addr netip.Addr
	mac  string
	key  string
}

// NewReach returns one that knows nothing, whose routes go to the table.
func NewReach(self string, t *Table) *Reach {
	return &Reach{
		self: self, table: t, nodes: map[string]Node{}, pools: map[netip.Prefix]Pool{}, bits: map[int]int{}, blocks: map[string]Block{},
		users: map[string]map[string]struct{}{}, claims: map[end]map[string]struct{}{}, dirty: map[string]struct{}{}, again: map[string]struct{}{},
		peers: map[intent.PeerID]intent.TunnelPeer{}, sets: newHosts(), off: [intent.TunnelKinds]bool{intent.WireGuard: true, intent.WireGuard6: true},
	}
}

// SetNode takes over a node; the zero value: nothing is known of it.
func (r *Reach) SetNode(name string, n Node) {
	old := r.nodes[name]
	if old == n {
		return
	}
	for k := range intent.TunnelKinds {
		for _, e := range old.Ends[k].claims(k) {
			r.claim(name, e, false)
		}
		for _, e := range n.Ends[k].claims(k) {
			r.claim(name, e, true)
		}
	}
	if r.nodes[name] = n; n == (Node{}) {
		delete(r.nodes, name)
	}
	r.all = r.all || name == r.self
	r.touch(name)
}

// TurnOff says that this node has no tunnel of a kind, whatever pools want; false: it has one if they do.
func (r *Reach) TurnOff(k intent.TunnelKind, off bool) {
	r.all = r.all || r.off[k] != off
	r.off[k] = off
}

// SetDirect says whether this node also makes routes to addresses of pools without a tunnel, to hosts on a network of its own; else
// they are left to BGP, as those to other networks always are.
func (r *Reach) SetDirect(on bool) {
	r.all = r.all || r.direct != on
	r.direct = on
}

// SetExternal says which hosts besides nodes may send encapsulated packets: prefixes, masked, each once.
func (r *Reach) SetExternal(all []netip.Prefix) {
	for _, s := range r.sets {
		for _, p := range r.external {
			s.add(p, -1)
		}
		for _, p := range all {
			s.add(p, 1)
		}
	}
	r.external = all
}

// AllowClear says that what is for nodes without a key goes as if settings wanted no WireGuard.
func (r *Reach) AllowClear(may bool) {
	r.all = r.all || r.clear != may
	r.clear = may
}

// claims are what no other node may have of an end. The address of one of WireGuard is not: nothing is sent to it.
func (e End) claims(k intent.TunnelKind) []end {
	if encrypts(k) {
		return []end{{kind: k, key: e.Key}}
	}
	return []end{{kind: k, addr: e.Addr}, {kind: k, mac: e.MAC}}
}

// claim notes which end of a tunnel is a node's, or not any more. Of two nodes with one address, the first by name has it.
func (r *Reach) claim(name string, a end, has bool) {
	if !a.addr.IsValid() && a.mac == "" && a.key == "" {
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

// SetPool takes over the pool of a CIDR, masked; the zero value: there is none.
func (r *Reach) SetPool(cidr netip.Prefix, p Pool) {
	old, had := r.pools[cidr]
	if old == p {
		return
	}
	if had {
		r.count(cidr, -1)
		delete(r.pools, cidr)
	}
	if p != (Pool{}) {
		r.pools[cidr] = p
		r.count(cidr, 1)
	}
	r.all = true
}

func (r *Reach) count(cidr netip.Prefix, by int) {
	if r.bits[cidr.Bits()] += by; r.bits[cidr.Bits()] == 0 {
		delete(r.bits, cidr.Bits())
	}
}

// pool is the smallest that a block is in; without one it is left to BGP, as the zero value says.
func (r *Reach) pool(block netip.Prefix) (in Pool) {
	longest := -1
	for bits := range r.bits {
		if bits > longest && bits <= block.Bits() {
			p, err := block.Addr().Prefix(bits)
			if pool, is := r.pools[p]; err == nil && is {
				longest, in = bits, pool
			}
		}
	}
	return in
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

// Lent is which addresses of a block other nodes have.
func (r *Reach) Lent(key string) map[netip.Addr]string { return r.blocks[key].Lent }

// each calls yield for each node that has addresses of a block, perhaps more than once.
func (b Block) each(yield func(node string)) {
	if b.Owner != "" {
		yield(b.Owner)
	}
	for _, node := range b.Lent {
		yield(node)
	}
}

// Flush puts the routes of blocks into the table, and peers and their sets into the batch; it returns what is gone. Call it before the
// table's Flush.
func (r *Reach) Flush(b *intent.Batch) (goneSets, gonePeers []intent.Key) {
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
		r.table.Set(key, Owner{}, r.routes(r.blocks[key]))
	}
	clear(r.dirty)
	for _, name := range slices.Sorted(maps.Keys(r.again)) {
		for k := range intent.TunnelKinds {
			if id, gone := r.flushPeer(b, name, k); gone {
				gonePeers = append(gonePeers, id)
			}
		}
	}
	clear(r.again)
	ours := map[intent.SetID]bool{}
	for k, t := range r.Tunnels() {
		if t != (intent.Tunnel{}) {
			ours[intent.TunnelKind(k).Peers()] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.sets)) {
		if r.sets[id].flush(b, id, ours[id]) {
			goneSets = append(goneSets, id)
		}
	}
	return goneSets, gonePeers
}

// flushPeer sends the peer of one kind if it changed, and returns its ID if it is gone.
func (r *Reach) flushPeer(b *intent.Batch, name string, k intent.TunnelKind) (id intent.PeerID, gone bool) {
	p, is := r.peer(name, k)
	id = intent.PeerID{Node: name, Kind: k}
	was, had := r.peers[id]
	if is == had && p == was {
		return id, false
	}
	set := r.sets[k.Peers()]
	if had {
		set.add(hostPrefix(was.Host), -1)
		delete(r.peers, id)
	}
	if is {
		set.add(hostPrefix(p.Host), 1)
		r.peers[id] = p
		b.Peers = append(b.Peers, p)
	}
	return id, had && !is
}

// Present returns the sets of peers that were sent, and the peers, as of the last flush.
func (r *Reach) Present() (sets []intent.IPSet, peers []intent.TunnelPeer) {
	for _, id := range slices.Sorted(maps.Keys(r.sets)) {
		if s := r.sets[id]; s.open {
			sets = append(sets, s.set(id))
		}
	}
	return sets, slices.SortedFunc(maps.Values(r.peers), func(a, b intent.TunnelPeer) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Kind, b.Kind))
	})
}

// Len is how much is remembered.
func (r *Reach) Len() int {
	n := 0
	for _, s := range r.sets {
		n += len(s.count)
	}
	return n + len(r.nodes) + len(r.pools) + len(r.bits) + len(r.blocks) + len(r.users) + len(r.claims) + len(r.peers)
}

// family is an index of a Node's Net.
func family(k intent.TunnelKind) int {
	if k.Family() == intent.IPv4 {
		return 0
	}
	return 1
}

// Tunnels returns this node's ends of tunnels. One that it has not has the zero value: no pool wants it, or settings do not, or it has no address for it yet.
func (r *Reach) Tunnels() (out intent.Tunnels) {
	for k := range out {
		out[k] = r.tunnel(intent.TunnelKind(k))
	}
	return out
}

func (r *Reach) tunnel(k intent.TunnelKind) intent.Tunnel {
	n := r.nodes[r.self]
	if host := n.Net[family(k)]; !r.off[k] && host.IsValid() && (encrypts(k) || r.owns(r.self, n, k)) && r.wanted(k) {
		return intent.Tunnel{Host: host.Addr(), Addr: n.Ends[k].Addr, MAC: n.Ends[k].MAC}
	}
	return intent.Tunnel{}
}

// Wanted returns the kinds of tunnels that pools ask for and settings do not turn off.
func (r *Reach) Wanted() (out [intent.TunnelKinds]bool) {
	for k := range intent.TunnelKinds {
		out[k] = !r.off[k] && r.wanted(k)
	}
	return out
}

// Published reports whether this node's Node has a key of WireGuard of a kind that no other node before it, by name, says is its own.
func (r *Reach) Published(k intent.TunnelKind) bool {
	n := r.nodes[r.self]
	return n.Net[family(k)].IsValid() && r.owns(r.self, n, k)
}

// Own returns this node's addresses, of IPv4 and of IPv6.
func (r *Reach) Own() (out [2]netip.Addr) {
	for f, p := range r.nodes[r.self].Net {
		out[f] = p.Addr()
	}
	return out
}

func (r *Reach) wanted(k intent.TunnelKind) bool {
	if encrypts(k) { // pools have no say
		return true
	}
	for _, p := range r.pools {
		if p.Mode != ByBGP && p.By == k {
			return true
		}
	}
	return false
}

// owns reports whether a node has an end of a tunnel, and no node with a name before its own says that it has the same.
func (r *Reach) owns(name string, n Node, k intent.TunnelKind) bool {
	if !n.Ends[k].there(k) {
		return false
	}
	for _, e := range n.Ends[k].claims(k) {
		for other := range r.claims[e] {
			if other < name {
				return false
			}
		}
	}
	return true
}

// peer returns the other end of a tunnel at a node.
func (r *Reach) peer(name string, k intent.TunnelKind) (intent.TunnelPeer, bool) {
	n := r.nodes[name]
	host := n.Net[family(k)]
	if name == r.self || !host.IsValid() || !r.owns(name, n, k) || r.tunnel(k) == (intent.Tunnel{}) {
		return intent.TunnelPeer{}, false
	}
	return intent.TunnelPeer{Node: name, Kind: k, Host: host.Addr(), Addr: n.Ends[k].Addr, MAC: n.Ends[k].MAC, Key: n.Ends[k].Key}, true
}

// routes returns those of a block. The addresses of an own one that no endpoint has lead nowhere: else a packet to one would follow the
// default route, and perhaps loop. Not that of a block with a single one: Calico's plugin makes the route to its workload before the endpoint is
// known, and could not (EEXIST).
func (r *Reach) routes(b Block) []intent.Route {
	if !b.CIDR.IsValid() {
		return nil
	}
	in := r.pool(b.CIDR)
	var out []intent.Route
	owner, single := b.Owner, b.CIDR.IsSingleIP()
	if node := b.Lent[b.CIDR.Addr()]; single && node != "" {
		owner = node // whoever has the address
	}
	switch {
	case owner == r.self && !single:
		out = append(out, intent.Route{Dst: b.CIDR, Kind: intent.RouteBlackhole})
	case owner != r.self && owner != "":
		out = r.to(out, owner, b.CIDR, in)
	}
	for a, node := range b.Lent {
		if dst := hostPrefix(a); node != r.self && dst != b.CIDR {
			out = r.to(out, node, dst, in)
		}
	}
	return out
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// to appends the route to addresses of another node, unless they are left to BGP.
func (r *Reach) to(out []intent.Route, node string, dst netip.Prefix, in Pool) []intent.Route {
	f := 0
	if dst.Addr().Is6() {
		f = 1
	}
	k := [2]intent.TunnelKind{intent.WireGuard, intent.WireGuard6}[f]
	if _, is := r.peer(node, k); is || !r.off[k] && !r.clear {
		return append(out, intent.Route{Dst: dst, Kind: intent.RouteEncrypted, Node: node})
	}
	here, there := r.nodes[r.self].Net[f], r.nodes[node].Net[f]
	near := here.IsValid() && there.IsValid() && here.Masked().Contains(there.Addr())
	switch {
	case near && (in.Mode == CrossSubnet || in.Mode == ByBGP && r.direct && in.CIDR.IsValid()):
		return append(out, intent.Route{Dst: dst, Kind: intent.RouteDirect, Node: node, Via: there.Addr()})
	case in.Mode == ByBGP:
		return out
	}
	p, _ := r.peer(node, in.By)
	return append(out, intent.Route{Dst: dst, Kind: intent.RouteTunnel, Link: in.By.Link(), Node: node, Via: p.Hop()})
}
