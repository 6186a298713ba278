package relay

import (
	"maps"
	"slices"

	"github.com/twillnet/twill/api"
)

const (
	// mergeFrom is how many changes a client must lack so that they are sent as one: with fewer, what is encoded already is cheaper.
	mergeFrom = 8
	// mergeBytes bounds keys and values of such a change, which a slow client holds for itself alone.
	mergeBytes = 64 << 10
)

// merge is all changes after a number as one, with the last value of each key alone, if that is at most half of the updates, and small. Tried is how
// many changes were looked at, if it is not: for so many it is not worth another try. The last one is kept, for clients that were stopped at the same time.
func (c *chain) merge(number uint64) (merged change, tried int) {
	c.merging.Lock()
	defer c.merging.Unlock()
	c.mu.Lock()
	back := int(c.number - number)
	if back < c.mergeFrom || back > len(c.changes) {
		c.mu.Unlock()
		return change{}, 0
	}
	if c.merged.number == c.number && c.mergedFrom == number {
		defer c.mu.Unlock()
		return c.merged, 0
	}
	last, all, size := map[string]api.Update{}, 0, 0
	for _, d := range c.changes[len(c.changes)-back:] {
		tried++
		all += len(d.keys)
		for _, key := range d.keys {
			if _, known := last[key]; known {
				continue
			}
			u, there := c.items[key]
			if !there {
				u = api.Update{Key: key}
			}
			last[key] = u
			size += len(key) + len(u.Value)
		}
		if size > mergeBytes {
			break
		}
	}
	next, position := change{number: c.number}, c.position
	c.mu.Unlock()
	if size > mergeBytes || 2*len(last) > all {
		return change{}, tried
	}
	next.frames = encode(slices.Collect(maps.Values(last)))
	next.seal(c.epoch, false, position)
	for _, f := range next.frames {
		f.Spans = uint32(back)
	}
	c.made("merged", next.size)
	c.merged, c.mergedFrom = next, number
	return next, 0
}
