package nodeaddr

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// Host is what is known of this host's interfaces.
type Host struct {
	Interfaces []Interface // as the kernel lists them: the oldest first
	// SourceTo says from which address the kernel would send to a destination; it sends nothing there.
	SourceTo func(dst string, four bool) (netip.Addr, error)
	// Internal are the addresses that the Node itself has from Kubernetes: see [Internal].
	Internal []netip.Addr
	// Has are the addresses by which the Node is known already: see [Addrs]. Of those of an interface that fit as well, such a one stays.
	Has []netip.Addr
	// Given are those of the Node that it did not find itself: another program, or somebody.
	Given []netip.Addr
}

// Know takes over what a Node, which may be nil, says of its addresses.
func (h *Host) Know(n *api.Node) {
	h.Internal, h.Has, h.Given = Internal(n), Addrs(n), nil
	for _, f := range []Family{V4, V6} {
		if now := Address(n, f); now != "" && !Detected(n, now) {
			h.Given = append(h.Given, parse(now))
		}
	}
}

// Interface is one of them.
type Interface struct {
	Name  string
	Up    bool
	Addrs []Addr
}

// Addr is an address of an interface, with the length of its network's prefix.
type Addr struct {
	Prefix     netip.Prefix
	Unsuitable string // why it cannot stand for the node, if the kernel says so: it is tentative, temporary, …
	Secondary  bool   // IPv4: another address of the same network was there before it
	Lasting    bool   // no DHCP server or router gave it
}

// less says how much less than others an address is the interface's own. Virtual addresses, which move between hosts (VRRP, keepalived),
// come second in their network, or alone without one: /32 and /128 without a lifetime. Clouds lease such addresses with DHCP.
func (a Addr) less() int {
	switch {
	case a.Lasting && a.Prefix.IsSingleIP():
		return 2
	case a.Secondary:
		return 1
	}
	return 0
}

// Choice is an address that was found.
type Choice struct {
	Interface string
	Addr      netip.Prefix
}

// Skipped is an interface that was passed over.
type Skipped struct {
	Interface string
	Why       string
}

// NotFoundError says why no address was found, interface by interface.
type NotFoundError struct {
	Want    Want
	Skipped []Skipped
	Cause   string // if it was not for the interfaces
}

// Error lists the interfaces and says what to set.
func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no %s address of this host found by %s", e.Want.Name, e.Want.Method)
	if e.Cause != "" {
		fmt.Fprintf(&b, ": %s", e.Cause)
	}
	for i, p := range e.Skipped {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s %s", sep, p.Interface, p.Why)
	}
	if e.Cause == "" && len(e.Skipped) == 0 {
		b.WriteString(": there is no interface")
	}
	fmt.Fprintf(&b, ". Give the address with %s (%s), or another way with %s-autodetection-method (%s): %s", e.Want.Flag, e.Want.Env, e.Want.Flag, e.Want.Family.Method, methods)
	return b.String()
}

// Choose finds the address, or says with a [NotFoundError] why there is none. Of several interfaces that fit, that counts whose address another program
// gave the Node: Calico's takes the last, as other nodes know it.
func (w Want) Choose(h Host) (Choice, error) {
	switch {
	case w.Order == Fixed:
		return w.fixed(h), nil
	case w.Method.kind == canReach:
		return w.reach(h)
	case w.Method.kind == internalIP:
		return w.internal(h)
	}
	e := &NotFoundError{Want: w}
	var fit []Choice
	for _, i := range w.inOrder(h.Interfaces) {
		why := w.skip(i)
		if why == "" {
			var c Choice
			if c, why = w.of(i, h.Has, h.Given); why == "" {
				fit = append(fit, c)
				continue
			}
		}
		e.Skipped = append(e.Skipped, Skipped{i.Name, why})
	}
	if len(fit) == 0 {
		return Choice{}, e
	}
	return fit[max(0, slices.IndexFunc(fit, func(c Choice) bool { return slices.Contains(h.Given, c.Addr.Addr()) }))], nil
}

// fixed gives an address without a length that of its interface.
func (w Want) fixed(h Host) Choice {
	for _, i := range h.Interfaces {
		for _, a := range i.Addrs {
			if a.Prefix.Addr() != w.Fixed.Addr() {
				continue
			}
			if w.Bare {
				return Choice{i.Name, a.Prefix}
			}
			return Choice{i.Name, w.Fixed}
		}
	}
	return Choice{Addr: w.Fixed}
}

func (w Want) reach(h Host) (Choice, error) {
	from, err := h.SourceTo(w.Method.reach, w.Four)
	if err != nil {
		return Choice{}, &NotFoundError{Want: w, Cause: err.Error()}
	}
	if why := unsuitable(from); why != "" {
		return Choice{}, &NotFoundError{Want: w, Cause: fmt.Sprintf("what is sent to %s goes out from %s, which %s", w.Method.reach, from, why)}
	}
	w.Fixed, w.Bare = netip.PrefixFrom(from, from.BitLen()), true
	return w.fixed(h), nil
}

// internal is the first of the addresses that Kubernetes knows the node by.
func (w Want) internal(h Host) (Choice, error) {
	cause := "the Node has no such address of type InternalIP: a kubelet writes it, where Kubernetes is the datastore"
	for _, a := range h.Internal {
		if a.Is4() != w.Four {
			continue
		}
		if why := unsuitable(a); why != "" {
			cause = fmt.Sprintf("the Node's InternalIP %s %s", a, why)
			continue
		}
		w.Fixed, w.Bare = netip.PrefixFrom(a, a.BitLen()), true
		return w.fixed(h), nil
	}
	return Choice{}, &NotFoundError{Want: w, Cause: cause}
}

// inOrder has the interfaces in the order in which they are tried: of interface=, by the patterns.
func (w Want) inOrder(all []Interface) []Interface {
	rank := func(i Interface) int {
		if w.Method.kind == byInterface {
			for n, p := range w.Method.patterns {
				if p.MatchString(i.Name) {
					return n
				}
			}
		}
		return len(w.Method.patterns)
	}
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b Interface) int { return rank(a) - rank(b) })
	return out
}

// skip says why an interface is not looked at; empty: it is.
func (w Want) skip(i Interface) string {
	if w.Method.kind == byInterface || w.Method.kind == skipInterface {
		matched := false
		for _, p := range w.Method.patterns {
			matched = matched || p.MatchString(i.Name)
		}
		switch {
		case w.Method.kind == byInterface && !matched:
			return "matches no pattern"
		case w.Method.kind == skipInterface && matched:
			return "is to be skipped"
		}
	}
	if w.Method.kind == firstFound || w.Method.kind == skipInterface {
		for _, p := range leftOut {
			if p.MatchString(i.Name) {
				return fmt.Sprintf("has a name (%s) that is left out unless asked for by interface=", p)
			}
		}
	}
	if !i.Up {
		return "is down"
	}
	return ""
}

// of finds the address of an interface, or says why it has none. The kernel lists the newest of IPv6 first, and those of IPv4 in an order
// that a lease that ends and begins again changes.
func (w Want) of(i Interface, known, given []netip.Addr) (Choice, string) {
	var whys []string
	var fit []Addr
	for _, a := range i.Addrs {
		if a.Prefix.Addr().Is4() != w.Four {
			continue
		}
		switch why := unsuitable(a.Prefix.Addr()); {
		case why != "":
			whys = append(whys, fmt.Sprintf("%s %s", a.Prefix, why))
		case a.Unsuitable != "":
			whys = append(whys, fmt.Sprintf("%s %s", a.Prefix, a.Unsuitable))
		case w.Method.kind == byPrefix && !slices.ContainsFunc(w.Method.prefixes, func(p netip.Prefix) bool { return p.Contains(a.Prefix.Addr()) }):
			whys = append(whys, fmt.Sprintf("%s is in no wanted prefix", a.Prefix))
		default:
			fit = append(fit, a)
		}
	}
	if at := slices.IndexFunc(fit, func(a Addr) bool { return slices.Contains(given, a.Prefix.Addr()) }); at >= 0 {
		return Choice{i.Name, fit[at].Prefix}, ""
	}
	if len(fit) > 0 {
		rank := func(a Addr) int {
			if slices.Contains(known, a.Prefix.Addr()) {
				return 2 * a.less()
			}
			return 2*a.less() + 1
		}
		best := slices.MinFunc(fit, func(a, b Addr) int { return rank(a) - rank(b) })
		return Choice{i.Name, best.Prefix}, ""
	}
	if len(whys) == 0 {
		return Choice{}, "has no " + w.Name + " address"
	}
	return Choice{}, "has only addresses that do not fit (" + strings.Join(whys, ", ") + ")"
}

// unsuitable returns why an address cannot be announced; empty: it can.
func unsuitable(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "is a loopback address"
	case a.IsLinkLocalUnicast():
		return "holds on one link only"
	case !a.IsGlobalUnicast():
		return "is no unicast address"
	}
	return ""
}
