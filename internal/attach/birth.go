package attach

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/ipam"
)

// attachment is the way of one endpoint into the datastore and the kernel. Both are begun as soon as its addresses are chosen:
// the datastore says yes or no to addresses and endpoint together, while its routes and policy come into force.
type attachment struct {
	s        *Server
	request  wire.Request
	profiles func() ([]api.Update, error)
	extraOps ipam.ExtraOps

	endpoint *api.WorkloadEndpoint // nil: not begun
	kv       api.Update
	forced   chan error
	cancel   context.CancelFunc
	old      string // the handle of whom it replaces
}

func (s *Server) attachment(ctx context.Context, r wire.Request) *attachment {
	b := &attachment{s: s, request: r, profiles: sync.OnceValues(func() ([]api.Update, error) { return s.profiles(ctx, r) })}
	go func() { _, _ = b.profiles() }() // begin asks for them
	b.extraOps.Make = func(ctx context.Context, addrs []ipam.Address) (api.Update, error) {
		again := b.endpoint != nil
		if err := b.begin(ctx, plain(addrs)); err != nil || !again {
			return b.kv, err
		}
		// Perhaps it was not an address that another had first, but there is an endpoint of this name.
		var err error
		b.kv.Revision, b.old, err = s.known(ctx, r, b.endpoint)
		return b.kv, err
	}
	return b
}

// begin brings the endpoint into force, as if it were in the datastore.
func (b *attachment) begin(ctx context.Context, addrs []netip.Addr) (err error) {
	b.stop()
	if b.endpoint, err = b.s.endpoint(b.request, addrs); err != nil {
		return err
	}
	if b.kv, err = encode(b.endpoint); err != nil {
		return err
	}
	us, err := b.profiles()
	if err != nil {
		return err
	}
	us = append(us, api.Update{Key: b.kv.Key, Value: b.kv.Value, Revision: Pending})
	if err := b.s.know(ctx, b.kv.Key); err != nil {
		return err
	}
	ctx, b.cancel = context.WithTimeout(ctx, patience)
	id := intent.EndpointID{Kind: intent.Workload, Namespace: b.endpoint.Metadata.Namespace, Name: b.endpoint.Metadata.Name}
	b.s.cfg.Kernel.Announce(b.kv.Key, b.endpoint.Spec.InterfaceName)
	forced := make(chan error, 1)
	b.forced = forced
	go func() {
		err := b.s.cfg.Kernel.Overlay(ctx, us)
		if err == nil {
			err = b.s.cfg.Kernel.InForce(ctx, id)
		}
		forced <- err
	}()
	return nil
}

// stop ends what begin began; the kernel stays as it is.
func (b *attachment) stop() {
	if b.cancel != nil {
		b.cancel()
		<-b.forced
		b.cancel = nil
	}
}

// complete returns when the endpoint is in the datastore, and in force.
func (b *attachment) complete(ctx context.Context, addrs []netip.Addr) error {
	now := b.extraOps.Written
	if now.Revision.IsZero() { // not written with the addresses
		if err := b.begin(ctx, addrs); err != nil {
			return err
		}
		var err error
		if now, b.old, err = b.s.write(ctx, b.request, b.endpoint, b.kv); err != nil {
			return err
		}
	}
	b.s.cfg.Kernel.Written(now)
	err := <-b.forced
	b.cancel()
	b.cancel = nil
	return err
}

// undo takes back an endpoint that was begun.
func (b *attachment) undo(ctx context.Context) error {
	b.stop()
	if b.endpoint == nil || b.kv.Key == "" {
		return nil
	}
	return b.s.remove(ctx, b.endpoint)
}

// known is the revision of what the datastore has under an endpoint's name, zero if nothing, and its container's handle.
func (s *Server) known(ctx context.Context, r wire.Request, w *api.WorkloadEndpoint) (revision api.Revision, old string, err error) {
	had, was, err := s.stored(ctx, w)
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		return revision, "", nil
	case was.Value == nil:
		return revision, "", err
	case had == nil: // it cannot be read
		return was.Revision, "", nil
	}
	return was.Revision, handle(wire.Ref{Network: cmp.Or(network(had), r.Network), ContainerID: had.Spec.ContainerID}), nil
}
