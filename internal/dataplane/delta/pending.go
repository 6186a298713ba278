package delta

// pending is a set of keys whose iteration costs as much as it holds now. A Go
// map never shrinks, and walking one costs as much as it ever held: after a
// start with 100,000 keys each later walk would pay for them.
type pending[K comparable] struct {
	keys map[K]struct{}
	peak int // the most that keys has held since it was made
}

// few is a size that is not worth shrinking.
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

// each calls yield for each key until it answers false. Keys may come and go
// meanwhile.
func (p *pending[K]) each(yield func(K) bool) {
	p.shrink()
	for k := range p.keys {
		// Another walk within this one may have moved the keys elsewhere: then what
		// we walk is old, and no longer told what goes.
		if _, ok := p.keys[k]; ok && !yield(k) {
			return
		}
	}
}

// shrink moves the keys to a map of their size. Its cost is paid for by the puts
// that made the map large.
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
