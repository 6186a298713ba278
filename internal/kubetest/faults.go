package kubetest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// Stop freezes the API server (SIGSTOP): connections stay open, and nobody answers. It goes on with Continue, or when the test ends.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	machinetest.Freeze(t, s.api.Pid)
	t.Cleanup(func() { _ = s.api.Signal(syscall.SIGCONT) })
}

// Continue ends a Stop.
func (s *Server) Continue(t testing.TB) {
	t.Helper()
	s.signal(t, s.api, syscall.SIGCONT)
}

// Kill ends the API server at once (SIGKILL): connections break, and new ones are refused. Restart starts it again; if other tests
// have it, too, so does the end of this one.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.api.kill()
	if s == shared.server {
		t.Cleanup(func() { s.Restart(t) })
	}
}

// Restart starts an API server that was killed, on the same port and etcd, and returns when it is ready. One that runs is left alone.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	select {
	case <-s.api.ended:
		if err := s.startAPI(); err != nil {
			t.Fatal(err)
		}
	default:
	}
}

// Backup copies etcd's data, for Restore, and returns the directory of the copy, which goes with the test. Nobody notices: etcd is
// stopped meanwhile, and its files are what they would be if it had been killed, from which it starts again.
func (s *Server) Backup(t testing.TB) string {
	t.Helper()
	to := t.TempDir()
	machinetest.Freeze(t, s.etcd.Pid)
	err := os.CopyFS(to, os.DirFS(s.in("etcd", data)))
	s.signal(t, s.etcd, syscall.SIGCONT)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// Restore puts etcd back to a backup, as Kubernetes' guide says: the API server is ended, and starts again on the restored data. It
// returns when that one is ready. Revisions of the store go back, too: what watchers have seen may be newer than all there is.
func (s *Server) Restore(t testing.TB, backup string) {
	t.Helper()
	s.api.kill()
	s.etcd.kill()
	err := os.RemoveAll(s.in("etcd", data))
	if err == nil {
		err = os.CopyFS(s.in("etcd", data), os.DirFS(backup))
	}
	if err == nil {
		err = s.startEtcd()
	}
	if err == nil {
		err = s.startAPI()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// MemoryKiB is the resident memory of the API server now, in KiB.
func (s *Server) MemoryKiB(t testing.TB) (kib int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.api.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var total, resident int
	if _, err := fmt.Sscan(string(status), &total, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize() >> 10
}

// Processor is what the API server has used of processors, by proc_pid_stat(5): fields 14 and 15, in ticks of 10 ms.
func (s *Server) Processor(t testing.TB) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.api.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the third of all is the first of these
	var user, system int
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

func (s *Server) signal(t testing.TB, p *process, sig syscall.Signal) {
	t.Helper()
	if err := p.Signal(sig); err != nil {
		t.Fatal(err)
	}
}
