package tunnel

import (
	"fmt"

	"github.com/twillnet/twill/internal/kernel/sysctl"
)

// sourcesOf is the setting by which IPv4 takes from a device what it would not send there.
func sourcesOf(v *device) string { return "ipv4/conf/" + sysctl.Link(v.name) + "/rp_filter" }

// loose is its value that asks only for any way back (ip-sysctl). It is stronger than that of all devices, if that is strict.
const loose = "2"

// loosen has a device take what comes from hosts to which this one has another way: what they send from their own addresses, which are reached
// without a tunnel, and what their workloads send while the two hosts do not agree on the mode, or on whether they are on one network; through WireGuard, of
// hosts that are answered in clear. Who may send through a device, the stages before it say (input-vxlan, that of IPIP), and keys.
func (d *Driver) loosen(v *device) error {
	if d.cfg.Sysctl == nil || !v.want.Host.Is4() {
		return nil
	}
	_, err := d.cfg.Sysctl.Set(sourcesOf(v), loose)
	return err
}

// strict says that a device takes less.
func (d *Driver) strict(v *device) []string {
	if d.cfg.Sysctl == nil || !v.want.Host.Is4() {
		return nil
	}
	if is, err := d.cfg.Sysctl.Get(sourcesOf(v)); err != nil || is != loose {
		return []string{fmt.Sprintf("%s is %q, not %s", sourcesOf(v), is, loose)}
	}
	return nil
}
