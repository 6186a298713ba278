package nftables

import (
	"bytes"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// rawSet is a set as the kernel describes it.
type rawSet struct {
	Set
	anonymous bool
}

func decodeSet(body []byte) (rawSet, error) {
	as, err := parseAttrs(body)
	if err != nil {
		return rawSet{}, fmt.Errorf("set: %w", err)
	}
	flags := as.u32(unix.NFTA_SET_FLAGS)
	s := rawSet{anonymous: flags&unix.NFT_SET_ANONYMOUS != 0, Set: Set{
		Table: as.str(unix.NFTA_SET_TABLE), Name: as.str(unix.NFTA_SET_NAME), Key: Type(as.u32(unix.NFTA_SET_KEY_TYPE)),
		Interval: flags&unix.NFT_SET_INTERVAL != 0, Constant: flags&unix.NFT_SET_CONSTANT != 0,
		Comment: userText(as.get(unix.NFTA_SET_USERDATA), udataSetComment), Handle: as.u64(attrSetHandle),
	}}
	if flags&unix.NFT_SET_MAP != 0 {
		s.Data = Type(as.u32(unix.NFTA_SET_DATA_TYPE))
		if s.Data == dataTypeVerdict {
			s.Data = TypeVerdict
		}
	}
	d, err := as.nested(unix.NFTA_SET_DESC)
	if err != nil {
		return rawSet{}, fmt.Errorf("set %s: %w", s.Name, err)
	}
	s.Size = d.u32(unix.NFTA_SET_DESC_SIZE)
	if as.has(attrSetExpr) {
		x, err := decodeExpr(as.get(attrSetExpr))
		if err != nil {
			return rawSet{}, fmt.Errorf("set %s: %w", s.Name, err)
		}
		_, s.Counter = x.(Counter)
	}
	return s, nil
}

// rawElement is an element as the kernel keeps it: an interval of a simple key is two of them.
type rawElement struct {
	Element
	end bool
}

// decodeElements reads the elements of one message of a dump.
func decodeElements(body []byte) ([]rawElement, error) {
	as, err := parseAttrs(body)
	if err != nil {
		return nil, fmt.Errorf("elements: %w", err)
	}
	list, err := as.nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	if err != nil {
		return nil, fmt.Errorf("elements of set %s: %w", as.str(unix.NFTA_SET_ELEM_LIST_SET), err)
	}
	els := make([]rawElement, 0, len(list))
	for _, a := range list {
		el, err := decodeElement(a.data)
		if err != nil {
			return nil, fmt.Errorf("elements of set %s: %w", as.str(unix.NFTA_SET_ELEM_LIST_SET), err)
		}
		els = append(els, el)
	}
	return els, nil
}

func decodeElement(b []byte) (rawElement, error) {
	as, err := parseAttrs(b)
	if err != nil {
		return rawElement{}, err
	}
	flags := as.u32(unix.NFTA_SET_ELEM_FLAGS)
	el := rawElement{end: flags&unix.NFT_SET_ELEM_INTERVAL_END != 0, Element: Element{
		CatchAll: flags&elemCatchAll != 0, Comment: userText(as.get(unix.NFTA_SET_ELEM_USERDATA), udataComment),
	}}
	if !el.CatchAll {
		if el.Key, err = as.value(unix.NFTA_SET_ELEM_KEY); err != nil {
			return rawElement{}, err
		}
	}
	if el.End, err = as.value(attrElemKeyEnd); err != nil {
		return rawElement{}, err
	}
	if bytes.Equal(el.End, el.Key) {
		el.End = nil
	}
	if as.has(unix.NFTA_SET_ELEM_DATA) {
		if el.Verdict, err = as.verdict(unix.NFTA_SET_ELEM_DATA); err != nil {
			return rawElement{}, err
		}
		if el.Verdict == nil {
			if el.Data, err = as.value(unix.NFTA_SET_ELEM_DATA); err != nil {
				return rawElement{}, err
			}
		}
	}
	if as.has(unix.NFTA_SET_ELEM_EXPR) {
		x, err := decodeExpr(as.get(unix.NFTA_SET_ELEM_EXPR))
		if err != nil {
			return rawElement{}, err
		}
		if c, ok := x.(Counter); ok {
			el.Counter = &c
		}
	}
	return el, nil
}

// joinIntervals makes intervals out of the kernel's starts and ends, and sorts.
func joinIntervals(s Set, raw []rawElement) []Element {
	slices.SortFunc(raw, func(a, b rawElement) int {
		if c := bytes.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		if a.end != b.end { // an interval ends where the next one starts
			if a.end {
				return -1
			}
			return 1
		}
		return compareElements(a.Element, b.Element)
	})
	out := make([]Element, 0, len(raw))
	simple := s.Interval && len(s.Key.Fields()) == 1
	open := false // whether the last of out waits for its end
	for _, r := range raw {
		if r.end {
			if last, ok := predecessor(r.Key); ok && open {
				closeInterval(&out[len(out)-1], last)
			}
			open = false
			continue
		}
		if open {
			// Two starts in a row: the kernel would end the first here.
			if last, ok := predecessor(r.Key); ok {
				closeInterval(&out[len(out)-1], last)
			}
		}
		out = append(out, r.Element)
		open = simple && !r.CatchAll
	}
	if open { // up to the last key there is
		el := &out[len(out)-1]
		closeInterval(el, bytes.Repeat([]byte{0xff}, len(el.Key)))
	}
	return out
}

func closeInterval(el *Element, last []byte) {
	if !bytes.Equal(el.Key, last) {
		el.End = last
	}
}
