package api

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func stored(t *testing.T, tail, doc string) Stored {
	t.Helper()
	s, err := DecodeStored(Update{Key: ResourcesPrefix + tail, Value: []byte(doc)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRulesCloseByThemselves is the first row of docs/wrong-input.md. want is what is
// left: void, or the rule in short; the rule beside it must stay as it is.
func TestRulesCloseByThemselves(t *testing.T) {
	for _, tt := range []struct{ name, rule, want string }{
		{"an understood rule stays", `{"action":"Allow","protocol":"TCP","destination":{"ports":[80]}}`, "Allow TCP dst-ports"},
		{"an unknown field makes an Allow void", `{"action":"Allow","phase":"full"}`, "void"},
		{"an unknown field makes a Pass void", `{"action":"Pass","phase":"full"}`, "void"},
		{"an unknown field makes a Log void", `{"action":"Log","phase":"full"}`, "void"},
		{"an unknown field leaves a Deny", `{"action":"Deny","protocol":"TCP","phase":"full"}`, "Deny TCP"},
		{"an unknown field inside a side makes an Allow void", `{"action":"Allow","source":{"sky":"blue"}}`, "void"},
		{"an unknown field inside a side leaves the rest of a Deny", `{"action":"Deny","source":{"sky":"blue","nets":["10.0.0.0/8"]}}`, "Deny src-nets"},
		{"metadata is harmless", `{"action":"Allow","metadata":{"annotations":{"a":1},"more":true}}`, "Allow"},
		{"a Deny that rejects", `{"action":"Deny","metadata":{"annotations":{"twill.net/reject":"true"}}}`, "Deny rejects"},
		{"a Deny that rejects and is not understood denies more, and rejects", `{"action":"Deny","sky":1,"protocol":"TCP","metadata":{"annotations":{"twill.net/reject":"true"}}}`, "Deny TCP rejects"},
		{"a reject that is neither true nor false is none", `{"action":"Deny","protocol":"TCP","metadata":{"annotations":{"twill.net/reject":"yes","a":"b"}}}`, "Deny TCP"},
		{"a reject that is no text is none", `{"action":"Deny","protocol":"TCP","metadata":{"annotations":{"twill.net/reject":true}}}`, "Deny TCP"},
		{"an Allow that rejects matches nothing", `{"action":"Allow","metadata":{"annotations":{"twill.net/reject":"true"}}}`, "void"},
		{"an Allow with a reject that is no text matches nothing", `{"action":"Allow","metadata":{"annotations":{"twill.net/reject":true}}}`, "void"},
		{"a Pass that rejects matches nothing", `{"action":"Pass","metadata":{"annotations":{"twill.net/reject":"true"}}}`, "void"},
		{"an Allow that expressly does not reject stays", `{"action":"Allow","metadata":{"annotations":{"twill.net/reject":"false"}}}`, "Allow"},
		{"an unknown action does not reject", `{"action":"Shred","metadata":{"annotations":{"twill.net/reject":"true"}}}`, "Deny"},
		{"an unknown action denies what is understood", `{"action":"Shred","protocol":"UDP"}`, "Deny UDP"},
		{"an action in lower case is unknown", `{"action":"allow"}`, "Deny"},
		{"a missing action denies", `{"protocol":"UDP"}`, "Deny UDP"},
		{"an action that is no text denies", `{"action":1,"protocol":"UDP"}`, "Deny UDP"},
		{"a rule that is no object denies all", `"Allow"`, "Deny"},
		{"a null rule denies all", `null`, "Deny"},
		{"a selector that does not parse makes an Allow void", `{"action":"Allow","source":{"selector":"a =="}}`, "void"},
		{"a selector that does not parse leaves a Deny wider", `{"action":"Deny","source":{"selector":"a ==","nets":["10.0.0.0/8"]}}`, "Deny src-nets"},
		{"global() in a selector is no selector", `{"action":"Allow","source":{"selector":"global()"}}`, "void"},
		{"global() within a namespaceSelector is no selector", `{"action":"Allow","source":{"namespaceSelector":"has(a) || global()"}}`, "void"},
		{"global() as the whole namespaceSelector stays", `{"action":"Allow","source":{"namespaceSelector":"global()"}}`, "Allow src-ns"},
		{"one bad net makes an Allow void", `{"action":"Allow","source":{"nets":["10.0.0.0/8","ten"]}}`, "void"},
		{"one bad net takes all nets from a Deny", `{"action":"Deny","protocol":6,"source":{"nets":["10.0.0.0/8","ten"]}}`, "Deny 6"},
		{"a null net is bad", `{"action":"Allow","source":{"nets":[null]}}`, "void"},
		{"an unmasked net is bad", `{"action":"Allow","source":{"nets":["10.0.0.1/8"]}}`, "void"},
		{"IPv4 in IPv6's clothing is bad", `{"action":"Allow","source":{"notNets":["::ffff:10.0.0.0/104"]}}`, "void"},
		{"a bad port makes an Allow void", `{"action":"Allow","protocol":"TCP","destination":{"ports":[80,70000]}}`, "void"},
		{"a bad port takes all ports from a Deny", `{"action":"Deny","protocol":"TCP","destination":{"ports":[80,"9:1"]}}`, "Deny TCP"},
		{"a null port is bad", `{"action":"Deny","protocol":"TCP","destination":{"ports":[null]}}`, "Deny TCP"},
		{"ports need a protocol", `{"action":"Allow","destination":{"ports":[80]}}`, "void"},
		{"named ports need none", `{"action":"Allow","destination":{"ports":["http"]}}`, "Allow dst-ports"},
		{"but beside numbers", `{"action":"Allow","destination":{"ports":["http",80]}}`, "void"},
		{"named ports of a Deny go with an unknown protocol", `{"action":"Deny","protocol":"FOO","destination":{"ports":["http"]},"source":{"nets":["10.0.0.0/8"]}}`, "Deny src-nets"},
		{"ports of a Deny go with an unknown protocol", `{"action":"Deny","protocol":"FOO","destination":{"ports":[80]},"source":{"nets":["10.0.0.0/8"]}}`, "Deny src-nets"},
		{"ICMP's type needs its protocol", `{"action":"Allow","protocol":"TCP","icmp":{"type":8}}`, "void"},
		{"ICMP's code needs a type", `{"action":"Allow","protocol":"ICMP","icmp":{"code":8}}`, "void"},
		{"ICMP without type and code says nothing", `{"action":"Allow","protocol":"ICMP","icmp":{}}`, "Allow ICMP"},
		{"services stand alone", `{"action":"Allow","source":{"services":{"name":"a"},"nets":["10.0.0.0/8"]}}`, "void"},
		{"services of a Deny go if they cannot be", `{"action":"Deny","source":{"services":{"namespace":"b"}}}`, "Deny"},
		{"services say ports themselves", `{"action":"Deny","protocol":"TCP","destination":{"services":{"name":"a"},"ports":[80]}}`, "Deny TCP dst-ports"},
		{"http is for proxies", `{"action":"Allow","http":{"methods":["GET"],"paths":[{"exact":"/a"},{"prefix":"/b"}]}}`, "Allow http"},
		{"http of a Deny is lost", `{"action":"Deny","protocol":"TCP","http":{"methods":["GET"]}}`, "Deny TCP"},
		{"http of a Pass", `{"action":"Pass","http":{"methods":["GET"]}}`, "void"},
		{"http in UDP", `{"action":"Allow","protocol":"UDP","http":{"methods":["GET"]}}`, "void"},
		{"a path that is neither exact nor a prefix", `{"action":"Allow","http":{"paths":[{}]}}`, "void"},
		{"a path that is both", `{"action":"Allow","http":{"paths":[{"exact":"/a","prefix":"/b"}]}}`, "void"},
		{"a path that cannot be read", `{"action":"Allow","http":{"paths":["/a"]}}`, "void"},
		{"a path of a kind that nobody knows", `{"action":"Allow","http":{"paths":[{"exact":"/a","regex":"b"}]}}`, "void"},
		{"a condition of http that nobody knows", `{"action":"Allow","http":{"methods":["GET"],"headers":[]}}`, "void"},
		{"a method without a name", `{"action":"Allow","http":{"methods":[""]}}`, "void"},
		{"a family that does not exist", `{"action":"Allow","ipVersion":5}`, "void"},
		{"protocol 0", `{"action":"Allow","protocol":0}`, "void"},
		{"a side that is no object takes a Deny's whole side", `{"action":"Deny","source":7,"protocol":6}`, "Deny 6"},
		{"a field's name that looks like a path is unknown", `{"action":"Allow","metadata.x":1}`, "void"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stored(t, "networkpolicies/ns/p", `{"spec":{"ingress":[`+tt.rule+`,{"action":"Allow","protocol":"TCP"}]}}`)
			p := s.Resource.(*NetworkPolicy)
			if got := brief(p.Spec.Ingress[0]); got != tt.want || s.Closed != "" {
				t.Errorf("got %s (closed %q), want %s", got, s.Closed, tt.want)
			}
			if got := brief(p.Spec.Ingress[1]); got != "Allow TCP" {
				t.Errorf("the rule beside became %s", got)
			}
			changed := tt.want == "void" || strings.HasPrefix(tt.want, "Deny") && tt.want != "Deny rejects"
			if changed != (len(s.Problems) > 0) {
				t.Errorf("problems %v", s.Problems)
			}
		})
	}
}

func brief(r Rule) string {
	if r.Void {
		return "void"
	}
	out := []string{string(r.Action)}
	add := func(there bool, what string) {
		if there {
			out = append(out, what)
		}
	}
	if r.Protocol != nil {
		out = append(out, r.Protocol.String())
	}
	add(r.IPVersion != nil, "version")
	add(r.NotProtocol != nil, "notProtocol")
	add(r.ICMP != nil, "icmp")
	add(r.NotICMP != nil, "notICMP")
	add(r.HTTP != nil, "http")
	add(r.Rejects(), "rejects")
	for side, e := range map[string]EntityRule{"src": r.Source, "dst": r.Destination} {
		add(len(e.Nets) > 0, side+"-nets")
		add(len(e.NotNets) > 0, side+"-notNets")
		add(len(e.Ports) > 0, side+"-ports")
		add(len(e.NotPorts) > 0, side+"-notPorts")
		add(e.Selector != "", side+"-sel")
		add(e.NotSelector != "", side+"-notSel")
		add(e.NamespaceSelector != "", side+"-ns")
		add(e.ServiceAccounts != nil, side+"-sa")
		add(e.Services != nil, side+"-services")
	}
	return strings.Join(out, " ")
}

func TestResourcesClose(t *testing.T) {
	for _, tt := range []struct {
		name, key, doc string
		closed         string // the field in Closed; empty: open
		problems       int
	}{
		{"a selector that does not parse closes a policy", "networkpolicies/a/p", `{"spec":{"selector":"a =="}}`, "spec.selector", 1},
		{"global() closes a policy", "globalnetworkpolicies/p", `{"spec":{"selector":"has(a) && global()"}}`, "spec.selector", 1},
		{"global() in quotes is a value", "globalnetworkpolicies/p", `{"spec":{"selector":"a == 'global()'"}}`, "", 0},
		{"an unreadable selector closes a policy", "networkpolicies/a/p", `{"spec":{"selector":7}}`, "spec.selector", 1},
		{"a bad namespaceSelector closes a policy", "globalnetworkpolicies/p", `{"spec":{"namespaceSelector":"("}}`, "spec.namespaceSelector", 1},
		{"a bad serviceAccountSelector closes a policy", "networkpolicies/a/p", `{"spec":{"serviceAccountSelector":"("}}`, "spec.serviceAccountSelector", 1},
		{"an unknown type closes a policy", "networkpolicies/a/p", `{"spec":{"types":["Ingress","Sideways"]}}`, "spec.types[1]", 1},
		{"unreadable types close a policy", "networkpolicies/a/p", `{"spec":{"types":"Ingress"}}`, "spec.types", 1},
		{"an unreadable tier closes a policy", "networkpolicies/a/p", `{"spec":{"tier":7}}`, "spec.tier", 1},
		{"an unreadable order closes a policy", "networkpolicies/a/p", `{"spec":{"order":"first"}}`, "spec.order", 1},
		{"rules that are no list close a policy", "networkpolicies/a/p", `{"spec":{"ingress":{}}}`, "spec.ingress", 1},
		{"a spec that is no object closes a policy", "networkpolicies/a/p", `{"spec":[]}`, "spec", 1},
		{"JSON that is no object closes a policy", "networkpolicies/a/p", `[]`, "want an object", 1},
		{"null closes a policy", "networkpolicies/a/p", `null`, "want", 1},
		{"a document of another kind closes a policy", "networkpolicies/a/p", `{"kind":"GlobalNetworkPolicy","spec":{}}`, "kind", 1},
		{"an unknown field of a spec is a problem alone", "networkpolicies/a/p", `{"spec":{"weather":1}}`, "", 1},
		{"unknown metadata is nothing", "networkpolicies/a/p", `{"metadata":{"managedFields":[]},"spec":{}}`, "", 0},
		{"bad labels are no harm to a policy", "networkpolicies/a/p", `{"metadata":{"labels":7},"spec":{}}`, "", 1},
		{"a tier with a bad action stays where it is and denies", "tiers/t", `{"spec":{"order":3,"defaultAction":"Maybe"}}`, "", 1},
		{"a tier with a bad order is unknown", "tiers/t", `{"spec":{"order":"x"}}`, "spec.order", 1},
		{"an endpoint without addresses carries nothing", "workloadendpoints/a/w", `{"spec":{"node":"n"}}`, "spec.ipNetworks", 1},
		{"an endpoint whose addresses are all bad carries nothing", "workloadendpoints/a/w", `{"spec":{"ipNetworks":["10.0.0.0/24","x"]}}`, "spec.ipNetworks", 3},
		{"one good address is enough", "workloadendpoints/a/w", `{"spec":{"ipNetworks":["10.0.0.1","x"]}}`, "", 1},
		{"bad labels close an endpoint", "workloadendpoints/a/w", `{"metadata":{"labels":{"a":1,"b":"c"}},"spec":{"ipNetworks":["10.0.0.1/32"]}}`, "metadata.labels.a", 1},
		{"bad profiles close an endpoint", "workloadendpoints/a/w", `{"spec":{"profiles":[1],"ipNetworks":["10.0.0.1/32"]}}`, "spec.profiles[0]", 1},
		{"a bad pool", "ippools/p", `{"spec":{"cidr":"x"}}`, "spec.cidr", 1},
		{"a bad profile", "profiles/p", `{"spec":{"labelsToApply":{"a":1}}}`, "spec.labelsToApply.a", 1},
		{"a set loses its bad nets alone", "networksets/a/s", `{"spec":{"nets":["10.0.0.1/8","x"]}}`, "", 1},
		{"settings take their defaults one by one", "felixconfigurations/default", `{"spec":{"defaultEndpointToHostAction":"Maybe","reportingInterval":"soon","healthPort":"x","logSeverityScreen":"Info","other":1}}`, "", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stored(t, tt.key, tt.doc)
			if (tt.closed == "") != (s.Closed == "") || !strings.Contains(s.Closed, tt.closed) {
				t.Errorf("closed %q, want %q", s.Closed, tt.closed)
			}
			if len(s.Problems) != tt.problems {
				t.Errorf("problems %+v, want %d", s.Problems, tt.problems)
			}
		})
	}
}

func TestBadSettingsAreDefaultsAndGoodOnesStay(t *testing.T) {
	s := stored(t, "felixconfigurations/default", `{"spec":{"defaultEndpointToHostAction":"Maybe","healthPort":"x","logSeverityScreen":"debug"}}`)
	f := s.Resource.(*FelixConfiguration).Spec
	if f.DefaultEndpointToHostAction != "" || f.HealthPort != nil || f.LogSeverityScreen != "debug" {
		t.Errorf("got %+v", f)
	}
}

func TestTierWithABadActionDenies(t *testing.T) {
	r := stored(t, "tiers/t", `{"spec":{"order":3,"defaultAction":"Maybe"}}`).Resource.(*Tier)
	if *r.Spec.DefaultAction != Deny || *r.Spec.Order != 3 {
		t.Errorf("got %+v", r.Spec)
	}
}

func TestAProfileMustNotPass(t *testing.T) {
	s := stored(t, "profiles/p", `{"spec":{"ingress":[{"action":"Pass","protocol":"TCP","source":{"selector":"has(a)"}},{"action":"Allow"}],
"egress":[{"action":"Pass","protocol":"TCP","source":{"selector":"has("}}]}}`)
	spec := s.Resource.(*Profile).Spec
	if r := spec.Ingress[0]; r.Action != Deny || r.Void || r.Protocol == nil || r.Source.Selector != "has(a)" {
		t.Errorf("it does not deny what it would pass: %+v", r)
	}
	if r := spec.Ingress[1]; r.Action != Allow || r.Void {
		t.Errorf("the next rule: %+v", r)
	}
	if r := spec.Egress[0]; r.Action != Deny || r.Void || r.Protocol == nil || r.Source.Selector != "" {
		t.Errorf("what is not understood is not denied: %+v", r)
	}
	var fields []string
	for _, p := range s.Problems {
		fields = append(fields, p.Field)
	}
	if want := []string{"spec.ingress[0].action", "spec.egress[0].action", "spec.egress[0].source.selector"}; !slices.Equal(fields, want) || s.Closed != "" {
		t.Errorf("problems %v, want %v; closed %q", fields, want, s.Closed)
	}
}

func TestNothingJoinsANamespaceByItsLabels(t *testing.T) {
	const claims = `{"pcns.env":"prod","pcsa.x":"y","projectcalico.org/namespace":"prod","projectcalico.org/serviceaccount":"robot","projectcalico.org/orchestrator":"k8s","projectcalico.org/name":"n","app":"web"}`
	for _, tt := range []struct{ name, key, doc, want string }{
		{"a workload", "workloadendpoints/a/w", `{"metadata":{"labels":` + claims + `},"spec":{"ipNetworks":["10.0.0.1/32"]}}`, "app projectcalico.org/name"},
		{
			"a workload has its own", "workloadendpoints/prod/w", `{"metadata":{"labels":` + claims + `},"spec":{"ipNetworks":["10.0.0.1/32"],"serviceAccountName":"robot","orchestrator":"k8s"}}`,
			"app projectcalico.org/name projectcalico.org/namespace projectcalico.org/orchestrator projectcalico.org/serviceaccount",
		},
		{"a host endpoint", "hostendpoints/h", `{"metadata":{"labels":` + claims + `},"spec":{"node":"n","interfaceName":"*"}}`, "app projectcalico.org/name"},
		{"a network set", "networksets/a/s", `{"metadata":{"labels":` + claims + `},"spec":{"nets":["10.0.0.0/8"]}}`, "app projectcalico.org/name"},
		{"a network set of that namespace", "networksets/prod/s", `{"metadata":{"labels":` + claims + `},"spec":{"nets":["10.0.0.0/8"]}}`, "app projectcalico.org/name projectcalico.org/namespace"},
		{"a global network set", "globalnetworksets/s", `{"metadata":{"labels":` + claims + `},"spec":{"nets":["10.0.0.0/8"]}}`, "app projectcalico.org/name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stored(t, tt.key, tt.doc)
			got := strings.Join(slices.Sorted(maps.Keys(s.Resource.Meta().Labels)), " ")
			if kept := len(strings.Fields(tt.want)); got != tt.want || len(s.Problems) != 7-kept || s.Closed != "" {
				t.Errorf("labels %s, closed %q, problems %v", got, s.Closed, s.Problems)
			}
		})
	}
	s := stored(t, "profiles/p", `{"spec":{"labelsToApply":`+claims+`}}`)
	if got := strings.Join(slices.Sorted(maps.Keys(s.Resource.(*Profile).Spec.LabelsToApply)), " "); got != "app pcns.env pcsa.x projectcalico.org/name" || len(s.Problems) != 3 || s.Closed != "" {
		t.Errorf("a profile hands on %s; closed %q, problems %v", got, s.Closed, s.Problems)
	}
}

func TestTheKeySaysWhereAResourceIs(t *testing.T) {
	s := stored(t, "workloadendpoints/a/w", `{"metadata":{"name":"x","namespace":"b"},"spec":{"ipNetworks":["10.0.0.1/32"]}}`)
	if m := s.Resource.Meta(); m.Namespace != "a" || m.Name != "w" || s.Ref != (Ref{KindWorkloadEndpoint, "a", "w"}) {
		t.Errorf("got %+v, %+v", m, s.Ref)
	}
}

func TestPortsThatCannotBeReadAreGone(t *testing.T) {
	s := stored(t, "workloadendpoints/a/w", `{"spec":{"ipNetworks":["10.0.0.1/32"],"mac":"x","ports":[
		{"name":"a","protocol":"TCP","port":80},{"name":"b","protocol":"FOO","port":80},{"name":"c","protocol":"TCP","port":"x"},
		{"protocol":"TCP","port":81},{"name":"d","protocol":null,"port":80}]}}`)
	w := s.Resource.(*WorkloadEndpoint).Spec
	if len(w.Ports) != 1 || w.Ports[0].Name != "a" || w.MAC != "" || s.Closed != "" {
		t.Errorf("got %+v, closed %q", w, s.Closed)
	}
}

func TestWhatIsNoJSONOrNoResourceIsAnError(t *testing.T) {
	for _, u := range []Update{
		{Key: ResourcesPrefix + "tiers/a", Value: []byte("{")},
		{Key: ResourcesPrefix + "tiers/a", Value: []byte("")},
		{Key: ResourcesPrefix + "tiers/a", Value: []byte(`{} x`)},
		{Key: ResourcesPrefix + "tiers/a"},
		{Key: "/calico/ipam/v2/config", Value: []byte("{}")},
	} {
		if s, err := DecodeStored(u); err == nil {
			t.Errorf("%s %q: %+v", u.Key, u.Value, s)
		}
	}
}

func TestPlainAddressesBecomePrefixes(t *testing.T) {
	p := stored(t, "networkpolicies/a/p", `{"spec":{"ingress":[{"action":"Allow","source":{"nets":["10.0.0.1","fd00::1","10.0.0.0/8"]}}]}}`).Resource.(*NetworkPolicy)
	if got := p.Spec.Ingress[0].Source.Nets; !slices.Equal(got, []string{"10.0.0.1/32", "fd00::1/128", "10.0.0.0/8"}) {
		t.Errorf("got %v", got)
	}
}

// TestWhatNoPacketMatchesIsReported: such a rule stays as it is, and does nothing for that family, as with upstream.
func TestWhatNoPacketMatchesIsReported(t *testing.T) {
	for _, tt := range []struct{ name, rule, field string }{
		{"nets of two families at two ends", `{"action":"Deny","source":{"nets":["10.0.0.0/8"]},"destination":{"notNets":["fd00::/8"]}}`, "spec.ingress[0].destination.notNets"},
		{"not in everything", `{"action":"Deny","source":{"notNets":["0.0.0.0/0"]}}`, "spec.ingress[0].source.notNets"},
		{"a net against ipVersion", `{"action":"Allow","ipVersion":6,"source":{"nets":["10.0.0.0/8"]}}`, "spec.ingress[0].source.nets"},
		{"a net against ICMP", `{"action":"Allow","protocol":"ICMP","destination":{"nets":["fd00::/8"]}}`, "spec.ingress[0].destination.nets"},
		{"both families in each list", `{"action":"Allow","source":{"nets":["10.0.0.0/8","fd00::/8"]},"destination":{"notNets":["10.0.0.0/8","fd00::/8"]}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stored(t, "globalnetworkpolicies/p", `{"spec":{"ingress":[`+tt.rule+`]}}`)
			if r := s.Resource.(*GlobalNetworkPolicy).Spec.Ingress[0]; r.Void || !slices.ContainsFunc(r.netLists(), func(l netList) bool { return len(l.nets) > 0 }) {
				t.Errorf("the rule became %+v", r)
			}
			named := slices.ContainsFunc(s.Problems, func(p Problem) bool { return p.Field == tt.field })
			if named != (tt.field != "") || tt.field == "" && len(s.Problems) > 0 {
				t.Errorf("problems %v", s.Problems)
			}
		})
	}
}

func TestWhatCalicoWritesEmptyIsNoProblem(t *testing.T) {
	s := stored(t, "felixconfigurations/default", `{"spec":{"bpfLogLevel":"","bpfConnectTimeLoadBalancing":"Enabled"}}`)
	if len(s.Problems) != 1 || s.Problems[0].Field != "spec.bpfConnectTimeLoadBalancing" || !s.Problems[0].NoEffect || s.Closed != "" {
		t.Errorf("problems %v, closed %q; want only the field that says something", s.Problems, s.Closed)
	}
}

// TestWhatIsRefusedOnlyWhenWritten has values that validation refuses and that stay in force where they are stored.
func TestWhatIsRefusedOnlyWhenWritten(t *testing.T) {
	f := stored(t, "felixconfigurations/default", `{"spec":{"prometheusMetricsHost":"a b","openstackRegion":"R_1"}}`)
	if spec := f.Resource.(*FelixConfiguration).Spec; spec.PrometheusMetricsHost != "a b" || spec.OpenstackRegion != "R_1" {
		t.Errorf("settings gave way to their defaults: %+v", spec)
	}
	p := stored(t, "ippools/a", `{"spec":{"cidr":"10.65.0.0/16","assignmentMode":"","allowedUses":["LoadBalancer"],"disableBGPExport":true,"nodeSelector":"has(a)"}}`)
	if p.Closed != "" || len(p.Problems) != 0 {
		t.Errorf("pool: closed %q, problems %v", p.Closed, p.Problems)
	}
	n := stored(t, "networkpolicies/b/x", `{"spec":{"tier":"default","types":["Ingress"],"ingress":[{"action":"Allow","protocol":"tcp","destination":{"ports":["0:80"]}}]}}`)
	if rules := n.Resource.(*NetworkPolicy).Spec.Ingress; n.Closed != "" || len(rules) != 1 || rules[0].Void {
		t.Errorf("policy: closed %q, rules %+v", n.Closed, rules)
	}
}
