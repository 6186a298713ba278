package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/dataplane/shape"
	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/hostfacts"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

// table is the name of the agent's nftables table.
const table = "twill"

// Boot closes a host that has just started: an interface of a workload
// carries nothing until an agent has programmed it. It needs no datastore, and
// changes nothing if a table is there already; an agent takes this one over in
// its first transaction.
func Boot(ctx context.Context, cfg Config) (done bool, err error) {
	d, err := openKernel()
	if err != nil {
		return false, fmt.Errorf("open netlink (are you root?): %w", err)
	}
	defer d.close()
	tables, err := d.nft.ListTables()
	if err != nil || slices.Contains(tables, table) || d.guarded(slog.New(slog.DiscardHandler)) {
		return false, err
	}
	if d.elsewhere(inNftables) {
		return false, nil
	}
	driver := nft.New(d.nft, nft.Config{})
	driver.Merge(calc.New(cfg.Node, cfg.Local...).Flush())
	_, err = driver.Apply(ctx)
	return err == nil, err
}

// guarded reports whether there is no table of ours, and an upstream agent's rules decide about packets. To close the host
// until the datastore has been read would cut what these allow, without protecting anything that they leave open: the desired state then
// is applied in one transaction, and until then nothing changes.
func (d kernelHandles) guarded(log *slog.Logger) bool {
	tables, err := d.nft.ListTables()
	if err != nil || slices.Contains(tables, table) {
		return false
	}
	h, err := hostfacts.Open()
	if err != nil {
		return false
	}
	defer h.Close()
	var f doctor.Facts
	if err := h.Leftovers(&f); err != nil || !f.Leftovers().Guard() {
		return false
	}
	log.Info("the rules of an upstream agent guard workloads, until the datastore has been read")
	return true
}

// remains reports whether an agent that ran before, ours or upstream's, left routes to workloads.
func (d kernelHandles) remains(s config.Settings) bool {
	routes, err := d.rtnl.Routes(rtnl.RouteFilter{Protocol: cmp.Or(s.Routes.Protocol, kernel.RouteProtocolAgent)})
	return err == nil && len(routes) > 0
}

// Found are settings of the host as a whole that an agent changes, by path below /proc/sys/net.
func Found() (map[string]string, error) {
	d, err := openKernel()
	if err != nil {
		return nil, fmt.Errorf("open netlink (are you root?): %w", err)
	}
	defer d.close()
	links, err := d.sysctl.Links("ipv6/conf")
	if err != nil && !errors.Is(err, sysctl.ErrNotFound) {
		return nil, err
	}
	paths := []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"}
	for _, l := range links {
		paths = append(paths, "ipv6/conf/"+l+"/accept_ra")
	}
	out := map[string]string{}
	for _, p := range paths {
		switch value, err := d.sysctl.Get(p); {
		case errors.Is(err, sysctl.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			out[p] = value
		}
	}
	return out, nil
}

// Leave removes from the kernel what an agent put there, and restores the
// settings that it found. Interfaces of workloads stay, with their settings.
// Where an upstream agent runs already, routes of protocol 80 are its own by
// now, and it needs forwarding: both stay. It says what it did.
func Leave(ctx context.Context, found map[string]string) (did []string, err error) {
	d, err := openKernel()
	if err != nil {
		return nil, fmt.Errorf("open netlink (are you root?): %w", err)
	}
	defer d.close()
	successor, err := upstreamRuns()
	if err != nil {
		return nil, err
	}
	// First the routes, then the rules.
	did, err = d.leaveEncryption()
	routes, rerr := d.leaveRoutes(ctx, successor != "")
	did, err = append(did, routes...), errors.Join(err, rerr)
	if successor == "" {
		settings, serr := d.restoreSettings(found)
		did, err = append(did, settings...), errors.Join(err, serr)
	} else {
		did = append(did, "routes of protocol 80 and forwarding stay: "+successor+" runs here, and has them from now on")
	}
	gone, terr := d.leaveTunnels()
	limits, berr := d.leaveBandwidth(ctx)
	perr := d.leaveProxies()
	chains, cerr := d.leavePolicy(ctx)
	if did, err = slices.Concat(did, gone, limits, chains), errors.Join(err, terr, berr, perr, cerr); err != nil {
		return did, err
	}
	tables, err := d.nft.ListTables()
	if err != nil || !slices.Contains(tables, table) {
		return did, err
	}
	var owned *nftables.OwnedError
	if err := d.nft.Dissolve(nftables.FamilyINet, table); errors.As(err, &owned) {
		return did, fmt.Errorf("%w: stop the agent first", err)
	} else if err != nil {
		return did, err
	}
	return append(did, "nftables table inet "+table+" is deleted"), nil
}

// upstreamRuns names an upstream agent in the namespace of the calling thread; empty: there is none.
func upstreamRuns() (string, error) {
	h, err := hostfacts.Open()
	if err != nil {
		return "", err
	}
	defer h.Close()
	f := doctor.Facts{Processes: h.Processes()}
	return f.UpstreamAgent(), nil
}

// leaveRoutes deletes ours. To other nodes only upstream's agent makes some of protocol 80, with a gateway.
func (d kernelHandles) leaveRoutes(ctx context.Context, successor bool) (did []string, err error) {
	var routes []rtnl.Route
	if !successor {
		routes, err = d.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolAgent})
		routes = slices.DeleteFunc(routes, func(r rtnl.Route) bool { return r.Gateway.IsValid() })
	}
	if !successor && err == nil {
		var named []rtnl.Route
		named, err = d.namedRoutes()
		routes = append(routes, named...)
	}
	hosts, herr := d.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolHosts})
	routes, err = append(routes, hosts...), errors.Join(err, herr)
	for _, protocol := range []int{kernel.RouteProtocolSpeaker, kernel.RouteProtocolPriority} {
		learned, lerr := d.rtnl.Routes(rtnl.RouteFilter{Protocol: protocol})
		err = errors.Join(err, lerr)
		for _, r := range learned {
			if kernel.SpeakerRoute(r.Protocol, r.Metric) { // else another speaker's
				routes = append(routes, r)
			}
		}
	}
	for _, r := range routes {
		if ctx.Err() != nil {
			return did, ctx.Err()
		}
		if e := d.rtnl.DeleteRoute(r); e != nil && !errors.Is(e, rtnl.ErrNotFound) {
			err = errors.Join(err, e)
			continue
		}
		did = append(did, "route "+r.Dst.String()+" is deleted")
	}
	return did, err
}

// namedRoutes are routes to workloads with a protocol that settings had: those to one address through an interface whose name is a
// workload's. Which protocol that was need not be known: nobody else's lead there while an agent runs (removeExternalRoutes).
func (d kernelHandles) namedRoutes() ([]rtnl.Route, error) {
	env, _ := config.FromEnv(os.Environ())
	prefixes := config.New("", env).Resolve().Settings.InterfacePrefixes
	links, err := d.rtnl.Links()
	if err != nil {
		return nil, err
	}
	workloads := map[int]bool{}
	for _, l := range links {
		workloads[l.Index] = slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(l.Name, p) })
	}
	return d.rtnl.Routes(rtnl.RouteFilter{Match: func(r rtnl.Route) bool {
		return r.Protocol > kernel.RouteProtocolKernel && r.Protocol != kernel.RouteProtocolAgent && r.Kind == rtnl.Unicast && r.Dst.IsSingleIP() && !r.Gateway.IsValid() && workloads[r.Link]
	}})
}

// leaveBandwidth lets workloads receive and send what they can.
func (d kernelHandles) leaveBandwidth(ctx context.Context) (did []string, err error) {
	driver := shape.New(d.rtnl)
	driver.Merge(intent.Batch{InSync: true}) // nobody wants a limit
	found, err := driver.Differences(ctx)
	if len(found) == 0 || err != nil {
		return nil, err
	}
	if _, err = driver.Apply(ctx); err != nil {
		return nil, err
	}
	return []string{"limits of bandwidth are removed"}, nil
}

// leaveProxies ends the answers for floating addresses.
func (d kernelHandles) leaveProxies() error {
	ps, err := d.rtnl.OwnProxies()
	for _, p := range ps {
		if e := d.rtnl.DeleteProxy(p); !errors.Is(e, rtnl.ErrNotFound) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// leaveEncryption deletes the rules that lead packets to WireGuard devices, and the routes of the tables to which they lead.
func (d kernelHandles) leaveEncryption() (did []string, err error) {
	rules, _, err := d.rtnl.MarkRules(kernel.RouteProtocolHosts)
	for _, r := range rules {
		if e := d.rtnl.DeleteMarkRule(r, kernel.RouteProtocolHosts); e != nil && !errors.Is(e, rtnl.ErrNotFound) {
			err = errors.Join(err, e)
			continue
		}
		did = append(did, fmt.Sprintf("the rule into table %d is deleted", r.Table))
		routes, e := d.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolHosts, Table: r.Table})
		err = errors.Join(err, e)
		for _, route := range routes {
			if e := d.rtnl.DeleteRoute(route); e != nil && !errors.Is(e, rtnl.ErrNotFound) {
				err = errors.Join(err, e)
			}
		}
	}
	return did, err
}

// leaveTunnels takes our tunnels down.
func (d kernelHandles) leaveTunnels() (did []string, err error) {
	links, err := d.rtnl.Links()
	for _, l := range links {
		if l.Alias != kernel.TunnelAlias {
			continue
		}
		if l.Name == intent.LinkIPIP { // the kernel made it, and it cannot be deleted
			err = errors.Join(err, d.rtnl.Bare(l.Index))
			did = append(did, "device "+l.Name+" is bare and down")
			continue
		}
		if e := d.rtnl.DeleteLink(l.Index); e != nil && !errors.Is(e, rtnl.ErrNotFound) {
			err = errors.Join(err, e)
			continue
		}
		did = append(did, "device "+l.Name+" is deleted")
	}
	return did, err
}

func (d kernelHandles) restoreSettings(found map[string]string) (did []string, err error) {
	var all []sysctl.Setting
	for path, value := range found {
		all = append(all, sysctl.Setting{Path: path, Value: value})
	}
	// Forwarding before what it resets: all/forwarding writes that of each interface, and changes what accept_ra means.
	slices.SortFunc(all, func(a, b sysctl.Setting) int { return len(a.Path) - len(b.Path) })
	for _, s := range all {
		changed, e := d.sysctl.Set(s.Path, s.Value)
		if e != nil && !errors.Is(e, sysctl.ErrNotFound) {
			err = errors.Join(err, e)
		}
		if changed {
			did = append(did, s.Path+" is "+s.Value+" again")
		}
	}
	return did, err
}
