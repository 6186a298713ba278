// Package autohep says which host endpoints the configuration wants for a node.
//
// In: a Node, and the settings of automatic host endpoints. Out: the host endpoints that there should be, named and
// labelled as Calico's controllers do it, so that either may take over from the other.
//
// It is pure. Who writes them is package upkeep.
package autohep

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

const (
	suffix  = "auto-hep"
	maxName = 253
)

// Made reports whether a host endpoint is an automatic one, which may be changed and removed.
func Made(h *api.HostEndpoint) bool {
	return h.Metadata.Labels[api.LabelCreatedBy] == api.CreatedByControllers
}

// Wanted are the host endpoints that a node should have, by rising name; nil has none. The error joins what cannot be made,
// such as one whose name would be none: the others are as wanted all the same.
func Wanted(n *api.Node, c api.AutoHostEndpoints) ([]*api.HostEndpoint, error) {
	if n == nil || c.AutoCreate != api.Enabled {
		return nil, nil
	}
	m := maker{node: n, made: map[string]*api.HostEndpoint{}}
	if c.CreateDefaultHostEndpoint == api.Enabled {
		m.add(api.HostEndpointSpec{InterfaceName: "*", ExpectedIPs: addresses(n.Spec)}, nil)
	}
	for _, t := range c.Templates {
		m.template(t)
	}
	var out []*api.HostEndpoint
	for _, name := range slices.Sorted(maps.Keys(m.made)) {
		out = append(out, m.made[name])
	}
	return out, errors.Join(m.errs...)
}

// maker gathers the host endpoints of one node.
type maker struct {
	node *api.Node
	made map[string]*api.HostEndpoint
	errs []error
}

func (m *maker) template(t api.HostEndpointTemplate) {
	s, err := selector.Parse(t.NodeSelector)
	if err != nil {
		m.errs = append(m.errs, fmt.Errorf("template %s: %w", t.GenerateName, err))
		return
	}
	if !s.Match(m.node.Metadata.Labels) {
		return
	}
	within := slices.DeleteFunc(addresses(m.node.Spec), func(a string) bool { return !inAny(t.InterfaceCIDRs, a) })
	if t.InterfacePattern == "" {
		if len(within) > 0 { // without interface and address it would be for nothing
			m.add(api.HostEndpointSpec{ExpectedIPs: within}, t.Labels, t.GenerateName)
		}
		return
	}
	pattern, err := regexp.Compile(t.InterfacePattern)
	if err != nil {
		m.errs = append(m.errs, fmt.Errorf("template %s: %w", t.GenerateName, err))
		return
	}
	for _, i := range m.node.Spec.Interfaces {
		if !pattern.MatchString(i.Name) {
			continue
		}
		l := list{out: slices.Clone(within)}
		l.add(i.Addresses...)
		m.add(api.HostEndpointSpec{InterfaceName: i.Name, ExpectedIPs: l.out}, t.Labels, t.GenerateName, i.Name)
	}
}

// add makes one. The first of a name stays.
func (m *maker) add(spec api.HostEndpointSpec, labels map[string]string, parts ...string) {
	h := api.New(api.KindHostEndpoint).(*api.HostEndpoint)
	h.Metadata.Name = name(m.node.Metadata.Name, parts...)
	h.Metadata.Labels = map[string]string{}
	maps.Copy(h.Metadata.Labels, m.node.Metadata.Labels)
	maps.Copy(h.Metadata.Labels, labels)
	h.Metadata.Labels[api.LabelCreatedBy] = api.CreatedByControllers
	h.Spec = spec
	h.Spec.Node, h.Spec.Profiles = m.node.Metadata.Name, []string{api.ProfileDefaultAllow}
	if err := api.Validate(h).Err(); err != nil {
		m.errs = append(m.errs, fmt.Errorf("host endpoint %s: %w", h.Metadata.Name, err))
		return
	}
	if m.made[h.Metadata.Name] == nil {
		m.made[h.Metadata.Name] = h
	}
}

// name is NODE-auto-hep, or with the parts of a template between. What is too long for a name is a hash.
func name(node string, parts ...string) string {
	out := node
	for _, p := range parts {
		if p != "" {
			out += "-" + p
		}
	}
	if out += "-" + suffix; len(out) <= maxName {
		return out
	}
	sum := sha256.Sum256([]byte(out))
	return hex.EncodeToString(sum[:]) + "-" + suffix
}

// addresses are all by which a node is known, in the order in which Calico's controllers list them: who takes over from them
// has nothing to write.
func addresses(s api.NodeSpec) []string {
	var l list
	if b := s.BGP; b != nil {
		l.add(b.IPv4Address, b.IPv6Address, b.IPv4IPIPTunnelAddr)
	}
	l.add(s.IPv4VXLANTunnelAddr, s.IPv6VXLANTunnelAddr)
	if w := s.Wireguard; w != nil {
		l.add(w.InterfaceIPv4Address, w.InterfaceIPv6Address)
	}
	for _, a := range s.Addresses {
		if a.Type == "InternalIP" {
			l.add(a.Address)
		}
	}
	for _, i := range s.Interfaces {
		l.add(i.Addresses...)
	}
	return l.out
}

// list has each address once. What is none is left out.
type list struct{ out []string }

func (l *list) add(texts ...string) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if p, perr := netip.ParsePrefix(text); perr == nil { // a node's own have the length of their network
			a, err = p.Addr(), nil
		}
		if s := a.String(); err == nil && !slices.Contains(l.out, s) {
			l.out = append(l.out, s)
		}
	}
}

func inAny(prefixes []string, address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(prefixes, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(a)
	})
}
