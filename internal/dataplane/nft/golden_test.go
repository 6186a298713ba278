package nft

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

var update = flag.Bool("update", false, "rewrite testdata/*.txt; read them before you commit them")

// onPaper stands for a kernel that takes all and keeps nothing: what each transaction is about is written down.
type onPaper struct {
	d      *Driver
	text   strings.Builder
	before map[string]string
}

func (*onPaper) Check(*nftables.Batch) error              { return nil }
func (*onPaper) List(string) (*nftables.Ruleset, error)   { return &nftables.Ruleset{}, nil }
func (*onPaper) ProbeOwner() error                        { return errors.ErrUnsupported }
func (*onPaper) Settle()                                  {}
func (*onPaper) Remake(string, nftables.TableFlags) error { return nil }
func (o *onPaper) line(format string, args ...any)        { fmt.Fprintf(&o.text, format+"\n", args...) }

func fateOf(wanted, exists bool) string {
	return map[[2]bool]string{{true, false}: "new", {true, true}: "changed", {false, true}: "gone", {false, false}: "never was"}[[2]bool{wanted, exists}]
}

func (o *onPaper) Commit(b *nftables.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	o.line("transaction")
	for _, k := range o.d.trying.ksets {
		up, down := 0, 0
		for range o.d.trying.updates(k) {
			up++
		}
		for range o.d.trying.deletes(k) {
			down++
		}
		o.line("  set %s of %q %s: %d join, %d leave", k.spec.Name, ownerText(k.owner), fateOf(k.wanted, k.exists), up, down)
	}
	for _, c := range o.d.trying.chains {
		o.line("  chain %s of %q %s", c.name, ownerText(c.owner), fateOf(c.wanted, c.exists))
	}
	return nil
}

// ownerText is empty for the skeleton.
func ownerText(k intent.Key) string {
	if k == nil {
		return ""
	}
	return k.String()
}

// objects are the chains and sets as they are wanted, each as text.
func (d *Driver) objects() map[string]string {
	out := map[string]string{}
	for name, c := range d.chains {
		text := fmt.Sprintf("chain %s # %s\n", name, c.spec.Comment)
		if h := c.spec.Base; h != nil {
			text += fmt.Sprintf("  type %s hook %v priority %d policy %v\n", h.Type, h.Hook, h.Priority, h.Policy)
		}
		for _, r := range c.rules {
			words := make([]string, len(r.Exprs))
			for i, x := range r.Exprs {
				words[i] = x.String()
			}
			text += fmt.Sprintf("  %s # %s\n", strings.Join(words, " "), r.Comment)
		}
		out["chain "+name] = text
	}
	for name, k := range d.ksets {
		var els []string
		for id, value := range k.elems.All() {
			els = append(els, fmt.Sprintf("%x=%s", id, value))
		}
		slices.Sort(els)
		out["set "+name] = fmt.Sprintf("set %s wanted %v # %s: %s\n", name, k.wanted, k.spec.Comment, strings.Join(els, " "))
	}
	return out
}

// table writes down what of the table is other than before.
func (o *onPaper) table() {
	now := o.d.objects()
	for _, name := range slices.Sorted(maps.Keys(o.before)) {
		if _, there := now[name]; !there {
			o.line("no %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if now[name] != o.before[name] {
			o.text.WriteString(now[name])
		}
	}
	o.before = now
}

// goldenSteps are the batches that a node receives, in this order.
func goldenSteps() []struct {
	name  string
	batch intent.Batch
	links []ifmon.Change
} {
	type step = struct {
		name  string
		batch intent.Batch
		links []ifmon.Change
	}
	nothing, deny := pol("nothing", nil, nil), pol("deny", []intent.Rule{{Action: intent.Deny}}, []intent.Rule{{Action: intent.Deny}})
	web := pol("web", []intent.Rule{tcp(intent.Allow, 80), rejects(6, 81)}, []intent.Rule{tcpFrom(intent.Allow, 80), {Action: intent.Deny, Reject: true}})
	raw := pol("raw", []intent.Rule{tcp(intent.Allow, 179), {Action: intent.Deny, Reject: true}}, []intent.Rule{tcpFrom(intent.Allow, 179)})
	settings := intent.HostSettings{
		EndpointToHost: intent.ToHostReturn, Prefixes: []string{"cali", "tap"}, DNS: true, Exclude: []string{"/^up[0-9]$/"}, AllowVXLAN: true,
		FailsafeIn:  []intent.Failsafe{{Protocol: 6, Port: 22}, {Protocol: 6, Port: 23, Net: prefix("198.51.100.0/24")}, {Protocol: 17, Port: 68, Net: prefix("fd00::/8")}},
		FailsafeOut: []intent.Failsafe{{Protocol: 6, Port: 2379}, {Protocol: 17, Port: 53}},
		Log:         intent.LogSettings{Prefix: "%t %p", Rate: 7, Per: time.Minute, Burst: 9},
		NAT: intent.NATOutgoing{
			From: []netip.Prefix{prefix("10.65.0.0/16"), prefix("fd65::/64")}, Pool: []netip.Prefix{prefix("10.65.0.0/16"), prefix("10.66.0.0/16"), prefix("fd65::/64")},
			Addr: netip.MustParseAddr("192.0.2.1"), Ports: intent.PortRange{Min: 1024, Max: 2047}, Link: "eth*",
		},
	}
	named := func(name, link string) intent.Endpoint {
		e := hep(link)
		e.ID.Name, e.Label = name, name
		return e
	}
	all, one, byAddr := named("all", "*"), named("eth0", "eth0"), named("by-addr", "")
	intenttest.Normal(&all, ask(web, in, out)...)
	intenttest.PreDNAT(&all, ask(deny, in)...)
	intenttest.Forward(&all, ask(web, in, out)...)
	intenttest.Untracked(&all, ask(deny, in)...)
	intenttest.Normal(&one, ask(nothing, in, out)...)
	intenttest.Untracked(&one, ask(raw, in, out)...)
	byAddr.Addrs = []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	intenttest.PreDNAT(&byAddr, ask(web, in)...)
	shut := named("shut", "eth5")
	shut.Closed = "cannot be read"
	early := everything()
	early.InSync = false
	open := settings
	open.Exclude, open.AllowInvalid, open.AllowIPIP, open.ReportAllowed, open.EndpointToHost, open.NAT = nil, true, true, true, intent.ToHostAccept, intent.NATOutgoing{}
	carried := open
	carried.Tunnels[intent.VXLAN], carried.VXLAN.Port = intent.Tunnel{Host: netip.MustParseAddr("192.0.2.1"), Addr: netip.MustParseAddr("10.65.1.1"), MAC: "66:00:00:00:00:01"}, 8472
	every := carried
	every.Tunnels[intent.IPIP], every.Tunnels[intent.WireGuard] = intent.Tunnel{Host: netip.MustParseAddr("192.0.2.1")}, intent.Tunnel{Host: netip.MustParseAddr("192.0.2.1")}
	every.Services, every.ServiceLoops = intent.ServicePrefixes{Cluster: []netip.Prefix{prefix("10.96.0.0/12"), prefix("fd96::/112")}}, intent.LoopsReject
	every.WireGuard.Port = [2]uint16{51820, 51821}
	peers := func(of intent.SetID) intent.IPSet {
		return intent.IPSet{ID: of, Members: []intent.Member{member("198.51.100.2/32")}}
	}
	rich := wl("rich-0", "cali3")
	rich.Addrs, rich.QoS.DSCP, rich.QoS.In, rich.QoS.Out = []netip.Addr{netip.MustParseAddr("10.65.0.9")}, 47, intent.Limits{PacketRate: 100, PacketBurst: 5}, intent.Limits{Connections: 9}
	rich.NATs = []intent.NAT{{External: netip.MustParseAddr("198.51.100.9"), Internal: netip.MustParseAddr("10.65.0.9")}}
	rival := wl("rival-0", "cali1")
	intenttest.Profiles(&rival, intent.PolicyID{Kind: "Profile", Name: "kns.prod"})
	staged := intent.PolicyID{Kind: "StagedNetworkPolicy", Namespace: "prod", Name: "later"}
	addr := func(add, remove string) (m intent.Batch) {
		return intent.Batch{Members: []intent.MemberDelta{{Set: "s:web", Removed: []intent.Member{member(remove)}}, {Set: "s:bad", Added: []intent.Member{member(add)}}}}
	}
	removed := func(keys ...intent.Key) intent.Batch { return intent.Batch{Removed: keys} }
	missing := wl("lost-0", "cali7")
	intenttest.Normal(&missing, tier("t", intent.Deny, ids("no-such"), nil))
	return []step{
		{name: "before the source is in sync", batch: early},
		{name: "in sync", batch: intent.Batch{InSync: true}},
		{name: "settings", batch: intent.Batch{Host: &settings}},
		{
			name: "host endpoints", batch: intent.Batch{Policies: []intent.Policy{nothing, deny, web, raw}, Endpoints: []intent.Endpoint{all, one, byAddr, shut}},
			links: []ifmon.Change{{Link: ifmon.Link{Name: "up0", Addrs: []netip.Prefix{prefix("192.0.2.7/24")}}}, {Link: ifmon.Link{Name: "eth7", Addrs: []netip.Prefix{prefix("192.0.2.7/24")}}}},
		},
		{name: "other settings", batch: intent.Batch{Host: &open}},
		{name: "a policy of host endpoints no longer rejects", batch: intent.Batch{Policies: []intent.Policy{pol("web", []intent.Rule{tcp(intent.Allow, 80)}, []intent.Rule{tcpFrom(intent.Allow, 80)})}}},
		{name: "a second endpoint on an interface", batch: intent.Batch{Endpoints: []intent.Endpoint{rival}}},
		{name: "the first one's goes", batch: removed(wl("web-0", "").ID)},
		{name: "and comes again", batch: intent.Batch{Endpoints: everything().Endpoints}},
		{name: "an address moves", batch: addr("10.0.0.1/32", "10.0.0.1/32")},
		{name: "an endpoint whose policy is not there, and a staged one", batch: intent.Batch{Endpoints: []intent.Endpoint{missing}, Policies: []intent.Policy{{ID: staged, Ingress: []intent.Rule{anything}}}}},
		{name: "a set goes, its policy stays", batch: removed(intent.SetID("s:bad"))},
		{name: "a set of another kind takes its place", batch: intent.Batch{IPSets: []intent.IPSet{{ID: "s:bad", Kind: intent.SetPorts}}}},
		{name: "and is right again", batch: intent.Batch{IPSets: everything().IPSets}},
		{name: "host endpoints go", batch: removed(all.ID, one.ID, shut.ID)},
		{name: "a policy over its budget", batch: intent.Batch{Policies: []intent.Policy{huge("deny", 200*(maxPolicyRules+1))}}},
		{name: "a tunnel", batch: intent.Batch{Host: &carried, IPSets: []intent.IPSet{peers(intent.SetVXLANPeers)}}},
		{
			name:  "tunnels of all kinds, and a floating address, a code point and limits",
			batch: intent.Batch{Host: &every, IPSets: []intent.IPSet{peers(intent.SetIPIPPeers), peers(intent.SetWireGuardPeers)}, Endpoints: []intent.Endpoint{rich}},
		},
		{name: "without them", batch: intent.Batch{Host: &open, Removed: []intent.Key{intent.SetVXLANPeers, intent.SetIPIPPeers, intent.SetWireGuardPeers, rich.ID}}},
		{name: "all goes", batch: removed(byAddr.ID, rival.ID, wl("web-0", "").ID, wl("shut-0", "").ID, missing.ID,
			np("np-web"), np("np-b"), np("web"), np("raw"), np("deny"), np("nothing"),
			intent.SetID("s:web"), intent.SetID("p:http"))},
	}
}

// TestGoldenTable is what each transaction is about, and what of the table is other after it, without a kernel: what a change of the code changes
// of either is seen here.
func TestGoldenTable(t *testing.T) {
	o := &onPaper{}
	o.d = New(o, Config{})
	for _, s := range goldenSteps() {
		o.line("\n=== %s", s.name)
		o.d.Links(s.links)
		o.d.Merge(s.batch)
		outcomes := apply(t, o.d)
		slices.SortFunc(outcomes, func(a, b intent.Outcome) int { return intent.CompareKeys(a.Key, b.Key) })
		for _, x := range outcomes {
			o.line("outcome of %d %s: %v, final %v, %s", intent.KindOf(x.Key), x.Key, x.Err, x.Final, x.Reason)
		}
		o.table()
	}
	const path = "testdata/table.txt"
	got := o.text.String()
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("- before, + now\n%s", lineDiff(string(want), got))
	}
}
