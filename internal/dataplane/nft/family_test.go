package nft

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// TestOneAddressThatComesAndGoesChangesNoRule: the first member of a family makes its sets; after that neither the last
// one that goes, nor another that comes, nor an agent that restarts touches a chain.
func TestOneAddressThatComesAndGoesChangesNoRule(t *testing.T) {
	t.Parallel()
	k := newKernel(t)
	d := New(k, Config{})
	all := node(20, 1)
	d.Merge(all)
	apply(t, d)
	member := []intent.Member{{Prefix: netip.MustParsePrefix("fd00::1/128")}}
	change := func(added, removed []intent.Member) *plan {
		d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: sid(0), Added: added, Removed: removed}}})
		d.refresh()
		p := d.plan()
		apply(t, d)
		return p
	}
	change(member, nil)
	want := k.canonical(t)
	if !strings.Contains(k.ns.Run("nft", "list", "table", "inet", kernel.TableName), "ip6 saddr @hosts6-") {
		t.Error("the first member of a family changed no rule: nothing asks for it")
	}
	for range 2 {
		if p := change(nil, member); len(p.chains) > 0 || p.empty() {
			t.Errorf("the last member of a family goes: %d chains are written", len(p.chains))
		}
		gen := k.genID(t)
		again := New(connect(t, k.ns), Config{})
		again.Merge(all)
		mustResync(t, again)
		if apply(t, again); k.genID(t) != gen {
			t.Error("an agent that restarts changes the table")
		}
		if diff, err := again.Differences(t.Context()); err != nil || len(diff) > 0 {
			t.Errorf("differences: %v, %v", diff, err)
		}
		if p := change(member, nil); len(p.chains) > 0 {
			t.Errorf("it comes again: %d chains are written", len(p.chains))
		}
	}
	if got := k.canonical(t); got != want {
		t.Error(lineDiff(want, got))
	}
}
