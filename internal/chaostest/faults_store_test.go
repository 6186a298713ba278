package chaostest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/outagetest"
)

// storeFaults break etcd, or the way to it. Policy changes meanwhile, past the proxy.
func storeFaults() []fault {
	return []fault{
		{kind: "store-cut", do: func(ctx context.Context, w *world, rng *rand.Rand) error {
			return w.between(ctx, rng, outagetest.Fault{Cut: true}, func(err error, _ time.Duration) bool { return err != nil })
		}},
		{kind: "store-hung", do: func(ctx context.Context, w *world, rng *rand.Rand) error {
			return w.between(ctx, rng, outagetest.Fault{Hang: true}, func(err error, _ time.Duration) bool { return err != nil })
		}},
		{kind: "store-slow", do: func(ctx context.Context, w *world, rng *rand.Rand) error {
			delay := span(rng, 50*time.Millisecond, 300*time.Millisecond)
			return w.between(ctx, rng, outagetest.Fault{Delay: delay}, func(err error, took time.Duration) bool { return err == nil && took >= delay })
		}},
		{kind: "store-answers-cut-short", do: cutShort},
		{kind: "store-unreachable-from-a-host", do: unreachable(0)},
		{kind: "store-killed", do: killStore},
		{kind: "store-frozen", do: freezeStore},
		{kind: "store-compacted", do: compact},
		{kind: "store-full", do: fill},
		{kind: "store-burst", do: burst},
	}
}

// between breaks the way to the store; bit says of one request through it whether that shows.
func (w *world) between(ctx context.Context, rng *rand.Rand, f outagetest.Fault, bit func(error, time.Duration) bool) error {
	defer w.proxy.Set(outagetest.Fault{})
	w.proxy.Set(f)
	limit := time.Second
	if f.Delay > 0 {
		limit = time.Minute // a handshake and an answer are several pieces
	}
	took, err := w.throughProxy(anyHost(rng), limit)
	if !bit(err, took) {
		return fmt.Errorf("a request with %+v took %s: %w", f, took, err)
	}
	w.logf("  a request with %+v: %s, %v", f, took, err)
	return w.hold(ctx, rng, 5*time.Second)
}

// cutShort makes all clients connect again, and cuts each connection after some bytes of answers: in a list, or among the changes after it.
func cutShort(ctx context.Context, w *world, rng *rand.Rand) (err error) {
	defer w.proxy.Set(outagetest.Fault{})
	before, least := w.proxy.Dropped(), 1+rng.IntN(5)
	w.proxy.Set(outagetest.Fault{Cut: true})
	w.proxy.Set(outagetest.Fault{After: 100 + rng.IntN(2000)})
	if err := w.change(ctx, !w.allowed); err != nil {
		return err
	}
	set := api.ResourcesPrefix + "globalnetworksets/filler"
	defer func() {
		if undo := w.store.Delete(context.WithoutCancel(ctx), set, api.Revision{}); !errors.Is(undo, datastore.ErrNotFound) {
			err = errors.Join(err, undo)
		}
	}()
	for i := 0; ; i++ { // something must be answered
		n := w.proxy.Dropped() - before
		if n >= least {
			w.logf("  %d answers were cut short", n)
			return nil
		}
		if i == 1200 { // a minute
			return fmt.Errorf("%d answers were cut short, and not %d", n, least)
		}
		if err := datastore.Put(ctx, w.store, api.Update{Key: set, Value: []byte(setOf("filler", fmt.Sprintf("198.51.100.%d/32", i%250)))}); err != nil {
			return err
		}
		wait(ctx, 50*time.Millisecond)
	}
}

// unreachable loses the store's answers to one host, as a firewall that forgets would, for some time and up to 3 s more.
func unreachable(least time.Duration) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error { return w.unreachable(ctx, rng, least) }
}

func (w *world) unreachable(ctx context.Context, rng *rand.Rand, least time.Duration) (err error) {
	host := anyHost(rng)
	route := []string{"blackhole", "172.30.0." + host[1:]}
	if _, err := w.run(ctx, "store", append([]string{"ip", "route", "add"}, route...)...); err != nil {
		return err
	}
	defer func() {
		_, undo := w.run(context.WithoutCancel(ctx), "store", append([]string{"ip", "route", "del"}, route...)...)
		err = errors.Join(err, undo)
	}()
	if _, err := w.throughProxy(host, 300*time.Millisecond); err == nil {
		return fmt.Errorf("%s still reaches the store", host)
	}
	wait(ctx, least)
	return w.hold(ctx, rng, 3*time.Second)
}

func killStore(ctx context.Context, w *world, rng *rand.Rand) error {
	was := w.etcd.cmd.Process.Pid
	w.etcd.end(syscall.SIGKILL)
	wait(ctx, span(rng, 0, 2*time.Second))
	if err := w.startStore(ctx); err != nil {
		return err
	}
	w.logf("  etcd: pid %d, then %d", was, w.etcd.cmd.Process.Pid)
	return until(ctx, time.Minute, func() error { _, err := w.find(ctx, "globalnetworkpolicies/", "toggle"); return err })
}

func freezeStore(ctx context.Context, w *world, rng *rand.Rand) error {
	pid := w.etcd.cmd.Process.Pid
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	if err := until(ctx, proof, func() error { return stopped(pid) }); err != nil {
		return err
	}
	if _, err := w.throughProxy(anyHost(rng), 300*time.Millisecond); err == nil {
		return errors.New("a stopped store answers")
	}
	wait(ctx, span(rng, 0, 4*time.Second))
	return nil
}

// compact takes the history away that agents would catch up from.
func compact(ctx context.Context, w *world, rng *rand.Rand) error {
	defer w.proxy.Set(outagetest.Fault{})
	was, err := w.store.List(ctx, api.ResourcesPrefix+"globalnetworkpolicies/")
	if err != nil {
		return err
	}
	// A set that a policy uses goes meanwhile: only a list says so, by what it lacks.
	gone := api.Update{Key: api.ResourcesPrefix + "globalnetworksets/gone", Value: []byte(setOf("gone", "198.51.100.9/32"))}
	if err := datastore.Put(ctx, w.store, gone); err != nil {
		return err
	}
	wait(ctx, span(rng, 500*time.Millisecond, time.Second))
	w.proxy.Set(outagetest.Fault{Cut: true})
	if err := w.store.Delete(ctx, gone.Key, api.Revision{}); err != nil {
		return err
	}
	for range 1 + 2*rng.IntN(2) { // so that in the end policy is another
		if err := w.change(ctx, !w.allowed); err != nil {
			return err
		}
	}
	if err := w.store.(datastore.Compacter).Compact(ctx, datastore.Position{}); err != nil {
		return err
	}
	watch, err := w.store.Watch(ctx, api.ResourcesPrefix, was.Position)
	if err == nil {
		_, err = watch.Next(ctx)
		watch.Close()
	}
	if !errors.Is(err, datastore.ErrCompacted) {
		return fmt.Errorf("a watch from position %s: %w", was.Position, err)
	}
	return nil
}

// raw is a client that does what no store of ours does.
func (w *world) raw() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{w.Socket()}, Logger: zap.NewNop()})
}

// clear takes away what a fault wrote, and gives the room back.
func (w *world) clear(ctx context.Context, prefix string) error {
	c, err := w.raw()
	if err != nil {
		return err
	}
	defer c.Close()
	got, err := c.Delete(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	if _, err := c.Compact(ctx, got.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	_, defrag := c.Defragment(ctx, w.Socket())
	_, disarm := c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return errors.Join(defrag, disarm)
}

// fill writes until the store has no more room; it is read as before.
func fill(ctx context.Context, w *world, rng *rand.Rand) (err error) {
	defer func() { err = errors.Join(err, w.clear(context.WithoutCancel(ctx), "/fill/")) }()
	var full error
	for i := 0; full == nil && i < 2000; i++ { // etcd looks at its size ten times a second
		_, full = w.store.Create(ctx, api.Update{Key: fmt.Sprintf("/fill/%d", i), Value: []byte(strings.Repeat("x", 200<<10))})
	}
	if !errors.Is(full, datastore.ErrFull) {
		return fmt.Errorf("the store is filled, and says: %w", cmp.Or(full, errors.New("nothing")))
	}
	w.logf("  %v", full)
	// Something must be written meanwhile, such as the status of an agent that starts.
	return w.kill(ctx, anyHost(rng), "agent", false)
}

// setOf is a GlobalNetworkSet that the servers' policy denies, as it is stored.
func setOf(name string, nets ...string) string {
	return fmt.Sprintf(`{"kind":"GlobalNetworkSet","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"labels":{"net":"burst"}},"spec":{"nets":["%s"]}}`, name, strings.Join(nets, `","`))
}

// burst writes 10,000 times, of 200 sets that a policy uses.
func burst(ctx context.Context, w *world, rng *rand.Rand) (err error) {
	c, err := w.raw()
	if err != nil {
		return err
	}
	defer c.Close()
	prefix := api.ResourcesPrefix + "globalnetworksets/burst"
	defer func() {
		_, undo := c.Delete(context.WithoutCancel(ctx), prefix, clientv3.WithPrefix())
		err = errors.Join(err, undo)
	}()
	var group errgroup.Group
	group.SetLimit(32) // etcd writes them to disk together
	seed := rng.IntN(250)
	began := time.Now()
	for i := range burstWrites {
		group.Go(func() error {
			_, err := c.Put(ctx, fmt.Sprintf("%s%d", prefix, i%200),
				setOf(fmt.Sprint("burst", i%200), fmt.Sprintf("198.51.%d.%d/32", i%200, (seed+i/200)%250), fmt.Sprintf("2001:db8::%x/128", i)))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	w.logf("  %d writes in %s", burstWrites, time.Since(began).Round(time.Millisecond))
	return nil
}

const burstWrites = 10_000
