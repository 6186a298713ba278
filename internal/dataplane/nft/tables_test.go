package nft

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// compiledBatch is a batch on a host whose policy is look-ups.
func compiledBatch(b intent.Batch) intent.Batch {
	b.Host = &intent.HostSettings{Compiled: true}
	return b
}

func TestARestartChangesNothingInTables(t *testing.T) {
	k := newKernel(t)
	d := New(k, Config{})
	d.Merge(compiledBatch(everything()))
	apply(t, d)
	rested(t, d)
	gen := k.genID(t)
	for _, what := range []string{"chain ep-in-web-0", "chain pol-in-prod.np-web"} {
		if strings.Contains(k.canonical(t), what) {
			t.Errorf("there is a %s beside the tables", what)
		}
	}
	d = New(k, Config{})
	mustResync(t, d)
	d.Merge(compiledBatch(everything()))
	apply(t, d)
	if now := k.genID(t); now != gen {
		t.Errorf("generation went from %d to %d", gen, now)
	}
	if out, err := d.Differences(t.Context()); err != nil || len(out) > 0 {
		t.Errorf("differences: %v, %v", out, err)
	}
}

// TestAGracePeriodMayOutliveTheTables: policy is chains again before it is over.
func TestAGracePeriodMayOutliveTheTables(t *testing.T) {
	d := New(newKernel(t), Config{})
	d.Merge(compiledBatch(everything()))
	apply(t, d)
	d.Merge(intent.Batch{Policies: []intent.Policy{pol("np-web", nil, nil)}})
	apply(t, d)
	if len(d.tables.since) == 0 {
		t.Fatal("nothing waits for a grace period")
	}
	d.Merge(intent.Batch{Host: &intent.HostSettings{}})
	apply(t, d)
	note := <-d.Drift()
	note()
	apply(t, d)
	if out, err := d.Differences(t.Context()); err != nil || len(out) > 0 {
		t.Errorf("differences: %v, %v", out, err)
	}
}

// TestTablesAreInTheGrammarOfNft: what nft lists, it can load into another host, and lists again.
func TestTablesAreInTheGrammarOfNft(t *testing.T) {
	k := newKernel(t)
	d := New(k, Config{})
	d.Merge(compiledBatch(everything()))
	apply(t, d)
	listed := func(ns *netnstest.NS) string {
		counters := regexp.MustCompile(`packets \d+ bytes \d+`)
		return counters.ReplaceAllString(ns.Run("nft", "-s", "list", "table", "inet", "twill"), "")
	}
	want := listed(k.ns)
	other := netnstest.New(t)
	other.Run("sh", "-c", fmt.Sprintf("nft -f - <<'E'\n%s\nE", want))
	if got := listed(other); got != want {
		t.Error(lineDiff(want, got))
	}
	for _, text := range []string{`"prod/np-web ingress[`, "meta priority", "map class4", "asked: "} {
		if !strings.Contains(want, text) {
			t.Errorf("the listing does not show %q", text)
		}
	}
}

// TestAGroupThatTablesCannotHoldGoesByChains: more rules than a code may have depend on what no table knows.
func TestAGroupThatTablesCannotHoldGoesByChains(t *testing.T) {
	h := newHosted(t)
	var much []intent.Rule
	for port := range uint16(100) {
		much = append(much, intent.Rule{Action: intent.Deny, Protocol: 6, Src: intent.Peer{Ports: []intent.PortRange{{Min: port + 1, Max: port + 1}}}})
	}
	much = append(much, tcp(intent.Allow, 80))
	in := []intent.Tier{{Name: "t", Ingress: ids("p"), Default: intent.Deny}}
	h.d.Merge(compiledBatch(pair(in, pol("p", much, nil))))
	if o := outcomeOf(apply(t, h.d), wl("a", "").ID); !strings.Contains(o.Chains, "source ports") || o.Err != nil || o.Reason != "" {
		t.Errorf("the outcome is %+v", o)
	}
	h.check(t, "out>a tcp/80", "!out>a tcp/81", "out>b tcp/81", "a>b tcp/81")
	if plain := h.d.state.Plain(); len(plain) != 1 || !strings.Contains(plain[wl("a", "").ID], "source ports") {
		t.Errorf("by chains, and why: %v", plain)
	}
	h.d.Merge(intent.Batch{Policies: []intent.Policy{pol("p", []intent.Rule{tcp(intent.Allow, 81)}, nil)}})
	if o := outcomeOf(apply(t, h.d), wl("a", "").ID); o.Key == nil || o.Chains != "" {
		t.Errorf("the outcome is %+v", o)
	}
	h.check(t, "out>a tcp/81", "!out>a tcp/80", "out>b tcp/80")
	if plain := h.d.state.Plain(); len(plain) != 0 {
		t.Errorf("by chains, and why: %v", plain)
	}
	rested(t, h.d)
	if out, err := h.d.Differences(t.Context()); err != nil || len(out) > 0 {
		t.Errorf("differences: %v, %v", out, err)
	}
}

// TestAPolicyThatIsMuchWorkCostsItsOwnGroupAlone: 120 rules with eight ports of their own each, for peers in each combination of ten sets. Its
// endpoint is asked by chains, which have each rule once; the others do not notice, in either form.
func TestAPolicyThatIsMuchWorkCostsItsOwnGroupAlone(t *testing.T) {
	for _, compiled := range []bool{false, true} {
		t.Run(fmt.Sprintf("compiled=%v", compiled), func(t *testing.T) {
			h := newHosted(t)
			var much []intent.Rule
			for i := range 120 {
				r := intent.Rule{Action: intent.Deny, Protocol: 6, Src: inSet(intent.SetID(fmt.Sprint("bit", i%10)))}
				for k := range 8 {
					at := uint16(1000 + i*50 + k*6)
					r.Dst.Ports = append(r.Dst.Ports, intent.PortRange{Min: at, Max: at})
				}
				much = append(much, r)
			}
			much = append(much, tcp(intent.Allow, 80))
			b := pair([]intent.Tier{{Name: "t", Ingress: ids("p"), Default: intent.Deny}}, pol("p", much, nil))
			for bit := range 10 {
				var in []netip.Prefix
				for i, a := range addresses(1024) {
					if i>>bit&1 == 1 {
						in = append(in, a)
					}
				}
				b.IPSets = append(b.IPSets, hostsOf(fmt.Sprint("bit", bit), in))
			}
			b.Host = &intent.HostSettings{Compiled: compiled}
			h.d.Merge(b)
			apply(t, h.d)
			h.check(t, "out>a tcp/80", "!out>a tcp/81", "out>b tcp/81", "a>b tcp/81")
			plain := h.d.state.Plain()
			if why := plain[wl("a", "").ID]; compiled && (len(plain) != 1 || !strings.Contains(why, "too many combinations")) {
				t.Errorf("by chains, and why: %v", plain)
			}
			if n := strings.Count(h.ns.Run("nft", "list", "table", "inet", "twill"), "ingress["); n > 2*len(much) {
				t.Errorf("%d rules of the kernel for %d of the policy", n, len(much))
			}
		})
	}
}

// TestTablesThatStartAgainBetweenTwoChanges: policy was chains for a moment that no transaction saw. The numbers of groups mean others now.
func TestTablesThatStartAgainBetweenTwoChanges(t *testing.T) {
	d := New(newKernel(t), Config{})
	d.Merge(compiledBatch(everything()))
	apply(t, d)
	before := d.tables
	d.Merge(intent.Batch{Host: &intent.HostSettings{}})
	d.Merge(intent.Batch{Host: &intent.HostSettings{Compiled: true}})
	apply(t, d)
	if d.tables == before {
		t.Error("what was known of groups by their numbers is still there")
	}
	rested(t, d)
	if out, err := d.Differences(t.Context()); err != nil || len(out) > 0 {
		t.Errorf("differences: %v, %v", out, err)
	}
}

// TestAPacketKeepsItsPriority: look-ups keep their results where traffic control reads the class of a packet. What passes leaves with the
// priority that the kernel gave it by its type of service.
func TestAPacketKeepsItsPriority(t *testing.T) {
	const port = 4000
	count := func(compiled bool) (out string) {
		h := newHosted(t)
		b := pair(nil)
		b.Host = &intent.HostSettings{Compiled: compiled}
		h.d.Merge(b)
		apply(t, h.d)
		var rules strings.Builder
		for prio := range 8 {
			fmt.Fprintf(&rules, "udp dport %d meta priority 0:%d counter\n", port, prio)
		}
		h.ns.Run("nft", fmt.Sprintf("table inet priorities { chain c { type filter hook postrouting priority 500; %s }; }", rules.String()))
		for tos := range 256 {
			h.out.Do(func() { sendTOS(t, tos, port) })
		}
		return h.ns.Run("nft", "list", "table", "inet", "priorities")
	}
	if chains, tables := count(false), count(true); chains != tables || !strings.Contains(chains, "packets 64 ") {
		t.Errorf("with chains:\n%s\nwith tables:\n%s", chains, tables)
	}
}

// sendTOS sends a datagram with a type of service to workload a, each of a flow of its own.
func sendTOS(t *testing.T, tos, port int) {
	sendWith(t, addrs["a"][0], port, func(fd int) error { return unix.SetsockoptInt(fd, syscall.IPPROTO_IP, unix.IP_TOS, tos) })
}

// sendWith sends a datagram from a socket with an option.
func sendWith(t *testing.T, to string, port int, option func(fd int) error) {
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(to), uint16(port))))
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { err = option(int(fd)) })
	}
	if err != nil {
		t.Error(err)
	}
	_, _ = c.Write([]byte("x"))
}

// TestTwoThatSwapTheirPoliciesSwapThem: the last endpoint leaves a group in the very change in which another joins it.
func TestTwoThatSwapTheirPoliciesSwapThem(t *testing.T) {
	h := newHosted(t)
	policies := []intent.Policy{pol("p", []intent.Rule{tcp(intent.Allow, 80)}, nil), pol("q", []intent.Rule{tcp(intent.Allow, 81)}, nil)}
	with := func(onA, onB string) intent.Batch {
		b := pair([]intent.Tier{{Name: "t", Ingress: ids(onA), Default: intent.Deny}}, policies...)
		intenttest.Normal(&b.Endpoints[1], intent.Tier{Name: "t", Ingress: ids(onB), Default: intent.Deny})
		return b
	}
	h.d.Merge(compiledBatch(with("p", "q")))
	apply(t, h.d)
	for _, on := range [][2]string{{"q", "p"}, {"p", "q"}} {
		b := with(on[0], on[1])
		b.Policies = nil
		h.d.Merge(b)
		apply(t, h.d)
		rested(t, h.d)
		ports := map[string]int{"p": 80, "q": 81}
		h.check(t, fmt.Sprintf("out>a tcp/%d", ports[on[0]]), fmt.Sprintf("out>b tcp/%d", ports[on[1]]), fmt.Sprintf("!out>a tcp/%d", ports[on[1]]), fmt.Sprintf("!out>b tcp/%d", ports[on[0]]))
	}
	if out, err := h.d.Differences(t.Context()); err != nil || len(out) > 0 {
		t.Errorf("differences: %v, %v", out, err)
	}
}

// outcomeOf returns the outcome of an intent; the zero value: there is none.
func outcomeOf(os []intent.Outcome, key intent.Key) intent.Outcome {
	for _, o := range os {
		if o.Key == key {
			return o
		}
	}
	return intent.Outcome{}
}
