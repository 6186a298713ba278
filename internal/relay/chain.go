package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/relaypb"
	"github.com/twillnet/twill/internal/syncer"
)

// What a client is told in place of changes.
var (
	errForgotten = errors.New("the position is forgotten, or of another relay")
	errNotYet    = errors.New("the relay does not have all yet")
	errAway      = errors.New("the relay has lost its datastore")
	errNoPrefix  = errors.New("the relay does not follow this prefix") // of a version before this one
	errEnds      = errors.New("the relay is about to end")
	errElsewhere = errors.New("ask another relay")
)

// change is one batch of updates, encoded and compressed; nothing of it changes any more, so that any number of clients read it.
type change struct {
	number uint64
	frames []*relaypb.Frame
	size   int
	keys   []string // of the updates
}

// weight is what a change takes of what a chain keeps.
func (d *change) weight() int { return d.size + 16*len(d.keys) } // the texts are those of items

// chain is what a store holds under one prefix, and how it came to be so: a snapshot, and changes, each with a number. A client goes along
// it at its own pace. It holds nothing for a client, and a client holds one change of it at most: what is forgotten is free, however slow somebody is.
type chain struct {
	prefix, epoch string
	keep          int // bytes of changes
	mergeFrom     int // changes that a client lacks: see merge
	made          func(kind string, bytes int)

	mu       sync.Mutex
	items    map[string]api.Update
	number   uint64 // of the last change
	position string // of the store
	ready    bool   // it had all once
	away     bool   // the store
	changes  []change
	size     int           // the weight of changes
	woken    chan struct{} // closed, and replaced, when any of these changes

	making sync.Mutex // of a snapshot
	snap   change     // the last one, with the number of the last change in it; no frames: none yet

	merging    sync.Mutex
	merged     change // the last one of several; no frames: none yet
	mergedFrom uint64 // the number of the change before it
}

func newChain(prefix string, keep int, made func(kind string, bytes int)) *chain {
	return &chain{prefix: prefix, epoch: rand.Text(), keep: keep, mergeFrom: mergeFrom, made: made, items: map[string]api.Update{}, away: true, woken: make(chan struct{})}
}

// apply takes what a syncer of this prefix, or of one that it is in, says, and how far that has come. One goroutine calls it.
func (c *chain) apply(b syncer.Batch, position string) {
	var updates []api.Update
	for _, u := range b.Updates {
		if strings.HasPrefix(u.Key, c.prefix) {
			updates = append(updates, u)
		}
	}
	next := change{number: c.number + 1}
	if b.InSync && c.ready && len(updates) > 0 { // else nobody has a position before it
		next.frames = encode(updates)
		next.seal(c.epoch, false, position)
		c.made("delta", next.size)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	away := b.Status == syncer.WaitForDatastore
	if len(updates) == 0 && c.ready == b.InSync && c.away == away { // nobody need wake
		c.position = position
		return
	}
	for _, u := range updates {
		if was, known := c.items[u.Key]; known {
			u.Key = was.Key // one text for all its changes
		}
		if next.frames != nil {
			next.keys = append(next.keys, u.Key)
		}
		if u.Value == nil {
			delete(c.items, u.Key)
		} else {
			c.items[u.Key] = u
		}
	}
	c.position, c.away, c.ready = position, away, b.InSync
	if next.frames != nil {
		c.number, c.size = next.number, c.size+next.weight()
		c.changes = append(c.changes, next)
		for c.size > c.keep && len(c.changes) > 1 {
			c.size -= c.changes[0].weight()
			c.changes[0] = change{}
			c.changes = c.changes[1:]
		}
	}
	close(c.woken)
	c.woken = make(chan struct{})
}

// keys is how many there are.
func (c *chain) keys() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.items)
}

// lost reports whether the store is away.
func (c *chain) lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away
}

// after is the change that follows a number, and how many there are from it on; or, if there is none yet, what is closed when there may be.
func (c *chain) after(number uint64) (next change, back int, woken <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch back = int(c.number - number); {
	case !c.ready:
		return change{}, 0, nil, errNotYet
	case number > c.number || back > len(c.changes):
		return change{}, 0, nil, errForgotten
	case back > 0:
		return c.changes[len(c.changes)-back], back, nil, nil
	case c.away:
		return change{}, 0, c.woken, errAway
	}
	return change{}, 0, c.woken, nil
}

// snapshot is all that there is, or was, as long as the changes since are remembered, and are less than half of it.
func (c *chain) snapshot() (change, error) {
	c.making.Lock()
	defer c.making.Unlock()
	c.mu.Lock()
	if !c.ready {
		c.mu.Unlock()
		return change{}, errNotYet
	}
	if behind := int(c.number - c.snap.number); c.snap.frames != nil && behind <= len(c.changes) {
		since := 0
		for _, d := range c.changes[len(c.changes)-behind:] {
			since += d.size
		}
		if since <= c.snap.size/2 {
			defer c.mu.Unlock()
			return c.snap, nil
		}
	}
	next, position := change{number: c.number}, c.position
	items := slices.Collect(maps.Values(c.items))
	c.mu.Unlock()
	if next.frames = encode(items); next.frames == nil {
		next.frames = []*relaypb.Frame{{}}
	}
	next.seal(c.epoch, true, position)
	c.made("snapshot", next.size)
	c.snap = next
	return next, nil
}

// seal completes frames, from then on shared.
func (d *change) seal(epoch string, snapshot bool, position string) {
	for i, f := range d.frames {
		f.Epoch, f.Number, f.Snapshot, f.More = epoch, d.number, snapshot, i+1 < len(d.frames)
		d.size += len(f.Body)
	}
	d.frames[len(d.frames)-1].Position = position
}

// follow sends a client what it asks for, until it goes, the context ends, or there is nothing to go on with. Errors are those above, the
// context's, send's, and what ends brings, when the client is to go.
func (c *chain) follow(ctx context.Context, ends <-chan error, req *relaypb.FollowRequest, send func(*relaypb.Frame) error) error {
	at := req.Number
	if req.Epoch == "" {
		snap, err := c.snapshot()
		if err == nil && req.Settled && c.lost() {
			err = errAway // what another relay gave the client is not older
		}
		if err == nil {
			err = sendAll(snap, send)
		}
		if err != nil {
			return err
		}
		at = snap.number
	} else if err := c.accept(req, send); err != nil {
		return err
	}
	mergeAt := at // below that number it was tried in vain
	for {
		select {
		case err := <-ends: // however much there is to send
			return err
		default:
		}
		next, back, wait, err := c.after(at)
		switch {
		case req.Once && wait != nil:
			return nil
		case err != nil:
			return err
		case wait == nil:
			if req.Merges && back >= c.mergeFrom && at >= mergeAt {
				merged, tried := c.merge(at)
				if mergeAt = at + uint64(tried); merged.frames != nil {
					next = merged
				}
			}
			if err := sendAll(next, send); err != nil {
				return err
			}
			at = next.number
		default:
			select {
			case <-wait:
			case err := <-ends:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// accept answers at once that there is something to go on with, or why not.
func (c *chain) accept(req *relaypb.FollowRequest, send func(*relaypb.Frame) error) error {
	_, _, _, err := c.after(req.Number)
	if req.Epoch != c.epoch && !errors.Is(err, errNotYet) {
		err = errForgotten
	}
	if err != nil {
		return err
	}
	return send(&relaypb.Frame{Epoch: c.epoch, Number: req.Number})
}

func sendAll(d change, send func(*relaypb.Frame) error) error {
	for _, f := range d.frames {
		if err := send(f); err != nil {
			return err
		}
	}
	return nil
}
