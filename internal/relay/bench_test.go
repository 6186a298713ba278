package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// BenchmarkFanOut has one change after the other reach the last of 1,000 clients, which are in this process, too, each with a connection
// of its own to a socket. Reported are, of the relay and the clients together: how long all took to get the snapshot of 1,000 keys of 600 bytes, the heap
// then, the processor's time of one change to one client, and of the changes' latencies to the last client the median and the 99th percentile.
func BenchmarkFanOut(b *testing.B) {
	const clients, keys = 1000, 1000
	var most syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &most); err != nil || most.Cur < 3*clients {
		b.Fatalf("%d open files are allowed, %v", most.Cur, err)
	}
	store := memstore.New()
	value := make([]byte, 600)
	put := func(i int) {
		for j := range value {
			value[j] = "0123456789abcdef"[rand.IntN(16)]
		}
		if err := datastore.Put(b.Context(), store, api.Update{Key: fmt.Sprint("/x/", i), Value: value}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range keys {
		put(i)
	}
	address := serveStore(b, "unix", filepath.Join(b.TempDir(), "s"), Plaintext(), store)
	got := make(chan time.Time, clients)
	var listed, ended sync.WaitGroup
	ctx, cancel := context.WithCancel(b.Context())
	begin := time.Now()
	for range clients {
		listed.Add(1)
		ended.Go(func() { drink(ctx, b, address, store, keys, &listed, got) })
	}
	listed.Wait()
	all := time.Since(begin)
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	var took []time.Duration
	cpu := spent(b)
	for b.Loop() {
		at := time.Now()
		put(rand.IntN(keys))
		var last time.Time
		for range clients {
			if t := <-got; t.After(last) {
				last = t
			}
		}
		took = append(took, last.Sub(at))
	}
	b.ReportMetric(float64(spent(b)-cpu)/float64(len(took)*clients)/1e3, "µs-cpu/change/client")
	b.ReportMetric(all.Seconds(), "s/all-listed")
	b.ReportMetric(float64(mem.HeapAlloc)/1e6, "MB-heap")
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "ms-p99")
	cancel()
	ended.Wait()
}

// drink is a client that says when it got each change.
func drink(ctx context.Context, b *testing.B, address string, store datastore.Store, keys int, listed *sync.WaitGroup, got chan<- time.Time) {
	c := must(NewClient(store, ClientConfig{Address: address, Creds: Plaintext(), Timeout: 2 * time.Minute}))
	defer c.Close()
	snap, err := c.List(ctx, "/x/")
	var w datastore.Watcher
	if err == nil {
		w, err = c.Watch(ctx, "/x/", snap.Position)
	}
	listed.Done()
	if err != nil || len(snap.Items) != keys {
		b.Errorf("%d keys, %v", len(snap.Items), err)
		return
	}
	snap = datastore.Snapshot{}
	for {
		changes, err := w.Next(ctx)
		if err != nil {
			return
		}
		for range changes.Updates {
			got <- time.Now()
		}
	}
}

// spent is the processor's time of this process.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
