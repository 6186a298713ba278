package classify

// ids assigns dense numbers. A released one is assigned again only after the next call of settle.
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
