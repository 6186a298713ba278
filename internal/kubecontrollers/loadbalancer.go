package kubecontrollers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/syncer"
)

// clusterServices are Kubernetes' services, asked for one by one.
type clusterServices interface {
	Service(ctx context.Context, namespace, name string) (apiserver.Service, bool, error)
	SetIngress(ctx context.Context, s apiserver.Service, ingress []apiserver.Ingress) error
}

// balancerConfig is what the controller of load balancers' addresses needs.
type balancerConfig struct {
	Store    datastore.Store // of pools and addresses
	Cluster  datastore.Store // which shows Kubernetes' services; the same as Store where its API is the datastore
	Settings func() Settings
	Services clusterServices
	Turn     func(key string, err error)
	Log      *slog.Logger
}

// balancer gives addresses to Services of type LoadBalancer, from pools whose allowedUses has that. A service is one key. What it has is
// known by its handle, which is upstream's, so that a new leader, and one that comes after upstream's controllers, finds the same addresses.
//
// An address is allocated before it is published, and published no more before it is released: none is published twice. A service gets its next
// address before it loses the last.
type balancer struct {
	cfg       balancerConfig
	addresses *ipam.Allocator
	loop      *controller.Controller

	// The loop's alone.
	seen    map[string]bool         // services of type LoadBalancer
	handles map[string]string       // of services that may have addresses
	pools   map[string]balancerPool // that are for load balancers, by their keys
	lacking map[string]bool         // services that have less than they ask for
}

const allServices = "services"

// mostWait bounds the time between attempts to give a service what it lacks; pools that change, addresses that are released, and in etcd labels of namespaces, end it.
const mostWait = 5 * time.Minute

func newBalancer(cfg balancerConfig) *balancer {
	l := &balancer{
		cfg: cfg, addresses: ipam.New(cfg.Store, ipam.Config{}),
		seen: map[string]bool{}, handles: map[string]string{}, pools: map[string]balancerPool{}, lacking: map[string]bool{},
	}
	prefixes := []string{api.KeyPrefix(api.KindKubernetesService, ""), api.KeyPrefix(api.KindIPPool, "")}
	if cfg.Cluster != cfg.Store { // else they are Kubernetes' own, service accounts are read with them, and the controllers' role has no watch of either
		prefixes = append(prefixes, namespaceProfiles)
	}
	l.loop = controller.New(controller.Config{
		Name: "load balancers", Store: cfg.Store, Prefixes: prefixes,
		Observe: l.observe, MaxBackoff: mostWait, Log: cfg.Log,
		Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			err := l.reconcile(ctx, key)
			cfg.Turn(key, err)
			return time.Time{}, err
		},
	})
	return l
}

// again has all services looked at now.
func (l *balancer) again() { l.loop.Enqueue(allServices, 0) }

func (l *balancer) run(ctx context.Context) error {
	if l.cfg.Cluster == l.cfg.Store {
		return l.loop.Run(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	source := syncer.New(l.cfg.Cluster, syncer.Config{Prefixes: []string{api.KeyPrefix(api.KindKubernetesService, "")}, Logger: l.cfg.Log})
	go func() { _ = source.Run(ctx) }() // ends with the context
	go func() {
		for b := range source.Batches() {
			l.loop.Update(b.Updates, false)
		}
	}()
	return l.loop.Run(ctx)
}

// namespaceProfiles begins the keys of what namespaces are in a datastore: their labels are among it, by which pools select them.
var namespaceProfiles = api.KeyPrefix(api.KindProfile, "") + "kns."

// observe takes over a change of a service, a pool or a namespace.
func (l *balancer) observe(u api.Update) []string {
	if namespace, is := strings.CutPrefix(u.Key, namespaceProfiles); is { // selectors say who gets new addresses, and take none
		return slices.DeleteFunc(slices.Sorted(maps.Keys(l.lacking)), func(service string) bool {
			return !strings.HasPrefix(service, api.KeyPrefix(api.KindKubernetesService, namespace))
		})
	}
	if strings.HasPrefix(u.Key, api.KeyPrefix(api.KindIPPool, "")) {
		was, had := l.pools[u.Key]
		now, is, err := balancerPoolOf(u)
		if err != nil { // what cannot be read changes nothing
			return nil
		}
		delete(l.pools, u.Key)
		if is {
			l.pools[u.Key] = now
		}
		if had && (!is || now != was) { // who has an address of it leaves it now, and not when another process leads
			return slices.Sorted(maps.Keys(l.seen))
		}
		return slices.Sorted(maps.Keys(l.lacking))
	}
	st, _ := api.DecodeStored(u) // what cannot be read is no service
	if s, ok := st.Resource.(*api.KubernetesService); ok && s.Spec.Type == typeLoadBalancer {
		l.seen[u.Key] = true
		return []string{u.Key}
	}
	delete(l.seen, u.Key)
	delete(l.lacking, u.Key)
	if l.handles[u.Key] != "" {
		return []string{u.Key}
	}
	return nil
}

// balancerPool is what decides whether a service keeps an address of a pool.
type balancerPool struct {
	cidr   netip.Prefix
	manual bool // it gives addresses only to services that ask for it
	going  bool // it is being deleted: for services it is none, as it would wait for them, and nobody changes these
}

// balancerPoolOf is a pool that is for load balancers, whether or not it gives addresses now.
func balancerPoolOf(u api.Update) (pool balancerPool, is bool, err error) {
	if u.Value == nil {
		return balancerPool{}, false, nil
	}
	st, err := api.DecodeStored(u)
	p, ok := st.Resource.(*api.IPPool)
	if !ok {
		return balancerPool{}, false, cmp.Or(err, errors.New("no IPPool"))
	}
	if !slices.Contains(p.Spec.AllowedUses, ipam.UseLoadBalancer) {
		return balancerPool{}, false, nil
	}
	cidr, err := netip.ParsePrefix(p.Spec.CIDR)
	return balancerPool{cidr.Masked(), p.Spec.AssignmentMode != nil && *p.Spec.AssignmentMode == api.AssignManual, p.Metadata.DeletionTimestamp != ""}, err == nil, err
}

// reconcile gives a service what it asks for, and takes from it what it does not.
func (l *balancer) reconcile(ctx context.Context, key string) error {
	s := l.cfg.Settings().LoadBalancer
	if s == nil {
		return nil
	}
	if key == allServices {
		for service := range l.seen {
			l.loop.Enqueue(service, 0)
		}
		return nil
	}
	ref, ok := api.ParseKey(key)
	if !ok {
		return nil
	}
	svc, there, err := l.cfg.Services.Service(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return err
	}
	handle := ""
	if there {
		handle = serviceHandle(svc)
	}
	if was := l.handles[key]; was != "" && was != handle { // it is gone, or another service has its name
		if err := l.free(ctx, key, was); err != nil {
			return err
		}
	}
	switch {
	case there && managed(svc, s.All):
		l.handles[key] = handle
		return l.serve(ctx, key, svc, handle)
	case there:
		delete(l.lacking, key)
		return l.withdraw(ctx, key, svc, handle)
	}
	delete(l.lacking, key)
	return nil
}

// withdraw takes its addresses from a service that is not ours any more. What others gave to it stays.
func (l *balancer) withdraw(ctx context.Context, key string, svc apiserver.Service, handle string) error {
	held, err := l.addresses.Addresses(ctx, handle)
	if err != nil || len(held) == 0 {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(svc.Ingress), func(i apiserver.Ingress) bool { return slices.Contains(held, addressOf(i)) })
	if len(others) < len(svc.Ingress) {
		if err := l.cfg.Services.SetIngress(ctx, svc, others); err != nil {
			return err
		}
	}
	return l.free(ctx, key, handle)
}

// free releases all addresses of a handle, which nobody publishes any more.
func (l *balancer) free(ctx context.Context, key, handle string) error {
	freed, err := l.addresses.ReleaseByHandle(ctx, handle)
	if err != nil {
		return err
	}
	delete(l.handles, key)
	l.released(key, freed)
	return nil
}

// released logs addresses that are free now, and has those looked at who lack some.
func (l *balancer) released(key string, freed []netip.Addr) {
	if len(freed) == 0 {
		return
	}
	l.cfg.Log.Info("addresses of a service are released", "service", nameOf(key), "addresses", fmt.Sprint(freed))
	for service := range l.lacking {
		l.loop.Enqueue(service, 0)
	}
}

func nameOf(key string) string {
	ref, _ := api.ParseKey(key)
	return ref.Namespace + "/" + ref.Name
}

// serve gives a service the addresses that it asks for.
func (l *balancer) serve(ctx context.Context, key string, svc apiserver.Service, handle string) error {
	held, err := l.addresses.Leases(ctx, handle)
	if err != nil {
		return err
	}
	if l.lacking[key] = true; len(held) == 0 && !l.serves(true) && !l.serves(false) && !asksByName(svc) {
		return nil // no pool is for load balancers, and another's controller may serve it
	}
	wish, vain, err := wishOf(svc)
	if err != nil {
		return controller.Terminal(fmt.Errorf("service %s: %w", nameOf(key), err))
	}
	if other := l.foreign(svc, held); other != "" {
		if !asksByName(svc) {
			return nil
		}
		return controller.Terminal(fmt.Errorf("service %s has %s of another load balancer: it gets no address while it has that", nameOf(key), other))
	}
	var want []netip.Addr
	var lacks error
	users := true // what it lacks, its user asks for in vain
	for _, w := range wish {
		has, err := l.one(ctx, svc, handle, w, held)
		if err != nil {
			lacks = errors.Join(lacks, fmt.Errorf("service %s: %w", nameOf(key), err))
			users = users && !errors.Is(err, datastore.ErrUnavailable)
		}
		if has.IsValid() {
			want = append(want, has)
		}
	}
	if err := l.publish(ctx, key, svc, want); err != nil {
		return errors.Join(lacks, err)
	}
	err = l.trim(ctx, key, held, want)
	switch {
	case lacks == nil:
		delete(l.lacking, key)
		if err == nil && vain != nil {
			return controller.Terminal(fmt.Errorf("service %s: %w", nameOf(key), vain))
		}
	case users && err == nil:
		return usersFault{lacks}
	}
	return errors.Join(lacks, err)
}

// publish writes a service's addresses into its status.
func (l *balancer) publish(ctx context.Context, key string, svc apiserver.Service, want []netip.Addr) error {
	var is []netip.Addr
	for _, i := range svc.Ingress {
		is = append(is, addressOf(i))
	}
	if slices.Equal(is, want) {
		return nil
	}
	ingress := make([]apiserver.Ingress, 0, len(want))
	for _, a := range want {
		ingress = append(ingress, apiserver.Ingress{"ip": a.String()})
	}
	if err := l.cfg.Services.SetIngress(ctx, svc, ingress); err != nil {
		return err
	}
	l.cfg.Log.Info("a service has addresses", "service", nameOf(key), "addresses", fmt.Sprint(want))
	return nil
}

// trim releases what a service has beyond what is published.
func (l *balancer) trim(ctx context.Context, key string, held []ipam.Lease, want []netip.Addr) error {
	var rs []ipam.Release
	for _, h := range held {
		if !slices.Contains(want, h.Addr) {
			rs = append(rs, ipam.Release{Addr: h.Addr, Handle: h.Handle, Sequence: &h.Sequence})
		}
	}
	if len(rs) == 0 {
		return nil
	}
	freed, err := l.addresses.Release(ctx, rs...)
	l.released(key, freed)
	return err
}

// foreign is an address or a name that a service has of somebody else; empty: none. Ours are those that its handle has, and those of our pools,
// whose allocation may be lost.
func (l *balancer) foreign(svc apiserver.Service, held []ipam.Lease) string {
	for _, i := range svc.Ingress {
		a := addressOf(i)
		mine := slices.ContainsFunc(held, func(h ipam.Lease) bool { return h.Addr == a })
		for _, p := range l.pools {
			mine = mine || a.IsValid() && p.cidr.Contains(a)
		}
		if !mine {
			return fmt.Sprint(map[string]any(i))
		}
	}
	return ""
}

// serves reports whether any pool of a family is for load balancers, and is not being deleted.
func (l *balancer) serves(four bool) bool {
	for _, p := range l.pools {
		if p.cidr.Addr().Is4() == four && !p.going {
			return true
		}
	}
	return false
}

func family(four bool) string {
	if four {
		return "IPv4"
	}
	return "IPv6"
}

// one is the address of a family that a service has, or gets. With an error it is one that the service should not have, and keeps until there
// is another; invalid where no pool could have another.
func (l *balancer) one(ctx context.Context, svc apiserver.Service, handle string, w wish, held []ipam.Lease) (netip.Addr, error) {
	args := ipam.AutoArgs{
		Node: balancerNode, Handle: handle, Use: ipam.UseLoadBalancer, Namespace: svc.Namespace, Pools4: w.pools, Pools6: w.pools,
		Attributes: map[string]string{
			api.AttributeService: svc.Name, api.AttributeNamespace: svc.Namespace, api.AttributeType: typeLoadBalancer,
			api.AttributeTimestamp: time.Now().UTC().Format(time.RFC3339),
		},
	}
	fits := func(a netip.Addr) (bool, error) {
		if !a.IsValid() || a.Is4() != w.four || w.addr.IsValid() {
			return a.IsValid() && a == w.addr, nil
		}
		why, err := l.addresses.Misfit(ctx, args, a)
		return why == "", err
	}
	if !l.serves(w.four) {
		return netip.Addr{}, fmt.Errorf("no IPPool of %s is for load balancers (allowedUses): it has no address", family(w.four))
	}
	var last netip.Addr
	for _, h := range held {
		ok, err := fits(h.Addr)
		if ok || err != nil {
			return h.Addr, err
		}
		if h.Addr.Is4() == w.four {
			last = h.Addr
		}
	}
	if w.addr.IsValid() {
		if err := l.take(ctx, args, w.addr); err != nil {
			return last, err
		}
		return w.addr, nil
	}
	for _, i := range svc.Ingress { // it was published, and its allocation is lost
		ok, err := fits(addressOf(i))
		if err != nil {
			return last, err
		}
		if a := addressOf(i); ok && l.take(ctx, args, a) == nil {
			return a, nil
		}
	}
	if w.four {
		args.Num4 = 1
	} else {
		args.Num6 = 1
	}
	got, err := l.addresses.Assign(ctx, args)
	if err != nil {
		return last, err
	}
	return got[0].Addr, nil
}

// take allocates one very address.
func (l *balancer) take(ctx context.Context, args ipam.AutoArgs, a netip.Addr) error {
	_, err := l.addresses.AssignIP(ctx, ipam.IPArgs{Addr: a, Node: args.Node, Handle: args.Handle, Attributes: args.Attributes, Use: args.Use})
	return err
}
