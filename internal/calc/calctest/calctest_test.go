package calctest_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/verdict/world"
)

// judge asks the oracle.
func judge(t *testing.T, w *world.World, q calctest.Query) world.Answer {
	t.Helper()
	src, err := w.Resolve(q.Src)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := w.Resolve(q.Dst)
	if err != nil {
		t.Fatal(err)
	}
	return w.Judge(world.Query{
		Src: src, Dst: dst, Family: q.Family, Proto: q.Proto, SrcPort: q.SrcPort, DstPort: q.DstPort,
		ICMPType: q.ICMPType, ICMPCode: q.ICMPCode,
	})
}

func TestRandomWorldsAskAboutEverything(t *testing.T) {
	var c calctest.Coverage
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := calctest.Random(rng, calctest.Config{})
		oracle := world.New(w.State())
		for range 20 {
			a := judge(t, oracle, w.RandomQuery(rng))
			c.Count(a.Allowed, a.Tags())
		}
	}
	t.Logf("seeds 0–399\n%s", c.Table())
	if share := float64(c.Allowed) / float64(c.Packets); share < 0.3 {
		t.Errorf("allowed %.2f of the packets, want at least 0.30", share)
	}
	if missing := c.Missing(0.01); len(missing) > 0 {
		t.Errorf("had a part in less than 1 %% of the packets: %q", missing)
	}
}

func TestOneSeedIsOneWorld(t *testing.T) {
	run := func() (states []any) {
		rng := rand.New(rand.NewPCG(7, 7))
		w := calctest.Random(rng, calctest.Config{})
		for range 50 {
			states = append(states, w.Step(), w.RandomQuery(rng))
		}
		return append(states, w.State())
	}
	if a, b := run(), run(); !reflect.DeepEqual(a, b) {
		t.Error("two runs with one seed differ")
	}
}

func TestStepsAddUpToTheState(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	w := calctest.Random(rng, calctest.Config{})
	seen := map[string][]byte{}
	for _, u := range w.State() {
		seen[u.Key] = u.Value
	}
	last := int64(0)
	for range 500 {
		for _, u := range w.Step() {
			if u.Revision <= last && last != 0 {
				t.Fatalf("%s: revision %d after %d", u.Key, u.Revision, last)
			}
			last = u.Revision
			if u.Value == nil {
				delete(seen, u.Key)
			} else {
				seen[u.Key] = u.Value
			}
		}
	}
	state := w.State()
	if len(state) != len(seen) {
		t.Errorf("state has %d resources, the steps make %d", len(state), len(seen))
	}
	for _, u := range state {
		if string(seen[u.Key]) != string(u.Value) {
			t.Errorf("%s: state differs from the last step", u.Key)
		}
	}
	if w.Teardown(1); len(w.State()) != 0 {
		t.Errorf("a full teardown leaves %d resources", len(w.State()))
	}
}

func TestWithoutWrongAllResourcesAreRight(t *testing.T) {
	for seed := range uint64(30) {
		w := calctest.Random(rand.New(rand.NewPCG(seed, 2)), calctest.Config{Wrong: -1})
		for _, u := range w.State() {
			if !json.Valid(u.Value) {
				t.Errorf("seed %d: %s is not JSON", seed, u.Key)
			}
		}
		for _, p := range world.New(w.State()).Problems() {
			t.Errorf("seed %d: %+v", seed, p)
		}
	}
}

func TestTheOracleBearsWorldsInWhichAllIsWrong(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		w := calctest.Random(rng, calctest.Config{Wrong: 100})
		oracle := world.New(w.State())
		for range 10 {
			q := w.RandomQuery(rng)
			if _, err := oracle.Resolve(q.Src); err != nil {
				continue // nothing that can be read speaks of that host
			}
			if _, err := oracle.Resolve(q.Dst); err == nil {
				judge(t, oracle, q)
			}
		}
		if len(oracle.Problems()) == 0 {
			t.Errorf("seed %d: nothing is wrong", seed)
		}
	}
}
