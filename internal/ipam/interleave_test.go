package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/twillnet/twill/api"
)

// operations are what can be done to addresses, from a state in which h1 and h2
// have blocks, and h3's is empty and old.
var operations = map[string]func(context.Context, *Allocator) error{
	"assign both families": func(ctx context.Context, a *Allocator) error {
		_, err := a.Assign(ctx, AutoArgs{Node: "h1", Handle: "new", Num4: 1, Num6: 1})
		return err
	},
	"assign to a handle that has some": func(ctx context.Context, a *Allocator) error {
		_, err := a.Assign(ctx, AutoArgs{Node: "h2", Handle: "one", Num4: 2})
		return err
	},
	"claim a block": func(ctx context.Context, a *Allocator) error {
		_, err := a.Assign(ctx, AutoArgs{Node: "h4", Handle: "new", Num4: 1})
		return err
	},
	"take an idle block": func(ctx context.Context, a *Allocator) error {
		_, err := a.Assign(ctx, AutoArgs{Node: "h5", Handle: "idle", Num4: 5})
		return err
	},
	"assign by name": func(ctx context.Context, a *Allocator) error {
		_, err := a.AssignIP(ctx, IPArgs{Addr: addr("10.0.0.14"), Node: "h1", Handle: "one"})
		return err
	},
	"adopt": func(ctx context.Context, a *Allocator) error {
		_, err := a.Adopt(ctx, IPArgs{Addr: addr("10.0.0.0"), Node: "h1", Handle: "zero"})
		return err
	},
	"release": func(ctx context.Context, a *Allocator) error {
		_, err := a.Release(ctx, Release{Addr: addr("10.0.0.1"), Handle: "one"})
		return err
	},
	"release a handle": func(ctx context.Context, a *Allocator) error {
		_, err := a.ReleaseByHandle(ctx, "one")
		return err
	},
	"give blocks up":       func(ctx context.Context, a *Allocator) error { return a.ReleaseHostAffinities(ctx, "h1", false) },
	"give empty blocks up": func(ctx context.Context, a *Allocator) error { return a.ReleaseHostAffinities(ctx, "h3", true) },
	"ensure a block": func(ctx context.Context, a *Allocator) error {
		_, err := a.EnsureBlock(ctx, BlockArgs{Node: "h6"})
		return err
	},
}

// prepared is that state. Blocks 0 and 4 of the pool are h1's and h2's, 8 is h3's, 12 is free.
func prepared(t *testing.T) *fixture {
	f := newFixture(t)
	for _, p := range []struct{ addr, node, handle string }{
		{"10.0.0.0", "h1", "zero"}, {"10.0.0.1", "h1", "one"}, {"10.0.0.4", "h2", "one"}, {"10.0.0.5", "h2", "two"}, {"10.0.0.8", "h3", "three"}, {"fd65::1", "h1", "one"},
	} {
		if _, err := f.AssignIP(t.Context(), IPArgs{Addr: addr(p.addr), Node: p.node, Handle: p.handle}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.ReleaseByHandle(t.Context(), "three"); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(2 * minIdleAge)
	return f
}

// allowed are what an operation may answer when another came between.
func allowed(err error) bool {
	return err == nil || errors.Is(err, ErrNoAddress) || errors.Is(err, ErrAssigned) || errors.Is(err, ErrInUse)
}

// TestAnyOperationWithinAnyOther does one operation, whole, at each call of
// another. Whoever was first: nothing may be lost, and in transactions nothing be amiss.
func TestAnyOperationWithinAnyOther(t *testing.T) {
	for outer, do := range operations {
		for inner, within := range operations {
			for _, twoPhase := range phases() {
				for k, done := 1, false; !done; k++ {
					f := prepared(t)
					n := 0
					a := f.through(func(string, string) fault {
						if n++; n == k {
							if err := within(t.Context(), f.allocator(f.store, Config{TwoPhase: twoPhase})); !allowed(err) {
								t.Errorf("%s: %v", inner, err)
							}
						}
						return works
					}, twoPhase, func() error { return nil })
					if err := do(t.Context(), a); !allowed(err) {
						t.Errorf("%s: %v", outer, err)
					}
					f.sound(fmt.Sprintf("%s at call %d of %s, two-phase %v", inner, k, outer, twoPhase), twoPhase)
					done = n < k
				}
			}
		}
	}
}

// TestACrashAtAnyCall lets an operation die at each of its calls, before and
// after it is made: in transactions it was done or was not; in two phases what
// is left is repaired, and no address is lost.
func TestACrashAtAnyCall(t *testing.T) {
	for name, do := range operations {
		whole := prepared(t)
		if err := do(t.Context(), whole.Allocator); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		after := whole.state()
		for _, how := range []fault{crashesFirst, crashesAfter, down, lost} {
			for _, twoPhase := range phases() {
				for k, done := 1, false; !done; k++ {
					f := prepared(t)
					before := f.state()
					n := 0
					a := f.through(func(string, string) fault {
						if n++; n == k {
							return how
						}
						return works
					}, twoPhase, func() error { return nil })
					err := dying(func() error { return do(t.Context(), a) })
					what := fmt.Sprintf("%s with fault %d at call %d, two-phase %v", name, how, k, twoPhase)
					f.sound(what, twoPhase)
					// Several blocks are given up one after the other; all else is done whole or not at all.
					if is := f.state(); !twoPhase && is != before && is != after && name != "give blocks up" {
						t.Errorf("%s: ended with %v, and changed\n%s\nto\n%s\nand not to\n%s", what, err, before, is, after)
					}
					done = n < k
				}
			}
		}
	}
}

func dying(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			err = errors.New("crashed")
		}
	}()
	return do()
}

// sound fails if data is amiss that must not be, or that a repair does not put
// right, or if a repair takes an address from a handle.
func (f *fixture) sound(what string, twoPhase bool) {
	f.Helper()
	v, err := f.ReadSurvey(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	found := slices.DeleteFunc(v.Check(CheckOptions{Now: f.now}), func(x Finding) bool { return x.Kind == FoundLeak && x.Fix == "" })
	for _, x := range found {
		tooFew := x.Kind == FoundLeak || x.Kind == FoundBlock || x.Kind == FoundBroken || x.Problem == "does not exist, and addresses are its" ||
			x.Problem == "is its, and not claimed"
		if !twoPhase || tooFew {
			f.Errorf("%s: found %s %s %s %s: %s (%s)", what, x.Kind, x.Block, x.Handle, x.Owner, x.Problem, x.Proof)
		}
	}
	had := f.allocated()
	for _, r := range f.Repair(f.Context(), found) {
		if r.Err != nil {
			f.Errorf("%s: repair %s %s %s: %v", what, r.Kind, r.Block, r.Handle, r.Err)
		}
	}
	if has := f.allocated(); !slices.Equal(had, has) {
		f.Errorf("%s: a repair made %v of %v", what, has, had)
	}
	for _, x := range f.check(0) {
		f.Errorf("%s: after the repair %s %s %s: %s (%s)", what, x.Kind, x.Block, x.Handle, x.Problem, x.Proof)
	}
	if f.Failed() {
		f.FailNow()
	}
}

// allocated are all addresses that somebody has, with their handles.
func (f *fixture) allocated() []string {
	f.Helper()
	v, err := f.ReadSurvey(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	var out []string
	for _, b := range v.Blocks {
		for _, l := range Allocations(b) {
			out = append(out, l.Addr.String()+" "+handleOf(l.Attr))
		}
	}
	return out
}

// TestNobodyLosesAnAddressToAnother is that what an operation was given stays
// its, whatever comes between.
func TestNobodyLosesAnAddressToAnother(t *testing.T) {
	for inner, within := range operations {
		for _, twoPhase := range phases() {
			for k, done := 1, false; !done; k++ {
				f := prepared(t)
				n := 0
				a := f.through(func(string, string) fault {
					if n++; n == k {
						_ = within(t.Context(), f.allocator(f.store, Config{TwoPhase: twoPhase})) // judged above
					}
					return works
				}, twoPhase, func() error { return nil })
				got, err := a.Assign(t.Context(), AutoArgs{Node: "h4", Handle: "mine", Num4: 2, Num6: 1})
				done = n < k
				has, err2 := f.Addresses(t.Context(), "mine")
				var want []netip.Addr
				for _, g := range got {
					want = append(want, g.Addr)
				}
				slices.SortFunc(want, netip.Addr.Compare)
				if err != nil || err2 != nil || !slices.Equal(has, want) {
					t.Fatalf("%s at call %d, two-phase %v: was given %v (%v), has %v (%v)", inner, k, twoPhase, want, err, has, err2)
				}
				if _, err := f.store.Get(t.Context(), api.HandleKey("mine")); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
