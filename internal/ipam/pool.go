package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/datastore"
)

// Pool is a pool as considered for a request.
type Pool struct {
	Name string
	CIDR netip.Prefix
	Why  string // why it was not used; empty: it was
	size int    // prefix length of its blocks

	overlaps bool // it gives none, since it overlaps one that does, or a controller says so
	aside    bool // see aside
}

// is reports whether a pool is meant by a name or a CIDR.
func (p Pool) is(name string) bool {
	cidr, err := netip.ParsePrefix(name)
	return p.Name == name || err == nil && p.CIDR == cidr.Masked()
}

// resources are the resources that decide which pools may be used. They change rarely, and a
// request that began before a change may be served as if it had not happened.
type resources struct {
	pools    []*api.IPPool     // by name
	over     map[string]string // of those that overlap another, the names of those that have the range
	reserved []netip.Prefix
	config   api.IPAMConfig

	mu     sync.Mutex
	others map[api.Ref]api.Resource // read for their labels; nil: there is none
}

func (a *Allocator) resources(ctx context.Context) (*resources, error) {
	w := &resources{others: map[api.Ref]api.Resource{}}
	var err error
	if w.pools, err = readAll[*api.IPPool](ctx, a.store, api.KindIPPool); err != nil {
		return nil, err
	}
	w.over = giving(w.pools)
	rs, err := readAll[*api.IPReservation](ctx, a.store, api.KindIPReservation)
	if err != nil {
		return nil, err
	}
	for _, r := range rs {
		w.reserved = append(w.reserved, netsOf(r.Spec.ReservedCIDRs)...)
	}
	w.config, err = ReadConfig(ctx, a.store)
	return w, err
}

// reused returns resources that may have been read a little while ago; old reports whether. Concurrent callers share one read.
// Under steady load they are renewed in the background before they are too old.
func (a *Allocator) reused(ctx context.Context) (w *resources, old bool, err error) {
	if a.cfg.Reuse == 0 {
		w, err = a.resources(ctx)
		return w, false, err
	}
	select {
	case a.reading <- struct{}{}:
		defer func() { <-a.reading }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	now := a.cfg.Now()
	if a.recent == nil || !now.Before(a.until) {
		w, err = a.resources(ctx)
		if err == nil {
			a.recent, a.until = w, now.Add(a.cfg.Reuse)
		}
		return w, false, err
	}
	if now.After(a.until.Add(-a.cfg.Reuse/2)) && a.renewing.CompareAndSwap(false, true) {
		go a.renew(context.WithoutCancel(ctx), a.recent, now)
	}
	return a.recent, true, nil
}

// renew reads the resources again, with the same labelled ones.
func (a *Allocator) renew(ctx context.Context, old *resources, now time.Time) {
	defer a.renewing.Store(false)
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Reuse)
	defer cancel()
	w, err := a.resources(ctx)
	if err != nil {
		return // the next caller reads, and gets the error
	}
	old.mu.Lock()
	requested := slices.Collect(maps.Keys(old.others))
	old.mu.Unlock()
	for _, ref := range requested {
		if _, err := w.labelled(ctx, a.store, ref); err != nil {
			return
		}
	}
	select {
	case a.reading <- struct{}{}:
		if a.recent == old {
			a.recent, a.until = w, now.Add(a.cfg.Reuse)
		}
		<-a.reading
	case <-ctx.Done():
	}
}

// forget makes the next Assign read again, unless that has happened since.
func (a *Allocator) forget(ctx context.Context, w *resources) {
	select {
	case a.reading <- struct{}{}:
		if a.recent == w {
			a.recent = nil
		}
		<-a.reading
	case <-ctx.Done():
	}
}

// ReadConfig reads the configuration; the default if none is stored.
func ReadConfig(ctx context.Context, s datastore.Store) (api.IPAMConfig, error) {
	u, err := s.Get(ctx, api.IPAMConfigKey)
	if errors.Is(err, datastore.ErrNotFound) {
		return api.DefaultIPAMConfig(), nil
	}
	if err != nil {
		return api.IPAMConfig{}, err
	}
	return api.DecodeIPAMConfig(u)
}

// readAll reads all readable resources of a kind.
func readAll[R api.Resource](ctx context.Context, s datastore.Store, kind string) ([]R, error) {
	snap, err := s.List(ctx, api.KeyPrefix(kind, ""))
	if err != nil {
		return nil, err
	}
	var out []R
	for _, u := range snap.Sorted() {
		st, err := api.DecodeStored(u)
		if err != nil || st.Closed != "" {
			continue
		}
		if r, ok := st.Resource.(R); ok {
			out = append(out, r)
		}
	}
	return out, nil
}

// labelled reads a resource for its labels; nil if there is none.
func (w *resources) labelled(ctx context.Context, s datastore.Store, ref api.Ref) (api.Resource, error) {
	w.mu.Lock()
	r, known := w.others[ref]
	w.mu.Unlock()
	if known {
		return r, nil
	}
	st, err := readOne(ctx, s, ref)
	if err == nil {
		w.mu.Lock()
		w.others[ref] = st.Resource
		w.mu.Unlock()
	}
	return st.Resource, err
}

// readOne reads a resource; the zero value if there is none.
func readOne(ctx context.Context, s datastore.Store, ref api.Ref) (api.Stored, error) {
	key, err := ref.Key()
	if err != nil {
		return api.Stored{}, err
	}
	u, err := s.Get(ctx, key)
	if errors.Is(err, datastore.ErrNotFound) {
		return api.Stored{}, nil
	}
	if err != nil {
		return api.Stored{}, err
	}
	return api.DecodeStored(u)
}

func netsOf(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

func poolOf(p *api.IPPool) (Pool, bool) {
	cidr, err := netip.ParsePrefix(p.Spec.CIDR)
	if err != nil {
		return Pool{}, false
	}
	size := p.Spec.BlockSize
	if size == 0 { // upstream's default, for what its old versions wrote
		size = 26
		if cidr.Addr().Is6() {
			size = 122
		}
	}
	return Pool{Name: p.Metadata.Name, CIDR: cidr.Masked(), size: size}, size >= cidr.Bits() && size <= cidr.Addr().BitLen()
}

// requester is what pools select by: node, namespace, use, and explicit pools.
type requester struct {
	node, use, namespace string
	pools                []string // names or CIDRs that were asked for
	nodeLabels           map[string]string
	namespaceLabels      map[string]string
	nodeKnown            bool
}

// choose returns the pools of a family, and why each may not be used, in the order in
// which they are tried.
func (w *resources) choose(four bool, k requester) []Pool {
	var out []Pool
	for _, p := range w.pools {
		pool, ok := poolOf(p)
		switch {
		case pool.CIDR.IsValid() && pool.CIDR.Addr().Is4() != four:
			continue
		case !ok && !p.Spec.Disabled: // a disabled one may be smaller than a block
			pool = Pool{Name: p.Metadata.Name, Why: fmt.Sprintf("its cidr %q or blockSize %d cannot be read", p.Spec.CIDR, p.Spec.BlockSize)}
		default:
			pool.Why = cmp.Or(w.yields(p), k.unsuitable(p, pool))
		}
		out = append(out, pool)
	}
	if len(k.pools) > 0 {
		at := func(p Pool) int { return slices.IndexFunc(k.pools, p.is) }
		slices.SortStableFunc(out, func(a, b Pool) int { return at(a) - at(b) })
	}
	return out
}

// yields returns that a pool gives none since another has its range; empty if it may give some. That it is disabled, or being deleted, is said before.
func (w *resources) yields(p *api.IPPool) string {
	by := w.over[p.Metadata.Name]
	if by == "" || p.Spec.Disabled || p.Metadata.DeletionTimestamp != "" {
		return ""
	}
	return "gives none: it has addresses in common with pool " + by
}

// containing are the pools that have an address, those that give to workloads first.
func (w *resources) containing(addr netip.Addr) (out []*api.IPPool) {
	for _, p := range w.pools {
		if pool, ok := poolOf(p); ok && pool.CIDR.Contains(addr) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b *api.IPPool) int { return last(aside(a)) - last(aside(b)) })
	return out
}

// holding are those of containing that give the address, or else the first of them; nil: there is none.
func (w *resources) holding(addr netip.Addr) []*api.IPPool {
	all := w.containing(addr)
	give := slices.DeleteFunc(slices.Clone(all), func(p *api.IPPool) bool {
		return w.over[p.Metadata.Name] != "" || refused(p) != nil || p.Spec.Disabled
	})
	if len(give) == 0 {
		return all[:min(1, len(all))]
	}
	return give
}

// unsuitable returns why a pool may not be used; empty if it may.
func (k requester) unsuitable(p *api.IPPool, pool Pool) string {
	s := p.Spec
	uses := s.AllowedUses
	if len(uses) == 0 {
		uses = []string{UseWorkload, UseTunnel}
	}
	requested := slices.ContainsFunc(k.pools, pool.is)
	switch {
	case s.Disabled:
		return "is disabled"
	case p.Metadata.DeletionTimestamp != "":
		return "is being deleted"
	case refused(p) != nil:
		return fmt.Sprintf("gives none: its condition %s is False, %s: %s", api.ConditionAllocatable, refused(p).Reason, refused(p).Message)
	case !slices.Contains(uses, k.use):
		return fmt.Sprintf("is for %s only (allowedUses), not for %s", strings.Join(uses, " and "), k.use)
	case requested:
		return ""
	case len(k.pools) > 0:
		return "is not one of those asked for"
	case s.AssignmentMode != nil && *s.AssignmentMode == api.AssignManual:
		return "gives addresses only to those who ask for it by name (assignmentMode Manual)"
	}
	if why := unmatched("nodeSelector", s.NodeSelector, k.nodeLabels); why != "" && k.use != UseLoadBalancer {
		if !k.nodeKnown {
			why += ", and the datastore has no node " + k.node
		}
		return why
	}
	if k.use == UseTunnel {
		return "" // a tunnel is in no namespace
	}
	return unmatched("namespaceSelector", s.NamespaceSelector, k.namespaceLabels)
}

// refused is the condition by which a controller says that a pool must not be used; nil: none does. That it is disabled, or being deleted, it
// says itself, and a condition may be older.
func refused(p *api.IPPool) *api.Condition {
	if p.Status == nil {
		return nil
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type == api.ConditionAllocatable && c.Status == "False" && c.Reason != api.ReasonPoolDisabled && c.Reason != api.ReasonTerminating {
			return c
		}
	}
	return nil
}

// Misfit returns why an address, which somebody has, would not be given for a request now; empty if it might be. That its pool gives nothing
// new, since it is disabled, is no reason, nor is its namespaceSelector, which says who gets new addresses.
func (a *Allocator) Misfit(ctx context.Context, args AutoArgs, addr netip.Addr) (string, error) {
	r, err := a.request(ctx, args)
	if err != nil {
		return "", err
	}
	k := r.requester
	if k.pools = r.Pools6; addr.Is4() {
		k.pools = r.Pools4
	}
	first := "no IPPool contains it"
	for i, p := range r.holding(addr) {
		pool, _ := poolOf(p)
		open := *p
		open.Spec.Disabled, open.Spec.NamespaceSelector, open.Status = false, "", nil
		why := k.unsuitable(&open, pool)
		if why == "" {
			return "", nil
		}
		if i == 0 {
			first = "its pool " + pool.Name + " " + why
		}
	}
	return first, nil
}

func unmatched(field, text string, labels map[string]string) string {
	if text == "" {
		return ""
	}
	sel, err := selector.Parse(text)
	if err != nil {
		return fmt.Sprintf("its %s cannot be read: %v", field, err)
	}
	if !sel.Match(labels) {
		return fmt.Sprintf("its %s %s does not match", field, text)
	}
	return ""
}

// NoAddressError says for each pool why it had no address.
type NoAddressError struct {
	Node  string
	Want  int
	Four  bool
	Pools []Pool
}

// Is makes it an ErrNoAddress.
func (e *NoAddressError) Is(target error) bool { return target == ErrNoAddress }

// Error has all reasons, and what helps.
func (e *NoAddressError) Error() string {
	fam := "IPv6"
	if e.Four {
		fam = "IPv4"
	}
	if len(e.Pools) == 0 {
		return fmt.Sprintf("%v: there is no %s pool; apply an IPPool", ErrNoAddress, fam)
	}
	var why []string
	for _, p := range e.Pools {
		why = append(why, fmt.Sprintf("pool %s %s %s", p.Name, p.CIDR, p.Why))
	}
	return fmt.Sprintf("%v for %s, %s wanted: %s; `twill ipam check` finds leaked addresses, another IPPool adds some",
		ErrNoAddress, e.Node, count(e.Want, fam+" address"), strings.Join(why, "; "))
}

func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
