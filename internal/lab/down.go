package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/terminal"
)

// Down stops the lab and removes all that it made: processes, network
// namespaces, files. It works on half a lab too, and is no error on none.
// At its end it prints what it did.
func (l *Lab) Down() error {
	if err := l.defaults(); err != nil {
		return err
	}
	if opened, err := Open(l.Dir); err == nil {
		l.Spec = opened.Spec
	}
	_, noDir := os.Stat(l.Dir)
	errs := []error{l.stopAll()}
	names, err := netns.List()
	errs = append(errs, err)
	deleted := 0
	for _, n := range names {
		if strings.HasPrefix(n, l.Spec.Prefix) {
			errs = append(errs, netns.Delete(n))
			deleted++
		}
	}
	if err := errors.Join(append(errs, os.RemoveAll(l.Dir))...); err != nil {
		return err
	}
	if os.IsNotExist(noDir) && deleted == 0 {
		fmt.Fprintf(l.Out, "No lab in %s: nothing to remove.\n", l.Dir)
		return nil
	}
	stopped := ""
	for _, h := range l.Spec.Hosts {
		stopped += h.Name + ", "
	}
	if stopped != "" {
		stopped += "datastore stopped; "
	}
	fmt.Fprintf(l.Out, "Lab down: %s%d network namespaces and %s removed.\n", stopped, deleted, l.Dir)
	return nil
}

// stopAll ends the processes of the hosts, then the store.
func (l *Lab) stopAll() error {
	p := terminal.Begin(l.Progress, "hosts stopped", len(l.Spec.Hosts))
	defer p.End()
	var errs []error
	for _, h := range l.Spec.Hosts {
		p.Now(h.Name)
		errs = append(errs, l.stop(h.Name, h.PID))
		p.Step()
	}
	return errors.Join(append(errs, l.stop(storeName, l.Spec.StorePID))...)
}

// stop ends a host's twill node or the store, if the pid is still that process.
func (l *Lab) stop(who string, pid int) error {
	if pid == 0 || !l.runs(who, pid) {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop twill of %s (pid %d): %w", who, pid, err)
	}
	for deadline := time.Now().Add(grace); l.runs(who, pid); {
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("twill of %s (pid %d) did not stop; killed", who, pid), syscall.Kill(pid, syscall.SIGKILL))
		}
		time.Sleep(pause)
	}
	return nil
}

// runs reports whether a process of ours is alive: a pid may have been given to another. Ours has its data here.
func (l *Lab) runs(who string, pid int) bool {
	cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(string(cmdline), "\x00")
	at := slices.Index(args, "--data-dir")
	return at >= 0 && at+1 < len(args) && strings.HasPrefix(args[at+1]+"/", filepath.Join(l.Dir, who)+"/")
}
