package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/twillnet/twill/api"
)

// match is a protocol with some of its ports, or with all: a rule has only one protocol.
type match struct {
	protocol *api.Protocol
	ports    []api.Port
}

// ports sorts a rule's ports by protocol. None listed means everything, also
// protocols without ports; those that mean nothing are left out, and allow nothing.
func (o *object) ports(path string, list []networkingv1.NetworkPolicyPort) []match {
	if len(list) == 0 {
		return []match{{}}
	}
	var all byProtocol
	for i, p := range list {
		if protocol, port, ok := o.port(fmt.Sprintf("%s[%d]", path, i), p); ok {
			all.add(protocol, port)
		}
	}
	return all.matches()
}

// byProtocol are ports in the order in which their protocols were first named.
type byProtocol struct {
	order  []string
	listed map[string][]api.Port
	whole  map[string]bool
}

// add takes in a port of a protocol, or with nil all of them.
func (b *byProtocol) add(protocol string, port *api.Port) {
	if b.listed == nil {
		b.listed, b.whole = map[string][]api.Port{}, map[string]bool{}
	}
	if !slices.Contains(b.order, protocol) {
		b.order = append(b.order, protocol)
	}
	if port == nil {
		b.whole[protocol] = true
	} else if !slices.Contains(b.listed[protocol], *port) {
		b.listed[protocol] = append(b.listed[protocol], *port)
	}
}

func (b *byProtocol) matches() (out []match) {
	for _, name := range b.order {
		protocol := &api.Protocol{Name: name}
		if b.whole[name] {
			out = append(out, match{protocol: protocol})
			continue
		}
		for ports := range slices.Chunk(b.listed[name], api.MaxPorts) { // a rule with more would be closed
			out = append(out, match{protocol, ports})
		}
	}
	return out
}

// port is nil for all ports of the protocol.
func (o *object) port(path string, p networkingv1.NetworkPolicyPort) (protocol string, port *api.Port, ok bool) {
	if p.Protocol != nil {
		protocol = string(*p.Protocol)
	}
	if protocol, ok = o.protocol(path+".protocol", corev1.Protocol(protocol)); !ok {
		return "", nil, false
	}
	switch {
	case p.Port == nil && p.EndPort != nil:
		o.fail(path+".endPort", "needs a port, from which the range begins")
		return "", nil, false
	case p.Port == nil:
		return protocol, nil, true
	case p.Port.Type == intstr.String && p.EndPort != nil:
		o.fail(path+".endPort", "needs a port that is a number, not a name")
		return "", nil, false
	case p.Port.Type == intstr.String:
		return protocol, &api.Port{Name: p.Port.StrVal}, o.portName(path+".port", p.Port.StrVal)
	}
	first, ok := o.portNumber(path+".port", p.Port.IntVal)
	if !ok || p.EndPort == nil {
		return protocol, &api.Port{Min: first, Max: first}, ok
	}
	last, ok := o.portNumber(path+".endPort", *p.EndPort)
	if ok && last < first {
		o.fail(path+".endPort", "is %d: must not be below port %d", last, first)
		ok = false
	}
	return protocol, &api.Port{Min: first, Max: last}, ok
}

func (o *object) protocol(path string, p corev1.Protocol) (string, bool) {
	p = cmp.Or(p, corev1.ProtocolTCP)
	if !slices.Contains([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, p) {
		o.fail(path, "is %q: want TCP, UDP or SCTP", p)
		return "", false
	}
	return string(p), true
}

func (o *object) portNumber(path string, n int32) (uint16, bool) {
	if n < 1 || n > 65535 {
		o.fail(path, "is %d: want 1 to 65535", n)
		return 0, false
	}
	return uint16(n), true
}

// portName holds what Kubernetes takes for a name. In v3 the text "80" is a
// number and "80:90" a range, so neither may pass as a name.
func (o *object) portName(path, s string) bool {
	const letters, others = "abcdefghijklmnopqrstuvwxyz", "0123456789-"
	if len(s) > 15 || strings.Trim(s, letters+others) != "" || !strings.ContainsAny(s, letters) || strings.Trim(s, "-") != s || strings.Contains(s, "--") {
		o.fail(path, "is %q: want a number, or a name of at most 15 lower-case letters, digits and single dashes, a letter among them", s)
		return false
	}
	return true
}
