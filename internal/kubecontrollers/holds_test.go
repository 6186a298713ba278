package kubecontrollers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/ipam"
)

// holding is run with the controllers of pools and tiers.
func holding(t *testing.T, test func(*bench)) {
	t.Helper()
	run(t, false, func(b *bench) {
		cfg := holdConfig{Store: b.store, Turn: func(string, error) {}, Log: slog.New(slog.NewTextHandler(b, nil))}
		pools := newPools(cfg)
		b.set(func() { b.counted = pools.counted })
		for _, run := range []func(context.Context) error{pools.loop.Run, newTiers(cfg).loop.Run} {
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = run(ctx) }()
			b.stops = append(b.stops, func() { cancel(); <-done })
		}
		test(b)
	})
}

// stored is a resource as it is stored.
func (b *bench) stored(key string) (u api.Update, meta api.ObjectMeta, conditions []api.Condition) {
	b.Helper()
	u, err := b.store.Get(b.Context(), api.ResourcesPrefix+key)
	if err != nil {
		b.Fatal(err)
	}
	var o struct {
		Metadata api.ObjectMeta
		Status   struct{ Conditions []api.Condition }
	}
	if err := json.Unmarshal(u.Value, &o); err != nil {
		b.Fatal(err)
	}
	return u, o.Metadata, o.Status.Conditions
}

// condition is a condition of a resource, in a line, with its finalizers.
func (b *bench) condition(key, of string) string {
	b.Helper()
	_, meta, conditions := b.stored(key)
	text := "none"
	for _, c := range conditions {
		if c.Type == of {
			text = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
		}
	}
	return strings.TrimSpace(text) + " " + strings.Join(meta.Finalizers, ",")
}

// change changes a stored resource by its text.
func (b *bench) change(key, old, now string) {
	b.Helper()
	u, _, _ := b.stored(key)
	text := strings.Replace(string(u.Value), old, now, 1)
	if text == string(u.Value) {
		b.Fatalf("%s is %s, without %s", key, u.Value, old)
	}
	b.put(key, text)
	b.after(2 * time.Second)
}

const (
	deletedAt = `"deletionTimestamp":"2026-01-02T03:04:05Z",`
	made      = `"creationTimestamp":"2026-01-0%dT00:00:00Z"`
)

// TestPoolsSayWhetherTheyGiveAddresses: and addresses are given as they say.
func TestPoolsSayWhetherTheyGiveAddresses(t *testing.T) {
	holding(t, func(b *bench) {
		pool := func(name string, day int, spec string) {
			b.put("ippools/"+name, fmt.Sprintf(`{"metadata":{"name":"`+name+`",`+made+`},"spec":{`+spec+`},"status":{"other":1,"conditions":[{"type":"Else","status":"True","x":7}]}}`, day))
		}
		pool("old", 1, `"cidr":"10.1.0.0/24","blockSize":30`)
		pool("new", 2, `"cidr":"10.1.0.128/25","blockSize":30`)
		pool("off", 1, `"cidr":"10.1.0.0/16","disabled":true`)
		pool("apart", 3, `"cidr":"10.2.0.0/24","disabled":true`)
		pool("goes", 1, `"cidr":"10.3.0.0/24"`)
		pool("six", 1, `"cidr":"fd65::/112"`)
		pool("broken", 1, `"cidr":"everything"`)
		b.change("ippools/goes", `"name"`, deletedAt+`"name"`)
		want := func(name, want string) {
			b.Helper()
			if got := b.condition("ippools/"+name, api.ConditionAllocatable); got != want {
				b.Errorf("pool %s says %q, want %q", name, got, want)
			}
		}
		want("old", "True OK "+api.FinalizerIPPool)
		want("six", "True OK "+api.FinalizerIPPool)
		want("new", "False CIDROverlap it has addresses in common with pool old ")
		want("off", "False PoolDisabled spec.disabled is true ") // the blocks in its range are old's
		want("apart", "False PoolDisabled spec.disabled is true "+api.FinalizerIPPool)
		want("broken", "none ")
		if u, _, _ := b.stored("ippools/old"); !strings.Contains(string(u.Value), `"other":1`) || !strings.Contains(string(u.Value), `"x":7`) {
			b.Errorf("what others wrote is lost: %s", u.Value)
		}
		_, _, before := b.stored("ippools/old")

		b.change("ippools/old", `"blockSize"`, `"disabled":true,"blockSize"`)
		want("new", "True OK "+api.FinalizerIPPool)
		b.change("ippools/old", `"disabled":true`, `"disabled":false`)
		want("new", "True OK "+api.FinalizerIPPool) // it is in use
		want("old", "False CIDROverlap it has addresses in common with pool new ")
		b.remove(b.store, "ippools/new")
		b.after(2 * time.Second)
		want("old", "True OK "+api.FinalizerIPPool)
		_, _, after := b.stored("ippools/old")
		if before[1].LastTransitionTime >= after[1].LastTransitionTime {
			b.Errorf("it holds since %s, and did since %s", after[1].LastTransitionTime, before[1].LastTransitionTime)
		}
		writes := b.store.Revision()
		b.after(24 * time.Hour)
		if b.store.Revision() != writes {
			b.Error("there are writes although nothing changes")
		}
	})
}

func TestAPoolThatOverlapsAnotherGivesNoAddresses(t *testing.T) {
	holding(t, func(b *bench) {
		b.put("ippools/p", fmt.Sprintf(`{"metadata":{"name":"p",`+made+`},"spec":{"cidr":"10.0.0.0/24","blockSize":30,"nodeSelector":"has(none)"}}`, 1))
		b.put("ippools/q", fmt.Sprintf(`{"metadata":{"name":"q",`+made+`},"spec":{"cidr":"10.0.0.0/25","blockSize":30}}`, 2))
		b.after(2 * time.Second)
		_, err := b.addresses.Assign(b.Context(), ipam.AutoArgs{Node: "n1", Handle: "a", Num4: 1})
		if err == nil || !strings.Contains(err.Error(), "pool q 10.0.0.0/25 gives none: its condition Allocatable is False, CIDROverlap") {
			b.Errorf("got %v", err)
		}
		b.change("ippools/p", `"nodeSelector":"has(none)"`, `"disabled":true`)
		if _, err := b.addresses.Assign(b.Context(), ipam.AutoArgs{Node: "n1", Handle: "a", Num4: 1}); err != nil {
			b.Error(err)
		}
	})
}

// TestAPoolStaysUntilItsAddressesAreReleased: nothing new is assigned, empty blocks go at once, the others with their last address.
func TestAPoolStaysUntilItsAddressesAreReleased(t *testing.T) {
	holding(t, func(b *bench) {
		b.after(2 * time.Second)
		for i := range 5 { // blocks have four
			b.endpoint("n1", fmt.Sprint("pod", i), b.assign("n1", fmt.Sprint("pod", i), ipam.NoteContainer))
		}
		if _, err := b.addresses.EnsureBlock(b.Context(), ipam.BlockArgs{Node: "n2"}); err != nil {
			b.Fatal(err)
		}
		b.change("ippools/p", `"finalizers"`, deletedAt+`"finalizers"`)
		waits := func(want string) {
			b.Helper()
			b.after(lookAtHeld)
			if got := b.condition("ippools/p", api.ConditionAllocatable); !strings.Contains(got, want) || !strings.HasSuffix(got, api.FinalizerIPPool) {
				b.Errorf("it says %q, want %q and its finalizer", got, want)
			}
		}
		waits("False Terminating it is being deleted, and stays until its addresses are released: 5 of them are in use, in 2 blocks")
		if claims := slices.DeleteFunc(b.keys(), func(k string) bool { return !strings.HasPrefix(k, "/calico/ipam/v2/host/") }); len(claims) > 0 {
			b.Errorf("nodes still have %v", claims)
		}
		if _, err := b.addresses.Assign(b.Context(), ipam.AutoArgs{Node: "n1", Handle: "late", Num4: 1}); err == nil || !strings.Contains(err.Error(), "is being deleted") {
			b.Errorf("got %v", err)
		}
		for i := range 4 {
			if _, err := b.addresses.ReleaseByHandle(b.Context(), fmt.Sprint("h-pod", i)); err != nil {
				b.Fatal(err)
			}
		}
		waits("1 of them are in use, in 1 blocks")
		if _, err := b.addresses.ReleaseByHandle(b.Context(), "h-pod4"); err != nil {
			b.Fatal(err)
		}
		b.after(lookAtHeld)
		if _, meta, _ := b.stored("ippools/p"); len(meta.Finalizers) > 0 {
			b.Errorf("it still has %v", meta.Finalizers)
		}
	})
}

// TestAPoolThatIsDeletedKeepsItsRangeFromOthers until its last address is released: neither one that waits for the range gets it before, nor one
// that is made meanwhile, nor does another that is deleted, too.
func TestAPoolThatIsDeletedKeepsItsRangeFromOthers(t *testing.T) {
	holding(t, func(b *bench) {
		pool := func(name string, day int) {
			b.put("ippools/"+name, fmt.Sprintf(`{"metadata":{"name":"`+name+`",`+made+`},"spec":{"cidr":"10.0.0.0/25","blockSize":30}}`, day))
			b.after(2 * time.Second)
		}
		pool("waits", 3)
		pool("goes", 2)
		b.endpoint("n1", "web", b.assign("n1", "web", ipam.NoteContainer))
		b.change("ippools/goes", `"name"`, deletedAt+`"name"`)
		b.change("ippools/p", `"finalizers"`, deletedAt+`"finalizers"`)
		pool("late", 4)
		const over = "False CIDROverlap it has addresses in common with pool p "
		want := func(name, want string) {
			b.Helper()
			if got := b.condition("ippools/"+name, api.ConditionAllocatable); got != want {
				b.Errorf("pool %s says %q, want %q", name, got, want)
			}
		}
		b.after(time.Hour)
		want("p", "False Terminating it is being deleted, and stays until its addresses are released: 1 of them are in use, in 1 blocks "+api.FinalizerIPPool)
		want("waits", over)
		want("late", over)
		if _, err := b.addresses.ReleaseByHandle(b.Context(), "h-web"); err != nil {
			b.Fatal(err)
		}
		b.after(lookAtHeld)
		if _, meta, _ := b.stored("ippools/p"); len(meta.Finalizers) > 0 {
			b.Errorf("it still has %v", meta.Finalizers)
		}
		b.remove(b.store, "ippools/p") // as the API server does then
		b.remove(b.store, "ippools/goes")
		b.after(lookAtHeld)
		want("waits", "True OK "+api.FinalizerIPPool)
	})
}

// TestAPoolStaysWhileAServiceHasItsAddress, which has a type as those of tunnels have.
func TestAPoolStaysWhileAServiceHasItsAddress(t *testing.T) {
	holding(t, func(b *bench) {
		b.after(2 * time.Second)
		b.assignTo("n1", "lb-web", map[string]string{api.AttributeService: "web", api.AttributeNamespace: "prod", api.AttributeType: typeLoadBalancer})
		b.change("ippools/p", `"finalizers"`, deletedAt+`"finalizers"`)
		b.after(lookAtHeld)
		if got := b.condition("ippools/p", api.ConditionAllocatable); !strings.Contains(got, "1 of them are in use, in 1 blocks") {
			b.Errorf("it says %q", got)
		}
	})
}

// TestAPoolGoesWhenOnlyTunnelsHaveItsAddresses: nodes keep them until it is gone.
func TestAPoolGoesWhenOnlyTunnelsHaveItsAddresses(t *testing.T) {
	holding(t, func(b *bench) {
		b.after(2 * time.Second)
		for _, node := range []string{"n1", "n2"} {
			b.assignTo(node, "vxlan-tunnel-addr-"+node, map[string]string{api.AttributeNode: node, api.AttributeType: "vxlanTunnelAddress"})
		}
		b.assign("n1", "web", ipam.NoteContainer)
		b.change("ippools/p", `"finalizers"`, deletedAt+`"finalizers"`)
		b.after(lookAtHeld)
		if got := b.condition("ippools/p", api.ConditionAllocatable); !strings.Contains(got, "1 of them are in use, in 1 blocks") || !strings.HasSuffix(got, api.FinalizerIPPool) {
			b.Errorf("it says %q", got)
		}
		if _, err := b.addresses.ReleaseByHandle(b.Context(), "h-web"); err != nil {
			b.Fatal(err)
		}
		b.after(lookAtHeld)
		if _, meta, _ := b.stored("ippools/p"); len(meta.Finalizers) > 0 {
			b.Errorf("it still has %v", meta.Finalizers)
		}
	})
}

// TestAPoolThatWasDeletedLetsGoOfBlocksThatRest when they have rested, and not before.
func TestAPoolThatWasDeletedLetsGoOfBlocksThatRest(t *testing.T) {
	holding(t, func(b *bench) {
		b.putIn(b.store, api.IPAMConfigKey, `{"auto_allocate_blocks":true,"ipCooldownSeconds":60}`)
		b.after(2 * time.Second)
		b.assign("n1", "web", ipam.NoteContainer)
		b.change("ippools/p", `"finalizers"`, deletedAt+`"finalizers"`)
		b.after(lookAtHeld)
		if _, err := b.addresses.ReleaseByHandle(b.Context(), "h-web"); err != nil {
			b.Fatal(err)
		}
		b.after(30 * time.Second)
		if got := b.condition("ippools/p", api.ConditionAllocatable); !strings.Contains(got, "0 of them are in use, in 1 blocks") {
			b.Errorf("it says %q", got)
		}
		b.after(time.Minute)
		if _, meta, _ := b.stored("ippools/p"); len(meta.Finalizers) > 0 || len(b.of(api.BlockPrefix)) > 0 {
			b.Errorf("it still has %v, and there are %v", meta.Finalizers, b.of(api.BlockPrefix))
		}
	})
}

// TestATierStaysUntilNoPolicyIsInIt, and another's finalizer stays whatever is in it.
func TestATierStaysUntilNoPolicyIsInIt(t *testing.T) {
	holding(t, func(b *bench) {
		b.put("tiers/t", `{"metadata":{"name":"t","finalizers":["example.com/f"]},"spec":{"order":7}}`)
		b.put("globalnetworkpolicies/t.one", `{"metadata":{"name":"t.one"},"spec":{"tier":"t"}}`)
		b.put("stagednetworkpolicies/prod/t.two", `{"metadata":{"name":"t.two","namespace":"prod"},"spec":{"tier":"t"}}`)
		b.put("networkpolicies/prod/other", `{"metadata":{"name":"other","namespace":"prod"},"spec":{"tier":"default"}}`)
		b.after(2 * time.Second)
		if got := b.condition("tiers/t", conditionReady); got != "none example.com/f,"+api.FinalizerTier {
			b.Errorf("it says %q", got)
		}
		b.change("tiers/t", `"name"`, deletedAt+`"name"`)
		waits := func(want string) {
			b.Helper()
			b.after(lookAtHeld)
			if got := b.condition("tiers/t", conditionReady); got != "False Terminating it is being deleted, and stays until no policy is in it: "+want+" example.com/f,"+api.FinalizerTier {
				b.Errorf("it says %q", got)
			}
		}
		waits("2 of them, globalnetworkpolicy/t.one, stagednetworkpolicy/prod/t.two")
		b.remove(b.store, "globalnetworkpolicies/t.one")
		waits("1 of them, stagednetworkpolicy/prod/t.two")
		b.remove(b.store, "stagednetworkpolicies/prod/t.two")
		b.after(lookAtHeld)
		if _, meta, _ := b.stored("tiers/t"); !slices.Equal(meta.Finalizers, []string{"example.com/f"}) {
			b.Errorf("it has %v", meta.Finalizers)
		}
		b.after(time.Hour)
		if _, meta, _ := b.stored("tiers/t"); !slices.Equal(meta.Finalizers, []string{"example.com/f"}) {
			b.Errorf("later it has %v", meta.Finalizers)
		}
	})
}
