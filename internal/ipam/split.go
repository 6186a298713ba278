package ipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// SplitArgs says how to split a pool.
type SplitArgs struct {
	Pool string // name or CIDR
	Into int    // a power of two
	// Part makes the stored form of a part of the pool's, with all else as it was.
	Part func(stored []byte, name string, cidr netip.Prefix) ([]byte, error)
}

// Split replaces a pool by several smaller ones, in one transaction: at no time
// is an address in none or in two. Blocks and addresses stay as they are. It
// returns the names and CIDRs of the new pools.
func (a *Allocator) Split(ctx context.Context, args SplitArgs) ([]Pool, error) {
	what := "split pool " + args.Pool
	snap, err := a.store.List(ctx, api.KeyPrefix(api.KindIPPool, ""))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	var names []string
	taken := map[string]bool{}
	var old api.Update
	var pool Pool
	for _, u := range snap.Sorted() {
		st, err := api.DecodeStored(u)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		p, ok := st.Resource.(*api.IPPool)
		if !ok {
			continue
		}
		taken[st.Ref.Name] = true
		names = append(names, st.Ref.Name)
		if is, ok := poolOf(p); ok && (is.Name == args.Pool || is.CIDR.String() == args.Pool) {
			old, pool = u, is
		}
	}
	if old.Value == nil {
		return nil, fmt.Errorf("%s: there is no such pool; there are %v", what, names)
	}
	t, parts, err := splitOf(old, pool, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for _, p := range parts {
		if taken[p.Name] {
			return nil, fmt.Errorf("%s: pool %s exists already; delete or split that one first", what, p.Name)
		}
	}
	if a.txn == nil {
		return nil, fmt.Errorf("%s: this datastore has no transactions, and between two steps addresses would be in no pool", what)
	}
	if _, err := a.txn.Transact(ctx, t); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return parts, nil
}

// splitOf is the transaction that splits a pool.
func splitOf(old api.Update, pool Pool, args SplitArgs) (datastore.Txn, []Pool, error) {
	t := datastore.Txn{If: map[string]api.Revision{old.Key: old.Revision}, Delete: []string{old.Key}}
	if args.Into < 2 || args.Into&(args.Into-1) != 0 || args.Into >= datastore.MostChanges {
		return t, nil, fmt.Errorf("into %d parts: want a power of two, 2 to %d", args.Into, datastore.MostChanges/2)
	}
	size := pool.CIDR.Bits() + bits.TrailingZeros(uint(args.Into))
	if size > pool.size {
		return t, nil, fmt.Errorf("into %d parts: a part would be a /%d, and its blocks are /%d", args.Into, size, pool.size)
	}
	var parts []Pool
	for i := range args.Into {
		part := Pool{Name: fmt.Sprintf("split-%s-%d", pool.Name, i), CIDR: nth(Pool{CIDR: pool.CIDR, size: size}, uint64(i)), size: pool.size}
		value, err := args.Part(old.Value, part.Name, part.CIDR)
		if err != nil {
			return t, nil, err
		}
		key := api.KeyPrefix(api.KindIPPool, "") + part.Name
		t.If[key] = api.Revision{}
		t.Put = append(t.Put, api.Update{Key: key, Value: value})
		parts = append(parts, part)
	}
	return t, parts, nil
}

// SetConfig changes the configuration, unless the result contradicts itself.
func (a *Allocator) SetConfig(ctx context.Context, change func(*api.IPAMConfig)) (api.IPAMConfig, error) {
	for try := 0; ; try++ {
		c, err := a.setConfig(ctx, change)
		if err == nil || !isConflict(err) || try >= a.cfg.Tries {
			return c, err
		}
		if err := a.cfg.Pause(ctx, try); err != nil {
			return c, err
		}
	}
}

func (a *Allocator) setConfig(ctx context.Context, change func(*api.IPAMConfig)) (api.IPAMConfig, error) {
	c := api.DefaultIPAMConfig()
	u, err := a.store.Get(ctx, api.IPAMConfigKey)
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		u = api.Update{Key: api.IPAMConfigKey}
	case err != nil:
		return c, err
	default:
		if c, err = api.DecodeIPAMConfig(u); err != nil {
			return c, err
		}
	}
	change(&c)
	if err := api.Validate(c.Resource()).Err(); err != nil {
		return c, err
	}
	value, err := json.Marshal(c)
	if err == nil {
		_, err = a.put(ctx, u, value)
	}
	return c, err
}

// BorrowedIn counts the addresses in use on other nodes than their blocks'.
func (v *Survey) BorrowedIn() (n int) {
	for _, b := range v.Blocks {
		for _, l := range Allocations(b) {
			if _, yes := l.Borrowed(); yes {
				n++
			}
		}
	}
	return n
}

// Endpoint returns the endpoint of an address; empty if none.
func (v *Survey) Endpoint(a netip.Addr) (ref api.Ref, node string, ok bool) {
	us := v.users[a]
	if len(us) == 0 {
		return api.Ref{}, "", false
	}
	return us[0].ref, us[0].node, true
}

// Config is the configuration that was read.
func (v *Survey) Config() api.IPAMConfig { return v.config }

// Counts are how many of everything were looked at.
type Counts struct {
	Pools     int `json:"pools"`
	Blocks    int `json:"blocks"`
	Addresses int `json:"addresses"` // in use
	Handles   int `json:"handles"`
	Claims    int `json:"claims"`
	Endpoints int `json:"endpointAddresses"`
	Nodes     int `json:"nodes"`
}

// Counts returns how many of everything there are.
func (v *Survey) Counts() Counts {
	c := Counts{Pools: len(v.Pools), Blocks: len(v.Blocks), Endpoints: len(v.users), Nodes: len(v.nodes)}
	for _, b := range v.Blocks {
		c.Addresses += used(b)
	}
	for key := range v.docs {
		if _, ok := api.ParseHandleKey(key); ok {
			c.Handles++
		} else if _, _, ok := api.ParseAffinityKey(key); ok {
			c.Claims++
		}
	}
	return c
}
