package api

import (
	"bytes"
	"net/netip"
)

// Borrowed returns the addresses of a block that other nodes than its owner have, with the node of each, as the allocations' attributes
// say. Owner is the node that the block belongs to; empty: it belongs to none. An address that rests after its release counts for nobody.
func Borrowed(u Update, owner string) (map[netip.Addr]string, error) {
	// A block changes with each of its addresses, and mostly all are its owner's: then nothing is decoded.
	if bytes.Count(u.Value, []byte(`"`+AttributeNode+`"`)) == bytes.Count(u.Value, append([]byte(`"`+AttributeNode+`":`), quoted(owner)...)) {
		return nil, nil
	}
	b, err := DecodeBlock(u)
	if err != nil {
		return nil, err
	}
	var out map[netip.Addr]string
	for ord := range b.Allocations {
		a := b.Attribute(ord)
		if a == nil || a.ReleasedAt != "" || a.Owner[AttributeNode] == "" || a.Owner[AttributeNode] == owner {
			continue
		}
		if out == nil {
			out = map[netip.Addr]string{}
		}
		out[b.Addr(ord)] = a.Owner[AttributeNode]
	}
	return out, nil
}
