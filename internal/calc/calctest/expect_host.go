package calctest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// Ports of a host that no policy closes, as upstream documents failsafeInboundHostPorts and failsafeOutboundHostPorts.
const (
	failsafeIn  = "6:22 17:68 6:179 6:2379 6:2380 17:3784 6:5473 6:6443 6:6666 6:6667"
	failsafeOut = "17:53 17:67 6:179 6:2379 6:2380 17:3784 6:5473 6:6443 6:6666 6:6667"
)

// uplinks are the interfaces that lead to other hosts, as upstream documents mtuIfacePattern.
const uplinks = "^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*)"

// setting is what the node's own configuration says, else that of all.
func setting[T any](x *expected, of func(api.FelixConfigurationSpec) (T, bool), otherwise T) T {
	for _, name := range []string{"node." + x.node, "default"} {
		if spec, known := x.felix[name]; known {
			if v, set := of(spec); set {
				return v
			}
		}
	}
	return otherwise
}

// nonEmpty makes what setting asks for of a field that may be empty.
func nonEmpty(of func(api.FelixConfigurationSpec) string) func(api.FelixConfigurationSpec) (string, bool) {
	return func(s api.FelixConfigurationSpec) (string, bool) { return of(s), of(s) != "" }
}

func flag(of func(api.FelixConfigurationSpec) *bool) func(api.FelixConfigurationSpec) (bool, bool) {
	return func(s api.FelixConfigurationSpec) (bool, bool) { v := of(s); return v != nil && *v, v != nil }
}

// number is a setting that is one.
func (x *expected) number(of func(api.FelixConfigurationSpec) *int, otherwise int) int {
	return setting(x, func(s api.FelixConfigurationSpec) (int, bool) {
		if v := of(s); v != nil {
			return *v, true
		}
		return 0, false
	}, otherwise)
}

// hostLines are what the host does by its settings, by the pools and by all nodes' addresses.
func (x *expected) hostLines() []string {
	prefixes := strings.Split(setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.InterfacePrefix }), "cali"), ",")
	slices.Sort(prefixes)
	return []string{
		"endpoint to host " + setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.DefaultEndpointToHostAction }), "Drop"),
		fmt.Sprint("vxlan ", setting(x, flag(func(s api.FelixConfigurationSpec) *bool { return s.AllowVXLANPacketsFromWorkloads }), false)),
		fmt.Sprint("ipip ", setting(x, flag(func(s api.FelixConfigurationSpec) *bool { return s.AllowIPIPPacketsFromWorkloads }), false)),
		fmt.Sprint("tunnels ", x.number(func(s api.FelixConfigurationSpec) *int { return s.VXLANVNI }, 4096), x.number(func(s api.FelixConfigurationSpec) *int { return s.VXLANPort }, 4789),
			x.number(func(s api.FelixConfigurationSpec) *int { return s.VXLANMTU }, 0), x.number(func(s api.FelixConfigurationSpec) *int { return s.VXLANMTUV6 }, 0),
			x.number(func(s api.FelixConfigurationSpec) *int { return s.IPIPMTU }, 0)),
		fmt.Sprint("sizes by ", setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.MTUIfacePattern }), uplinks), " for ", x.asked(0), x.asked(1), x.asked(ipip), x.asked(wireguard), x.asked(wireguard+1), " of ", x.own()),
		fmt.Sprint("prefixes ", prefixes),
		"failsafe in " + setting(x, ports(func(s api.FelixConfigurationSpec) *[]api.ProtoPort { return s.FailsafeInboundHostPorts }), ordered(failsafeIn)),
		"failsafe out " + setting(x, ports(func(s api.FelixConfigurationSpec) *[]api.ProtoPort { return s.FailsafeOutboundHostPorts }), ordered(failsafeOut)),
		"nat " + x.nat(),
		"metadata " + x.metadata(),
		fmt.Sprint("DNS ", x.openStack()),
		fmt.Sprint("inside ", x.inside()),
		"hosts encrypted " + x.hostsEncrypted(),
		"services " + x.services(),
		"local subnet " + x.localSubnet(),
	}
}

// localSubnet is for which addresses of workloads the host answers on its networks.
func (x *expected) localSubnet() string {
	if setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.LocalSubnetL2Reachability }), "Disabled") == "Disabled" {
		return "[] []"
	}
	pools, except := map[string]bool{}, map[string]bool{}
	for _, p := range x.pools {
		tunnel := func(mode string) bool { return mode != "" && mode != "Never" }
		workloads := len(p.Spec.AllowedUses) == 0 || slices.Contains(p.Spec.AllowedUses, "Workload")
		if !workloads || tunnel(p.Spec.VXLANMode) || tunnel(p.Spec.IPIPMode) {
			continue
		}
		for _, n := range netsOf([]string{p.Spec.CIDR}) {
			pools[n.String()] = true
			for _, node := range x.nodes {
				for _, a := range addressesOf(node) {
					if n.Contains(a.Addr()) {
						except[a.String()] = true
					}
				}
			}
		}
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(pools)), " ", slices.Sorted(maps.Keys(except)))
}

// hostsEncrypted is for which families what hosts send to each other is encrypted, and what of it is not.
func (x *expected) hostsEncrypted() string {
	on := [2]bool{}
	for f := range on {
		on[f] = x.asked(wireguard+f) && x.works(x.node, wireguard+f) && setting(x, flag(func(s api.FelixConfigurationSpec) *bool { return s.WireguardHostEncryptionEnabled }), false)
	}
	if !on[0] && !on[1] {
		return "none"
	}
	text := setting(x, ports(func(s api.FelixConfigurationSpec) *[]api.ProtoPort { return s.FailsafeInboundHostPorts }), ordered(failsafeIn)) + " " +
		setting(x, ports(func(s api.FelixConfigurationSpec) *[]api.ProtoPort { return s.FailsafeOutboundHostPorts }), ordered(failsafeOut))
	text += fmt.Sprintf(" 17:3784 17:4784 17:%d 17:%d", x.number(func(s api.FelixConfigurationSpec) *int { return s.WireguardListeningPort }, 51820), x.number(func(s api.FelixConfigurationSpec) *int { return s.WireguardListeningPortV6 }, 51821))
	words := strings.Fields(text)
	slices.Sort(words)
	return fmt.Sprint(on, " but ", slices.Compact(words))
}

// own are this node's addresses, of IPv4 and of IPv6.
func (x *expected) own() (out [2]string) {
	for f := range out {
		e, _ := x.end(x.node, f)
		out[f] = e.host
	}
	return out
}

func ordered(text string) string {
	words := strings.Fields(text)
	slices.Sort(words)
	return strings.Join(words, " ")
}

func ports(of func(api.FelixConfigurationSpec) *[]api.ProtoPort) func(api.FelixConfigurationSpec) (string, bool) {
	return func(s api.FelixConfigurationSpec) (string, bool) {
		list := of(s)
		if list == nil {
			return "", false
		}
		text := ""
		for _, p := range *list {
			text += fmt.Sprintf(" %d:%d", map[string]int{"TCP": 6, "UDP": 17}[strings.ToUpper(p.Protocol)], p.Port)
			if p.Net != nil {
				text += "@" + *p.Net
			}
		}
		return ordered(text), true
	}
}

// inside is what is of the cluster, if a local endpoint has a DSCP.
func (x *expected) inside() []string {
	if !slices.ContainsFunc(x.locals, func(l expectedLocal) bool { return l.codePoint() != "" }) {
		return []string{}
	}
	out := map[string]bool{}
	for _, p := range x.pools {
		for _, n := range netsOf([]string{p.Spec.CIDR}) {
			out[n.String()] = true
		}
	}
	for _, n := range x.nodes {
		for _, p := range addressesOf(n) {
			out[p.String()] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// openStack reports whether upstream knows the host as one of OpenStack's: by names of workloads' interfaces, or by a server of metadata that is not
// the one that upstream has without settings.
func (x *expected) openStack() bool {
	addr := setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.MetadataAddr }), "127.0.0.1")
	port := x.number(func(s api.FelixConfigurationSpec) *int { return s.MetadataPort }, 8775)
	return x.tap() || addr != "127.0.0.1" && !strings.EqualFold(addr, "none") || port != 8775
}

// tap reports whether names of workloads' interfaces are OpenStack's.
func (x *expected) tap() bool {
	prefixes := setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.InterfacePrefix }), "cali")
	return slices.Contains(strings.Split(prefixes, ","), "tap")
}

// metadata is where requests for metadata go.
func (x *expected) metadata() string {
	otherwise := "none"
	if x.tap() {
		otherwise = "127.0.0.1"
	}
	addr := setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.MetadataAddr }), otherwise)
	if strings.EqualFold(addr, "none") {
		return "none"
	}
	return fmt.Sprintf("%s:%d", addr, x.number(func(s api.FelixConfigurationSpec) *int { return s.MetadataPort }, 8775))
}

// nat is from which pools packets leave with the host's address, for where not, with which address and ports.
func (x *expected) nat() string {
	from, inside := map[string]bool{}, map[string]bool{}
	for _, p := range x.pools {
		for _, n := range netsOf([]string{p.Spec.CIDR}) {
			inside[n.String()] = true
			if p.Spec.NATOutgoing {
				from[n.String()] = true
			}
		}
	}
	if len(from) == 0 {
		return "none"
	}
	if setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.NATOutgoingExclusions }), "") == "IPPoolsAndHostIPs" {
		for _, n := range x.nodes {
			for _, p := range addressesOf(n) {
				inside[p.String()] = true
			}
		}
	}
	addr := setting(x, nonEmpty(func(s api.FelixConfigurationSpec) string { return s.NATOutgoingAddress }), "")
	span := setting(x, func(s api.FelixConfigurationSpec) (string, bool) {
		if s.NATPortRange == nil {
			return "", false
		}
		return fmt.Sprintf("%d:%d", s.NATPortRange.Min, s.NATPortRange.Max), true
	}, "0:0")
	return fmt.Sprint(slices.Sorted(maps.Keys(from)), slices.Sorted(maps.Keys(inside)), " as ", addr, " ", span)
}
