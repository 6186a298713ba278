package attach

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Overlay is what this node wrote itself and calc was told at once. Until the datastore's own word has reached the same
// revision, older words about these keys are held back: a watch that lags, or a list that was taken before.
//
// Which of two revisions is older, only a store with an order says. Where there is none, a word of another revision is held
// back, too, and [Overlay.Settle] asks the store which of the two is the present one.
type Overlay struct {
	Order datastore.Ordered // nil: the store has none

	mu     sync.Mutex
	keys   map[string]mark
	links  []string
	doubts map[string]bool // keys that the store is to be asked for
	wake   chan struct{}   // made by who waits for a doubt, closed when there is one
}

// Pending is the revision of what is being written: until it is known, nothing that the datastore says of it counts.
var Pending = api.RevisionOf("pending\x00") // which no store writes

type mark struct {
	revision api.Revision
	gone     bool         // it was deleted after that revision
	held     api.Revision // of the last word that was held back while it was Pending
}

// Put takes note of what was written.
func (o *Overlay) Put(us []api.Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == nil {
		o.keys = map[string]mark{}
	}
	for _, u := range us {
		held := o.keys[u.Key].held
		o.keys[u.Key] = mark{revision: u.Revision, gone: u.Value == nil}
		if o.Order == nil && u.Value != nil && u.Revision != Pending && !held.IsZero() {
			if held == u.Revision {
				delete(o.keys, u.Key) // the watch was faster than the answer
			} else {
				o.doubt(u.Key)
			}
		}
	}
}

// Announce takes note that an endpoint is about to be written, and of its link.
func (o *Overlay) Announce(key, link string) {
	o.Put([]api.Update{{Key: key, Value: []byte{}, Revision: Pending}})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.links = append(o.links, link)
}

// Links are those that were announced since the last call.
func (o *Overlay) Links() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.links
	o.links = nil
	return out
}

// Current are those of what was put that the datastore's own word has not overtaken.
func (o *Overlay) Current(us []api.Update) []api.Update {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := us[:0:0]
	for _, u := range us {
		if m, marked := o.keys[u.Key]; marked && (u.Revision == Pending || u.Revision == m.revision) {
			out = append(out, u)
		}
	}
	return out
}

// Filter returns those updates of the datastore that are news.
func (o *Overlay) Filter(us []api.Update) []api.Update {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.keys) == 0 {
		return us
	}
	out := us[:0:0]
	for _, u := range us {
		if m, marked := o.keys[u.Key]; marked {
			if !o.overtakes(u, m) {
				continue
			}
			delete(o.keys, u.Key)
		}
		out = append(out, u)
	}
	return out
}

// overtakes reports whether a word of the datastore is that of our own write, or a later one.
func (o *Overlay) overtakes(u api.Update, m mark) bool {
	switch {
	case m.revision == Pending:
		m.held = u.Revision
		o.keys[u.Key] = m
		return false
	case m.revision.IsZero(): // nothing is known of it
		return true
	case u.Revision == m.revision:
		return !m.gone
	case o.Order != nil && !u.Revision.IsZero():
		return !o.Order.Older(u.Revision, m.revision)
	case m.gone && u.Value == nil:
		// If it is the deletion of an earlier life of the key, calc may hear of what is gone until the watch has passed that.
		return true
	}
	o.doubt(u.Key)
	return false
}

// doubt notes that the store is to be asked for a key.
func (o *Overlay) doubt(key string) {
	if o.doubts == nil {
		o.doubts = map[string]bool{}
	}
	o.doubts[key] = true
	if o.wake != nil {
		close(o.wake)
		o.wake = nil
	}
}

// again is how long Settle waits when the store did not answer.
const again = time.Second

// Settle asks the store about what Filter could not tell, and tells what has overtaken our own writes, which is then among
// the Current, until the context ends.
// The store's answer is the present value: if it is not what we wrote, that was overtaken, and what the watch has still to
// bring up to it is old.
func (o *Overlay) Settle(ctx context.Context, s datastore.Store, tell func(context.Context, []api.Update) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		o.mu.Lock()
		keys, wake := o.doubts, make(chan struct{})
		o.doubts, o.wake = nil, wake
		o.mu.Unlock()
		for key := range keys {
			if err := o.settle(ctx, s, key, tell); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				o.mu.Lock()
				o.doubt(key)
				o.mu.Unlock()
				timer.Reset(again)
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

func (o *Overlay) settle(ctx context.Context, s datastore.Store, key string, tell func(context.Context, []api.Update) error) error {
	o.mu.Lock()
	was, marked := o.keys[key]
	o.mu.Unlock()
	if !marked || was.revision == Pending {
		return nil // it is settled, or written anew
	}
	now, err := s.Get(ctx, key)
	gone := errors.Is(err, datastore.ErrNotFound)
	if err != nil && !gone {
		return err
	}
	if gone == was.gone && (gone || now.Revision == was.revision) {
		return nil // ours is the present one: the watch lags
	}
	if gone {
		now = api.Update{Key: key, Revision: was.revision} // as if we had deleted it
	}
	o.mu.Lock()
	same := o.keys[key] == was
	if same { // else we wrote it meanwhile, or the watch caught up
		o.keys[key] = mark{revision: now.Revision, gone: gone}
	}
	o.mu.Unlock()
	if !same {
		return nil
	}
	return tell(ctx, []api.Update{now})
}
