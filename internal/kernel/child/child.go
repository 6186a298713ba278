// Package child starts a program that lives no longer than this process, and speaks to it by two pipes.
//
// In: the path of a program. Out: a running [Process]: what is written to it arrives at its file descriptor 3, and what it writes to 4 is read here.
package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Process is a program that runs. Reading and writing may each be done by one goroutine, and fail once Stop was called.
type Process struct {
	To    *os.File // descriptor 3 of the program reads it
	From  *os.File // descriptor 4 of the program writes it
	cmd   *exec.Cmd
	ended chan struct{} // closed once err is set
	err   error
	close sync.Once
}

// Check returns why a program must not be started, or nil: this process is root, so that nobody else may be able to change the program.
func Check(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s: want the absolute path of a program", path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner, is := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case !mode.IsRegular(), mode&0o111 == 0:
		return fmt.Errorf("%s: %w: it is no program; chmod +x it, if it is to be one", path, fs.ErrPermission)
	case mode&0o022 != 0:
		return fmt.Errorf("%s: %w: others than its owner may write it; chmod go-w it", path, fs.ErrPermission)
	case is && owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("%s: %w: its owner is user %d; chown root it", path, fs.ErrPermission, owner.Uid)
	}
	return nil
}

// Start starts a program that Check lets pass, without arguments, with this process' environment, and with its output going to this process' standard
// error. When this process dies, however it does, the kernel kills the program.
func Start(path string) (*Process, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	toRead, toWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fromRead, fromWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, toRead.Close(), toWrite.Close())
	}
	cmd := exec.Command(path)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.ExtraFiles = []*os.File{toRead, fromWrite} // descriptors 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &Process{To: toWrite, From: fromRead, cmd: cmd, ended: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	err = <-started
	_, _ = toRead.Close(), fromWrite.Close()
	if err != nil {
		p.closePipes()
		return nil, err
	}
	return p, nil
}

// run keeps its thread as long as the program lives: the kernel sends Pdeathsig when the thread ends that forked (prctl(2)).
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	if p.err = p.cmd.Wait(); p.err == nil {
		p.err = errors.New("it exited with 0")
	}
	close(p.ended)
}

// PID is the program's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed once the program has.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err is how it ended. It must not be called before.
func (p *Process) Err() error { return p.err }

func (p *Process) closePipes() {
	p.close.Do(func() { _, _ = p.To.Close(), p.From.Close() })
}

// Stop ends the program, and returns once it has ended: it sees the end of what it reads, and SIGTERM, and after grace SIGKILL.
func (p *Process) Stop(grace time.Duration) {
	p.closePipes()
	select {
	case <-p.ended:
		return
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}
