package nft

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

const ownedFlags = nftables.TableOwner | nftables.TablePersist

// owned is everything, with a table that is the agent's alone.
func owned() intent.Batch {
	b := everything()
	b.Host.OwnTable = true
	return b
}

func (k *kernelConn) flags(t testing.TB) nftables.TableFlags {
	t.Helper()
	rs, err := k.List(kernel.TableName)
	if err != nil {
		t.Fatal(err)
	}
	return rs.Table.Flags
}

func newOwnable(t testing.TB) *kernelConn {
	t.Helper()
	k := newKernel(t)
	err := k.ProbeOwner()
	machinetest.Supported(t, err)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNobodyElseChangesATableWithAnOwner(t *testing.T) {
	k := newOwnable(t)
	d := New(k, Config{})
	d.Merge(owned())
	apply(t, d)
	want, gen := k.canonical(t), k.genID(t)
	for _, tt := range meddling {
		var out []byte
		var err error
		k.ns.Do(func() { out, err = exec.Command("nft", tt.cmd).CombinedOutput() })
		if err == nil || !strings.Contains(string(out), "Operation not permitted") {
			t.Errorf("%s: nft %s: %v\n%s", tt.name, tt.cmd, err, out)
		}
	}
	k.ns.Run("nft", "flush ruleset")
	if err := d.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	apply(t, d)
	if got := k.canonical(t); got != want || k.genID(t) != gen || len(d.Repairs()) > 0 {
		t.Errorf("generation %d, was %d\n%s", k.genID(t), gen, lineDiff(want, got))
	}
}

func TestADormantTableIsWoken(t *testing.T) {
	for _, own := range []bool{false, true} {
		k := newOwnable(t)
		d := New(k, Config{})
		b := owned()
		b.Host.OwnTable = own
		d.Merge(b)
		apply(t, d)
		flags := k.flags(t)
		if own { // the agent was down
			_ = k.Close()
			k = connect(t, k.ns)
			sleep := nftables.NewBatch()
			sleep.SetTableFlags(kernel.TableName, nftables.TablePersist|nftables.TableDormant)
			if err := k.Commit(sleep); err != nil {
				t.Fatal(err)
			}
			d = New(k, Config{})
			d.Merge(b)
		} else {
			k.ns.Run("nft", "add table inet twill { flags dormant; }")
			if diff, err := d.Differences(t.Context()); err != nil || len(diff) != 1 || !strings.Contains(diff[0], "dormant") {
				t.Errorf("differences are %q, %v", diff, err)
			}
			if err := d.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		apply(t, d)
		if got := k.flags(t); got != flags {
			t.Errorf("flags are %d, were %d", got, flags)
		}
		if r := d.Repairs(); !own && len(r) == 0 {
			t.Error("no repair is reported")
		}
	}
}

func TestTheSettingChangesWhoMayChangeTheTable(t *testing.T) {
	k := newOwnable(t)
	d := New(k, Config{})
	b := everything()
	d.Merge(b)
	apply(t, d)
	want := k.canonical(t)
	for _, own := range []bool{true, false, true} {
		h := *b.Host
		h.OwnTable = own
		d.Merge(intent.Batch{Host: &h})
		if diff, err := d.Differences(t.Context()); err != nil || len(diff) != 1 || !strings.Contains(diff[0], "persist") {
			t.Errorf("before it is applied, differences are %q, %v", diff, err)
		}
		apply(t, d)
		flags := nftables.TableFlags(0)
		if own {
			flags = ownedFlags
		}
		if got := k.canonical(t); got != want || k.flags(t) != flags {
			t.Errorf("own %v: flags %d\n%s", own, k.flags(t), lineDiff(want, got))
		}
		if diff, err := d.Differences(t.Context()); err != nil || len(diff) > 0 {
			t.Errorf("own %v: differences are %q, %v", own, diff, err)
		}
	}
}

// What an agent of an older version or the boot unit left is enforced until all is known, and then becomes ours alone.
func TestATableThatOthersMayChangeIsLeftAloneUntilInSync(t *testing.T) {
	k := newOwnable(t)
	d := New(k, Config{})
	d.Merge(everything())
	apply(t, d)
	want := k.canonical(t)
	d = New(k, Config{})
	part := owned()
	part.InSync, part.Endpoints, part.Policies = false, nil, nil
	d.Merge(part)
	apply(t, d)
	if got := k.canonical(t); got != want || k.flags(t) != 0 {
		t.Errorf("flags %d\n%s", k.flags(t), lineDiff(want, got))
	}
	d.Merge(owned())
	apply(t, d)
	if got := k.canonical(t); got != want || k.flags(t) != ownedFlags {
		t.Errorf("in sync: flags %d\n%s", k.flags(t), lineDiff(want, got))
	}
}

func TestASecondAgentLearnsWhoOwnsTheTableAndTakesItOver(t *testing.T) {
	k := newOwnable(t)
	first := New(k, Config{})
	first.Merge(owned())
	apply(t, first)
	want, gen := k.canonical(t), k.genID(t)

	other := connect(t, k.ns)
	second := New(other, Config{})
	part := owned()
	part.InSync, part.Endpoints, part.Policies = false, nil, nil
	second.Merge(part)
	for range 2 {
		_, err := second.Apply(t.Context())
		if err == nil || !strings.Contains(err.Error(), "table inet twill is owned by another process") {
			t.Errorf("while the first lives: %v", err)
		}
		a, ok := errors.AsType[interface { // dataplane.Awaiting
			error
			RetryWithin() time.Duration
		}](err)
		if !ok || a.RetryWithin() > time.Second {
			t.Errorf("the loop does not look again soon: %v", err)
		}
	}
	second.Merge(owned())
	out, err := second.Apply(t.Context())
	if !errors.Is(err, syscall.EPERM) || len(out) > 0 {
		t.Errorf("in sync, while the first lives: %v, %v", out, err)
	}
	if k.genID(t) != gen || k.canonical(t) != want {
		t.Error("the second has changed something")
	}
	plain := everything() // its settings differ
	second.Merge(plain)
	if out, err = second.Apply(t.Context()); err != nil || !slicesHas(out, hostKey) {
		t.Errorf("a second that wants a plain table: %v, %v", out, err)
	}
	second.Merge(owned())
	_ = k.Close()
	if err := second.Resync(t.Context()); err != nil { // as the loop does before it tries again
		t.Fatal(err)
	}
	for _, o := range apply(t, second) {
		if o.Err != nil {
			t.Errorf("%v: %v", o.Key, o.Err)
		}
	}
	if got := other.canonical(t); got != want || other.flags(t) != ownedFlags {
		t.Errorf("flags %d\n%s", other.flags(t), lineDiff(want, got))
	}
	if now := other.genID(t); now != gen+1 {
		t.Errorf("generation went from %d to %d: taking over a right table is one transaction", gen, now)
	}
}

// unmakable is a kernel that refuses to replace a table.
type unmakable struct {
	*kernelConn
	tries int
	err   error
}

func (u *unmakable) Remake(table string, flags nftables.TableFlags) error {
	if u.tries++; u.err != nil {
		return u.err
	}
	return u.kernelConn.Remake(table, flags)
}

func TestATableThatCouldNotBeReplacedIsTriedAgainAfterRetry(t *testing.T) {
	k := &unmakable{kernelConn: newOwnable(t), err: syscall.EBUSY}
	d := New(k, Config{})
	d.Merge(everything())
	apply(t, d)
	d.Merge(owned())
	if out := apply(t, d); !slicesHas(out, hostKey) || k.tries != 1 {
		t.Fatalf("%d tries, and %v", k.tries, out)
	}
	d.Merge(intent.Batch{Policies: everything().Policies[:1]})
	if apply(t, d); k.tries != 1 {
		t.Error("another change tried it again")
	}
	d.Retry()
	if out := apply(t, d); !slicesHas(out, hostKey) || k.tries != 2 {
		t.Errorf("tried again: %d tries, and %v", k.tries, out)
	}
	k.err = nil
	d.Retry()
	if out := apply(t, d); slicesHas(out, hostKey) || k.flags(t) != ownedFlags {
		t.Errorf("it can be made: flags %d, and %v", k.flags(t), out)
	}
}

func slicesHas(out []intent.Outcome, failed intent.Key) bool {
	for _, o := range out {
		if o.Key == failed && o.Err != nil {
			return true
		}
	}
	return false
}

// older is a kernel before 6.9.
type older struct{ *kernelConn }

func (older) ProbeOwner() error { return &kernel.UnsupportedError{Feature: "an owner"} }

func TestAKernelWithoutOwnersHasAPlainTable(t *testing.T) {
	k := newKernel(t)
	d := New(older{k}, Config{})
	d.Merge(owned())
	apply(t, d)
	if got := k.flags(t); got != 0 {
		t.Errorf("flags are %d", got)
	}
	if diff, err := d.Differences(t.Context()); err != nil || len(diff) > 0 {
		t.Errorf("differences are %q, %v", diff, err)
	}
}
