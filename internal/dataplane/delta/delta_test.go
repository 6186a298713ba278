package delta

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/twillnet/twill/internal/seedtest"
)

func equal(a, b int) bool { return a == b }

// oracle is the slow, obvious way: two maps, compared whole each time.
type oracle struct{ desired, actual map[int]int }

func (o oracle) updates() map[int]int {
	out := map[int]int{}
	for k, want := range o.desired {
		if is, ok := o.actual[k]; !ok || is != want {
			out[k] = want
		}
	}
	return out
}

func (o oracle) deletes() map[int]bool {
	out := map[int]bool{}
	for k := range o.actual {
		if _, ok := o.desired[k]; !ok {
			out[k] = true
		}
	}
	return out
}

func (o oracle) step(r *rand.Rand, m *Map[int, int]) {
	k, v := r.IntN(20), r.IntN(3)
	switch r.IntN(24) {
	case 0:
		m.ResetActual()
		clear(o.actual)
	case 1:
		read := map[int]int{r.IntN(20): v, r.IntN(20): v, k: v}
		m.ObservedAll(maps.All(read))
		clear(o.actual)
		maps.Copy(o.actual, read)
	case 2: // an apply of which some parts fail
		for k, v := range m.PendingUpdates() {
			if r.IntN(3) > 0 {
				m.MarkApplied(k)
				o.actual[k] = v
			}
		}
		for k := range m.PendingDeletes() {
			if r.IntN(3) > 0 {
				m.MarkDeleted(k)
				delete(o.actual, k)
			}
		}
	case 3, 4:
		m.ObservedGone(k)
		delete(o.actual, k)
	case 5, 6:
		m.MarkDeleted(k)
		delete(o.actual, k)
	case 7, 8, 9:
		m.MarkApplied(k)
		if want, ok := o.desired[k]; ok {
			o.actual[k] = want
		}
	case 10, 11, 12, 13:
		m.Undesire(k)
		delete(o.desired, k)
	case 14, 15, 16, 17:
		m.Observed(k, v)
		o.actual[k] = v
	default:
		m.Desire(k, v)
		o.desired[k] = v
	}
}

func TestPendingIsTheDifferenceAfterAnyHistory(t *testing.T) {
	r := seedtest.Rand(t)
	m, o := New[int](equal), oracle{map[int]int{}, map[int]int{}}
	for i := range 20000 {
		o.step(r, m)
		check(t, m, o)
		if t.Failed() {
			t.Fatalf("at step %d", i)
		}
	}
}

func check(t *testing.T, m *Map[int, int], o oracle) {
	t.Helper()
	updates, deletes := o.updates(), o.deletes()
	if got := maps.Collect(m.PendingUpdates()); !maps.Equal(got, updates) {
		t.Errorf("updates %v, want %v", got, updates)
	}
	got := map[int]bool{}
	for k := range m.PendingDeletes() {
		got[k] = true
	}
	if !maps.Equal(got, deletes) {
		t.Errorf("deletes %v, want %v", got, deletes)
	}
	if nu, nd := m.Pending(); nu != len(updates) || nd != len(deletes) {
		t.Errorf("%d updates and %d deletes pending, want %d and %d", nu, nd, len(updates), len(deletes))
	}
	if want := len(updates)+len(deletes) == 0; m.InSync() != want {
		t.Errorf("in sync %v, want %v", m.InSync(), want)
	}
	if all := maps.Collect(m.All()); !maps.Equal(all, o.desired) || m.Len() != len(o.desired) {
		t.Errorf("desired %v (%d), want %v", all, m.Len(), o.desired)
	}
	for k := range 20 {
		want, wanted := o.desired[k]
		is, there := o.actual[k]
		if v, ok := m.Desired(k); v != want || ok != wanted {
			t.Errorf("desired %d = %v, %v, want %v, %v", k, v, ok, want, wanted)
		}
		if v, ok := m.Actual(k); v != is || ok != there {
			t.Errorf("actual %d = %v, %v, want %v, %v", k, v, ok, is, there)
		}
	}
}

func TestWhatIsInOrderCostsNothing(t *testing.T) {
	const many = 10000
	compared := 0
	m := New[int](func(a, b int) bool { compared++; return a == b })
	for k := range many {
		m.Desire(k, 0)
		m.MarkApplied(k)
	}
	m.Observed(many, 0)
	compared = 0
	m.Desire(7, 1)
	yielded := 0
	for range m.PendingUpdates() {
		yielded++
	}
	for range m.PendingDeletes() {
		yielded++
	}
	if compared != 1 || yielded != 2 {
		t.Errorf("one change and one stranger among %d: %d comparisons, %d pending; want 1, 2", many, compared, yielded)
	}
}

func TestDifferencesThatEqualIgnoresAreNotPending(t *testing.T) {
	m := New[string](func(desired, actual int) bool { return desired/10 == actual/10 })
	m.Observed("a", 12)
	m.Desire("a", 15)
	if !m.InSync() {
		t.Error("an ignored difference is pending")
	}
	m.Desire("a", 25)
	if m.InSync() {
		t.Error("a real difference is not pending")
	}
}

func TestWhatWeWroteIsRightEvenIfUnequalToItself(t *testing.T) {
	m := New[string](func(a, b float64) bool { return false })
	m.Desire("a", 1)
	m.MarkApplied("a")
	if !m.InSync() {
		t.Error("still pending after it was applied")
	}
}

func TestIterationCanStopEarly(t *testing.T) {
	m := New[int](equal)
	for k := range 10 {
		m.Desire(k, k)
		m.Observed(k+100, k)
	}
	n := 0
	for range m.PendingUpdates() {
		n++
		break
	}
	for range m.PendingDeletes() {
		n++
		break
	}
	for range m.All() {
		n++
		break
	}
	if n != 3 {
		t.Errorf("%d yielded, want 3", n)
	}
}

// A start makes everything pending once; later walks must not pay for it again,
// not even while one key keeps failing.
func TestPendingSetsShrinkAfterAStart(t *testing.T) {
	m := New[int](equal)
	for k := range 10000 {
		m.Desire(k, 0)
		m.Observed(k+10000, 0)
	}
	for k := range m.PendingUpdates() {
		if k != 7 {
			m.MarkApplied(k)
		}
	}
	for k := range m.PendingDeletes() {
		m.MarkDeleted(k)
	}
	for range m.PendingUpdates() {
	}
	for range m.PendingDeletes() {
	}
	if m.updates.peak > few || m.deletes.peak > few {
		t.Errorf("walks still cost as much as %d and %d keys", m.updates.peak, m.deletes.peak)
	}
}

// A node that is settled has each key once, however it came to that.
func TestASettledKeyIsKeptOnce(t *testing.T) {
	const many = 1000
	for _, read := range []bool{false, true} {
		m := New[int](equal)
		for k := range many {
			if read {
				m.Observed(k, k)
			}
			m.Desire(k, k)
			if !read {
				m.MarkApplied(k)
			}
		}
		if n := len(m.alike) + len(m.updates.keys) + len(m.actual.keys) + len(m.deletes.keys); len(m.settled) != many || n != 0 || m.updates.peak+m.actual.peak > 2*few {
			t.Errorf("read back %v: %d keys once and %d more, with room for %d and %d", read, len(m.settled), n, m.updates.peak, m.actual.peak)
		}
	}
}

// The inner walk shrinks the set under the outer one.
func TestAWalkWithinAWalkYieldsNothingThatIsDone(t *testing.T) {
	m := New[int](equal)
	for k := range 1000 {
		m.Desire(k, 0)
	}
	n := 0
	for range m.PendingUpdates() {
		n++
		for k := range 995 {
			m.MarkApplied(k)
		}
		for k := range m.PendingUpdates() {
			m.MarkApplied(k)
		}
	}
	if n != 1 || !m.InSync() {
		t.Errorf("%d yielded after all was applied, want none", n-1)
	}
}

func BenchmarkOneChangeAmongMany(b *testing.B) {
	m := New[int](equal)
	for k := range 100000 { // all pending at once, as at a start
		m.Desire(k, 0)
	}
	for k := range m.PendingUpdates() {
		m.MarkApplied(k)
	}
	v := 0
	b.ReportAllocs()
	for b.Loop() {
		v++
		m.Desire(v%100000, v)
		for k := range m.PendingUpdates() {
			m.MarkApplied(k)
		}
	}
}
