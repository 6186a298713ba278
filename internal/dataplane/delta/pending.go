package delta

// store is a map whose iteration costs as much as it holds now. A Go
// map never shrinks, and walking one costs as much as the most that it ever held: after a
// start with 100,000 keys each later walk would pay for them. Zero is empty.
type store[K comparable, V any] struct {
	keys map[K]V
	peak int // the largest size of keys since the map was made
}

// few is a size below which the map is not shrunk.
const few = 64

func (p *store[K, V]) len() int { return len(p.keys) }

func (p *store[K, V]) get(k K) (V, bool) {
	v, ok := p.keys[k]
	return v, ok
}

// put sets the value of k, or deletes it.
func (p *store[K, V]) put(k K, v V, in bool) {
	switch {
	case in:
		if p.keys == nil {
			p.keys = map[K]V{}
		}
		p.keys[k] = v
		p.peak = max(p.peak, len(p.keys))
	case len(p.keys) > 0:
		if delete(p.keys, k); len(p.keys) == 0 {
			p.shrink()
		}
	}
}

// each calls yield for each key until it returns false. Keys may be added and removed
// meanwhile.
func (p *store[K, V]) each(yield func(K, V) bool) {
	p.shrink()
	for k := range p.keys {
		// A nested walk, or the last key's removal, may have moved the keys to a new map: this one is then
		// out of date, and keys that are removed stay in it.
		if v, ok := p.keys[k]; ok && !yield(k, v) {
			return
		}
	}
}

// shrink moves the keys to a map of their size. The puts that made the map large pay for
// the cost (amortized).
func (p *store[K, V]) shrink() {
	if p.peak <= few || len(p.keys) > p.peak/4 {
		return
	}
	keys := make(map[K]V, len(p.keys))
	for k, v := range p.keys {
		keys[k] = v
	}
	p.keys, p.peak = keys, len(keys)
}
