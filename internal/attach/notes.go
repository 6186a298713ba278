package attach

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

// How often notes are read, and the agent's readiness to process them checked.
const (
	every = 2 * time.Second
	soon  = 200 * time.Millisecond
)

// sweeps is the interval between searches for leaked addresses. Each reads all blocks, so nodes do it at different times.
const sweeps = time.Hour

// Run processes notes of plugins, and releases leaked addresses, until the context ends.
func (s *Server) Run(ctx context.Context) error {
	s.readTargets()
	t := time.NewTimer(0)
	defer t.Stop()
	next := time.Now().Add(rand.N(sweeps))
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		wait := soon
		if len(s.cfg.Kernel.NotReady()) == 0 {
			wait = every
			if err := s.processNotes(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("a container that is gone stays attached; trying again", "err", err)
			}
			waiting, err := s.takeOver(ctx)
			if err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("a virtual machine that is migrated", "err", err)
			}
			if waiting {
				wait = soon
			}
			if now := time.Now(); now.After(next) {
				next = now.Add(sweeps)
				s.sweep(ctx, now)
			}
		}
		t.Reset(wait)
	}
}

// giveBack refuses to give anything back while the datastore is frozen: what is written to it then is lost, or comes between those who move
// it. Of an attachment, whose container is locked, it leaves a note, since not every runtime asks again; but of one of which nothing is there it says so:
// a sandbox whose ADD was refused goes at once. What a datastore that may be lost does not have comes back with its content.
func (s *Server) giveBack(ctx context.Context, r *wire.Ref) (nothing bool, err error) {
	if s.cfg.Frozen == nil {
		return false, nil
	}
	ready, err := s.cfg.Frozen(ctx)
	if err != nil || !ready.Frozen() {
		return false, err
	}
	refusal := &wire.Refusal{Reason: "nothing is given back for now, since " + ready.Why(), Later: true}
	if r == nil {
		return false, refusal
	}
	if ready == api.Locked {
		if has, err := s.remains(ctx, *r); err == nil && !has {
			return true, nil
		}
	}
	if err := wire.LeaveNoteIn(s.cfg.Notes, *r); err != nil {
		refusal.Reason += "; no note of it could be left: " + err.Error()
	}
	return false, refusal
}

// remains reports whether anything is there that detaching a container may revert.
func (s *Server) remains(ctx context.Context, r wire.Ref) (bool, error) {
	w, err := s.endpoint(wire.Request{Ref: r}, nil)
	if err != nil || s.waits(r) {
		return true, err
	}
	namespaces := []string{w.Metadata.Namespace}
	if r.Docker {
		namespaces = append(namespaces, upstreamNamespace)
	}
	for _, w.Metadata.Namespace = range namespaces {
		have, err := s.stored(ctx, w)
		if errors.Is(err, datastore.ErrNotFound) {
			continue
		}
		if err != nil || have.Spec.ContainerID == r.ContainerID || r.Docker {
			return true, err
		}
	}
	for _, handle := range r.Handles() {
		if has, err := s.has(ctx, handle, ofInterface(r)); has || err != nil {
			return true, err
		}
	}
	machines, of, err := s.machinesPart(ctx, r)
	if machines == "" || err != nil {
		return false, err
	}
	return s.has(ctx, machines, of)
}

// has reports whether a handle has an address that which selects, by one of its owners.
func (s *Server) has(ctx context.Context, handle string, which selector) (bool, error) {
	leases, err := s.cfg.Addresses.Leases(ctx, handle)
	return slices.ContainsFunc(leases, func(l ipam.Lease) bool {
		return which(l.Addr, l.Owner) || l.Alternate != nil && which(l.Addr, l.Alternate)
	}), err
}

func (s *Server) sweep(ctx context.Context, now time.Time) {
	freed, err := s.cfg.Addresses.Sweep(ctx, now)
	if len(freed) > 0 {
		s.cfg.Log.Warn("freed addresses that no container of this node has any more", "addresses", freed)
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("leaked addresses of this node could not be freed", "err", err)
	}
}

func (s *Server) processNotes(ctx context.Context) error {
	all, err := s.notes()
	failed := []error{err}
	for _, n := range all {
		done, err := s.lock(ctx, n.ref)
		if err == nil {
			err = s.processNote(ctx, n)
			done()
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
