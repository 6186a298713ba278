package api

import (
	"fmt"
	"slices"
	"strings"
)

func (v *validator) workload(r *WorkloadEndpoint) {
	s, m := &r.Spec, &r.Metadata
	name, err := WorkloadEndpointName(*s)
	switch {
	case err != nil:
		v.fail("metadata.name", err.Error())
	case len(name) > maxName:
		v.fail("metadata.name", fmt.Sprintf("%q has more than %d characters", name, maxName))
	case strings.Contains(name, "/"):
		v.fail("metadata.name", fmt.Sprintf("%q must not contain /", name))
	case m.Name != name:
		v.suggest("metadata.name", fmt.Sprintf("is %q, but node, orchestrator, workload and endpoint make it another", m.Name), name)
	}
	v.addresses("spec.ipNetworks", s.IPNetworks)
	v.addresses("spec.allowedIps", s.AllowedIPs)
	v.floating(s)
	v.limits(s.QoSControls)
	v.gateway("spec.ipv4Gateway", s.IPv4Gateway, true)
	v.gateway("spec.ipv6Gateway", s.IPv6Gateway, false)
	v.profiles(s.Profiles)
	if s.InterfaceName == "" {
		v.fail("spec.interfaceName", "is missing: want the name of the workload's interface on the host")
	} else {
		v.check("spec.interfaceName", badInterface(s.InterfaceName))
	}
	if s.MAC != "" && !validMAC(s.MAC) {
		v.fail("spec.mac", fmt.Sprintf("is %q: want six bytes such as ee:ee:ee:ee:ee:ee", s.MAC))
	}
	if s.ContainerID != "" {
		v.check("spec.containerID", badContainerID(s.ContainerID))
	}
	if s.ServiceAccountName != "" {
		v.check("spec.serviceAccountName", badName(s.ServiceAccountName))
	}
	v.nets("spec.allowSpoofedSourcePrefixes", s.AllowSpoofedSourcePrefixes)
	seen := map[string]bool{}
	for i, p := range s.Ports {
		path := fmt.Sprintf("spec.ports[%d]", i)
		v.namedPort(path, EndpointPort{p.Name, p.Protocol, p.Port}, seen)
		if p.Name == "" && p.HostPort == 0 {
			v.fail(path+".name", "is missing, and so is hostPort: without either, nothing can mean this port")
		}
		if p.HostIP != "" {
			_, reason := addrOf(p.HostIP)
			v.check(path+".hostIP", reason)
		}
	}
}

// addresses holds lists of single addresses with their full length.
func (v *validator) addresses(path string, list []string) {
	for i, s := range list {
		p, reason := prefixOf(s)
		if reason == "" && !p.IsSingleIP() {
			reason = fmt.Sprintf("is %s: want one address, with /32 or /128", s)
		}
		v.check(fmt.Sprintf("%s[%d]", path, i), reason)
	}
	v.unique(path, list)
}

// floating holds the addresses by which a workload is reached besides its own.
func (v *validator) floating(s *WorkloadEndpointSpec) {
	seen := map[string]bool{}
	for i, n := range s.IPNATs {
		path := fmt.Sprintf("spec.ipNATs[%d]", i)
		v.check(path, n.Bad(s.IPNetworks))
		if seen[n.ExternalIP] {
			v.fail(path+".externalIP", fmt.Sprintf("%s is there twice", n.ExternalIP))
		}
		seen[n.ExternalIP] = true
	}
}

// Bad says what is wrong with a floating address of a workload that has some addresses; empty: nothing is.
func (n IPNAT) Bad(own []string) string {
	in, reason := addrOf(n.InternalIP)
	if reason != "" {
		return "internalIP " + reason
	}
	out, reason := addrOf(n.ExternalIP)
	switch {
	case reason != "":
		return "externalIP " + reason
	case in.Is4() != out.Is4():
		return fmt.Sprintf("has %s and %s, which are of two families", n.InternalIP, n.ExternalIP)
	case in == out || !out.IsGlobalUnicast():
		return fmt.Sprintf("has externalIP %s: want another address, which others can send to", n.ExternalIP)
	case !slices.ContainsFunc(own, func(s string) bool { p, bad := prefixOf(s); return bad == "" && p.Addr() == in }):
		return fmt.Sprintf("has internalIP %s, which is none of spec.ipNetworks", n.InternalIP)
	}
	return ""
}

func (v *validator) gateway(path, s string, four bool) {
	if s == "" {
		return
	}
	a, reason := addrOf(s)
	if reason == "" && a.Is4() != four {
		reason = fmt.Sprintf("%s is of the other family", s)
	}
	v.check(path, reason)
}

func (v *validator) profiles(list []string) {
	for i, p := range list {
		v.check(fmt.Sprintf("spec.profiles[%d]", i), badName(p))
	}
	v.unique("spec.profiles", list)
}

// badInterface says what is wrong with a network interface's name.
func badInterface(s string) string {
	if s == "" || len(s) > 15 || !only(s, word) || s == "." || s == ".." {
		return fmt.Sprintf("is %q: want 1 to 15 letters, digits, dashes, dots and underscores", s)
	}
	return ""
}

// badContainerID holds what CNI says of container IDs (CNI specification 1.1.0, section 2, CNI_CONTAINERID). Upstream
// allows neither dots nor underscores, but a runtime may have them.
func badContainerID(s string) string {
	if !only(s, word) || strings.ContainsRune("_.-", rune(s[0])) {
		return fmt.Sprintf("is %q: want letters, digits, dashes, dots and underscores, a letter or digit first", clip(s))
	}
	return ""
}

func (v *validator) namedPort(path string, p EndpointPort, seen map[string]bool) {
	n, _ := p.Protocol.Number()
	if n != 6 && n != 17 && n != 132 {
		v.fail(path+".protocol", fmt.Sprintf("is %q: want TCP, UDP or SCTP", p.Protocol.String()))
	} else {
		v.protocol(path+".protocol", &p.Protocol)
	}
	if p.Port == 0 {
		v.fail(path+".port", "is 0: want 1 to 65535")
	}
	if p.Name == "" {
		return // says nothing to rules
	}
	v.check(path+".name", badPortName(p.Name))
	key := fmt.Sprintf("%s/%d", p.Name, n)
	if seen[key] {
		v.fail(path+".name", fmt.Sprintf("%q is there twice for protocol %s", p.Name, p.Protocol))
	}
	seen[key] = true
}

func (v *validator) host(r *HostEndpoint) {
	v.check(join("metadata.annotations", AnnotationDSCP), DSCP(r.Metadata.Annotations[AnnotationDSCP]).Bad())
	s := &r.Spec
	if s.Node == "" {
		v.fail("spec.node", "is missing: want the name of the host's Node")
	} else {
		v.check("spec.node", badName(s.Node))
	}
	if s.InterfaceName == "" && len(s.ExpectedIPs) == 0 {
		v.fail("spec.interfaceName", `is missing, and so is spec.expectedIPs: give one of them, or "*" for all interfaces`)
	}
	if s.InterfaceName != "" && s.InterfaceName != "*" {
		v.check("spec.interfaceName", badInterface(s.InterfaceName))
	}
	for i, a := range s.ExpectedIPs {
		_, reason := addrOf(a)
		v.check(fmt.Sprintf("spec.expectedIPs[%d]", i), reason)
	}
	v.unique("spec.expectedIPs", s.ExpectedIPs)
	v.profiles(s.Profiles)
	seen := map[string]bool{}
	for i, p := range s.Ports {
		path := fmt.Sprintf("spec.ports[%d]", i)
		if p.Name == "" {
			v.fail(path+".name", "is missing")
		}
		v.namedPort(path, p, seen)
	}
}
