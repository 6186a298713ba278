package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/kernel/sysctl"
)

// Run receives the kernel's events for settings until the context ends, so that a change by another process is undone at once. There are
// events for forwarding, rp_filter and proxy_arp; changes of other settings are found by Resync.
func (h *Host) Run(ctx context.Context) error {
	return h.rtnl.Follow(ctx, rtnl.WatchConf, h.notes, func(events []rtnl.Event) func() {
		if len(events) == 0 {
			events = []rtnl.Event{{Conf: &rtnl.Conf{Link: -1}}}
		}
		return func() { h.observe(events) }
	})
}

// Drift returns the channel on which Run passes functions to the loop, which calls them.
func (h *Host) Drift() <-chan func() { return h.notes }

// observe marks for checking what an event shows to differ from the desired state. Our own writes have events too, and show no difference.
func (h *Host) observe(events []rtnl.Event) {
	for _, e := range events {
		c := e.Conf
		if c == nil {
			continue
		}
		name, ours := h.ours(c.Link)
		strict := 1
		if h.done[name].spoof {
			strict = 0
		}
		switch {
		case c.Link == -1 && c.Forwarding != 1 && h.forwarding:
			h.hostDoubt = intent.ByEvent // which also changed the switches of the interfaces
			for name := range h.done {
				h.recheck(name)
			}
		case ours && (wrong(c.Forwarding, 1) || wrong(c.ProxyNeigh, 1) || c.Family == 4 && wrong(c.RPFilter, strict)):
			h.recheck(name)
		}
	}
}

// ours returns the interface that was set up with an index.
func (h *Host) ours(index int) (name string, ok bool) {
	for name, s := range h.done {
		if s.index == index {
			return name, true
		}
	}
	return "", false
}

func wrong(is, want int) bool { return is >= 0 && is != want }

// recheck makes Apply check an interface.
func (h *Host) recheck(link string) {
	h.doubt[link] = intent.ByEvent
	if id, ok := h.byLink[link]; ok {
		h.news[id] = true
	}
}

// repaired records what was repaired; without a cause it was set for the first time.
func (h *Host) repaired(what []string, cause intent.Cause) {
	if cause == "" {
		return
	}
	for _, w := range what {
		h.repairs = append(h.repairs, intent.Repair{What: w, Cause: cause})
	}
}

// Repairs returns what was repaired since the last call.
func (h *Host) Repairs() []intent.Repair {
	out := h.repairs
	h.repairs = nil
	return out
}

// Refresh returns how often the settings want interfaces read back; false: no settings came yet.
func (h *Host) Refresh() (time.Duration, bool) { return h.refresh, h.settled }

// Differences reads the settings of our endpoints' interfaces and returns one line for each that differs from the desired one. It changes
// nothing.
func (h *Host) Differences(context.Context) ([]string, error) {
	addrs, err := h.rtnl.Addrs()
	if err != nil {
		return nil, err
	}
	var want []sysctl.Setting
	if !h.noForwarding {
		want = append(want, sysctl.Setting{Path: all4, Value: "1"})
	}
	if !h.noForwarding && !h.noIPv6 {
		want = append(want, sysctl.Setting{Path: all6, Value: "1"})
	}
	var out []string
	for _, link := range slices.Sorted(maps.Keys(h.byLink)) {
		l, there := h.links[link]
		if !there {
			continue
		}
		want = append(append(want, settings4(link, len(h.endpoints[h.byLink[link]].Spoofable) > 0)...), acceptRA(link))
		gateways := []netip.Prefix{intent.Gateway4}
		on, err := h.hasIPv6(link)
		if err != nil {
			return nil, err
		}
		if on {
			want, gateways = append(want, settings6(link)...), append(gateways, intent.Gateway6)
		}
		for _, p := range gateways {
			if !slices.ContainsFunc(addrs, func(a rtnl.Addr) bool { return a.Link == l.Index && a.Prefix == p }) {
				out = append(out, fmt.Sprintf("address %s of %s is missing", p.Addr(), link))
			}
		}
	}
	for _, s := range want {
		is, err := h.sysctl.Get(s.Path)
		if errors.Is(err, sysctl.ErrNotFound) {
			continue // the kernel has no IPv6, or the interface is gone
		}
		if err != nil {
			return nil, err
		}
		if is != s.Value {
			out = append(out, fmt.Sprintf("%s is %s, want %s", s.Path, is, s.Value))
		}
	}
	return out, nil
}
