// Package ipam gives out addresses of pools, block by block, in Calico's data.
//
// In: a request (node, handle, how many of which family), and a store with
// pools, reservations, configuration, blocks, affinities and handles.
// Out: addresses that nobody else has, or an error that says of each pool why
// it had none.
//
// An address is an allocation in a block; the block is mostly one host's (its
// affinity); a handle counts the addresses of one user. On a store with
// transactions the three change together. On others each is changed by itself,
// in an order in which a crash between two changes leaves a handle that counts
// too many, or a claim that is not confirmed, and never an address that two
// have or that no handle knows; [Survey.Check] finds and [Allocator.Repair] removes what is left.
package ipam

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Errors that callers tell apart with errors.Is.
var (
	ErrNoAddress = errors.New("no address is left")
	ErrAssigned  = errors.New("is assigned already")
	ErrNoPool    = errors.New("is in no pool that may be used")
	ErrAffinity  = errors.New("is in a block of another host, and strictAffinity forbids borrowing")
	ErrReused    = errors.New("belongs to somebody else by now")
	ErrInUse     = errors.New("has addresses in use")
)

// Uses of addresses, as a pool's allowedUses has them.
const (
	UseWorkload     = "Workload"
	UseTunnel       = "Tunnel"
	UseLoadBalancer = "LoadBalancer"
)

// Config is how an Allocator works. Its zero value works.
type Config struct {
	Now      func() time.Time // nil: time.Now
	TwoPhase bool             // do without transactions even where the store has them
	Tries    int              // how often a change is begun anew when another writer was first; zero means 100
	// Pause waits before a try is repeated; nil: a random time, up to 4ms and longer each time.
	Pause func(ctx context.Context, try int) error
	// Reuse is how long what Assign read of pools, reservations, configuration, node and namespaces is good for the next
	// Assign; zero means for that one alone. One that finds no address looks anew. The blocks that the last change wrote
	// are then taken to be as they were left, since the transaction says whether they are; and later, if the store has the
	// same revision, they are not decoded again.
	Reuse time.Duration
}

// Allocator gives out and takes back addresses. Any goroutine may use it; the
// changes of one allocator take turns, so that they do not get in each other's way.
type Allocator struct {
	store datastore.Store
	txn   datastore.Transactional // nil: two-phase
	cfg   Config
	turn  chan struct{}
	// roomy are blocks in which there was room last time, by owner and family. Who has the turn may
	// use it. It only says where to look first.
	roomy map[string]netip.Prefix
	full  map[netip.Prefix]bool // so are these: blocks in which there was none
	// kept is what the last changes left in blocks and affinities, by key. Who has the turn may use it.
	kept      map[string]*doc
	keptUntil time.Time // they need not be read

	reading chan struct{} // who holds it may look at what follows
	recent  *resources    // what Assign read last
	until   time.Time     // it is good

	renewing atomic.Bool // somebody reads another
}

// New returns an allocator on a store.
func New(s datastore.Store, cfg Config) *Allocator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Tries == 0 {
		cfg.Tries = 100
	}
	if cfg.Pause == nil {
		cfg.Pause = pause
	}
	a := &Allocator{store: s, cfg: cfg, turn: make(chan struct{}, 1), reading: make(chan struct{}, 1), roomy: map[string]netip.Prefix{}, full: map[netip.Prefix]bool{}, kept: map[string]*doc{}}
	if t, ok := s.(datastore.Transactional); ok && !cfg.TwoPhase {
		a.txn = t
	}
	return a
}

const (
	shortPause = 4 * time.Millisecond
	longPause  = 250 * time.Millisecond
)

func pause(ctx context.Context, try int) error {
	limit := min(shortPause<<min(try, 8), longPause)
	t := time.NewTimer(rand.N(limit))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Address is one that was given out.
type Address struct {
	Addr     netip.Addr   `json:"address"`
	Block    netip.Prefix `json:"block"`
	Pool     string       `json:"pool"`
	Sequence uint64       `json:"sequence"` // names this allocation in a release
}

// errAgain is a conflict: what was read is no longer so.
var errAgain = errors.New("changed meanwhile")

func isConflict(err error) bool {
	return errors.Is(err, errAgain) || errors.Is(err, datastore.ErrConflict) || errors.Is(err, datastore.ErrExists) || errors.Is(err, datastore.ErrNotFound)
}

// change makes a draft and commits it, anew when another writer was first.
func (a *Allocator) change(ctx context.Context, what string, make func(*txn) error) error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	for try := 0; ; try++ {
		d := a.newTxn()
		d.first = try == 0
		err := make(d)
		if err == nil {
			err = a.commit(ctx, d)
		}
		if err == nil {
			return nil
		}
		if !isConflict(err) || try+1 >= a.cfg.Tries {
			return fmt.Errorf("%s: %w", what, err)
		}
		if d.cached {
			continue // nobody need have been first
		}
		if err := a.cfg.Pause(ctx, try); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// stamp is a time as upstream's blocks have it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ownerOf is who gets blocks for a node and a use.
func ownerOf(node, use string) api.Owner {
	if use == UseLoadBalancer {
		return api.Owner{Type: api.OwnerVirtual, Name: "load-balancer"}
	}
	return api.Owner{Type: api.OwnerHost, Name: node}
}
