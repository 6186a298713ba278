package agent

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/flows"
	"github.com/twillnet/twill/internal/dataplane/revoke"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestWhatLogRulesMatchIsShownAndPrinted sends real packets past a rule with action Log: they come over the agent's socket
// and stand in its log, apart from those that were dropped.
func TestWhatLogRulesMatchIsShownAndPrinted(t *testing.T) {
	counts, ns := counting(t)
	var printed bytes.Buffer // read when the collector has ended
	dropped, logged := newCollectors(slog.New(slog.NewTextHandler(&printed, nil)), counts.names, revoke.New(revoke.Config{}))
	counts.flows, counts.logged = dropped, logged
	logged.InForce(intent.Batch{Host: &intent.HostSettings{Log: intent.LogSettings{Prefix: "calico-packet %t %k %n %p"}}}, false)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	for _, c := range []*flows.Collector{dropped, logged} {
		go func() {
			ns.Do(func() { _ = c.Run(ctx) })
			done <- struct{}{}
		}()
	}
	c, err := ns.ListenUDP(netip.MustParseAddrPort("192.0.2.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	send := func(port uint16) {
		_, _ = c.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), port))
	} // a drop is EPERM
	for _, c := range []*flows.Collector{dropped, logged} { // before the group is open, nobody hears of a packet
		sendUntilLogged(t, c, 9, func() { send(9) })
	}
	sendUntilLogged(t, logged, 10, func() { send(10) }) // is allowed
	got := ask1(t, counts, WhichFlows{Last: 1, Logged: true})
	want := flows.Flow{
		Time: got.Time, Logged: true, Prefix: "calico-packet default GlobalNetworkPolicy p p", Reason: intent.ReasonLogged, Dir: "Egress", Tier: "default", Policy: "GlobalNetworkPolicy/p",
		Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), Proto: 17, SrcPort: got.SrcPort, DstPort: 10, Out: got.Out,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if drop := ask1(t, counts, WhichFlows{Last: 1}); drop.Logged || drop.DstPort != 9 {
		t.Errorf("among what was dropped is %+v", drop)
	}
	end()
	<-done
	<-done
	if line := regexp.MustCompile(`msg="calico-packet default GlobalNetworkPolicy p p: GlobalNetworkPolicy/p egress\[0\]" part=logs src=192.0.2.1 dst=192.0.2.2 proto=17 spt=\d+ dpt=10 `); !line.Match(printed.Bytes()) {
		t.Errorf("the log has\n%s", printed.String())
	}
}

// sendUntilLogged sends a packet to a port, again and again, until a collector has received a report of it.
func sendUntilLogged(t *testing.T, c *flows.Collector, port uint16, send func()) {
	t.Helper()
	arrived, end := c.Listen()
	defer end()
	late := time.After(2 * netnstest.Patience)
	send()
	for {
		select {
		case f := <-arrived:
			if f.DstPort == port {
				return
			}
		case <-time.After(netnstest.Silence):
			send()
		case <-late:
			t.Fatalf("no report of a packet to port %d", port)
		}
	}
}

// ask1 returns the last of the flows that an agent with this tally has.
func ask1(t *testing.T, counts tally, which WhichFlows) (last flows.Flow) {
	t.Helper()
	mux := http.NewServeMux()
	counts.serve(mux)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	if err := Flows(t.Context(), path, which, func(f flows.Flow) error { last = f; return nil }); err != nil {
		t.Fatal(err)
	}
	return last
}
