package attach

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Overlay holds what this node wrote itself and passed to calc at once. Until the datastore's watch has reached the same
// revision, older updates of these keys are held back: of a watch that lags, or a list that was read before.
//
// Only an Ordered store tells which of two revisions is older. Without one, an update with another revision is held
// back, too, and [Overlay.Verify] reads which of the two is the present one.
type Overlay struct {
	Order datastore.Ordered // nil: the store has none

	mu         sync.Mutex
	keys       map[string]mark
	links      []string
	given      map[string]Given
	unverified map[string]bool // keys to be read by Verify
	wake       chan struct{}   // made by Verify while it waits, closed when there is an unverified key
}

// Pending is the revision of a write under way: until its revision is known, no update of the key is accepted.
var Pending = api.RevisionOf("pending\x00") // which no store writes

type mark struct {
	revision api.Revision
	gone     bool         // it was deleted after that revision
	held     api.Revision // of the last update that was held back while it was Pending
}

// Put notes what was written.
func (o *Overlay) Put(us []api.Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == nil {
		o.keys = map[string]mark{}
	}
	for _, u := range us {
		held := o.put(u)
		if o.Order == nil && u.Value != nil && u.Revision != Pending && held == u.Revision {
			delete(o.keys, u.Key) // the watch delivered it before the answer arrived
		}
	}
}

// put notes what was written, and returns the last update that was held back meanwhile. If that may be a later one, the key is read. The lock is held.
func (o *Overlay) put(u api.Update) (held api.Revision) {
	held = o.keys[u.Key].held
	o.keys[u.Key] = mark{revision: u.Revision, gone: u.Value == nil}
	if u.Value != nil && u.Revision != Pending && !held.IsZero() && held != u.Revision && (o.Order == nil || o.Order.Older(u.Revision, held)) {
		o.verifyLater(u.Key)
	}
	return held
}

// Pass is Put of what is about to be passed to calc, which did not have it while it was Pending: also if the watch delivered it meanwhile,
// and it was held back, it is among the Current.
func (o *Overlay) Pass(us []api.Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == nil {
		o.keys = map[string]mark{}
	}
	for _, u := range us {
		if u.Revision != Pending { // else it was announced, and may be written by now
			o.put(u)
		}
	}
}

// Announce notes that an endpoint is about to be written, and its link.
func (o *Overlay) Announce(key, link string) {
	o.Put([]api.Update{{Key: key, Value: []byte{}, Revision: Pending}})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.links = append(o.links, link)
}

// Links returns the links that were announced since the last call.
func (o *Overlay) Links() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.links
	o.links = nil
	return out
}

// Current returns those of the updates put that the watch has not reached yet, with the addresses that their endpoints were given.
func (o *Overlay) Current(us []api.Update) []api.Update {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := us[:0:0]
	for _, u := range us {
		if m, marked := o.keys[u.Key]; marked && (u.Revision == Pending || u.Revision == m.revision) {
			out = append(out, o.with(u)) // what was read, such as for a container that is gone, has the old addresses, too
		}
	}
	return out
}

// Filter returns the updates of the datastore that are not older than what was put.
func (o *Overlay) Filter(us []api.Update) []api.Update {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.keys) == 0 && len(o.given) == 0 {
		return us
	}
	out := us[:0:0]
	for _, u := range us {
		if m, marked := o.keys[u.Key]; marked {
			if !o.supersededBy(u, m) {
				continue
			}
			delete(o.keys, u.Key)
		}
		out = append(out, o.with(u))
	}
	return out
}

// supersededBy reports whether an update of the datastore is our own write, or a later one.
func (o *Overlay) supersededBy(u api.Update, m mark) bool {
	switch {
	case m.revision == Pending:
		m.held = u.Revision
		o.keys[u.Key] = m
		return false
	case m.revision.IsZero(): // its revision is unknown
		return true
	case u.Revision == m.revision:
		return !m.gone
	case o.Order != nil && !u.Revision.IsZero():
		return !o.Order.Older(u.Revision, m.revision)
	case m.gone && u.Value == nil:
		// If it is the deletion of an earlier value of the key, calc may see a deleted value until the watch has passed that.
		return true
	}
	o.verifyLater(u.Key)
	return false
}

// verifyLater has Verify read a key.
func (o *Overlay) verifyLater(key string) {
	if o.unverified == nil {
		o.unverified = map[string]bool{}
	}
	o.unverified[key] = true
	if o.wake != nil {
		close(o.wake)
		o.wake = nil
	}
}

// verifyRetry is how long Settle waits when the store did not answer.
const verifyRetry = time.Second

// Verify reads the keys that Filter could not decide on, and calls back when our own write was superseded; the present value is then among
// the Current, until the context ends.
// The store's answer is the present value: if it is not what we wrote, that was superseded, and what the watch has still to
// deliver up to it is old.
func (o *Overlay) Verify(ctx context.Context, s datastore.Store, pass func(context.Context, []api.Update) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		o.mu.Lock()
		keys, wake := o.unverified, make(chan struct{})
		o.unverified, o.wake = nil, wake
		o.mu.Unlock()
		for key := range keys {
			if err := o.verify(ctx, s, key, pass); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				o.mu.Lock()
				o.verifyLater(key)
				o.mu.Unlock()
				timer.Reset(verifyRetry)
				select {
				case <-timer.C:
				case <-ctx.Done():
				}
			}
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *Overlay) verify(ctx context.Context, s datastore.Store, key string, pass func(context.Context, []api.Update) error) error {
	o.mu.Lock()
	was, marked := o.keys[key]
	o.mu.Unlock()
	if !marked || was.revision == Pending {
		return nil // verified, or written again
	}
	now, err := s.Get(ctx, key)
	gone := errors.Is(err, datastore.ErrNotFound)
	if err != nil && !gone {
		return err
	}
	if gone == was.gone && (gone || now.Revision == was.revision) {
		return nil // our write is the present value: the watch lags
	}
	if gone {
		now = api.Update{Key: key, Revision: was.revision} // as if we had deleted it
	}
	o.mu.Lock()
	same := o.keys[key] == was
	if same { // else we wrote it again meanwhile, or the watch caught up
		o.keys[key] = mark{revision: now.Revision, gone: gone}
	}
	o.mu.Unlock()
	if !same {
		return nil
	}
	return pass(ctx, []api.Update{now})
}
