package ipam

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
)

// What calicoctl's check of addresses prints and writes: all of them, and who has each.

// Use is an address that somebody has, whether it is allocated or not.
type Use struct {
	Addr netip.Addr
	By   string // as calicoctl names it: Workload(NAMESPACE/NAME), Node(NAME)
	Node bool   // it is that of a node's tunnel
}

// Uses are the addresses of endpoints and of nodes' tunnels, sorted; one that several have is there as often.
func (v *Survey) Uses() (out []Use) {
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		var of []netip.Addr
		for _, typ := range tunnelTypes {
			text, _ := tunnelOf(v.nodes[name], typ)
			address, _, _ := strings.Cut(text, "/")
			if a, err := netip.ParseAddr(address); err == nil && !slices.Contains(of, a) {
				of = append(of, a)
				out = append(out, Use{a, "Node(" + name + ")", true})
			}
		}
	}
	for a, us := range v.users {
		for _, u := range us {
			out = append(out, Use{a, "Workload(" + u.ref.Namespace + "/" + u.ref.Name + ")", false})
		}
	}
	slices.SortStableFunc(out, func(a, b Use) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.By, b.By)) })
	return out
}

// HasNode reports whether there is a Node of that name.
func (v *Survey) HasNode(name string) bool { return v.nodes[name] != nil }

// Record is an allocation, and what a check makes of it.
type Record struct {
	Allocation
	Handle   string // empty: none, or Windows'
	Node     string // for which it was allocated, or whose block it is in
	Borrowed bool   // it is in the block of another
	Cooling  bool   // it was released, and is not given out again yet
	Owners   []string
	Leaked   bool // it is proven that nobody has it
	Age      time.Duration
	Dated    bool // its age is known
}

// Records are all allocations, in order, judged by what a check of this survey found.
func (v *Survey) Records(found []Finding, now time.Time) (out []Record) {
	leaks, uses := map[netip.Addr]Finding{}, map[netip.Addr][]string{}
	for _, f := range found {
		if f.Kind == FoundLeak {
			leaks[f.Address] = f
		}
	}
	for _, u := range v.Uses() {
		uses[u.Addr] = append(uses[u.Addr], u.By)
	}
	clock := checking{CheckOptions: CheckOptions{Now: now}}
	for _, b := range v.Blocks {
		own, owned := b.Owner()
		for _, l := range Allocations(b) {
			r := Record{Allocation: l, Handle: handleOf(l.Attr), Cooling: coolingDown(l.Attr), Owners: uses[l.Addr]}
			r.Age, r.Dated = clock.age(l.Attr)
			if r.Node, r.Borrowed = l.Borrowed(); r.Node == "" && owned && own.Type == api.OwnerHost {
				r.Node = own.Name
			}
			f, leak := leaks[l.Addr]
			switch {
			case r.Handle == windows:
				r.Handle, r.Owners = "", append(r.Owners, "Reserved for Windows")
			case r.Cooling || len(r.Owners) > 0:
			case leak && f.Sequence == l.Sequence() && f.Fix != "":
				r.Leaked = true
			case leak: // nobody is seen to have it, and it is not proven
			default:
				r.Owners = append(r.Owners, holderOf(l))
			}
			out = append(out, r)
		}
	}
	return out
}

// holderOf names who has an address that is no endpoint's and no tunnel's, and of which a check says that somebody has it.
func holderOf(l Allocation) string {
	node := l.Attr.Owner[api.AttributeNode]
	if l.Attr.Owner[api.AttributeNote] == NoteDocker {
		return "Docker(" + node + ")"
	}
	return "Node(" + node + ")"
}

// OnlyKubernetesKnows names what an allocation is for, if no endpoint could show that it is there: a service, or a virtual machine, which keeps its address while it is
// stopped. Empty: it is for something else.
func (l Allocation) OnlyKubernetesKnows() string {
	namespace, service := l.Attr.Owner[api.AttributeNamespace], l.Attr.Owner[api.AttributeService]
	if service != "" {
		return "service " + namespace + "/" + service
	}
	if m, is := l.Machine(); is {
		return "virtual machine " + m.Namespace + "/" + m.Name
	}
	return ""
}

// HandleRecord is a handle, and the revision of what is stored of it.
type HandleRecord struct {
	ID       string
	Revision api.Revision
	Stored   bool // false: allocations name it, and there is none
	Named    bool // an allocation names it
}

// Handles are all handles that are stored or named, sorted by their IDs. One that cannot be read is not among them.
func (v *Survey) Handles() (out []HandleRecord) {
	all := map[string]HandleRecord{}
	for key, e := range v.docs {
		if id, ok := api.ParseHandleKey(key); ok && e.bad == nil {
			all[id] = HandleRecord{ID: id, Revision: e.was.Revision, Stored: true}
		}
	}
	for _, b := range v.Blocks {
		for _, l := range Allocations(b) {
			id := handleOf(l.Attr)
			if e := v.docs[api.HandleKey(id)]; id == "" || id == windows || e != nil && e.bad != nil {
				continue
			}
			h := all[id]
			h.ID, h.Named = id, true
			all[id] = h
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[id])
	}
	return out
}
