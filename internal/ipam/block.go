package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
)

// newBlock returns a block with nothing in it.
func newBlock(cidr netip.Prefix, owner api.Owner, now time.Time) *api.Block {
	own := owner.String()
	b := &api.Block{
		CIDR: cidr, Affinity: &own, ClaimTime: now.UTC().Format(time.RFC3339), Attributes: []api.BlockAttribute{},
		// A block that is deleted and created again must not repeat sequence numbers: a late
		// release of an earlier allocation would match.
		Sequence: uint64(now.UnixNano()), Sequences: map[string]uint64{},
	}
	b.Allocations = make([]*int, b.Size())
	for i := range b.Allocations {
		b.Unallocated = append(b.Unallocated, i)
	}
	return b
}

// windows is the handle of the addresses that Windows' networking needs in each block.
const windows = "windows-reserved-ipam-handle"

// reserveForWindows takes the first three addresses and the last.
func reserveForWindows(b *api.Block) {
	handle := windows
	b.Attributes = append(b.Attributes, api.BlockAttribute{Handle: &handle, Owner: map[string]string{api.AttributeNote: "windows host rsvd"}})
	at := len(b.Attributes) - 1
	for _, ord := range []int{0, 1, 2, b.Size() - 1} {
		if ord < b.Size() && b.Allocations[ord] == nil {
			b.Allocations[ord] = &at
		}
	}
	b.Unallocated = slices.DeleteFunc(b.Unallocated, func(ord int) bool { return b.Allocations[ord] != nil })
}

// take allocates up to n free addresses, those that were free longest first.
func take(b *api.Block, n int, attr api.BlockAttribute, usable func(netip.Addr) bool) []int {
	var got []int
	rest := make([]int, 0, len(b.Unallocated))
	for _, ord := range b.Unallocated {
		switch {
		case ord < 0 || ord >= b.Size() || b.Allocations[ord] != nil || slices.Contains(got, ord):
			// A wrong free list; the allocations decide.
		case len(got) < n && usable(b.Addr(ord)):
			got = append(got, ord)
		default:
			rest = append(rest, ord)
		}
	}
	if len(got) == 0 {
		return nil
	}
	b.Unallocated = rest
	allocate(b, got, attr)
	return got
}

// takeThis allocates one address that is free.
func takeThis(b *api.Block, ord int, attr api.BlockAttribute) {
	b.Unallocated = slices.DeleteFunc(b.Unallocated, func(o int) bool { return o == ord })
	allocate(b, []int{ord}, attr)
}

func allocate(b *api.Block, ords []int, attr api.BlockAttribute) {
	at := slices.IndexFunc(b.Attributes, func(is api.BlockAttribute) bool { return sameAttribute(is, attr) })
	if at < 0 {
		at = len(b.Attributes)
		b.Attributes = append(b.Attributes, attr)
	}
	if b.Sequences == nil {
		b.Sequences = map[string]uint64{}
	}
	for _, ord := range ords {
		b.Allocations[ord] = &at
		b.Sequences[strconv.Itoa(ord)] = b.Sequence
	}
}

func sameAttribute(a, b api.BlockAttribute) bool {
	return handleOf(&a) == handleOf(&b) && maps.Equal(a.Owner, b.Owner) && maps.Equal(a.Alternate, b.Alternate) && a.ReleasedAt == b.ReleasedAt
}

// handleOf is the handle of an allocation. A migration from host-local once
// wrote handles with lines of its files behind them.
func handleOf(a *api.BlockAttribute) string {
	if a == nil || a.Handle == nil {
		return ""
	}
	h, _, _ := strings.Cut(*a.Handle, "\r")
	return h
}

// release frees addresses, or marks them released if there is a cool-down time.
func release(b *api.Block, ords []int, restSince string) {
	for _, ord := range ords {
		if restSince != "" {
			cold := *b.Attribute(ord)
			cold.ReleasedAt = restSince
			at := len(b.Attributes)
			b.Attributes = append(b.Attributes, cold)
			b.Allocations[ord] = &at
			continue
		}
		b.Allocations[ord] = nil
		b.Unallocated = append(slices.DeleteFunc(b.Unallocated, func(o int) bool { return o == ord }), ord)
		delete(b.Sequences, strconv.Itoa(ord))
	}
	dropAttributes(b)
}

// dropAttributes removes those that no allocation refers to.
func dropAttributes(b *api.Block) {
	kept := []api.BlockAttribute{}
	moved := map[int]int{}
	for _, at := range b.Allocations {
		if at != nil {
			moved[*at] = -1
		}
	}
	for i, attr := range b.Attributes {
		if _, used := moved[i]; used {
			moved[i] = len(kept)
			kept = append(kept, attr)
		}
	}
	for ord, at := range b.Allocations {
		if at != nil {
			to := moved[*at]
			b.Allocations[ord] = &to
		}
	}
	b.Attributes = kept
}

// coolingDown reports whether an allocation was released, and is not free yet: it cools down, or its time is over.
func coolingDown(attr *api.BlockAttribute) bool { return attr != nil && attr.ReleasedAt != "" }

// cooling decides which released addresses still cool down. The datastore does not have that: nothing is written when the time is over.
type cooling struct {
	now  time.Time
	rest time.Duration // zero: no cool-down
}

func (a *Allocator) cooling(config api.IPAMConfig) cooling {
	return cooling{a.cfg.Now(), seconds(config.CooldownSeconds)}
}

// begin returns the release time to store with an address; empty: no cool-down.
func (c cooling) begin() string {
	if c.rest <= 0 {
		return ""
	}
	return stamp(c.now)
}

// over reports whether an allocation was released and its cool-down is over: it counts as free.
func (c cooling) over(attr *api.BlockAttribute) (since time.Time, yes bool) {
	if !coolingDown(attr) {
		return since, false
	}
	since, err := time.Parse(time.RFC3339, attr.ReleasedAt)
	return since, err != nil || c.rest <= 0 || c.now.Sub(since) >= c.rest
}

// empty reports whether a block can be given up: no address is in use or cools down.
func (c cooling) empty(b *api.Block) bool {
	for ord := range b.Allocations {
		attr := b.Attribute(ord)
		if _, over := c.over(attr); attr != nil && !over && handleOf(attr) != windows {
			return false
		}
	}
	return true
}

// count counts a block's addresses that cool down, and the free ones, including those whose cool-down is over.
func (c cooling) count(b *api.Block) (cold int, free []int) {
	free = slices.Clone(b.Unallocated)
	for ord := range b.Allocations {
		attr := b.Attribute(ord)
		if _, over := c.over(attr); over {
			free = append(free, ord)
		} else if coolingDown(attr) {
			cold++
		}
	}
	return cold, free
}

// inUse is the error for a block that is not empty.
func (c cooling) inUse(b *api.Block) error {
	text := ""
	if cold, _ := c.count(b); cold > 0 {
		text = fmt.Sprintf(", and %d cooling down", cold)
	}
	return fmt.Errorf("block %s %w: %d%s", b.CIDR, ErrInUse, used(b), text)
}

// freeCooledDown frees addresses whose cool-down is over, in the order of their release, and
// reports whether there was any.
func (c cooling) freeCooledDown(b *api.Block) bool {
	type cold struct {
		ord   int
		since time.Time
	}
	var warm []cold
	for ord := range b.Allocations {
		if since, over := c.over(b.Attribute(ord)); over {
			warm = append(warm, cold{ord, since})
		}
	}
	slices.SortStableFunc(warm, func(a, b cold) int { return cmp.Compare(a.since.UnixNano(), b.since.UnixNano()) })
	for _, c := range warm {
		release(b, []int{c.ord}, "")
	}
	return len(warm) > 0
}

// used counts the addresses in use.
func used(b *api.Block) (n int) {
	for ord := range b.Allocations {
		if attr := b.Attribute(ord); attr != nil && !coolingDown(attr) && handleOf(attr) != windows {
			n++
		}
	}
	return n
}

// exceptTunnels counts the addresses in use that are of no node's tunnel, and all that cool down.
func (c cooling) exceptTunnels(b *api.Block) (inUse, cold int) {
	for _, l := range Allocations(b) {
		if !l.IsTunnel() && !coolingDown(l.Attr) && handleOf(l.Attr) != windows {
			inUse++
		}
	}
	cold, _ = c.count(b)
	return inUse, cold
}

// of returns the ordinals of a handle's addresses.
func of(b *api.Block, handle string) []int {
	var out []int
	for ord := range b.Allocations {
		if attr := b.Attribute(ord); attr != nil && !coolingDown(attr) && handleOf(attr) == handle {
			out = append(out, ord)
		}
	}
	return out
}
