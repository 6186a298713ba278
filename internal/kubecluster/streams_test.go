package kubecluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// underStreams does something under two streams to a pod of another node, a number each 10 ms: policy allows the one, and not the other.
// Of the one, nothing may be lost; of the other, nothing may arrive.
func underStreams(t *testing.T, do func(s space) error) {
	t.Helper()
	s := newSpace(t)
	s.pod("server", "n1")
	s.pod("client", "n2")
	s.pod("stranger", "n3")
	s.awaitPods()
	s.apply(closed)
	s.apply(strings.Replace(allowed, "{port: 8080}", "{port: 8080, protocol: UDP}", 1))
	at := s.address("server") + ":8080"
	awaits(t, "UDP is allowed", func(ctx context.Context) error {
		return s.passes(ctx, "client", at, true, func() error { return nil })
	})
	awaits(t, "and not to a stranger", func(ctx context.Context) error {
		return s.passes(ctx, "stranger", at, false, func() error { return nil })
	})
	ended, failed := make(chan struct{}), make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		failed <- s.passes(t.Context(), "stranger", at, false, func() error { close(begun); <-ended; return nil })
	}()
	err := s.passes(t.Context(), "client", at, true, func() error { <-begun; return do(s) })
	close(ended)
	if err := errors.Join(err, <-failed); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		return
	}
	s.pod("late", "n3") // who comes afterwards is attached
	s.awaitPods()
}

// passes is an error unless all that a pod sends until do returns is answered, or nothing.
func (s space) passes(ctx context.Context, from, to string, all bool, do func() error) error {
	sent, lost, err := s.stream(ctx, from, to, do)
	switch {
	case err != nil:
		return fmt.Errorf("a stream from %s: %w", from, err)
	case sent == 0 || all && lost > 0 || !all && lost < sent:
		return fmt.Errorf("%s sent %d, of which %d were not answered", from, sent, lost)
	}
	s.Logf("%s sent %d, of which %d were not answered", from, sent, lost)
	return nil
}

// stream sends numbers from a pod until do returns, and a few in any case.
func (s space) stream(ctx context.Context, from, to string, do func() error) (sent, lost int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.c.Kubectl(), "--kubeconfig="+s.c.Kubeconfig(), "-n", s.name, "exec", "-i", from, "--", "/probe", "stream", to)
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	_, begun := fmt.Fscanf(out, "begun\n")
	failed := begun
	if begun == nil {
		failed = do()
	}
	if err := in.Close(); err != nil {
		return 0, 0, err
	}
	_, err = fmt.Fscanf(out, "sent %d, lost %d\n", &sent, &lost)
	return sent, lost, errors.Join(failed, err, cmd.Wait())
}

// TestARolloutLosesNoPacket: the DaemonSet is replaced on all nodes.
func TestARolloutLosesNoPacket(t *testing.T) {
	underStreams(t, func(s space) error {
		if _, err := s.c.Run(t.Context(), "-n", "kube-system", "rollout", "restart", "daemonset/twill-node"); err != nil {
			return err
		}
		return s.awaitTwill()
	})
}

func (s space) awaitTwill() error {
	_, err := s.c.Run(s.Context(), "-n", "kube-system", "rollout", "status", "daemonset/twill-node", "--timeout=120s")
	return err
}

// TestDaemonsThatAreKilledLoseNoPacket: all that Twill runs dies on each node at once.
func TestDaemonsThatAreKilledLoseNoPacket(t *testing.T) {
	underStreams(t, func(s space) error {
		for _, n := range s.c.workers() {
			before, err := s.process(n, "node")
			if err != nil {
				return err
			}
			if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
				return err
			}
			awaits(t, "another on "+n, func(context.Context) error {
				if now, err := s.process(n, "node"); err != nil || now == before {
					return fmt.Errorf("process %d: %w", now, err)
				}
				return nil
			})
		}
		return s.awaitTwill()
	})
}

// TestPolicyStaysWhileTheAPIServerStandsStill: until each agent says that it waits for it, and then serves again.
func TestPolicyStaysWhileTheAPIServerStandsStill(t *testing.T) {
	underStreams(t, func(s space) error {
		server, err := s.process("control", "--etcd-servers="+s.c.etcd())
		if err != nil {
			return err
		}
		if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
			return err
		}
		defer syscall.Kill(server, syscall.SIGCONT) // a second time has no effect
		for _, n := range s.c.workers() {
			awaits(t, "the agent of "+n+" misses it", func(ctx context.Context) error { return s.inSync(ctx, n, false) })
		}
		if err := syscall.Kill(server, syscall.SIGCONT); err != nil {
			return err
		}
		for _, n := range s.c.workers() {
			awaits(t, "the agent of "+n+" has it again", func(ctx context.Context) error { return s.inSync(ctx, n, true) })
		}
		return nil
	})
}

// inSync is an error unless a node's agent says that it is so of its datastore.
func (s space) inSync(ctx context.Context, node string, want bool) error {
	pid, err := s.c.Pid(node)
	if err != nil {
		return err
	}
	out, err := run(exec.CommandContext(ctx, "nsenter", "--all", "--target", strconv.Itoa(pid), s.c.Twill, "status", "-o", "json"), "")
	if is := strings.Contains(out, `"state": "in-sync"`); out == "" || is != want {
		return fmt.Errorf("in sync: %v: %w", is, err)
	}
	return nil
}

// process is the one of a machine whose first argument is this.
func (s space) process(machine, argument string) (int, error) {
	pid, err := s.c.Pid(machine)
	if err != nil {
		return 0, err
	}
	home, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return 0, err
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		text, err := os.ReadFile(p + "/cmdline")
		if args := strings.Split(string(text), "\x00"); err != nil || len(args) < 2 || args[1] != argument {
			continue
		}
		if ns, err := os.Readlink(p + "/ns/net"); err == nil && ns == home {
			return strconv.Atoi(filepath.Base(p))
		}
	}
	return 0, fmt.Errorf("%s has no process with %s", machine, argument)
}
