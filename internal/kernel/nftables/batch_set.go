package nftables

import (
	"iter"
	"slices"

	"golang.org/x/sys/unix"
)

// Set flags and attributes that x/sys does not have.
const (
	setFlagConcat    = 0x80
	setFlagExpr      = 0x100
	elemCatchAll     = 2
	attrSetHandle    = 16
	attrSetExpr      = 17
	attrDescConcat   = 2
	attrFieldLen     = 1
	attrElemKeyEnd   = 10
	attrElemExprs    = 11
	dataTypeVerdict  = 0xffffff00
	anonymousSetName = "__set%d"
	anonymousMapName = "__map%d"
)

// AddSet makes a set or map unless it exists, in which case its shape must be the same.
func (b *Batch) AddSet(s Set) { b.set(s, 0) }

func (b *Batch) set(s Set, extra uint32) uint32 {
	b.setID++
	e := b.begin(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, op{verb: "add", kind: "set", table: s.Table, name: s.Name})
	e.checkName("table", s.Table)
	e.checkName("set", s.Name)
	n := s.Key.Len()
	if n == 0 {
		e.fail("set %s: key type %s has no known length", s.Name, s.Key)
	}
	if s.Interval && len(s.Key.Fields()) == 1 && s.Key.hostOrder() && s.Key != TypeIfname {
		e.fail("set %s: intervals of %s would be compared in the wrong byte order", s.Name, s.Key)
	}
	e.str(unix.NFTA_SET_TABLE, s.Table)
	e.str(unix.NFTA_SET_NAME, s.Name)
	e.u32(unix.NFTA_SET_ID, b.setID)
	e.u32(unix.NFTA_SET_FLAGS, s.flags()|extra)
	e.u32(unix.NFTA_SET_KEY_TYPE, uint32(s.Key))
	e.u32(unix.NFTA_SET_KEY_LEN, uint32(n))
	switch s.Data {
	case TypeNone:
	case TypeVerdict:
		e.u32(unix.NFTA_SET_DATA_TYPE, dataTypeVerdict)
	default:
		if s.Data.Len() == 0 {
			e.fail("map %s: data type %s has no known length", s.Name, s.Data)
		}
		e.u32(unix.NFTA_SET_DATA_TYPE, uint32(s.Data))
		e.u32(unix.NFTA_SET_DATA_LEN, uint32(s.Data.Len()))
	}
	e.setDescription(s)
	e.setUserData(s)
	if s.Counter {
		e.expr(attrSetExpr, Counter{})
	}
	e.end()
	return b.setID
}

func (s Set) flags() uint32 {
	var f uint32
	if s.Constant {
		f |= unix.NFT_SET_CONSTANT
	}
	if s.Interval {
		f |= unix.NFT_SET_INTERVAL
		if len(s.Key.Fields()) > 1 {
			f |= setFlagConcat
		}
	}
	if s.Data != TypeNone {
		f |= unix.NFT_SET_MAP
	}
	return f
}

// setDescription tells the kernel the fields of a concatenation of ranges, without which it could not keep them apart.
func (e *encoder) setDescription(s Set) {
	fields := s.Key.Fields()
	ranges := s.Interval && len(fields) > 1
	if !ranges && s.Size == 0 {
		return
	}
	d := e.nest(unix.NFTA_SET_DESC)
	if s.Size != 0 {
		e.u32(unix.NFTA_SET_DESC_SIZE, s.Size)
	}
	if ranges {
		c := e.nest(attrDescConcat)
		for _, f := range fields {
			x := e.nest(unix.NFTA_LIST_ELEM)
			e.u32(attrFieldLen, uint32(f.Len()))
			e.unnest(x)
		}
		e.unnest(c)
	}
	e.unnest(d)
}

func (e *encoder) setUserData(s Set) {
	b := appendUserU32(nil, udataKeyOrder, s.Key.order())
	if s.Data != TypeNone && s.Data != TypeVerdict {
		b = appendUserU32(b, udataDataOrder, s.Data.order())
	}
	if s.Comment != "" {
		if !validText(s.Comment, maxComment) {
			e.fail("comment %q of set %s: longer than %d bytes, or has a NUL", s.Comment, s.Name, maxComment)
			return
		}
		b = appendUserText(b, udataSetComment, s.Comment)
	}
	e.bytes(unix.NFTA_SET_USERDATA, b)
}

// DeleteSet deletes a set, to which no rule may refer.
func (b *Batch) DeleteSet(table, set string) {
	e := b.begin(unix.NFT_MSG_DELSET, 0, op{verb: "delete", kind: "set", table: table, name: set})
	e.checkName("set", set)
	e.str(unix.NFTA_SET_TABLE, table)
	e.str(unix.NFTA_SET_NAME, set)
	e.end()
}

// FlushSet deletes all elements of a set.
func (b *Batch) FlushSet(table, set string) {
	e := b.begin(unix.NFT_MSG_DELSETELEM, 0, op{verb: "flush", kind: "set", table: table, name: set})
	e.checkName("set", set)
	e.str(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	e.str(unix.NFTA_SET_ELEM_LIST_SET, set)
	e.end()
}

// AddElements adds elements. One that exists already is no error when it is the same; another verdict or other data for
// a key that exists is EEXIST: delete it first, in the same batch.
func (b *Batch) AddElements(s Set, els ...Element) { b.AddEach(s, slices.Values(els)) }

// AddEach is AddElements of those that a sequence yields. An element and what it points to may be used again for the next one.
func (b *Batch) AddEach(s Set, els iter.Seq[Element]) {
	b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, "add", s, 0, els)
}

// DeleteElements deletes elements, which must exist. Only keys (and ends) count.
func (b *Batch) DeleteElements(s Set, els ...Element) { b.DeleteEach(s, slices.Values(els)) }

// DeleteEach is DeleteElements of those that a sequence yields, as in AddEach.
func (b *Batch) DeleteEach(s Set, els iter.Seq[Element]) {
	b.elements(unix.NFT_MSG_DELSETELEM, 0, "delete", s, 0, els)
}

// DestroyElements deletes the elements that exist. Commit fails with a kernel.UnsupportedError before Linux 6.3.
func (b *Batch) DestroyElements(s Set, els ...Element) {
	b.elements(msgDestroySetElem, 0, "destroy", s, 0, slices.Values(els))
}

// elements writes as many messages as are needed to keep each list below 64 KB; none without elements.
func (b *Batch) elements(typ, flags uint16, verb string, s Set, id uint32, els iter.Seq[Element]) {
	o := op{verb: verb, kind: "elements of set", table: s.Table, name: s.Name, elements: true, destroy: typ == msgDestroySetElem, key: s.Key}
	e, list := &b.enc, 0 // where the list of the message begins; zero: there is no message
	end := func() {
		if list > 0 {
			e.unnest(list)
			e.end()
			list = 0
		}
	}
	for el := range els {
		if list > 0 && len(e.buf)-list >= chunkLimit {
			end()
		}
		if list == 0 {
			b.begin(typ, flags, o)
			e.checkName("set", s.Name)
			e.str(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table)
			e.str(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
			if id != 0 {
				e.u32(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
			}
			list = e.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		}
		e.element(s, el, typ == unix.NFT_MSG_NEWSETELEM)
	}
	end()
}

func (e *encoder) element(s Set, el Element, adding bool) {
	e.checkElement(s, el, adding)
	x := e.nest(unix.NFTA_LIST_ELEM)
	if el.CatchAll {
		e.u32(unix.NFTA_SET_ELEM_FLAGS, elemCatchAll)
	} else {
		e.value(unix.NFTA_SET_ELEM_KEY, el.Key)
	}
	ranges := s.Interval && len(s.Key.Fields()) > 1
	if ranges && !el.CatchAll {
		end := el.End
		if end == nil {
			end = el.Key
		}
		e.value(attrElemKeyEnd, end)
	}
	if adding {
		switch {
		case s.Data == TypeVerdict && el.Verdict != nil:
			e.verdict(unix.NFTA_SET_ELEM_DATA, *el.Verdict)
		case s.Data != TypeNone:
			e.value(unix.NFTA_SET_ELEM_DATA, el.Data)
		}
		e.comment(unix.NFTA_SET_ELEM_USERDATA, el.Comment)
	}
	e.unnest(x)
	if !s.Interval || ranges || el.CatchAll {
		return
	}
	// The tree keeps an interval as two elements, and the second is the first key beyond it. Beyond the last key there
	// is none: such an interval stays open.
	last := el.End
	if last == nil {
		last = el.Key
	}
	next, ok := successor(last)
	if !ok {
		return
	}
	x = e.nest(unix.NFTA_LIST_ELEM)
	e.u32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	e.value(unix.NFTA_SET_ELEM_KEY, next)
	e.unnest(x)
}

func (e *encoder) checkElement(s Set, el Element, adding bool) {
	n := s.Key.Len()
	switch {
	case el.CatchAll && (el.Key != nil || el.End != nil):
		e.fail("set %s: a catch-all element has no key", s.Name)
	case !el.CatchAll && len(el.Key) != n:
		e.fail("set %s: key %x has %d bytes, not %d", s.Name, el.Key, len(el.Key), n)
	case el.End != nil && !s.Interval:
		e.fail("set %s: key %x is an interval, the set is not", s.Name, el.Key)
	case el.End != nil && len(el.End) != n:
		e.fail("set %s: end %x has %d bytes, not %d", s.Name, el.End, len(el.End), n)
	case el.End != nil && !ordered(s.Key, el.Key, el.End):
		e.fail("set %s: interval ends at %x before it starts at %x", s.Name, el.End, el.Key)
	}
	if !adding {
		return
	}
	switch {
	case s.Data == TypeVerdict && el.Verdict == nil:
		e.fail("map %s: element %x has no verdict", s.Name, el.Key)
	case s.Data != TypeVerdict && el.Verdict != nil:
		e.fail("set %s: element %x has a verdict, but this is no verdict map", s.Name, el.Key)
	case s.Data != TypeVerdict && s.Data != TypeNone && len(el.Data) != s.Data.Len():
		e.fail("map %s: data of %x has %d bytes, not %d", s.Name, el.Key, len(el.Data), s.Data.Len())
	case s.Data == TypeNone && el.Data != nil:
		e.fail("set %s: element %x has data, but this is no map", s.Name, el.Key)
	}
}

// anonymousSets makes the sets of a rule's In expressions, which must come before the rule in the transaction.
func (b *Batch) anonymousSets(r Rule) {
	b.enc.anon = b.enc.anon[:0]
	for _, x := range r.Exprs {
		in, ok := x.(In)
		if !ok {
			continue
		}
		s := in.Set
		s.Table, s.Name, s.Constant = r.Table, in.setName(), true
		s.Size, s.Counter, s.Comment = 0, false, ""
		if len(in.Elements) == 0 {
			b.enc.fail("rule in chain %s: an anonymous set without elements", r.Chain)
		}
		id := b.set(s, unix.NFT_SET_ANONYMOUS)
		b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, "add", s, id, slices.Values(in.Elements))
		b.enc.anon = append(b.enc.anon, id)
	}
}

func (in In) setName() string {
	if in.Set.Data != TypeNone {
		return anonymousMapName
	}
	return anonymousSetName
}
