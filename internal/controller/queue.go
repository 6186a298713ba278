package controller

import (
	"container/heap"
	"time"
)

// item is a queued key.
type item struct {
	key   string
	due   time.Time
	order uint64 // of items that are due at the same time
	at    int    // in the heap
}

// queue is a priority queue of keys by due time; each key is in it once.
type queue struct {
	byDue items
	byKey map[string]*item
	added uint64
}

func newQueue() queue { return queue{byKey: map[string]*item{}} }

// add inserts a key, or moves it to an earlier time.
func (q *queue) add(key string, due time.Time) {
	q.added++
	is, ok := q.byKey[key]
	switch {
	case !ok:
		is = &item{key: key, due: due, order: q.added}
		q.byKey[key] = is
		heap.Push(&q.byDue, is)
	case due.Before(is.due):
		is.due, is.order = due, q.added
		heap.Fix(&q.byDue, is.at)
	}
}

func (q *queue) empty() bool { return len(q.byDue) == 0 }

func (q *queue) first() *item { return q.byDue[0] }

func (q *queue) take() string {
	is := heap.Pop(&q.byDue).(*item)
	delete(q.byKey, is.key)
	return is.key
}

// items is a heap.
type items []*item

func (h items) Len() int { return len(h) }

func (h items) Less(i, j int) bool {
	if !h[i].due.Equal(h[j].due) {
		return h[i].due.Before(h[j].due)
	}
	return h[i].order < h[j].order
}

func (h items) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *items) Push(x any) {
	is := x.(*item)
	is.at = len(*h)
	*h = append(*h, is)
}

func (h *items) Pop() any {
	last := len(*h) - 1
	is := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return is
}
