package kubemirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/kubemirror"
)

// cluster is what Kubernetes has in these tests, and own what is nobody's here, in the order of their keys.
var (
	cluster = []string{
		"globalnetworkpolicies/kanp.adminnetworkpolicy.a=1", "globalnetworkpolicies/kbanp.baselineadminnetworkpolicy.default=1", "globalnetworkpolicies/kcnp.a=1",
		"networkpolicies/shop/knp.default.web=1", "profiles/kns.shop=1", "profiles/ksa.shop.default=1", "profiles/ksa.shop.sa.x=1",
	}
	own = []string{
		"clusterinformations/default={}", "globalnetworkpolicies/kcnp.=own", "globalnetworkpolicies/knp.default.web=own", "networkpolicies/shop/kcnp.a=own",
		"networkpolicies/shop/web=own", "profiles/custom=own", "profiles/kns.a.b=own", "profiles/ksa.shop=own",
	}
)

func both(a ...[]string) []string {
	all := slices.Concat(a...)
	slices.SortFunc(all, func(a, b string) int {
		x, _, _ := strings.Cut(a, "=")
		y, _, _ := strings.Cut(b, "=")
		return strings.Compare(x, y)
	})
	return all
}

// with are words of which some have another value.
func with(words []string, others ...string) []string {
	out := slices.Clone(words)
	for _, other := range others {
		key, value, _ := strings.Cut(other, "=")
		i := slices.IndexFunc(out, func(w string) bool { return strings.HasPrefix(w, key+"=") })
		if out[i] = other; value == "" {
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

func TestWhatKubernetesSaysIsKept(t *testing.T) {
	run(t, kubemirror.Config{}, cluster, own, func(b *bench) {
		b.holds("at the start", both(cluster, own)...)
		put(t, b.from, "networkpolicies/shop/knp.default.web=2", "profiles/kns.shop=2", "profiles/kns.new=1", "networkpolicies/new/knp.default.x=1")
		changed := append(with(cluster, "networkpolicies/shop/knp.default.web=2", "profiles/kns.shop=2"), "profiles/kns.new=1", "networkpolicies/new/knp.default.x=1")
		b.holds("changed", both(changed, own)...)
		for _, w := range changed {
			key, _, _ := strings.Cut(w, "=")
			remove(t, b.from, key)
		}
		b.holds("all gone", own...)
	})
}

func TestWhatElseWasWrittenIsPutRight(t *testing.T) {
	stale := []string{"globalnetworkpolicies/kcnp.old=1", "networkpolicies/shop/knp.default.old=1", "profiles/kns.old=1", "profiles/ksa.old.x=1"}
	wrong := with(cluster, "globalnetworkpolicies/kcnp.a=open", "profiles/kns.shop=open", "profiles/ksa.shop.default=")
	run(t, kubemirror.Config{}, cluster, slices.Concat(wrong, stale, own), func(b *bench) {
		b.holds("what was there before", both(cluster, own)...)
		put(t, b.to, "networkpolicies/shop/knp.default.web=open", "networkpolicies/shop/knp.default.foreign=open", "profiles/custom=new")
		remove(t, b.to, "profiles/kns.shop")
		b.holds("what comes later", both(cluster, with(own, "profiles/custom=new"))...)
		if !strings.Contains(b.log.String(), "somebody else changed what Kubernetes says") {
			t.Errorf("the log does not say so: %s", b.log.String())
		}
	})
}

func TestALostDatastoreIsRebuiltPoliciesFirst(t *testing.T) {
	run(t, kubemirror.Config{}, cluster, nil, func(b *bench) {
		var wrote []string
		b.to.Fail(func(op memstore.Op) error {
			if op.Verb == "create" {
				wrote = append(wrote, strings.TrimPrefix(op.Key, api.ResourcesPrefix))
			}
			return nil
		})
		b.to.Rewind(memstore.New())
		b.holds("rebuilt", cluster...)
		b.to.Fail(nil)
		profile := slices.Index(wrote, "profiles/kns.shop")
		for i, key := range wrote {
			if strings.Contains(key, "policies/") && i > profile {
				t.Errorf("%s was made after the profile that allows what no policy speaks of: %v", key, wrote)
			}
		}
	})
}

func TestAProfileWaitsForThePoliciesOfItsNamespace(t *testing.T) {
	all := []string{"networkpolicies/shop/knp.default.bad=1", "profiles/kns.other=1", "profiles/kns.shop=1"}
	run(t, kubemirror.Config{}, all, nil, func(b *bench) {
		b.holds("at the start", all...)
		b.to.Fail(func(op memstore.Op) error {
			if strings.Contains(op.Key, "knp.default.bad") {
				return errors.New("too large")
			}
			return nil
		})
		b.to.Rewind(memstore.New())
		b.holds("one that cannot be written", "profiles/kns.other=1")
		b.to.Fail(nil)
		b.holds("it can", all...)
	})
}

// faults of Kubernetes: while they last, nothing in To changes, whatever Kubernetes seems to have.
var faults = []struct {
	name string
	on   func(*faulty)
}{
	{"lists are empty", func(f *faulty) { f.set(&f.empty, true) }},
	{"lists are empty, and it cannot be asked", func(f *faulty) {
		f.set(&f.empty, true)
		f.Fail(verb(datastore.ErrUnavailable, "get"))
	}},
	{"lists are empty, and it finds nothing at all", func(f *faulty) { f.set(&f.empty, true); f.set(&f.none, true) }},
	{"it is away", func(f *faulty) {
		f.Fail(verb(datastore.ErrUnavailable, "get", "list", "page", "watch", "next"))
	}},
	{"it refuses lists", func(f *faulty) { f.Fail(verb(datastore.ErrUnauthorized, "list", "watch", "next")) }},
	{"lists break off", func(f *faulty) { f.Fail(verb(datastore.ErrUnavailable, "page", "watch")) }},
}

func verb(err error, verbs ...string) func(memstore.Op) error {
	return func(op memstore.Op) error {
		if slices.Contains(verbs, op.Verb) {
			return err
		}
		return nil
	}
}

func heal(f *faulty) {
	f.set(&f.empty, false)
	f.set(&f.none, false)
	f.Fail(nil)
	f.DropWatches(datastore.ErrCompacted)
}

func TestNothingIsDeletedWhileKubernetesCannotBeRead(t *testing.T) {
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			run(t, kubemirror.Config{}, cluster, own, func(b *bench) {
				fault.on(b.from)
				b.from.DropWatches(datastore.ErrCompacted)
				b.holds("meanwhile", both(cluster, own)...)
				<-time.After(time.Hour)
				b.holds("after an hour", both(cluster, own)...)
				heal(b.from)
				remove(t, b.from, "networkpolicies/shop/knp.default.web")
				b.holds("what is gone goes once it is back", both(with(cluster, "networkpolicies/shop/knp.default.web="), own)...)
			})
		})
	}
}

func TestNothingIsWrittenBeforeKubernetesIsRead(t *testing.T) {
	stale := []string{"networkpolicies/shop/knp.default.old=1", "profiles/kns.shop=0"}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{T: t, from: &faulty{Store: memstore.New()}, to: &faulty{Store: memstore.New()}}
				put(t, b.from, cluster...)
				put(t, b.to, stale...)
				fault.on(b.from)
				m := kubemirror.New(kubemirror.Config{From: b.from, To: b.to})
				done := make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				go func() { defer close(done); _ = m.Run(ctx) }()
				b.holds("meanwhile", stale...)
				put(t, b.from, alive+"={}")
				heal(b.from)
				b.holds("read", cluster...)
				cancel()
				<-done
			})
		})
	}
}

func TestWhatWatchesMissedIsFoundByTheResync(t *testing.T) {
	run(t, kubemirror.Config{Resync: 5 * time.Minute}, cluster, nil, func(b *bench) {
		b.to.set(&b.to.silent, true)
		wrong := with(cluster, "networkpolicies/shop/knp.default.web=open", "profiles/kns.shop=")
		put(t, b.to, "networkpolicies/shop/knp.default.web=open", "networkpolicies/shop/knp.default.foreign=open")
		remove(t, b.to, "profiles/kns.shop")
		b.holds("nobody says so", both(wrong, []string{"networkpolicies/shop/knp.default.foreign=open"})...)
		b.to.set(&b.to.silent, false)
		<-time.After(5 * time.Minute)
		b.holds("after the period", cluster...)
	})
}

func TestTheDatastoreMayBeAway(t *testing.T) {
	run(t, kubemirror.Config{}, cluster, nil, func(b *bench) {
		b.to.Fail(verb(datastore.ErrUnavailable, "list", "watch", "next", "create", "update", "delete"))
		put(t, b.from, "networkpolicies/shop/knp.default.web=2")
		remove(t, b.from, "profiles/ksa.shop.sa.x")
		<-time.After(20 * time.Minute)
		b.to.Fail(nil)
		b.holds("back", with(cluster, "networkpolicies/shop/knp.default.web=2", "profiles/ksa.shop.sa.x=")...)
	})
}

func TestNothingIsWrittenWhileTheDatastoreIsLocked(t *testing.T) {
	locked, ready := `clusterinformations/default={"spec":{"datastoreReady":false}}`, `clusterinformations/default={"spec":{"datastoreReady":true}}`
	run(t, kubemirror.Config{}, cluster, []string{locked}, func(b *bench) {
		b.holds("locked", locked)
		put(t, b.to, ready)
		b.holds("unlocked", both(cluster, []string{ready})...)
	})
}

func TestARivalIsNotFoughtWithoutEnd(t *testing.T) {
	run(t, kubemirror.Config{}, cluster, nil, func(b *bench) {
		begin := b.to.Revision()
		stop := make(chan struct{})
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				key := api.ResourcesPrefix + "profiles/kns.shop"
				if u, err := b.to.Get(b.Context(), key); err == nil && string(u.Value) == "1" {
					_ = datastore.Put(b.Context(), b.to, api.Update{Key: key, Value: fmt.Append(nil, "rival", n)})
				}
			}
		}()
		<-time.After(time.Minute)
		close(stop)
		if n := b.to.Revision() - begin; n < 60 || n > 130 {
			t.Errorf("%d writes in a minute of two that disagree", n)
		}
		b.holds("once it is quiet", cluster...)
	})
}

func TestAServerThatHangsKeepsNobodyElseWaiting(t *testing.T) {
	run(t, kubemirror.Config{}, cluster, nil, func(b *bench) {
		b.from.set(&b.from.hangs, true)
		for i := range 50 {
			put(t, b.to, fmt.Sprintf("networkpolicies/shop/knp.default.foreign%d=1", i))
		}
		<-time.After(time.Second)
		put(t, b.to, "profiles/kns.shop=open")
		<-time.After(10 * time.Second)
		if u, err := b.to.Get(t.Context(), api.ResourcesPrefix+"profiles/kns.shop"); err != nil || string(u.Value) != "1" {
			t.Errorf("%s, error %v", u.Value, err)
		}
		b.from.set(&b.from.hangs, false)
		<-time.After(time.Minute)
		b.holds("once it answers", cluster...)
	})
}

func TestControllersCanBeSwitchedOff(t *testing.T) {
	endpoint, pod := wep("web-0", `"containerID":"c1"`), wep("web-0", `"serviceAccountName":"sa"`)
	for _, tt := range []struct {
		on   []string
		want []string
	}{
		{[]string{"policy"}, both(cluster[:4], []string{endpoint})},
		{[]string{"namespace"}, both(cluster[4:5], []string{endpoint})},
		{[]string{"serviceaccount", "node"}, both(cluster[5:], []string{endpoint})},
		{[]string{}, []string{endpoint}},
		{[]string{"workloadendpoint"}, []string{wep("web-0", `"containerID":"c1","serviceAccountName":"sa"`)}},
	} {
		run(t, kubemirror.Config{Controllers: tt.on}, append([]string{pod}, cluster...), []string{endpoint}, func(b *bench) {
			b.holds(fmt.Sprint(tt.on), tt.want...)
		})
	}
}
