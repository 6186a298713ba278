package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

// table is the name of the agent's nftables table.
const table = "twill"

// Boot makes a host that has just started closed: an interface of a workload
// carries nothing until an agent has programmed it. It needs no datastore, and
// changes nothing if a table is there already; an agent takes this one over in
// its first transaction.
func Boot(ctx context.Context, cfg Config) (done bool, err error) {
	d, err := openDoors()
	if err != nil {
		return false, fmt.Errorf("open the kernel's doors (are you root?): %w", err)
	}
	defer d.close()
	tables, err := d.nft.ListTables()
	if err != nil || slices.Contains(tables, table) {
		return false, err
	}
	driver := nft.New(d.nft, nft.Config{})
	driver.Merge(calc.New(cfg.Node, cfg.Local...).Flush())
	_, err = driver.Apply(ctx)
	return err == nil, err
}

// Found are settings of the host as a whole that an agent changes, by path below /proc/sys/net.
func Found() (map[string]string, error) {
	d, err := openDoors()
	if err != nil {
		return nil, fmt.Errorf("open the kernel's doors (are you root?): %w", err)
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

// Leave takes out of the kernel what an agent put there, and gives back the
// settings that were found. Interfaces of workloads stay, and what is theirs.
// It says what it did.
func Leave(ctx context.Context, found map[string]string) (did []string, err error) {
	d, err := openDoors()
	if err != nil {
		return nil, fmt.Errorf("open the kernel's doors (are you root?): %w", err)
	}
	defer d.close()
	// First the ways, then what guards them.
	routes, err := d.leaveRoutes(ctx)
	did = append(did, routes...)
	settings, serr := d.giveBack(found)
	did = append(did, settings...)
	if err = errors.Join(err, serr); err != nil {
		return did, err
	}
	tables, err := d.nft.ListTables()
	if err != nil || !slices.Contains(tables, table) {
		return did, err
	}
	b := nftables.NewBatch()
	b.DeleteTable(table)
	if err := d.nft.Commit(b); err != nil {
		return did, err
	}
	return append(did, "nftables table inet "+table+" is deleted"), nil
}

func (d doors) leaveRoutes(ctx context.Context) (did []string, err error) {
	routes, err := d.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolAgent})
	learned, lerr := d.rtnl.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolSpeaker})
	err = errors.Join(err, lerr)
	for _, r := range learned {
		if r.Metric == kernel.RouteMetricSpeaker || r.Metric == kernel.RouteMetricSpeakerNext { // else another speaker's
			routes = append(routes, r)
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

func (d doors) giveBack(found map[string]string) (did []string, err error) {
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
