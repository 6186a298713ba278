// Package host makes the host a router for its workloads: it answers for their gateway, and forwards
// packets.
//
// In: workload endpoints of [intent.Batch], interfaces of ifmon, and from the loop which policy is in force (Gate).
// Out: settings and gateway addresses of each workload's interface on the host's side, the two global forwarding
// switches, acceptance of router advertisements by the host's own interfaces, and an [intent.Outcome] for each workload endpoint.
//
// Nothing is done for an interface before its policy is in force, and forwarding is turned on only after the first
// complete policy transaction: after a reboot there is no table until then.
package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

// Config is the driver's settings.
type Config struct {
	// WorkloadPrefixes are prefixes of the names of interfaces that lead to workloads. When forwarding is turned on, other interfaces
	// go on accepting router advertisements if they did before; these never do. Empty means "cali" and "tap".
	WorkloadPrefixes []string
}

// Host is the driver.
type Host struct {
	cfg    Config
	rtnl   *rtnl.Handle
	sysctl *sysctl.Handle

	endpoints map[intent.EndpointID]intent.Endpoint
	byLink    map[string]intent.EndpointID // the endpoint of each interface
	links     map[string]ifmon.Link
	done      map[string]setup        // what was set up, by interface
	before    map[string]found        // the state of interfaces before they were set up
	doubt     map[string]intent.Cause // interfaces that must be checked, with the cause
	hostDoubt intent.Cause            // forwarding must be checked, with the cause
	repairs   []intent.Repair
	notes     chan func()
	refresh   time.Duration
	settled   bool            // refresh is known
	stale     map[string]int  // interfaces, by name to index, that were set up and are not wanted any more
	uplinks   *regexp.Regexp  // names of interfaces that lead to other hosts; nil: not known
	routers   bool            // this host forwards IPv6, and its interfaces accept router advertisements all the same
	coming    map[string]bool // interfaces that came after the first list, and are still to be looked at for that

	ready, inSync, linksSeen bool
	forwarding               bool // is on
	noForwarding, noIPv6     bool // by settings, nothing is forwarded; IPv6 is not
	accounts                 bool // conntrack counts packets and bytes
	held                     func(link string) bool
	news                     map[intent.EndpointID]bool // endpoints to process
	failed                   map[intent.EndpointID]bool // endpoints that were not set up
}

// setup identifies what an interface was set up for.
type setup struct {
	index, downs int
	spoof        bool
}

// New returns a driver for the namespace of the handles.
func New(h *rtnl.Handle, s *sysctl.Handle, cfg Config) *Host {
	if len(cfg.WorkloadPrefixes) == 0 {
		cfg.WorkloadPrefixes = []string{"cali", "tap"}
	}
	return &Host{
		cfg: cfg, rtnl: h, sysctl: s,
		endpoints: map[intent.EndpointID]intent.Endpoint{}, byLink: map[string]intent.EndpointID{}, links: map[string]ifmon.Link{},
		done: map[string]setup{}, before: map[string]found{}, doubt: map[string]intent.Cause{}, notes: make(chan func()), stale: map[string]int{}, coming: map[string]bool{}, news: map[intent.EndpointID]bool{}, failed: map[intent.EndpointID]bool{},
		held: func(string) bool { return false },
	}
}

// configure takes the settings. IPv6 that becomes wanted is enabled everywhere.
func (h *Host) configure(s intent.HostSettings) {
	if h.noIPv6 && !s.NoIPv6 {
		for name := range h.done {
			if id, ok := h.byLink[name]; ok {
				delete(h.done, name)
				h.news[id] = true
			}
		}
	}
	if h.noIPv6 && !s.NoIPv6 || h.noForwarding && !s.NoForwarding || s.ReportAllowed && !h.accounts {
		h.forwarding = false // IPv6 is still to be enabled
	}
	h.noForwarding, h.noIPv6, h.accounts = s.NoForwarding, s.NoIPv6, s.ReportAllowed
	h.uplinks = nil
	if s.MTU.Links != "" {
		h.uplinks, _ = regexp.Compile(s.MTU.Links) // settings refuse what is none
	}
}

// Merge merges a batch.
func (h *Host) Merge(b intent.Batch) {
	h.inSync = h.inSync || b.InSync
	if b.Host != nil {
		h.refresh, h.settled = b.Host.Refresh.Interfaces, true
		h.configure(*b.Host)
		if b.Host.Prefixes != nil {
			h.cfg.WorkloadPrefixes = b.Host.Prefixes
		}
	}
	for _, e := range b.Endpoints {
		if e.ID.Kind != intent.Workload {
			continue
		}
		id := e.ID
		if old, ok := h.endpoints[id]; ok && old.Link != e.Link {
			h.release(old.Link, id)
		}
		if e.Link == "" { // the endpoint was refused, perhaps after it had an interface
			h.forget(id)
			continue
		}
		h.endpoints[id] = e
		h.byLink[e.Link] = id
		h.news[id] = true
	}
	for _, k := range b.Removed {
		id, ofEndpoint := k.(intent.EndpointID)
		if e, ok := h.endpoints[id]; ok && ofEndpoint {
			h.release(e.Link, id)
			h.forget(id)
		}
	}
}

func (h *Host) forget(id intent.EndpointID) {
	delete(h.endpoints, id)
	delete(h.news, id)
	delete(h.failed, id)
}

// release notes that the endpoint no longer has the interface, unless another has it already.
func (h *Host) release(link string, id intent.EndpointID) {
	if h.byLink[link] != id {
		return
	}
	delete(h.byLink, link)
	if s, ok := h.done[link]; ok {
		h.stale[link] = s.index
		delete(h.done, link)
	}
}

// Links takes the changes of interfaces.
func (h *Host) Links(changes []ifmon.Change) {
	first := !h.linksSeen
	h.linksSeen = true
	for _, c := range changes {
		was, known := h.links[c.Name]
		if !first && (!known || was.Index != c.Index) {
			h.coming[c.Name] = true
		}
		if c.Gone {
			delete(h.coming, c.Name)
			delete(h.links, c.Name)
			delete(h.stale, c.Name)
			delete(h.done, c.Name)
			delete(h.before, c.Name)
			delete(h.doubt, c.Name)
		} else {
			h.links[c.Name] = c.Link
		}
		// Addresses matter too: their events show that another process removed a gateway.
		if id, ok := h.byLink[c.Name]; ok {
			h.news[id] = true
			if known && !hasGateways(was, c.Link) {
				h.doubt[c.Name] = intent.ByEvent
			}
		}
	}
}

// hasGateways reports whether the interface kept its gateway addresses.
func hasGateways(was, is ifmon.Link) bool {
	for _, p := range []netip.Prefix{intent.Gateway4, intent.Gateway6} {
		if slices.Contains(was.Addrs, p) && !slices.Contains(is.Addrs, p) {
			return false
		}
	}
	return true
}

// Gate takes which policy is in force.
func (h *Host) Gate(ready bool, held func(link string) bool) {
	if ready && !h.ready {
		for id := range h.endpoints {
			h.news[id] = true
		}
	}
	h.ready, h.held = ready, held
}

// Retry makes Apply process the endpoints that failed.
func (h *Host) Retry() { maps.Copy(h.news, h.failed) }

// Resync makes Apply check everything: few of these settings have events. It also finds interfaces that an
// earlier agent set up for endpoints that are gone.
func (h *Host) Resync(context.Context) error {
	addrs, err := h.rtnl.Addrs()
	if err != nil {
		return err
	}
	links, err := h.rtnl.Links()
	if err != nil {
		return err
	}
	clear(h.stale)
	for _, a := range addrs {
		// By the IPv4 gateway alone: other interfaces, such as Docker's bridge, have fe80::1 too.
		if a.Prefix != intent.Gateway4 || !a.LinkScope {
			continue
		}
		if i := slices.IndexFunc(links, func(l rtnl.Link) bool { return l.Index == a.Link }); i >= 0 {
			h.stale[links[i].Name] = a.Link
		}
	}
	if h.forwarding && h.hostDoubt == "" {
		h.hostDoubt = intent.ByReadBack
	}
	for link := range h.done {
		if h.doubt[link] == "" {
			h.doubt[link] = intent.ByReadBack
		}
	}
	for id := range h.endpoints {
		h.news[id] = true
	}
	return nil
}

// Apply does what is pending.
func (h *Host) Apply(ctx context.Context) ([]intent.Outcome, error) {
	var errs []error
	if h.ready && (!h.forwarding || h.hostDoubt != "") {
		errs = append(errs, h.forward())
	}
	errs = append(errs, h.keepComing(), h.sweep())
	var out []intent.Outcome
	waiting := map[intent.EndpointID]bool{}
	for id := range h.news {
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		o := h.attach(h.endpoints[id])
		o.Key = id
		if o.Reason == notInForce {
			waiting[id] = true
		}
		if delete(h.failed, id); o.Err != nil {
			h.failed[id] = true
		}
		out = append(out, o)
	}
	h.news = waiting // what failed is processed again after Retry
	return out, errors.Join(errs...)
}

const notInForce = "policy is not in force yet"

// attach sets up the interface of one endpoint, if possible.
func (h *Host) attach(e intent.Endpoint) intent.Outcome {
	l, there := h.links[e.Link]
	switch {
	case !there:
		return absent(e.Link)
	case !h.ready || h.held(e.Link):
		return intent.Outcome{Reason: notInForce}
	}
	now := setup{index: l.Index, downs: l.Downs, spoof: len(e.Spoofable) > 0}
	if h.done[e.Link] != now || h.doubt[e.Link] != "" {
		err := h.remember(l)
		var changed []string
		if err == nil {
			changed, err = h.setUp(l, now)
		}
		switch {
		case err != nil && h.rtnl.Gone(e.Link, l.Index): // its event is still to come
			return absent(e.Link)
		case err != nil:
			return intent.Outcome{Err: fmt.Errorf("interface %s: %w", e.Link, err)}
		}
		if h.done[e.Link].index == now.index {
			h.repaired(changed, h.doubt[e.Link])
		}
		h.done[e.Link] = now
		delete(h.doubt, e.Link)
	}
	if !l.Up {
		return intent.Outcome{Reason: fmt.Sprintf("interface %s is down", e.Link)}
	}
	return intent.Outcome{}
}

func absent(link string) intent.Outcome {
	return intent.Outcome{Reason: fmt.Sprintf("interface %s is absent", link)}
}

// sweep undoes the set-up of interfaces without an endpoint.
func (h *Host) sweep() error {
	if !h.inSync || !h.linksSeen {
		return nil
	}
	var errs []error
	for name, index := range h.stale {
		if _, wanted := h.byLink[name]; !wanted {
			if err := h.undo(name, index); err != nil {
				errs = append(errs, fmt.Errorf("interface %s: %w", name, err))
				continue
			}
		}
		delete(h.stale, name)
	}
	return errors.Join(errs...)
}

// workloads reports whether an interface leads to a workload, by its endpoint or its name.
func (h *Host) workloads(name string) bool {
	_, ours := h.byLink[name]
	return ours || slices.ContainsFunc(h.cfg.WorkloadPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
