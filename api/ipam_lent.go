package api

import (
	"bytes"
	"net/netip"
)

// Borrowed returns the addresses of a block that other nodes than its owner have, with the node of each, as the allocations' attributes
// say. Owner is the node that the block belongs to; empty: it belongs to none. An address that rests after its release counts for nobody.
// If allocations are wrong, it returns those that are not, and an error; nil and an error if the block cannot be read at all.
func Borrowed(u Update, owner string) (map[netip.Addr]string, error) {
	// A block changes with each of its addresses, and mostly all are its owner's: then nothing is decoded.
	if bytes.Count(u.Value, []byte(`"`+AttributeNode+`"`)) == bytes.Count(u.Value, append([]byte(`"`+AttributeNode+`":`), quoted(owner)...)) {
		return nil, nil
	}
	b, err := decodeBlock(u)
	if err != nil {
		return nil, err
	}
	out := map[netip.Addr]string{}
	for ord, at := range b.Allocations[:min(len(b.Allocations), b.Size())] {
		if at == nil || *at < 0 || *at >= len(b.Attributes) {
			continue
		}
		if a := b.Attributes[*at]; a.ReleasedAt == "" && a.Owner[AttributeNode] != "" && a.Owner[AttributeNode] != owner {
			out[b.Addr(ord)] = a.Owner[AttributeNode]
		}
	}
	return out, b.wrong(u.Key)
}
