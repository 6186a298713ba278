package nft

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/delta"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// sum is a hash of a chain's rules; two chains with the same sum have the same rules.
type sum [sha256.Size]byte

// chain is a chain, desired and actual.
type chain struct {
	name   string
	owner  intent.Key // nil: the skeleton
	wanted bool
	spec   nftables.Chain
	rules  []nftables.Rule
	sum    sum

	exists bool
	is     nftables.Chain
	have   sum
	pinned bool // see desired.Chain
	late   bool // likewise

	recheck bool // likewise
}

// early reports whether it is made before the source is in sync.
func (c *chain) early() bool {
	return c.wanted && desired.Chain{Owner: c.owner, Pinned: c.pinned}.Early(c.exists)
}

func (c *chain) pending() bool { return c.wanted != c.exists || c.wanted && c.have != c.sum }

// kset is a kernel set or map, desired and actual. Keys of elems are those of elementID, values those of
// elementValue.
type kset struct {
	owner  intent.Key // nil: the skeleton
	wanted bool
	spec   nftables.Set
	elems  *delta.Map[string, string]

	exists bool
	is     nftables.Set
	held   bool // a desired set refers to it, even while this part of the set is not wanted
	// late reports which elements may be deleted only after a grace period (see desired.Chain); lateSet: so may the set itself.
	late    func(id string) bool
	lateSet bool
	family  int                    // of a map of a group
	about   func(id string) string // the comment of an element, for people; nil: none
	unnamed bool                   // it has no name yet, or another set has the name: only its desired elements are kept
}

func newKset(spec nftables.Set) *kset {
	return &kset{spec: spec, elems: delta.New[string](func(a, b string) bool { return a == b })}
}

func (k *kset) pending() bool { return k.wanted != k.exists || k.wanted && !k.elems.InSync() }

func (k *kset) undesireAll() {
	var ids []string
	for id := range k.elems.All() {
		ids = append(ids, id)
	}
	for _, id := range ids {
		k.elems.Undesire(id)
	}
}

// elementID is the key of an element, and its end if it is an interval.
func elementID(el nftables.Element) string {
	if el.CatchAll {
		return ""
	}
	return string(el.Key) + string(el.End)
}

// elementValue is the verdict of an element, or its data; only a goto is ever ours.
func elementValue(el nftables.Element) string {
	switch {
	case el.Verdict == nil:
		return string(el.Data)
	case el.Verdict.Code == nftables.VerdictGoto:
		return el.Verdict.Chain
	}
	return fmt.Sprintf("?%d %s", el.Verdict.Code, el.Verdict.Chain)
}

// scratch is memory for one element.
type scratch struct {
	key     []byte
	verdict nftables.Verdict
}

// element is the inverse of elementID and elementValue. The element is valid until the next call with the same scratch.
func (k *kset) element(s *scratch, id, value string) nftables.Element {
	n := k.spec.Key.Len()
	if s.key = append(s.key[:0], id...); len(id) < n {
		n = 0
	}
	el := nftables.Element{CatchAll: n == 0}
	if n > 0 {
		el.Key = s.key[:n:n]
	}
	if len(id) > n {
		el.End = s.key[n:]
	}
	switch {
	case k.spec.Data == nftables.TypeVerdict:
		s.verdict = nftables.Goto(value)
		el.Verdict = &s.verdict
	case k.spec.Data != nftables.TypeNone && value != "":
		el.Data = []byte(value)
	}
	return el
}

// sameShape reports whether a set in the kernel can be used as the desired one.
func sameShape(a, b nftables.Set) bool {
	return a.Key == b.Key && a.Interval == b.Interval && a.Data == b.Data && a.Constant == b.Constant && a.Size == b.Size
}

// sameBase reports whether a chain in the kernel has the desired hook.
func sameBase(a, b *nftables.Hook) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// kset finds or makes the record of a kernel set of the skeleton. Its spec never changes, since it is part of the name.
func (d *Driver) kset(spec nftables.Set) *kset {
	k := d.ksets[spec.Name]
	if k == nil {
		k = newKset(spec)
		d.ksets[spec.Name] = k
	}
	k.spec, k.held = spec, true
	return k
}

// want sets whether a kernel set should exist.
func (d *Driver) want(k *kset, wanted bool) {
	k.wanted = wanted
	d.checkKset(k)
}

// checkKset adds a set to the dirty ones or removes it from them; call it after each change of elements.
func (d *Driver) checkKset(k *kset) {
	if k.unnamed {
		return
	}
	name := k.spec.Name
	if k.wanted && k.exists && !sameShape(k.spec, k.is) {
		d.table.rebuild = true
	}
	switch {
	case k.pending():
		d.dirtyKsets[name] = struct{}{}
	default:
		delete(d.dirtyKsets, name)
		if !k.wanted && !k.held {
			delete(d.ksets, name)
		}
	}
}

func (d *Driver) checkChain(c *chain) {
	if c.wanted && c.exists && !sameBase(c.spec.Base, c.is.Base) {
		d.table.rebuild = true
	}
	switch {
	case c.pending():
		d.dirtyChains[c.name] = struct{}{}
	default:
		delete(d.dirtyChains, c.name)
		if !c.wanted {
			delete(d.chains, c.name)
		}
	}
}

// sumOf hashes the rules of a chain, without counters and handles.
func sumOf(rs []nftables.Rule) sum {
	h := sha256.New()
	for _, r := range rs {
		for _, x := range r.Exprs {
			h.Write([]byte(x.String()))
			h.Write([]byte{0})
		}
		h.Write([]byte(r.Comment))
		h.Write([]byte{1})
	}
	return sum(h.Sum(nil))
}

// nameFor returns the name of a kernel set for one family; tail is the name of its set.
func nameFor(prefix string, f intent.Family, tail string) string {
	return prefix + [...]string{intent.IPv4: "4-", intent.IPv6: "6-"}[f] + tail
}

// comment cuts a text to the length that a comment of a kernel object may have.
func comment(text string) string { return rules.Shorten(text) }

// familyOfName returns the family of a kernel set of hosts or ports, by its name; ok is false for any other set.
func familyOfName(name string) (slot int, ok bool) {
	for _, kind := range []string{"hosts", "ports"} {
		rest, _ := strings.CutPrefix(name, kind)
		switch {
		case len(rest) == len(name):
		case strings.HasPrefix(rest, "4-"):
			return 0, true
		case strings.HasPrefix(rest, "6-"):
			return 1, true
		}
	}
	return 0, false
}
