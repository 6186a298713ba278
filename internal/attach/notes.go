package attach

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twillnet/twill/internal/attach/wire"
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
// it. Of an attachment it leaves a note, since not every runtime asks again.
func (s *Server) giveBack(ctx context.Context, r *wire.Ref) error {
	if s.cfg.Frozen == nil {
		return nil
	}
	why, err := s.cfg.Frozen(ctx)
	if err != nil || why == "" {
		return err
	}
	refusal := &wire.Refusal{Reason: "nothing is given back for now, since " + why, Later: true}
	if r == nil {
		return refusal
	}
	if err := wire.LeaveNoteIn(s.cfg.Notes, *r); err != nil {
		refusal.Reason += "; no note of it could be left: " + err.Error()
	}
	return refusal
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
