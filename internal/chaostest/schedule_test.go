package chaostest_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestChaos breaks a network in random ways, each until the fault took effect and was repaired.
func TestChaos(t *testing.T) {
	if *length == 0 && *kinds == "" {
		return // `make chaos` says how long; the schedule and the page of kinds are tested without
	}
	chaos(t, nil, "make chaos")
}

// names are the first kinds of a seed's schedule.
func names(seed uint64, n int) (out []string) {
	for _, f := range schedule(seed, all()) {
		if out = append(out, f.kind); len(out) == n {
			break
		}
	}
	return out
}

func TestASeedIsASchedule(t *testing.T) {
	if *kinds != "" {
		return // then that is the schedule
	}
	n := len(all())
	first := names(1, 3*n)
	if !slices.Equal(first, names(1, 3*n)) {
		t.Error("the same seed gives another schedule")
	}
	if slices.Equal(first, names(2, 3*n)) {
		t.Error("another seed gives the same schedule")
	}
	for round := range 3 {
		got := slices.Sorted(slices.Values(first[round*n : (round+1)*n]))
		if len(slices.Compact(got)) != n {
			t.Errorf("round %d has not each of the %d kinds once: %v", round, n, got)
		}
	}
}

func TestThePageNamesEachKind(t *testing.T) {
	page, err := os.ReadFile("../../docs/chaos.md")
	must(t, err)
	for _, f := range append(all(), onAPIServer()...) {
		if !strings.Contains(string(page), "`"+f.kind+"`") {
			t.Errorf("docs/chaos.md does not name %s", f.kind)
		}
	}
}
