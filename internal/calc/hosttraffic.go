package calc

import (
	"cmp"
	"slices"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/intent"
)

// Ports of BFD of one hop and of several (RFC 5881, RFC 5883), whose packets show whether a link carries: they must take it.
const (
	portBFD     = 3784
	portBFDHops = 4784
	protoUDP    = 17
)

// hostsEncrypted is for which families what is for other hosts' own addresses is encrypted: settings want it, and this host's key is published.
func (g *Graph) hostsEncrypted() (out [2]bool) {
	s := g.config.Settings.WireGuard
	for f, k := range []intent.TunnelKind{intent.WireGuard, intent.WireGuard6} {
		out[f] = s.Hosts && s.Enabled[f] && g.reach.Published(k)
	}
	return out
}

// inClear is what must not need a key: what no policy may close, in either direction, so that both hosts say the same of a flow; what WireGuard
// itself sends; and BFD. It is sorted, each once.
func inClear(s config.Settings, hosts [2]bool) (out []intent.Failsafe) {
	if hosts == [2]bool{} {
		return nil
	}
	out = append(failsafes(s.FailsafeIn), failsafes(s.FailsafeOut)...)
	for _, port := range []int{portBFD, portBFDHops, s.WireGuard.Port[0], s.WireGuard.Port[1]} {
		out = append(out, intent.Failsafe{Protocol: protoUDP, Port: uint16(port)})
	}
	slices.SortFunc(out, func(a, b intent.Failsafe) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), a.Net.Addr().Compare(b.Net.Addr()), a.Net.Bits()-b.Net.Bits())
	})
	return slices.Compact(out)
}

func tables(in []config.TableRange) []intent.TableRange {
	out := make([]intent.TableRange, len(in))
	for i, r := range in {
		out[i] = intent.TableRange(r)
	}
	return out
}
