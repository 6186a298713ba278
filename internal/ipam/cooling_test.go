package ipam

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

// rested has a pool of one block of four, h1's, in which two addresses were released and nobody has another. They cool down for
// a minute, which is over if over says so.
func rested(t *testing.T, over bool) *fixture {
	f := newFixture(t)
	f.put("ippools/p", `"cidr":"10.0.0.0/30","blockSize":30`)
	f.configure(api.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true, CooldownSeconds: 60})
	f.assign("h1", "a", 2)
	f.now = start.Add(2 * minIdleAge)
	f.ReleaseByHandle(t.Context(), "a")
	if f.now = f.now.Add(59 * time.Second); over {
		f.now = f.now.Add(time.Second)
	}
	return f
}

func TestABlockIsEmptyWhenItsAddressesHaveRested(t *testing.T) {
	h1 := ownerOf("h1", UseWorkload)
	for _, tt := range []struct {
		name              string
		do                func(f *fixture) error
		coolingDown, then string // what is so while they cool down, and after it
	}{
		{
			"another node takes it, which may not borrow",
			func(f *fixture) error {
				_, err := f.Assign(t.Context(), AutoArgs{Node: "h2", Handle: "b", Num4: 4})
				return err
			},
			`2 cooling down`, `block 10.0.0.0/30 of "h2": 4 used`,
		},
		{
			"its node gives it up if it is empty",
			func(f *fixture) error { return f.ReleaseHostAffinities(t.Context(), "h1", true) },
			`in use: 0, and 2 cooling down`, ``,
		},
		{
			"it is given up by itself if it is empty",
			func(f *fixture) error {
				return f.ReleaseAffinity(t.Context(), h1, netip.MustParsePrefix("10.0.0.0/30"), true)
			},
			`in use: 0, and 2 cooling down`, ``,
		},
		{
			"its node gives it up whatever it is",
			func(f *fixture) error { return f.ReleaseHostAffinities(t.Context(), "h1", false) },
			`block 10.0.0.0/30 of "": 0 used`, ``,
		},
		{
			"its pool retires",
			func(f *fixture) error {
				_, err := f.RetirePool(t.Context(), api.KeyPrefix(api.KindIPPool, "")+"p", api.Revision{}, func(stored []byte) ([]byte, error) { return stored, nil })
				return err
			},
			`block 10.0.0.0/30 of "": 0 used`, ``,
		},
		{
			"its pool is gone",
			func(f *fixture) error {
				f.put("nodes/h1", "")
				if err := f.store.Delete(t.Context(), api.KeyPrefix(api.KindIPPool, "")+"p", api.Revision{}); err != nil {
					return err
				}
				return f.repairAll()
			},
			`block 10.0.0.0/30 of "h1": 0 used`, ``,
		},
		{
			"its node is gone",
			func(f *fixture) error {
				f.put("nodes/h2", "")
				return f.repairAll()
			},
			`block 10.0.0.0/30 of "": 0 used`, ``,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for over, want := range map[bool]string{false: tt.coolingDown, true: tt.then} {
				f := rested(t, over)
				err := tt.do(f)
				got := f.state()
				if err != nil {
					got = err.Error()
				}
				if !strings.Contains(got, want) || want == "" && got != "" {
					t.Errorf("the time is over: %v: got %q, want %q", over, got, want)
				}
			}
		})
	}
}

// repairAll puts right whatever a check finds.
func (f *fixture) repairAll() error {
	var errs []error
	for _, r := range f.Repair(f.Context(), f.check(0)) {
		errs = append(errs, r.Err)
	}
	return errors.Join(errs...)
}

func TestANobodysBlockGoesWithItsLastAddressThatRests(t *testing.T) {
	f := rested(t, true)
	f.assign("h1", "b", 1)
	if err := f.ReleaseHostAffinities(t.Context(), "h1", false); err != nil {
		t.Fatal(err)
	}
	f.ReleaseByHandle(t.Context(), "b")
	f.equal("it rests", f.state(), `block 10.0.0.0/30 of "": 0 used`)

	f = newFixture(t)
	f.configure(api.IPAMConfig{AutoAllocateBlocks: true, CooldownSeconds: 60})
	f.assign("h1", "a", 1)
	f.assign("h1", "b", 1)
	f.ReleaseByHandle(t.Context(), "a")
	if err := f.ReleaseHostAffinities(t.Context(), "h1", false); err != nil {
		t.Fatal(err)
	}
	f.configure(api.IPAMConfig{AutoAllocateBlocks: true}) // nothing rests any more
	f.ReleaseByHandle(t.Context(), "b")
	f.equal("nothing rests", f.state(), "")
}

func TestARepairLeavesWhatCoolsDown(t *testing.T) {
	f := newFixture(t)
	f.configure(api.IPAMConfig{AutoAllocateBlocks: true, CooldownSeconds: 60})
	f.put("nodes/h1", "")
	if _, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "leak", Num4: 1, Attributes: leakAttributes(f)}); err != nil {
		t.Fatal(err)
	}
	f.assign("h1", "b", 1)
	if err := f.ReleaseHostAffinities(t.Context(), "h1", false); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Hour)
	f.ReleaseByHandle(t.Context(), "b")
	if err := f.repairAll(); err != nil {
		t.Fatal(err)
	}
	_, blocks, _ := strings.Cut(f.state(), "block ")
	if !strings.HasSuffix(blocks, `of "": 0 used`) {
		t.Errorf("the leak was freed, and with it the block of an address that cools down: %q", f.state())
	}
}

// leakAttributes are those of an address that was given to a container.
func leakAttributes(f *fixture) map[string]string {
	return map[string]string{
		api.AttributeNode: "h1", api.AttributeNamespace: "default", api.AttributePod: "gone", api.AttributeNote: NoteContainer,
		api.AttributeTimestamp: f.now.Format("2006-01-02 15:04:05.999999999 -0700 MST"),
	}
}

func TestWhatHasRestedIsFreeWhereverItIsCounted(t *testing.T) {
	for over, want := range map[bool]Usage{
		false: {Addresses: 4, Cooling: 2, Free: 2},
		true:  {Addresses: 4, Free: 4},
	} {
		f := rested(t, over)
		v, err := f.ReadSurvey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := v.UsedOf(v.Blocks[0]); got != want {
			t.Errorf("the time is over: %v: got %+v, want %+v", over, got, want)
		}
		l, err := f.QueryIP(t.Context(), addr("10.0.0.0"))
		if err != nil || l.Assigned || (l.ReleasedAt == "") != over {
			t.Errorf("the time is over: %v: %+v, %v", over, l, err)
		}
		// Its node does not claim it, so that h2, which may not borrow, is told what is free and whose.
		f.configure(api.IPAMConfig{StrictAffinity: true, CooldownSeconds: 60})
		_, err = f.Assign(t.Context(), AutoArgs{Node: "h2", Handle: "b", Num4: 1})
		says := map[bool]string{false: "2 cooling down, 2 free in blocks of others", true: "4 free in blocks of others"}[over]
		if err == nil || !strings.Contains(err.Error(), says) || over && strings.Contains(err.Error(), "cooling") {
			t.Errorf("the time is over: %v: %v, want %q", over, err, says)
		}
	}
}

func TestABlockOfRestedAddressesIsThereBeforeItIsNeeded(t *testing.T) {
	for over, want := range map[bool]string{false: "4 cooling down", true: ""} {
		f := newFixture(t)
		f.put("ippools/p", `"cidr":"10.0.0.0/30","blockSize":30`)
		f.configure(api.IPAMConfig{AutoAllocateBlocks: true, CooldownSeconds: 60})
		f.assign("h1", "a", 4)
		f.ReleaseByHandle(t.Context(), "a")
		if f.now = f.now.Add(59 * time.Second); over {
			f.now = f.now.Add(time.Second)
		}
		p, err := f.EnsureBlock(t.Context(), BlockArgs{Node: "h1"})
		if over != (err == nil && p == netip.MustParsePrefix("10.0.0.0/30")) || !over && !strings.Contains(err.Error(), want) {
			t.Errorf("the time is over: %v: %s, %v", over, p, err)
		}
	}
}
