package iptables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/delta"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
)

// memberSet is a set, with a kernel set for each family.
type memberSet struct {
	members map[intent.Member]struct{}
	kernel  []*kernelSet
}

// kernelSet is a kernel set: the elements it should have, and those it has.
type kernelSet struct {
	Set
	asked  map[string]int // members of which each element is
	elems  *delta.Map[string, struct{}]
	exists bool
	other  bool // the one that exists is of another type
}

func newKernelSet(s Set) *kernelSet {
	return &kernelSet{Set: s, asked: map[string]int{}, elems: delta.New[string](func(a, b struct{}) bool { return true })}
}

// add adds a member.
func (k *kernelSet) add(m intent.Member) {
	for _, el := range k.Elements(m) {
		if k.asked[el]++; k.asked[el] == 1 {
			k.elems.Desire(el, struct{}{})
		}
	}
}

// remove removes a member. Another may be the same element.
func (k *kernelSet) remove(m intent.Member) {
	for _, el := range k.Elements(m) {
		if k.asked[el]--; k.asked[el] <= 0 {
			delete(k.asked, el)
			k.elems.Undesire(el)
		}
	}
}

// mergeSets merges changes of sets and of their members.
func (d *Driver) mergeSets(b intent.Batch) {
	for _, in := range b.IPSets {
		d.forgetSet(in.ID)
		s := &memberSet{members: map[intent.Member]struct{}{}}
		for _, f := range families {
			s.kernel = append(s.kernel, d.kernelSet(setOf(in.ID, in.Kind, f)))
		}
		d.sets[in.ID] = s
		for _, m := range in.Members {
			s.add(m)
		}
	}
	for _, m := range b.Members {
		if s := d.sets[m.Set]; s != nil {
			for _, x := range m.Removed {
				s.remove(x)
			}
			for _, x := range m.Added {
				s.add(x)
			}
		}
	}
	for _, key := range b.Removed {
		if id, ok := key.(intent.SetID); ok {
			d.forgetSet(id)
		}
	}
}

// forgetSet takes all members from a set; its kernel sets go once nothing looks into them.
func (d *Driver) forgetSet(id intent.SetID) {
	s := d.sets[id]
	if s == nil {
		return
	}
	for m := range s.members {
		s.remove(m)
	}
	delete(d.sets, id)
}

// kernelSet finds or makes the record of a kernel set.
func (d *Driver) kernelSet(s Set) *kernelSet {
	k := d.ksets[s.Name]
	if k == nil {
		k = newKernelSet(s)
		d.ksets[s.Name] = k
	}
	k.Set = s
	return k
}

func (s *memberSet) add(m intent.Member) {
	if _, there := s.members[m]; there {
		return
	}
	s.members[m] = struct{}{}
	for _, k := range s.kernel {
		k.add(m)
	}
}

func (s *memberSet) remove(m intent.Member) {
	if _, there := s.members[m]; !there {
		return
	}
	delete(s.members, m)
	for _, k := range s.kernel {
		k.remove(m)
	}
}

// move is a pending change of one element.
type move struct {
	k     *kernelSet
	el    string
	joins bool
}

func (m move) line() string {
	if m.joins {
		return "add " + m.k.Name + " " + m.el
	}
	return "del " + m.k.Name + " " + m.el
}

// done notes that it is in the kernel.
func (m move) done() {
	if m.joins {
		m.k.elems.MarkApplied(m.el)
	} else {
		m.k.elems.MarkDeleted(m.el)
	}
}

// pending are the changes of members of sets that rules in force look into.
func (d *Driver) pending() (out []move, as []desired.Move) {
	for _, name := range slices.Sorted(maps.Keys(d.sees)) {
		k := d.ksets[name]
		if k == nil || !k.exists || k.other {
			continue
		}
		var here []move
		for el := range k.elems.PendingUpdates() {
			here = append(here, move{k, el, true})
		}
		for el := range k.elems.PendingDeletes() {
			here = append(here, move{k, el, false})
		}
		slices.SortFunc(here, func(a, b move) int { return strings.Compare(a.el, b.el) })
		for _, m := range here {
			addr, net := k.address(m.el)
			as = append(as, desired.Move{Set: k.ID, Addr: addr, Net: net, Joins: m.joins})
		}
		out = append(out, here...)
	}
	return out, as
}

// address is the address of an element, the same in any set; net: it is a prefix, which may contain others.
func (s Set) address(el string) (addr string, net bool) {
	if a, _, ok := strings.Cut(el, ","); ok {
		return a, false
	}
	p, err := netip.ParsePrefix(el)
	if err != nil {
		return el, true
	}
	return p.Addr().String(), !p.IsSingleIP()
}

// portNames are the names by which ipset prints protocols that have ports.
var portNames = map[string]uint8{"tcp": 6, "udp": 17, "sctp": 132, "udplite": 136}

// savedElement is an element in our form, of the text in which ipset prints it; what is no element of ours stays as it is.
func savedElement(text string) string {
	if a, rest, ok := strings.Cut(text, ","); ok {
		proto, port, _ := strings.Cut(rest, ":")
		number, known := portNames[proto]
		addr, err := netip.ParseAddr(a)
		n, perr := strconv.ParseUint(port, 10, 16)
		if !known || err != nil || perr != nil {
			return text
		}
		return fmt.Sprintf("%s,%d:%d", addr, number, n)
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.String()
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	return netip.PrefixFrom(a, a.BitLen()).String()
}

// observeSets takes the sets of ours that ipset save prints.
func (d *Driver) observeSets(text string) {
	there := map[string][]string{}
	types := map[string]string{}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		switch {
		case len(w) < 3 || !ownSet(w[1]):
		case w[0] == "create":
			there[w[1]] = []string{}
			types[w[1]] = strings.Join(w[2:min(len(w), 5)], " ")
		case w[0] == "add" && there[w[1]] != nil:
			there[w[1]] = append(there[w[1]], w[2])
		}
	}
	for name, elements := range there {
		k := d.ksets[name]
		if k == nil { // nobody's any more
			k = newKernelSet(Set{Name: name})
			d.ksets[name] = k
		}
		k.exists = true
		k.other = k.ID != "" && types[name] != k.shape()
		k.elems.ObservedAll(func(yield func(string, struct{}) bool) {
			for _, text := range elements {
				if !yield(savedElement(text), struct{}{}) { // one in another form is deleted under the name that it has
					return
				}
			}
		})
	}
	for name, k := range d.ksets {
		if there[name] == nil {
			k.gone()
		}
	}
}

// gone notes that the kernel does not have the set.
func (k *kernelSet) gone() {
	k.exists, k.other = false, false
	k.elems.ResetActual()
}
