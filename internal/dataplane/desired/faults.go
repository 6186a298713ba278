package desired

import "github.com/twillnet/twill/internal/intent"

// Refusable reports whether an intent could be left out: it is there, and nothing is known against it yet.
func (s *State) Refusable(key intent.Key) bool {
	_, broken := s.faults[key]
	return !broken && s.known(key)
}

// Refuse says that the backend cannot have what is for an intent, which is left out from now on; who needs it is closed. It is false
// if that cannot help, since the intent is left out already or is none.
func (s *State) Refuse(key intent.Key, err error) bool {
	if !s.Refusable(key) {
		return false
	}
	s.faults[key] = fault{err: err, refused: true}
	s.touched[key] = struct{}{}
	s.markDirty(key)
	return true
}

// Retry gives all that the backend refused another chance.
func (s *State) Retry() {
	for key, f := range s.faults {
		if f.refused {
			s.another(key)
		}
	}
}

// another gives what the backend refused, if it did, another chance.
func (s *State) another(key intent.Key) {
	if s.faults[key].refused {
		delete(s.faults, key)
		s.touched[key] = struct{}{}
		s.markDirty(key)
	}
}

// Broken says that the backend has no form for a chain, and returns what stands in its place: a chain that denies. What is so on any
// node is nobody's: then the host's settings are not in force.
func (s *State) Broken(c Chain, err error) Chain {
	owner := c.Owner
	if owner == nil {
		owner = hostKey
	}
	s.fail(owner, err)
	c.Rules, c.Generation = nil, 0
	c.Guards = []Guard{{Comment: reasonNoForm, By: always(reasonNoForm)}}
	return c
}

// Settled says what became of those settings that the backend alone carries out. What failed is tried again after Retry.
func (s *State) Settled(err error) {
	s.touched[hostKey] = struct{}{}
	if delete(s.faults, hostKey); err != nil {
		s.faults[hostKey] = fault{err: err, refused: true}
	}
}

// Unsettled reports whether the backend could not carry out those settings, and nobody said Retry since.
func (s *State) Unsettled() bool {
	_, failed := s.faults[hostKey]
	return failed
}

func (s *State) fail(key intent.Key, err error) {
	s.faults[key] = fault{err: err}
	s.touched[key] = struct{}{}
}
