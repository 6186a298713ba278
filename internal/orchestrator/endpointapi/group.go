package endpointapi

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/api/selector"
)

// Names by which an orchestrator's groups are known in the datastore: NetworkPolicy group-ORCHESTRATOR.NAME, and, at endpoints that name a group,
// the label ORCHESTRATOR.group.twill.net/NAME.
const (
	groupPrefix = "group-"
	groupDomain = ".group.twill.net/"
	// annotationNode names, at a group's policy, the node whose agent has written it last.
	annotationNode = "twill.net/endpoint-plugin-node"
)

// Bounds of one group. With them its policy is of less than 400 KB, whatever groups it names.
const (
	maxGroupSelector = 256 // bytes
	maxGroupRules    = 256
	maxReferences    = 256 // to groups, in all rules
	maxNets          = 256 // in a rule
	maxAllNets       = 2048
	maxPorts         = 50 // in a rule
)

// groupID is what a group is. Groups of several orchestrators have nothing to do with each other.
type groupID struct{ namespace, orchestrator, name string }

func (id groupID) label() string      { return id.orchestrator + groupDomain + id.name }
func (id groupID) policyName() string { return groupPrefix + id.orchestrator + "." + id.name }
func (id groupID) String() string     { return id.namespace + "/" + id.name }
func (id groupID) sibling(name string) groupID {
	return groupID{id.namespace, id.orchestrator, name}
}

// key is that of the group's policy.
func (id groupID) key() string {
	return api.KeyPrefix(api.KindNetworkPolicy, id.namespace) + id.policyName()
}

// members selects a group's members: endpoints of its orchestrator that name it, or have these labels.
func (id groupID) members(also string) string {
	is := "has(" + id.label() + ")"
	if also != "" {
		is = "(" + is + " || (" + also + "))"
	}
	return fmt.Sprintf("%s == '%s' && %s", api.LabelOrchestrator, id.orchestrator, is)
}

var groupName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (id groupID) check() error {
	for _, part := range []struct{ what, is string }{{"namespace", id.namespace}, {"name", id.name}, {"orchestrator", id.orchestrator}} {
		if !groupName.MatchString(part.is) {
			return fmt.Errorf("%s %.70q: of a group it is 1 to 63 lower-case letters, digits and dashes, a letter or digit at both ends", part.what, part.is)
		}
	}
	return nil
}

// announced is a group as its plugin wants it.
type announced struct {
	id      groupID
	also    string // selector of members by labels; empty: none
	ingress []allowed
	egress  []allowed
	names   []string // of groups in rules, each once
	cost    cost
}

// allowed is what a rule of a group allows.
type allowed struct {
	rule   api.Rule // without the other end
	groups []string // the other end is in one of these, or in a net; neither: anything
	nets   []string
}

// judgeGroup reads a group, or says why it does not count.
func judgeGroup(orchestrator string, m *endpointpb.Group) (*announced, error) {
	a := &announced{id: idOf(orchestrator, m.GetNamespace(), m.GetName()), cost: cost{1, len(m.GetIngress()) + len(m.GetEgress()), proto.Size(m)}}
	if err := a.id.check(); err != nil {
		return nil, err
	}
	if n := a.cost.rules; n > maxGroupRules {
		return nil, fmt.Errorf("%d rules: want at most %d", n, maxGroupRules)
	}
	if err := a.choose(m.GetSelector()); err != nil {
		return nil, err
	}
	for _, d := range []struct {
		what string
		has  []*endpointpb.GroupRule
		to   *[]allowed
	}{{"ingress", m.GetIngress(), &a.ingress}, {"egress", m.GetEgress(), &a.egress}} {
		for i, r := range d.has {
			rule, err := judgeRule(r)
			if err != nil {
				return nil, fmt.Errorf("%s[%d]: %w", d.what, i, err)
			}
			*d.to = append(*d.to, rule)
		}
	}
	if err := a.total(); err != nil {
		return nil, err
	}
	all, _ := a.policy("", "", func(groupID) (string, bool) { return "all()", true })
	return a, api.Validate(all).Err()
}

func idOf(orchestrator, namespace, name string) groupID {
	if namespace == "" {
		namespace = "default"
	}
	return groupID{namespace, orchestrator, name}
}

// choose takes over the selector of members by labels. Its canonical form is put into others: what it means is closed within itself.
func (a *announced) choose(text string) error {
	if text == "" {
		return nil
	}
	s, err := selector.Parse(text)
	switch {
	case err != nil:
		return err // which says that it is of a selector
	case strings.TrimSpace(text) == "":
		return errors.New("selector: is blank, which elsewhere means everything: want all(), or none")
	case strings.Contains(s.String(), "global()"):
		return errors.New("selector: global() selects no endpoint")
	}
	if a.also = s.String(); len(a.also) > maxGroupSelector {
		return fmt.Errorf("selector: %d bytes: want at most %d", len(a.also), maxGroupSelector)
	}
	return nil
}

// total counts what is in all rules.
func (a *announced) total() error {
	references, nets := 0, 0
	for _, r := range slices.Concat(a.ingress, a.egress) {
		references, nets = references+len(r.groups), nets+len(r.nets)
		a.names = append(a.names, r.groups...)
	}
	slices.Sort(a.names)
	a.names = slices.Compact(a.names)
	switch {
	case references > maxReferences:
		return fmt.Errorf("its rules name groups %d times: want at most %d", references, maxReferences)
	case nets > maxAllNets:
		return fmt.Errorf("%d nets in all rules: want at most %d", nets, maxAllNets)
	}
	return nil
}

// judgeRule reads a rule.
func judgeRule(r *endpointpb.GroupRule) (out allowed, err error) {
	out.rule.Action = api.Allow
	switch v := r.GetIpVersion(); v {
	case 0:
	case 4, 6:
		out.rule.IPVersion = new(int(v))
	default:
		return out, fmt.Errorf("ip_version %d: want 4, 6 or 0, which is both", v)
	}
	if out.rule.Protocol, err = protocolOf(r.GetProtocol()); err != nil {
		return out, err
	}
	if err := addPorts(&out.rule, r.GetPorts()); err != nil {
		return out, err
	}
	if err := addICMP(&out.rule, r); err != nil {
		return out, err
	}
	for _, name := range r.GetGroups() {
		if !groupName.MatchString(name) {
			return out, fmt.Errorf("group %.70q: is no name of a group", name)
		}
	}
	out.groups = slices.Clone(r.GetGroups())
	if n := len(r.GetNets()); n > maxNets {
		return out, fmt.Errorf("%d nets: want at most %d", n, maxNets)
	}
	for _, text := range r.GetNets() {
		net, err := netOf(text)
		if err != nil {
			return out, err
		}
		if v := r.GetIpVersion(); v != 0 && (v == 4) != net.Addr().Is4() {
			return out, fmt.Errorf("net %s: is not of IPv%d", net, v)
		}
		out.nets = append(out.nets, net.String())
	}
	return out, nil
}

// netOf reads a net, or one address. Bits beyond its length would be ignored, and are refused.
func netOf(text string) (netip.Prefix, error) {
	net, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return net, fmt.Errorf("net %.70q: want one such as 10.0.0.0/8, or an address", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case net != net.Masked():
		return net, fmt.Errorf("net %s: has bits beyond its length: %s?", net, net.Masked())
	case net.Addr().Is4In6():
		return net, fmt.Errorf("net %s: want it as IPv4's", net)
	}
	return net, nil
}

var protocols = []string{"TCP", "UDP", "SCTP", "UDPLite", "ICMP", "ICMPv6"}

// protocolOf is that of a rule; nil: all.
func protocolOf(text string) (*api.Protocol, error) {
	if text == "" {
		return nil, nil
	}
	if i := slices.IndexFunc(protocols, func(p string) bool { return strings.EqualFold(p, text) }); i >= 0 {
		return &api.Protocol{Name: protocols[i]}, nil
	}
	if n, err := strconv.ParseUint(text, 10, 8); err == nil && n > 0 {
		return &api.Protocol{Num: uint8(n)}, nil
	}
	return nil, fmt.Errorf("protocol %.20q: want %s, or a number from 1 to 255", text, strings.ToLower(strings.Join(protocols, ", ")))
}

func addPorts(rule *api.Rule, ports []*endpointpb.Ports) error {
	if len(ports) == 0 {
		return nil
	}
	number := uint8(0)
	if rule.Protocol != nil {
		number, _ = rule.Protocol.Number()
	}
	if !slices.Contains([]uint8{6, 17, 132, 136}, number) {
		return errors.New("ports: want a protocol with them: tcp, udp, sctp or udplite")
	}
	if len(ports) > maxPorts {
		return fmt.Errorf("%d ports: want at most %d", len(ports), maxPorts)
	}
	for _, p := range ports {
		first, last := p.GetFirst(), p.GetLast()
		if last == 0 {
			last = first
		}
		if first == 0 || first > last || last > 65535 {
			return fmt.Errorf("ports from %d to %d: want 1 to 65535, the lower first", p.GetFirst(), p.GetLast())
		}
		rule.Destination.Ports = append(rule.Destination.Ports, api.Port{Min: uint16(first), Max: uint16(last)})
	}
	return nil
}

func addICMP(rule *api.Rule, r *endpointpb.GroupRule) error {
	if r.IcmpType == nil && r.IcmpCode == nil {
		return nil
	}
	number := uint8(0)
	if rule.Protocol != nil {
		number, _ = rule.Protocol.Number()
	}
	switch {
	case number != 1 && number != 58:
		return errors.New("icmp_type: want protocol icmp or icmpv6 with it")
	case r.IcmpType == nil:
		return errors.New("icmp_code: want icmp_type with it")
	case r.GetIcmpType() > 255 || r.GetIcmpCode() > 255:
		return errors.New("icmp_type and icmp_code: want at most 255")
	}
	rule.ICMP = &api.ICMPFields{Type: new(int(r.GetIcmpType()))}
	if r.IcmpCode != nil {
		rule.ICMP.Code = new(int(r.GetIcmpCode()))
	}
	return nil
}

// policy makes a NetworkPolicy of a group. Members says how the members of another group are selected, if it is announced: what a rule allows to
// or from one that is not is nothing. These are missing, sorted.
func (a *announced) policy(plugin, node string, members func(groupID) (string, bool)) (p *api.NetworkPolicy, missing []string) {
	p = &api.NetworkPolicy{}
	p.TypeMeta = api.TypeMeta{Kind: api.KindNetworkPolicy, APIVersion: api.GroupVersion}
	p.Metadata = api.ObjectMeta{Name: a.id.policyName(), Namespace: a.id.namespace, Annotations: map[string]string{annotationPlugin: plugin, annotationNode: node}}
	p.Spec = api.NetworkPolicySpec{Tier: api.TierDefault, Selector: a.id.members(a.also), Types: []api.PolicyType{api.Ingress, api.Egress}}
	other := func(name string) (string, bool) {
		s, is := members(a.id.sibling(name))
		if !is {
			missing = append(missing, name)
		}
		return s, is
	}
	for _, r := range a.ingress {
		p.Spec.Ingress = r.rules(p.Spec.Ingress, func(r *api.Rule) *api.EntityRule { return &r.Source }, other)
	}
	for _, r := range a.egress {
		p.Spec.Egress = r.rules(p.Spec.Egress, func(r *api.Rule) *api.EntityRule { return &r.Destination }, other)
	}
	slices.Sort(missing)
	return p, slices.Compact(missing)
}

// rules appends what allows the same, by the other end: a rule for each group, and one for all nets.
func (r allowed) rules(out []api.Rule, end func(*api.Rule) *api.EntityRule, members func(name string) (string, bool)) []api.Rule {
	if len(r.groups) == 0 && len(r.nets) == 0 {
		return append(out, r.rule)
	}
	for _, name := range r.groups {
		if s, is := members(name); is {
			rule := r.rule
			end(&rule).Selector = s
			out = append(out, rule)
		}
	}
	if len(r.nets) > 0 {
		rule := r.rule
		end(&rule).Nets = r.nets
		out = append(out, rule)
	}
	return out
}

// samePolicy reports whether two policies are the same to a plugin: what the datastore adds does not count.
func samePolicy(a, b *api.NetworkPolicy) bool { return reflect.DeepEqual(a.Spec, b.Spec) }

// addGroups gives an endpoint the labels of groups that it names.
func addGroups(labels map[string]string, of groupID, e *endpointpb.Endpoint) error {
	for key := range labels {
		if strings.Contains(key, groupDomain) {
			return fmt.Errorf("label %s: a group is named in groups, not by a label", key)
		}
	}
	if len(e.GetGroups()) > 0 && len(e.GetProfiles()) > 0 {
		return errors.New("it names groups and profiles: want one of them, since a profile would allow what a group that is withdrawn does not")
	}
	for _, name := range e.GetGroups() {
		id := of.sibling(name)
		if err := id.check(); err != nil {
			return err
		}
		labels[id.label()] = ""
	}
	return nil
}

// cost is what groups take of what a plugin may have.
type cost struct{ groups, rules, bytes int }

// Bounds of all groups of a plugin, and of those in one namespace: a tenant that has too many takes nothing from others.
var (
	mostOfPlugin    = cost{2048, 16384, 8 << 20}
	mostOfNamespace = cost{256, 4096, 1 << 20}
)

func (c cost) plus(d cost, n int) cost {
	return cost{c.groups + n*d.groups, c.rules + n*d.rules, c.bytes + n*d.bytes}
}

func (c cost) within(most cost) error {
	switch {
	case c.groups > most.groups:
		return fmt.Errorf("%d groups: at most %d may be", c.groups, most.groups)
	case c.rules > most.rules:
		return fmt.Errorf("%d rules: at most %d may be", c.rules, most.rules)
	case c.bytes > most.bytes:
		return fmt.Errorf("%d bytes: at most %d may be", c.bytes, most.bytes)
	}
	return nil
}

// budget is what groups of a plugin take.
type budget struct {
	all cost
	in  map[string]cost // by namespace
}

// add adds a group, unless there are too many then.
func (b *budget) add(namespace string, c cost) error {
	if err := b.in[namespace].plus(c, 1).within(mostOfNamespace); err != nil {
		return fmt.Errorf("with it namespace %s has %w", namespace, err)
	}
	if err := b.all.plus(c, 1).within(mostOfPlugin); err != nil {
		return fmt.Errorf("with it the plugin has %w", err)
	}
	if b.in == nil {
		b.in = map[string]cost{}
	}
	b.all, b.in[namespace] = b.all.plus(c, 1), b.in[namespace].plus(c, 1)
	return nil
}

// drop takes a group off.
func (b *budget) drop(namespace string, c cost) {
	b.all = b.all.plus(c, -1)
	if b.in[namespace] = b.in[namespace].plus(c, -1); b.in[namespace] == (cost{}) {
		delete(b.in, namespace)
	}
}
