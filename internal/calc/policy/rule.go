package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/intent"
)

const (
	protoICMP   = 1 // IANA protocol numbers
	protoTCP    = 6
	protoICMPv6 = 58
)

// Sets gives the IP sets that rules refer to.
type Sets interface {
	// Use returns the set of the addresses that a selector selects or, if ports are
	// named, of the ports of that protocol (0: of any) with one of the names there. Each call counts.
	Use(sel *selector.Selector, ports []string, proto uint8) intent.SetID
	// Service returns the set of the endpoints of a service: with their ports, or their addresses alone. Each call counts.
	Service(namespace, name string, ports bool) intent.SetID
	// Proxied returns [intent.SetProxied]. Each call counts.
	Proxied() intent.SetID
}

// Converter turns policies into intents. It remembers selectors that it has
// read, since many rules share them. Use NewConverter.
type Converter struct {
	sets      Sets
	selectors map[labelQuery]*selector.Selector
	namespace string // of the NetworkPolicy in hand; empty otherwise
	used      []intent.SetID
}

// labelQuery is all that one side of a rule says of labels.
type labelQuery struct {
	namespace, selector, not, namespaces, accounts, names string
}

// NewConverter returns one that refers to these sets.
func NewConverter(sets Sets) *Converter {
	return &Converter{sets: sets, selectors: map[labelQuery]*selector.Selector{}}
}

// Reset lets go what was remembered.
func (c *Converter) Reset() { clear(c.selectors) }

// Policy makes the intent of a policy, and returns the sets that it uses.
func (c *Converter) Policy(p *Policy) (intent.Policy, []intent.SetID) {
	out := intent.Policy{ID: p.ID, Tier: p.place.tier}
	if out.Closed = p.closed; out.Closed != "" {
		deny := []intent.Rule{{Action: intent.Deny}}
		out.Ingress, out.Egress = deny, deny
		return out, nil
	}
	c.namespace, c.used = p.ID.Namespace, nil
	if p.place.ingress {
		out.Ingress = c.rules(p.ingress)
	}
	if p.place.egress {
		out.Egress = c.rules(p.egress)
	}
	return out, c.used
}

func (c *Converter) rules(in []api.Rule) []intent.Rule {
	if len(in) == 0 {
		return nil
	}
	out := make([]intent.Rule, len(in))
	for i := range in {
		out[i] = c.rule(&in[i])
	}
	return out
}

var actions = map[api.Action]intent.Action{api.Allow: intent.Allow, api.Deny: intent.Deny, api.Pass: intent.Pass, api.Log: intent.Log}

func (c *Converter) rule(r *api.Rule) intent.Rule {
	out := intent.Rule{Action: actions[r.Action], Void: r.Void, Reject: r.Rejects() && !r.Void}
	if r.Void {
		return out
	}
	if r.IPVersion != nil {
		out.Family = intent.Family(*r.IPVersion)
	}
	if r.Protocol != nil {
		out.Protocol, _ = r.Protocol.Number()
	}
	if r.NotProtocol != nil {
		out.NotProtocol, _ = r.NotProtocol.Number()
	}
	if r.HTTP != nil {
		out.Protocol = protoTCP // which proxies see
	}
	switch implied := impliedFamily(out.Protocol); {
	case implied == intent.AnyFamily:
	case out.Family == intent.AnyFamily:
		out.Family = implied
	case out.Family != implied:
		return intent.Rule{Action: out.Action, Void: true} // no packet is both
	}
	out.ICMP, out.NotICMP = icmp(r.ICMP), icmp(r.NotICMP)
	out.Src = c.peer(&r.Source, out.Protocol)
	out.Dst = c.peer(&r.Destination, out.Protocol)
	if s := r.Source.Services; s != nil {
		out.Src.Sets = append(out.Src.Sets, c.service(s, false))
	}
	if s := r.Destination.Services; s != nil {
		out.Dst.PortSets = append(out.Dst.PortSets, c.service(s, true))
	}
	if r.HTTP != nil {
		out.Dst.Sets = append(out.Dst.Sets, c.proxied())
	}
	out.Requests = requests(r)
	return out
}

// requests is what a rule asks beyond packets.
func requests(r *api.Rule) *intent.Requests {
	if r.HTTP == nil && r.Source.ServiceAccounts == nil && r.Destination.ServiceAccounts == nil {
		return nil
	}
	out := &intent.Requests{Src: identity(&r.Source), Dst: identity(&r.Destination)}
	if r.HTTP != nil {
		out.HTTP = &intent.HTTP{Methods: r.HTTP.Methods}
		for _, p := range r.HTTP.Paths {
			out.HTTP.Paths = append(out.HTTP.Paths, intent.Path{Exact: p.Exact, Prefix: p.Prefix})
		}
	}
	return out
}

func identity(e *api.EntityRule) intent.Identity {
	out := intent.Identity{Selector: e.Selector, NotSelector: e.NotSelector, NamespaceSelector: e.NamespaceSelector}
	if a := e.ServiceAccounts; a != nil {
		out.Accounts = &intent.Accounts{Names: a.Names, Selector: a.Selector}
	}
	return out
}

func impliedFamily(proto uint8) intent.Family {
	switch proto {
	case protoICMP:
		return intent.IPv4
	case protoICMPv6:
		return intent.IPv6
	}
	return intent.AnyFamily
}

func icmp(f *api.ICMPFields) *intent.ICMP {
	if f == nil || f.Type == nil {
		return nil
	}
	out := &intent.ICMP{Type: uint8(*f.Type), AnyCode: f.Code == nil}
	if f.Code != nil {
		out.Code = uint8(*f.Code)
	}
	return out
}

// peer converts one side of a rule. If a side has a notSelector and nothing else about labels, that is about addresses, also those of nobody. If it has,
// the notSelector is part of the one selector (decision 104).
func (c *Converter) peer(e *api.EntityRule, proto uint8) intent.Peer {
	out := intent.Peer{Nets: prefixes(e.Nets), NotNets: prefixes(e.NotNets)}
	q := labelQuery{namespace: c.namespace, selector: e.Selector, not: e.NotSelector, namespaces: e.NamespaceSelector}
	if a := e.ServiceAccounts; a != nil {
		q.accounts, q.names = a.Selector, strings.Join(a.Names, "\n")
	}
	sel := c.remember(q, func() *selector.Selector { return c.selected(e) })
	if sel != nil {
		out.Sets = []intent.SetID{c.use(sel, nil, 0)}
	}
	if sel == nil && e.NotSelector != "" {
		out.NotSets = []intent.SetID{c.use(c.remember(labelQuery{selector: e.NotSelector}, func() *selector.Selector { return parse(e.NotSelector) }), nil, 0)}
	}
	out.Ports, out.PortSets = c.ports(e.Ports, sel, proto)
	out.NotPorts, out.NotPortSets = c.ports(e.NotPorts, sel, proto)
	return out
}

func (c *Converter) remember(q labelQuery, read func() *selector.Selector) *selector.Selector {
	s, ok := c.selectors[q]
	if !ok {
		s = read()
		c.selectors[q] = s
	}
	return s
}

func (c *Converter) ports(ports []api.Port, sel *selector.Selector, proto uint8) (ranges []intent.PortRange, sets []intent.SetID) {
	if sel == nil {
		sel = c.remember(labelQuery{selector: "all()"}, func() *selector.Selector { return parse("all()") })
	}
	var names []string
	for _, p := range ports {
		if p.Name == "" {
			ranges = append(ranges, intent.PortRange{Min: p.Min, Max: p.Max})
			continue
		}
		names = append(names, p.Name)
	}
	if len(names) > 0 {
		sets = []intent.SetID{c.use(sel, names, proto)}
	}
	return ranges, sets
}

// service is the set of those who serve: as sources their addresses count, as destinations also their ports.
func (c *Converter) service(s *api.ServiceMatch, ports bool) intent.SetID {
	id := c.sets.Service(s.Namespace, s.Name, ports)
	c.used = append(c.used, id)
	return id
}

// proxied is the set of workloads whose proxies enforce HTTP.
func (c *Converter) proxied() intent.SetID {
	id := c.sets.Proxied()
	c.used = append(c.used, id)
	return id
}

func (c *Converter) use(sel *selector.Selector, ports []string, proto uint8) intent.SetID {
	id := c.sets.Use(sel, ports, proto)
	c.used = append(c.used, id)
	return id
}

// selected is the one selector that stands for all that a side says of labels; nil if it says nothing but a notSelector.
func (c *Converter) selected(e *api.EntityRule) *selector.Selector {
	var parts []*selector.Selector
	add := func(s *selector.Selector) { parts = append(parts, s) }
	if e.NamespaceSelector != "" {
		add(namespaceSelector(e.NamespaceSelector))
	}
	if e.Selector != "" {
		add(parse(e.Selector))
	}
	if a := e.ServiceAccounts; a != nil {
		if len(a.Names) > 0 {
			add(oneOf(api.LabelServiceAccount, a.Names))
		}
		if a.Selector != "" {
			add(parse(a.Selector).Prefixed(api.ServiceAccountLabelPrefix))
		}
	}
	if c.namespace != "" && e.NamespaceSelector == "" && (len(parts) > 0 || e.NotSelector != "") {
		add(oneOf(api.LabelNamespace, []string{c.namespace}))
	}
	if len(parts) == 0 {
		return nil
	}
	out := parts[0]
	for _, p := range parts[1:] {
		out = selector.And(out, p)
	}
	if e.NotSelector != "" {
		out = selector.And(out, selector.Not(parse(e.NotSelector)))
	}
	return out
}

// namespaceSelector asks about an endpoint's namespace: all() is in any, wherever it stands, global() in none.
func namespaceSelector(text string) *selector.Selector {
	s := parse(text)
	if s.IsGlobal() {
		return parse("!has(" + api.LabelNamespace + ")")
	}
	return s.Prefixed(api.NamespaceLabelPrefix).Within(api.LabelNamespace)
}

// oneOf is a selector for a label's values. A value with both kinds of quotes
// cannot be said in the language, and no endpoint can be meant by it.
func oneOf(label string, values []string) *selector.Selector {
	var quoted []string
	for _, v := range values {
		switch {
		case !strings.Contains(v, `"`):
			quoted = append(quoted, `"`+v+`"`)
		case !strings.Contains(v, "'"):
			quoted = append(quoted, "'"+v+"'")
		}
	}
	slices.Sort(quoted)
	return parse(label + " in {" + strings.Join(quoted, ",") + "}")
}

// nothing selects nothing.
const nothing = "has(a) && !has(a)"

// parse reads text that the decoder has let through; should it not parse after all, it selects nothing.
func parse(text string) *selector.Selector {
	s, err := selector.Parse(text)
	if err != nil {
		s, _ = selector.Parse(nothing)
	}
	return s
}

// prefixes parses nets, masked; the decoder has reported those that are invalid.
func prefixes(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil {
			out = append(out, p.Masked())
		} else if a, err := netip.ParseAddr(t); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}
