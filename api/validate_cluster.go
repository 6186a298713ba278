package api

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

func (v *validator) tier(r *Tier) {
	s := &r.Spec
	if s.DefaultAction != nil {
		v.oneOf("spec.defaultAction", string(*s.DefaultAction), string(Deny), string(Pass))
	}
	fixed, builtin := builtinTiers[r.Metadata.Name]
	if !builtin {
		return
	}
	if s.Order == nil || *s.Order != *fixed.Order {
		v.fail("spec.order", fmt.Sprintf("of the built-in tier %s is %.0f and cannot be changed", r.Metadata.Name, *fixed.Order))
	}
	if s.DefaultAction == nil || *s.DefaultAction != *fixed.DefaultAction {
		v.fail("spec.defaultAction", fmt.Sprintf("of the built-in tier %s is %s and cannot be changed", r.Metadata.Name, *fixed.DefaultAction))
	}
}

var linkLocal = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}

func (v *validator) pool(s *IPPoolSpec) {
	p, reason := prefixOf(s.CIDR)
	switch {
	case s.CIDR == "":
		v.fail("spec.cidr", "is missing")
	case reason != "":
		v.fail("spec.cidr", reason)
	case !strings.Contains(s.CIDR, "/"):
		v.fail("spec.cidr", fmt.Sprintf("is %q: want a prefix with its length", s.CIDR))
	case p != p.Masked():
		v.suggest("spec.cidr", s.CIDR+" has bits beyond its length", p.Masked().String())
	default:
		v.poolRange(s, p)
	}
	modes := []string{"Never", "Always", "CrossSubnet"}
	v.oneOf("spec.vxlanMode", s.VXLANMode, modes...)
	v.oneOf("spec.ipipMode", s.IPIPMode, modes...)
	if on(s.VXLANMode) && on(s.IPIPMode) {
		v.fail("spec.ipipMode", "and spec.vxlanMode cannot both be on: set one of them to Never")
	}
	v.selector("spec.nodeSelector", s.NodeSelector, false)
	v.selector("spec.namespaceSelector", s.NamespaceSelector, false)
	for i, u := range s.AllowedUses {
		v.oneOf(fmt.Sprintf("spec.allowedUses[%d]", i), u, "Workload", "Tunnel", useLoadBalancer)
	}
	v.unique("spec.allowedUses", s.AllowedUses)
	if len(s.AllowedUses) > 1 && slices.Contains(s.AllowedUses, useLoadBalancer) {
		v.fail("spec.allowedUses", "has LoadBalancer beside others: a pool for load balancers is for nothing else")
	}
	if m := s.AssignmentMode; m != nil { // upstream refuses a mode that is there and empty
		v.oneOf("spec.assignmentMode", *m, AssignAutomatic, AssignManual)
	}
	if slices.Contains(s.AllowedUses, useLoadBalancer) {
		v.loadBalancerPool(s)
	}
}

// loadBalancerPool refuses what such a pool must not have: its addresses are no workload's and on no node, and are
// advertised by BGP or not at all.
func (v *validator) loadBalancerPool(s *IPPoolSpec) {
	const of = " a pool for load balancers"
	if on(s.VXLANMode) {
		v.fail("spec.vxlanMode", "is not possible for"+of+": set it to Never")
	}
	if on(s.IPIPMode) {
		v.fail("spec.ipipMode", "is not possible for"+of+": set it to Never")
	}
	if s.DisableBGPExport {
		v.fail("spec.disableBGPExport", "must be false for"+of)
	}
	if s.NodeSelector != "all()" {
		v.fail("spec.nodeSelector", "must be all() for"+of+", whose addresses are on no node")
	}
}

// useLoadBalancer among a pool's allowedUses.
const useLoadBalancer = "LoadBalancer"

func on(mode string) bool { return mode != "" && mode != "Never" }

func (v *validator) poolRange(s *IPPoolSpec, p netip.Prefix) {
	for _, l := range linkLocal {
		if l.Overlaps(p) {
			v.fail("spec.cidr", fmt.Sprintf("%s overlaps %s, whose addresses hold on one link only", s.CIDR, l))
		}
	}
	low, high := 20, 32
	if p.Addr().Is6() {
		low, high = 116, 128
		if on(s.IPIPMode) {
			v.fail("spec.ipipMode", "is possible for IPv4 only: set it to Never")
		}
	}
	switch {
	case s.BlockSize < low || s.BlockSize > high:
		v.fail("spec.blockSize", fmt.Sprintf("is %d: want %d to %d", s.BlockSize, low, high))
	case p.Bits() > s.BlockSize && !s.Disabled: // a pool that is disabled has no blocks
		v.fail("spec.cidr", fmt.Sprintf("%s has not room for one block of /%d: make it larger, or spec.blockSize greater", s.CIDR, s.BlockSize))
	}
}

// ValidateUpdate returns what cannot be changed from old to fresh.
func ValidateUpdate(old, fresh Resource) FieldErrors {
	v := validator{r: fresh}
	was, ok1 := old.(*IPPool)
	is, ok2 := fresh.(*IPPool)
	if ok1 && ok2 {
		if !SameRange(was.Spec.CIDR, is.Spec.CIDR) {
			v.fail("spec.cidr", fmt.Sprintf("cannot be changed from %s: make another pool", was.Spec.CIDR))
		}
		if size := was.Spec.blockSize(); size != is.Spec.blockSize() {
			v.fail("spec.blockSize", fmt.Sprintf("cannot be changed from %d: make another pool", size))
		}
		if slices.Contains(was.Spec.AllowedUses, useLoadBalancer) && !slices.Contains(is.Spec.AllowedUses, useLoadBalancer) {
			v.fail("spec.allowedUses", "cannot be changed from LoadBalancer: make another pool")
		}
	}
	return v.errs
}

// SameRange reports whether two texts are one prefix, as 10.65.0.1/16, which old versions may have stored, and 10.65.0.0/16 are.
func SameRange(was, is string) bool {
	p, bad1 := prefixOf(was)
	q, bad2 := prefixOf(is)
	return was == is || bad1 == "" && bad2 == "" && p.Masked() == q.Masked()
}

// ValidateAmong returns what is wrong with a resource beside others of its kind.
func ValidateAmong(r Resource, others []Resource) FieldErrors {
	v := validator{r: r}
	pool, ok := r.(*IPPool)
	if !ok {
		return nil
	}
	mine, reason := prefixOf(pool.Spec.CIDR)
	for _, o := range others {
		other, ok := o.(*IPPool)
		if !ok || reason != "" || other.Metadata.Name == pool.Metadata.Name {
			continue
		}
		if theirs, bad := prefixOf(other.Spec.CIDR); bad == "" && mine.Overlaps(theirs) {
			v.fail("spec.cidr", fmt.Sprintf("%s overlaps %s of pool %s", mine, theirs, other.Metadata.Name))
		}
	}
	return v.errs
}

func (v *validator) node(s *NodeSpec) {
	if b := s.BGP; b != nil {
		v.nodeAddress("spec.bgp.ipv4Address", b.IPv4Address, true)
		v.nodeAddress("spec.bgp.ipv6Address", b.IPv6Address, false)
		v.gateway("spec.bgp.ipv4IPIPTunnelAddr", b.IPv4IPIPTunnelAddr, true)
		v.gateway("spec.bgp.routeReflectorClusterID", b.RouteReflectorClusterID, true)
		if *b == (NodeBGPSpec{}) {
			v.fail("spec.bgp", "is empty: give an address, or remove spec.bgp")
		}
	}
	v.gateway("spec.ipv4VXLANTunnelAddr", s.IPv4VXLANTunnelAddr, true)
	v.gateway("spec.ipv6VXLANTunnelAddr", s.IPv6VXLANTunnelAddr, false)
	for _, m := range []struct{ path, mac string }{
		{"spec.vxlanTunnelMACAddr", s.VXLANTunnelMACAddr}, {"spec.vxlanTunnelMACAddrV6", s.VXLANTunnelMACAddrV6},
	} {
		if m.mac != "" && !validMAC(m.mac) {
			v.fail(m.path, fmt.Sprintf("is %q: want six bytes such as 66:00:00:00:00:01", m.mac))
		}
	}
	if w := s.Wireguard; w != nil {
		v.gateway("spec.wireguard.interfaceIPv4Address", w.InterfaceIPv4Address, true)
		v.gateway("spec.wireguard.interfaceIPv6Address", w.InterfaceIPv6Address, false)
	}
	for i, o := range s.OrchRefs {
		if o.Orchestrator == "" {
			v.fail(fmt.Sprintf("spec.orchRefs[%d].orchestrator", i), "is missing")
		}
	}
	for i, a := range s.Addresses {
		_, reason := prefixOf(a.Address)
		v.check(fmt.Sprintf("spec.addresses[%d].address", i), reason)
		v.optionally(fmt.Sprintf("spec.addresses[%d].type", i), a.Type, "CalicoNodeIP", "InternalIP", "ExternalIP")
	}
	for i, n := range s.Interfaces {
		v.check(fmt.Sprintf("spec.interfaces[%d].name", i), badInterface(n.Name))
		for j, a := range n.Addresses {
			_, reason := prefixOf(a)
			v.check(fmt.Sprintf("spec.interfaces[%d].addresses[%d]", i, j), reason)
		}
	}
}

// wireguardKey is a public key as wg(8) writes it: 32 bytes in base64.
func (v *validator) wireguardKey(path, s string) {
	if s == "" {
		return
	}
	if key, err := base64.StdEncoding.DecodeString(s); err != nil || len(key) != 32 {
		v.fail(path, fmt.Sprintf("is %q: want 32 bytes in base64", clip(s)))
	}
}

// nodeAddress is an address, perhaps with the length of its network's prefix.
func (v *validator) nodeAddress(path, s string, four bool) {
	if s == "" {
		return
	}
	p, reason := prefixOf(s)
	if reason == "" && p.Addr().Is4() != four {
		reason = fmt.Sprintf("%s is of the other family", s)
	}
	v.check(path, reason)
}

// longestPeriod is a day, as upstream has it.
const longestPeriod = 24 * 60 * 60

func (v *validator) nodeStatus(s *CalicoNodeStatusSpec) {
	if s.Node == "" {
		v.fail("spec.node", "is missing: want the name of the node that is to say how it is")
	} else {
		v.check("spec.node", badName(s.Node))
	}
	if len(s.Classes) == 0 {
		v.fail("spec.classes", "is missing: want some of Agent, BGP, Routes")
	}
	for i, c := range s.Classes {
		v.oneOf(fmt.Sprintf("spec.classes[%d]", i), c, ClassAgent, ClassBGP, ClassRoutes)
	}
	v.unique("spec.classes", s.Classes)
	switch p := s.UpdatePeriodSeconds; {
	case p == nil:
		v.fail("spec.updatePeriodSeconds", "is missing: want a number of seconds, or 0 for no updates")
	case *p > longestPeriod:
		v.fail("spec.updatePeriodSeconds", fmt.Sprintf("is %d: at most %d are possible, a day", *p, longestPeriod))
	}
}
