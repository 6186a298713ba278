package chaostest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/outagetest"
)

// shortFaults leave an agent without what every process needs.
func shortFaults() []fault {
	return []fault{
		{kind: "agent-descriptors-short", do: fewDescriptors},
		{kind: "agent-memory-short", do: littleMemory},
	}
}

// limit sets what a process may have from now on, and returns what it might have before.
func limit(pid, what int, most uint64) (was unix.Rlimit, err error) {
	if err = unix.Prlimit(pid, what, nil, &was); err == nil {
		err = unix.Prlimit(pid, what, &unix.Rlimit{Cur: most, Max: was.Max}, nil)
	}
	return was, err
}

// logged reports whether a host's log has a text after some bytes.
func (w *world) logged(host string, from int64, text string) error {
	log, err := os.ReadFile(w.log(host))
	if err != nil {
		return err
	}
	if !bytes.Contains(log[min(from, int64(len(log))):], []byte(text)) {
		return fmt.Errorf("the log of %s does not say %q", host, text)
	}
	return nil
}

// logSize is how much a host has logged so far.
func (w *world) logSize(host string) int64 {
	st, err := os.Stat(w.log(host))
	if err != nil {
		return 0
	}
	return st.Size()
}

// fewDescriptors lets an agent open none, takes its connections away, and wants it to say that it cannot connect.
func fewDescriptors(ctx context.Context, w *world, rng *rand.Rand) (err error) {
	host := anyHost(rng)
	pid, err := w.running(ctx, host, "agent", 0)
	if err != nil {
		return err
	}
	from := w.logSize(host)
	was, err := limit(pid, unix.RLIMIT_NOFILE, 3)
	if err != nil {
		return err
	}
	defer func() {
		w.proxy.Set(outagetest.Fault{})
		_, undo := limit(pid, unix.RLIMIT_NOFILE, was.Cur)
		err = errors.Join(err, undo)
	}()
	w.proxy.Set(outagetest.Fault{Cut: true})
	w.proxy.Set(outagetest.Fault{})
	if err := until(ctx, proof, func() error { return w.logged(host, from, "too many open files") }); err != nil {
		return err
	}
	w.logf("  agent of %s: pid %d has no descriptor to spare", host, pid)
	return w.hold(ctx, rng, 2*time.Second)
}

// littleMemory gives an agent no more address space than it has, and then much to keep that no policy uses: it dies, and
// another comes.
func littleMemory(ctx context.Context, w *world, rng *rand.Rand) (err error) {
	host := anyHost(rng)
	old, err := w.running(ctx, host, "agent", 0)
	if err != nil {
		return err
	}
	if err := w.kill(ctx, host, "agent", false); err != nil { // one that has run for long has room in its heap
		return err
	}
	pid, err := w.running(ctx, host, "agent", old)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return err
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		return err
	}
	if _, err := limit(pid, unix.RLIMIT_AS, uint64(pages*os.Getpagesize())); err != nil {
		return err
	}
	c, err := w.raw()
	if err != nil {
		return err
	}
	defer c.Close()
	prefix := api.ResourcesPrefix + "globalnetworksets/large"
	defer func() {
		_, undo := c.Delete(context.WithoutCancel(ctx), prefix, clientv3.WithPrefix())
		err = errors.Join(err, undo)
	}()
	for i := 0; w.pid(host, "agent") == pid; i++ {
		if i == 200 {
			return fmt.Errorf("agent %d lives with %d more large sets", pid, i)
		}
		var nets []string
		for n := range 4000 {
			nets = append(nets, fmt.Sprintf("198.%d.%d.%d/32", 18+i%2, n>>8+i%60*4, n&255))
		}
		if _, err := c.Put(ctx, fmt.Sprint(prefix, i%60), strings.Replace(setOf(fmt.Sprint("large", i%60), nets...), "burst", "unused", 1)); err != nil {
			return err
		}
	}
	next, err := w.running(ctx, host, "agent", pid)
	w.logf("  agent of %s: pid %d had %d KiB and no more; then %d", host, pid, pages*os.Getpagesize()>>10, next)
	return err
}
