package syncer

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// mark tells one value of a key from another without keeping it: the hash of its
// revision and value. The revision alone does not, since a store that was put back
// may use one again.
type mark uint64

// merge holds what was sent to the reader, what is pending, and the state of each
// feed.
type merge struct {
	batch Batch          // pending; offered to the reader
	at    map[string]int // where in batch.Updates a key is
	sent  map[string]mark
	wrote map[string]bool   // keys of batch.Updates that the reader wrote since they are pending
	lacks []map[string]bool // of each feed: keys that were known when its list began, and that the list has not had so far

	states []Status // of each feed
	listed []bool   // whether each feed was ever listed
	dirty  bool     // Status or InSync changed
	seed   maphash.Seed
}

func newMerge(feeds int) *merge {
	return &merge{
		at: map[string]int{}, sent: map[string]mark{}, wrote: map[string]bool{}, seed: maphash.MakeSeed(),
		lacks:  make([]map[string]bool, feeds),
		states: make([]Status, feeds), listed: make([]bool, feeds),
	}
}

// unknown is the mark of a key that the reader wrote itself: any update of it is a difference.
const unknown mark = 0

// keptKeys is how many keys may be pending before a first list waits for the reader, and for how many memory is kept.
const keptKeys = 1000

// know notes keys that the reader is about to write.
func (m *merge) know(keys []string) {
	for _, key := range keys {
		m.sent[key] = unknown
		if _, pending := m.at[key]; pending {
			m.wrote[key] = true
		}
	}
}

// hasPending reports whether there is something to send.
func (m *merge) hasPending() bool { return m.dirty || len(m.batch.Updates) > 0 }

// delivered starts a new batch: the reader has taken the pending one.
func (m *merge) delivered() {
	for _, u := range m.batch.Updates {
		switch {
		case m.wrote[u.Key]:
			m.sent[u.Key] = unknown
		case u.Value == nil:
			delete(m.sent, u.Key)
		default:
			m.sent[u.Key] = m.markOf(u)
		}
	}
	if clear(m.at); len(m.batch.Updates) > keptKeys {
		m.at = map[string]int{} // a map keeps its size
	}
	clear(m.wrote)
	m.batch.Updates = nil
	m.dirty = false
}

func (m *merge) apply(e event) {
	if e.first {
		m.lacks[e.feed] = m.under(e.prefix)
	}
	for _, u := range e.updates {
		delete(m.lacks[e.feed], u.Key)
		m.set(u)
	}
	if e.last {
		for key := range m.lacks[e.feed] {
			m.set(api.Update{Key: key})
		}
		m.lacks[e.feed], m.listed[e.feed] = nil, true
	}
	if !e.position.IsZero() {
		positions := maps.Clone(m.batch.Positions) // the reader has the other
		if positions == nil {
			positions = map[string]datastore.Position{}
		}
		positions[e.prefix], m.batch.Positions = e.position, positions
	}
	m.states[e.feed] = e.state
	status := slices.Min(m.states)
	if status == WaitForDatastore && slices.Max(m.states) > WaitForDatastore && !m.batch.InSync {
		// At start one answer is enough to know that the store is there.
		status = ResyncInProgress
	}
	inSync := m.batch.InSync || !slices.Contains(m.listed, false)
	if status != m.batch.Status || inSync != m.batch.InSync {
		m.batch.Status, m.batch.InSync = status, inSync
		m.dirty = true
	}
}

// under returns the keys of a prefix that the reader knows, or will when it takes what is pending. Of a list that begins, those
// that it lacks are deleted in the end. Revisions are not compared: the feed refuses old lists, and after a restore from
// a backup they mean something else.
func (m *merge) under(prefix string) map[string]bool {
	keys := map[string]bool{}
	for key := range m.sent {
		if strings.HasPrefix(key, prefix) {
			keys[key] = true
		}
	}
	for _, u := range m.batch.Updates {
		if strings.HasPrefix(u.Key, prefix) {
			keys[u.Key] = true
		}
	}
	return keys
}

// differs reports whether a list of a prefix is other than what the reader has, or will have. Keys that the reader wrote itself are left out: which
// values they had is not known.
func (m *merge) differs(prefix string, items []api.Update) bool {
	lacks := m.under(prefix)
	for _, u := range items {
		delete(lacks, u.Key)
		if is, wrote := m.markNow(u.Key); !wrote && is != m.markOf(u) {
			return true
		}
	}
	for key := range lacks {
		if is, wrote := m.markNow(key); !wrote && is != unknown {
			return true
		}
	}
	return false
}

// empties reports whether changes leave nothing of a prefix, of which there was something.
func (m *merge) empties(prefix string, changes []api.Update) bool {
	gone := map[string]bool{}
	for _, u := range changes {
		if u.Value != nil {
			return false
		}
		gone[u.Key] = true
	}
	for key := range m.under(prefix) {
		i, pending := m.at[key]
		if !gone[key] && !(pending && m.batch.Updates[i].Value == nil) {
			return false
		}
	}
	return len(gone) > 0
}

// markNow is that of a key's value once the reader has taken what is pending; unknown: it has none. Wrote: the reader wrote it itself.
func (m *merge) markNow(key string) (is mark, wrote bool) {
	sent, known := m.sent[key]
	if wrote = m.wrote[key] || known && sent == unknown; wrote {
		return unknown, true
	}
	if i, pending := m.at[key]; pending {
		if u := m.batch.Updates[i]; u.Value != nil {
			return m.markOf(u), false
		}
		return unknown, false
	}
	return sent, false
}

// set makes an update pending, in the place of an earlier one. What would change
// nothing for the reader is dropped: else keys that come and go while it is slow
// would accumulate.
func (m *merge) set(u api.Update) {
	sent, known := m.sent[u.Key]
	i, pending := m.at[u.Key]
	switch nothing := u.Value == nil && !known || known && u.Value != nil && sent == m.markOf(u); {
	case nothing && pending:
		last := len(m.batch.Updates) - 1
		moved := m.batch.Updates[last]
		m.batch.Updates[i] = moved
		m.at[moved.Key] = i
		m.batch.Updates = m.batch.Updates[:last]
		delete(m.at, u.Key)
	case nothing:
	case pending:
		m.batch.Updates[i] = u
	default:
		m.at[u.Key] = len(m.batch.Updates)
		m.batch.Updates = append(m.batch.Updates, u)
	}
}

func (m *merge) markOf(u api.Update) mark {
	// Each is hashed by itself: a maphash.Hash would copy the value to its buffer.
	return mark((maphash.String(m.seed, u.Revision.String())*31 + maphash.Bytes(m.seed, u.Value)) | 1) // which is not unknown
}
