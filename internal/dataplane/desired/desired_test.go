package desired_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/dataplane/sim"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
)

// node is a dataplane in memory.
type node struct {
	*sim.Dataplane
	t        *testing.T
	refused  map[intent.Key]error
	outcomes map[intent.Key]intent.Outcome // the last ones
}

func newNode(t *testing.T, cfg desired.Config) *node {
	n := &node{Dataplane: sim.NewDataplane(cfg), t: t, refused: map[intent.Key]error{}, outcomes: map[intent.Key]intent.Outcome{}}
	n.Takes = func(key intent.Key) error { return n.refused[key] }
	return n
}

// apply merges batches and applies the changes. Nothing may refer to what does not exist.
func (n *node) apply(bs ...intent.Batch) *node {
	n.t.Helper()
	for _, b := range bs {
		n.Merge(b)
	}
	out, err := n.Apply(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	clear(n.outcomes)
	for _, o := range out {
		n.outcomes[o.Key] = o
	}
	return n
}

// is says what an interface is to the node.
func (n *node) is(link string) string {
	switch l := n.Link(link); {
	case l.Open:
		return "open to " + l.Endpoint.Name
	case l.Closed:
		return "closed"
	}
	return "nobody's"
}

// text is a chain, a line for each rule or guard; empty: there is none.
func (n *node) text(name string) string {
	c, _ := n.Chain(name)
	var lines []string
	for _, r := range c.Rules {
		lines = append(lines, r.String())
	}
	for _, g := range c.Guards {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%v %v do %d %s # %s", g.Terms, g.If, g.Do, g.Target, g.Comment)))
	}
	return strings.Join(lines, "\n")
}

func np(name string) intent.PolicyID {
	return intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: name}
}

func member(p string) intent.Member { return intent.Member{Prefix: netip.MustParsePrefix(p)} }

func inSet(a intent.Action, ids ...intent.SetID) intent.Rule {
	return intent.Rule{Action: a, Src: intent.Peer{Sets: ids}}
}

func pol(name string, in ...intent.Rule) intent.Policy {
	return intent.Policy{ID: np(name), Tier: "t", Ingress: in, Egress: in}
}

func wl(name, link string, policies ...string) intent.Endpoint {
	t := intent.Tier{Name: "t"}
	for _, p := range policies {
		t.Ingress, t.Egress = append(t.Ingress, np(p)), append(t.Egress, np(p))
	}
	return intent.Endpoint{ID: intent.EndpointID{Namespace: "prod", Name: name}, Link: link, Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{t}})}
}

// web is a node with a workload, whose policy asks for a set.
func web() intent.Batch {
	return intent.Batch{
		IPSets: []intent.IPSet{{ID: "s", Members: []intent.Member{member("10.0.0.1/32")}}}, Policies: []intent.Policy{pol("p", inSet(intent.Allow, "s"))},
		Endpoints: []intent.Endpoint{wl("web", "cali1", "p")}, InSync: true,
	}
}

func removed(keys ...intent.Key) intent.Batch { return intent.Batch{Removed: keys} }

// TestWhatLacksSomethingIsClosed: an interface leads somewhere only while all that its endpoint needs is there.
func TestWhatLacksSomethingIsClosed(t *testing.T) {
	boom := errors.New("boom")
	other := func(edit func(*intent.Endpoint)) intent.Batch {
		e := wl("web", "cali1", "p")
		edit(&e)
		return intent.Batch{Endpoints: []intent.Endpoint{e}}
	}
	for _, tt := range []struct {
		name   string
		refuse intent.Key
		then   intent.Batch
		want   string
		why    string // of the endpoint's outcome
	}{
		{name: "all is there", want: "open to web"},
		{name: "its set goes", then: removed(intent.SetID("s")), want: "closed", why: "set s was not sent"},
		{name: "its set becomes one of ports", then: intent.Batch{IPSets: []intent.IPSet{{ID: "s", Kind: intent.SetPorts}}}, want: "closed", why: "does not hold addresses"},
		{name: "its policy goes", then: removed(np("p")), want: "closed", why: "policy NetworkPolicy/prod/p was not sent"},
		{name: "its policy asks for a set that is not there", then: intent.Batch{Policies: []intent.Policy{pol("p", inSet(intent.Allow, "no"))}}, want: "closed", why: "set no was not sent"},
		{name: "its policy cannot be read", then: intent.Batch{Policies: []intent.Policy{{ID: np("p"), Closed: "cannot be read"}}}, want: "open to web"},
		{name: "it names another policy", then: other(func(e *intent.Endpoint) { intenttest.Profiles(e, np("no")) }), want: "closed", why: "prod/no was not sent"},
		{name: "it is closed itself", then: other(func(e *intent.Endpoint) { e.Closed = "has no address" }), want: "closed", why: "has no address"},
		{name: "it goes", then: removed(wl("web", "").ID), want: "nobody's"},
		{name: "it has another interface", then: other(func(e *intent.Endpoint) { e.Link = "cali2" }), want: "nobody's"},
		{name: "its interface has a name that none can have", then: other(func(e *intent.Endpoint) { e.Link = "cali567890123456" }), want: "nobody's", why: "is too long"},
		{name: "the backend does not take its set", refuse: intent.SetID("s"), want: "closed", why: "boom"},
		{name: "the backend does not take its policy", refuse: np("p"), want: "closed", why: "boom"},
		{name: "the backend does not take itself", refuse: wl("web", "").ID, want: "closed", why: "boom"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, desired.Config{})
			if tt.refuse != nil {
				n.refused[tt.refuse] = boom
			}
			n.apply(web(), tt.then)
			o := n.outcomes[wl("web", "").ID]
			if got := n.is("cali1"); got != tt.want || tt.why != "" && !strings.Contains(fmt.Sprint(o.Err, o.Reason), tt.why) {
				t.Errorf("the interface is %s, want %s; outcome %+v, want %q", got, tt.want, o, tt.why)
			}
			if p := (sim.Packet{In: "eth0", Out: "cali1", Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.9")}); n.Judge(p).Allowed && tt.want != "open to web" {
				t.Error("a packet passes")
			}
			clear(n.refused)
			if err := n.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n.apply(web()); n.is("cali1") != "open to web" && tt.name != "it has another interface" {
				t.Errorf("when all is there again the interface is %s", n.is("cali1"))
			}
		})
	}
}

// TestOfTwoOnOneInterface: an open endpoint before one that is closed, then the one whose key is smallest, whoever came first.
// TestTheReasonIsThePresentOne: an endpoint that stays closed says why it is now.
func TestTheReasonIsThePresentOne(t *testing.T) {
	asks := func(set intent.SetID) intent.Batch {
		return intent.Batch{Policies: []intent.Policy{pol("p", inSet(intent.Allow, set))}}
	}
	host := wl("eth", "eth0", "p")
	host.ID = intent.EndpointID{Kind: intent.Host, Name: "eth"}
	n := newNode(t, desired.Config{})
	n.apply(web(), intent.Batch{Endpoints: []intent.Endpoint{host}})
	for _, tt := range []struct {
		name string
		then intent.Batch
		why  string
	}{
		{"its set goes", removed(intent.SetID("s")), "set s was not sent"},
		{"its policy asks for another that is not there", asks("no"), "set no was not sent"},
		{"that is one of ports", intent.Batch{IPSets: []intent.IPSet{{ID: "no", Kind: intent.SetPorts}}}, "does not hold addresses"},
		{"its policy goes", removed(np("p")), "policy NetworkPolicy/prod/p was not sent"},
		{"its policy comes, and asks for the first set", asks("s"), "set s was not sent"},
		{"that comes", intent.Batch{IPSets: []intent.IPSet{{ID: "s"}}}, ""},
	} {
		n.apply(tt.then)
		for _, id := range []intent.EndpointID{wl("web", "").ID, host.ID} {
			switch o, reported := n.outcomes[id]; {
			case !reported:
				t.Errorf("%s: no outcome of %s, want %q", tt.name, id, tt.why)
			case tt.why == "" && o.Err != nil, tt.why != "" && (o.Err == nil || !strings.Contains(o.Err.Error(), tt.why)):
				t.Errorf("%s: %s: %v, want %q", tt.name, id, o.Err, tt.why)
			}
		}
	}
}

func TestOfTwoOnOneInterface(t *testing.T) {
	shut := wl("a", "cali1")
	shut.Closed = "has no address"
	for _, tt := range []struct {
		name string
		eps  []intent.Endpoint
		want string
	}{
		{"the smaller name", []intent.Endpoint{wl("b", "cali1"), wl("a", "cali1")}, "open to a"},
		{"an open one", []intent.Endpoint{shut, wl("b", "cali1")}, "open to b"},
		{"none is open", []intent.Endpoint{shut, wl("b", "cali1", "no")}, "closed"},
	} {
		for _, first := range []int{0, 1} {
			n := newNode(t, desired.Config{}).apply(intent.Batch{InSync: true, Endpoints: tt.eps[first : first+1]}, intent.Batch{Endpoints: tt.eps})
			if got := n.is("cali1"); got != tt.want {
				t.Errorf("%s: the interface is %s, want %s", tt.name, got, tt.want)
			}
		}
	}
	n := newNode(t, desired.Config{}).apply(intent.Batch{InSync: true, Endpoints: []intent.Endpoint{wl("a", "cali1"), wl("b", "cali1")}})
	if got := n.outcomes[wl("b", "").ID].Reason; got != "interface cali1 is another endpoint's" {
		t.Errorf("the other one: %q", got)
	}
	if n.apply(removed(wl("a", "").ID)); n.is("cali1") != "open to b" {
		t.Errorf("the first has gone: %s", n.is("cali1"))
	}
}

// TestBeforeTheSourceIsInSyncNothingOpens: what is so on any node is made, and nothing else; what follows from settings is the closed form.
func TestBeforeTheSourceIsInSyncNothingOpens(t *testing.T) {
	b := web()
	b.InSync, b.Host = false, &intent.HostSettings{EndpointToHost: intent.ToHostAccept, NAT: intent.NATOutgoing{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
	n := newNode(t, desired.Config{}).apply(b)
	if len(n.outcomes) != 0 || n.is("cali1") != "nobody's" || n.text(rules.PolicyChain(np("p"), intent.Ingress)) != "" {
		t.Errorf("outcomes %v, the interface is %s", n.outcomes, n.is("cali1"))
	}
	from := sim.Packet{In: "cali1", Out: "eth0", Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("192.0.2.1")}
	if f := n.Judge(from); f.Allowed || f.By.Reason != intent.ReasonUnknownLink {
		t.Errorf("what a workload sends: %+v", f)
	}
	if text := n.text("wl-host-action"); !strings.Contains(text, "drop") {
		t.Errorf("what a workload sends to its host: %s", text)
	}
	if n.apply(intent.Batch{InSync: true}); n.is("cali1") != "open to web" || !strings.Contains(n.text("wl-host-action"), "accept") || n.text("postrouting-nat") == "" {
		t.Errorf("in sync, the interface is %s", n.is("cali1"))
	}
	pinned := desired.Chain{Pinned: true}
	if !pinned.Early(false) || pinned.Early(true) || (desired.Chain{Owner: desired.HostEndpoints}).Early(false) || !(desired.Chain{}).Early(true) {
		t.Error("what is made early is not what is so on any node, or is what an earlier agent left")
	}
}

// TestChangesAreWhatIsOther: what did not change is not stated again.
func TestChangesAreWhatIsOther(t *testing.T) {
	s := desired.New(desired.Config{})
	s.Merge(web())
	s.Changes()
	changes := func() string {
		c := s.Changes()
		var out []string
		for _, x := range c.Sets {
			out = append(out, fmt.Sprintf("set %s wanted %v", x.ID, x.Wanted))
		}
		for _, x := range c.Chains {
			owner := ""
			if x.Owner != nil {
				owner = x.Owner.String()
			}
			out = append(out, "chain of "+owner)
		}
		for _, x := range c.Gone {
			out = append(out, "no "+x[:6])
		}
		for _, x := range c.Links {
			out = append(out, fmt.Sprintf("link %s open %v", x.Name, x.Open))
		}
		slices.Sort(out)
		return strings.Join(slices.Compact(out), ", ")
	}
	for _, tt := range []struct {
		name string
		b    intent.Batch
		want string
	}{
		{"nothing", intent.Batch{}, ""},
		{"members", intent.Batch{Members: []intent.MemberDelta{{Set: "s", Added: []intent.Member{member("10.0.0.2/32")}}}}, ""},
		{"a policy that nobody asks", intent.Batch{Policies: []intent.Policy{pol("q", inSet(intent.Deny, "s"))}}, "chain of NetworkPolicy/prod/q"},
		{"a policy", intent.Batch{Policies: []intent.Policy{pol("p", inSet(intent.Deny, "s"))}}, "chain of NetworkPolicy/prod/p"},
		{"no policy looks into the set any more", intent.Batch{Policies: []intent.Policy{pol("p"), pol("q")}}, "chain of NetworkPolicy/prod/p, chain of NetworkPolicy/prod/q, set s wanted false"},
		{"a staged policy", intent.Batch{Policies: []intent.Policy{{ID: intent.PolicyID{Kind: "StagedNetworkPolicy", Namespace: "prod", Name: "x"}}}}, ""},
		{"the endpoint goes", removed(wl("web", "").ID), "link cali1 open false, no ep-in-, no ep-out"},
	} {
		s.Merge(tt.b)
		if got := changes(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestWhatIsRecheckedAlreadyDoesNotChange: while established flows of a workload are decided about again, another change that may deny
// costs nothing for its interface, and is judged by itself.
func TestWhatIsRecheckedAlreadyDoesNotChange(t *testing.T) {
	s := desired.New(desired.Config{Recheck: true})
	s.Merge(web())
	s.Changes()
	step := func(what string, want ...bool) {
		t.Helper()
		var got []bool
		for _, l := range s.Changes().Links {
			got = append(got, l.Rechecked)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: interfaces that change, and whether they are rechecked: %v, want %v", what, got, want)
		}
	}
	stricter := intent.Batch{Policies: []intent.Policy{pol("p", inSet(intent.Deny, "s"))}}
	s.Merge(stricter)
	step("a change", true)
	first := s.Standing()
	s.Merge(stricter)
	step("another one")
	s.Judged(first)
	step("the first is judged")
	s.Judged(s.Standing())
	step("the other, too", false)
	s.Merge(stricter)
	step("a change after that", true)
}

// TestBeforeTheSourceIsInSyncChangesHaveNoIntent: what was merged in parts, and removed again, is stated as a whole at last.
func TestBeforeTheSourceIsInSyncChangesHaveNoIntent(t *testing.T) {
	s := desired.New(desired.Config{})
	early := web()
	early.InSync = false
	for _, b := range []intent.Batch{early, {Policies: []intent.Policy{pol("q", inSet(intent.Deny, "s"))}}, removed(np("q")), {Host: &intent.HostSettings{AllowInvalid: true}}} {
		s.Merge(b)
		c := s.Changes()
		of := slices.DeleteFunc(c.Chains, func(c desired.Chain) bool { return c.Owner == nil })
		if len(of)+len(c.Sets)+len(c.Links)+len(c.Gone) > 0 {
			t.Errorf("of an intent: %+v", c)
		}
	}
	s.Merge(intent.Batch{InSync: true})
	got, now := s.Changes(), desired.New(desired.Config{})
	b := web()
	b.Host = &intent.HostSettings{AllowInvalid: true}
	now.Merge(b)
	want := now.Changes()
	ofIntents := func(cs []desired.Chain) []desired.Chain {
		return slices.DeleteFunc(cs, func(c desired.Chain) bool { return c.Owner == nil })
	}
	if !reflect.DeepEqual(ofIntents(got.Chains), ofIntents(want.Chains)) || !slices.Equal(got.Sets, want.Sets) || !slices.Equal(got.Links, want.Links) {
		t.Errorf("in sync:\n%+v\nwant\n%+v", got, want)
	}
}

// fixed is a price that does not depend on the form.
type fixed struct{ rules, members int }

func (f fixed) Rule(rules.Rule) (int, int) { return f.rules, 0 }
func (f fixed) Set(intent.SetID) int       { return f.members }

// TestAPolicyOverItsBudgetDeniesInItsPlace, and lets go of its sets; who asks it lives.
func TestAPolicyOverItsBudgetDeniesInItsPlace(t *testing.T) {
	for _, cost := range []*fixed{{rules: 2}, {members: 2}} {
		n := newNode(t, desired.Config{Cost: cost, Budget: desired.Price{Rules: 3, Elements: 1, Members: 1}})
		n.apply(web())
		o := n.outcomes[np("p")]
		text := n.text(rules.PolicyChain(np("p"), intent.Ingress))
		if o.Err == nil || !o.Final || n.is("cali1") != "open to web" || !strings.HasPrefix(text, "deny") || strings.Contains(text, "allow #") {
			t.Errorf("%+v: outcome %+v, the interface is %s, the chain:\n%s", *cost, o, n.is("cali1"), text)
		}
		if n.HasSet("s") {
			t.Error("its set is there")
		}
		*cost = fixed{}
		if n.apply(intent.Batch{Policies: web().Policies}); n.outcomes[np("p")].Err != nil || !strings.Contains(n.text(rules.PolicyChain(np("p"), intent.Ingress)), "allow #") {
			t.Errorf("within its budget: outcome %+v", n.outcomes[np("p")])
		}
	}
}

// TestWhatIsReported: what is denied always, what is allowed if somebody asks for it; and little is logged before settings are known.
func TestWhatIsReported(t *testing.T) {
	s := desired.New(desired.Config{})
	denied, allowed := intent.Decision{Reason: intent.ReasonRule}, intent.Decision{Reason: intent.ReasonRule, Allowed: true}
	if s.Logs().Rate == 0 || !s.Reports(denied) || s.Reports(allowed) || s.Reports(intent.Decision{}) {
		t.Errorf("without settings: logs %+v, reports %v, %v, %v", s.Logs(), s.Reports(denied), s.Reports(allowed), s.Reports(intent.Decision{}))
	}
	s.Merge(web())
	s.Changes()
	s.Merge(intent.Batch{Host: &intent.HostSettings{ReportAllowed: true}})
	if s.Logs().Rate != 0 || !s.Reports(denied) || !s.Reports(allowed) || s.Reports(intent.Decision{}) {
		t.Errorf("with settings: logs %+v, reports %v, %v, %v", s.Logs(), s.Reports(denied), s.Reports(allowed), s.Reports(intent.Decision{}))
	}
	if c := s.Changes(); !slices.ContainsFunc(c.Chains, func(c desired.Chain) bool { return c.Owner == np("p") }) {
		t.Error("the chains of policies are not stated again, though they report otherwise")
	}
}

// TestARestatementIsAFreshStart: a reconciler that comes later gets the same changes as one that was there from the start.
func TestARestatementIsAFreshStart(t *testing.T) {
	b := web()
	b.Host = &intent.HostSettings{NAT: intent.NATOutgoing{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Pool: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
	h := hep("h", "*")
	intenttest.Normal(&h, ask("rejects")...)
	b.Policies = append(b.Policies, pol("rejects", intent.Rule{Reject: true}))
	b.Endpoints = append(b.Endpoints, h, wl("shut", "cali2", "no"))
	text := func(c desired.Changes) string {
		var out []string
		for _, x := range c.Chains {
			if x.Hook != nil {
				x.Comment, x.Hook = fmt.Sprintf("%s at %+v", x.Comment, *x.Hook), nil
			}
			out = append(out, fmt.Sprintf("%+v", x))
		}
		return fmt.Sprintf("%+v\n%s\n%v\n%+v", c.Sets, strings.Join(out, "\n"), c.Gone, c.Links)
	}
	fresh, s := desired.New(desired.Config{}), desired.New(desired.Config{})
	fresh.Merge(b)
	s.Merge(b)
	want := text(fresh.Changes())
	s.Changes()
	if got := text(s.Changes()); got == want {
		t.Fatal("all is stated twice")
	}
	s.Restate()
	if got := text(s.Changes()); got != want {
		t.Errorf("restated:\n%s\nfresh:\n%s", got, want)
	}
}
