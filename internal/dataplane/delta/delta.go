// Package delta keeps what should be beside what is, and says what is left to do.
//
// In: what is wanted ([Map.Desire], [Map.Undesire]), and what the kernel has, as
// read back ([Map.Observed], [Map.ObservedGone]) or as just written
// ([Map.MarkApplied], [Map.MarkDeleted]).
// Out: [Map.PendingUpdates] and [Map.PendingDeletes], which make the two equal.
//
// What is pending depends on the two present states alone, never on the order in
// which they became known. Each call costs as much as the keys it names, and
// iteration as much as is pending, however many keys are in order; only
// [Map.ResetActual] and [Map.ObservedAll] cost as much as all keys.
//
// A driver's apply is then one loop, and what failed simply stays pending:
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

// New returns an empty Map. Two values that are equal need no update; whatever
// the kernel does not keep, or fills in by itself, equal should ignore.
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

// Desire says that k should be v.
func (m *Map[K, V]) Desire(k K, v V) {
	m.desired[k] = v
	m.settle(k)
}

// Undesire says that k should not be.
func (m *Map[K, V]) Undesire(k K) {
	delete(m.desired, k)
	m.settle(k)
}

// Desired returns what k should be.
func (m *Map[K, V]) Desired(k K) (V, bool) {
	v, ok := m.desired[k]
	return v, ok
}

// Observed says that k is v, whoever made it so.
func (m *Map[K, V]) Observed(k K, v V) {
	m.actual[k] = v
	m.settle(k)
}

// ObservedGone says that k is not there, or that nobody knows: what is desired
// is then written again.
func (m *Map[K, V]) ObservedGone(k K) {
	delete(m.actual, k)
	m.settle(k)
}

// Actual returns what k is, as far as we know.
func (m *Map[K, V]) Actual(k K) (V, bool) {
	v, ok := m.actual[k]
	return v, ok
}

// ResetActual forgets all that was observed: all that is desired is pending,
// and nothing is left to delete.
func (m *Map[K, V]) ResetActual() {
	clear(m.actual)
	m.deletes = newPending[K]()
	for k := range m.desired {
		m.updates.put(k, true)
	}
}

// ObservedAll says that seq is all there is: the result of a complete read-back.
// Take one that failed halfway for none, or what it missed is written again.
func (m *Map[K, V]) ObservedAll(seq iter.Seq2[K, V]) {
	m.ResetActual()
	for k, v := range seq {
		m.Observed(k, v)
	}
}

// ActualIs reports whether the actual state is what was read, so that there is nothing to observe.
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

// MarkApplied says that k now is what is desired. Where the desire may have
// changed since it was written, say instead what was written, with Observed. A
// key that is not desired stays as it is.
func (m *Map[K, V]) MarkApplied(k K) {
	if v, ok := m.desired[k]; ok {
		m.actual[k] = v
		m.updates.put(k, false) // not by equal: what we wrote is by definition right
	}
}

// MarkDeleted says that k was removed.
func (m *Map[K, V]) MarkDeleted(k K) { m.ObservedGone(k) }

// PendingUpdates yields each key to create or change with its desired value, in
// no order. While it runs, keys may be marked, observed and desired; one that
// becomes pending meanwhile may or may not come up.
func (m *Map[K, V]) PendingUpdates() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		m.updates.each(func(k K) bool { return yield(k, m.desired[k]) })
	}
}

// PendingDeletes yields each key to remove, in no order, under the same terms.
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

// Len is the number of desired keys.
func (m *Map[K, V]) Len() int { return len(m.desired) }

// Pending is the number of keys to update and to delete.
func (m *Map[K, V]) Pending() (updates, deletes int) {
	return len(m.updates.keys), len(m.deletes.keys)
}

// InSync reports whether nothing is pending.
func (m *Map[K, V]) InSync() bool { return len(m.updates.keys) == 0 && len(m.deletes.keys) == 0 }

// settle works out anew what is pending for one key.
func (m *Map[K, V]) settle(k K) {
	want, wanted := m.desired[k]
	is, there := m.actual[k]
	m.updates.put(k, wanted && (!there || !m.equal(want, is)))
	m.deletes.put(k, there && !wanted)
}
