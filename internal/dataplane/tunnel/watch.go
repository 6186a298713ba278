package tunnel

import (
	"context"
	"slices"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// Run receives the kernel's events for rules until the context ends, so that one of this driver's which another process deletes is back at once. Without
// it packets that are to be encrypted go as they are. systemd-networkd deletes all rules that it has not made when it starts, except with
// ManageForeignRoutingPolicyRules=no (networkd.conf(5)).
func (d *Driver) Run(ctx context.Context) error {
	return d.rtnl.Follow(ctx, rtnl.WatchRules, d.notes, func(events []rtnl.Event) func() {
		if len(events) > 0 && !slices.ContainsFunc(events, ownRuleGone) {
			return nil
		}
		return d.lookAtRules
	})
}

// Drift returns the channel on which Run passes functions to the loop, which calls them.
func (d *Driver) Drift() <-chan func() { return d.notes }

func ownRuleGone(e rtnl.Event) bool {
	return e.Rule != nil && e.Gone && e.Rule.Protocol == kernel.RouteProtocolHosts
}

func (d *Driver) lookAtRules() {
	for _, w := range d.wg {
		w.check = true
	}
}
