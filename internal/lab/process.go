package lab

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
	"time"

	"github.com/twillnet/twill/internal/kernel/netns"
)

// grace is how long a process may take to end when it is asked to.
const grace = time.Minute

// process is a daemon of a scenario.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// launch starts this binary in a namespace; what it writes is added to a file.
func launch(ns, exe, log string, env, args []string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	h, err := netns.Open(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	cmd := exec.Command(exe, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of ours is not theirs: Close stops them
	if err := h.Start(cmd); err != nil {
		return nil, err
	}
	p := &process{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop asks the process to end, and kills it if it does not.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(grace):
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	return fmt.Errorf("process %d did not end in %s; killed", p.cmd.Process.Pid, grace)
}

// agentPID finds the agent among the children of a host's twill node; 0 if there is none.
func (l *Lab) agentPID(h Host) int { return agentOf(h.PID) }

// Daemon is the process id of a daemon of a host, such as agent or bgp; 0 if none runs.
func (l *Lab) Daemon(host, what string) int {
	h, ok := l.Spec.host(host)
	if !ok {
		return 0
	}
	return childOf(h.PID, what)
}

func agentOf(node int) int { return childOf(node, "agent") }

// childOf finds the process that a twill node runs as a subcommand, or that became BIRD; 0 if there is none.
func childOf(node int, command string) int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", node))
	for _, task := range tasks { // any thread of it may have started the child
		children, _ := os.ReadFile(task)
		for f := range strings.FieldsSeq(string(children)) {
			cmdline, err := os.ReadFile(filepath.Join("/proc", f, "cmdline"))
			if err == nil && strings.Contains("\x00"+string(cmdline), "\x00"+command+"\x00") {
				pid, _ := strconv.Atoi(f)
				return pid
			}
		}
	}
	return 0
}

// How long to wait between two looks at a condition: at least pause, and three times what the last look took, so that looking does not take the
// processors from what is awaited; but no longer than longest.
const (
	pause   = 20 * time.Millisecond
	longest = 500 * time.Millisecond
)

// until looks again and again until a condition holds, with the error of the
// last look when patience or the context ends.
func until(ctx context.Context, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, scenarioPatience)
	defer cancel()
	var last error
	for {
		begin := time.Now()
		err := look(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // else it tells only that the look was cut short
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (waited %s)", last, scenarioPatience)
		case <-time.After(min(max(pause, 3*time.Since(begin)), longest)):
		}
	}
}
