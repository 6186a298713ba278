// Package attach is the agent's end of a container's attachment.
//
// In: a [wire.Request] from a plugin that makes the link meanwhile. Out: addresses, a WorkloadEndpoint in the datastore, and the
// confirmation that its routes and policy are in the kernel; or a [wire.Refusal], and nothing of it is left. What a crash leaves
// behind carries the container's ID, so that detaching the container, or collecting what has no container, finds it.
package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/ipam"
)

// Config configures a Server.
type Config struct {
	Node      string
	Store     datastore.Store
	Addresses Addresses
	Kernel    Kernel
	// Know is that of the syncer that feeds calc: what is written here is passed to calc at once, and a deletion of it by
	// others must be, too. May be nil.
	Know func(ctx context.Context, keys ...string) error
	// Ended is called with how each attachment of a pod ended, and must not wait. Reported: the pod says that a failure of it was. May be nil.
	Ended func(of wire.Pod, reported bool, err error)
	// Claimants returns the endpoints of this node that have an address, this one's included. May be nil.
	Claimants func(addr netip.Addr) []Claimant
	// MTU returns the size of an attachment's packets, in bytes; zero: it is not known. May be nil.
	MTU func() int
	// Frozen returns whether nothing may be given back to the datastore now: somebody moves it, or it is lost. May be nil.
	Frozen func(context.Context) (api.Readiness, error)

	Notes string // directory of pending detachments, see wire.NotesOf
	Log   *slog.Logger
}

// Addresses assigns addresses under a handle, which finds them all.
type Addresses interface {
	Assign(ctx context.Context, g AddressRequest) ([]netip.Addr, error)
	// Release releases those of a handle that which selects, by address and attributes.
	Release(ctx context.Context, handle string, which func(addr netip.Addr, attributes map[string]string) bool) error
	// Free releases addresses, if they are assigned as they were.
	Free(ctx context.Context, leases []ipam.Lease) error
	// Leases returns the addresses of a handle.
	Leases(ctx context.Context, handle string) ([]ipam.Lease, error)
	// QueryIP returns what is known of an address.
	QueryIP(ctx context.Context, addr netip.Addr) (ipam.Lease, error)
	// OfNetwork returns addresses in use of this node whose handle may be one of a network's, without those of virtual machines.
	OfNetwork(ctx context.Context, network string) ([]ipam.Lease, error)
	// OfDocker returns addresses in use that Docker of this node asked for.
	OfDocker(ctx context.Context) ([]ipam.Lease, error)
	// SetOwners changes owners of a handle's addresses.
	SetOwners(ctx context.Context, handle string, to func(netip.Addr, ipam.Owners) ipam.Owners) error
	// Sweep releases addresses that this node's containers leaked, if the last call found them, too.
	Sweep(ctx context.Context, now time.Time) (freed []netip.Addr, err error)
}

// AddressRequest is a request for addresses.
type AddressRequest struct {
	Handle   string
	Want     wire.IPAM
	About    map[string]string
	ExtraOps *ipam.ExtraOps        // written in the same transaction; nil: nothing
	Avoid    func(netip.Addr) bool // which are not assigned, though they are free; nil: none. It is not asked of addresses in Want
}

// Kernel is what the Server needs of the rest of the agent.
type Kernel interface {
	// Overlay passes calc updates that are in the datastore, or about to be (Pending), before its watch delivers them. It returns when
	// the resulting batch was sent to the dataplane.
	Overlay(ctx context.Context, us []api.Update) error
	// Announce notes that an endpoint is about to be written, with the link that the plugin makes, and Written at which
	// revision it was; between the two, Overlay may pass it as Pending.
	Announce(key, link string)
	Written(u api.Update)
	// Give notes addresses that the datastore's updates of an endpoint are to have, until one says anything else of them.
	Give(key string, g Given)
	// InForce waits until an endpoint's routes and policy are in the kernel; an error says why they are not.
	InForce(ctx context.Context, id intent.EndpointID) error
	// NotReady returns why no container may be attached; none: it may.
	NotReady() []string
}

// Server attaches and detaches.
type Server struct {
	cfg Config

	mu   sync.Mutex
	busy map[string]chan struct{} // a lock for each container or pod
	// containers with a request under way
	containers map[string]int
	targets    map[string]target // pods that wait for a virtual machine

	accounts sync.Once // logs once that pods have no service account

	slots chan struct{} // bounds concurrent attachments
}

// New returns a server. It gives the Kernel what the process before gave to endpoints, so calc must not have received anything yet.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, busy: map[string]chan struct{}{}, containers: map[string]int{}, targets: map[string]target{}, slots: make(chan struct{}, atOnce)}
	s.readGifts()
	return s
}

// know is Config.Know, before a key is written or deleted.
func (s *Server) know(ctx context.Context, key string) error {
	if s.cfg.Know == nil {
		return nil
	}
	return s.cfg.Know(ctx, key)
}

// Timeouts. A runtime gives a plugin minutes, while a user waits.
const (
	atOnce        = 16
	kernelTimeout = 20 * time.Second // for the kernel
	undoTimeout   = 10 * time.Second // for undoing what failed
)

// Attach assigns a container addresses, writes its endpoint, and returns when its policy is in force.
func (s *Server) Attach(ctx context.Context, r wire.Request) (out wire.Attached, err error) {
	var want wanted
	if r.Pod != nil && s.cfg.Ended != nil {
		defer func() { s.cfg.Ended(*r.Pod, want.reported, err) }()
	}
	if err := s.ready(); err != nil {
		return out, err
	}
	done, err := s.lock(ctx, r.Ref)
	if err != nil {
		return out, err
	}
	defer done()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return out, ctx.Err()
	}
	others, err := s.clear(ctx, r.Ref)
	if err != nil {
		return out, err
	}
	if want, err = s.annotated(ctx, r); err != nil {
		return out, err
	}
	if want.machine.comes(s.cfg.Node) {
		return s.await(ctx, r, want)
	}
	return s.attach(ctx, r, want, others)
}

// attach is Attach of what is wanted, once nothing stands against it; others are the endpoints of the container's other interfaces.
func (s *Server) attach(ctx context.Context, r wire.Request, want wanted, others []*api.WorkloadEndpoint) (out wire.Attached, err error) {
	r.IPAM, r.Addrs, out.MAC = want.ipam, want.addrs, want.mac
	var undo []func(context.Context) error
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i](ctx))
		}
	}()
	switch {
	case len(r.Addrs) > 0:
	case want.machine != nil:
		undo = append(undo, func(ctx context.Context) error { return s.untake(ctx, r, want.machine) })
	default:
		undo = append(undo, func(ctx context.Context) error {
			return s.cfg.Addresses.Release(ctx, r.Handle(), ofMAC(r.MAC))
		})
	}
	endpoint := r
	endpoint.MAC = cmp.Or(want.mac, r.MAC)
	b := s.attachment(ctx, endpoint, others)
	b.alone = want.machine == nil // whose the addresses of a machine are, take and checkTaken ask
	undo = append(undo, b.undo)
	switch out.Addrs = r.Addrs; {
	case len(r.Addrs) > 0:
	case want.machine != nil:
		if out.Addrs, err = s.take(ctx, r, want.machine, r.IPAM); err != nil {
			return out, want.explain(err)
		}
	default:
		attributes := about(s.cfg.Node, r, time.Now())
		attributes[api.AttributeNote] = ipam.NoteContainer
		if out.Addrs, err = s.assign(ctx, r, AddressRequest{r.Handle(), r.IPAM, attributes, &b.extraOps, s.claimed(r)}); err != nil {
			return out, want.explain(err)
		}
	}
	if err := b.complete(ctx, out.Addrs); err != nil {
		return out, err
	}
	if want.machine != nil {
		if err := s.checkTaken(ctx, r, want.machine, out.Addrs); err != nil {
			return out, err
		}
	}
	if b.old != nil && b.old.Handle() != r.Handle() { // the pod's last container was not detached
		if err := s.release(ctx, b.old.Ref, b.old.addrs, s.ofPod(r.Pod)); err != nil {
			s.cfg.Log.Warn("an address stays assigned to a container that is gone", "handle", b.old.Handle(), "err", err)
		}
	}
	out.MTU = s.mtu(out.Addrs)
	out.Endpoint = b.endpoint.Metadata.Namespace + "/" + b.endpoint.Metadata.Name
	return out, nil
}

// mtu is the size of packets of an attachment with these addresses; zero: it is not known.
func (s *Server) mtu(addrs []netip.Addr) int {
	if s.cfg.MTU == nil {
		return 0
	}
	size := s.cfg.MTU()
	if size != 0 && slices.ContainsFunc(addrs, netip.Addr.Is6) {
		size = max(size, intent.SmallestMTUV6)
	}
	return size
}

// assign assigns the addresses of an attachment. One that a pod asks for by name may still be that of the same interface of its last container,
// which was not detached.
func (s *Server) assign(ctx context.Context, r wire.Request, g AddressRequest) ([]netip.Addr, error) {
	addrs, err := s.cfg.Addresses.Assign(ctx, g)
	var taken *ipam.AssignedError
	if r.Pod == nil || !errors.As(err, &taken) || taken.Handle == g.Handle || !strings.HasPrefix(taken.Handle, r.Network+".") {
		return addrs, err
	}
	last := all(s.ofPod(r.Pod), ofInterface(r.Ref))
	failed := errors.Join(s.cfg.Addresses.Release(ctx, g.Handle, ofMAC(r.MAC)), s.cfg.Addresses.Release(ctx, taken.Handle, last))
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	return s.cfg.Addresses.Assign(ctx, g)
}

// Detach reverts Attach. It is no error if there is nothing to revert. While the datastore is frozen it is a refusal, and done later.
func (s *Server) Detach(ctx context.Context, r wire.Ref) (struct{}, error) {
	done, err := s.lock(ctx, r)
	if err != nil {
		return struct{}{}, err
	}
	defer done()
	if nothing, err := s.giveBack(ctx, &r); nothing || err != nil {
		return struct{}{}, err
	}
	return struct{}{}, s.detach(ctx, r)
}

func (s *Server) detach(ctx context.Context, r wire.Ref) error {
	w, err := s.endpoint(wire.Request{Ref: r}, nil)
	if err != nil {
		return err
	}
	had, err := s.remove(ctx, w)
	if err == nil && r.Docker {
		err = s.removeUpstreams(ctx, w)
	}
	if err != nil {
		return err // the address stays with its endpoint
	}
	if key, err := api.Key(w); err == nil {
		s.dropGift(key, r.ContainerID)
	}
	if err := errors.Join(s.dropTarget(r), s.leave(ctx, r)); err != nil {
		return err
	}
	return s.release(ctx, r, addrsOf(had), all())
}

// Check returns an error if part of an attachment is missing.
func (s *Server) Check(ctx context.Context, r wire.Request) (struct{}, error) {
	if s.waits(r.Ref) {
		return struct{}{}, nil // for its endpoint
	}
	w, err := s.endpoint(r, r.Addrs)
	if err != nil {
		return struct{}{}, err
	}
	have, err := s.stored(ctx, w)
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		return struct{}{}, fmt.Errorf("the datastore has no WorkloadEndpoint %s/%s", w.Metadata.Namespace, w.Metadata.Name)
	case err != nil:
		return struct{}{}, err
	case have.Spec.ContainerID != r.ContainerID || !inNetwork(have, r.Network):
		return struct{}{}, fmt.Errorf("WorkloadEndpoint %s/%s is that of container %s in network %s", w.Metadata.Namespace, w.Metadata.Name, have.Spec.ContainerID, network(have))
	}
	for i, n := range w.Spec.IPNetworks {
		if i >= len(have.Spec.IPNetworks) || have.Spec.IPNetworks[i] != n {
			return struct{}{}, fmt.Errorf("WorkloadEndpoint %s/%s has the addresses %v, not %v", w.Metadata.Namespace, w.Metadata.Name, have.Spec.IPNetworks, w.Spec.IPNetworks)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, kernelTimeout)
	defer cancel()
	return struct{}{}, s.cfg.Kernel.InForce(ctx, idOf(w))
}

// Assign assigns addresses without an endpoint, for another plugin.
func (s *Server) Assign(ctx context.Context, r wire.Request) (wire.Attached, error) {
	if err := s.ready(); err != nil {
		return wire.Attached{}, err
	}
	done, err := s.lock(ctx, r.Ref)
	if err != nil {
		return wire.Attached{}, err
	}
	defer done()
	if err := s.processNotesOf(ctx, r.Ref); err != nil {
		return wire.Attached{}, err
	}
	attributes := about(s.cfg.Node, r, time.Now())
	if r.Docker {
		attributes[api.AttributeNote] = ipam.NoteDocker
	}
	addrs, err := s.cfg.Addresses.Assign(ctx, AddressRequest{Handle: r.Handle(), Want: r.IPAM, About: attributes})
	return wire.Attached{Addrs: addrs}, err
}

// Assigned returns an error if an address in a request is not assigned to it.
func (s *Server) Assigned(ctx context.Context, r wire.Request) (struct{}, error) {
	if len(r.Addrs) == 0 {
		return struct{}{}, errors.New("no address was given to compare with")
	}
	var have []ipam.Lease
	for _, h := range r.Handles() {
		part, err := s.cfg.Addresses.Leases(ctx, h)
		if err != nil {
			return struct{}{}, err
		}
		have = append(have, part...)
	}
	mine := ofInterface(r.Ref)
	for _, a := range r.Addrs {
		if !slices.ContainsFunc(have, func(l ipam.Lease) bool { return l.Addr == a && mine(l.Addr, l.Owner) }) {
			return struct{}{}, fmt.Errorf("%s is not assigned to the interface %s of container %s in network %s", a, r.Ifname, r.ContainerID, r.Network)
		}
	}
	return struct{}{}, nil
}

// Release releases what Assign assigned. While the datastore is frozen it is a refusal, and done later.
func (s *Server) Release(ctx context.Context, r wire.Ref) (struct{}, error) {
	done, err := s.lock(ctx, r)
	if err != nil {
		return struct{}{}, err
	}
	defer done()
	if nothing, err := s.giveBack(ctx, &r); nothing || err != nil {
		return struct{}{}, err
	}
	return struct{}{}, s.release(ctx, r, nil, all())
}

// Serve adds the plugins' requests to the agent's HTTP server.
func (s *Server) Serve(mux *http.ServeMux) {
	mux.Handle("POST "+wire.PathAttach, wire.Answer(s.Attach))
	mux.Handle("POST "+wire.PathDetach, wire.Answer(s.Detach))
	mux.Handle("POST "+wire.PathCheck, wire.Answer(s.Check))
	mux.Handle("POST "+wire.PathGC, wire.Answer(s.Collect))
	mux.Handle("POST "+wire.PathStatus, wire.Answer(s.Status))
	mux.Handle("POST "+wire.PathPodCIDRs, wire.Answer(s.PodCIDRs))
	mux.Handle("POST "+wire.PathAssign, wire.Answer(s.Assign))
	mux.Handle("POST "+wire.PathAssigned, wire.Answer(s.Assigned))
	mux.Handle("POST "+wire.PathRelease, wire.Answer(s.Release))
	mux.Handle("POST "+wire.PathPool, wire.Answer(s.Pool))
	mux.Handle("POST "+wire.PathFree, wire.Answer(s.Free))
	mux.Handle("POST "+wire.PathLabels, wire.Answer(s.Label))
}

// Status returns whether containers can be attached.
func (s *Server) Status(_ context.Context, _ wire.Ref) (struct{}, error) {
	return struct{}{}, s.ready()
}

// ready returns an error if no container may be attached: among other reasons, the datastore may be locked for a migration, and what
// is written to it then is lost.
func (s *Server) ready() error {
	if why := s.cfg.Kernel.NotReady(); len(why) > 0 {
		return &wire.Refusal{Reason: "the agent is not ready: " + why[0], Later: true}
	}
	return nil
}

// lock serialises requests about one container, or pod.
func (s *Server) lock(ctx context.Context, r wire.Ref) (func(), error) {
	key := r.ContainerID
	if r.Pod != nil {
		key = "pod " + r.Pod.Namespace + "/" + r.Pod.Name
	}
	for {
		s.mu.Lock()
		other, taken := s.busy[key]
		if !taken {
			mine := make(chan struct{})
			s.busy[key] = mine
			s.containers[r.ContainerID]++
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.busy, key)
				if s.containers[r.ContainerID]--; s.containers[r.ContainerID] == 0 {
					delete(s.containers, r.ContainerID)
				}
				s.mu.Unlock()
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
