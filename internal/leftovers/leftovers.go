// Package leftovers takes out of the kernel what an upstream agent left there, while our own agent's policy is in force.
//
// In: [doctor.Facts] of this host, freshly read, and the network namespace of the calling thread. Out: a kernel without
// them, and a line for each thing that was done or is kept.
//
// Nothing opens and nothing closes while this goes on: our table decides for itself, before, during and after; of theirs,
// first goes what decides, then what it refers to. A route goes only where one of ours leads to the same. Whatever is
// interrupted goes on when it is called again.
package leftovers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/kernel/ipset"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/xtables"
)

// Config is what Remove needs.
type Config struct {
	Facts *doctor.Facts // with no obstacles
	Force bool          // go on although a chain's policy drops what the agent's rules accepted
	Say   func(string)  // gets each line
}

// Remove does it. What fails is said in the error, and the rest is done nevertheless.
func Remove(ctx context.Context, cfg Config) error {
	left := cfg.Facts.Leftovers()
	plans, unread := plan(ctx, left)
	if len(unread) > 0 {
		return errors.Join(unread...)
	}
	if !cfg.Force {
		if err := closing(plans); err != nil {
			return err
		}
	}
	var errs []error
	for _, p := range plans {
		errs = append(errs, p.apply(ctx, cfg.Say))
	}
	errs = append(errs, dropTables(left.Tables, cfg.Say), dropSets(left.Sets, cfg.Say))
	h, err := rtnl.Open()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer h.Close()
	kept, err := dropRoutes(h, cfg, left.Routes)
	return errors.Join(append(errs, err, dropLinks(h, left.Links, kept, cfg.Say))...)
}

// unhooking is what is to be done in one backend, for one family.
type unhooking struct {
	backend xtables.Backend
	family  xtables.Family
	doctor.Unhooking
	batch *nftables.Batch // in place of the text, where somebody's rules keep iptables from reading the tables
}

func (u unhooking) name() string {
	return fmt.Sprintf("iptables-%s (%s)", u.backend, map[xtables.Family]string{xtables.IPv4: "IPv4", xtables.IPv6: "IPv6"}[u.family])
}

// plan reads the tables that have chains of the agent. Of a backend whose rules cannot be read, unread says why.
func plan(ctx context.Context, left doctor.Leftovers) (out []unhooking, unread []error) {
	for _, b := range []xtables.Backend{xtables.Legacy, xtables.NFT} {
		for _, f := range []xtables.Family{xtables.IPv4, xtables.IPv6} {
			if !has(left.Chains, b, f) {
				continue
			}
			u := unhooking{backend: b, family: f}
			if err := u.read(ctx); err != nil {
				unread = append(unread, fmt.Errorf("%s: %w", u.name(), err))
			} else if u.Text != "" || u.batch != nil {
				out = append(out, u)
			}
		}
	}
	return out, unread
}

// read reads the tables by iptables, which knows each of its rules. Where others have rules in them that it cannot express (Tailscale and firewalls
// have such ones, made with nft), it reads nothing; then by netlink, which sees whose a rule is by where it leads and by its comment.
func (u *unhooking) read(ctx context.Context) error {
	saved, err := xtables.Save(ctx, u.backend, u.family)
	if err == nil {
		u.Unhooking = doctor.Unhook(saved)
		return nil
	}
	if u.backend != xtables.NFT || !errors.Is(err, xtables.ErrNotIPTables) {
		return err
	}
	c, err := nftables.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	found, err := c.Unhook(nftables.FamilyOf(string(u.family)), xtables.Tables, doctor.IsUpstreamChain, doctor.IsUpstreamComment)
	if err != nil {
		return err
	}
	u.Unhooking = doctor.Unhooking{Chains: found.Chains, Rules: found.Rules, Drops: found.Drops}
	u.batch = found.Batch
	return nil
}

// Drops are the chains of the host that drop what no rule accepts, and in which rules of the agent are: what these accept will be dropped
// when they go. Of a backend whose rules cannot be seen, unseen says why. Nothing is changed.
func Drops(ctx context.Context, left doctor.Leftovers) (drops, unseen []string) {
	plans, unread := plan(ctx, left)
	for _, err := range unread {
		unseen = append(unseen, err.Error())
	}
	return dropping(plans), unseen
}

// dropping are the chains of [Drops].
func dropping(plans []unhooking) (chains []string) {
	for _, p := range plans {
		for _, c := range p.Drops {
			chains = append(chains, c+" in "+p.name())
		}
	}
	return chains
}

func has(chains []doctor.Chain, b xtables.Backend, f xtables.Family) bool {
	for _, c := range chains {
		if c.Legacy == (b == xtables.Legacy) && c.Family == string(f) {
			return true
		}
	}
	return false
}

// closing is why the host would drop what passes now; nil: it would not.
func closing(plans []unhooking) error {
	chains := dropping(plans)
	if len(chains) == 0 {
		return nil
	}
	return fmt.Errorf("the policy of chain %s is DROP, and rules of the upstream agent are there that accept what it would drop: accept workloads' packets by rules of your own, "+
		"or set the policy to ACCEPT, and repeat this with --force", strings.Join(chains, ", "))
}

func (u unhooking) apply(ctx context.Context, say func(string)) error {
	if err := u.write(ctx); err != nil {
		return fmt.Errorf("%s: %w", u.name(), err)
	}
	say(fmt.Sprintf("%s: %s, and %s in chains of others", u.name(), doctor.Counted(u.Chains, "chain"), doctor.Counted(u.Rules, "rule")))
	return nil
}

func (u unhooking) write(ctx context.Context) error {
	if u.batch == nil {
		return xtables.Restore(ctx, u.backend, u.family, u.Text)
	}
	c, err := nftables.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Commit(u.batch)
}

// dropTables deletes the agent's own tables of nftables, so that none drops anything while it goes.
func dropTables(tables []doctor.Table, say func(string)) error {
	if len(tables) == 0 {
		return nil
	}
	c, err := nftables.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	var errs []error
	for _, t := range tables {
		if err := c.Dissolve(nftables.FamilyOf(t.Family), t.Name); err != nil {
			errs = append(errs, fmt.Errorf("nftables table %s %s: %w", t.Family, t.Name, err))
			continue
		}
		say(fmt.Sprintf("nftables: table %s %s", t.Family, t.Name))
	}
	return errors.Join(errs...)
}

func dropSets(sets []string, say func(string)) error {
	var errs []error
	gone := 0
	for _, name := range sets {
		if err := ipset.Destroy(name); err != nil {
			errs = append(errs, err)
			continue
		}
		gone++
	}
	if gone > 0 {
		say(fmt.Sprintf("ipset: %d sets", gone))
	}
	return errors.Join(errs...)
}

// dropRoutes deletes the routes that are not needed, and returns the interfaces of those that are.
func dropRoutes(h *rtnl.Handle, cfg Config, routes []doctor.Route) (kept map[string]bool, err error) {
	links, err := h.Links()
	if err != nil {
		return nil, err
	}
	index := map[string]int{}
	for _, l := range links {
		index[l.Name] = l.Index
	}
	kept = map[string]bool{}
	var errs []error
	for _, r := range routes {
		if cfg.Facts.Needed(r) {
			kept[r.Link] = true
			errs = append(errs, fmt.Errorf("route %s stays: none of ours leads there (twill bgp routes; if nobody is there any more: ip route del %s)", r, r))
			continue
		}
		del := rtnl.Route{Dst: r.Dst, Gateway: r.Gateway, Protocol: r.Protocol, Metric: r.Metric, Link: index[r.Link]}
		if r.Blackhole {
			del.Kind, del.Link = rtnl.Blackhole, 0
		}
		if err := h.DeleteRoute(del); err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			errs = append(errs, err)
			continue
		}
		cfg.Say("route " + r.String())
	}
	return kept, errors.Join(errs...)
}

// dropLinks deletes the tunnels through which nothing goes any more. Tunl0 is the kernel's: it is left bare, and down.
func dropLinks(h *rtnl.Handle, names []string, kept map[string]bool, say func(string)) error {
	var errs []error
	for _, name := range names {
		if kept[name] {
			errs = append(errs, fmt.Errorf("device %s stays: routes through it do", name))
			continue
		}
		l, err := h.Link(name)
		if errors.Is(err, rtnl.ErrNotFound) {
			continue // its peer went, and it with it
		}
		if err == nil && name == "tunl0" {
			err = h.Bare(l.Index)
		} else if err == nil {
			err = h.DeleteLink(l.Index)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("device %s: %w", name, err))
			continue
		}
		say("device " + name)
	}
	return errors.Join(errs...)
}
