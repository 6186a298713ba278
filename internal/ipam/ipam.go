// Package ipam assigns addresses of pools, block by block, in Calico's data model.
//
// In: a request (node, handle, how many of which family), and a store with
// pools, reservations, configuration, blocks, affinities and handles.
// Out: addresses that are assigned once, or an error that says for each pool why
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

// Errors for errors.Is.
var (
	ErrNoAddress   = errors.New("no address is left")
	ErrUnknownPool = errors.New("is neither name nor prefix of a pool")
	ErrAssigned    = errors.New("is assigned already")
	ErrNoPool      = errors.New("is in no pool that may be used")
	ErrAffinity    = errors.New("is in a block of another host, and strictAffinity forbids borrowing")
	ErrReused      = errors.New("belongs to somebody else by now")
	ErrInUse       = errors.New("has addresses in use")
)

// Uses of addresses, as a pool's allowedUses has them.
const (
	UseWorkload     = "Workload"
	UseTunnel       = "Tunnel"
	UseLoadBalancer = "LoadBalancer"
)

// Config configures an Allocator. The zero value works.
type Config struct {
	Now      func() time.Time // nil: time.Now
	TwoPhase bool             // use no transactions even if the store has them
	Tries    int              // how often a change is tried after conflicts; zero means 100
	// Pause waits before a try is repeated; nil: a random time, up to 4ms and longer each time.
	Pause func(ctx context.Context, try int) error
	// Reuse is how long pools, reservations, configuration, node and namespaces that Assign read may be used by the next
	// Assign; zero: not at all. One that finds no address reads again. The blocks that the last change wrote
	// are then assumed to be unchanged, which the transaction verifies; and later, if the store has the
	// same revision, they are not decoded again.
	Reuse time.Duration
}

// Allocator assigns and releases addresses. It is safe for concurrent use; the
// changes of one allocator run one after the other, so that they do not conflict.
type Allocator struct {
	store datastore.Store
	txn   datastore.Transactional // nil: two-phase
	cfg   Config
	turn  chan struct{}
	// roomy are blocks that had free addresses last time, by owner and family. Guarded by turn.
	// It is only a hint where to look first.
	roomy map[string]netip.Prefix
	full  map[netip.Prefix]bool // blocks that had none; guarded by turn
	// kept caches blocks and affinities as the last changes left them, by key. Guarded by turn.
	kept      map[string]*doc
	keptUntil time.Time // kept may be used until then

	reading chan struct{} // a mutex that a context can interrupt; guards recent and until
	recent  *resources    // the resources that Assign read last
	until   time.Time     // recent may be used until then

	renewing atomic.Bool // a renewal is under way
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

// Address is an assigned address.
type Address struct {
	Addr     netip.Addr   `json:"address"`
	Block    netip.Prefix `json:"block"`
	Pool     string       `json:"pool"`
	Sequence uint64       `json:"sequence"` // names this allocation in a release
}

// errAgain is a conflict: what was read has changed.
var errAgain = errors.New("changed meanwhile")

func isConflict(err error) bool {
	return errors.Is(err, errAgain) || errors.Is(err, datastore.ErrConflict) || errors.Is(err, datastore.ErrExists) || errors.Is(err, datastore.ErrNotFound)
}

// change makes a transaction and commits it, and tries again after a conflict.
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
			continue // no conflict with another writer
		}
		if err := a.cfg.Pause(ctx, try); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// stamp formats a time as in upstream's blocks.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ownerOf returns the owner of blocks for a node and a use.
func ownerOf(node, use string) api.Owner {
	if use == UseLoadBalancer {
		return api.Owner{Type: api.OwnerVirtual, Name: "load-balancer"}
	}
	return api.Owner{Type: api.OwnerHost, Name: node}
}
