// Package tunneladdr keeps the addresses of this node's ends of tunnels: VXLAN, IPIP and WireGuard, and the public keys of the last.
//
// In: updates of pools and of this node's Node, from the agent's syncer, settings, and keys of devices. Out: while a pool that selects the node
// wants a tunnel, or settings want WireGuard, an address of such a pool is assigned to the node and stands in its Node; when none does, it is
// taken out of the Node, and then released. A disabled pool gives none, and what it gave stays until another gives one. Handles and attributes are those that upstream's nodes use. A public key stands in the Node while
// the device has it.
//
// What is assigned is found by its handle, so that no crash loses an address. Nothing is written before the datastore is known whole,
// or while it says that it is not ready.
package tunneladdr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/resources"
)

// Config of a Controller.
type Config struct {
	Node  string
	Store datastore.Store
	Know  func(ctx context.Context, keys ...string) error // that of the syncer by which Update hears; nil: none
	Log   *slog.Logger
}

// Controller keeps the addresses of one node. Any goroutine may use it.
type Controller struct {
	cfg       Config
	loop      *controller.Controller
	addresses *ipam.Allocator

	// The loop's alone.
	pools   map[string]*api.IPPool
	own     api.Update // the Node as it is stored
	node    *api.Node
	settled [len(ends)]settled // by kind

	mu     sync.Mutex
	wanted *[2]bool   // WireGuard, of IPv4 and of IPv6; nil: not known yet, and nothing of it is changed
	public [2]*string // its keys; nil: not known yet
}

// settled is what was seen to be right, and until when that is taken for granted; the zero time: for ever.
type settled struct {
	state string
	until time.Time
}

// lookAgain is how often the addresses are looked up, with up to a fifth more: IPAM's blocks are not watched here, so one that somebody freed is found
// by this alone.
const lookAgain = 5 * time.Minute

// ends are what differs between kinds of tunnels.
var ends = [...]struct {
	name, handle, kind string // kind is the type of the address, as api.AttributeType has it
	six                bool
	mode               func(api.IPPoolSpec) string // how a pool wants the tunnel; nil: it is WireGuard, which settings want
	field              func(*api.NodeSpec) *string
}{
	{"VXLAN", "vxlan-tunnel-addr-", "vxlanTunnelAddress", false, byVXLAN, func(s *api.NodeSpec) *string { return &s.IPv4VXLANTunnelAddr }},
	{"VXLAN of IPv6", "vxlan-v6-tunnel-addr-", "vxlanV6TunnelAddress", true, byVXLAN, func(s *api.NodeSpec) *string { return &s.IPv6VXLANTunnelAddr }},
	{"IPIP", "ipip-tunnel-addr-", "ipipTunnelAddress", false, func(s api.IPPoolSpec) string { return s.IPIPMode }, func(s *api.NodeSpec) *string {
		if s.BGP == nil {
			s.BGP = &api.NodeBGPSpec{}
		}
		return &s.BGP.IPv4IPIPTunnelAddr
	}},
	{"WireGuard", "wireguard-tunnel-addr-", "wireguardTunnelAddress", false, nil, func(s *api.NodeSpec) *string { return &wireguardOf(s).InterfaceIPv4Address }},
	{"WireGuard of IPv6", "wireguard-v6-tunnel-addr-", "wireguardV6TunnelAddress", true, nil, func(s *api.NodeSpec) *string { return &wireguardOf(s).InterfaceIPv6Address }},
}

func wireguardOf(s *api.NodeSpec) *api.NodeWireguardSpec {
	if s.Wireguard == nil {
		s.Wireguard = &api.NodeWireguardSpec{}
	}
	return s.Wireguard
}

// Want says for which families, IPv4 and IPv6, settings want WireGuard.
func (k *Controller) Want(wireguard [2]bool) {
	k.mu.Lock()
	same := k.wanted != nil && *k.wanted == wireguard
	k.wanted = &wireguard
	k.mu.Unlock()
	if !same {
		k.loop.Enqueue(k.cfg.Node, 0)
	}
}

// Key says which public key this node's device of a kind of WireGuard has; empty: it has none.
func (k *Controller) Key(kind intent.TunnelKind, public string) {
	family := map[intent.TunnelKind]int{intent.WireGuard6: 1}[kind]
	k.mu.Lock()
	same := k.public[family] != nil && *k.public[family] == public
	k.public[family] = &public
	k.mu.Unlock()
	if !same {
		k.loop.Enqueue(k.cfg.Node, 0)
	}
}

func byVXLAN(s api.IPPoolSpec) string { return s.VXLANMode }

// New returns a Controller, which writes nothing until Run.
func New(cfg Config) *Controller {
	k := &Controller{cfg: cfg, addresses: ipam.New(cfg.Store, ipam.Config{}), pools: map[string]*api.IPPool{}}
	k.loop = controller.New(controller.Config{
		Name: "tunnel addresses", Log: cfg.Log, Know: cfg.Know, Observe: k.observe, Reconcile: k.reconcile,
		Prefixes: []string{api.KeyPrefix(api.KindIPPool, ""), api.KeyPrefix(api.KindNode, "") + cfg.Node},
	})
	return k
}

// Update takes changes of the datastore; inSync once all existing keys were passed.
func (k *Controller) Update(us []api.Update, inSync bool) { k.loop.Update(us, inSync) }

// Run writes until the context ends.
func (k *Controller) Run(ctx context.Context) error { return k.loop.Run(ctx) }

// observe takes over a change. A value that cannot be read changes nothing.
func (k *Controller) observe(u api.Update) []string {
	ref, ok := api.ParseKey(u.Key)
	if !ok || ref.Kind == api.KindNode && ref.Name != k.cfg.Node {
		return nil
	}
	var s api.Stored
	if u.Value != nil {
		var err error
		if s, err = api.Admit(u); err != nil {
			return nil
		}
	}
	switch r := s.Resource.(type) {
	case *api.IPPool:
		k.pools[u.Key] = r
	case *api.Node:
		k.own, k.node = u, r
	default:
		delete(k.pools, u.Key)
		if ref.Kind == api.KindNode {
			k.own, k.node = u, nil
		}
	}
	return []string{k.cfg.Node}
}

// asks reports whether a pool, or the settings, ask for a tunnel of a kind.
func (k *Controller) asks(f int, s api.IPPoolSpec) bool {
	if ends[f].mode == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.wanted != nil && k.wanted[map[bool]int{true: 1}[ends[f].six]]
	}
	mode := ends[f].mode(s)
	return mode == "Always" || mode == "CrossSubnet"
}

// wish is which pools want a tunnel to this node.
type wish struct {
	names []string // sorted
	cidrs []netip.Prefix
	give  bool // they give addresses; else one that the node has of them stays
}

// wanting are the pools that want a tunnel of a kind. Those that give no addresses, being disabled or deleted, count if no other wants it: their
// workloads are reached through the tunnel.
func (k *Controller) wanting(f int) (w wish) {
	for _, w.give = range []bool{true, false} {
		for _, key := range slices.Sorted(maps.Keys(k.pools)) {
			p := k.pools[key]
			if gives := p.Metadata.DeletionTimestamp == "" && !p.Spec.Disabled; gives == w.give && k.wants(f, p.Spec) {
				ref, _ := api.ParseKey(key)
				w.names, w.cidrs = append(w.names, ref.Name), append(w.cidrs, netip.MustParsePrefix(p.Spec.CIDR).Masked())
			}
		}
		if len(w.names) > 0 {
			break
		}
	}
	return w
}

// wants reports whether a pool is of the family of a kind of tunnels, and wants one to this node.
func (k *Controller) wants(f int, s api.IPPoolSpec) bool {
	p, err := netip.ParsePrefix(s.CIDR)
	if err != nil || p.Addr().Is6() != ends[f].six || !k.asks(f, s) {
		return false
	}
	if len(s.AllowedUses) > 0 && !slices.Contains(s.AllowedUses, ipam.UseTunnel) {
		return false
	}
	if s.NodeSelector == "" {
		return true
	}
	sel, err := selector.Parse(s.NodeSelector)
	return err == nil && sel.Match(k.node.Metadata.Labels)
}

// reconcile makes the addresses of all kinds right.
func (k *Controller) reconcile(ctx context.Context, _ string) (again time.Time, err error) {
	if k.node == nil {
		return time.Time{}, nil // the Node is written first
	}
	var errs []error
	k.mu.Lock()
	known := k.wanted != nil
	k.mu.Unlock()
	for f := range ends {
		if ends[f].mode == nil && !known {
			continue
		}
		want := k.wanting(f)
		state := fmt.Sprint(want, *ends[f].field(&k.node.Spec))
		if was := k.settled[f]; was.state == state && (was.until.IsZero() || time.Now().Before(was.until)) {
			again = earlier(again, was.until)
			continue
		}
		if err := k.settle(ctx, f, want); err != nil {
			errs = append(errs, fmt.Errorf("the %s address of the tunnel: %w", ends[f].name, err))
			continue
		}
		k.settled[f] = settled{state: fmt.Sprint(want, *ends[f].field(&k.node.Spec))}
		if len(want.names) > 0 {
			k.settled[f].until = time.Now().Add(lookAgain + rand.N(lookAgain/5)) // not all nodes at once
		}
		again = earlier(again, k.settled[f].until)
	}
	if err := k.publish(ctx); err != nil {
		errs = append(errs, fmt.Errorf("the public key of WireGuard: %w", err))
	}
	if len(errs) > 0 {
		return time.Time{}, errors.Join(errs...) // soon
	}
	return again, nil
}

// earlier is the earlier of two times; the zero time: never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// publish writes the keys of devices into the Node.
func (k *Controller) publish(ctx context.Context) error {
	k.mu.Lock()
	public := k.public
	k.mu.Unlock()
	var errs []error
	for f, field := range [2]func(*api.Node) *string{
		func(n *api.Node) *string { return &n.Status.WireguardPublicKey },
		func(n *api.Node) *string { return &n.Status.WireguardPublicKeyV6 },
	} {
		if public[f] == nil || *field(k.node) == *public[f] {
			continue
		}
		if err := k.change(ctx, func(n *api.Node) { *field(n) = *public[f] }); err != nil {
			errs = append(errs, err)
			continue
		}
		k.cfg.Log.Info("this node's public key of WireGuard is written", "family", [2]string{"IPv4", "IPv6"}[f], "key", *public[f])
	}
	return errors.Join(errs...)
}

// settle makes the address of one kind right.
func (k *Controller) settle(ctx context.Context, f int, want wish) error {
	handle := ends[f].handle + k.cfg.Node
	stored, _ := netip.ParseAddr(*ends[f].field(&k.node.Spec))
	had, err := k.had(ctx, f, handle, stored)
	if err != nil {
		return err
	}
	fits := func(a netip.Addr) bool {
		return slices.ContainsFunc(want.cidrs, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	keep := netip.Addr{}
	for _, a := range had {
		if fits(a) && (!keep.IsValid() || a == stored) {
			keep = a
		}
	}
	switch {
	case keep.IsValid():
	case len(want.names) == 0 || !want.give:
		if err := k.write(ctx, f, ""); err != nil { // first nobody believes in it any more
			return err
		}
		_, err := k.addresses.ReleaseByHandle(ctx, handle)
		return err
	default:
		if keep, err = k.assign(ctx, f, handle, want.cidrs, stored, fits(stored)); err != nil {
			return err
		}
	}
	if err := k.write(ctx, f, keep.String()); err != nil {
		return err
	}
	var others []ipam.Release
	for _, a := range had {
		if a != keep {
			others = append(others, ipam.Release{Addr: a, Handle: handle})
		}
	}
	if len(others) == 0 {
		return nil
	}
	_, err = k.addresses.Release(ctx, others...)
	return err
}

// had returns the addresses of a handle. A stored one that is not among them may be of a version of Calico without handles, and is so from now on.
func (k *Controller) had(ctx context.Context, f int, handle string, stored netip.Addr) ([]netip.Addr, error) {
	had, err := k.addresses.Addresses(ctx, handle)
	if err != nil || !stored.IsValid() || slices.Contains(had, stored) {
		return had, err
	}
	adopted, err := k.addresses.Adopt(ctx, ipam.IPArgs{Addr: stored, Node: k.cfg.Node, Handle: handle, Attributes: k.about(f)})
	if adopted {
		had = append(had, stored)
	}
	return had, err
}

// about are the attributes of an address of a kind.
func (k *Controller) about(f int) map[string]string {
	return map[string]string{api.AttributeNode: k.cfg.Node, api.AttributeType: ends[f].kind}
}

// assign returns an address that is assigned now: the stored one, if it fits and nobody has it. Pools are asked for by their CIDRs: of several with one,
// hosts go by the first by name, and another may be the one that gives addresses.
func (k *Controller) assign(ctx context.Context, f int, handle string, cidrs []netip.Prefix, stored netip.Addr, fits bool) (netip.Addr, error) {
	about := k.about(f)
	if fits {
		a, err := k.addresses.AssignIP(ctx, ipam.IPArgs{Addr: stored, Node: k.cfg.Node, Handle: handle, Attributes: about, Use: ipam.UseTunnel})
		if err == nil || !errors.Is(err, ipam.ErrAssigned) && !errors.Is(err, ipam.ErrNoPool) && !errors.Is(err, ipam.ErrAffinity) {
			return a.Addr, err
		}
	}
	args, pools := ipam.AutoArgs{Node: k.cfg.Node, Handle: handle, Attributes: about, Use: ipam.UseTunnel}, make([]string, len(cidrs))
	for i, p := range cidrs {
		pools[i] = p.String()
	}
	if ends[f].six {
		args.Num6, args.Pools6 = 1, pools
	} else {
		args.Num4, args.Pools4 = 1, pools
	}
	got, err := k.addresses.Assign(ctx, args)
	if err != nil {
		return netip.Addr{}, err
	}
	return got[0].Addr, nil
}

// write puts an address into the Node as it was observed; empty: takes it out.
func (k *Controller) write(ctx context.Context, f int, addr string) error {
	if *ends[f].field(&k.node.Spec) == addr {
		return nil
	}
	if err := k.change(ctx, func(n *api.Node) { *ends[f].field(&n.Spec) = addr }); err != nil {
		return err
	}
	k.cfg.Log.Info("the address of this node's tunnel is written", "tunnel", ends[f].name, "address", addr)
	return nil
}

// change writes the Node as it was observed, with a change.
func (k *Controller) change(ctx context.Context, to func(*api.Node)) error {
	n := api.New(api.KindNode).(*api.Node)
	if err := json.Unmarshal(k.own.Value, n); err != nil {
		return controller.Terminal(fmt.Errorf("Node %s: what is stored cannot be read: %w", k.cfg.Node, err))
	}
	to(n)
	if n.Spec.Wireguard != nil && *n.Spec.Wireguard == (api.NodeWireguardSpec{}) {
		n.Spec.Wireguard = nil
	}
	if err := k.loop.Know(ctx, k.own.Key); err != nil {
		return err
	}
	n.Metadata.Name = k.cfg.Node
	now, err := k.over(ctx, n)
	if err != nil { // also if another was faster, of whom will be heard
		return fmt.Errorf("write Node %s: %w", k.cfg.Node, err)
	}
	s, err := api.Admit(now)
	if err != nil {
		return err
	}
	k.own, k.node = now, s.Resource.(*api.Node)
	return nil
}

// over writes the Node in the place of the observed one. One whose status says nothing any more must not keep what it said, as it does where
// people write a Node without one.
func (k *Controller) over(ctx context.Context, n *api.Node) (api.Update, error) {
	if st := n.Status; st.WireguardPublicKey != "" || st.WireguardPublicKeyV6 != "" || len(st.PodCIDRs) > 0 {
		done, err := resources.Over(ctx, k.cfg.Store, k.own, n)
		return done.Now, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(k.own.Value, &all); err != nil {
		return api.Update{}, err
	}
	delete(all, "status")
	bare, err := json.Marshal(all)
	if err != nil {
		return api.Update{}, err
	}
	value, err := api.MergeRaw(bare, n)
	if err != nil {
		return api.Update{}, err
	}
	return k.cfg.Store.Update(ctx, api.Update{Key: k.own.Key, Value: value, Revision: k.own.Revision})
}
