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
type Map[K comparable, V any] struct {
	equal   func(a, b V) bool
	desired map[K]V
	actual  map[K]V
	updates pending[K] // desired, and not actual or actually different
	deletes pending[K] // actual, and not desired
}

// New returns an empty Map. Two values that are equal need no update; equal should ignore what
// the kernel does not keep or sets by itself.
func New[K comparable, V any](equal func(desired, actual V) bool) *Map[K, V] {
	if equal == nil {
		panic("delta: no function to compare values")
	}
	return &Map[K, V]{
		equal:   equal,
		desired: map[K]V{},
		actual:  map[K]V{},
		updates: newPending[K](),
		deletes: newPending[K](),
	}
}

// Desire sets the desired value of k.
func (m *Map[K, V]) Desire(k K, v V) {
	m.desired[k] = v
	m.settle(k)
}

// Undesire makes k undesired.
func (m *Map[K, V]) Undesire(k K) {
	delete(m.desired, k)
	m.settle(k)
}

// Desired returns the desired value of k; false: k is not desired.
func (m *Map[K, V]) Desired(k K) (V, bool) {
	v, ok := m.desired[k]
	return v, ok
}

// Observed sets the actual value of k.
func (m *Map[K, V]) Observed(k K, v V) {
	m.actual[k] = v
	m.settle(k)
}

// ObservedGone notes that k does not exist, or that its value is unknown: a desired
// value is then written again.
func (m *Map[K, V]) ObservedGone(k K) {
	delete(m.actual, k)
	m.settle(k)
}

// Actual returns the actual value of k, as last observed; false: none was.
func (m *Map[K, V]) Actual(k K) (V, bool) {
	v, ok := m.actual[k]
	return v, ok
}

// ResetActual forgets the actual state: every desired key is pending,
// and no key is to be deleted.
func (m *Map[K, V]) ResetActual() {
	clear(m.actual)
	m.deletes = newPending[K]()
	for k := range m.desired {
		m.updates.put(k, true)
	}
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
	if len(read) != len(m.actual) {
		return false
	}
	for k, v := range read {
		if is, there := m.actual[k]; !there || !m.equal(is, v) {
			return false
		}
	}
	return true
}

// MarkApplied notes that the actual value of k is the desired one. If the desired value may have
// changed since it was written, call Observed with what was written instead. A
// key that is not desired stays as it is.
func (m *Map[K, V]) MarkApplied(k K) {
	if v, ok := m.desired[k]; ok {
		m.actual[k] = v
		m.updates.put(k, false) // not by equal: what was written is right by definition
	}
}

// MarkDeleted notes that k was deleted.
func (m *Map[K, V]) MarkDeleted(k K) { m.ObservedGone(k) }

// PendingUpdates yields each key to create or change with its desired value, in
// no order. While it runs, keys may be marked, observed and desired; one that
// becomes pending meanwhile may or may not come up.
func (m *Map[K, V]) PendingUpdates() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		m.updates.each(func(k K) bool { return yield(k, m.desired[k]) })
	}
}

// PendingDeletes yields each key to delete, in no order; the same holds while it runs.
func (m *Map[K, V]) PendingDeletes() iter.Seq[K] {
	return m.deletes.each
}

// All yields each desired key and value, in no order.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, v := range m.desired {
			if !yield(k, v) {
				return
			}
		}
	}
}

// Len returns the number of desired keys.
func (m *Map[K, V]) Len() int { return len(m.desired) }

// Pending returns the numbers of keys to update and to delete.
func (m *Map[K, V]) Pending() (updates, deletes int) {
	return len(m.updates.keys), len(m.deletes.keys)
}

// InSync reports whether nothing is pending.
func (m *Map[K, V]) InSync() bool { return len(m.updates.keys) == 0 && len(m.deletes.keys) == 0 }

// settle computes what is pending for one key.
func (m *Map[K, V]) settle(k K) {
	want, wanted := m.desired[k]
	is, there := m.actual[k]
	m.updates.put(k, wanted && (!there || !m.equal(want, is)))
	m.deletes.put(k, there && !wanted)
}
