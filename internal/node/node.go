// Package node supervises the daemons that one host needs.
//
// In: a list of children (subcommands of this same binary). Out: they run
// until the context ends; a child that exits is restarted with back-off, signals
// are passed on, and the end comes in reverse order of the start.
// Children end with their supervisor; the kernel keeps policy
// and routes in any case.
package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Child is one daemon.
type Child struct {
	Name string
	Args []string       // argv after the binary
	Env  []string       // added to the supervisor's own
	Quit syscall.Signal // the signal to end it; zero means SIGTERM
}

// Config says what to supervise, and how.
type Config struct {
	Exe      string        // the binary; empty means this one
	Children []Child       // started in this order
	Backoff  time.Duration // before the first restart, doubled after each; zero means 100ms
	MaxWait  time.Duration // the longest wait before a restart; zero means 15s
	Grace    time.Duration // from SIGTERM to SIGKILL; zero means 10s
	Signals  <-chan os.Signal
	Stdout   io.Writer
	Stderr   io.Writer
	Files    *LogFiles // of what children write; nil: none
	Log      *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Exe == "" {
		exe, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("find own binary: %w", err)
		}
		c.Exe = exe
	}
	if c.Backoff == 0 {
		c.Backoff = 100 * time.Millisecond
	}
	if c.MaxWait == 0 {
		c.MaxWait = 15 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	c.Children = slices.Clone(c.Children)
	for i := range c.Children {
		if c.Children[i].Quit == 0 {
			c.Children[i].Quit = syscall.SIGTERM
		}
	}
	return c, nil
}

// Run supervises until ctx ends, then stops the children, last first.
func Run(ctx context.Context, c Config) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	children := make([]*supervised, len(c.Children))
	for i, child := range c.Children {
		children[i] = &supervised{cfg: c, child: child, stop: make(chan struct{}), done: make(chan struct{})}
		go children[i].run()
	}
	for open := true; open; {
		select {
		case <-ctx.Done():
			open = false
		case sig := <-c.Signals:
			for _, k := range children {
				k.signal(sig)
			}
		}
	}
	for i := len(children) - 1; i >= 0; i-- {
		close(children[i].stop)
		<-children[i].done
	}
	return nil
}

// supervised runs one child again and again.
type supervised struct {
	cfg   Config
	child Child
	stop  chan struct{}
	done  chan struct{}

	mu   sync.Mutex // guards proc, which signals from Run and restarts from run share
	proc *os.Process
}

func (k *supervised) signal(sig os.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.proc != nil {
		_ = k.proc.Signal(sig) // gone already: the restart will show
	}
}

func (k *supervised) run() {
	defer close(k.done)
	log := k.cfg.Log.With("child", k.child.Name)
	wait := k.cfg.Backoff
	for {
		began := time.Now()
		err, stopped := k.once(log)
		if stopped {
			return
		}
		if time.Since(began) > k.cfg.MaxWait {
			wait = k.cfg.Backoff // it ran well for a while: this is a new fault
		}
		log.Error("child ended", "err", err, "ran", time.Since(began).Round(time.Millisecond), "retry_in", wait)
		select {
		case <-k.stop:
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, k.cfg.MaxWait)
	}
}

// once runs the child until it ends or is stopped.
func (k *supervised) once(log *slog.Logger) (err error, stopped bool) {
	cmd := exec.Command(k.cfg.Exe, k.child.Args...)
	cmd.Env = append(os.Environ(), k.child.Env...)
	cmd.Stdout, cmd.Stderr = k.cfg.Stdout, k.cfg.Stderr
	if f := k.cfg.Files; f != nil {
		cmd.Stdout, cmd.Stderr = f.Tee(k.child.Name, cmd.Stdout), f.Tee(k.child.Name, cmd.Stderr)
		cmd.WaitDelay = k.cfg.Grace // whoever has the child's end of the pipe must not keep it from being started again
	}
	// The kernel sends Pdeathsig when the thread that forked ends, so that
	// thread is kept until the child has ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: k.child.Quit, Setpgid: true}
	ended := make(chan error, 1)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err, false
	}
	log.Info("child started", "pid", cmd.Process.Pid)
	k.setProc(cmd.Process)
	defer k.setProc(nil)
	select {
	case err := <-ended:
		if err == nil {
			err = fmt.Errorf("exited with 0")
		}
		return err, false
	case <-k.stop:
	}
	_ = cmd.Process.Signal(k.child.Quit)
	select {
	case <-ended:
	case <-time.After(k.cfg.Grace):
		log.Error("child did not stop in time; killed", "grace", k.cfg.Grace)
		_ = cmd.Process.Kill()
		<-ended
	}
	return nil, true
}

func (k *supervised) setProc(p *os.Process) {
	k.mu.Lock()
	k.proc = p
	k.mu.Unlock()
}
