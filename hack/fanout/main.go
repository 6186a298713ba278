// Command fanout measures what one watch event to one watcher costs a store.
//
// In: the address of an etcd that nobody else uses, and its process ID. Out: the processor time of that process for each event that a
// watcher received, and the time for the same writes without watchers. docs/scale.md has its figures; they are the default of
// `twill simulate --store-send`.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
)

func main() {
	etcd := flag.String("etcd", "unix:///tmp/fanout.sock", "address of the etcd")
	pid := flag.Int("pid", 0, "its process ID")
	watchers := flag.Int("watchers", 200, "clients, each with a connection and a watch of its own")
	writes := flag.Int("writes", 500, "how many keys are written")
	size := flag.Int("size", 800, "bytes of a value")
	every := flag.Duration("every", 10*time.Millisecond, "time between two writes")
	flag.Parse()
	if err := measure(*etcd, *pid, *watchers, *writes, *size, *every); err != nil {
		fmt.Fprintln(os.Stderr, "fanout:", err)
		os.Exit(1)
	}
}

func measure(etcd string, pid, watchers, writes, size int, every time.Duration) error {
	ctx := context.Background()
	open := func() (datastore.Client, error) {
		return stores.Open(ctx, datastore.Config{Endpoints: []string{etcd}})
	}
	writer, err := open()
	if err != nil {
		return err
	}
	defer writer.Close()
	write := func() (time.Duration, error) {
		before, err := processorTime(pid)
		if err != nil {
			return 0, err
		}
		for i := range writes {
			key := fmt.Sprintf("%sfanout/%d", api.ResourcesPrefix, i)
			if err := datastore.Put(ctx, writer, api.Update{Key: key, Value: []byte(strings.Repeat("x", size))}); err != nil {
				return 0, err
			}
			time.Sleep(every)
		}
		after, err := processorTime(pid)
		return after - before, err
	}
	if _, err := write(); err != nil { // so that the keys exist in both
		return err
	}
	alone, err := write()
	if err != nil {
		return err
	}
	var received sync.WaitGroup
	for range watchers {
		c, err := open()
		if err != nil {
			return err
		}
		defer c.Close()
		if err := follow(ctx, c, writes, &received); err != nil {
			return err
		}
	}
	with, err := write()
	if err != nil {
		return err
	}
	received.Wait()
	each := (with - alone) / time.Duration(writes*watchers)
	fmt.Printf("%d watchers, %d writes of %d bytes, one in %v: processor time without watchers %v, with %v: %v for each event and watcher\n", watchers, writes, size, every, alone, with, each)
	return nil
}

// follow watches until that many events have come.
func follow(ctx context.Context, c datastore.Store, events int, received *sync.WaitGroup) error {
	snap, err := c.List(ctx, api.ResourcesPrefix+"none/")
	if err != nil {
		return err
	}
	w, err := c.Watch(ctx, api.ResourcesPrefix, snap.Position)
	if err != nil {
		return err
	}
	received.Go(func() {
		for left := events; left > 0; {
			changes, err := w.Next(ctx)
			if err != nil {
				fmt.Fprintln(os.Stderr, "fanout:", err)
				os.Exit(1)
			}
			left -= len(changes.Updates)
		}
	})
	return nil
}

// processorTime is what a process used so far, in ticks of 10 ms: proc_pid_stat(5), utime and stime.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, fields, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(fields)
	user, err1 := strconv.Atoi(f[14-3])
	system, err2 := strconv.Atoi(f[15-3])
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("process %d: %q", pid, fields)
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}
