package translate

import (
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/twillnet/twill/api"
)

// peers are the other sides that a rule is for. None listed means everything,
// also what is no pod; those that mean nothing are left out, and allow nothing.
func (o *object) peers(path string, list []networkingv1.NetworkPolicyPeer) []api.EntityRule {
	if len(list) == 0 {
		return []api.EntityRule{{}}
	}
	var out []api.EntityRule
	for i, p := range list {
		if e, ok := o.peer(fmt.Sprintf("%s[%d]", path, i), p); ok {
			out = append(out, e)
		}
	}
	return out
}

func (o *object) peer(path string, p networkingv1.NetworkPolicyPeer) (api.EntityRule, bool) {
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	switch {
	case p.IPBlock != nil && selects:
		o.fail(path+".ipBlock", "cannot stand beside selectors: make it a peer of its own")
		return api.EntityRule{}, false
	case p.IPBlock != nil:
		return o.ipBlock(path+".ipBlock", *p.IPBlock)
	case !selects:
		o.fail(path, "is empty: want podSelector, namespaceSelector or ipBlock")
		return api.EntityRule{}, false
	}
	// Without a namespaceSelector both languages mean the policy's own namespace.
	pods, podsOK := o.pods(path+".podSelector", p.PodSelector)
	namespaces, namespacesOK := o.namespaces(path+".namespaceSelector", p.NamespaceSelector)
	return api.EntityRule{Selector: pods, NamespaceSelector: namespaces}, podsOK && namespacesOK
}

// ipBlock masks what it is given: Kubernetes takes 10.0.0.1/8 for 10.0.0.0/8, and rules refuse it.
func (o *object) ipBlock(path string, b networkingv1.IPBlock) (e api.EntityRule, ok bool) {
	whole, ok := o.prefix(path+".cidr", b.CIDR)
	if !ok {
		return e, false
	}
	e.Nets = []string{whole.String()}
	for i, text := range b.Except {
		at := fmt.Sprintf("%s.except[%d]", path, i)
		part, read := o.prefix(at, text)
		if read && (part.Bits() <= whole.Bits() || !whole.Contains(part.Addr())) {
			o.fail(at, "%s is not a part of %s", text, b.CIDR)
			read = false
		}
		ok = ok && read
		e.NotNets = append(e.NotNets, part.String())
	}
	return e, ok
}

func (o *object) prefix(path, text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		o.fail(path, "is %q: want a prefix such as 10.0.0.0/8 or fd00::/8", text)
		return p, false
	}
	return p.Masked(), true
}
