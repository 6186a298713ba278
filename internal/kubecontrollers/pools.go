package kubecontrollers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/ipam"
)

// pools says of each IPPool whether addresses of it may be given out, in its condition Allocatable, and holds one that is deleted by upstream's
// finalizer until its blocks are gone. All pools are one key: whether one overlaps others is judged by all there are.
type pools struct {
	cfg       holdConfig
	addresses *ipam.Allocator
	loop      *controller.Controller
	stored    map[string]*pool // the loop's alone
}

// pool is a stored IPPool.
type pool struct {
	at   api.Update
	r    *api.IPPool
	cidr netip.Prefix
}

const allPools = "pools"

func newPools(cfg holdConfig) *pools {
	p := &pools{cfg: cfg, addresses: ipam.New(cfg.Store, ipam.Config{}), stored: map[string]*pool{}}
	p.loop = controller.New(controller.Config{
		Name: "pools", Store: cfg.Store, Prefixes: []string{api.KeyPrefix(api.KindIPPool, "")}, Observe: p.observe, Log: cfg.Log,
		Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			again, err := p.reconcile(ctx)
			cfg.Turn(key, err)
			return again, err
		},
	})
	return p
}

// observe takes over a change. One that cannot be read, or has no range, gives no addresses: it is left as it is.
func (p *pools) observe(u api.Update) []string {
	delete(p.stored, u.Key)
	if u.Value != nil {
		st, err := api.DecodeStored(u)
		if r, ok := st.Resource.(*api.IPPool); ok && err == nil {
			if cidr, err := netip.ParsePrefix(r.Spec.CIDR); err == nil {
				p.stored[u.Key] = &pool{u, r, cidr.Masked()}
			}
		}
	}
	return []string{allPools}
}

// reconcile writes what is to be said of pools, and lets go of those that nothing hangs on.
func (p *pools) reconcile(ctx context.Context) (again time.Time, err error) {
	for _, v := range judgePools(inKeyOrder(p.stored)) {
		if v.terminating && v.hold && slices.Contains(v.meta.Finalizers, v.finalizer) {
			inUse, left, rerr := p.addresses.RetireBlocks(ctx, v.cidr)
			if rerr != nil {
				err = errors.Join(err, rerr)
				continue
			}
			if v.hold = left > 0; v.hold {
				v.condition.Message = fmt.Sprintf("it is being deleted, and stays until its addresses are released: %d of them are in use, in %d blocks", inUse, left)
				again = time.Now().Add(lookAtHeld)
			}
		}
		if v.terminating && !v.hold {
			v.condition = nil // it goes with this write
		}
		did, werr := v.write(ctx, p.cfg.Store)
		if werr != nil {
			err = errors.Join(err, fmt.Errorf("pool %s: %w", v.meta.Name, werr))
		} else if did && v.terminating && !v.hold {
			p.cfg.Log.Info("a pool that was deleted is gone: none of its addresses is in use", "pool", v.meta.Name)
		}
	}
	return again, err
}

// poolVerdict is what is to be said of a pool.
type poolVerdict struct {
	heldResource
	cidr        netip.Prefix
	terminating bool
}

// judgePools decides which pools may be used, as [ipam.Overlaps] does. One that is being deleted keeps its range from others until it is gone. One that
// overlaps such is not held: the blocks in its range are the other's.
func judgePools(all []*pool) (out []poolVerdict) {
	var stored []*api.IPPool
	for _, p := range all {
		stored = append(stored, p.r)
	}
	over := ipam.Overlaps(stored)
	for _, p := range all {
		c := api.Condition{Type: api.ConditionAllocatable, Status: "False"}
		m, by := p.r.Meta(), over[p.r.Metadata.Name]
		switch {
		case m.DeletionTimestamp != "":
			c.Reason, c.Message = api.ReasonTerminating, "it is being deleted"
		case p.r.Spec.Disabled:
			c.Reason, c.Message = api.ReasonPoolDisabled, "spec.disabled is true"
		case by != "":
			c.Reason, c.Message = api.ReasonCIDROverlap, "it has addresses in common with pool "+by
		default:
			c.Status, c.Reason = "True", api.ReasonOK
		}
		var has []api.Condition
		if p.r.Status != nil {
			has = p.r.Status.Conditions
		}
		// A finalizer cannot be added to what is being deleted.
		hold := by == "" && (m.DeletionTimestamp == "" || slices.Contains(m.Finalizers, api.FinalizerIPPool))
		out = append(out, poolVerdict{heldResource{p.at, m, has, api.FinalizerIPPool, hold, &c}, p.cidr, m.DeletionTimestamp != ""})
	}
	return out
}
