package attach

import (
	"math"
	"sync"

	"github.com/twillnet/twill/api"
)

// Overlay is what this node wrote itself and calc was told at once. Until the datastore's own word has reached the same
// revision, older words about these keys are held back: a watch that lags, or a list that was taken before.
type Overlay struct {
	mu    sync.Mutex
	keys  map[string]mark
	links []string
}

// Pending is the revision of what is being written: until it is known, nothing that the datastore says of it counts.
const Pending = math.MaxInt64

type mark struct {
	revision int64
	gone     bool // it was deleted after that revision
}

// Put takes note of what was written.
func (o *Overlay) Put(us []api.Update) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == nil {
		o.keys = map[string]mark{}
	}
	for _, u := range us {
		o.keys[u.Key] = mark{u.Revision, u.Value == nil}
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
		if _, marked := o.keys[u.Key]; marked {
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
		m, marked := o.keys[u.Key]
		if marked {
			if u.Revision < m.revision || u.Revision == m.revision && m.gone {
				continue
			}
			delete(o.keys, u.Key)
		}
		out = append(out, u)
	}
	return out
}
