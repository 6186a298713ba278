package desired

import "github.com/twillnet/twill/internal/intent"

// Refusable reports whether an intent can be left out: it exists, and has no fault yet.
func (s *State) Refusable(key intent.Key) bool {
	_, broken := s.faults[key]
	return !broken && s.known(key)
}

// Refuse notes that the backend cannot apply an intent, with its error. The intent is left out from now on, and endpoints that need it
// are closed. It returns false if the intent is left out already or does not exist.
func (s *State) Refuse(key intent.Key, err error) bool {
	if !s.Refusable(key) {
		return false
	}
	s.faults[key] = fault{err: err, refused: true}
	s.touched[key] = struct{}{}
	s.markDirty(key)
	return true
}

// Retry has everything that the backend refused tried again.
func (s *State) Retry() {
	for key, f := range s.faults {
		if f.refused {
			s.retryOne(key)
		}
	}
}

// retryOne has an intent tried again if the backend refused it.
func (s *State) retryOne(key intent.Key) {
	if s.faults[key].refused {
		delete(s.faults, key)
		s.touched[key] = struct{}{}
		s.markDirty(key)
	}
}

// Broken notes that the backend cannot render a chain, and returns a chain that denies, to take its place. The owner gets err as its outcome;
// for a chain of the skeleton, the host's settings do.
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

// Settled notes the result of those settings that the backend alone carries out. A failure is tried again after Retry.
func (s *State) Settled(err error) {
	s.touched[hostKey] = struct{}{}
	if delete(s.faults, hostKey); err != nil {
		s.faults[hostKey] = fault{err: err, refused: true}
	}
}

// Unsettled reports whether the backend could not carry out those settings, and Retry was not called since.
func (s *State) Unsettled() bool {
	_, failed := s.faults[hostKey]
	return failed
}

func (s *State) fail(key intent.Key, err error) {
	s.faults[key] = fault{err: err}
	s.touched[key] = struct{}{}
}
