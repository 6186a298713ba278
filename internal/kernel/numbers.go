package kernel

import "net/netip"

// TableName is the nftables table that is ours; whatever is in it and not wanted is swept.
const TableName = "twill"

// Sets of the table, of names of interfaces: those that are workloads' and whose policy is in force, those that carry
// nothing, and those whose established flows are decided about again.
const (
	SetWorkloads = "wl-links"
	SetClosed    = "wl-closed"
	SetRecheck   = "wl-recheck"
)

// SetCodes is the set of the table that counts packets by the code that decided about them, where policy is look-ups.
const SetCodes = "code-count"

// Bits of the packet mark, as they are where no setting says otherwise: [Marks] has those of another mask. All are within MarkMask; bits outside
// belong to others and are kept as they are.
const (
	MarkMask uint32 = 0xffff0000

	// MarkAllowed: a policy or profile allowed the packet; the chain that asked reads it after the jump returns.
	MarkAllowed uint32 = 0x00010000
	// MarkPassed: a policy said pass; the rest of the tier is skipped.
	MarkPassed uint32 = 0x00020000
	// MarkScratch0 and MarkScratch1 live within one rule sequence, and mean nothing after it.
	MarkScratch0 uint32 = 0x00040000
	MarkScratch1 uint32 = 0x00080000
	// MarkKept is these four together: the priority of a packet that the host sends, while its policy is looked up.
	MarkKept uint32 = 0x000f0000
	// MarkUntracked: an untracked policy allowed the packet, so it has no conntrack state to look at.
	MarkUntracked uint32 = 0x40000000
	// MarkHostPassed: an early stage allowed the packet in; the inbound stages of host endpoints are not asked again.
	MarkHostPassed uint32 = 0x80000000
	// MarkEncrypted: a WireGuard device sends the packet to another host; the rule that leads packets into such devices leaves it alone.
	MarkEncrypted uint32 = 0x00100000
)

// Bits of the conntrack mark, within ConntrackMask.
const (
	ConntrackMask uint32 = 0xffff0000

	// ConntrackRevoked: the policy that allowed the flow no longer does; the stages of workloads drop it before they accept
	// established flows. Set by ctnetlink with this mask, so that the other bits stay.
	ConntrackRevoked uint32 = 0x00010000
	// ConntrackFloating: the flow was begun to a floating address. If that is not the workload's any more, the flow is deleted.
	ConntrackFloating uint32 = 0x00020000
)

// Route protocol numbers: a route is ours if, and only if, it bears one of these.
const (
	RouteProtocolAgent   = 80  // also upstream's agent's: taking over works, running side by side does not
	RouteProtocolHosts   = 81  // the agent's to other hosts; a number apart, so that no speaker advertises them, and upstream's are not taken for ours
	RouteProtocolSpeaker = 186 // RTPROT_BGP: routes learned by the BGP speaker
	RouteProtocolKernel  = 2   // RTPROT_KERNEL: made by the kernel itself
	RouteProtocolBIRD    = 12  // RTPROT_BIRD: routes learned by a BIRD in its place, if they have RouteMetricBIRD
)

// Route metrics differ, so that the two never replace each other's route: IPv4 keys on (destination, tos, metric).
const (
	RouteMetricAgent    = 0         // the kernel's default; for IPv6 the kernel turns 0 into 1024
	RouteMetricDefault6 = 1024      // what the kernel makes of 0 in IPv6
	RouteMetricHosts    = 512       // to other hosts: before the speaker's, which may have learned the same
	RouteMetricsOfHosts = 512       // how many metrics there are for these in IPv4, see HostsMetric
	RouteMetricNoWay    = 1<<31 - 1 // to other hosts to which no interface leads: behind whatever others learned of the same
	RouteMetricSpeaker  = 2048
	// RouteMetricSpeakerNext takes turns with RouteMetricSpeaker when a learned route changes: the new one is there
	// before the old one goes.
	RouteMetricSpeakerNext = 2049
	// RouteMetricBIRD is another, so that the routes of both are there while a host goes from one to the other.
	RouteMetricBIRD = 2050
)

// HostsMetric is the metric of routes to other hosts by a next hop; the zero address: there is none.
//
// IPv4 keeps the ways of routes in chains by device, metric, protocol and source, whatever the gateway is, and each new one goes through its
// chain. So ways by many gateways have many metrics. Which one says nothing: there is one such route to a destination.
func HostsMetric(via netip.Addr) int {
	if !via.Is4() {
		return RouteMetricHosts
	}
	const golden = 0x9e3779b1 // 2^32 by the golden ratio: addresses that follow each other, or a step apart, are spread evenly
	a := via.As4()
	spread := (uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])) * golden
	return RouteMetricHosts + int(spread>>(32-9))%RouteMetricsOfHosts
}

// RouteProtocolPriority is of learned routes with a priority of their own, which is their metric: so it takes a protocol to know them.
const RouteProtocolPriority = 82

// SpeakerRoute reports whether a route of table main with this protocol and metric is the BGP speaker's.
func SpeakerRoute(protocol, metric int) bool {
	return protocol == RouteProtocolPriority || protocol == RouteProtocolSpeaker && (metric == RouteMetricSpeaker || metric == RouteMetricSpeakerNext)
}

// TunnelAlias is the alias of the agent's tunnel devices; upstream's have the same names.
const TunnelAlias = "twill tunnel"

// BandwidthAlias begins the alias of devices that hold up what workloads send; the name of the workload's interface follows.
const BandwidthAlias = "twill bandwidth of "

// NFLOG groups.
const (
	NFLogVerdicts uint16 = 801 // verdicts with generation and rule id in the prefix (attribution)
	NFLogUser     uint16 = 802 // what a rule with action Log asked for, for any reader: its prefix is text
	NFLogLogged   uint16 = 803 // the same, for the agent: its prefix is as that of verdicts
)
