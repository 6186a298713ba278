package nft

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// Stages of desired's.
const (
	baseForwardIn = "forward-to-workload"
	baseNAT       = "postrouting-nat"
)

func setName(kind string, f intent.Family, id intent.SetID) string {
	return nameFor(kind, f, desired.SetName(id))
}

var hostKey = intent.HostID("")

// kernelConn is a namespace and a connection to its nftables.
type kernelConn struct {
	*nftables.Conn
	ns *netnstest.NS
}

func newKernel(t testing.TB) *kernelConn {
	t.Helper()
	ns := netnstest.New(t)
	return connect(t, ns)
}

func connect(t testing.TB, ns *netnstest.NS) *kernelConn {
	t.Helper()
	k := &kernelConn{ns: ns}
	var err error
	ns.Do(func() { k.Conn, err = nftables.Open() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func (k *kernelConn) canonical(t testing.TB) string {
	t.Helper()
	rs, err := k.List(kernel.TableName)
	for range 100 {
		if !errors.Is(err, nftables.ErrInterrupted) {
			break // others change their tables all the time
		}
		rs, err = k.List(kernel.TableName)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rs.Canonical()
}

func (k *kernelConn) genID(t testing.TB) uint32 {
	t.Helper()
	id, err := k.GenID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// apply applies and wants no failure.
func apply(t testing.TB, d *Driver) []intent.Outcome {
	t.Helper()
	out, err := d.Apply(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func np(name string) intent.PolicyID {
	return intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: name}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func member(s string) intent.Member { return intent.Member{Prefix: prefix(s)} }

func wl(name, link string) intent.Endpoint {
	return intent.Endpoint{ID: intent.EndpointID{Namespace: "prod", Name: name}, Label: "prod/" + name, Link: link}
}

func tier(name string, end intent.Action, in, out []intent.PolicyID) intent.Tier {
	return intent.Tier{Name: name, Default: end, Ingress: in, Egress: out}
}

// everything is a batch with each kind of set, rule field and action.
func everything() intent.Batch {
	all := intent.Rule{
		Action: intent.Allow, Protocol: 6,
		Src: intent.Peer{
			Nets: []netip.Prefix{prefix("10.0.0.0/8"), prefix("2001:db8::/32")}, NotNets: []netip.Prefix{prefix("10.1.0.0/16"), prefix("10.2.0.0/15")},
			Sets: []intent.SetID{"s:web"}, NotSets: []intent.SetID{"s:bad"}, Ports: []intent.PortRange{{Min: 1024, Max: 65535}},
		},
		Dst: intent.Peer{
			Ports: []intent.PortRange{{Min: 80, Max: 80}, {Min: 8000, Max: 8080}}, PortSets: []intent.SetID{"p:http"},
			NotPorts: []intent.PortRange{{Min: 8001, Max: 8001}}, NotPortSets: []intent.SetID{"p:admin"},
		},
	}
	log := all
	log.Action = intent.Log
	ingress := []intent.Rule{
		all, log,
		{Action: intent.Deny, Protocol: 1, ICMP: &intent.ICMP{Type: 8, AnyCode: true}},
		{Action: intent.Pass, Protocol: 58, NotICMP: &intent.ICMP{Type: 128, Code: 0}},
		{Action: intent.Allow, NotProtocol: 17, Family: intent.IPv6},
		{Action: intent.Deny, Void: true},
		{Action: intent.Deny},
	}
	np1, prof := np("np-web"), intent.PolicyID{Kind: "Profile", Name: "kns.prod"}
	ep := wl("web-0", "cali1")
	intenttest.Normal(&ep, tier("default", intent.Deny, []intent.PolicyID{np1}, []intent.PolicyID{np1, np("np-b")}))
	intenttest.Profiles(&ep, prof)
	ep.Spoofable = []netip.Prefix{prefix("198.51.100.0/24")}
	closed := wl("shut-0", "tap9")
	closed.Closed = "has no address"
	return intent.Batch{
		IPSets: []intent.IPSet{
			{ID: "s:web", Comment: `app == "web"`, Members: []intent.Member{member("10.0.0.1/32"), member("10.3.0.0/16"), member("10.3.1.0/24"), member("2001:db8::1/128")}},
			{ID: "s:bad", Comment: "role == 'bad'", Members: []intent.Member{member("0.0.0.0/0"), member("10.9.9.9/32"), member("::/0")}},
			{ID: "p:http", Kind: intent.SetPorts, Members: []intent.Member{{Prefix: prefix("10.0.0.7/32"), Proto: 6, Port: 8443}, {Prefix: prefix("2001:db8::7/128"), Proto: 6, Port: 8443}}},
			{ID: "p:admin", Kind: intent.SetPorts},
		},
		Policies: []intent.Policy{
			{ID: np1, Tier: "default", Ingress: ingress, Egress: []intent.Rule{{Action: intent.Allow}}},
			{ID: np("np-b"), Tier: "default"},
			{ID: prof, Ingress: []intent.Rule{{Action: intent.Allow}}, Egress: []intent.Rule{{Action: intent.Allow}}},
		},
		Endpoints: []intent.Endpoint{ep, closed},
		Host:      &intent.HostSettings{EndpointToHost: intent.ToHostAccept},
		InSync:    true,
	}
}

func TestNftListShowsWhatWasProgrammed(t *testing.T) {
	k := newKernel(t)
	d := New(k, Config{})
	d.Merge(everything())
	for _, o := range apply(t, d) {
		if o.Err != nil {
			t.Errorf("%v: %v", o.Key, o.Err)
		}
	}
	text := k.ns.Run("nft", "list", "ruleset")
	for _, want := range []string{
		"table inet twill", `comment "prod/np-web ingress[0]"`, "hook forward priority filter - 2", "end of tier default",
		"0.0.0.0/0", "10.3.0.0/16", "fib saddr . iif", "@hosts4-s.web", "@nets4-s.web", "group 802",
		"ip daddr . meta l4proto . tcp dport @ports4-p.http", "icmpv6 type != echo-request", `iifname != @wl-links`, `"cali1" : goto ep-in-web-0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nft list ruleset does not show %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	file := filepath.Join(t.TempDir(), "ruleset")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	netnstest.New(t).Run("nft", "--check", "--file", file) // what is shown can be read again
}

func TestARestartChangesNothing(t *testing.T) {
	k := newKernel(t)
	d := New(k, Config{})
	d.Merge(everything())
	apply(t, d)
	before, gen := k.canonical(t), k.genID(t)

	d = New(k, Config{})
	apply(t, d) // nothing is known yet
	part := everything()
	part.InSync, part.Endpoints, part.Policies = false, nil, nil
	d.Merge(part)
	apply(t, d)
	d.Merge(everything())
	out := apply(t, d)
	if now := k.genID(t); now != gen {
		t.Errorf("generation went from %d to %d\n%s", gen, now, lineDiff(before, k.canonical(t)))
	}
	if len(out) == 0 {
		t.Error("there are no outcomes, although all is in force")
	}
	if err := d.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, d)
	if now := k.genID(t); now != gen {
		t.Errorf("a read-back changed the table: generation went from %d to %d", gen, now)
	}
}

// meddling is what others may do to our table, unless it has an owner.
var meddling = []struct{ name, cmd string }{
	{"table gone", "delete table inet twill"},
	{"rule added", "insert rule inet twill input-from-workload accept"},
	{"chain flushed", "flush chain inet twill wl-guard"},
	{"element removed", `delete element inet twill wl-links { "cali1" }`},
	{"chain added", "add chain inet twill extra { type filter hook input priority 5; }"},
	{"set and user added", "add set inet twill es { type ipv4_addr; elements = { 1.2.3.4 }; }; add chain inet twill ec; add rule inet twill ec ip saddr @es drop"},
	{"map to a chain added", `add chain inet twill ec; add map inet twill em { type ipv4_addr : verdict; elements = { 1.2.3.4 : goto ec }; }`},
}

func TestForeignChangesAreUndoneAndTheUnwantedIsSwept(t *testing.T) {
	for _, tt := range meddling {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel(t)
			d := New(k, Config{})
			d.Merge(everything())
			apply(t, d)
			want := k.canonical(t)
			k.ns.Run("nft", tt.cmd)
			if k.canonical(t) == want {
				t.Fatal("the change cannot be seen")
			}
			if err := d.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
			apply(t, d)
			if got := k.canonical(t); got != want {
				t.Error(lineDiff(want, got))
			}
		})
	}
}

func TestWithoutAResyncTheNextChangeFindsTheTableGone(t *testing.T) {
	k := newKernel(t)
	d := New(k, Config{})
	d.Merge(everything())
	apply(t, d)
	k.ns.Run("nft", "delete table inet twill")
	d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: "s:web", Added: []intent.Member{member("10.0.0.2/32")}}}})
	apply(t, d)
	if text := k.canonical(t); !strings.Contains(text, "10.0.0.2") || !strings.Contains(text, "ep-in-web-0") {
		t.Errorf("the table is not whole again:\n%s", text)
	}
}

func TestAnEmptyKernelDropsBeforeTheSourceIsInSync(t *testing.T) {
	k := newKernel(t)
	d := New(k, Config{})
	b := everything()
	b.InSync = false
	d.Merge(b)
	if out := apply(t, d); len(out) != 0 {
		t.Errorf("outcomes before the source is in sync: %v", out)
	}
	text := k.canonical(t)
	if !strings.Contains(text, "nobody programmed") || strings.Contains(text, "np-web") || strings.Contains(text, "to its host: accept") {
		t.Errorf("not just the skeleton:\n%s", text)
	}
	d.Merge(intent.Batch{InSync: true})
	apply(t, d)
	fresh := newKernel(t)
	f := New(fresh, Config{})
	f.Merge(everything())
	apply(t, f)
	if got, want := k.canonical(t), fresh.canonical(t); got != want {
		t.Error(lineDiff(want, got))
	}
}

func TestAnUnusableShapeIsReplacedWhole(t *testing.T) {
	k := newKernel(t)
	d := New(k, Config{})
	d.Merge(everything())
	apply(t, d)
	want := k.canonical(t)
	k.ns.Run("nft", "delete table inet twill; add table inet twill; add set inet twill wl-links { type ipv4_addr; }; "+
		"add chain inet twill wl-guard { type filter hook output priority 0; }")
	d = New(k, Config{})
	d.Merge(everything())
	apply(t, d)
	if got := k.canonical(t); got != want {
		t.Error(lineDiff(want, got))
	}
}

// lineDiff shows the lines that only one of two texts has.
func lineDiff(want, got string) string {
	var b strings.Builder
	count := map[string]int{}
	for line := range strings.Lines(want) {
		count[line]++
	}
	for line := range strings.Lines(got) {
		if count[line]--; count[line] < 0 {
			b.WriteString("+ " + line)
		}
	}
	for line := range strings.Lines(want) {
		if count[line] > 0 {
			count[line]--
			b.WriteString("- " + line)
		}
	}
	return b.String()
}
