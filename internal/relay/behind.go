package relay

import (
	"context"
	"fmt"
	"sync"

	"github.com/twillnet/twill/internal/datastore"
)

// noKey follows a prefix in one under which there are no keys.
const noKey = "\x00"

// PutBack implements [datastore.Follower]. A relay that is behind what was seen may lag, or have lost the datastore, for however long: then the client
// leaves it for another. Of a datastore without numbers, as Kubernetes' API, nothing is known; its lists are never taken for old.
func (c *Client) PutBack(ctx context.Context, prefix string, seen datastore.Position) error {
	at, ok := placeOf(seen)
	if c.order == nil || !ok {
		return nil
	}
	now, err := c.Store.List(ctx, prefix+noKey)
	if err != nil {
		c.leave()
		return fmt.Errorf("relay %s is behind what was seen, and the datastore does not say why: %w", c.cfg.Address, err)
	}
	if !c.order.Behind(now.Position, at.store) {
		c.leave()
		return fmt.Errorf("relay %s lags: the datastore is at %s, and %s was seen: %w", c.cfg.Address, now.Position, at.store, datastore.ErrUnavailable)
	}
	return nil
}

// settled are the prefixes of which a client has a state.
type settled struct {
	mu  sync.Mutex
	has map[string]bool
}

func (s *settled) is(prefix string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has[prefix]
}

func (s *settled) note(prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has == nil {
		s.has = map[string]bool{}
	}
	s.has[prefix] = true
}
