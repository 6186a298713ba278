package chaostest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// fault is one way to break something. Do plants it, proves that it bit, lets it last and takes it back; an error of it
// says that it could not, or did not bite. What the daemons themselves must repair, it leaves.
type fault struct {
	kind string
	// loses: packets of allowed flows may be lost, since the fault cuts their own path. They must come again after.
	loses bool
	// peering: it deletes peerings, whose routes go at once and are back when sessions are. A peer that did not see the Cease takes it for a
	// restart, and does not speak for idleHold.
	peering bool
	do      func(ctx context.Context, w *world, rng *rand.Rand) error
}

// idleHold is how long GoBGP does not speak to a peer whose session broke (docs/decisions/010-bgp.md).
const idleHold = 5 * time.Second

// bound is how long after it all must be right again.
func (f fault) bound() time.Duration {
	if f.peering {
		return *bound + idleHold
	}
	return *bound
}

func anyHost(rng *rand.Rand) string { return hosts[rng.IntN(len(hosts))] }

// anyWorkload is one whose flows go on.
func anyWorkload(rng *rand.Rand) (host, name string) {
	host = anyHost(rng)
	return host, []string{"c", "s", "t"}[rng.IntN(3)] + host[1:]
}

// proof is how long a fault may take to show.
const proof = time.Minute

// all are the kinds of faults.
func all() []fault {
	var fs []fault
	for _, d := range []string{"agent", "bgp", "bfd"} {
		fs = append(fs,
			fault{kind: "kill-" + d, do: func(ctx context.Context, w *world, rng *rand.Rand) error {
				return w.kill(ctx, anyHost(rng), d, rng.IntN(2) == 0)
			}},
			// BFD that says nothing for a second is a path that is dead, whatever the reason: routes by it go.
			fault{kind: "freeze-" + d, loses: d != "agent", do: func(ctx context.Context, w *world, rng *rand.Rand) error { return w.freeze(ctx, anyHost(rng), d, rng) }},
		)
	}
	fs = append(fs,
		fault{kind: "kill-node", loses: true, do: killNode},
		fault{kind: "freeze-node", do: func(ctx context.Context, w *world, rng *rand.Rand) error {
			return w.freeze(ctx, anyHost(rng), "node", rng)
		}},
	)
	return slices.Concat(fs, shortFaults(), storeFaults(), kernelFaults(), valueFaults())
}

// running awaits a daemon, and returns its process id.
func (w *world) running(ctx context.Context, host, what string, not int) (pid int, err error) {
	err = until(ctx, 2*time.Minute, func() error {
		if pid = w.pid(host, what); pid == 0 || pid == not {
			return fmt.Errorf("no other %s runs on %s", what, host)
		}
		return nil
	})
	return pid, err
}

// kill kills a daemon, and perhaps changes policy while nobody is there. That another comes is `twill node`'s to see to.
func (w *world) kill(ctx context.Context, host, what string, change bool) error {
	pid, err := w.running(ctx, host, what, 0)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	if change {
		if err := w.change(ctx, !w.allowed); err != nil {
			return err
		}
	}
	w.logf("  %s of %s: pid %d is gone", what, host, pid)
	return until(ctx, proof, func() error { return gone(pid) })
}

// killNode kills a supervisor, whose children go with it, and starts another.
func killNode(ctx context.Context, w *world, rng *rand.Rand) error {
	host := anyHost(rng)
	pid, agent := w.pid(host, "node"), w.pid(host, "agent")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	if err := until(ctx, proof, func() error { return gone(agent) }); err != nil {
		return fmt.Errorf("agent %d of node %d: %w", agent, pid, err)
	}
	if err := w.hold(ctx, rng, time.Second); err != nil {
		return err
	}
	if err := w.startNode(host); err != nil {
		return err
	}
	next, err := w.running(ctx, host, "agent", agent)
	w.logf("  node of %s: pid %d, then %d; agent %d, then %d", host, pid, w.pid(host, "node"), agent, next)
	return err
}

func gone(pid int) error {
	if s := state(pid); s != "" && s != "Z" {
		return errStill
	}
	return nil
}

// state is the letter that /proc has for a process; none: there is no such process.
func state(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return f[0]
}

// stopped says what a process is that SIGSTOP was sent to, and that has not stopped yet.
func stopped(pid int) error {
	if !machinetest.Stopped(pid) {
		return fmt.Errorf("process %d is in state %q, or one of its threads is in another", pid, state(pid))
	}
	return nil
}

// freeze stops a process for up to five seconds.
func (w *world) freeze(ctx context.Context, host, what string, rng *rand.Rand) error {
	pid, err := w.running(ctx, host, what, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	if err := until(ctx, proof, func() error { return stopped(pid) }); err != nil {
		return err
	}
	began := time.Now()
	if err := w.hold(ctx, rng, 5*time.Second); err != nil {
		return err
	}
	w.logf("  %s of %s: pid %d was stopped for %s", what, host, pid, time.Since(began).Round(time.Millisecond))
	return nil
}
