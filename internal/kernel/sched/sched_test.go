package sched_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/sched"
)

// asChild runs this binary as a process that becomes real-time: the test itself must not.
const (
	asChild = "TWILL_TEST_SCHED"
	nobody  = "nobody"
)

func TestMain(m *testing.M) {
	if os.Getenv(asChild) == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(asChild) == nobody {
		if err := syscall.Setuid(65534); err != nil {
			panic(err)
		}
	}
	if err := sched.Realtime(); err != nil {
		os.Stdout.WriteString(err.Error())
		os.Exit(1)
	}
	var all sync.WaitGroup
	for range 8 { // threads that are made later
		all.Add(1)
		go func() { runtime.LockOSThread(); all.Done(); select {} }()
	}
	all.Wait()
	stats, _ := filepath.Glob("/proc/self/task/*/stat")
	for _, s := range stats {
		b, _ := os.ReadFile(s)
		_, fields, _ := strings.Cut(string(b), ") ") // proc_pid_stat(5): 40 is rt_priority, 41 policy; after the name comes 3
		f := strings.Fields(fields)
		os.Stdout.WriteString(f[40-3] + "/" + f[41-3] + "\n")
	}
	os.Exit(0)
}

func child(t *testing.T, who string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"="+who)
	out, err := cmd.Output()
	return string(out), err
}

func TestAllThreadsAreRealtime(t *testing.T) {
	machinetest.Root(t)
	out, err := child(t, "root")
	lines := strings.Fields(out)
	if err != nil || len(lines) < 9 {
		t.Fatalf("%d threads, %v:\n%s", len(lines), err, out)
	}
	for _, l := range lines {
		if l != "1/2" { // priority 1, SCHED_RR
			t.Errorf("a thread has priority/policy %s", l)
		}
	}
}

func TestWithoutTheRightItSaysSo(t *testing.T) {
	machinetest.Root(t)
	if out, err := child(t, nobody); err == nil || !strings.Contains(out, "sched_setattr: operation not permitted") {
		t.Errorf("%q, %v", out, err)
	}
}
