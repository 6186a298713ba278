package api

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// validateFelix is apart from Validate because stored settings are judged by it
// too: each bad one gives way to its default.
func validateFelix(r *FelixConfiguration) FieldErrors {
	v := validator{r: r}
	s, name := &r.Spec, r.Metadata.Name
	own := name == "default" || strings.HasPrefix(name, "node.")
	switch {
	case own && s.NodeSelector != "":
		v.fail("spec.nodeSelector", fmt.Sprintf("is not possible in %q, whose name says where it holds", name))
	case !own && s.NodeSelector == "":
		v.fail("spec.nodeSelector", `is missing: only "default" and "node.<name>" need none`)
	}
	v.selector("spec.nodeSelector", s.NodeSelector, false)
	v.anyCase("spec.defaultEndpointToHostAction", s.DefaultEndpointToHostAction, "Drop", "Return", "Accept")
	v.anyCase("spec.chainInsertMode", s.ChainInsertMode, "Insert", "Append")
	v.anyCase("spec.iptablesFilterAllowAction", s.IptablesFilterAllowAction, "Accept", "Return")
	v.anyCase("spec.iptablesMangleAllowAction", s.IptablesMangleAllowAction, "Accept", "Return")
	v.anyCase("spec.iptablesFilterDenyAction", s.IptablesFilterDenyAction, "Drop", "Reject")
	v.anyCase("spec.ipForwarding", s.IPForwarding, Enabled, Disabled)
	v.anyCase("spec.floatingIPs", s.FloatingIPs, Enabled, Disabled)
	v.anyCase("spec.workloadSourceSpoofing", s.WorkloadSourceSpoofing, "Disabled", "Any")
	v.anyCase("spec.localSubnetL2Reachability", s.LocalSubnetL2Reachability, "Disabled", "PodsAndLoadBalancers")
	v.anyCase("spec.serviceLoopPrevention", s.ServiceLoopPrevention, "Drop", "Reject", "Disabled")
	for _, l := range []struct{ path, level string }{
		{"spec.logSeverityScreen", s.LogSeverityScreen}, {"spec.logSeverityFile", s.LogSeverityFile}, {"spec.logSeveritySys", s.LogSeveritySys},
	} {
		v.anyCase(l.path, l.level, "Trace", "Debug", "Info", "Warning", "Error", "Fatal", "None")
	}
	if s.NftablesMode != nil {
		v.anyCase("spec.nftablesMode", *s.NftablesMode, "Enabled", "Disabled", "Auto")
	}
	if s.IptablesBackend != nil {
		v.anyCase("spec.iptablesBackend", *s.IptablesBackend, "Auto", "NFT", "Legacy")
	}
	v.interfaces("spec.interfacePrefix", s.InterfacePrefix)
	v.excluded("spec.interfaceExclude", s.InterfaceExclude)
	v.gateway("spec.natOutgoingAddress", s.NATOutgoingAddress, true)
	v.check("spec.metadataAddr", BadMetadataAddr(s.MetadataAddr))
	v.anyCase("spec.natOutgoingExclusions", s.NATOutgoingExclusions, "IPPoolsOnly", "IPPoolsAndHostIPs")
	if p := s.NATPortRange; p != nil && (p.Name != "" || p.Min == 0 || p.Max < p.Min) {
		v.fail("spec.natPortRange", fmt.Sprintf("is %s: want a range such as 32768:65535", p))
	}
	if name := s.IptablesNATOutgoingInterfaceFilter; name != "" {
		v.interfaces("spec.iptablesNATOutgoingInterfaceFilter", strings.TrimSuffix(name, "+"))
	}
	v.felixNumbers(s)
	v.failsafes("spec.failsafeInboundHostPorts", s.FailsafeInboundHostPorts)
	v.failsafes("spec.failsafeOutboundHostPorts", s.FailsafeOutboundHostPorts)
	return v.errs
}

// BadMetadataAddr says what is wrong with a metadataAddr; empty: nothing. It may be none, or missing. Names are looked up by nobody.
func BadMetadataAddr(text string) string {
	if text == "" || strings.EqualFold(text, "none") {
		return ""
	}
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() || a.As4()[0] == 0 || a.As4()[0] >= 224 { // this network, and what is no unicast (RFC 6890)
		return fmt.Sprintf("is %q: want the IPv4 address of one host, or none", clip(text))
	}
	return ""
}

// maxRegion leaves room for the prefix openstack-region- in a name of at most 63 characters, as upstream has it.
const maxRegion = maxLabel - len("openstack-region-")

// felixWritten holds what is refused in what users write, and is no reason to take a default in its place when it is
// stored: an address at which metrics are served would become all addresses.
func (v *validator) felixWritten(s *FelixConfigurationSpec) {
	if h := s.PrometheusMetricsHost; h != "" && (len(h) > 64 || !only(h, word+":+")) {
		v.fail("spec.prometheusMetricsHost", fmt.Sprintf("is %q: want an address, or a name of at most 64 characters", clip(h)))
	}
	if r := s.OpenstackRegion; r != "" && (len(r) > maxRegion || badLabelName(r) != "") {
		v.fail("spec.openstackRegion", fmt.Sprintf("is %q: want at most %d lower-case letters, digits and dashes, a letter or digit at both ends", clip(r), maxRegion))
	}
	for i, o := range s.HealthTimeoutOverrides {
		path := fmt.Sprintf("spec.healthTimeoutOverrides[%d]", i)
		if o.Name == "" || !only(o.Name, lower+upper+digits+"_ -") {
			v.fail(path+".name", fmt.Sprintf("is %q: want letters, digits, underscores, dashes and spaces", clip(o.Name)))
		}
		v.duration(path+".timeout", &o.Timeout)
	}
}

// maxLogBurst is upstream's.
const maxLogBurst = 9999

var logUnits = map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}

// ParseLogRate reads a FelixConfiguration's logActionRateLimit, such as 100/second: how many packets in which time. "none" is no
// limit: zero, and no time.
func ParseLogRate(text string) (uint32, time.Duration, error) {
	if strings.EqualFold(text, "none") {
		return 0, 0, nil
	}
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 32)
	per, known := logUnits[strings.ToLower(unit)]
	if err != nil || n == 0 || !known {
		return 0, 0, fmt.Errorf("is %q: want a number and a unit, such as 100/second, or none", text)
	}
	return uint32(n), per, nil
}

func (v *validator) felixDurations(s *FelixConfigurationSpec) {
	for _, d := range []struct {
		path string
		text *string
	}{
		{"spec.reportingInterval", s.ReportingInterval},
		{"spec.reportingTTL", s.ReportingTTL},
		{"spec.endpointReportingDelay", s.EndpointReportingDelay},
		{"spec.nftablesRefreshInterval", s.NftablesRefreshInterval},
		{"spec.iptablesRefreshInterval", s.IptablesRefreshInterval},
		{"spec.routeRefreshInterval", s.RouteRefreshInterval},
		{"spec.interfaceRefreshInterval", s.InterfaceRefreshInterval},
		{"spec.ipsetsRefreshInterval", s.IPSetsRefreshInterval},
		{"spec.wireguardKeepAlive", s.WireguardKeepAlive},
		{"spec.liveMigrationRouteConvergenceTime", s.LiveMigrationRouteConvergenceTime},
		{"spec.localSubnetL2ReachabilityRefreshInterval", s.LocalSubnetL2ReachabilityRefreshInterval},
		{"spec.usageReportingInitialDelay", s.UsageReportingInitialDelay},
		{"spec.usageReportingInterval", s.UsageReportingInterval},
	} {
		if d.text != nil && !validDuration(*d.text) {
			v.fail(d.path, fmt.Sprintf("is %q: want a duration such as 90s or 1m30s", *d.text))
		}
	}
}

func (v *validator) felixNumbers(s *FelixConfigurationSpec) {
	v.felixDurations(s)
	if t := s.LogActionRateLimit; t != nil && *t != "" {
		if _, _, err := ParseLogRate(*t); err != nil {
			v.fail("spec.logActionRateLimit", err.Error())
		}
	}
	if n := s.LogActionRateLimitBurst; n != nil && (*n < 1 || *n > maxLogBurst) {
		v.fail("spec.logActionRateLimitBurst", fmt.Sprintf("is %d: want 1 to %d", *n, maxLogBurst))
	}
	for _, n := range []struct {
		path string
		n    *int
		low  int
		high int
	}{
		{"spec.healthPort", s.HealthPort, 0, 65535},
		{"spec.prometheusMetricsPort", s.PrometheusMetricsPort, 0, 65535},
		{"spec.debugPort", s.DebugPort, 0, 65535},
		{"spec.deviceRouteProtocol", s.DeviceRouteProtocol, 1, MaxRouteProtocol},
		{"spec.vxlanPort", s.VXLANPort, 1, 65535},
		{"spec.metadataPort", s.MetadataPort, 1, 65535},
		{"spec.vxlanVNI", s.VXLANVNI, 1, 1<<24 - 1},
		{"spec.ipv4NormalRoutePriority", s.IPv4NormalRoutePriority, 1, MaxRoutePriority},
		{"spec.ipv6NormalRoutePriority", s.IPv6NormalRoutePriority, 1, MaxRoutePriority},
		{"spec.ipv4ElevatedRoutePriority", s.IPv4ElevatedRoutePriority, 1, MaxRoutePriority},
		{"spec.ipv6ElevatedRoutePriority", s.IPv6ElevatedRoutePriority, 1, MaxRoutePriority},
	} {
		v.within(n.path, n.n, n.low, n.high)
	}
	v.felixMTUs(s)
	v.felixRoutes(s)
	v.felixWireGuard(s)
	for _, n := range []struct {
		path string
		n    *int
	}{{"spec.goGCThreshold", s.GoGCThreshold}, {"spec.goMemoryLimitMB", s.GoMemoryLimitMB}, {"spec.goMaxProcs", s.GoMaxProcs}} {
		if n.n != nil && *n.n < -1 {
			v.fail(n.path, fmt.Sprintf("is %d: want a whole number from -1", *n.n))
		}
	}
	for path, m := range map[string]*uint32{"spec.nftablesMarkMask": s.NftablesMarkMask, "spec.iptablesMarkMask": s.IptablesMarkMask} {
		if m == nil {
			continue
		}
		if err := CheckMarkMask(*m); err != nil {
			v.fail(path, err.Error())
		}
	}
}

func (v *validator) felixRoutes(s *FelixConfigurationSpec) {
	if p := s.DeviceRouteProtocol; p != nil && slices.Contains(TakenRouteProtocols, *p) {
		v.fail("spec.deviceRouteProtocol", fmt.Sprintf("is %d, which is of routes that others make: want another than %v", *p, TakenRouteProtocols))
	}
	for path, text := range map[string]*string{"spec.deviceRouteSourceAddress": s.DeviceRouteSourceAddress, "spec.deviceRouteSourceAddressIPv6": s.DeviceRouteSourceAddressIPv6} {
		if text == nil || *text == "" {
			continue
		}
		if a, err := netip.ParseAddr(*text); err != nil || a.Zone() != "" || a.Is4() != (text == s.DeviceRouteSourceAddress) {
			v.fail(path, fmt.Sprintf("is %q: want an address of this family", *text))
		}
	}
	if list := s.ExternalNodesList; list != nil {
		for i, text := range *list {
			if _, err := ParseNet(text); err != nil {
				v.fail(fmt.Sprintf("spec.externalNodesList[%d]", i), err.Error())
				break // a list of many is one problem
			}
		}
	}
	v.anyCase("spec.programClusterRoutes", s.ProgramClusterRoutes, "", EnabledIPIPOnly, Enabled, Disabled, EnabledNoEncapOnly)
}

// ParseNet reads an address, or a CIDR of which only the network counts.
func ParseNet(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("is %q: want an address or a CIDR", text)
	}
	return p.Masked(), nil
}

func (v *validator) felixMTUs(s *FelixConfigurationSpec) {
	for _, n := range []struct {
		path string
		n    *int
		low  int
	}{
		{"spec.vxlanMTU", s.VXLANMTU, MinMTU},
		{"spec.vxlanMTUV6", s.VXLANMTUV6, MinMTUV6},
		{"spec.ipipMTU", s.IPIPMTU, MinMTU},
		{"spec.wireguardMTU", s.WireguardMTU, MinMTU},
		{"spec.wireguardMTUV6", s.WireguardMTUV6, MinMTUV6},
	} {
		if n.n != nil && *n.n != 0 && (*n.n < n.low || *n.n > MaxMTU) {
			v.fail(n.path, fmt.Sprintf("is %d: want 0, or %d to %d", *n.n, n.low, MaxMTU))
		}
	}
	v.pattern("spec.mtuIfacePattern", s.MTUIfacePattern)
	v.pattern("spec.logDebugFilenameRegex", s.LogDebugFilenameRegex)
	v.filePath("spec.logFilePath", s.LogFilePath)
	v.filePath("spec.debugMemoryProfilePath", s.DebugMemoryProfilePath)
	v.filePath("spec.endpointStatusPathPrefix", s.EndpointStatusPathPrefix)
	v.filePath("spec.policySyncPathPrefix", s.PolicySyncPathPrefix)
}

// pattern refuses what is no regular expression of RE2's syntax.
func (v *validator) pattern(path, text string) {
	if _, err := regexp.Compile(text); err != nil {
		v.fail(path, fmt.Sprintf("is no regular expression: %v", err))
	}
}

// filePath refuses the name of a file, or of a directory, that depends on where the agent was started.
func (v *validator) filePath(path, name string) {
	if name != "" && !strings.EqualFold(name, "none") && !filepath.IsAbs(name) {
		v.fail(path, fmt.Sprintf("is %q: want an absolute path, or none", name))
	}
}

func (v *validator) within(path string, n *int, low, high int) {
	if n != nil && (*n < low || *n > high) {
		v.fail(path, fmt.Sprintf("is %d: want %d to %d", *n, low, high))
	}
}

func (v *validator) felixWireGuard(s *FelixConfigurationSpec) {
	v.felixTables(s)
	v.within("spec.wireguardListeningPort", s.WireguardListeningPort, 1, 65535)
	v.within("spec.wireguardListeningPortV6", s.WireguardListeningPortV6, 1, 65535)
	v.within("spec.wireguardRoutingRulePriority", s.WireguardRoutingRulePriority, 1, MaxRulePriority)
	for _, n := range []struct{ path, name string }{{"spec.wireguardInterfaceName", s.WireguardInterfaceName}, {"spec.wireguardInterfaceNameV6", s.WireguardInterfaceNameV6}} {
		if n.name != "" && !DeviceName(n.name) {
			v.fail(n.path, fmt.Sprintf("is %q: want an interface's name, of at most 15 letters, digits, dots, hyphens and underscores", n.name))
		}
	}
	if a, b := s.WireguardInterfaceName, s.WireguardInterfaceNameV6; a != "" && a == b {
		v.fail("spec.wireguardInterfaceNameV6", "is that of IPv4, too: each family has an interface of its own")
	}
}

// MaxTable is the largest number of a table of routes, and MaxTables how many there may be in all ranges, of which there may be MaxTableRanges.
const (
	MaxTable       = 1<<32 - 1
	MaxTables      = 1<<16 - 1
	MaxTableRanges = 100
)

// RouteTableRange is a range of numbers of tables of routes.
type RouteTableRange struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

func (v *validator) felixTables(s *FelixConfigurationSpec) {
	all := s.RouteTableRanges
	if r := s.RouteTableRange; r != nil {
		v.tableRange("spec.routeTableRange", *r, 250)
		if all != nil {
			v.fail("spec.routeTableRange", "is the older form of routeTableRanges, which is there, too: delete it")
		}
	}
	if all == nil {
		return
	}
	if len(*all) > MaxTableRanges {
		v.fail("spec.routeTableRanges", fmt.Sprintf("has %d ranges: want %d at most", len(*all), MaxTableRanges))
		return
	}
	n := 0
	for i, r := range *all {
		v.tableRange(fmt.Sprintf("spec.routeTableRanges[%d]", i), r, MaxTable)
		n += max(0, min(r.Max, MaxTable)-max(r.Min, 0)+1)
	}
	if n > MaxTables {
		v.fail("spec.routeTableRanges", fmt.Sprintf("have %d tables: want %d at most", n, MaxTables))
	}
}

func (v *validator) tableRange(path string, r RouteTableRange, last int) {
	if r.Min < 1 || r.Max < r.Min || r.Max > last {
		v.fail(path, fmt.Sprintf("is %d to %d: want min and max of 1 to %d, the smaller first", r.Min, r.Max, last))
	}
}

var deviceName = regexp.MustCompile(`^[a-zA-Z0-9_-][a-zA-Z0-9_.-]{0,14}$`)

// DeviceName reports whether a text can be the name of a device that the agent makes.
func DeviceName(name string) bool { return deviceName.MatchString(name) }

// anyCase is optionally, as upstream reads settings: in upper or lower case.
func (v *validator) anyCase(path, value string, allowed ...string) {
	for _, a := range allowed {
		if strings.EqualFold(a, value) {
			return
		}
	}
	v.optionally(path, value, allowed...)
}

func (v *validator) interfaces(path, list string) {
	if list == "" {
		return
	}
	for s := range strings.SplitSeq(list, ",") {
		v.check(path, badInterface(s))
	}
}

func (v *validator) excluded(path, list string) {
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		pattern, ok := ExcludedPattern(s)
		if !ok {
			v.check(path, badInterface(s))
		} else if err := CheckExcluded(pattern); err != nil {
			v.fail(path, err.Error())
		}
	}
}

// CheckExcluded returns an error if a regular expression of interfaceExclude is none, or empty: that matches every interface.
func CheckExcluded(pattern string) error {
	if pattern == "" {
		return errors.New("has an empty regular expression, //: it matches every interface")
	}
	_, err := regexp.Compile(pattern)
	return err
}

// ExcludedPattern is the regular expression that a word of interfaceExclude is, between slashes; false: it is a name.
func ExcludedPattern(word string) (string, bool) {
	pattern, ok := strings.CutPrefix(word, "/")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(pattern, "/")
}

// MarkMask are the bits of packets' marks that the agent uses if no setting says otherwise, and LeastMarks is how many bits it needs.
const (
	MarkMask   uint32 = 0xffff0000
	LeastMarks int    = 7
)

// CheckMarkMask returns an error if a mask has too few bits.
func CheckMarkMask(m uint32) error {
	if n := bits.OnesCount32(m); n < LeastMarks {
		return fmt.Errorf("is %#08x, which has %d bits: want a mask with %d or more, such as %#08x", m, n, LeastMarks, MarkMask)
	}
	return nil
}

func (v *validator) failsafes(path string, ports *[]ProtoPort) {
	if ports == nil {
		return
	}
	for i, p := range *ports {
		at := fmt.Sprintf("%s[%d]", path, i)
		if p.Protocol != "" && !strings.EqualFold(p.Protocol, "TCP") && !strings.EqualFold(p.Protocol, "UDP") && !strings.EqualFold(p.Protocol, "SCTP") {
			v.fail(at+".protocol", fmt.Sprintf("is %q: want TCP, UDP or SCTP", p.Protocol))
		}
		if p.Net != nil {
			_, reason := prefixOf(*p.Net)
			v.check(at+".net", reason)
		}
	}
}

// validDuration accepts what Go's durations are: numbers with units, or 0.
func validDuration(s string) bool {
	if s == "0" {
		return true
	}
	if s == "" || len(s) > 64 {
		return false
	}
	for s != "" {
		rest := strings.TrimLeft(s, "0123456789.")
		number := s[:len(s)-len(rest)]
		if strings.Trim(number, ".") == "" || strings.Count(number, ".") > 1 {
			return false
		}
		unit := ""
		for _, u := range []string{"ns", "us", "µs", "ms", "s", "m", "h"} {
			if strings.HasPrefix(rest, u) {
				unit = u
				break
			}
		}
		if unit == "" {
			return false
		}
		s = rest[len(unit):]
	}
	return true
}
