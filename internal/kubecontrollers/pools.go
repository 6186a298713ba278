package kubecontrollers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/ipam"
)

// pools says of each IPPool whether addresses of it may be given out, and whether few are left, in its conditions Allocatable and
// AddressSpaceNearlyFull, and holds one that is deleted by upstream's finalizer until its blocks are gone. All pools are one key: whether one overlaps
// others is judged by all there are.
type pools struct {
	cfg       holdConfig
	addresses *ipam.Allocator
	loop      *controller.Controller
	stored    map[string]*pool // the loop's alone

	mu    sync.Mutex
	usage map[string]ipam.Usage // by name, of the last look at all addresses; of others it is not known
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

// counted takes over how many addresses of each pool are in use.
func (p *pools) counted(usage map[string]ipam.Usage) {
	p.mu.Lock()
	p.usage = usage
	p.mu.Unlock()
	p.loop.Enqueue(allPools, time.Second) // what this process has just written is seen by then
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
	p.mu.Lock()
	usage := p.usage
	p.mu.Unlock()
	for _, v := range judgePools(inKeyOrder(p.stored)) {
		if u, known := usage[v.meta.Name]; known && u.Addresses == ipam.Size(v.cidr) {
			v.conditions = append(v.conditions, nearlyFull(u))
		}
		if v.terminating && v.hold && slices.Contains(v.meta.Finalizers, v.finalizer) {
			inUse, left, rerr := p.addresses.RetireBlocks(ctx, v.cidr)
			if rerr != nil {
				err = errors.Join(err, rerr)
				continue
			}
			if v.hold = left > 0; v.hold {
				v.conditions[0].Message = fmt.Sprintf("it is being deleted, and stays until its addresses are released: %d of them are in use, in %d blocks", inUse, left)
				again = time.Now().Add(lookAtHeld)
			}
		}
		if v.terminating && !v.hold {
			v.conditions = nil // it goes with this write
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
		out = append(out, poolVerdict{heldResource{p.at, m, has, api.FinalizerIPPool, hold, []api.Condition{c}}, p.cidr, m.DeletionTimestamp != ""})
	}
	return out
}

// A pool is nearly full from nearlyPercent of its addresses on, as with upstream; one of at most tooSmall addresses never is, as a few workloads fill it.
const nearlyPercent, tooSmall = 80, 32

// nearlyFull is what is to be said of a pool's addresses. The text changes with a percent, not with each address: a pool that is written is sent to all nodes.
func nearlyFull(u ipam.Usage) api.Condition {
	c := api.Condition{Type: api.ConditionNearlyFull}
	if taken := u.Addresses - u.Free; u.Addresses > tooSmall && 100*taken >= nearlyPercent*u.Addresses {
		c.Status, c.Reason = "True", api.ReasonThresholdExceeded
		c.Message = fmt.Sprintf("%.0f%% of its %.0f addresses are in use or reserved", math.Floor(100*taken/u.Addresses), u.Addresses)
	}
	return c
}
