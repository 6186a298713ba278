package chaostest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/outagetest"
)

// onAPIServer are the kinds of faults of a network whose resources are in an API server.
func onAPIServer() []fault {
	return slices.Concat([]fault{
		{kind: "api-silent-for-a-minute", do: silentForLong},
		{kind: "api-unreachable-for-long", do: unreachable(7 * time.Second)}, // TCP tries ever more seldom
		{kind: "api-killed", do: killAPI},
		{kind: "api-away-for-a-minute", do: awayForLong},
		{kind: "api-stopped", do: stopAPI},
		{kind: "api-restored", do: restoreAPI},
		{kind: "api-watches-broken", do: breakWatches},
		{kind: "api-lists-old", do: oldLists},
	},
		wrongAnswers(),
		of(storeFaults(), "store-cut", "store-hung", "store-slow", "store-answers-cut-short", "store-unreachable-from-a-host"),
		of(all(), "kill-agent", "kill-node", "kill-bgp", "freeze-agent", "freeze-node"),
	)
}

// silentForLong has hosts hear nothing until each agent says so.
func silentForLong(ctx context.Context, w *world, rng *rand.Rand) error {
	defer w.proxy.Set(outagetest.Fault{})
	w.proxy.Set(outagetest.Fault{Hang: true})
	began := time.Now()
	if err := w.says(ctx, 45*time.Second, func(state string) bool { return state != "in-sync" }); err != nil {
		return err
	}
	w.logf("  all agents said after %s that the datastore is away", time.Since(began).Round(time.Millisecond))
	wait(ctx, span(rng, 0, 60*time.Second-time.Since(began)))
	return w.change(ctx, !w.allowed)
}

// dies kills the API server, perhaps with a change that nobody has heard of.
func (w *world) dies(ctx context.Context, rng *rand.Rand) error {
	if err := w.through(ctx, w.kube.direct()); err != nil {
		return err
	}
	if rng.IntN(2) == 0 {
		if err := w.change(ctx, !w.allowed); err != nil {
			return err
		}
	}
	w.kube.server.Kill(w.t)
	if _, err := w.throughProxy(anyHost(rng), 300*time.Millisecond); err == nil {
		return errors.New("an API server that was killed answers")
	}
	return nil
}

func killAPI(ctx context.Context, w *world, rng *rand.Rand) error {
	if err := w.dies(ctx, rng); err != nil {
		return err
	}
	wait(ctx, span(rng, 0, 2*time.Second))
	w.kube.server.Restart(w.t)
	return w.serves(ctx)
}

// serves awaits that a server which has started answers for all kinds: ready or not, it says of custom resources at first that it is not. Only
// then the fault has ended.
func (w *world) serves(ctx context.Context) error {
	return until(ctx, time.Minute, func() error {
		_, err := w.store.List(ctx, api.Root)
		return err
	})
}

// awayForLong leaves hosts without an API server for a minute, perhaps with an agent that starts meanwhile.
func awayForLong(ctx context.Context, w *world, rng *rand.Rand) error {
	if err := w.dies(ctx, rng); err != nil {
		return err
	}
	began := time.Now()
	if err := w.says(ctx, 45*time.Second, func(state string) bool { return state != "in-sync" }); err != nil {
		return err
	}
	if rng.IntN(2) == 0 {
		if err := w.kill(ctx, anyHost(rng), "agent", false); err != nil {
			return err
		}
	}
	wait(ctx, time.Minute-time.Since(began))
	w.kube.server.Restart(w.t)
	return w.serves(ctx)
}

func stopAPI(ctx context.Context, w *world, rng *rand.Rand) error {
	if err := w.through(ctx, w.kube.direct()); err != nil {
		return err
	}
	if err := w.change(ctx, !w.allowed); err != nil {
		return err
	}
	w.kube.server.Stop(w.t)
	defer w.kube.server.Continue(w.t)
	if _, err := w.throughProxy(anyHost(rng), 300*time.Millisecond); err == nil {
		return errors.New("a stopped API server answers")
	}
	wait(ctx, span(rng, 0, 4*time.Second))
	return nil
}

// restoreAPI puts etcd back to what it was before policy changed. It had come further by then than it will when agents ask again: else
// nobody could tell, which is why Kubernetes' guide wants revisions raised.
func restoreAPI(ctx context.Context, w *world, rng *rand.Rand) error {
	if err := w.through(ctx, w.kube.direct()); err != nil {
		return err
	}
	was := w.decided()
	backup := w.kube.server.Backup(w.t)
	for range 1 + rng.IntN(2) {
		if err := w.change(ctx, !w.allowed); err != nil {
			return err
		}
		wait(ctx, span(rng, 0, time.Second))
	}
	const later = "/api/v1/namespaces/default/configmaps/later"
	for i := range 400 {
		if err := w.kube.patch(ctx, later+"?force=true&fieldManager=chaos", "application/apply-patch+yaml", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"later"},"data":{"n":"%d"}}`, i)); err != nil {
			return err
		}
	}
	w.unknown()
	w.kube.server.Restore(w.t, backup)
	var status *kubetest.StatusError
	if err := w.kube.server.Admin().Call(ctx, http.MethodGet, later, nil, nil); !errors.As(err, &status) || status.Code != http.StatusNotFound {
		return fmt.Errorf("what came after the backup: %w", err)
	}
	w.became(was)
	return w.serves(ctx)
}

// breakWatches ends streams in their middle, again and again.
func breakWatches(ctx context.Context, w *world, rng *rand.Rand) error {
	if err := w.through(ctx, w.kube.wrong.Address); err != nil {
		return err
	}
	if err := w.change(ctx, !w.allowed); err != nil {
		return err
	}
	broken := 0
	for range 5 + rng.IntN(20) {
		broken += w.kube.wrong.EndWatches(func() bool { return rng.IntN(2) == 0 })
		wait(ctx, span(rng, 50*time.Millisecond, 300*time.Millisecond))
	}
	w.logf("  %d watches were broken off", broken)
	if broken == 0 {
		return errUnharmed
	}
	return w.change(ctx, !w.allowed)
}

// oldLists answers lists twice with what they were before policy denied toggled flows, as a cache does that lags behind: what was denied since
// then must stay so.
func oldLists(ctx context.Context, w *world, _ *rand.Rand) error {
	p := w.kube.wrong
	defer p.Set(nil)
	if err := w.through(ctx, p.Address); err != nil {
		return err
	}
	if !w.allowed {
		if err := w.change(ctx, true); err != nil {
			return err
		}
	}
	kept := newCache()
	step := func(wrong kubetest.Wrong) error {
		before := p.Harmed()
		p.Set(wrong)
		p.EndWatches(func() bool { return true })
		if err := w.harmed(ctx, before); err != nil {
			return err
		}
		if _, err := w.settled(ctx, *patience); err != nil {
			return err
		}
		p.Set(nil)
		return nil
	}
	if err := step(kept.record); err != nil { // all agents list while flows are allowed
		return err
	}
	if err := w.change(ctx, false); err != nil {
		return err
	}
	if _, err := w.settled(ctx, *patience); err != nil {
		return err
	}
	if err := step(kept.replay); err != nil {
		return err
	}
	w.logf("  %d lists were kept, and %d answers were old", len(kept.answers), kept.replayed)
	if kept.replayed == 0 {
		return errUnharmed
	}
	return nil
}
