// Package proxy has the host answer, on its own links, for floating addresses of its workloads and, if settings ask for it, for their own.
//
// In: workload endpoints, their routes and settings of [intent.Batch], interfaces of ifmon, and from the loop which policy is in force (Gate).
// Out: a proxy entry for each such address on each link of the host whose network has it, so that hosts of that network which have no route
// to it find it by ARP and neighbour discovery; an announcement when it is new there, and of workloads' own addresses again with each reading; an
// [intent.Outcome] for each endpoint that has or had one.
//
// A machine that is about to come from another host is not answered for: until it is here, that host is.
//
// Ours are the entries with the agent's protocol. Nothing is removed before the source is in sync. A link with an entry of IPv6 has proxy_ndp on; it
// stays on, and means nothing without entries.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/probe"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

// Driver is the driver.
type Driver struct {
	rtnl      *rtnl.Handle
	sysctl    *sysctl.Handle
	workloads map[intent.EndpointID]intent.Endpoint // all
	asking    map[intent.EndpointID]ask             // of those of them that the host may answer for
	coming    map[netip.Prefix][]string             // interfaces of machines that are still on another host, by destination
	subnet    intent.LocalSubnet
	links     map[string]ifmon.Link
	prefixes  []string                   // of names of workloads' interfaces
	news      map[intent.EndpointID]bool // whose outcome is to be reported
	made      map[rtnl.Proxy]bool        // since the agent began, and still wanted

	ready, inSync, failed bool
	held                  func(link string) bool
	check                 intent.Cause // why the kernel must be read; empty: it need not
	again                 bool         // workloads' own addresses are to be announced again
	repairs               []intent.Repair
	refresh               time.Duration
	settled               bool // refresh is known
}

// ask is what the host may answer for on behalf of an endpoint.
type ask struct {
	link        string
	floats, own []netip.Addr
}

func (a ask) none() bool { return len(a.floats)+len(a.own) == 0 }

func (a ask) equal(o ask) bool {
	return a.link == o.link && slices.Equal(a.floats, o.floats) && slices.Equal(a.own, o.own)
}

// changed is the cause of a reading after which what differs is no repair.
const changed intent.Cause = "change"

// New returns a driver for the namespace of the handles.
func New(h *rtnl.Handle, s *sysctl.Handle) *Driver {
	return &Driver{
		rtnl: h, sysctl: s, workloads: map[intent.EndpointID]intent.Endpoint{}, asking: map[intent.EndpointID]ask{}, coming: map[netip.Prefix][]string{}, links: map[string]ifmon.Link{},
		prefixes: []string{"cali"}, news: map[intent.EndpointID]bool{}, made: map[rtnl.Proxy]bool{}, check: changed, held: func(string) bool { return false },
	}
}

// Merge merges a batch.
func (d *Driver) Merge(b intent.Batch) {
	if b.InSync && !d.inSync {
		d.inSync, d.check = true, changed
	}
	all := false // endpoints must be looked at
	if b.Host != nil {
		d.refresh, d.settled = b.Host.Refresh.Routes, true
		if b.Host.Prefixes != nil && !slices.Equal(d.prefixes, b.Host.Prefixes) {
			d.prefixes, d.check = b.Host.Prefixes, changed
		}
		all, d.subnet = !d.subnet.Equal(b.Host.LocalSubnet), b.Host.LocalSubnet
	}
	for _, r := range b.Routes {
		all = d.comes(r.Dst, r.Coming()) || all
	}
	for _, e := range b.Endpoints {
		if e.ID.Kind == intent.Workload {
			d.workloads[e.ID] = e
			d.look(e.ID)
		}
	}
	for _, k := range b.Removed {
		switch id := k.(type) {
		case intent.RouteID:
			all = d.comes(id.Prefix, nil) || all
		case intent.EndpointID:
			delete(d.workloads, id)
			d.look(id)
			delete(d.news, id)
		}
	}
	if all {
		for id := range d.workloads {
			d.look(id)
		}
	}
}

// comes notes behind which interfaces a destination is a machine's that is still on another host, and reports whether that is new.
func (d *Driver) comes(to netip.Prefix, links []string) bool {
	if slices.Equal(d.coming[to], links) {
		return false
	}
	if d.coming[to] = links; len(links) == 0 {
		delete(d.coming, to)
	}
	return true
}

// look notes what the host may answer for on behalf of an endpoint now.
func (d *Driver) look(id intent.EndpointID) {
	e, there := d.workloads[id]
	is := ask{link: e.Link}
	if e.Link != "" {
		for _, n := range e.NATs {
			is.floats = append(is.floats, n.External)
		}
		for _, a := range e.Addrs {
			if e.Closed == "" && d.subnet.Has(a) && !slices.Contains(d.coming[netip.PrefixFrom(a, a.BitLen())], e.Link) {
				is.own = append(is.own, a)
			}
		}
	}
	was, had := d.asking[id]
	if is.none() && !had || had && was.equal(is) {
		return
	}
	if d.asking[id] = is; is.none() {
		delete(d.asking, id)
	}
	if d.check = changed; there {
		d.news[id] = true
	}
}

// Links takes interfaces that changed: the host may be in another network, or a workload's interface gone.
func (d *Driver) Links(changes []ifmon.Change) {
	for _, c := range changes {
		if delete(d.links, c.Name); !c.Gone {
			d.links[c.Name] = c.Link
		}
	}
	if len(d.asking) > 0 {
		d.check = changed
	}
}

// Gate takes which policy is in force: no address is answered for before that of its workload is.
func (d *Driver) Gate(ready bool, held func(link string) bool) {
	d.ready, d.held = ready, held
	if len(d.asking) > 0 {
		d.check = changed
	}
}

// Retry has what failed tried again.
func (d *Driver) Retry() {
	if d.failed && d.check == "" {
		d.check = changed
	}
}

// Resync has the entries read back with the next Apply.
func (d *Driver) Resync(context.Context) error {
	if d.check == "" {
		d.check = intent.ByReadBack
	}
	d.again = d.subnet.Again > 0
	return nil
}

// Refresh returns how often the settings want that, or the announcements that come with it; false: no settings came yet.
func (d *Driver) Refresh() (time.Duration, bool) {
	if again := d.subnet.Again; again > 0 && (d.refresh == 0 || again < d.refresh) {
		return again, d.settled
	}
	return d.refresh, d.settled
}

// Repairs returns what was repaired since the last call.
func (d *Driver) Repairs() []intent.Repair {
	out := d.repairs
	d.repairs = nil
	return out
}

// wanted returns the entries that should be, each with its link and whose address it is.
func (d *Driver) wanted() map[rtnl.Proxy]owner {
	out, workloads := map[rtnl.Proxy]owner{}, map[string]bool{}
	for _, e := range d.workloads {
		workloads[e.Link] = true
	}
	for id, e := range d.asking {
		if !d.links[e.link].Up || !d.ready || d.held(e.link) {
			continue
		}
		for i, a := range slices.Concat(e.floats, e.own) {
			for _, l := range d.links {
				if d.ofHost(l, workloads) && onNetwork(l, a) {
					out[rtnl.Proxy{Link: l.Index, Addr: a}] = owner{id, l, i >= len(e.floats)}
				}
			}
		}
	}
	return out
}

type owner struct {
	id   intent.EndpointID
	link ifmon.Link
	own  bool // it is the workload's own address
}

// onNetwork reports whether a network of an interface has an address, which is not the interface's.
func onNetwork(l ifmon.Link, a netip.Addr) bool {
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return !p.IsSingleIP() && p.Contains(a) }) &&
		!slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
}

// ofHost reports whether an interface leads to other hosts, who ask there for link-layer addresses, and is up.
func (d *Driver) ofHost(l ifmon.Link, workloads map[string]bool) bool {
	return l.Up && l.MAC != "" && l.Name != "lo" && !workloads[l.Name] && !slices.ContainsFunc(d.prefixes, func(p string) bool { return strings.HasPrefix(l.Name, p) })
}

// Apply makes what is wanted.
func (d *Driver) Apply(ctx context.Context) ([]intent.Outcome, error) {
	if d.check == "" {
		return nil, nil
	}
	have, err := d.rtnl.OwnProxies()
	if err != nil {
		return nil, err
	}
	wanted, failed := d.wanted(), map[intent.EndpointID]error{}
	var errs []error
	for p, o := range wanted {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if slices.Contains(have, p) {
			if d.made[p] = true; d.again && o.own {
				errs = append(errs, d.announce(p, o.link))
			}
			continue
		}
		if err := d.add(p, o.link); err != nil && !d.rtnl.Gone(o.link.Name, p.Link) { // the event of one that is gone is still to come
			failed[o.id] = errors.Join(failed[o.id], fmt.Errorf("answer for %s: %w", p.Addr, err))
			d.news[o.id] = true
			continue
		}
		if d.made[p] && d.check != changed {
			d.repairs = append(d.repairs, intent.Repair{What: "proxy for " + p.Addr.String() + " on " + o.link.Name, Cause: d.check})
		}
		d.made[p] = true
	}
	for _, p := range have {
		if _, is := wanted[p]; is || !d.inSync || !d.ready {
			continue
		}
		if err := d.rtnl.DeleteProxy(p); err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			errs = append(errs, err)
		}
		delete(d.made, p)
	}
	d.check, d.again, d.failed = "", false, len(failed) > 0
	out := make([]intent.Outcome, 0, len(d.news))
	for id := range d.news {
		out = append(out, intent.Outcome{Key: id, Err: failed[id]})
	}
	clear(d.news)
	for id := range failed { // reported again when it is mended
		d.news[id] = true
	}
	return out, errors.Join(errs...)
}

// add has the host answer for an address on a link, and says so to the others there: one that has another host's in mind would go on sending to that.
func (d *Driver) add(p rtnl.Proxy, l ifmon.Link) error {
	if p.Addr.Is6() {
		if _, err := d.sysctl.Set("ipv6/conf/"+sysctl.Link(l.Name)+"/proxy_ndp", "1"); err != nil {
			return err
		}
	}
	if err := d.rtnl.SetProxy(p); err != nil {
		return err
	}
	return d.announce(p, l)
}

func (d *Driver) announce(p rtnl.Proxy, l ifmon.Link) error {
	from := netip.Addr{}
	for _, a := range l.Addrs {
		if a.Addr().Is6() && (!from.IsValid() || a.Addr().IsLinkLocalUnicast()) {
			from = a.Addr()
		}
	}
	return d.rtnl.Namespace().Do(func() error { return probe.Announce(probe.Link{Index: l.Index, MAC: l.MAC}, p.Addr, from) })
}

// Differences returns one line for each deviation of the kernel from the intents. It changes nothing.
func (d *Driver) Differences(context.Context) ([]string, error) {
	have, err := d.rtnl.OwnProxies()
	var out []string
	wanted := d.wanted()
	for p, o := range wanted {
		if !slices.Contains(have, p) {
			out = append(out, fmt.Sprintf("proxy for %s on %s is missing", p.Addr, o.link.Name))
		}
	}
	for _, p := range have {
		if _, is := wanted[p]; !is {
			out = append(out, fmt.Sprintf("proxy for %s on link %d is there, and nobody wants it", p.Addr, p.Link))
		}
	}
	slices.Sort(out)
	return out, err
}
