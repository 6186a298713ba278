package kubestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/twillnet/twill/internal/datastore"
)

// reached makes sure that the server has come as far as versions say: one that was put back from a backup would keep silent until
// it has, and what was before would be missed. All kinds count with one counter, that of etcd.
func (s *Store) reached(ctx context.Context, versions map[string]string) error {
	var highest uint64
	for _, v := range versions {
		n, _ := strconv.ParseUint(v, 10, 64) // what is no number cannot be compared
		highest = max(highest, n)
	}
	if highest == 0 {
		return nil
	}
	now, err := s.present.ask(ctx, s.presentVersion)
	if errors.Is(err, datastore.ErrUnauthorized) {
		return nil // who may read one kind alone is not told
	}
	if err == nil && now > 0 && now < highest {
		err = fmt.Errorf("%w: the server is at %d, before %d", datastore.ErrCompacted, now, highest)
	}
	return err
}

// presentVersion is how far the server has come; 0: it does not say so as a number.
func (s *Store) presentVersion() (uint64, error) {
	raw, err := s.get(s.life, "/api/v1/namespaces", mediaJSON, map[string]string{"limit": "1"})
	if err != nil {
		return 0, err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return 0, fmt.Errorf("%w: Kubernetes' namespaces: %w", datastore.ErrUnavailable, err)
	}
	now, _ := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	return now, nil
}

// question is asked once for all who want to know at the same time: the streams of all kinds end together, and would each ask.
// Who comes while it is being asked asks once more after that, since the answer may be older than what it has seen.
type question struct {
	mu   sync.Mutex
	next *answered // that has yet to be asked
	last *answered // the next one, or that which is being asked
}

// answered is what was answered once done is closed.
type answered struct {
	done  chan struct{}
	value uint64
	err   error
}

func (q *question) ask(ctx context.Context, server func() (uint64, error)) (uint64, error) {
	q.mu.Lock()
	a := q.next
	if a == nil {
		a = &answered{done: make(chan struct{})}
		go q.run(a, q.last, server)
		q.next, q.last = a, a
	}
	q.mu.Unlock()
	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// run asks when the question before has been answered.
func (q *question) run(a, before *answered, server func() (uint64, error)) {
	if before != nil {
		<-before.done
	}
	q.mu.Lock()
	q.next = nil
	q.mu.Unlock()
	a.value, a.err = server()
	close(a.done)
}
