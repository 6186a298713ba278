package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/datastore/member"
)

// process is a program that ends with this one, however that ends.
type process struct {
	*os.Process
	log   string // its output, of all its starts
	ended chan struct{}
}

// startProcess starts a program with more variables of the environment; its output is appended to log.
func startProcess(log string, env []string, program string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{log: log, ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Pdeathsig is sent when the thread that forked ends
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.Process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // that it ended is what counts
			close(p.ended)
		}
	}()
	return p, <-started
}

// kill ends the process at once, also one that is stopped, and returns when it is gone.
func (p *process) kill() {
	if p == nil || p.Process == nil {
		return
	}
	_ = p.Kill() // gone already: so it shall be
	<-p.ended
}

// lastLines are the end of the process's output, for an error.
func (p *process) lastLines() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}

// etcdVariable makes a test binary be the etcd of a server, with data in the directory that it names.
const etcdVariable = "KUBETEST_ETCD"

// startEtcd starts the server's etcd: a process of its own, so that its memory is not counted with the tests', and it can be stopped.
// It returns when that one serves: the API server gives up after 20 s.
func (s *Server) startEtcd() error {
	self, err := os.Executable()
	if err == nil {
		err = os.RemoveAll(s.in("etcd", ready))
	}
	if err == nil {
		s.etcd, err = startProcess(s.in("etcd.log"), []string{etcdVariable + "=" + s.in("etcd")}, self)
	}
	if err != nil {
		return err
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat(s.in("etcd", ready)); err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-s.etcd.ended:
			return fmt.Errorf("etcd ended: %s", s.etcd.lastLines())
		}
	}
}

// What is in the directory of an etcd.
const (
	data  = "member-data" // all that the member keeps
	sock  = "sock"        // its socket
	ready = "ready"       // a file that is there when it serves
)

// runEtcd is that process.
func runEtcd(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The API server itself says what of its history is compacted.
	m, err := member.Start(ctx, member.Config{Dir: dir, ListenClient: []string{"unix://" + filepath.Join(dir, sock)}, Retention: -1, StartTimeout: startTimeout})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer m.Close()
	if err := os.WriteFile(filepath.Join(dir, ready), nil, 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {
	case <-ctx.Done():
	case <-m.Done():
	}
	return 0
}
