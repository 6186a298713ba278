package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/twillnet/twill/api/endpointpb"
)

// Groups are all groups of a plugin.
type Groups struct {
	All []Group `json:"all"`
	// Partial leaves the end of the announcement out, as a plugin does that dies meanwhile: nothing of it comes into force.
	Partial bool `json:"partial,omitempty"`
}

// Group is a group of endpoints, and what they may receive and send.
type Group struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Selector  string `json:"selector,omitempty"`
	Ingress   []Rule `json:"ingress,omitempty"`
	Egress    []Rule `json:"egress,omitempty"`
}

// Rule is what a group allows.
type Rule struct {
	Protocol  string   `json:"protocol,omitempty"`
	Ports     []string `json:"ports,omitempty"` // 80, or 8000-8010
	Groups    []string `json:"groups,omitempty"`
	Nets      []string `json:"nets,omitempty"`
	IPVersion uint32   `json:"ipVersion,omitempty"`
	ICMPType  *uint32  `json:"icmpType,omitempty"`
	ICMPCode  *uint32  `json:"icmpCode,omitempty"`
}

// check returns an error if a group cannot be said at all. What is wrong otherwise the agent says.
func (g *Groups) check() error {
	for name, m := range g.messages() {
		if m == nil {
			return fmt.Errorf("groups: %s: ports are to be numbers, such as 80 or 8000-8010", name)
		}
	}
	return nil
}

// messages are what the agent is told, by namespace and name; nil: it cannot be said.
func (g *Groups) messages() map[string]*endpointpb.Group {
	out := map[string]*endpointpb.Group{}
	if g == nil {
		return out
	}
	for _, group := range g.All {
		m := &endpointpb.Group{Namespace: group.Namespace, Name: group.Name, Selector: group.Selector}
		in, ok := messagesOf(group.Ingress)
		eg, is := messagesOf(group.Egress)
		if m.Ingress, m.Egress = in, eg; !ok || !is {
			m = nil
		}
		out[keyOf(group.Namespace, group.Name)] = m
	}
	return out
}

func keyOf(namespace, name string) string { return cmp.Or(namespace, "default") + "/" + name }

func messagesOf(rules []Rule) (out []*endpointpb.GroupRule, ok bool) {
	for _, r := range rules {
		m := &endpointpb.GroupRule{Protocol: r.Protocol, Groups: r.Groups, Nets: r.Nets, IpVersion: r.IPVersion, IcmpType: r.ICMPType, IcmpCode: r.ICMPCode}
		for _, text := range r.Ports {
			first, last, isRange := strings.Cut(text, "-")
			a, err := strconv.ParseUint(first, 10, 32)
			if err != nil {
				return nil, false
			}
			b := uint64(0)
			if isRange {
				if b, err = strconv.ParseUint(last, 10, 32); err != nil {
					return nil, false
				}
			}
			m.Ports = append(m.Ports, &endpointpb.Ports{First: uint32(a), Last: uint32(b)})
		}
		out = append(out, m)
	}
	return out, true
}

// announceAll announces all groups of the list; nothing, if it has none.
func (s *session) announceAll() error {
	if s.list.Groups == nil {
		return nil
	}
	s.groups = s.list.Groups.messages()
	say := []*endpointpb.FromPlugin{{Say: &endpointpb.FromPlugin_BeginGroups{BeginGroups: &endpointpb.BeginGroups{}}}}
	for _, key := range slices.Sorted(maps.Keys(s.groups)) {
		say = append(say, announce(s.groups[key]))
	}
	if s.list.Groups.Partial {
		s.cfg.Say("announced %d groups in part", len(s.groups))
	} else {
		say = append(say, &endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_EndGroups{EndGroups: &endpointpb.EndGroups{}}})
		s.cfg.Say("announced %d groups", len(s.groups))
	}
	for _, m := range say {
		if err := s.send(m); err != nil {
			return err
		}
	}
	return nil
}

func announce(g *endpointpb.Group) *endpointpb.FromPlugin {
	return &endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_Announce{Announce: g}}
}

// changeGroups announces groups of the list that are new or different, and withdraws those that are gone.
func (s *session) changeGroups(was *Groups) error {
	is := s.list.Groups
	if was == nil || is == nil || was.Partial || is.Partial {
		return s.announceAll()
	}
	now := is.messages()
	for _, key := range slices.Sorted(maps.Keys(s.groups)) {
		if now[key] != nil {
			continue
		}
		m := &endpointpb.WithdrawGroup{Namespace: s.groups[key].GetNamespace(), Name: s.groups[key].GetName()}
		if err := s.send(&endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_WithdrawGroup{WithdrawGroup: m}}); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if proto.Equal(now[key], s.groups[key]) {
			continue
		}
		if err := s.send(announce(now[key])); err != nil {
			return err
		}
	}
	s.groups = now
	return nil
}

// event says what became of a group.
func (s *session) event(e *endpointpb.GroupEvent) {
	line := fmt.Sprintf("%s/%s%s", e.GetNamespace(), e.GetName(), and(e.GetReason()))
	switch e.GetKind() {
	case endpointpb.GroupEvent_IN_FORCE:
		s.cfg.Say("in force group %s", line)
	case endpointpb.GroupEvent_FAILED:
		s.cfg.Say("failed group %s", line)
	case endpointpb.GroupEvent_GONE:
		delete(s.groups, keyOf(e.GetNamespace(), e.GetName())) // it is announced with the next change of the list, if it is in it
		s.cfg.Say("gone group %s", line)
	}
}

// and is a reason at the end of a line.
func and(reason string) string {
	if reason == "" {
		return ""
	}
	return "; " + reason
}
