package classify

import (
	"crypto/sha256"
	"encoding/binary"
)

// ids gives dense numbers. One that is released is given again only after the next time that settle is called.
type ids struct {
	next     uint32 // the smallest that was never assigned
	free     []uint32
	released []uint32
}

func (x *ids) take() uint32 {
	if n := len(x.free); n > 0 {
		id := x.free[n-1]
		x.free = x.free[:n-1]
		return id
	}
	x.next++
	return x.next - 1
}

func (x *ids) release(id uint32) { x.released = append(x.released, id) }

func (x *ids) settle() {
	x.free = append(x.free, x.released...)
	x.released = x.released[:0]
}

// numbers gives numbers between two bounds that follow from what they stand for, so that an agent that starts anew gives the same. Of two
// contents that meet in one number, the one that came later has the next that is free. A number that is released stands for
// nothing else until the next time that settle is called.
type numbers struct {
	first, last uint32
	of          map[uint32]uint64 // what stands behind each that is in use, or rests
	resting     map[uint32]struct{}
}

func newNumbers(first, last uint32) numbers {
	return numbers{first, last, map[uint32]uint64{}, map[uint32]struct{}{}}
}

func (x *numbers) take(content uint64) uint32 {
	n := x.first + uint32(content%uint64(x.last-x.first+1))
	for {
		is, there := x.of[n]
		_, rests := x.resting[n]
		if !there || rests && is == content {
			delete(x.resting, n)
			x.of[n] = content
			return n
		}
		if n++; n > x.last {
			n = x.first
		}
	}
}

func (x *numbers) release(n uint32) { x.resting[n] = struct{}{} }

func (x *numbers) settle() {
	for n := range x.resting {
		delete(x.of, n)
	}
	x.resting = empty(x.resting)
}

// contentOf stands for a text.
func contentOf(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:])
}

// empty returns an empty map: the same one, unless it is large. A map never shrinks, and to walk or clear one costs as much as the most that it
// ever held: after a start with 100,000 addresses each change would pay for them.
func empty[K comparable, V any](m map[K]V) map[K]V {
	if len(m) > 64 {
		return map[K]V{}
	}
	clear(m)
	return m
}
