package plan_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
)

// three hosts of both families, the third without IPv6.
const three = `
Node h1 {labels: {rack: a}} {bgp: {ipv4Address: 192.0.2.1/24, ipv6Address: '2001:db8::1/64'}}
Node h2 {labels: {rack: a, rr: one}} {bgp: {ipv4Address: 192.0.2.2/24, ipv6Address: '2001:db8::2/64'}}
Node h3 {labels: {rack: b}} {bgp: {ipv4Address: 192.0.2.3/24}}
`

// world reads lines of kind, name, metadata (optional) and spec.
func world(t *testing.T, text string) *plan.Resources {
	t.Helper()
	w := plan.New()
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(f) < 3 {
			continue
		}
		meta, spec := "{}", f[2]
		if strings.HasPrefix(spec, "{labels") || strings.HasPrefix(spec, "{annotations") {
			meta, spec, _ = strings.Cut(spec, "}} ")
			meta += "}}"
		}
		doc := fmt.Sprintf("apiVersion: projectcalico.org/v3\nkind: %s\nmetadata: {name: %s, %s\nspec: %s", f[0], f[1], meta[1:], spec)
		docs, err := api.Decode([]byte(doc))
		if err != nil {
			t.Fatalf("%s\n%v", doc, err)
		}
		api.Default(docs[0].Resource)
		if errs := api.Validate(docs[0].Resource); len(errs) > 0 {
			t.Fatalf("%s\n%v", doc, errs)
		}
		key, _ := api.Key(docs[0].Resource)
		value, err := api.EncodeStored(docs[0].Resource)
		if err != nil {
			t.Fatal(err)
		}
		w.Update(api.Update{Key: key, Value: value})
	}
	return w
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestWhatIsAdvertised(t *testing.T) {
	const pools = alone + "IPPool p {cidr: 10.65.0.0/16}\nIPPool hidden {cidr: 10.66.0.0/16, disableBGPExport: true}\nIPPool six {cidr: 'fd00:65::/48'}\nBGPConfiguration default {nodeToNodeMeshEnabled: false, serviceClusterIPs: [{cidr: 10.96.0.0/12}]}\n"
	for _, tt := range []struct {
		name, filter string
		route        plan.Route
		accept       bool
		by           string
	}{
		{name: "a block of a pool", route: plan.Route{Dst: prefix("10.65.1.0/26")}, accept: true, by: "IPPool p"},
		{name: "a learned one too, as reflectors need", route: plan.Route{Dst: prefix("10.65.1.0/26"), Learned: true}, accept: true, by: "IPPool p"},
		{name: "what is wider than the pool is not", route: plan.Route{Dst: prefix("10.0.0.0/8"), Learned: true}},
		{name: "what is of no pool is not", route: plan.Route{Dst: prefix("198.51.100.0/24"), Learned: true}},
		{name: "but a block of this node's is", route: plan.Route{Dst: prefix("198.51.100.0/26")}, accept: true, by: "a block of this node in no IPPool"},
		{name: "and no single address", route: plan.Route{Dst: prefix("198.51.100.7/32")}},
		{name: "a pool that is not exported", route: plan.Route{Dst: prefix("10.66.1.0/26")}, by: "IPPool hidden (disableBGPExport)"},
		{name: "a service prefix", route: plan.Route{Dst: prefix("10.96.0.0/12")}, accept: true, by: "service prefix 10.96.0.0/12"},
		{name: "a filter goes before pools", filter: "{cidr: 10.65.1.0/26, matchOperator: Equal, action: Reject}", route: plan.Route{Dst: prefix("10.65.1.0/26")}, by: "BGPFilter f exportV4[0]"},
		{name: "and before a pool that is not exported", filter: "{cidr: 10.66.0.0/16, matchOperator: In, action: Accept}", route: plan.Route{Dst: prefix("10.66.1.0/26")}, accept: true, by: "BGPFilter f exportV4[0]"},
		{name: "what it does not match goes on", filter: "{cidr: 10.65.1.0/26, matchOperator: Equal, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26")}, accept: true, by: "IPPool p"},
		{name: "Equal is not In", filter: "{cidr: 10.65.0.0/16, matchOperator: Equal, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26")}, accept: true, by: "IPPool p"},
		{name: "NotEqual", filter: "{cidr: 10.65.0.0/16, matchOperator: NotEqual, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26")}, by: "BGPFilter f exportV4[0]"},
		{name: "NotIn", filter: "{cidr: 10.65.0.0/16, matchOperator: NotIn, action: Reject}", route: plan.Route{Dst: prefix("10.96.0.0/12")}, by: "BGPFilter f exportV4[0]"},
		{name: "a length out of bounds", filter: "{cidr: 10.65.0.0/16, matchOperator: In, prefixLength: {max: 24}, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26")}, accept: true, by: "IPPool p"},
		{name: "a length within bounds", filter: "{cidr: 10.65.0.0/16, matchOperator: In, prefixLength: {min: 26}, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26")}, by: "BGPFilter f exportV4[0]"},
		{name: "RemotePeers is not about own routes", filter: "{source: RemotePeers, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26")}, accept: true, by: "IPPool p"},
		{name: "RemotePeers is about learned ones", filter: "{source: RemotePeers, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26"), Learned: true}, by: "BGPFilter f exportV4[0]"},
		{name: "a rule for internal peers only", filter: "{peerType: iBGP, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26")}, accept: true, by: "IPPool p"},
		{name: "a rule for external peers only", filter: "{peerType: eBGP, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26")}, by: "BGPFilter f exportV4[0]"},
		{name: "a community that is not there", filter: "{communities: {values: ['1:2']}, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26"), Communities: []string{"1:3"}}, accept: true, by: "IPPool p"},
		{name: "a community that is there", filter: "{communities: {values: ['1:2']}, action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26"), Communities: []string{"1:3", "1:2"}}, by: "BGPFilter f exportV4[0]"},
		{name: "a path that begins otherwise", filter: "{asPathPrefix: [1, 2], action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26"), ASPath: []uint32{1, 3}}, accept: true, by: "IPPool p"},
		{name: "a path that begins so", filter: "{asPathPrefix: [1, 2], action: Reject}", route: plan.Route{Dst: prefix("10.65.2.0/26"), ASPath: []uint32{1, 2, 3}}, by: "BGPFilter f exportV4[0]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := pools + "BGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009}"
			if tt.filter != "" {
				text = pools + "BGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009, filters: [f]}\nBGPFilter f {exportV4: [" + tt.filter + "], exportV6: [{action: Reject}], importV4: [{action: Reject}]}"
			}
			s := world(t, text).Plan("h1").Sessions[0]
			got, ok := plan.Decide(s.Export, tt.route)
			if got.Accept != tt.accept || got.Name != tt.by || ok != (tt.by != "") {
				t.Errorf("%+v: %q accepts %t, want %q %t", tt.route, got.Name, got.Accept, tt.by, tt.accept)
			}
		})
	}
}

// TestCommunitiesAreForWhatNoFilterAccepts, as upstream has it: they are added after filters and before pools.
func TestCommunitiesAreForWhatNoFilterAccepts(t *testing.T) {
	p := world(t, alone+"IPPool p {cidr: 10.65.0.0/16}\nBGPConfiguration default {nodeToNodeMeshEnabled: false, prefixAdvertisements: [{cidr: 10.65.0.0/16, communities: ['1:2']}]}\n"+
		"BGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009, filters: [f]}\nBGPFilter f {exportV4: [{cidr: 10.65.1.0/26, matchOperator: Equal, action: Accept}]}").Plan("h1")
	var got []string
	for _, r := range p.Sessions[0].Export {
		got = append(got, r.Name)
	}
	if want := []string{"BGPFilter f exportV4[0]", "the block that covers it", "the default for routes that are not the agent's", "prefixAdvertisements 10.65.0.0/16", "IPPool p", "a block of this node in no IPPool"}; !slices.Equal(got, want) {
		t.Errorf("rules %q, want %q", got, want)
	}
}

// TestAFilterMayAcceptWhatABlockCovers: without such a filter no session's rules look for it.
func TestAFilterMayAcceptWhatABlockCovers(t *testing.T) {
	const tor = alone + "IPPool p {cidr: 10.65.0.0/16}\nIPPool six {cidr: 'fd00:65::/48'}\nBGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009, filters: [f]}\nBGPPeer other {peerIP: 192.0.2.8, asNumber: 65008}\nBGPPeer six {peerIP: '2001:db8::9', asNumber: 65009, filters: [f]}\n"
	address := plan.Route{Dst: prefix("10.65.1.5/32"), Covered: true}
	for filter, want := range map[string]string{
		"{cidr: 10.65.1.0/26, matchOperator: In, prefixLength: {min: 32}, action: Accept}": "192.0.2.8 false, 192.0.2.9 true, 2001:db8::9 none",
		"{cidr: 10.65.1.9/32, matchOperator: In, action: Accept}":                          "192.0.2.8 false, 192.0.2.9 false, 2001:db8::9 none",
		"{action: Reject}": "192.0.2.8 none, 192.0.2.9 none, 2001:db8::9 none",
	} {
		p := world(t, tor+"BGPFilter f {exportV4: ["+filter+"]}").Plan("h1")
		var got []string
		for _, s := range p.Sessions {
			r, _ := plan.Decide(s.Export, address)
			is := fmt.Sprint(r.Accept)
			if !slices.ContainsFunc(s.Export, func(r plan.Rule) bool { return r.Covered }) {
				is = "none"
			}
			got = append(got, s.Peer.String()+" "+is)
		}
		accepts := slices.ContainsFunc(p.Filters(), func(f plan.Filter) bool { return f.Accepts(address) })
		if strings.Join(got, ", ") != want || accepts != strings.Contains(want, "true") {
			t.Errorf("%s: %q, accepted %t, want %q", filter, got, accepts, want)
		}
	}
}

func TestRulesOfAFilterAreOfTheSessionsFamily(t *testing.T) {
	p := world(t, alone+`
BGPPeer four {node: h1, peerIP: 192.0.2.9, asNumber: 65009, filters: [f]}
BGPPeer six {node: h1, peerIP: '2001:db8::9', asNumber: 65009, filters: [f]}
BGPFilter f {exportV4: [{action: Accept}], exportV6: [{action: Reject, cidr: 'fd00:65::/48', matchOperator: In}], importV4: [{action: Reject}], importV6: [{action: Accept}]}`).Plan("h1")
	asked := map[string]plan.Route{"192.0.2.9": {Dst: prefix("10.65.1.0/26")}, "2001:db8::9": {Dst: prefix("fd00:65::/122")}}
	got := map[string]string{}
	for _, s := range p.Sessions {
		out, _ := plan.Decide(s.Export, asked[s.Peer.String()])
		in, _ := plan.Decide(s.Import, asked[s.Peer.String()])
		got[s.Peer.String()] = fmt.Sprintf("%s %t, %s %t", out.Name, out.Accept, in.Name, in.Accept)
	}
	want := map[string]string{
		"192.0.2.9":   "BGPFilter f exportV4[0] true, BGPFilter f importV4[0] false",
		"2001:db8::9": "BGPFilter f exportV6[0] false, BGPFilter f importV6[0] true",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestOperationsInTheirOrder(t *testing.T) {
	w := world(t, alone+"BGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009, filters: [f]}\n"+
		"BGPFilter f {importV4: [{action: Accept, operations: [{addCommunity: {value: '1:2'}}, {prependASPath: {prefix: [1, 2]}}, {prependASPath: {prefix: [3]}}]}]}")
	r := w.Plan("h1").Sessions[0].Import[0]
	if !slices.Equal(r.Add, []string{"1:2"}) || !slices.Equal(r.Prepend, []uint32{3, 1, 2}) {
		t.Errorf("%+v", r)
	}
}

// TestPrioritiesOfRoutes: LOCAL_PREF and priority are the same, turned round; what is below the range of priorities is none.
func TestPrioritiesOfRoutes(t *testing.T) {
	w := world(t, alone+"BGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009, filters: [f]}\n"+
		"BGPConfiguration default {nodeToNodeMeshEnabled: false, ipv6NormalRoutePriority: 2000}\n"+
		"BGPFilter f {exportV4: [{action: Reject, priority: 512}, {action: Accept, operations: [{setPriority: {value: 7}}, {setPriority: {value: 9}}]}]}")
	p := w.Plan("h1")
	rules := p.Sessions[0].Export // the second is against default routes
	for _, tt := range []struct {
		what      string
		got, want any
	}{
		{"the normal one", p.NormalPriority(true), 1024},
		{"if configured", p.NormalPriority(false), 2000},
		{"none is configured", p.ConfiguredPriority(true), 0},
		{"one is", p.ConfiguredPriority(false), 2000},
		{"as LOCAL_PREF", plan.LocalPref(512), 2147483135},
		{"and back", plan.PriorityOf(2147483135), 512},
		{"the least preferred", plan.PriorityOf(plan.LocalPref(api.MaxBGPRoutePriority)), api.MaxBGPRoutePriority},
		{"one less is another network's", plan.PriorityOf(plan.LocalPref(api.MaxBGPRoutePriority) - 1), 0},
		{"the default", plan.PriorityOf(100), 0},
		{"that of priority 0", plan.PriorityOf(1<<31 - 1), 0},
		{"beyond", plan.PriorityOf(1<<32 - 1), 0},
		{"a rule matches", rules[0].Matches(plan.Route{Dst: prefix("10.0.0.0/8"), Priority: 512}), true},
		{"another", rules[0].Matches(plan.Route{Dst: prefix("10.0.0.0/8"), Priority: 513}), false},
		{"none", rules[0].Matches(plan.Route{Dst: prefix("10.0.0.0/8")}), false},
		{"the last that is set", rules[2].SetPriority, 9},
	} {
		if fmt.Sprint(tt.got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", tt.what, tt.got, tt.want)
		}
	}
}

func TestAMissingFilterClosesTheSession(t *testing.T) {
	p := world(t, alone+"IPPool p {cidr: 10.65.0.0/16}\nBGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009, filters: [f]}").Plan("h1")
	route := plan.Route{Dst: prefix("10.65.1.0/26")}
	if r, _ := plan.Decide(p.Sessions[0].Export, route); r.Accept {
		t.Errorf("%s", r)
	}
	if r, ok := plan.Decide(p.Sessions[0].Import, route); r.Accept || !ok {
		t.Errorf("%s", r)
	}
	if len(p.Problems) != 1 || !strings.Contains(p.Problems[0], "there is no BGPFilter f") {
		t.Errorf("%q", p.Problems)
	}
}

// communitiesOf are those that the first session's rules add to a route which no filter accepts.
func communitiesOf(p plan.Plan, dst string) (out []string) {
	for _, r := range p.Sessions[0].Export {
		if r.Continue && r.Matches(plan.Route{Dst: prefix(dst)}) {
			out = append(out, r.Add...)
		}
	}
	return out
}

func TestSettingsOfANode(t *testing.T) {
	w := world(t, three+`
IPPool vx {cidr: 10.67.0.0/16, vxlanMode: CrossSubnet}
IPPool ip {cidr: 10.68.0.0/16, ipipMode: Always}
IPPool p {cidr: 10.65.0.0/16}
BGPConfiguration default {logSeverityScreen: Warning, bindMode: NodeIP, ignoredInterfaces: [eth9], serviceExternalIPs: [{cidr: 198.51.100.0/24}], serviceClusterIPs: [{cidr: 10.96.0.0/12}], serviceLoadBalancerIPs: [{cidr: 203.0.113.0/24}], communities: [{name: red, value: '1:2'}], prefixAdvertisements: [{cidr: 10.65.0.0/16, communities: [red, '1:2:3']}, {cidr: 10.65.1.0/26, communities: ['1:9']}]}
BGPConfiguration node.h3 {logSeverityScreen: debug, bindMode: None, ignoredInterfaces: ['eth*', lo], listenPort: 1790}
`)
	h1, h3 := w.Plan("h1"), w.Plan("h3")
	for _, tt := range []struct {
		what      string
		got, want any
	}{
		{"bind mode of all", h1.Listen, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:179"), netip.MustParseAddrPort("[2001:db8::1]:179")}},
		{"bind mode of one, without IPv6", h3.Listen, []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:1790")}},
		{"interfaces of all", h1.Ignored, []string{"eth9"}},
		{"interfaces of one", h3.Ignored, []string{"eth*", "lo"}},
		{"what is logged, of all", h1.LogSeverity, "Warning"},
		{"what is logged, of one", h3.LogSeverity, "debug"},
		{"a pattern", h3.Ignores("eth12"), true},
		{"a name", h3.Ignores("lo1"), false},
		{"services", h1.Originate, []netip.Prefix{prefix("10.96.0.0/12"), prefix("198.51.100.0/24"), prefix("203.0.113.0/24")}},
		{"others' routes: VXLAN", h1.IsForeign(prefix("10.67.1.0/26")), true},
		{"others' routes: IPIP", h1.IsForeign(prefix("10.68.1.0/26")), true},
		{"others' routes: services", h1.IsForeign(prefix("198.51.100.7/32")), true},
		{"not others' routes", h1.IsForeign(prefix("10.65.1.0/26")), false},
		{"communities by name and value", communitiesOf(h1, "10.65.2.0/26"), []string{"1:2", "1:2:3"}},
		{"communities of all prefixes that cover", communitiesOf(h1, "10.65.1.0/26"), []string{"1:2", "1:2:3", "1:9"}},
		{"communities of none", communitiesOf(h1, "10.64.1.0/26"), []string(nil)},
		{"router id", h1.RouterID, netip.MustParseAddr("192.0.2.1")},
		{"how long routes stay while a peer restarts", h1.Sessions[0].Restart, "2m0s"},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) && fmt.Sprint(tt.got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", tt.what, tt.got, tt.want)
		}
	}
}

// TestAWorldReceivesAllResourcesThatPlansDependOn: what a daemon does not follow it would plan without.
func TestAWorldReceivesAllResourcesThatPlansDependOn(t *testing.T) {
	for _, kind := range []string{api.KindNode, api.KindBGPConfiguration, api.KindBGPPeer, api.KindBGPFilter, api.KindIPPool} {
		key := api.KeyPrefix(kind, "") + "x"
		if !slices.ContainsFunc(plan.Prefixes(), func(p string) bool { return strings.HasPrefix(key, p) }) {
			t.Errorf("%s is not followed", key)
		}
	}
}

func TestANodeWithIPv6AloneHasARouterID(t *testing.T) {
	p := world(t, "Node six {bgp: {ipv6Address: '2001:db8::6'}}\nNode seven {bgp: {ipv6Address: '2001:db8::7'}}").Plan("six")
	if !p.RouterID.Is4() || p.RouterID == world(t, "Node seven {bgp: {ipv6Address: '2001:db8::6'}}").Plan("seven").RouterID || len(p.Sessions) != 1 {
		t.Errorf("%+v", p)
	}
}

func TestARouterIDCanBeAskedFor(t *testing.T) {
	for _, tt := range []struct{ id, want, wrong string }{
		{"", "192.0.2.1", ""},
		{"10.0.0.9", "10.0.0.9", ""},
		{"hash", "51.17.46.225", ""}, // Calico's, too
		{"2001:db8::1", "", "want an IPv4 address, hash, or nothing"},
		{"0.0.0.0", "", "want an IPv4 address"},
		{"h1", "", "want an IPv4 address"},
	} {
		if err := plan.CheckRouterID(tt.id); (err != nil) != (tt.wrong != "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%q: %v, want %q", tt.id, err, tt.wrong)
		}
		if tt.wrong != "" {
			continue
		}
		w := world(t, "Node h1 {bgp: {ipv4Address: 192.0.2.1/24}}")
		w.RouterID = tt.id
		got := w.Plan("h1").RouterID
		if got.String() != tt.want || tt.id == "hash" && got != world(t, "Node h1 {bgp: {ipv6Address: '2001:db8::1'}}").Plan("h1").RouterID {
			t.Errorf("%q: router id %s, want %s", tt.id, got, tt.want)
		}
	}
}

// TestAHashedRouterIDIsCalicos: a host that moves from Calico keeps its router id. That of h2 begins with 249, which is
// multicast's, less 32.
func TestAHashedRouterIDIsCalicos(t *testing.T) {
	for node, want := range map[string]string{"node1": "202.18.243.27", "h2": "217.152.254.6"} {
		w := world(t, "Node "+node+" {bgp: {ipv4Address: 192.0.2.1/24}}")
		w.RouterID = plan.RouterIDHash
		if got := w.Plan(node).RouterID.String(); got != want {
			t.Errorf("%s: router id %s, want %s", node, got, want)
		}
	}
}

func TestANodeThatDoesNotSpeakSaysWhy(t *testing.T) {
	for node, want := range map[string]string{"h9": "there is no Node h9", "bare": "Node bare has no address", "kubes": "Node kubes has no address"} {
		if p := world(t, three+"Node bare {addresses: []}\nNode kubes {addresses: [{address: 192.0.2.9, type: InternalIP}]}").Plan(node); !strings.HasPrefix(p.Off, want) || len(p.Sessions) > 0 {
			t.Errorf("%s: %+v", node, p)
		}
	}
}

func TestAPlanIsItsJSON(t *testing.T) {
	p := world(t, three+"IPPool p {cidr: 10.65.0.0/16}\nBGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009, sourceAddress: None, password: {secretKeyRef: {name: a, key: b}}}").Plan("h1")
	text, err := json.Marshal(p)
	var back plan.Plan
	if err != nil || json.Unmarshal(text, &back) != nil || !reflect.DeepEqual(p, back) {
		t.Errorf("%v\n%+v\n%+v", err, p, back)
	}
}

func TestTheOrderOfUpdatesDoesNotMatter(t *testing.T) {
	lines := slices.Collect(strings.Lines(reflector + "IPPool p {cidr: 10.65.0.0/16}\nBGPFilter f {exportV4: [{action: Reject}]}\n"))
	want := world(t, strings.Join(lines, "")).Plan("h2")
	last := map[string]string{} // of several versions the last counts
	for _, l := range lines {
		if f := strings.Fields(l); len(f) > 2 {
			last[f[0]+" "+f[1]] = l
		}
	}
	for range 20 { // in the order in which Go walks the map, which differs
		text := ""
		for _, l := range last {
			text += l
		}
		if got := world(t, text).Plan("h2"); !reflect.DeepEqual(got, want) {
			t.Fatalf("from\n%s\n got %+v\nwant %+v", text, got, want)
		}
	}
}

func TestWhatIsGoneIsGoneAndWhatIsNoJSONStays(t *testing.T) {
	w := world(t, three)
	key := api.ResourcesPrefix + "nodes/h2"
	w.Update(api.Update{Key: key, Value: []byte("{")})
	if p := w.Plan("h3"); len(p.Sessions) != 2 || len(p.Problems) != 1 {
		t.Errorf("%+v", p)
	}
	w.Update(api.Update{Key: key})
	if p := w.Plan("h3"); len(p.Sessions) != 1 || len(p.Problems) != 0 {
		t.Errorf("%+v", p)
	}
}

func TestADedicatedReflectorReflectsAndNothingElse(t *testing.T) {
	w := world(t, reflector+"BGPConfiguration default {nodeToNodeMeshEnabled: true, serviceClusterIPs: [{cidr: 10.96.0.0/12}]}\nIPPool four {cidr: 10.65.0.0/16}")
	host, only := w.Plan("h2"), w.Plan("h2").Reflector()
	if len(host.Originate) != 1 || len(only.Originate) != 0 {
		t.Errorf("a host tells %v, a reflector %v of its own", host.Originate, only.Originate)
	}
	dst := netip.MustParsePrefix("10.65.1.0/26")
	if host.IsForeign(dst) || !only.IsForeign(dst) {
		t.Errorf("%s is for the kernel of a host, and not of a reflector: %v, %v", dst, !host.IsForeign(dst), !only.IsForeign(dst))
	}
	if !reflect.DeepEqual(host.Sessions, only.Sessions) || !only.Dedicated || host.Dedicated {
		t.Errorf("%+v\n%+v", host, only)
	}
	if none := w.Plan("h1").Reflector(); !strings.Contains(none.Off, "Node h1 has no spec.bgp.routeReflectorClusterID") || len(none.Sessions) > 0 || !none.Dedicated {
		t.Errorf("without a cluster id: %+v", none)
	}
	if off := w.Plan("h9").Reflector(); !strings.Contains(off.Off, "there is no Node h9") || !off.Dedicated {
		t.Errorf("without a Node: %+v", off)
	}
}

// sessionsOf are a plan's sessions as peer and why they are closed.
func sessionsOf(p plan.Plan) map[string]string {
	out := map[string]string{}
	for _, s := range p.Sessions {
		out[s.Peer.String()] = s.Closed
	}
	return out
}

// What cannot be read opens nothing, whenever it comes.
func TestWhatCannotBeReadClosesSessions(t *testing.T) {
	for _, tt := range []struct {
		name, tail, doc string
		closed          map[string]string // of h1, by peer: what the reason holds; empty: open
	}{
		{"the mesh's password is an empty object", "bgpconfigurations/default", `{"spec":{"nodeMeshPassword":{}}}`, map[string]string{"192.0.2.2": "secretKeyRef: is missing", "192.0.2.3": "secretKeyRef: is missing", "2001:db8::2": "secretKeyRef: is missing"}},
		{"the mesh's password is a text", "bgpconfigurations/default", `{"spec":{"nodeMeshPassword":"a"}}`, map[string]string{"192.0.2.2": "want an object", "192.0.2.3": "want an object", "2001:db8::2": "want an object"}},
		{"the configuration is a list", "bgpconfigurations/default", `[]`, map[string]string{"192.0.2.2": "want an object", "192.0.2.3": "want an object", "2001:db8::2": "want an object"}},
		{"the configuration is not JSON", "bgpconfigurations/default", `{`, map[string]string{"192.0.2.2": "not JSON", "192.0.2.3": "not JSON", "2001:db8::2": "not JSON"}},
		{"the mesh is neither on nor off", "bgpconfigurations/default", `{"spec":{"nodeToNodeMeshEnabled":"no"}}`, map[string]string{"192.0.2.2": "nodeToNodeMeshEnabled", "192.0.2.3": "nodeToNodeMeshEnabled", "2001:db8::2": "nodeToNodeMeshEnabled"}},
		{"a peer of the mesh has a password that is an empty object", "bgppeers/p", `{"spec":{"peerIP":"192.0.2.2","asNumber":64512,"password":{}}}`, map[string]string{"192.0.2.2": "secretKeyRef: is missing", "192.0.2.3": "", "2001:db8::2": ""}},
		{"a peer of the mesh has an AS number that is none", "bgppeers/p", `{"spec":{"peerIP":"192.0.2.2","asNumber":[],"password":{"secretKeyRef":{"name":"a","key":"b"}}}}`, map[string]string{"192.0.2.2": "asNumber", "192.0.2.3": "", "2001:db8::2": ""}},
		{"peers by selector have a filter that is none", "bgppeers/p", `{"spec":{"peerSelector":"has(rr)","filters":7}}`, map[string]string{"192.0.2.2": "filters", "192.0.2.3": "", "2001:db8::2": "filters"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := world(t, three)
			w.Update(api.Update{Key: api.ResourcesPrefix + tt.tail, Value: []byte(tt.doc)})
			p := w.Plan("h1")
			got := sessionsOf(p)
			for peer, want := range tt.closed {
				if why, is := got[peer]; !is || (why == "") != (want == "") || !strings.Contains(why, want) {
					t.Errorf("session with %s: %v, closed for %q, want %q", peer, is, why, want)
				}
			}
			if len(got) != len(tt.closed) || len(p.Problems) == 0 {
				t.Errorf("sessions %v, problems %v", got, p.Problems)
			}
			w.Update(api.Update{Key: api.ResourcesPrefix + tt.tail})
			if p := w.Plan("h1"); !reflect.DeepEqual(p, world(t, three).Plan("h1")) {
				t.Errorf("when it is gone: %+v", p)
			}
		})
	}
}

// A value that means nothing does not say that routes are to go.
func TestWhatWasUnderstoodLastStays(t *testing.T) {
	const all = three + `
IPPool p {cidr: 10.65.0.0/16}
BGPConfiguration default {asNumber: 65000, nodeMeshPassword: {secretKeyRef: {name: a, key: b}}}
BGPFilter f {exportV4: [{action: Reject}]}
BGPPeer tor {peerIP: 192.0.2.9, asNumber: 65009, filters: [f]}
`
	for _, tail := range []string{"ippools/p", "nodes/h1", "nodes/h2", "bgpconfigurations/default", "bgpfilters/f", "bgppeers/tor"} {
		for _, doc := range []string{`{`, `[]`, `null`, `"x"`, `{"spec":7}`, `{"kind":"Tier"}`} {
			w := world(t, all)
			want := w.Plan("h1")
			key := api.ResourcesPrefix + tail
			for range 2 {
				w.Update(api.Update{Key: key, Value: []byte(doc)})
			}
			got := w.Plan("h1")
			if len(got.Problems) == 0 || !strings.Contains(strings.Join(got.Problems, "\n"), "the earlier version stays in effect") {
				t.Errorf("%s is %s: problems %q", tail, doc, got.Problems)
			}
			if got.Problems = want.Problems; !reflect.DeepEqual(got, want) {
				t.Errorf("%s is %s:\n got %+v\nwant %+v", tail, doc, got, want)
			}
		}
	}
}

func TestResourcesThatWereNeverUnderstoodAreReported(t *testing.T) {
	for _, tail := range []string{"ippools/p", "nodes/h2", "bgpconfigurations/default", "bgpfilters/f", "bgppeers/tor"} {
		w := world(t, "Node h1 {bgp: {ipv4Address: 192.0.2.1/24}}")
		w.Update(api.Update{Key: api.ResourcesPrefix + tail, Value: []byte(`[]`)})
		if p := w.Plan("h1"); len(p.Unread) != 1 || p.Off != "" {
			t.Errorf("%s: %q, off %q", tail, p.Unread, p.Off)
		}
		w.Update(api.Update{Key: api.ResourcesPrefix + tail})
		if p := w.Plan("h1"); len(p.Unread) != 0 || len(p.Problems) != 0 {
			t.Errorf("%s when it is gone: %q", tail, p.Unread)
		}
	}
	w := plan.New()
	w.Update(api.Update{Key: api.ResourcesPrefix + "nodes/h1", Value: []byte(`{"spec":"x"}`)})
	if p := w.Plan("h1"); !strings.Contains(p.Off, "Node h1: spec: want an object") {
		t.Errorf("off: %q", p.Off)
	}
}
