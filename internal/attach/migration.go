package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

// target is a pod that waits for the end of a live migration. It has the addresses of its machine, and no endpoint, so that no packet comes to
// it and none leaves it: until the machine runs here, the addresses are those of the pod from which it comes. It is in a file beside the notes for as long, which the
// next process reads.
type target struct {
	Request wire.Request `json:"request"`
	Machine ipam.Machine `json:"machine"`
	UID     string       `json:"uid"` // of its instance
	Addrs   []netip.Addr `json:"addrs"`
}

// targetSuffix ends the names of their files.
const targetSuffix = ".target"

func (s *Server) targetFile(r wire.Ref) string {
	return filepath.Join(s.cfg.Notes, r.NoteName()+targetSuffix)
}

// comes reports whether a machine is about to come to a node, and runs elsewhere.
func (m *machine) comes(node string) bool {
	return m != nil && m.migration != "" && m.is.Node != node
}

// await gives a pod the addresses of the machine that is to come, without an endpoint.
func (s *Server) await(ctx context.Context, r wire.Request, want wanted) (out wire.Attached, err error) {
	m := want.machine
	if m.had, err = s.leasesOf(ctx, r, m); err != nil {
		return out, err
	}
	if out.Addrs, _, err = m.again(want.ipam); err != nil {
		return out, err
	}
	if out.MAC = want.mac; len(out.Addrs) == 0 {
		return out, &wire.Refusal{Reason: fmt.Sprintf("pod %s/%s is the target of a live migration of %s, which has no addresses to take with it: it has some once it was stopped and started", r.Pod.Namespace, r.Pod.Name, m)}
	}
	if err := s.addTarget(target{Request: r, Machine: m.Machine, UID: m.is.UID, Addrs: out.Addrs}); err != nil {
		return out, err
	}
	about := s.aboutMachine(r, m)
	about[api.AttributeMigration] = m.migration
	err = s.cfg.Addresses.SetOwners(ctx, m.handle, func(addr netip.Addr, o ipam.Owners) ipam.Owners {
		if slices.Contains(out.Addrs, addr) {
			o.Alternate = about
		}
		return o
	})
	if err != nil {
		return out, errors.Join(err, s.dropTarget(r.Ref))
	}
	s.cfg.Log.Info("waits for a virtual machine", "machine", m.String(), "pod", r.Pod.Name, "addresses", out.Addrs, "from", m.is.Node)
	return out, nil
}

func (s *Server) addTarget(t target) error {
	text, err := json.Marshal(t)
	if err == nil {
		err = wire.WriteNote(s.targetFile(t.Request.Ref), text)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets[t.Request.NoteName()] = t
	return nil
}

// dropTarget has a pod wait no more.
func (s *Server) dropTarget(r wire.Ref) error {
	s.mu.Lock()
	_, waits := s.targets[r.NoteName()]
	delete(s.targets, r.NoteName())
	s.mu.Unlock()
	if !waits {
		return nil
	}
	if err := os.Remove(s.targetFile(r)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// waits reports whether a pod waits for its machine.
func (s *Server) waits(r wire.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, waits := s.targets[r.NoteName()]
	return waits
}

// readTargets reads those of the process before.
func (s *Server) readTargets() {
	files, err := os.ReadDir(s.cfg.Notes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Log.Warn("pods that wait for a virtual machine may wait for ever", "err", err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), targetSuffix) {
			continue
		}
		path := filepath.Join(s.cfg.Notes, f.Name())
		var t target
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &t)
		}
		if err == nil && (t.Request.Pod == nil || s.targetFile(t.Request.Ref) != path) {
			err = errors.New("is no pod that waits")
		}
		if err != nil {
			s.cfg.Log.Warn("a pod that waits for a virtual machine may wait for ever", "file", path, "err", err)
			continue
		}
		s.mu.Lock()
		s.targets[t.Request.NoteName()] = t
		s.mu.Unlock()
	}
}

// takeOver attaches the pods whose machine has come, and reports whether others wait for one that is about to come.
func (s *Server) takeOver(ctx context.Context) (wait bool, err error) {
	store, ok := s.cfg.Store.(datastore.Hosting)
	if !ok {
		return false, nil
	}
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.targets))
	s.mu.Unlock()
	for _, t := range all {
		is, ierr := store.Instance(ctx, t.Machine.Namespace, t.Machine.Name)
		switch {
		case errors.Is(ierr, datastore.ErrNotFound): // the DEL of its pod comes, or the machine once more
		case ierr != nil:
			wait, err = true, errors.Join(err, ierr)
		case is.UID != t.UID: // it was stopped, and that is another pod's
			err = errors.Join(err, s.dropTarget(t.Request.Ref))
		case is.Node != s.cfg.Node:
			wait = true
		default:
			if terr := s.arrive(ctx, t); terr != nil {
				wait, err = true, errors.Join(err, fmt.Errorf("%s has come, and its pod %s is not attached yet: %w", t.Machine, t.Request.Pod.Name, terr))
			}
		}
	}
	return wait, err
}

// arrive makes a pod the owner of the addresses of its machine, which has come, and its endpoint.
func (s *Server) arrive(ctx context.Context, t target) error {
	done, err := s.lock(ctx, t.Request.Ref)
	if err != nil {
		return err
	}
	defer done()
	if !s.waits(t.Request.Ref) {
		return nil // it was detached meanwhile
	}
	err = s.cfg.Addresses.SetOwners(ctx, t.Machine.Handle(t.Request.Network), func(_ netip.Addr, o ipam.Owners) ipam.Owners {
		if !isTakers(t.Request, o.Alternate) {
			return o
		}
		before := maps.Clone(o.Active)
		delete(before, api.AttributeMigration)
		return ipam.Owners{Active: o.Alternate, Alternate: before}
	})
	if err != nil {
		return err
	}
	b := s.attachment(ctx, t.Request, nil) // where pods are endpoints, they have no other interface
	if err := b.complete(ctx, t.Addrs); err != nil {
		b.stop()
		return err
	}
	s.cfg.Log.Info("a virtual machine has come", "machine", t.Machine.String(), "pod", t.Request.Pod.Name, "addresses", t.Addrs)
	return s.dropTarget(t.Request.Ref)
}
