package lab

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/sched"
	"github.com/twillnet/twill/internal/kubetest"
)

// asWitness runs this binary as the witness of a processor.
const asWitness = "TWILL_TEST_STALL_WITNESS"

func TestMain(m *testing.M) {
	if os.Getenv(asWitness) == "" {
		os.Exit(kubetest.Main(func() int { defer func() { os.RemoveAll(built) }(); return m.Run() }, kubetest.Config{}))
	}
	if err := witness(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// witness wakes every ten milliseconds with the priority of `twill bfd`, and answers each line with the longest time, as a duration, for
// which it did not run since it answered the line before.
func witness(in io.Reader, out io.Writer) error {
	if err := sched.Realtime(); err != nil {
		return err
	}
	questions := make(chan bool)
	go func() {
		defer close(questions)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			questions <- true
		}
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	last, longest := time.Now(), time.Duration(0)
	for {
		asked, more := false, true
		select {
		case <-tick.C:
		case asked, more = <-questions:
		}
		if !more {
			return nil
		}
		now := time.Now()
		longest, last = max(longest, now.Sub(last)), now
		if asked {
			if _, err := fmt.Fprintln(out, longest); err != nil {
				return err
			}
			longest = 0
		}
	}
}

// stalls starts a witness on each processor, and returns what asks them: for how long at most, since it was asked before, a processor ran no
// real-time thread. The kernel does that, whatever the priority: if it is not preemptible (PREEMPT_NONE), a thread waits for the system call
// that its processor is in, and a transaction of nftables of another test takes half a second; or the machine is virtual, and
// itself waits for a processor.
func stalls(t *testing.T) (longest func() time.Duration) {
	t.Helper()
	taskset := machinetest.Program(t, "taskset")
	type child struct {
		in  io.Writer
		out *bufio.Scanner
	}
	var all []child
	for cpu := range runtime.NumCPU() {
		cmd := exec.Command(taskset, "--cpu-list", strconv.Itoa(cpu), os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), asWitness+"=1"), os.Stderr
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
		all = append(all, child{in, bufio.NewScanner(out)})
	}
	return func() time.Duration {
		t.Helper()
		var most time.Duration
		for _, c := range all {
			_, err := fmt.Fprintln(c.in, "?")
			must(t, err)
			if !c.out.Scan() {
				t.Fatalf("a witness ended: %v", c.out.Err())
			}
			d, err := time.ParseDuration(c.out.Text())
			must(t, err)
			most = max(most, d)
		}
		return most
	}
}
