// Package delta keeps the desired and the actual state of one kind of thing, and computes the difference.
//
// In: what is desired ([Map.Desire], [Map.Undesire]), and what the kernel has, as
// read back ([Map.Observed], [Map.ObservedGone]) or as just written
// ([Map.MarkApplied], [Map.MarkDeleted]).
// Out: [Map.PendingUpdates] and [Map.PendingDeletes], which make actual equal to desired.
//
// What is pending depends on the two present states alone, never on the order in
// which they became known. Each call costs as much as the keys it names, and
// iteration as much as is pending, however many keys need no change; only
// [Map.ResetActual] and [Map.ObservedAll] cost as much as all keys.
//
// A driver's apply is then one loop, and what failed stays pending:
//
//	for dst, route := range routes.PendingUpdates() {
//		if err := kernel.Add(dst, route); err != nil {
//			failed = append(failed, err)
//			continue
//		}
//		routes.MarkApplied(dst)
//	}
package delta

import "iter"

// Map is the desired and the actual state of one kind of thing, by key. One
// goroutine may use it. Values given to it must not change afterwards. Make it
// with [New].
type Map[K, V comparable] struct {
	equal func(a, b V) bool
	// Each key is in one of the first two, or in one or both of the others. Nearly all are settled, and are kept once.
	settled map[K]V       // desired, and actually the same
	alike   map[K]both[V] // desired, and actually another value that is equal
	updates store[K, V]   // desired, and not actual or actually different
	actual  store[K, V]   // actual, and not desired or desired differently
	deletes store[K, none]
}

// none is no value. The keys of Map.deletes are those of actual that are not desired.
type none struct{}

// both are the two values of a key.
type both[V any] struct{ want, is V }

// state is what is known of a key.
type state[V any] struct {
	both[V]
	wanted, there bool
	in            place // where the key is kept
}

// place is in which of the maps of a Map a key is.
type place uint8

const (
	inSettled place = 1 << iota
	inAlike
	inUpdates
	inActual
	inDeletes
)

// New returns an empty Map. Two values that are equal need no update; equal should ignore what
// the kernel does not keep or sets by itself.
func New[K, V comparable](equal func(desired, actual V) bool) *Map[K, V] {
	if equal == nil {
		panic("delta: no function to compare values")
	}
	return &Map[K, V]{equal: equal, settled: map[K]V{}, alike: map[K]both[V]{}}
}

// of returns what is known of k.
func (m *Map[K, V]) of(k K) (s state[V]) {
	if v, ok := m.settled[k]; ok {
		return state[V]{both[V]{v, v}, true, true, inSettled}
	}
	if b, ok := m.alike[k]; ok {
		return state[V]{b, true, true, inAlike}
	}
	if s.want, s.wanted = m.updates.get(k); s.wanted {
		s.in |= inUpdates
	}
	if s.is, s.there = m.actual.get(k); s.there {
		s.in |= inActual
		if !s.wanted {
			s.in |= inDeletes
		}
	}
	return s
}

// where returns where a key belongs of which that is known.
func (m *Map[K, V]) where(s state[V]) place {
	switch {
	case s.wanted && s.there && s.want == s.is:
		return inSettled
	case s.wanted && s.there && m.equal(s.want, s.is):
		return inAlike
	case s.wanted && s.there:
		return inUpdates | inActual
	case s.wanted:
		return inUpdates
	case s.there:
		return inActual | inDeletes
	}
	return 0
}

// put files k by what is known of it now. It touches only the maps that k leaves and those that it is in then.
func (m *Map[K, V]) put(k K, s state[V]) {
	to := m.where(s)
	from := s.in &^ to
	if to&inSettled != 0 {
		m.settled[k] = s.want
	} else if from&inSettled != 0 {
		delete(m.settled, k)
	}
	if to&inAlike != 0 {
		m.alike[k] = s.both
	} else if from&inAlike != 0 {
		delete(m.alike, k)
	}
	if (to|from)&inUpdates != 0 {
		m.updates.put(k, s.want, to&inUpdates != 0)
	}
	if (to|from)&inActual != 0 {
		m.actual.put(k, s.is, to&inActual != 0)
	}
	if (to|from)&inDeletes != 0 {
		m.deletes.put(k, none{}, to&inDeletes != 0)
	}
}

// Desire sets the desired value of k.
func (m *Map[K, V]) Desire(k K, v V) {
	s := m.of(k)
	s.want, s.wanted = v, true
	m.put(k, s)
}

// Undesire makes k undesired.
func (m *Map[K, V]) Undesire(k K) {
	s := m.of(k)
	s.wanted = false
	m.put(k, s)
}

// Desired returns the desired value of k; false: k is not desired.
func (m *Map[K, V]) Desired(k K) (V, bool) {
	s := m.of(k)
	return s.want, s.wanted
}

// Observed sets the actual value of k.
func (m *Map[K, V]) Observed(k K, v V) {
	s := m.of(k)
	s.is, s.there = v, true
	m.put(k, s)
}

// ObservedGone notes that k does not exist, or that its value is unknown: a desired
// value is then written again.
func (m *Map[K, V]) ObservedGone(k K) {
	s := m.of(k)
	s.there = false
	m.put(k, s)
}

// Actual returns the actual value of k, as last observed; false: none was.
func (m *Map[K, V]) Actual(k K) (V, bool) {
	s := m.of(k)
	return s.is, s.there
}

// ResetActual forgets the actual state: every desired key is pending,
// and no key is to be deleted.
func (m *Map[K, V]) ResetActual() {
	m.actual, m.deletes = store[K, V]{}, store[K, none]{}
	for k, v := range m.settled {
		m.updates.put(k, v, true)
	}
	for k, b := range m.alike {
		m.updates.put(k, b.want, true)
	}
	m.settled, m.alike = map[K]V{}, map[K]both[V]{}
}

// ObservedAll sets the actual state to seq, the result of a complete read-back.
// Do not pass an incomplete one: the keys that it lacks are then written again.
func (m *Map[K, V]) ObservedAll(seq iter.Seq2[K, V]) {
	m.ResetActual()
	for k, v := range seq {
		m.Observed(k, v)
	}
}

// ActualIs reports whether the actual state equals what was read, so that there is nothing to observe.
func (m *Map[K, V]) ActualIs(read map[K]V) bool {
	if len(read) != len(m.settled)+len(m.alike)+m.actual.len() {
		return false
	}
	for k, v := range read {
		if is, there := m.Actual(k); !there || is != v && !m.equal(is, v) {
			return false
		}
	}
	return true
}

// MarkApplied notes that the actual value of k is the desired one. If the desired value may have
// changed since it was written, call Observed with what was written instead. A
// key that is not desired stays as it is.
func (m *Map[K, V]) MarkApplied(k K) {
	if s := m.of(k); s.wanted {
		m.put(k, state[V]{both[V]{s.want, s.want}, true, true, s.in}) // not by equal: what was written is right by definition
	}
}

// MarkDeleted notes that k was deleted.
func (m *Map[K, V]) MarkDeleted(k K) { m.ObservedGone(k) }

// PendingUpdates yields each key to create or change with its desired value, in
// no order. While it runs, keys may be marked, observed and desired; one that
// becomes pending meanwhile may or may not come up.
func (m *Map[K, V]) PendingUpdates() iter.Seq2[K, V] { return m.updates.each }

// PendingDeletes yields each key to delete, in no order; the same holds while it runs.
func (m *Map[K, V]) PendingDeletes() iter.Seq[K] {
	return func(yield func(K) bool) {
		m.deletes.each(func(k K, _ none) bool { return yield(k) })
	}
}

// All yields each desired key and value, in no order. Nothing may change while it runs.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, v := range m.settled {
			if !yield(k, v) {
				return
			}
		}
		for k, b := range m.alike {
			if !yield(k, b.want) {
				return
			}
		}
		m.updates.each(yield)
	}
}

// Len returns the number of desired keys.
func (m *Map[K, V]) Len() int { return len(m.settled) + len(m.alike) + m.updates.len() }

// Pending returns the numbers of keys to update and to delete.
func (m *Map[K, V]) Pending() (updates, deletes int) { return m.updates.len(), m.deletes.len() }

// InSync reports whether nothing is pending.
func (m *Map[K, V]) InSync() bool { return m.updates.len() == 0 && m.deletes.len() == 0 }
