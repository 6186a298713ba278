package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

// setUp sets up the interface for a workload: its gateway answers, and its packets are forwarded. It returns what it changed.
func (h *Host) setUp(l ifmon.Link, s setup) ([]string, error) {
	changed, err := h.sysctl.SetAll(settings4(l.Name, s.spoof))
	if err != nil {
		return nil, err
	}
	if changed, err = h.addGateway(changed, l, intent.Gateway4); err != nil {
		return nil, err
	}
	switch wrote, err := h.sysctl.Set(acceptRA(l.Name).Path, acceptRA(l.Name).Value); {
	case errors.Is(err, sysctl.ErrNotFound): // the kernel has no IPv6
	case err != nil:
		return nil, err
	case wrote:
		changed = append(changed, acceptRA(l.Name).Path)
	}
	on, err := h.hasIPv6(l.Name)
	if err != nil || !on {
		return changed, err
	}
	changed6, err := h.sysctl.SetAll(settings6(l.Name))
	if err != nil {
		return nil, err
	}
	return h.addGateway(append(changed, changed6...), l, intent.Gateway6)
}

func (h *Host) addGateway(changed []string, l ifmon.Link, p netip.Prefix) ([]string, error) {
	switch err := h.rtnl.AddAddr(rtnl.Addr{Link: l.Index, Prefix: p, LinkScope: true}); {
	case errors.Is(err, rtnl.ErrExists):
		return changed, nil
	case err != nil:
		return nil, err
	}
	return append(changed, "address "+p.Addr().String()+" of "+l.Name), nil
}

// settings4 enables forwarding last, after the settings that protect it.
func settings4(link string, spoof bool) []sysctl.Setting {
	conf := "ipv4/conf/" + sysctl.Link(link) + "/"
	strict := "1"
	if spoof { // the policy driver checks sources; rp_filter has no exceptions
		strict = "0"
	}
	return []sysctl.Setting{
		{Path: conf + "rp_filter", Value: strict},
		{Path: conf + "route_localnet", Value: "1"},
		{Path: "ipv4/neigh/" + sysctl.Link(link) + "/proxy_delay", Value: "0"}, // by default an answer may take 0.8 s
		{Path: conf + "proxy_arp", Value: "1"},
		{Path: conf + "forwarding", Value: "1"},
	}
}

func settings6(link string) []sysctl.Setting {
	conf := "ipv6/conf/" + sysctl.Link(link) + "/"
	return []sysctl.Setting{
		acceptRA(link),
		{Path: "ipv6/neigh/" + sysctl.Link(link) + "/proxy_delay", Value: "0"},
		{Path: conf + "proxy_ndp", Value: "1"},
		{Path: conf + "forwarding", Value: "1"},
	}
}

// acceptRA keeps a workload from becoming the host's router, also where settings want no IPv6 of us: the kernel has it all the same.
func acceptRA(link string) sysctl.Setting {
	return sysctl.Setting{Path: "ipv6/conf/" + sysctl.Link(link) + "/accept_ra", Value: "0"}
}

// hasIPv6 reports whether the interface has IPv6: the kernel may lack it, it may be disabled, or settings want none.
func (h *Host) hasIPv6(link string) (bool, error) {
	if h.noIPv6 {
		return false, nil
	}
	off, err := h.sysctl.Get("ipv6/conf/" + sysctl.Link(link) + "/disable_ipv6")
	if errors.Is(err, sysctl.ErrNotFound) {
		return false, nil
	}
	return err == nil && off == "0", err
}

// found are the settings of an interface, by path, before it was set up.
type found struct {
	index    int
	settings map[string]string
}

// remember records the settings of an interface, once. One that has our gateway was set up by an earlier agent: its settings
// from before are not known.
func (h *Host) remember(l ifmon.Link) error {
	if h.before[l.Name].index == l.Index || slices.Contains(l.Addrs, intent.Gateway4) {
		return nil
	}
	f := found{l.Index, map[string]string{}}
	for _, s := range append(settings4(l.Name, false), settings6(l.Name)...) {
		switch is, err := h.sysctl.Get(s.Path); {
		case errors.Is(err, sysctl.ErrNotFound):
		case err != nil:
			return err
		case is != s.Value:
			f.settings[s.Path] = is
		}
	}
	h.before[l.Name] = f
	return nil
}

// undo removes the gateways and the proxy settings. Forwarding stays: policy decides what it carries. An interface that is no
// workload's any more gets the rest of its settings back, too; of others it is safer not to.
func (h *Host) undo(link string, index int) error {
	for _, a := range []rtnl.Addr{{Link: index, Prefix: intent.Gateway4}, {Link: index, Prefix: intent.Gateway6}} {
		if err := h.rtnl.DeleteAddr(a); err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			return err
		}
	}
	name := sysctl.Link(link)
	settings := []sysctl.Setting{
		{Path: "ipv4/conf/" + name + "/proxy_arp", Value: "0"}, {Path: "ipv4/conf/" + name + "/route_localnet", Value: "0"}, {Path: "ipv6/conf/" + name + "/proxy_ndp", Value: "0"},
	}
	if !h.workloads(link) {
		own, err := h.own(name, index)
		if err != nil {
			return err
		}
		settings = append(settings, own...)
	}
	for _, s := range settings {
		if _, err := h.sysctl.Set(s.Path, s.Value); err != nil && !errors.Is(err, sysctl.ErrNotFound) {
			return err
		}
	}
	if h.before[link].index == index {
		delete(h.before, link)
	}
	return nil
}

// own returns an interface's settings from before or, if an earlier agent changed them, the kernel's defaults for new interfaces.
// Whether it accepted router advertisements is then not known: network managers disable that, and process them by themselves.
func (h *Host) own(link string, index int) (out []sysctl.Setting, err error) {
	was := h.before[link]
	known := was.index == index
	for _, p := range []string{"ipv4/conf/%s/proxy_arp", "ipv4/conf/%s/route_localnet", "ipv6/conf/%s/proxy_ndp", "ipv4/conf/%s/rp_filter", "ipv4/neigh/%s/proxy_delay", "ipv6/neigh/%s/proxy_delay"} {
		path := fmt.Sprintf(p, link)
		value, changed := was.settings[path]
		if !changed && !known {
			if value, err = h.sysctl.Get(fmt.Sprintf(p, "default")); errors.Is(err, sysctl.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			changed = true
		}
		if changed {
			out = append(out, sysctl.Setting{Path: path, Value: value})
		}
	}
	path := "ipv6/conf/" + link + "/accept_ra"
	if value, changed := was.settings[path]; changed {
		if on, err := h.sysctl.Get(all6); err == nil && on == "1" && value == "1" {
			value = "2" // see keepRouters
		}
		out = append(out, sysctl.Setting{Path: path, Value: value})
	}
	return out, nil
}

// conntrackAccounts has conntrack count packets and bytes, for readers of flows. It is off by
// default, and never turned off again: other processes may read the counts, too.
const conntrackAccounts = "netfilter/nf_conntrack_acct"

// forward enables forwarding, or enables it again.
func (h *Host) forward() error {
	changed, err := h.turnOnForwarding()
	if h.forwarding {
		h.repaired(changed, h.hostDoubt)
	}
	h.forwarding = err == nil
	if err == nil {
		h.hostDoubt = ""
	}
	return err
}

const (
	all4 = "ipv4/ip_forward"
	all6 = "ipv6/conf/all/forwarding"
)

// turnOnForwarding enables forwarding of both families, unless settings want none. It returns what it changed.
func (h *Host) turnOnForwarding() (changed []string, err error) {
	if h.accounts {
		wrote, err := h.sysctl.Set(conntrackAccounts, "1")
		if err != nil && !errors.Is(err, sysctl.ErrNotFound) { // conntrack is not loaded yet
			return changed, err
		}
		if wrote {
			changed = append(changed, conntrackAccounts)
		}
	}
	if h.noForwarding {
		return changed, nil
	}
	wrote, err := h.sysctl.Set(all4, "1")
	if wrote {
		changed = append(changed, all4)
	}
	if err != nil || h.noIPv6 {
		return changed, err
	}
	switch on, err := h.sysctl.Get(all6); {
	case errors.Is(err, sysctl.ErrNotFound):
		return changed, nil // the kernel has no IPv6
	case err != nil:
		return changed, err
	case on == "1":
		return changed, h.findRouters()
	}
	if err := h.keepRouters(); err != nil {
		return changed, err
	}
	h.routers = true
	_, err = h.sysctl.Set(all6, "1")
	return append(changed, all6), err
}

// joins reports whether an interface is one by which hosts join networks, with their routers: a device, or what is made of devices.
// Others, such as veth, may lead to containers of somebody else's, which must not become the host's routers.
func (h *Host) joins(l rtnl.Link) bool {
	return slices.Contains([]string{"device", "bond", "team", "vlan"}, l.Kind) || h.uplinks != nil && h.uplinks.MatchString(l.Name)
}

// findRouters notes whether this host, which forwards already, accepts router advertisements: an earlier agent left it so. One that somebody made a
// router before Twill came, and that accepts none, is left so.
func (h *Host) findRouters() error {
	links, err := h.sysctl.Links("ipv6/conf")
	if err != nil || h.routers {
		return err
	}
	for _, l := range links {
		if h.workloads(l) {
			continue
		}
		value, err := h.sysctl.Get("ipv6/conf/" + l + "/accept_ra")
		if err != nil && !errors.Is(err, sysctl.ErrNotFound) {
			return err
		}
		h.routers = h.routers || value == "2"
	}
	return nil
}

// keepComing does for interfaces that came after forwarding was turned on what keepRouters does for those that were there before.
func (h *Host) keepComing() error {
	if !h.forwarding {
		return nil
	}
	if !h.routers {
		clear(h.coming)
		return nil
	}
	var errs []error
	for name := range h.coming {
		l, err := h.rtnl.Link(name)
		if err == nil && !h.workloads(name) && h.joins(l) {
			err = h.keepRouter(sysctl.Link(name))
		}
		if err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			errs = append(errs, fmt.Errorf("interface %s: %w", name, err))
			continue
		}
		delete(h.coming, name)
	}
	return errors.Join(errs...)
}

// keepRouters lets the host go on accepting router advertisements: one that forwards ignores them, and deletes the
// default routes that it learned from them, unless accept_ra is 2.
func (h *Host) keepRouters() error {
	links, err := h.sysctl.Links("ipv6/conf")
	if err != nil {
		return err
	}
	for _, l := range links {
		if h.workloads(l) {
			continue
		}
		if err := h.keepRouter(l); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) keepRouter(link string) error {
	path := "ipv6/conf/" + link + "/accept_ra"
	value, err := h.sysctl.Get(path)
	if err == nil && value == "1" {
		_, err = h.sysctl.Set(path, "2")
	}
	if errors.Is(err, sysctl.ErrNotFound) {
		return nil
	}
	return err
}
