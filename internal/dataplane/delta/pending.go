package delta

// pending is a set of keys whose iteration costs as much as it holds now. A Go
// map never shrinks, and walking one costs as much as the most that it ever held: after a
// start with 100,000 keys each later walk would pay for them.
type pending[K comparable] struct {
	keys map[K]struct{}
	peak int // the largest size of keys since the map was made
}

// few is a size below which the map is not shrunk.
const few = 64

func newPending[K comparable]() pending[K] { return pending[K]{keys: map[K]struct{}{}} }

func (p *pending[K]) put(k K, in bool) {
	if !in {
		delete(p.keys, k)
		return
	}
	p.keys[k] = struct{}{}
	p.peak = max(p.peak, len(p.keys))
}

// each calls yield for each key until it returns false. Keys may be added and removed
// meanwhile.
func (p *pending[K]) each(yield func(K) bool) {
	p.shrink()
	for k := range p.keys {
		// A nested walk may have moved the keys to a new map: this one is then
		// out of date, and keys that are removed stay in it.
		if _, ok := p.keys[k]; ok && !yield(k) {
			return
		}
	}
}

// shrink moves the keys to a map of their size. The puts that made the map large pay for
// the cost (amortized).
func (p *pending[K]) shrink() {
	if p.peak <= few || len(p.keys) > p.peak/4 {
		return
	}
	keys := make(map[K]struct{}, len(p.keys))
	for k := range p.keys {
		keys[k] = struct{}{}
	}
	p.keys, p.peak = keys, len(keys)
}
