package calc

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

func claimUpdate(name, link string) api.Update {
	return rawUpdate("workloadendpoints/ns/h1-k8s-"+name+"-eth0", fmt.Sprintf(
		`{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1-k8s-%[1]s-eth0","namespace":"ns"},"spec":{"orchestrator":"k8s","node":"h1","pod":%[1]q,"endpoint":"eth0","interfaceName":%[2]q,"ipNetworks":["10.0.0.1/32"]}}`, name, link))
}

func prefixesUpdate(prefixes string) api.Update {
	return rawUpdate("felixconfigurations/default", fmt.Sprintf(`{"kind":"FelixConfiguration","metadata":{"name":"default"},"spec":{"interfacePrefix":%q}}`, prefixes))
}

func only(t *testing.T, g *Graph) intent.Endpoint {
	t.Helper()
	g.Flush()
	es := g.Intents().Endpoints
	if len(es) != 1 {
		t.Fatalf("endpoints %+v, want one", es)
	}
	return es[0]
}

func TestAWorkloadHasOnlyInterfacesThatAreWorkloads(t *testing.T) {
	for _, tt := range []struct {
		name, prefixes, attached, link string
		refused                        bool
	}{
		{name: "the default prefix", link: "cali1"},
		{name: "the host's own traffic", link: "lo", refused: true},
		{name: "the host's own traffic, whatever the configuration says", prefixes: "lo,cali", link: "lo", refused: true},
		{name: "an uplink", link: "eth0", refused: true},
		{name: "a prefix of the configuration", prefixes: "tap,cali", link: "tap1"},
		{name: "the default prefix, which the configuration leaves out", prefixes: "tap", link: "cali1", refused: true},
		{name: "the default prefix, left out, but a plugin of this host attached the interface", prefixes: "tap", attached: "cali1", link: "cali1"},
		{name: "what a plugin attached is no other interface's leave", prefixes: "tap", attached: "cali1", link: "cali2", refused: true},
		{name: "the name of a prefix alone is an interface's name, too", link: "cali"},
		{name: "a prefix that is not at the beginning", link: "xcali1", refused: true},
		{name: "a name that the kernel allows nobody: too long", link: "cali567890123456", refused: true},
		{name: "a name that the kernel allows nobody: a slash", link: "cali/eth0", refused: true},
		{name: "a name that the kernel allows nobody: a blank", link: "cali 1", refused: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := New("h1")
			if tt.prefixes != "" {
				g.Update([]api.Update{prefixesUpdate(tt.prefixes)})
			}
			if tt.attached != "" {
				g.Attached(tt.attached)
			}
			g.Update([]api.Update{claimUpdate("a", tt.link)})
			e := only(t, g)
			switch refused := e.Closed != ""; {
			case refused != tt.refused:
				t.Fatalf("closed: %q, want refused = %v", e.Closed, tt.refused)
			case !refused:
				if e.Link != tt.link || len(g.Intents().Routes) != 1 {
					t.Errorf("link %q, routes %v", e.Link, g.Intents().Routes)
				}
			default:
				if e.Link != "" || len(g.Intents().Routes) != 0 || !strings.Contains(e.Closed, "interface "+tt.link+" ") {
					t.Errorf("link %q, routes %v, closed: %s: want no link, no routes, and its name in the reason", e.Link, g.Intents().Routes, e.Closed)
				}
			}
		})
	}
}

func TestAnEndpointThatCannotBeReadClaimsNoInterfaceOfTheHost(t *testing.T) {
	g := New("h1")
	u := claimUpdate("a", "eth0")
	u.Value = []byte(strings.Replace(string(u.Value), "10.0.0.1/32", "nonsense", 1))
	g.Update([]api.Update{u})
	if e := only(t, g); e.Closed == "" || e.Link != "" {
		t.Errorf("closed %q, link %q: want closed, and no link", e.Closed, e.Link)
	}
}

func TestEndpointsAreAcceptedAndRefusedAsPrefixesChange(t *testing.T) {
	g := New("h1")
	g.Update([]api.Update{claimUpdate("a", "tap1")})
	for _, step := range []struct {
		what string
		do   func()
		link string
	}{
		{"by default", func() {}, ""},
		{"when the prefix is configured", func() { g.Update([]api.Update{prefixesUpdate("cali,tap")}) }, "tap1"},
		{"when it is taken back", func() { g.Update([]api.Update{prefixesUpdate("cali")}) }, ""},
		{"when a plugin attaches it", func() { g.Attached("tap1") }, "tap1"},
	} {
		step.do()
		if e := only(t, g); e.Link != step.link || (e.Closed == "") != (step.link != "") {
			t.Errorf("%s: link %q, closed %q; want link %q", step.what, e.Link, e.Closed, step.link)
		}
	}
}

// TestSourcesThatMayBeSpoofed: an endpoint's list counts only while the setting lets it, since who may write endpoints need not be
// who may open this.
func TestSourcesThatMayBeSpoofed(t *testing.T) {
	g := New("h1")
	e := claimUpdate("a", "cali1")
	e.Value = []byte(strings.Replace(string(e.Value), `"ipNetworks":`, `"allowSpoofedSourcePrefixes":["198.51.100.0/24"],"ipNetworks":`, 1))
	g.Update([]api.Update{e})
	for _, step := range []struct{ setting, want string }{{"", "[]"}, {"Any", "[198.51.100.0/24]"}, {"Disabled", "[]"}} {
		if step.setting != "" {
			g.Update([]api.Update{rawUpdate("felixconfigurations/default", fmt.Sprintf(`{"kind":"FelixConfiguration","metadata":{"name":"default"},"spec":{"workloadSourceSpoofing":%q}}`, step.setting))})
		}
		if got := fmt.Sprint(only(t, g).Spoofable); got != step.want {
			t.Errorf("with workloadSourceSpoofing %q: %s, want %s", step.setting, got, step.want)
		}
	}
}

func TestARefusedEndpointDoesNotTakeAnInterfaceFromItsOwner(t *testing.T) {
	g := New("h1")
	g.Update([]api.Update{claimUpdate("a", "lo"), claimUpdate("b", "lo"), claimUpdate("c", "cali1")})
	g.Flush()
	for _, e := range g.Intents().Endpoints {
		if want := map[bool]string{true: "cali1"}[e.ID.Name == "h1-k8s-c-eth0"]; e.Link != want {
			t.Errorf("%s has link %q, want %q", e.ID, e.Link, want)
		}
	}
}

// TestOfEndpointsWithOneInterfaceTheNewestHasIt: in whatever order they came; the other says why it is closed, and has the interface
// when the newest is gone.
func TestOfEndpointsWithOneInterfaceTheNewestHasIt(t *testing.T) {
	const early, late = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
	for _, tt := range []struct {
		name, a, b string // when they were created
		newest     string
		why        string
	}{
		{name: "the second by key is newer", a: early, b: late, newest: "b", why: "which is newer"},
		{name: "the first by key is newer", a: late, b: early, newest: "a", why: "which is newer"},
		{name: "one without a time is the older", b: early, newest: "b", why: "which is newer"},
		{name: "of two that are as old, the first by key", a: late, b: late, newest: "a", why: "which is as old as it"},
		{name: "of two without a time, the first by key", newest: "a", why: "which is as old as it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			updates := map[string]api.Update{"a": createdUpdate("a", "cali1", tt.a), "b": createdUpdate("b", "cali1", tt.b)}
			rest := map[string]string{"a": "b", "b": "a"}[tt.newest]
			for _, order := range [][]string{{"a", "b"}, {"b", "a"}, {"a", "b", "a", "b"}} {
				g := New("h1")
				for _, name := range order {
					g.Update([]api.Update{updates[name]})
					g.Flush()
				}
				is := map[string]intent.Endpoint{}
				for _, e := range g.Intents().Endpoints {
					is[e.ID.Name] = e
				}
				has, closed := is["h1-k8s-"+tt.newest+"-eth0"], is["h1-k8s-"+rest+"-eth0"]
				if has.Link != "cali1" || has.Closed != "" || closed.Link != "" || !strings.Contains(closed.Closed, "cali1 is that of WorkloadEndpoint ns/"+has.ID.Name+", "+tt.why) {
					t.Errorf("%v: %s has %q (%s), %s has %q (%s)", order, has.ID, has.Link, has.Closed, closed.ID, closed.Link, closed.Closed)
				}
				if rs := g.Intents().Routes; len(rs) != 1 || rs[0].Link != "cali1" {
					t.Errorf("%v: routes %v, want that of %s alone", order, rs, has.ID)
				}
				g.Update([]api.Update{{Key: updates[tt.newest].Key}})
				if e := only(t, g); e.ID != closed.ID || e.Link != "cali1" || e.Closed != "" {
					t.Errorf("%v: when %s is gone: %+v", order, has.ID, e)
				}
			}
		})
	}
}

// TestAnInterfaceChangesHandsInOneBatch: who had it and who has it now come together, so that no driver sees both with it, or nobody.
func TestAnInterfaceChangesHandsInOneBatch(t *testing.T) {
	g := New("h1")
	g.Update([]api.Update{createdUpdate("a", "cali1", "2026-01-01T00:00:00Z")})
	g.Flush()
	g.Update([]api.Update{createdUpdate("b", "cali1", "2026-01-02T00:00:00Z")})
	b := g.Flush()
	links := map[string]string{}
	for _, e := range b.Endpoints {
		links[e.ID.Name] = e.Link
	}
	if want := map[string]string{"h1-k8s-a-eth0": "", "h1-k8s-b-eth0": "cali1"}; !maps.Equal(links, want) {
		t.Errorf("the batch has %v, want %v", links, want)
	}
	if len(b.Removed) != 0 {
		t.Errorf("the batch removes %v: the route to the address is the same before and after", b.Removed)
	}
}

func createdUpdate(name, link, created string) api.Update {
	u := claimUpdate(name, link)
	if created != "" {
		u.Value = []byte(strings.Replace(string(u.Value), `"namespace":"ns"`, `"namespace":"ns","creationTimestamp":"`+created+`"`, 1))
	}
	return u
}
