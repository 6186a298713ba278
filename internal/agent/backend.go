package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/felixbackend"
	"github.com/twillnet/twill/internal/dataplane/iptables"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/dataplane/remote"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/child"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/xtables"
	"github.com/twillnet/twill/internal/logs"
)

// backend is where policy is: a part of the kernel, or the address of a driver in another process, or the path of one that the agent starts, which then has
// all that the drivers for the kernel have else, too.
type backend string

// Backends.
const (
	inNftables backend = "nftables"
	inNFT      backend = "iptables-nft"
	inLegacy   backend = "iptables-legacy"
)

// remote reports whether it is another process.
func (b backend) remote() bool { return b.program() || remote.Address(string(b)) == nil }

// program reports whether that is one that the agent starts.
func (b backend) program() bool { return strings.HasPrefix(string(b), "/") }

// tools are the programs of a backend of iptables.
func (b backend) tools() iptables.Host {
	if b == inLegacy {
		return iptables.Host(xtables.Legacy)
	}
	return iptables.Host(xtables.NFT)
}

// other is the end of an agent whose settings want policy in another backend.
type other backend

func (o other) Error() string { return "policy goes to " + string(o) }

// policyPart is a driver of policy, which needs to know the host's interfaces.
type policyPart interface {
	dataplane.Driver
	dataplane.LinkAware
}

// policy returns the driver of a backend, and the function that receives notifications for it, to be run in a goroutine of its own.
func (d kernelHandles) policy(b backend, cfg Config, prefixes []string, names *attribution.Table, keys func(intent.TunnelKind, string)) (policyPart, func(context.Context) error) {
	if b.program() {
		driver := felixbackend.New(felixbackend.Config{Program: string(b), Node: cfg.Node, Keys: keys, Log: cfg.Log.With("part", "felixbackend")})
		return driver, driver.Run
	}
	if b.remote() {
		driver := remote.New(remote.Config{Address: string(b), Node: cfg.Node, Version: cfg.Version, Log: cfg.Log.With("part", "remote")})
		return driver, driver.Run
	}
	if b == inNftables {
		driver := nft.New(d.nft, nft.Config{Prefixes: prefixes, Names: names, Reader: d.readConn, Recheck: true})
		return driver, func(ctx context.Context) error { return driver.Run(ctx, d.nftEvents) }
	}
	driver := iptables.NewDriver(b.tools(), iptables.Config{Prefixes: prefixes, Names: names})
	if b == inLegacy { // the kernel announces nothing of these tables, and changes of others are not about them
		return driver, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	}
	return driver, func(ctx context.Context) error { return driver.Run(ctx, d.nftEvents) }
}

// present are the backends that have policy of ours.
func (d kernelHandles) present() (out []backend, err error) {
	tables, err := d.nft.ListTables()
	if err != nil {
		return nil, err
	}
	if slices.Contains(tables, table) {
		out = append(out, inNftables)
	}
	chains, err := d.nft.AllChains()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(chains, func(c nftables.FamilyChain) bool { return strings.HasPrefix(c.Family, "ip") && c.Name == iptables.Root }) {
		out = append(out, inNFT)
	}
	legacy, err := xtables.LegacyChains()
	if slices.ContainsFunc(legacy, func(c xtables.Chain) bool { return c.Name == iptables.Root }) {
		out = append(out, inLegacy)
	}
	return out, err
}

// begins is the backend with which an agent begins: the one that has policy of ours, so that what an earlier agent left decides until all is known;
// else the one that settings of this host want, if its programs are installed. One in another process goes before all, also if only the datastore said so,
// to an earlier agent, which left a note: that process may have what is in the kernel.
func (d kernelHandles) begins(s config.Settings, noted backend) (backend, error) {
	there, err := d.present()
	w := d.wanted(s)
	switch {
	case w.remote():
		return w, nil
	case noted.remote():
		return noted, nil
	case slices.Contains(there, w) || err != nil:
		return w, err
	case len(there) > 0:
		return there[0], nil
	case missing(w) != "":
		return inNftables, nil // which needs no programs
	}
	return w, nil
}

// noted is the driver in another process that the note next to a socket names; empty: none.
func noted(socket string) backend {
	if socket == "" {
		return ""
	}
	text, err := os.ReadFile(noteOf(socket))
	if err != nil {
		return ""
	}
	return backend(text)
}

// note leaves that note for the next agent, or takes it away.
func (b backend) note(socket string) error {
	switch {
	case socket == "":
		return nil
	case b.remote():
		return os.WriteFile(noteOf(socket), []byte(b), 0o600)
	}
	if err := os.Remove(noteOf(socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func noteOf(socket string) string { return socket + ".dataplane" }

// elsewhere reports whether policy of ours is in other backends than this one. To close the host in this one until the datastore has been read would cut what
// they allow: it comes into force when all is known.
func (d kernelHandles) elsewhere(b backend) bool {
	there, err := d.present()
	return err == nil && len(there) > 0 && !slices.Contains(there, b)
}

// wanted is the backend that settings want.
func (d kernelHandles) wanted(s config.Settings) backend {
	if there := backend(s.DataplaneDriver); !s.InternalDataplane && there.remote() {
		return there
	}
	if s.Nftables != "Disabled" {
		return inNftables
	}
	switch s.IptablesBackend {
	case "Legacy":
		return inLegacy
	case "NFT":
		return inNFT
	}
	return d.used()
}

// used is the backend of iptables that this host uses: the legacy one if others have chains there and none in that of nft, or if there are no programs of
// the latter.
func (d kernelHandles) used() backend {
	legacy, _ := xtables.LegacyChains()
	legacy = slices.DeleteFunc(legacy, func(c xtables.Chain) bool { return iptables.Own(c.Name) })
	all, _ := d.nft.AllChains()
	inTables := slices.ContainsFunc(all, func(c nftables.FamilyChain) bool {
		return (c.Family == "ip" || c.Family == "ip6") && c.Base == nil && !iptables.Own(c.Name) && slices.Contains([]string{"filter", "nat", "mangle", "raw"}, c.Table)
	})
	if len(legacy) > 0 && !inTables || !xtables.Installed(xtables.NFT) {
		return inLegacy
	}
	return inNFT
}

// parts are the drivers and followers of an agent's loop in the kernel. Where policy is in another process, all else is, too, and it hears
// of established flows itself.
func (b backend) parts(drivers []dataplane.Driver, followers []dataplane.Follower, arrived *arrival) ([]dataplane.Driver, []dataplane.Follower) {
	if b.remote() {
		return nil, []dataplane.Follower{arrived}
	}
	return drivers, append(followers, arrived)
}

// informing returns what passes settings on to a driver that wants them by their names, when they have changed; nil: this one does not.
func informing(policy policyPart, graph *calc.Graph) []func(config.Settings) {
	driver, is := policy.(*felixbackend.Driver)
	if !is {
		return nil
	}
	var last []config.Value
	return []func(config.Settings){func(config.Settings) {
		if values := graph.Settings().Values; !slices.Equal(values, last) { // it is called with each change of anything
			last = values
			driver.Configure(config.Upstream(values))
		}
	}}
}

// choosing returns what ends an agent once settings want another backend than the one that it has. One whose programs are not there is not gone to: policy
// stays where it is, and the log says why.
func (d *calcLoop) choosing(k kernelHandles, has backend, end context.CancelCauseFunc) func(config.Settings) {
	refused, unnamed := "", false
	return func(s config.Settings) {
		want := k.wanted(s)
		if nobody := !s.InternalDataplane && !backend(s.DataplaneDriver).remote(); d.synced && nobody != unnamed {
			if unnamed = nobody; nobody {
				d.log.Error("useInternalDataplaneDriver is false and dataplaneDriver names no driver, so that the agent programs this host itself", "dataplaneDriver", s.DataplaneDriver, "backend", string(want))
			}
		}
		if !d.synced || want == has { // before, that nobody wants another means nothing
			refused = ""
			return
		}
		if why := missing(want); why != "" {
			if why != refused {
				d.log.Error("policy stays in "+string(has), "wanted", string(want), "reason", why)
			}
			refused = why
			return
		}
		end(other(want))
	}
}

// missing says what a backend lacks on this host; empty: nothing.
func missing(b backend) string {
	switch {
	case b.program():
		if err := child.Check(string(b)); err != nil {
			return err.Error()
		}
		return ""
	case b == inNftables, b.remote():
		return ""
	case !xtables.Installed(xtables.Backend(b.tools())):
		return "iptables-restore and ip6tables-restore of backend " + string(b.tools()) + " are not installed: install the package iptables"
	case !iptables.HasSets():
		return "ipset is not installed: install the package ipset"
	}
	return ""
}

// arrival is a [dataplane.Follower] with a channel that it closes when all policy is in force for the first time.
type arrival struct {
	all  chan struct{}
	once sync.Once
}

// InForce implements [dataplane.Follower].
func (a *arrival) InForce(changed intent.Batch, _ bool) {
	if changed.InSync {
		a.once.Do(func() { close(a.all) })
	}
}

// leaveOthers removes what other backends have, once all policy is in force in one. It tries until it succeeds.
func (d kernelHandles) leaveOthers(ctx context.Context, has backend, policy policyPart, arrived *arrival, log *slog.Logger) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-arrived.all:
	}
	if r, is := policy.(*remote.Driver); is && r.Kernel() { // what is there is that driver's
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		there, err := d.present()
		for _, b := range there {
			if b != has && err == nil {
				if err = d.leave(ctx, b); err == nil {
					log.Info("policy is in force, and what another backend had is removed", "now", string(has), "removed", string(b))
				}
			}
		}
		if err == nil {
			<-ctx.Done()
			return ctx.Err()
		}
		log.Error("what another backend of policy has could not be removed, and decides, too", "now", string(has), "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryLeaving):
		}
	}
}

const retryLeaving = 5 * time.Second

// leave removes what a backend has of ours.
func (d kernelHandles) leave(ctx context.Context, b backend) error {
	if b == inNftables {
		return d.nft.Dissolve(nftables.FamilyINet, table)
	}
	driver := iptables.NewDriver(b.tools(), iptables.Config{})
	if err := driver.Clear(ctx); b != inNFT || !errors.Is(err, xtables.ErrNotIPTables) {
		return err
	}
	for _, f := range []nftables.Family{nftables.FamilyIPv4, nftables.FamilyIPv6} {
		own, err := d.nft.Unhook(f, xtables.Tables, iptables.Own, func(comment string) bool { return false })
		if err == nil {
			err = d.nft.Commit(own.Batch)
		}
		if err != nil {
			return err
		}
	}
	return driver.ClearSets(ctx)
}

// Run runs an agent in the network namespace of the calling thread's process. When settings want policy in another backend, it begins anew with that one;
// what the former has decides until all is in force in the latter.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Node == "" {
		return errors.New("agent: no node name; set NODENAME or --node")
	}
	cfg.logs = logs.New(cfg.Log, cfg.JSON, "")
	defer cfg.logs.Close()
	cfg.Log = cfg.logs.Logger()
	for want := backend(""); ; {
		err := run(ctx, cfg, want)
		next, ok := errors.AsType[other](err)
		if !ok {
			return err
		}
		want = backend(next)
		cfg.Log.Info("the agent begins anew, since settings want policy in another part of the kernel", "backend", string(want))
	}
}

// policyComparer is a driver of policy that can say what Apply would change.
type policyComparer interface {
	comparer
	dataplane.LinkAware
}

// policyOf is a driver that compares, and its name: that of the backend which has policy of ours.
func (d kernelHandles) policyOf(socket string) (name string, driver policyComparer, err error) {
	b, err := d.begins(config.Settings{}, noted(socket))
	if err != nil {
		return "", nil, err
	}
	if b.remote() {
		there, err := d.present()
		if !slices.Contains(there, inNftables) {
			return "", nil, cmp.Or(err, fmt.Errorf("what this host should be is programmed by the driver at %s, and nothing of it is in this kernel: only the driver can compare", b))
		}
		b = inNftables
	}
	if b == inNftables {
		return "nft", nft.New(d.nft, nft.Config{Recheck: true}), nil
	}
	return "iptables", iptables.NewDriver(b.tools(), iptables.Config{Names: attribution.New()}), nil
}

// leavePolicy removes policy from all backends but nftables, and says what it did.
func (d kernelHandles) leavePolicy(ctx context.Context) (did []string, err error) {
	there, err := d.present()
	for _, b := range there {
		if b == inNftables {
			continue
		}
		if e := d.leave(ctx, b); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", b, e))
			continue
		}
		did = append(did, "chains and sets of "+string(b)+" are deleted")
	}
	return did, err
}
