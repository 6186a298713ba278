package api

import (
	"fmt"
	"strings"
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
	v.anyCase("spec.workloadSourceSpoofing", s.WorkloadSourceSpoofing, "Disabled", "Any")
	for _, l := range []struct{ path, level string }{
		{"spec.logSeverityScreen", s.LogSeverityScreen}, {"spec.logSeverityFile", s.LogSeverityFile}, {"spec.logSeveritySys", s.LogSeveritySys},
	} {
		v.anyCase(l.path, l.level, "Trace", "Debug", "Info", "Warning", "Error", "Fatal", "None")
	}
	if s.NftablesMode != nil {
		v.anyCase("spec.nftablesMode", *s.NftablesMode, "Enabled", "Disabled", "Auto")
	}
	v.interfaces("spec.interfacePrefix", s.InterfacePrefix)
	v.gateway("spec.natOutgoingAddress", s.NATOutgoingAddress, true)
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

func (v *validator) felixNumbers(s *FelixConfigurationSpec) {
	for _, d := range []struct {
		path string
		text *string
	}{
		{"spec.reportingInterval", s.ReportingInterval},
		{"spec.reportingTTL", s.ReportingTTL},
		{"spec.endpointReportingDelay", s.EndpointReportingDelay},
		{"spec.nftablesRefreshInterval", s.NftablesRefreshInterval},
		{"spec.routeRefreshInterval", s.RouteRefreshInterval},
		{"spec.interfaceRefreshInterval", s.InterfaceRefreshInterval},
		{"spec.ipsetsRefreshInterval", s.IPSetsRefreshInterval},
	} {
		if d.text != nil && !validDuration(*d.text) {
			v.fail(d.path, fmt.Sprintf("is %q: want a duration such as 90s or 1m30s", *d.text))
		}
	}
	for _, n := range []struct {
		path string
		n    *int
		high int
	}{
		{"spec.healthPort", s.HealthPort, 65535},
		{"spec.prometheusMetricsPort", s.PrometheusMetricsPort, 65535},
		{"spec.debugPort", s.DebugPort, 65535},
		{"spec.deviceRouteProtocol", s.DeviceRouteProtocol, 255},
	} {
		if n.n != nil && (*n.n < 0 || *n.n > n.high) {
			v.fail(n.path, fmt.Sprintf("is %d: want 0 to %d", *n.n, n.high))
		}
	}
	for _, n := range []struct {
		path string
		n    *int
	}{{"spec.goGCThreshold", s.GoGCThreshold}, {"spec.goMemoryLimitMB", s.GoMemoryLimitMB}, {"spec.goMaxProcs", s.GoMaxProcs}} {
		if n.n != nil && *n.n != -1 && *n.n < 1 {
			v.fail(n.path, fmt.Sprintf("is %d: want a whole number from 1, or -1", *n.n))
		}
	}
	if s.NftablesMarkMask != nil && *s.NftablesMarkMask == 0 {
		v.fail("spec.nftablesMarkMask", "is 0: want a mask with bits in it")
	}
}

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
