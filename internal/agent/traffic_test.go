package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/flows"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nflog"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/metrics"
)

// reports is a source of reports that a test writes.
type reports chan nflog.Packet

func (r reports) Lost() uint64 { return 0 }
func (r reports) Close() error { return nil }

func (r reports) Receive(deadline time.Time) (nflog.Packet, bool, error) {
	select {
	case p, more := <-r:
		if !more {
			return p, false, io.EOF
		}
		return p, true, nil
	case <-time.After(time.Until(deadline)):
		return nflog.Packet{}, false, nil
	}
}

// socket is an agent's, with flows and counts alone.
type socket struct {
	path  string
	names *attribution.Table
	flows *flows.Collector
	in    reports
	ended chan string // the path of each request that was answered to its end
	ears  atomic.Int32
}

// ear counts who listens.
type ear struct {
	*flows.Collector
	n *atomic.Int32
}

func (e ear) Listen() (<-chan flows.Flow, func()) {
	e.n.Add(1)
	ch, end := e.Collector.Listen()
	return ch, func() { end(); e.n.Add(-1) }
}

func newSocket(t *testing.T) *socket {
	t.Helper()
	s := &socket{path: filepath.Join(t.TempDir(), "s"), names: attribution.New(), in: make(reports), ended: make(chan string, 9)}
	s.flows = flows.New(flows.Config{Names: s.names, Open: func() (flows.Source, error) { return s.in, nil }})
	done := make(chan struct{})
	ctx, end := context.WithCancel(context.Background())
	go func() { defer close(done); _ = s.flows.Run(ctx) }()
	mux := http.NewServeMux()
	tally{names: s.names, flows: ear{s.flows, &s.ears}}.serve(mux)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { s.ended <- r.URL.String() }()
		mux.ServeHTTP(w, r)
	}))
	server.Listener.Close()
	var err error
	if server.Listener, err = net.Listen("unix", s.path); err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close(); end(); close(s.in); <-done })
	return s
}

// packet is a report of one to a port.
func (s *socket) packet(port int) nflog.Packet {
	n := s.names.Name(intent.Decision{Reason: intent.ReasonNoProfileMatch, Rule: intent.RuleID{Index: intent.NoRule}}, 0)
	s.names.Chain("c", []attribution.Name{n})
	p := packet.Packet{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Proto: 17, DstPort: uint16(port)}
	return nflog.Packet{Prefix: n.Prefix(), Payload: p.Frame(packet.MAC{}, packet.MAC{})[14:]}
}

// drop reports packets to these ports, and returns when all were taken note of.
func (s *socket) drop(t *testing.T, ports ...int) {
	t.Helper()
	for _, port := range ports {
		s.in <- s.packet(port)
	}
	// One that is nobody's, twice: when the second is taken, the first has been counted, and all that came before.
	for range 2 {
		s.in <- nflog.Packet{}
	}
}

// quiet waits until the agent has ended to answer, and wants nobody to listen any more.
func (s *socket) quiet(t *testing.T) {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(netnstest.Patience):
		t.Error("the agent goes on telling")
	}
	if n := s.ears.Load(); n != 0 {
		t.Errorf("%d still listen", n)
	}
}

func portsOf(fs []flows.Flow) (out []int) {
	for _, f := range fs {
		out = append(out, int(f.DstPort))
	}
	return out
}

func TestTheSocketTellsTheLastFlows(t *testing.T) {
	s := newSocket(t)
	s.drop(t, 1, 2, 3)
	for _, tt := range []struct {
		last int
		want []int
	}{{0, nil}, {2, []int{2, 3}}, {100, []int{1, 2, 3}}, {-1, nil}} {
		var got []flows.Flow
		if err := Flows(t.Context(), s.path, WhichFlows{Last: tt.last}, func(f flows.Flow) error { got = append(got, f); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(portsOf(got), tt.want) {
			t.Errorf("the last %d are to ports %v, want %v", tt.last, portsOf(got), tt.want)
		}
		for _, f := range got {
			if f.Reason != intent.ReasonNoProfileMatch || f.Src != netip.MustParseAddr("10.0.0.1") || f.Proto != 17 || time.Since(f.Time) > time.Hour {
				t.Errorf("over the socket comes %+v", f)
			}
		}
	}
	resp, err := ask(t.Context(), s.path, "/flows?last=many")
	if err == nil {
		resp.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "400") {
		t.Errorf("last=many: %v", err)
	}
}

// Who follows gets what was and what comes, each once, until it has enough; then the agent ends, too.
func TestTheSocketGoesOnUntilTheReaderGoes(t *testing.T) {
	s := newSocket(t)
	s.drop(t, 1, 2)
	enough := errors.New("enough")
	var got []flows.Flow
	err := Flows(t.Context(), s.path, WhichFlows{Last: 1, Follow: true}, func(f flows.Flow) error {
		if got = append(got, f); len(got) == 4 {
			return enough
		}
		s.drop(t, 10+len(got)) // the next one
		return nil
	})
	if want := []int{2, 11, 12, 13}; !errors.Is(err, enough) || !slices.Equal(portsOf(got), want) {
		t.Errorf("got %v (%v), want %v", portsOf(got), err, want)
	}
	s.quiet(t)
}

func TestAReaderThatIsCalledOffEnds(t *testing.T) {
	s := newSocket(t)
	s.drop(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	if err := Flows(ctx, s.path, WhichFlows{Last: 1, Follow: true}, func(flows.Flow) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	s.quiet(t)
}

// A reader that does not read holds up nobody, and learns in the end how much it missed.
func TestASlowReaderHoldsUpNobody(t *testing.T) {
	s := newSocket(t)
	slow, err := ask(t.Context(), s.path, "/flows?follow=1")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Body.Close()
	const many = 8000 // more than what the socket holds and what may wait for a listener
	for range many / 100 {
		s.drop(t, make([]int, 100)...)
	}
	if n := s.flows.Counts().Dropped; n != many {
		t.Fatalf("%d of %d were taken note of", n, many)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // the last flow that was missed is told with the next that is not
		defer close(stopped)
		for {
			select {
			case s.in <- s.packet(7):
			case <-stop:
				return
			}
		}
	}()
	all, missed := 0, 0
	err = eachFlow(slow.Body, func(f flows.Flow) error {
		all, missed = all+1, missed+int(f.Missed)
		if f.DstPort == 7 && missed > 0 {
			return io.EOF
		}
		return nil
	})
	close(stop)
	<-stopped
	if !errors.Is(err, io.EOF) || all < 1000 || missed == 0 {
		t.Errorf("read %d, missed %d: %v", all, missed, err)
	}
}

func TestNobodyAnswersAtASocketThatIsNotThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := Flows(t.Context(), path, WhichFlows{Last: 1}, nil); err == nil {
		t.Error("flows came")
	}
	if _, err := Counted(t.Context(), path); err == nil {
		t.Error("counts came")
	}
}

// counting is a host in a namespace of its own: an interface of nobody, whose packets are dropped, and a policy that
// drops what the host receives on UDP port 9.
func counting(t *testing.T) (tally, *netnstest.NS) {
	t.Helper()
	ns := netnstest.New(t)
	var conn *nftables.Conn
	var err error
	ns.Do(func() { conn, err = nftables.Open() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	// Nothing is to be counted but what the tests send. A new link reports its multicast groups, and such a report was counted
	// once: in the moment of a commit in which rules are there already and elements of sets are not.
	ns.Run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
	ns.Veth("eth0", "peer")
	ns.Addr("eth0", "192.0.2.1/24")
	ns.Run("ip", "neigh", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:01", "dev", "eth0")
	names := attribution.New()
	d := nft.New(conn, nft.Config{Names: names})
	nine := intent.Peer{Ports: []intent.PortRange{{Min: 9, Max: 9}}}
	p := intent.Policy{ID: intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "p"}, Tier: "default", Egress: []intent.Rule{
		{Action: intent.Log, Protocol: 17}, {Action: intent.Deny, Protocol: 17, Dst: nine}, {Action: intent.Allow, Protocol: 17, Dst: intent.Peer{Ports: []intent.PortRange{{Min: 10, Max: 10}}}},
	}}
	hep := intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "up"}, Link: "eth0", Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "default", Egress: []intent.PolicyID{p.ID}}}})}
	d.Merge(intent.Batch{InSync: true, Policies: []intent.Policy{p}, Endpoints: []intent.Endpoint{hep}})
	if _, err := d.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tally{conn, names, flows.New(flows.Config{Names: names}), flows.New(flows.Config{Names: names}), d}, ns
}

func TestTheSocketTellsWhatRulesCounted(t *testing.T) {
	counts, ns := counting(t)
	c, err := ns.ListenUDP(netip.MustParseAddrPort("192.0.2.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint16{9, 9, 10, 11, 9} {
		_, _ = c.WriteToUDPAddrPort([]byte("twelve bytes"), netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), port)) // a drop is EPERM
	}
	s := newSocket(t)
	mux := http.NewServeMux()
	counts.serve(mux)
	l, err := net.Listen("unix", s.path+"2")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	got, err := Counted(t.Context(), s.path+"2")
	if err != nil {
		t.Fatal(err)
	}
	policy, tier := "GlobalNetworkPolicy/p", "default"
	want := []RuleCount{
		{Policy: policy, Direction: "Egress", Rule: -1, Reason: intent.ReasonEndOfTier, Tier: tier, Packets: 1, Bytes: 40},
		{Policy: policy, Direction: "Egress", Rule: 0, Reason: intent.ReasonLogged, Tier: tier, Logged: true, Packets: 5, Bytes: 200},
		{Policy: policy, Direction: "Egress", Rule: 1, Reason: intent.ReasonRule, Tier: tier, Packets: 3, Bytes: 120},
		{Policy: policy, Direction: "Egress", Rule: 2, Reason: intent.ReasonRule, Tier: tier, Allowed: true, Packets: 1, Bytes: 40},
	}
	if !slices.Equal(got, want) {
		t.Errorf("counted\n%+v, want\n%+v", got, want)
	}
	n := counts.traffic()
	if len(n.Rules) != 4 || len(n.Staged) != 0 {
		t.Errorf("for metrics: %+v", n)
	}
	if list := ns.Run("nft", "list", "table", "inet", kernel.TableName); len(n.Objects.Tables) != 1 || n.Objects.Tables[0].Chains != strings.Count(list, "\tchain ") || n.Objects.Tables[0].Rules == 0 || len(n.Objects.Sets) != 2 {
		t.Errorf("for metrics: %+v of\n%s", n.Objects, list)
	}
	for _, chain := range strings.Split(ns.Run("nft", "list", "chains"), "\n") { // somebody meddles: what is counted where is not known
		if _, name, found := strings.Cut(chain, "chain p"); found {
			ns.Run("nft", "insert", "rule", "inet", kernel.TableName, "p"+strings.TrimSuffix(name, " {"), "counter packets 70 bytes 7")
		}
	}
	if got, err := counts.counts(); err != nil || !slices.Equal(got, want[:1]) {
		t.Errorf("with a rule of somebody else's: %+v, %v", got, err)
	}
	ns.Run("nft", "delete", "table", "inet", kernel.TableName)
	if got, err := counts.counts(); err != nil || len(got) != 0 {
		t.Errorf("without a table: %+v, %v", got, err)
	}
}

// Prometheus takes no number twice; one that came twice would cost all the others.
func TestNumbersOfOneRuleAreOneNumber(t *testing.T) {
	all := []RuleCount{
		{Policy: "NetworkPolicy/ns/p", Direction: "Ingress", Rule: -1, Reason: intent.ReasonEndOfTier, Tier: "default", Packets: 2, Bytes: 20},
		{Policy: "NetworkPolicy/ns/p", Direction: "Ingress", Rule: -1, Reason: intent.ReasonPolicyClosed, Tier: "default", Packets: 3, Bytes: 30},
		{Policy: "NetworkPolicy/ns/p", Direction: "Egress", Rule: 0, Reason: intent.ReasonRule, Tier: "default", Allowed: true, Packets: 4, Bytes: 40},
		{Policy: "NetworkPolicy/ns/p", Direction: "Egress", Rule: 1, Reason: intent.ReasonLogged, Tier: "default", Logged: true, Packets: 7, Bytes: 70},
		{Direction: "Ingress", Rule: -1, Reason: intent.ReasonInvalid, Packets: 9},
		{Policy: "StagedNetworkPolicy/ns/p", Direction: "Ingress", Rule: 0, Reason: intent.ReasonRule, Tier: "a", Packets: 5, Staged: true},
		{Policy: "StagedNetworkPolicy/ns/p", Direction: "Ingress", Rule: 0, Reason: intent.ReasonRule, Tier: "b", Packets: 6, Staged: true},
	}
	reg := prometheus.NewRegistry()
	metrics.New(reg).Traffic(func() (n metrics.Traffic) { n.Rules, n.Staged = labelled(all); return n })
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP twill_policy_bytes_total Bytes of these.
# TYPE twill_policy_bytes_total counter
twill_policy_bytes_total{action="allow",direction="Egress",policy="NetworkPolicy/ns/p",rule="0"} 40
twill_policy_bytes_total{action="deny",direction="Ingress",policy="NetworkPolicy/ns/p",rule="-1"} 50
twill_policy_bytes_total{action="log",direction="Egress",policy="NetworkPolicy/ns/p",rule="1"} 70
# HELP twill_staged_policy_packets_total Packets for which staged policies would have decided otherwise, by what they would have done.
# TYPE twill_staged_policy_packets_total counter
twill_staged_policy_packets_total{action="deny",direction="Ingress",policy="StagedNetworkPolicy/ns/p",rule="0"} 11
`), "twill_policy_bytes_total", "twill_staged_policy_packets_total"); err != nil {
		t.Error(err)
	}
}
