package kubecontrollers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/metrics"
)

// settle is the time between the two looks before something is repaired, as of `twill ipam check --fix`.
const settle = 3 * time.Second

// collectConfig is what the collector of addresses needs.
type collectConfig struct {
	Store    datastore.Store
	Cluster  datastore.Store // which shows Kubernetes' nodes
	Settings func() Settings
	// Pod asks Kubernetes for a pod; false: there is none of that name.
	Pod func(ctx context.Context, namespace, name string) (apiserver.Pod, bool, error)
	// HasMachine asks Kubernetes whether there is a virtual machine of that name.
	HasMachine func(ctx context.Context, namespace, name string) (bool, error)
	Services   clusterServices
	// Counted takes over the addresses of each pool, by its name, at each look. May be nil.
	Counted func(map[string]ipam.Usage)
	Metrics *metrics.Controllers
	Turn    func(key string, err error)
	Log     *slog.Logger
}

// collector frees addresses that nobody has, gives blocks up that nodes can do without, and repairs what disagrees: what
// `twill ipam check --fix` would do, once it has been seen wrong for the whole grace period, at each look. Nobody else's word counts: a
// process that begins to lead begins to wait.
type collector struct {
	cfg       collectConfig
	addresses *ipam.Allocator
	loop      *controller.Controller
	since     map[string]time.Time // by the subject of what is wrong: since when each look has found it
}

const allAddresses = "addresses"

func newCollector(cfg collectConfig) *collector {
	c := &collector{cfg: cfg, addresses: ipam.New(cfg.Store, ipam.Config{}), since: map[string]time.Time{}}
	seen := map[string]string{}
	c.loop = controller.New(controller.Config{
		Name: "addresses", Store: cfg.Store, Prefixes: []string{api.KeyPrefix(api.KindNode, ""), api.KeyPrefix(api.KindIPPool, "")}, Log: cfg.Log,
		Observe: func(u api.Update) []string {
			if differs(seen, u) {
				c.loop.Enqueue(allAddresses, retry)
			}
			return nil
		},
		Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			again, err := c.reconcile(ctx)
			cfg.Turn(key, err)
			return again, err
		},
	})
	return c
}

// again has all looked at now.
func (c *collector) again() { c.loop.Enqueue(allAddresses, 0) }

func (c *collector) run(ctx context.Context) error {
	c.again()
	return c.loop.Run(ctx)
}

// look is what one survey found.
type look struct {
	survey *ipam.Survey
	leaks  []ipam.Finding
	spares []ipam.Spare
}

func (c *collector) look(ctx context.Context) (look, error) {
	in, err := nodesInKubernetes(ctx, c.cfg.Store, c.cfg.Cluster)
	if err != nil {
		return look{}, err
	}
	v, err := c.addresses.ReadSurvey(ctx)
	if err != nil {
		return look{}, err
	}
	found := v.Check(ipam.CheckOptions{Now: time.Now(), Watches: true, Pod: c.pods(ctx, in), NoService: c.noService(ctx, in), NoMachine: c.noMachine(ctx, in)})
	found = slices.DeleteFunc(found, func(f ipam.Finding) bool {
		// Where endpoints are pods, those on a node that is gone are Kubernetes' to delete, and then nodes deletes the rest.
		gone := c.cfg.Store == c.cfg.Cluster && f.Node() != "" && !in[f.Node()]
		return f.Fix == "" || gone
	})
	return look{v, found, v.Spares()}, nil
}

// pods asks Kubernetes, once for each pod. Of nodes that it does not have nothing is known, nor where it does not answer.
func (c *collector) pods(ctx context.Context, in map[string]bool) func(node, namespace, pod string) ipam.PodSays {
	type name struct{ namespace, pod string }
	known := map[name]ipam.PodSays{}
	return func(node, namespace, pod string) ipam.PodSays {
		if !in[node] {
			return ipam.PodSays{}
		}
		id := name{namespace, pod}
		says, asked := known[id]
		if !asked {
			if p, there, err := c.cfg.Pod(ctx, namespace, pod); err == nil {
				says = ipam.PodSays{None: !there, HostNetwork: p.HostNetwork, Addrs: p.Addrs}
			}
			known[id] = says
		}
		return says
	}
}

// noMachine asks Kubernetes, once for each virtual machine that has an address and no endpoint. Of a cluster without nodes nothing is known, nor
// where it does not answer, or does not serve virtual machines.
func (c *collector) noMachine(ctx context.Context, in map[string]bool) func(namespace, name string) bool {
	known := map[ipam.Machine]bool{}
	return func(namespace, name string) bool {
		if len(in) == 0 {
			return false
		}
		m := ipam.Machine{Namespace: namespace, Name: name}
		none, asked := known[m]
		if !asked {
			has, err := c.cfg.HasMachine(ctx, namespace, name)
			none = err == nil && !has
			known[m] = none
		}
		return none
	}
}

// noService asks Kubernetes for services: for all of them at the first, and for each that seems to be gone by itself. Of a cluster without nodes
// nothing is known, nor where it does not answer.
func (c *collector) noService(ctx context.Context, in map[string]bool) func(namespace, service, handle string) bool {
	var has map[string]bool // handles of services of type LoadBalancer
	return func(namespace, service, handle string) bool {
		if has == nil {
			has = map[string]bool{}
			snap, err := c.cfg.Cluster.List(ctx, api.KeyPrefix(api.KindKubernetesService, ""))
			if err != nil {
				in = nil
			}
			for _, u := range snap.Items {
				st, _ := api.DecodeStored(u) // what cannot be read is asked for by itself
				if s, ok := st.Resource.(*api.KubernetesService); ok && s.Spec.Type == typeLoadBalancer {
					has[serviceHandle(apiserver.Service{Namespace: st.Ref.Namespace, Name: st.Ref.Name, UID: s.Metadata.UID})] = true
				}
			}
		}
		if len(in) == 0 || has[handle] {
			return false
		}
		s, there, err := c.cfg.Services.Service(ctx, namespace, service)
		return err == nil && !(there && s.Type == typeLoadBalancer && serviceHandle(s) == handle)
	}
}

// reconcile looks, and repairs what has been wrong for long enough.
func (c *collector) reconcile(ctx context.Context) (again time.Time, err error) {
	s := c.cfg.Settings().Node
	if s == nil {
		clear(c.since)
		return time.Time{}, nil
	}
	l, err := c.look(ctx)
	if err != nil {
		return time.Time{}, err
	}
	next := c.note(l, time.Now())
	c.count(l)
	if s.Grace <= 0 {
		clear(c.since)
		return time.Now().Add(s.Period), nil
	}
	if leaks, spares := c.due(l, s.Grace); len(leaks)+len(spares) > 0 {
		if err = c.repair(ctx, l, s.Grace); err != nil && ctx.Err() != nil {
			return time.Time{}, err
		}
		again = time.Now().Add(min(retry, s.Period))
	} else if again = time.Now().Add(min(s.Period, s.Grace/2)); !next.IsZero() && next.Add(s.Grace).Before(again) {
		again = next.Add(s.Grace)
	}
	return again, err
}

// note remembers since when each is wrong, and forgets what is right; it returns since when the first is.
func (c *collector) note(l look, now time.Time) (first time.Time) {
	is := map[string]time.Time{}
	add := func(subject string) {
		since, known := c.since[subject]
		if !known {
			since = now
		}
		is[subject] = since
		if first.IsZero() || since.Before(first) {
			first = since
		}
	}
	for _, f := range l.leaks {
		add(f.Subject())
	}
	for _, b := range l.spares {
		add(b.Subject())
	}
	c.since = is
	return first
}

// due are what has been wrong for the whole grace period.
func (c *collector) due(l look, grace time.Duration) (leaks []ipam.Finding, spares []ipam.Spare) {
	old := func(subject string) bool {
		since, known := c.since[subject]
		return known && time.Since(since) >= grace
	}
	for _, f := range l.leaks {
		if old(f.Subject()) {
			leaks = append(leaks, f)
		}
	}
	for _, b := range l.spares {
		if old(b.Subject()) {
			spares = append(spares, b)
		}
	}
	return leaks, spares
}

// retry is when what was due, and could not be repaired, is looked at again; and how long changes of nodes and pools are gathered.
const retry = 30 * time.Second

// same are what both looks found: of an allocation, which is known by its sequence number, that it is still the same one; of all else, to the
// revision of each key.
func same(before, after []ipam.Finding) []ipam.Finding {
	was := map[string]bool{}
	for _, f := range before {
		was[f.Subject()] = true
	}
	unchanged := map[string]bool{}
	for _, f := range ipam.Both(before, after) {
		unchanged[f.Subject()] = true
	}
	return slices.DeleteFunc(after, func(f ipam.Finding) bool {
		return !unchanged[f.Subject()] && (f.Kind != ipam.FoundLeak || !was[f.Subject()])
	})
}

// repair looks again after a while, and repairs what is due and was the same both times. Each repair is one change, which is not made if
// anything that it follows from has changed since the second look.
func (c *collector) repair(ctx context.Context, before look, grace time.Duration) error {
	t := time.NewTimer(settle)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	l, err := c.look(ctx)
	if err != nil {
		return err
	}
	c.note(l, time.Now())
	leaks, spares := c.due(l, grace)
	for _, r := range c.addresses.Repair(ctx, same(before.leaks, leaks)) {
		if r.Err != nil {
			err = errors.Join(err, r.Err)
			continue
		}
		delete(c.since, r.Subject())
		args := []any{"did", r.Fix, "because", r.Proof, "for", grace.String()}
		if r.Address.IsValid() {
			args = append(args, "address", r.Address.String())
			c.cfg.Metrics.Reclaimed(poolOf(l.survey, r), r.Node())
		} else {
			args = append(args, "block", r.Block, "problem", r.Problem)
		}
		c.cfg.Log.Info("addresses are repaired", append(args, "handle", r.Handle, "owner", r.Owner)...)
	}
	for _, b := range spares {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if rerr := c.addresses.ReleaseAffinity(ctx, b.Owner, b.CIDR, true); rerr != nil {
			err = errors.Join(err, rerr) // it is in use by now
			continue
		}
		delete(c.since, b.Subject())
		c.cfg.Log.Info("a block is given up", "block", b.CIDR.String(), "node", b.Owner.Name, "because", "it was empty, and its node has another", "for", grace.String())
	}
	return err
}

func poolOf(v *ipam.Survey, f ipam.Repaired) string {
	for _, b := range v.Blocks {
		if b.CIDR.Contains(f.Address) {
			p, _ := v.PoolOf(b.CIDR)
			return p.Name
		}
	}
	return ""
}

// count publishes how many addresses there are.
func (c *collector) count(l look) {
	a := metrics.Addresses{
		Size: map[string]float64{}, InUse: map[metrics.Share]int{}, Borrowed: map[metrics.Share]int{}, Blocks: map[metrics.Share]int{}, Candidates: map[metrics.Share]int{},
	}
	pools := map[string]string{} // by block
	for _, p := range l.survey.Pools {
		a.Size[p.Name] = ipam.Size(p.CIDR)
	}
	a.Nodes = l.survey.Nodes()
	for _, b := range l.survey.Blocks {
		p, _ := l.survey.PoolOf(b.CIDR)
		pools[b.CIDR.String()] = p.Name
		own, _ := b.Owner()
		a.Blocks[metrics.Share{Pool: p.Name, Node: own.Name}]++
		for _, used := range ipam.Allocations(b) {
			if !used.InUse() {
				continue
			}
			at := metrics.Share{Pool: p.Name, Node: used.Attr.Owner[api.AttributeNode]}
			a.InUse[at]++
			if _, borrowed := used.Borrowed(); borrowed {
				a.Borrowed[at]++
			}
		}
	}
	for _, f := range l.leaks {
		if f.Kind == ipam.FoundLeak {
			a.Candidates[metrics.Share{Pool: pools[f.Block], Node: f.Node()}]++
		}
	}
	c.cfg.Metrics.Addresses(a)
	if c.cfg.Counted != nil {
		c.cfg.Counted(l.survey.UsedOfPools())
	}
}
