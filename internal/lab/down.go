package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/kernel/netns"
)

// Down stops the lab and removes all that it made: processes, network
// namespaces, files. It works on half a lab too, and is no error on none.
func (l *Lab) Down() error {
	if err := l.defaults(); err != nil {
		return err
	}
	if opened, err := Open(l.Dir); err == nil {
		l.Spec = opened.Spec
	}
	var errs []error
	for _, h := range l.Spec.Hosts {
		errs = append(errs, l.stop(h))
	}
	names, err := netns.List()
	errs = append(errs, err)
	for _, n := range names {
		if strings.HasPrefix(n, l.Spec.Prefix) {
			errs = append(errs, netns.Delete(n))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(l.Dir))...)
}

// stop ends a host's twill node, if the pid is still that process.
func (l *Lab) stop(h Host) error {
	if h.PID == 0 || !l.runs(h) {
		return nil
	}
	if err := syscall.Kill(h.PID, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop twill node of %s (pid %d): %w", h.Name, h.PID, err)
	}
	for deadline := time.Now().Add(15 * time.Second); l.runs(h); {
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("twill node of %s (pid %d) did not stop; killed", h.Name, h.PID), syscall.Kill(h.PID, syscall.SIGKILL))
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// runs reports whether a host's twill node is alive: a pid may have been given to another process.
func (l *Lab) runs(h Host) bool {
	proc := filepath.Join("/proc", strconv.Itoa(h.PID))
	cmdline, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(string(cmdline), "\x00")
	return len(args) > 3 && args[1] == "node" && args[3] == h.Name
}
