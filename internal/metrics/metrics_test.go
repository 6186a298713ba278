package metrics

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
	return m.Reference()
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
# HELP twill_dataplane_repairs_total Things of ours that somebody else had changed, put right; by how that was found: event (the kernel told) or read-back.
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
