package bench

import (
	"bytes"
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

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kernel/netns"
)

// Twill is how to run the program that is measured.
type Twill struct {
	Program string   // its file
	Env     []string // in addition to this process's environment
}

// process is a daemon that was started here.
type process struct {
	cmd   *exec.Cmd
	log   bytes.Buffer
	ended chan struct{}
}

// start starts twill in a namespace; nil is this one.
func (t Twill) start(ns *netns.Handle, env []string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(t.Program, args...), ended: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), t.Env...), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begin := p.cmd.Start
	if ns != nil {
		begin = func() error { return ns.Start(p.cmd) }
	}
	if err := begin(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// kill ends the process at once; what it put into the kernel stays.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// died is an error if the process has ended by itself.
func (p *process) died() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended: %v\n%s", strings.Join(p.cmd.Args, " "), p.cmd.ProcessState, &p.log)
	default:
		return nil
	}
}

// tick is the unit of proc_pid_stat(5).
const tick = 10 * time.Millisecond

// cpu is the processor time of the process so far, in ticks of 10 ms.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, fields, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(fields)
	if len(f) < 13 {
		return 0, fmt.Errorf("process %d: %q", p.cmd.Process.Pid, text)
	}
	user, err1 := strconv.Atoi(f[14-3])
	system, err2 := strconv.Atoi(f[15-3])
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// peak is the most memory that was resident, in MB.
func (p *process) peak() (float64, error) {
	kb, err := number(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid), "VmHWM:")
	return kb / 1024, err
}

// number is that of a line of a file of /proc.
func number(file, line string) (float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		if f := strings.Fields(l); len(f) > 1 && f[0] == line {
			return strconv.ParseFloat(f[1], 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, line)
}

// etcd is a datastore with nothing in it, and the process that keeps it.
type etcd struct {
	*process
	address string
	store   datastore.Client
	dir     string
}

// startEtcd starts one with its data below dir.
func (t Twill) startEtcd(ctx context.Context, dir string) (*etcd, error) {
	dir, err := os.MkdirTemp(dir, "twill-bench-")
	if err != nil {
		return nil, err
	}
	e := &etcd{address: "unix://" + filepath.Join(dir, "etcd.sock"), dir: dir}
	if e.process, err = t.start(nil, nil, "etcd", "--data-dir", filepath.Join(dir, "data"), "--listen", e.address, "--quota", strconv.Itoa(8<<30), "--log-level", "error"); err != nil {
		return nil, err
	}
	if e.store, err = stores.Open(ctx, datastore.Config{Endpoints: []string{e.address}, RequestTimeout: time.Minute}); err != nil {
		return nil, errors.Join(err, e.close())
	}
	err = await(ctx, "etcd serves", e.died, func() (bool, error) {
		_, err := e.store.Get(ctx, "/bench")
		if errors.Is(err, datastore.ErrUnavailable) {
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *etcd) close() error {
	if e.store != nil {
		_ = e.store.Close()
	}
	e.kill()
	return os.RemoveAll(e.dir)
}

// patience is how long anything may take to come into force.
const patience = 5 * time.Minute

// await asks every few milliseconds until it is so, unless another thing makes it vain.
func await(ctx context.Context, what string, vain func() error, so func() (bool, error)) error {
	for began := time.Now(); ; {
		yes, err := so()
		if yes || err != nil {
			return err
		}
		if err := errors.Join(vain(), ctx.Err()); err != nil {
			return err
		}
		if time.Since(began) > patience {
			return fmt.Errorf("%s: not so within %v", what, patience)
		}
		time.Sleep(3 * time.Millisecond)
	}
}
