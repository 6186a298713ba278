package attach

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"sync"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/translate"
)

// attachment is one endpoint on its way into the datastore and the kernel. Both begin as soon as its addresses are chosen:
// addresses and endpoint are written in one transaction, while its routes and policy come into force.
type attachment struct {
	s        *Server
	request  wire.Request
	profiles func() ([]api.Update, error)
	awaits   func() (bool, error) // whether its pod's labels come later
	extraOps ipam.ExtraOps
	alone    bool // no other endpoint of this node may have its addresses

	endpoint *api.WorkloadEndpoint // nil: not begun
	kv       api.Update
	forced   chan error
	cancel   context.CancelFunc
	old      *former                 // whose endpoint it replaces; nil: nobody's
	others   []*api.WorkloadEndpoint // of the container's other interfaces
}

func (s *Server) attachment(ctx context.Context, r wire.Request, others []*api.WorkloadEndpoint) *attachment {
	b := &attachment{s: s, request: r, others: others, profiles: sync.OnceValues(func() ([]api.Update, error) { return s.profiles(ctx, r) })}
	b.awaits = sync.OnceValues(func() (bool, error) { return s.labelsAreCopied(ctx, r) })
	go func() { _, _ = b.profiles() }() // begin reads them, and asks for these
	go func() { _, _ = b.awaits() }()
	b.extraOps.Make = func(ctx context.Context, addrs []ipam.Address) (api.Update, error) {
		again := b.endpoint != nil
		if err := b.begin(ctx, plain(addrs)); err != nil || !again {
			return b.kv, err
		}
		// The conflict may be about the endpoint's name, not about an address.
		var err error
		b.kv.Revision, b.old, err = s.known(ctx, r, b.kv.Key)
		return b.kv, err
	}
	return b
}

// begin passes the endpoint to calc as if it were in the datastore. One that the datastore derives is known when it was written, and one that awaits its
// labels when it has them.
func (b *attachment) begin(ctx context.Context, addrs []netip.Addr) (err error) {
	b.stop()
	if b.endpoint, err = b.s.endpoint(b.request, addrs); err != nil {
		return err
	}
	if b.alone {
		if err := b.s.checkFree(ctx, b.endpoint, addrs); err != nil {
			return err
		}
	}
	b.inherit()
	awaits, err := b.awaits()
	if err != nil {
		return err
	}
	if awaits {
		b.endpoint.Metadata.Annotations[translate.AnnotationAwaitsLabels] = b.request.ContainerID
	}
	if b.kv, err = encode(b.endpoint); err != nil {
		return err
	}
	us, err := b.profiles()
	if err != nil {
		return err
	}
	if err := b.s.know(ctx, b.kv.Key); err != nil {
		return err
	}
	b.s.cfg.Kernel.Announce(b.kv.Key, b.endpoint.Spec.InterfaceName)
	if !awaits && !b.s.derives(b.kv.Key) {
		b.enforce(ctx, append(us, api.Update{Key: b.kv.Key, Value: b.kv.Value, Revision: Pending}))
	}
	return nil
}

// inherit gives the endpoint what others know of its pod: it may not have been written to the pod's other endpoints before they were read, and
// is written to this one later, too.
func (b *attachment) inherit() {
	if b.request.Pod == nil || len(b.others) == 0 {
		return
	}
	of, to := b.others[0], b.endpoint
	maps.Copy(to.Metadata.Labels, of.Metadata.Labels)
	to.Spec.ServiceAccountName, to.Spec.Ports = of.Spec.ServiceAccountName, of.Spec.Ports
	if len(of.Spec.Profiles) > 0 {
		to.Spec.Profiles = of.Spec.Profiles
	}
}

// enforce passes the endpoint to calc, with what it needs, and has it brought into force.
func (b *attachment) enforce(ctx context.Context, us []api.Update) {
	ctx, b.cancel = context.WithTimeout(ctx, kernelTimeout)
	id := idOf(b.endpoint)
	forced := make(chan error, 1)
	b.forced = forced
	go func() {
		err := b.s.cfg.Kernel.Overlay(ctx, us)
		if err == nil {
			err = b.s.cfg.Kernel.InForce(ctx, id)
		}
		forced <- err
	}()
}

// stop cancels what begin started; the kernel stays as it is.
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
		if now, b.old, err = b.s.write(ctx, b.request, b.kv); err != nil {
			return err
		}
	}
	if awaits, err := b.awaits(); err != nil {
		return err
	} else if awaits {
		if now, err = b.s.labelled(ctx, b.request, now); err != nil {
			return err
		}
	}
	if b.cancel == nil { // it was not known before
		us, err := b.s.derived(ctx, b.request, now, b.endpoint.Spec.IPNetworks)
		if err != nil {
			return err
		}
		b.enforce(ctx, us)
	} else {
		b.s.cfg.Kernel.Written(now)
	}
	err := <-b.forced
	b.cancel()
	b.cancel = nil
	return err
}

// undo withdraws an endpoint after begin.
func (b *attachment) undo(ctx context.Context) error {
	b.stop()
	if b.endpoint == nil || b.kv.Key == "" {
		return nil
	}
	_, err := b.s.remove(ctx, b.endpoint)
	return err
}

// known returns the revision of the endpoint in the datastore, zero if there is none, and its attachment.
func (s *Server) known(ctx context.Context, r wire.Request, key string) (revision api.Revision, old *former, err error) {
	was, err := s.cfg.Store.Get(ctx, key)
	if errors.Is(err, datastore.ErrNotFound) {
		return revision, nil, nil
	}
	if err != nil {
		return revision, nil, err
	}
	return was.Revision, formerOf(r, was), nil
}
