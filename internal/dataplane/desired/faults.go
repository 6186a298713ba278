package desired

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

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

// Broken notes that the backend cannot render a chain, and returns a chain that denies, to take its place; one that accepts nothing for a stage that decides
// nothing ([Hook].Accept). The owner gets err as its outcome; for a chain that is for no single intent, the host's settings do, until it is wanted otherwise.
func (s *State) Broken(c Chain, err error) Chain {
	if c.Owner == nil || c.Owner == HostEndpoints || c.Owner == Tables {
		s.broken[c.Name] = err
		s.touched[hostKey] = struct{}{}
	} else {
		s.fail(c.Owner, err)
	}
	c.Rules, c.Generation = nil, 0
	c.Guards = []Guard{{Comment: reasonNoForm, By: always(reasonNoForm)}}
	if c.Hook != nil && c.Hook.Accept {
		c.Guards = []Guard{{Do: Return, Comment: reasonNoForm}}
	}
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

// mended notes that a chain is made anew, or not wanted any more: if it could not be rendered, that is over.
func (s *State) mended(name string) {
	if _, was := s.broken[name]; was {
		delete(s.broken, name)
		s.touched[hostKey] = struct{}{}
	}
}

// brokenStage returns why a chain that is for no single intent denies: it could not be rendered.
func (s *State) brokenStage() error {
	for _, name := range slices.Sorted(maps.Keys(s.broken)) {
		return fmt.Errorf("chain %s: %w", name, s.broken[name])
	}
	return nil
}

func (s *State) fail(key intent.Key, err error) {
	s.faults[key] = fault{err: err}
	s.touched[key] = struct{}{}
}
