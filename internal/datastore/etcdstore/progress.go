package etcdstore

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"
)

// progressCheck caches whether the cluster's answers to a request for
// progress can be relied on. Before 3.4.25 and 3.5.8, a member answers with its
// own revision although events up to it may still be under way
// (etcd issue 15220); resuming from there would lose them.
type progressCheck struct {
	mu      sync.Mutex
	known   bool
	answer  bool
	retryAt time.Time
}

func (p *progressCheck) trusted(ctx context.Context, s *Store) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known || time.Now().Before(p.retryAt) {
		return p.answer
	}
	p.retryAt = time.Now().Add(time.Minute)
	client, err := s.connect(ctx)
	if err != nil {
		return false
	}
	for _, endpoint := range s.reached().Endpoints {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		status, err := client.Status(bounded, endpoint)
		cancel()
		if err != nil {
			return false // asked again later
		}
		if !progressIsOrdered(status.Version) {
			p.known = true
			return false
		}
	}
	p.known, p.answer = true, true
	return true
}

// progressIsOrdered says whether this version of etcd keeps an answer behind
// the events that it covers.
func progressIsOrdered(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) != 3 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	release, _, _ := strings.Cut(parts[2], "-")
	patch, err3 := strconv.Atoi(release)
	switch {
	case err1 != nil || err2 != nil || err3 != nil || major != 3:
		return err1 == nil && major > 3
	case minor == 4:
		return patch >= 25
	case minor == 5:
		return patch >= 8
	}
	return minor > 5
}
