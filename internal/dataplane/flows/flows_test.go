package flows

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/nflog"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/verdict"
)

// The node of these tests: workloads web and db, host endpoint up, and who is elsewhere.
const (
	linkWeb, linkDB, linkUp, linkNew = 1, 2, 3, 4

	addrWeb, addrDB, addrFar = "10.65.0.1", "10.65.0.2", "192.0.2.9"
)

func workload(name, link, addr string) intent.Endpoint {
	return intent.Endpoint{ID: intent.EndpointID{Namespace: "ns", Name: "k8s-" + name}, Label: "ns/" + name, Link: link, Addrs: []netip.Addr{netip.MustParseAddr(addr)}}
}

var (
	web = workload("web", "cali1", addrWeb)
	db  = workload("db", "cali2", addrDB)
	up  = intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "up"}, Link: "eth0", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	np  = intent.PolicyID{Kind: "NetworkPolicy", Namespace: "ns", Name: "p"}
)

// node is a collector that knows it.
func node(staged func(verdict.Packet) verdict.Verdict) *Collector {
	c := New(Config{Names: attribution.New(), Staged: staged})
	c.InForce(intent.Batch{Endpoints: []intent.Endpoint{web, db, up}}, false)
	var links []ifmon.Change
	for i, name := range map[int]string{linkWeb: "cali1", linkDB: "cali2", linkUp: "eth0", linkNew: "cali9"} {
		links = append(links, ifmon.Change{Link: ifmon.Link{Index: i, Name: name}})
	}
	c.Links(links)
	return c
}

// ruleOf is the decision of a rule of a policy.
func ruleOf(p intent.PolicyID, dir intent.Direction, index int, allowed bool) intent.Decision {
	return intent.Decision{Reason: intent.ReasonRule, Allowed: allowed, Tier: "default", Rule: intent.RuleID{Policy: p, Direction: dir, Index: index}}
}

// shared is the decision of a rule that is the same on any host.
func shared(reason string) intent.Decision {
	return intent.Decision{Reason: reason, Rule: intent.RuleID{Index: intent.NoRule}}
}

// reportOf is a report of a TCP packet under the name of a decision, which a chain has.
func reportOf(c *Collector, d intent.Decision, from, to string) nflog.Packet {
	n := c.cfg.Names.Name(d, 7)
	c.cfg.Names.Chain("chain", []attribution.Name{n})
	p := packet.Packet{Src: netip.MustParseAddr(from), Dst: netip.MustParseAddr(to), Proto: 6, SrcPort: 1000, DstPort: 80}
	return nflog.Packet{Prefix: n.Prefix(), Payload: p.Frame(packet.MAC{}, packet.MAC{})[14:]}
}

func via(p nflog.Packet, in, out int) nflog.Packet {
	p.In, p.Out = in, out
	return p
}

func TestAReportBecomesAFlow(t *testing.T) {
	for _, tt := range []struct {
		name     string
		by       intent.Decision
		from, to string
		in, out  int
		want     Flow
	}{
		{
			"a workload receives", ruleOf(np, intent.Ingress, 2, false), addrFar, addrWeb, linkUp, linkWeb,
			Flow{Reason: "rule", Endpoint: "ns/web", Dir: "Ingress", Tier: "default", Policy: "NetworkPolicy/ns/p", Rule: 2, To: "ns/web", In: "eth0", Out: "cali1"},
		},
		{
			"a workload sends to another", ruleOf(np, intent.Egress, 0, true), addrWeb, addrDB, linkWeb, linkDB,
			Flow{Allowed: true, Reason: "rule", Endpoint: "ns/web", Dir: "Egress", Tier: "default", Policy: "NetworkPolicy/ns/p", From: "ns/web", To: "ns/db", In: "cali1", Out: "cali2"},
		},
		{
			"the host receives through its endpoint", ruleOf(np, intent.Ingress, 1, false), addrFar, "192.0.2.1", linkUp, 0,
			Flow{Reason: "rule", Endpoint: "host/up", Dir: "Ingress", Tier: "default", Policy: "NetworkPolicy/ns/p", Rule: 1, In: "eth0"},
		},
		{
			"the host sends through its endpoint", ruleOf(np, intent.Egress, 1, false), "192.0.2.1", addrFar, 0, linkUp,
			Flow{Reason: "rule", Endpoint: "host/up", Dir: "Egress", Tier: "default", Policy: "NetworkPolicy/ns/p", Rule: 1, Out: "eth0"},
		},
		{
			"no profile of an endpoint matched",
			intent.Decision{Reason: intent.ReasonNoProfileMatch, Endpoint: db.ID, Rule: intent.RuleID{Index: intent.NoRule}},
			addrWeb, addrDB, linkWeb, linkDB,
			Flow{Reason: "no profile matched", Endpoint: "ns/db", Dir: "Ingress", Rule: -1, From: "ns/web", To: "ns/db", In: "cali1", Out: "cali2"},
		},
		{
			"a rule that all share, by a sender", shared(intent.ReasonSpoofed), "203.0.113.1", addrDB, linkWeb, 0,
			Flow{Reason: "spoofed source", Endpoint: "ns/web", Dir: "Egress", Rule: -1, To: "ns/db", In: "cali1"},
		},
		{
			"a rule that all share, for a receiver", shared(intent.ReasonInvalid), addrFar, addrDB, linkUp + 90, linkDB,
			Flow{Reason: "invalid", Endpoint: "ns/db", Dir: "Ingress", Rule: -1, To: "ns/db", In: "#93", Out: "cali2"},
		},
		{
			"an interface of nobody", shared(intent.ReasonUnknownLink), "10.65.0.77", addrFar, linkNew, linkUp + 90,
			Flow{Reason: "no endpoint on this workload interface", Dir: "Ingress", Rule: -1, In: "cali9", Out: "#93"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := node(nil)
			c.report(via(reportOf(c, tt.by, tt.from, tt.to), tt.in, tt.out))
			if c.Counts().Unknown != 0 || len(c.Last(1)) != 1 {
				t.Fatalf("no flow: %+v", c.Counts())
			}
			got := c.Last(1)[0]
			tt.want.Time, tt.want.Src, tt.want.Dst = got.Time, netip.MustParseAddr(tt.from), netip.MustParseAddr(tt.to)
			tt.want.Proto, tt.want.SrcPort, tt.want.DstPort = 6, 1000, 80
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestAWildcardHostEndpointHasWhatNoOtherHas(t *testing.T) {
	c := node(nil)
	all := intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "all"}, Link: "*"}
	c.InForce(intent.Batch{Endpoints: []intent.Endpoint{all}, Removed: []intent.Key{up.ID}}, false)
	c.report(via(reportOf(c, ruleOf(np, intent.Ingress, 0, false), addrFar, "192.0.2.1"), linkUp, 0))
	c.report(via(reportOf(c, ruleOf(np, intent.Ingress, 0, false), addrFar, addrWeb), linkUp, linkWeb))
	c.report(via(reportOf(c, shared(intent.ReasonUnknownLink), "10.65.0.77", addrFar), linkNew, linkUp))
	if fs := c.Last(3); fs[0].Endpoint != "host/all" || fs[1].Endpoint != "ns/web" || fs[2].Endpoint != "" {
		t.Errorf("they are of %q, %q and %q", fs[0].Endpoint, fs[1].Endpoint, fs[2].Endpoint)
	}
}

// TestAPolicyDecidedForTheEndpointThatHasIt: a packet between two workloads passes four stages, and the same policy may be of endpoints at each.
func TestAPolicyDecidedForTheEndpointThatHasIt(t *testing.T) {
	early := intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "early"}
	through := intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "through"}
	tiers := func(p intent.PolicyID) []intent.Tier {
		return []intent.Tier{{Name: "default", Ingress: []intent.PolicyID{p}, Egress: []intent.PolicyID{p}}}
	}
	all := intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "all"}, Link: "*"}
	intenttest.PreDNAT(&all, tiers(early)...)
	intenttest.Forward(&all, tiers(through)...)
	intenttest.Normal(&all, tiers(np)...)
	asked := web
	intenttest.Normal(&asked, tiers(np)...)
	c := node(nil)
	c.InForce(intent.Batch{Endpoints: []intent.Endpoint{all, asked}, Removed: []intent.Key{up.ID}}, false)
	for _, tt := range []struct {
		by      intent.PolicyID
		dir     intent.Direction
		in, out int
		want    string
	}{
		{early, intent.Ingress, linkWeb, 0, "host/all"},
		{through, intent.Ingress, linkWeb, linkDB, "host/all"},
		{through, intent.Egress, linkWeb, linkDB, "host/all"},
		{np, intent.Egress, linkWeb, linkDB, "ns/web"},
		{np, intent.Ingress, linkUp, linkWeb, "ns/web"},
		{np, intent.Ingress, linkUp, 0, "host/all"},
		{np, intent.Egress, 0, linkUp, "host/all"},
		{np, intent.Ingress, linkUp, linkDB, "ns/db"}, // by an agent that knew more of it
	} {
		c.report(via(reportOf(c, ruleOf(tt.by, tt.dir, 0, false), addrWeb, addrDB), tt.in, tt.out))
		if got := c.Last(1)[0].Endpoint; got != tt.want {
			t.Errorf("%s %s from %d to %d: decided for %q, want %q", tt.by, tt.dir, tt.in, tt.out, got, tt.want)
		}
	}
}

func TestWhatAClosedEndpointSendsIsOfThatEndpoint(t *testing.T) {
	c := node(nil)
	closed := workload("bad", "cali9", "10.65.0.9")
	closed.Closed = "no addresses"
	twin := workload("twin", "cali1", "10.65.0.8")
	twin.Closed = "another endpoint has this interface"
	c.InForce(intent.Batch{Endpoints: []intent.Endpoint{closed, twin}}, false)
	c.report(via(reportOf(c, shared(intent.ReasonClosed), "10.65.0.9", addrFar), linkNew, 0))
	c.report(via(reportOf(c, shared(intent.ReasonSpoofed), "10.65.0.9", addrFar), linkWeb, 0))
	if fs := c.Last(2); fs[0].Endpoint != "ns/bad" || fs[0].Dir != "Egress" || fs[1].Endpoint != "ns/web" {
		t.Errorf("they are %+v and %+v", fs[0], fs[1])
	}
}

func TestWhatNobodyKnowsIsCounted(t *testing.T) {
	c := node(nil)
	good := reportOf(c, ruleOf(np, intent.Ingress, 0, false), addrFar, addrWeb)
	for _, p := range []nflog.Packet{
		{Prefix: "another's", Payload: good.Payload},
		{Prefix: attribution.Name{ID: 5}.Prefix(), Payload: good.Payload},
		{Prefix: good.Prefix},
		{Prefix: good.Prefix, Payload: []byte{0x60, 0}},
	} {
		c.report(p)
	}
	if n := c.Counts(); n.Unknown != 4 || n.Dropped != 0 || len(c.Last(9)) != 0 {
		t.Errorf("counted %+v and kept %v", n, c.Last(9))
	}
	c.report(good)
	c.report(reportOf(c, ruleOf(np, intent.Ingress, 1, true), addrFar, addrWeb))
	if n := c.Counts(); n.Unknown != 4 || n.Dropped != 1 || n.Allowed != 1 {
		t.Errorf("counted %+v", n)
	}
}

func TestAReportOfAFormerRuleSaysSo(t *testing.T) {
	c := node(nil)
	d := ruleOf(np, intent.Ingress, 0, false)
	p := reportOf(c, d, addrFar, addrWeb)
	c.report(p)
	c.cfg.Names.Chain("chain", []attribution.Name{c.cfg.Names.Name(d, 8)})
	c.report(p)
	if fs := c.Last(2); fs[0].Changed || !fs[1].Changed {
		t.Errorf("before the change %v, after it %v", fs[0].Changed, fs[1].Changed)
	}
}

func TestEndpointsComeMoveAndGo(t *testing.T) {
	c := node(nil)
	moved := web
	moved.Link, moved.Addrs = "cali9", []netip.Addr{netip.MustParseAddr("10.65.0.3")}
	look := func(addr string, in int) [2]string {
		c.report(via(reportOf(c, ruleOf(np, intent.Egress, 0, false), addr, addrFar), in, linkUp))
		f := c.Last(1)[0]
		return [2]string{f.From, f.Endpoint}
	}
	for _, step := range []struct {
		name  string
		batch intent.Batch
		links []ifmon.Change
		addr  string
		in    int
		want  [2]string
	}{
		{"at first", intent.Batch{}, nil, addrWeb, linkWeb, [2]string{"ns/web", "ns/web"}},
		{"moved: what it had is nobody's", intent.Batch{Endpoints: []intent.Endpoint{moved}}, nil, addrWeb, linkWeb, [2]string{}},
		{"moved: what it has now", intent.Batch{}, nil, "10.65.0.3", linkNew, [2]string{"ns/web", "ns/web"}},
		{"the interface's name is given to another", intent.Batch{}, []ifmon.Change{{Link: ifmon.Link{Index: linkNew, Name: "cali2"}}}, addrDB, linkNew, [2]string{"ns/db", "ns/db"}},
		{"the interface is gone", intent.Batch{}, []ifmon.Change{{Link: ifmon.Link{Index: linkNew, Name: "cali2"}, Gone: true}}, addrDB, linkNew, [2]string{"ns/db", ""}},
		{"another has the interface now", intent.Batch{Endpoints: []intent.Endpoint{workload("db2", "cali2", "10.65.0.4")}}, nil, addrDB, linkDB, [2]string{"ns/db", "ns/db2"}},
		{"the endpoint is gone", intent.Batch{Removed: []intent.Key{db.ID, web.ID}}, nil, addrDB, linkDB, [2]string{"", "ns/db2"}},
	} {
		c.InForce(step.batch, false)
		c.Links(step.links)
		if got := look(step.addr, step.in); got != step.want {
			t.Errorf("%s: from and endpoint are %q, want %q", step.name, got, step.want)
		}
	}
}

func TestWhatStagedPoliciesWouldHaveDecided(t *testing.T) {
	staged := intent.PolicyID{Kind: "StagedNetworkPolicy", Namespace: "ns", Name: "p"}
	of := func(e intent.Endpoint, d intent.Decision) intent.Decision { d.Endpoint = e.ID; return d }
	in, out := intent.Ingress, intent.Egress
	for _, tt := range []struct {
		name       string
		is, would  intent.Decision // of a packet from web to db
		tell, turn bool
	}{
		{"it would be denied here", ruleOf(np, in, 0, true), of(db, ruleOf(staged, in, 1, false)), true, true},
		{"it would be denied by the other end, which says so itself", ruleOf(np, in, 0, true), of(web, ruleOf(staged, out, 1, false)), false, false},
		{"it would have been allowed", ruleOf(np, out, 0, false), of(db, ruleOf(staged, in, 1, true)), true, true},
		{"the same, by a staged rule", ruleOf(np, in, 0, true), of(db, ruleOf(staged, in, 1, true)), true, false},
		{"the same, by the same rule", ruleOf(np, in, 0, true), of(db, ruleOf(np, in, 0, true)), false, false},
		{"the same, by a staged rule of the other end", ruleOf(np, in, 0, true), of(web, ruleOf(staged, out, 1, true)), false, false},
		{"it would have been denied, too, elsewhere", ruleOf(np, in, 0, false), of(web, ruleOf(staged, out, 1, false)), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked verdict.Packet
			c := node(func(p verdict.Packet) verdict.Verdict { asked = p; return verdict.Verdict{Decision: tt.would} })
			e := db
			intenttest.Staged(&e)
			c.InForce(intent.Batch{Endpoints: []intent.Endpoint{e}}, false)
			c.report(via(reportOf(c, tt.is, addrWeb, addrDB), linkWeb, linkDB))
			f, counts := c.Last(1)[0], c.Counts()
			if asked.InLink != "cali1" || asked.OutLink != "cali2" || asked.Src != f.Src || asked.Dst != f.Dst || asked.Proto != 6 || asked.DstPort != 80 {
				t.Errorf("it was asked about %+v", asked)
			}
			want := Would{Allowed: tt.would.Allowed, Reason: "rule", Endpoint: c.endpoints[tt.would.Endpoint].label, Dir: tt.would.Rule.Direction.String(), Tier: "default", Policy: tt.would.Rule.Policy.String(), Rule: tt.would.Rule.Index}
			if (f.Staged != nil) != tt.tell || tt.tell && *f.Staged != want {
				t.Errorf("got %+v; want %v, %+v", f.Staged, tt.tell, want)
			}
			want.Endpoint = "" // counts are by rule, whatever the endpoint
			if n := counts.Staged[want]; n == 1 != tt.turn || !tt.turn && len(counts.Staged) > 0 {
				t.Errorf("counted %v, want %v", counts.Staged, tt.turn)
			}
		})
	}
}

func TestCountsOfStagedPoliciesDoNotGrowWithPods(t *testing.T) {
	staged := intent.PolicyID{Kind: "StagedNetworkPolicy", Namespace: "ns", Name: "p"}
	var here intent.EndpointID
	c := node(func(verdict.Packet) verdict.Verdict {
		d := ruleOf(staged, intent.Ingress, 0, false)
		d.Endpoint = here
		return verdict.Verdict{Decision: d}
	})
	for i := range 50 {
		e := workload("pod"+strconv.Itoa(i), "cali2", addrDB)
		intenttest.Staged(&e)
		here = e.ID
		c.InForce(intent.Batch{Endpoints: []intent.Endpoint{e}}, false)
		c.report(via(reportOf(c, ruleOf(np, intent.Ingress, 0, true), addrWeb, addrDB), linkWeb, linkDB))
		c.InForce(intent.Batch{Removed: []intent.Key{e.ID}}, false)
	}
	want := map[Would]uint64{{Reason: "rule", Dir: "Ingress", Tier: "default", Policy: staged.String()}: 50}
	if got := c.Counts().Staged; !maps.Equal(got, want) {
		t.Errorf("after 50 pods: %v, want %v", got, want)
	}
	c.InForce(intent.Batch{Removed: []intent.Key{staged}}, false)
	if got := c.Counts().Staged; len(got) > 0 {
		t.Errorf("the policy is gone, and its counts stay: %v", got)
	}
}

func TestStagedPoliciesAreNotAskedInVain(t *testing.T) {
	asked := 0
	c := node(func(verdict.Packet) verdict.Verdict { asked++; return verdict.Verdict{} })
	d := ruleOf(np, intent.Ingress, 0, false)
	look := func(p nflog.Packet, want int) {
		t.Helper()
		if c.report(via(p, linkUp, linkDB)); asked != want {
			t.Errorf("asked %d times, want %d", asked, want)
		}
	}
	look(reportOf(c, d, addrFar, addrDB), 0) // nobody has any
	e := db
	intenttest.Staged(&e)
	c.InForce(intent.Batch{Endpoints: []intent.Endpoint{e}}, false)
	early := reportOf(c, d, addrFar, addrDB)
	early.Early = true
	look(early, 0) // where it would have gone is not known
	look(reportOf(c, d, addrFar, addrDB), 1)
	c.InForce(intent.Batch{Endpoints: []intent.Endpoint{db}}, false)
	look(reportOf(c, d, addrFar, addrDB), 1)
}

// numbered reports flows that their source ports tell apart.
func numbered(c *Collector, from, to int) {
	for i := from; i < to; i++ {
		c.mu.Lock()
		c.hand(Flow{Rule: i})
		c.mu.Unlock()
	}
}

func TestTheLastFlowsAreKept(t *testing.T) {
	c := New(Config{})
	for _, tt := range []struct{ upTo, ask, first, n int }{
		{0, 5, 0, 0},
		{3, 5, 0, 3},
		{3, 2, 1, 2},
		{3, 0, 0, 0},
		{3, -1, 0, 0},
		{Kept, Kept + 1, 0, Kept},
		{Kept + 7, Kept, 7, Kept},
		{3*Kept - 1, 10, 3*Kept - 11, 10},
	} {
		c.ring, c.next = nil, 0
		numbered(c, 0, tt.upTo)
		got := c.Last(tt.ask)
		if len(got) != tt.n {
			t.Fatalf("of %d flows, %d asked for: %d", tt.upTo, tt.ask, len(got))
		}
		for i, f := range got {
			if f.Rule != tt.first+i {
				t.Fatalf("of %d flows, %d asked for: number %d is %d", tt.upTo, tt.ask, i, f.Rule)
			}
		}
	}
}

func TestAListenerGetsEachFlowAndASlowOneTheNumberOfMissedOnes(t *testing.T) {
	c := New(Config{})
	numbered(c, 0, 1)
	quick, endQuick := c.Listen()
	slow, endSlow := c.Listen()
	defer endSlow()
	numbered(c, 1, 3)
	for i := 1; i < 3; i++ {
		if f := <-quick; f.Rule != i || f.Missed != 0 {
			t.Errorf("flow %d is %+v", i, f)
		}
	}
	endQuick()
	numbered(c, 3, 1+waiting+50)
	if len(quick) != 0 {
		t.Errorf("%d came after the end", len(quick))
	}
	for i := range waiting {
		if f := <-slow; f.Rule != 1+i || f.Missed != 0 {
			t.Fatalf("flow %d is %+v", i, f)
		}
	}
	numbered(c, 5000, 5002)
	if a, b := <-slow, <-slow; a.Rule != 5000 || a.Missed != 50 || b.Rule != 5001 || b.Missed != 0 {
		t.Errorf("after the gap come %+v, %+v", a, b)
	}
	if f := c.Last(1)[0]; f.Missed != 0 {
		t.Errorf("what one listener missed is reported to all: %+v", f)
	}
}

// fake is a source that says what the test puts in.
type fake struct {
	ps     chan nflog.Packet
	lost   uint64
	closed *int
}

func (f *fake) Lost() uint64 { return f.lost }
func (f *fake) Close() error { *f.closed++; return nil }

func (f *fake) Receive(deadline time.Time) (nflog.Packet, bool, error) {
	select {
	case p, ok := <-f.ps:
		if !ok {
			return p, false, errors.New("boom")
		}
		return p, true, nil
	case <-time.After(time.Until(deadline)):
		return nflog.Packet{}, false, nil
	}
}

// A source that cannot be opened, and one that fails, are opened again; what earlier ones lost stays counted.
func TestReportsAreAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, closed := 0, 0
		sources := []*fake{nil, {ps: make(chan nflog.Packet), lost: 2, closed: &closed}, {ps: make(chan nflog.Packet), lost: 1, closed: &closed}}
		c := node(nil)
		c.cfg.Open = func() (Source, error) {
			opened++
			if s := sources[opened-1]; s != nil {
				return s, nil
			}
			return nil, errors.New("another process reads this group")
		}
		p := reportOf(c, ruleOf(np, intent.Ingress, 0, false), addrFar, addrWeb)
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		sources[1].ps <- p // the second one, 5 s later
		close(sources[1].ps)
		sources[2].ps <- p
		<-time.After(2 * time.Second)
		if n := c.Counts(); n.Dropped != 2 || n.Lost != 3 || opened != 3 || closed != 1 {
			t.Errorf("%+v, opened %d times, closed %d times", n, opened, closed)
		}
		end()
		if err := <-done; !errors.Is(err, context.Canceled) || closed != 2 {
			t.Errorf("the end: %v, closed %d times", err, closed)
		}
	})
}
