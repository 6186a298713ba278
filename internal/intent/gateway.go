package intent

import "net/netip"

// The gateways that workloads have as their default route. They are addresses of each workload's interface on the host, of link
// scope: proxy ARP would answer only where a route through another link covers the gateway, and so not on a host
// without a default route.
var (
	Gateway4 = netip.MustParsePrefix("169.254.1.1/32")
	Gateway6 = netip.MustParsePrefix("fe80::1/64")
)
