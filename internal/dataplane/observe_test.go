package dataplane

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/intent"
)

// meddled is a fake that has something to repair, and settings of its own.
type meddled struct {
	fake
	repairs []intent.Repair
	every   time.Duration
	known   bool
}

func (m *meddled) Merge(b intent.Batch) {
	m.fake.Merge(b)
	if b.Host != nil {
		m.every, m.known = b.Host.Refresh.Policy, true
	}
}

func (m *meddled) Refresh() (time.Duration, bool) { return m.every, m.known }

func (m *meddled) Repairs() []intent.Repair {
	out := m.repairs
	m.repairs = nil
	return out
}

// watcher is an Observer that writes the journal.
type watcher struct{ j *journal }

func (w watcher) Applied(driver string, _ time.Duration, err error) {
	w.j.add("%s applied %v", driver, err)
}

func (w watcher) Resynced(driver string, _ time.Duration, err error) {
	w.j.add("%s resynced %v", driver, err)
}

func (w watcher) Repaired(driver string, cause intent.Cause, n int) {
	w.j.add("%s repaired %d by %s", driver, n, cause)
}
func (w watcher) Merged() { w.j.add("merged") }
func (w watcher) Round(settled bool, pending []string) {
	w.j.add("round settled=%v pending %v", settled, pending)
}

func TestAnObserverSeesAllThatTheLoopDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		nft := &meddled{fake: fake{name: "nft", j: j, errs: []error{nil, errors.New("boom")}}}
		cfg := Config{Policy: nft, Observer: watcher{j}, Resync: -1, Retry: time.Second}
		run(t, cfg, j, func(b *bench) {
			b.batches <- intent.Batch{}
			b.want(t, "merged", "nft resync", "dataplane resynced <nil>", "nft apply 1", "dataplane applied <nil>", "round settled=true pending []")
			nft.repairs = []intent.Repair{{What: "chain a", Cause: intent.ByEvent}, {What: "chain b", Cause: intent.ByReadBack}, {What: "set c", Cause: intent.ByEvent}, {What: "route d", Cause: intent.ByTakeOver}}
			b.batches <- intent.Batch{}
			b.want(t, "merged", "nft apply 1", "dataplane applied boom", "dataplane repaired 2 by event",
				"dataplane repaired 1 by read-back", "dataplane repaired 1 by take-over", "round settled=false pending [dataplane]")
			pass(1500 * time.Millisecond)
			b.want(t, "nft resync", "dataplane resynced <nil>", "nft apply 0", "dataplane applied <nil>", "round settled=true pending []")
		})
	})
}

func TestADriversOwnSettingsSayHowOftenItIsReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		nft := &meddled{fake: fake{name: "nft", j: j, stamps: true}}
		every := func(d time.Duration) intent.Batch {
			return intent.Batch{Host: &intent.HostSettings{Refresh: intent.Refresh{Policy: d}}}
		}
		run(t, Config{Policy: nft}, j, func(b *bench) {
			b.batches <- every(time.Minute)
			b.want(t, "nft resync", "nft apply at 0s")
			pass(30 * time.Second)
			b.batches <- every(10 * time.Second) // sooner than was planned
			b.want(t, "nft apply at 30s")
			pass(11 * time.Second)
			b.want(t, "nft resync", "nft apply at 40s")
			b.batches <- every(0)
			b.want(t, "nft apply at 41s")
			pass(time.Hour)
			b.want(t)
			b.batches <- every(time.Minute)
			synctest.Wait()
			j.lines = nil
			pass(61 * time.Second)
			synctest.Wait()
			if len(j.lines) == 0 || j.lines[0] != "nft resync" {
				t.Errorf("after it was turned on again the driver saw %q", j.lines)
			}
		})
	})
}
