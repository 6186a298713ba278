package metrics

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/twillnet/twill/internal/bgp/bfd"
)

var write = flag.Bool("write", false, "write the table of docs/metrics.md anew")

const (
	page  = "../../docs/metrics.md"
	begin = "<!-- table: go test ./internal/metrics -write -->\n"
)

func TestTheReferencePageIsWhatIsRegistered(t *testing.T) {
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(content), begin)
	_, tail, closed := strings.Cut(rest, "\n\n")
	if !found || !closed {
		t.Fatalf("%s has no table", page)
	}
	want := head + begin + reference() + "\n" + tail
	if *write {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(content) != want {
		t.Errorf("%s does not name what is registered; run go test ./internal/metrics -write", page)
	}
}

func reference() string {
	m := New(prometheus.NewRegistry())
	m.Traffic(func() Traffic { return Traffic{} })
	m.WireGuard(func() []WireGuard { return nil })
	b := NewBFD(prometheus.NewRegistry())
	b.Follow(func() ([]bfd.Status, bfd.Counts) { return nil, bfd.Counts{} })
	m.list = append(m.list, b.list...)
	m.list = append(m.list, NewControllers(prometheus.NewRegistry()).list...)
	m.list = append(m.list, NewRelay(prometheus.NewRegistry()).list...)
	return m.Reference()
}

func TestBFDIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	b := NewBFD(reg)
	b.Follow(func() ([]bfd.Status, bfd.Counts) {
		at := netip.MustParseAddr
		return []bfd.Status{{Peer: at("192.0.2.1"), State: "Up", Losses: 2}, {Peer: at("192.0.2.2"), State: "Down"}, {Peer: at("192.0.2.3"), State: bfd.Off}}, bfd.Counts{Sent: 7, BadTTL: 1}
	})
	b.Late(time.Millisecond)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP twill_bfd_session_up 1 while BFD with the peer is up; no series for peers with which there is no BFD.
# TYPE twill_bfd_session_up gauge
twill_bfd_session_up{peer="192.0.2.1"} 1
twill_bfd_session_up{peer="192.0.2.2"} 0
# HELP twill_bfd_losses_total Times at which the path to the peer was found dead.
# TYPE twill_bfd_losses_total counter
twill_bfd_losses_total{peer="192.0.2.1"} 2
twill_bfd_losses_total{peer="192.0.2.2"} 0
`), "twill_bfd_session_up", "twill_bfd_losses_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if n, err := testutil.GatherAndCount(reg, "twill_bfd_packets_total"); n != 6 || err != nil {
		t.Errorf("%d series of packets, %v", n, err)
	}
}

func TestRepairsAreCountedByCause(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := New(reg)
	m.Repaired("nft", "event", 2)
	m.Repaired("host", "read-back", 1)
	m.Repaired("nft", "event", 1)
	m.Applied("nft", time.Millisecond, errors.New("boom"))
	m.Resynced("nft", time.Millisecond, nil)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP twill_dataplane_repairs_total Things of ours that somebody else had changed, put right; by how that was found: event (a notification of the kernel), read-back, or take-over (what another agent left where ours belongs).
# TYPE twill_dataplane_repairs_total counter
twill_dataplane_repairs_total{cause="event",driver="nft"} 3
twill_dataplane_repairs_total{cause="read-back",driver="host"} 1
# HELP felix_int_dataplane_failures Turns of a driver that failed, and are tried again.
# TYPE felix_int_dataplane_failures counter
felix_int_dataplane_failures{driver="nft"} 1
`), "twill_dataplane_repairs_total", "felix_int_dataplane_failures"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil {
		t.Error(err)
	} else {
		for _, p := range problems {
			if !strings.HasPrefix(p.Metric, "felix_") { // upstream's names are upstream's
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	}
}
