package desired

// index maps a thing to its users.
type index[K, U comparable] map[K]map[U]struct{}

func (x index[K, U]) add(k K, u U) {
	if x[k] == nil {
		x[k] = map[U]struct{}{}
	}
	x[k][u] = struct{}{}
}

func (x index[K, U]) remove(k K, u U) {
	delete(x[k], u)
	if len(x[k]) == 0 {
		delete(x, k)
	}
}
