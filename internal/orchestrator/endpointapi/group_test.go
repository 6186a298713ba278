package endpointapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/resources"
)

// text is what a group's policy says: a line for each rule.
func text(p *api.NetworkPolicy) (lines []string) {
	for _, d := range []struct {
		what  string
		rules []api.Rule
	}{{"in", p.Spec.Ingress}, {"out", p.Spec.Egress}} {
		for _, r := range d.rules {
			line := d.what
			if r.IPVersion != nil {
				line += fmt.Sprintf(" v%d", *r.IPVersion)
			}
			if r.Protocol != nil {
				line += " " + r.Protocol.String()
			}
			if r.ICMP != nil {
				line += fmt.Sprintf(" type %d", *r.ICMP.Type)
			}
			for _, port := range r.Destination.Ports {
				line += " " + port.String()
			}
			for _, e := range []struct {
				what string
				is   api.EntityRule
			}{{" from ", r.Source}, {" to ", r.Destination}} {
				if e.is.Selector != "" {
					line += e.what + e.is.Selector
				}
				if len(e.is.Nets) > 0 {
					line += e.what + strings.Join(e.is.Nets, ",")
				}
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func TestWhatAGroupAllows(t *testing.T) {
	const web, batch = "projectcalico.org/orchestrator == 'demo' && has(demo.group.twill.net/web)", "projectcalico.org/orchestrator == 'demo' && (has(demo.group.twill.net/batch) || (role == \"batch\"))"
	members := func(id groupID) (string, bool) {
		switch id {
		case groupID{"prod", "demo", "web"}:
			return id.members(""), true
		case groupID{"prod", "demo", "batch"}:
			return id.members(`role == "batch"`), true
		}
		return "", false
	}
	for _, tt := range []struct {
		name    string
		group   *endpointpb.Group
		want    []string
		missing []string
	}{
		{name: "nothing, without rules", group: &endpointpb.Group{}},
		{name: "anything", group: &endpointpb.Group{Ingress: []*endpointpb.GroupRule{{}}, Egress: []*endpointpb.GroupRule{{}}}, want: []string{"in", "out"}},
		{
			name:  "a protocol's ports, from members of groups",
			group: &endpointpb.Group{Ingress: []*endpointpb.GroupRule{{Protocol: "tcp", Ports: []*endpointpb.Ports{{First: 80}, {First: 8000, Last: 8010}}, Groups: []string{"web", "batch"}}}},
			want:  []string{"in TCP 80 8000:8010 from " + web, "in TCP 80 8000:8010 from " + batch},
		},
		{
			name:  "to members of groups, and to nets",
			group: &endpointpb.Group{Egress: []*endpointpb.GroupRule{{Protocol: "UDP", Ports: []*endpointpb.Ports{{First: 53}}, Groups: []string{"web"}, Nets: []string{"10.0.0.0/8", "2001:db8::1"}}}},
			want:  []string{"out UDP 53 to " + web, "out UDP 53 to 10.0.0.0/8,2001:db8::1/128"},
		},
		{name: "nothing, where no group of a rule is announced", group: &endpointpb.Group{Ingress: []*endpointpb.GroupRule{{Groups: []string{"x", "a", "x"}}}}, missing: []string{"a", "x"}},
		{
			name:    "nets alone, where no group of a rule is announced",
			group:   &endpointpb.Group{Ingress: []*endpointpb.GroupRule{{Groups: []string{"x"}, Nets: []string{"10.0.0.1"}}}},
			want:    []string{"in from 10.0.0.1/32"},
			missing: []string{"x"},
		},
		{
			name:  "echoes, a family, a protocol by number",
			group: &endpointpb.Group{Ingress: []*endpointpb.GroupRule{{Protocol: "icmp", IcmpType: proto.Uint32(8)}, {IpVersion: 6}, {Protocol: "50"}}},
			want:  []string{"in ICMP type 8", "in v6", "in 50"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.group.Namespace, tt.group.Name = "prod", "db"
			a, err := judgeGroup("demo", tt.group)
			if err != nil {
				t.Fatal(err)
			}
			p, missing := a.policy("p", "h1", members)
			if got := text(p); !slices.Equal(got, tt.want) || !slices.Equal(missing, tt.missing) {
				t.Errorf("it allows\n  %s\nand names %q, want\n  %s\nand %q", strings.Join(got, "\n  "), missing, strings.Join(tt.want, "\n  "), tt.missing)
			}
			if p.Spec.Selector != "projectcalico.org/orchestrator == 'demo' && has(demo.group.twill.net/db)" || len(p.Spec.Types) != 2 {
				t.Errorf("it applies to %s, %v", p.Spec.Selector, p.Spec.Types)
			}
			if err := api.Validate(p).Err(); err != nil {
				t.Error(err)
			}
			u, err := resources.Stored(p)
			if err != nil || u.Key != a.id.key() {
				t.Fatalf("its key is %s, %v, want %s", u.Key, err, a.id.key())
			}
			if s, is := readGroup(u); !is || s.id != a.id || s.plugin != "p" || s.node != "h1" || !samePolicy(s.policy, p) {
				t.Errorf("stored, it is read as %+v of %+v", s, s.policy)
			}
		})
	}
}

func TestWhichGroupsAreRefused(t *testing.T) {
	in := func(r *endpointpb.GroupRule) *endpointpb.Group {
		return &endpointpb.Group{Name: "db", Ingress: []*endpointpb.GroupRule{r}}
	}
	out := func(rules ...*endpointpb.GroupRule) *endpointpb.Group {
		return &endpointpb.Group{Name: "db", Egress: rules}
	}
	nets := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
		}
		return out
	}
	for _, tt := range []struct {
		name  string
		group *endpointpb.Group
		want  string
	}{
		{"no name", &endpointpb.Group{}, `name ""`},
		{"a name with a dot", &endpointpb.Group{Name: "a.b"}, `name "a.b"`},
		{"a name that leaves its place", &endpointpb.Group{Name: "../x"}, `name "../x"`},
		{"a namespace that leaves its place", &endpointpb.Group{Name: "x", Namespace: "a/b"}, `namespace "a/b"`},
		{"a long name", &endpointpb.Group{Name: strings.Repeat("a", 64)}, `name "aaa`},
		{"a selector that ends another", &endpointpb.Group{Name: "x", Selector: `a == "b") || (all()`}, "selector "},
		{"a selector of nothing", &endpointpb.Group{Name: "x", Selector: "  "}, "selector: is blank"},
		{"global()", &endpointpb.Group{Name: "x", Selector: "global()"}, "selector: global()"},
		{"a long selector", &endpointpb.Group{Name: "x", Selector: `a == "` + strings.Repeat("b", 300) + `"`}, "selector: "},
		{"too many rules", out(make([]*endpointpb.GroupRule, 257)...), "257 rules: want at most 256"},
		{"too many references", out(&endpointpb.GroupRule{Groups: slices.Repeat([]string{"a"}, 257)}), "its rules name groups 257 times: want at most 256"},
		{"too many nets", in(&endpointpb.GroupRule{Nets: nets(257)}), "ingress[0]: 257 nets: want at most 256"},
		{"too many nets in all", out(slices.Repeat([]*endpointpb.GroupRule{{Nets: nets(256)}}, 9)...), "2304 nets in all rules: want at most 2048"},
		{"too many ports", in(&endpointpb.GroupRule{Protocol: "tcp", Ports: slices.Repeat([]*endpointpb.Ports{{First: 1}}, 51)}), "ingress[0]: 51 ports: want at most 50"},
		{"ports without a protocol", out(&endpointpb.GroupRule{Ports: []*endpointpb.Ports{{First: 80}}}), "egress[0]: ports: want a protocol"},
		{"ports of a protocol without", in(&endpointpb.GroupRule{Protocol: "50", Ports: []*endpointpb.Ports{{First: 80}}}), "ports: want a protocol"},
		{"port 0", in(&endpointpb.GroupRule{Protocol: "tcp", Ports: []*endpointpb.Ports{{}}}), "ports from 0 to 0"},
		{"ports backwards", in(&endpointpb.GroupRule{Protocol: "tcp", Ports: []*endpointpb.Ports{{First: 9, Last: 8}}}), "ports from 9 to 8"},
		{"a port that is none", in(&endpointpb.GroupRule{Protocol: "tcp", Ports: []*endpointpb.Ports{{First: 80 + 1<<16}}}), "ports from 65616 to 0"},
		{"a net that is none", in(&endpointpb.GroupRule{Nets: []string{"everything"}}), `net "everything"`},
		{"a net with more bits", in(&endpointpb.GroupRule{Nets: []string{"10.0.0.1/8"}}), "net 10.0.0.1/8: has bits beyond its length: 10.0.0.0/8?"},
		{"a net of IPv4 as IPv6's", in(&endpointpb.GroupRule{Nets: []string{"::ffff:10.0.0.0/104"}}), "want it as IPv4's"},
		{"a zone", in(&endpointpb.GroupRule{Nets: []string{"fe80::1%eth0"}}), `net "fe80::1%eth0"`},
		{"a net of another family", in(&endpointpb.GroupRule{IpVersion: 6, Nets: []string{"10.0.0.0/8"}}), "net 10.0.0.0/8: is not of IPv6"},
		{"a family that is none", in(&endpointpb.GroupRule{IpVersion: 5}), "ip_version 5"},
		{"a protocol that is none", in(&endpointpb.GroupRule{Protocol: "http"}), `protocol "http"`},
		{"protocol 0", in(&endpointpb.GroupRule{Protocol: "0"}), `protocol "0"`},
		{"a type without ICMP", in(&endpointpb.GroupRule{Protocol: "tcp", IcmpType: proto.Uint32(8)}), "icmp_type: want protocol"},
		{"a code without a type", in(&endpointpb.GroupRule{Protocol: "icmp", IcmpCode: proto.Uint32(0)}), "icmp_code: want icmp_type"},
		{"a type that is none", in(&endpointpb.GroupRule{Protocol: "icmp", IcmpType: proto.Uint32(256)}), "want at most 255"},
		{"ICMP of the other family", in(&endpointpb.GroupRule{Protocol: "icmpv6", IpVersion: 4}), "ipVersion"},
		{"another's group that is no name", in(&endpointpb.GroupRule{Groups: []string{"a b"}}), `group "a b"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if a, err := judgeGroup("demo", tt.group); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("it is %+v, %v, want an error with %q", a, err, tt.want)
			}
		})
	}
	if _, err := judgeGroup("De.mo", &endpointpb.Group{Name: "x"}); err == nil || !strings.Contains(err.Error(), `orchestrator "De.mo"`) {
		t.Errorf("an orchestrator that is no name: %v", err)
	}
}

// TestWhoIsAMember: nobody of another orchestrator, whatever the selector says.
func TestWhoIsAMember(t *testing.T) {
	for _, also := range []string{"", "all()", "!has(x)", `role == "a" || role == "b"`} {
		a, err := judgeGroup("demo", &endpointpb.Group{Name: "db", Selector: also})
		if err != nil {
			t.Fatal(err)
		}
		s, err := selector.Parse(a.id.members(a.also))
		if err != nil {
			t.Fatal(err)
		}
		for _, orchestrator := range []string{"demo", "other", ""} {
			for _, labels := range []map[string]string{{}, {"role": "b"}, {"demo.group.twill.net/db": ""}, {"other.group.twill.net/db": ""}, {"x": ""}} {
				labels[api.LabelOrchestrator] = orchestrator
				_, names := labels["demo.group.twill.net/db"]
				by, _ := selector.Parse(also)
				want := orchestrator == "demo" && (names || also != "" && by.Match(labels))
				if got := s.Match(labels); got != want {
					t.Errorf("with selector %q, %v is a member: %v, want %v", also, labels, got, want)
				}
			}
		}
	}
}

func TestAnEndpointNamesItsGroups(t *testing.T) {
	for _, tt := range []struct {
		name string
		e    *endpointpb.Endpoint
		want string // its labels of groups, or the error
	}{
		{"two", &endpointpb.Endpoint{Groups: []string{"web", "db"}}, "demo.group.twill.net/db,demo.group.twill.net/web"},
		{"with profiles", &endpointpb.Endpoint{Groups: []string{"web"}, Profiles: []string{"p"}}, "it names groups and profiles"},
		{"by a label", &endpointpb.Endpoint{Labels: map[string]string{"demo.group.twill.net/db": ""}}, "label demo.group.twill.net/db: a group is named in groups"},
		{"one that is no name", &endpointpb.Endpoint{Groups: []string{"Web"}}, `name "Web"`},
		{"too many", &endpointpb.Endpoint{Groups: slices.Repeat([]string{"a"}, 65)}, "65 groups: want at most 64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.e.Workload, tt.e.Endpoint, tt.e.Addresses = "vm1", "eth0", []string{"10.0.0.1"}
			w, err := workload("h1", &plugin{name: "p", orchestrator: "demo"}, "tap1", tt.e)
			got := fmt.Sprint(err)
			if err == nil {
				var labels []string
				for label := range w.Metadata.Labels {
					if strings.Contains(label, groupDomain) {
						labels = append(labels, label)
					}
				}
				slices.Sort(labels)
				got = strings.Join(labels, ",")
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func mustParse(t *testing.T, text string) *selector.Selector {
	t.Helper()
	s, err := selector.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
