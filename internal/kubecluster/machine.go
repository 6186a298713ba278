package kubecluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/kernel/netns"
)

// machine is the control plane or a node, as the process reads it that all others of the machine are below.
type machine struct {
	Name     string
	Dir      string    // the machine's own
	Node     bool      // it has file systems and cgroups of its own
	Services []service // in the order of their start
}

// service is a program that is started again when it ends.
type service struct {
	Name string // of its log, too
	Args []string
}

const (
	initCommand = "machine" // the argument of Exe that makes it that process
	pidFile     = "pid"
	configFile  = "machine.json"
)

// startMachine starts a machine in its namespace.
func (c *Cluster) startMachine(m machine) error {
	m.Dir = c.in(m.Name)
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.Dir, configFile), text, 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(m.Dir, "machine.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ns, err := netns.Open(nsPrefix + m.Name)
	if err != nil {
		return err
	}
	defer ns.Close()
	cmd := exec.Command(c.Exe, initCommand, m.Dir)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	// It outlives this process, and with its end the kernel ends all others of its PID namespace.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	if err := ns.Start(cmd); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(m.Dir, pidFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600), cmd.Process.Release())
}

// Pid is that of the process which all others of a machine are below; nsenter -a -t PID enters the machine.
func (c *Cluster) Pid(name string) (int, error) {
	c.defaults()
	text, err := os.ReadFile(c.in(name, pidFile))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// runs reports whether a process is that of a machine in dir: a pid may have been given to another.
func runs(dir string, pid int) bool {
	cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	args := strings.Split(string(cmdline), "\x00")
	return err == nil && len(args) > 2 && args[1] == initCommand && args[2] == dir
}

// Down ends the cluster and removes all that it made: processes, network namespaces, cgroups, files. It works on half a cluster, too,
// and is no error on none.
func (c *Cluster) Down() error {
	c.defaults()
	if _, err := os.Stat(c.Dir); os.IsNotExist(err) {
		fmt.Fprintf(c.Out, "No cluster in %s: nothing to remove.\n", c.Dir)
		return nil
	}
	pids, err := filepath.Glob(c.in("*", pidFile))
	if err != nil {
		return err
	}
	errs := make([]error, len(pids))
	for i, file := range pids {
		errs[i] = endMachine(filepath.Dir(file))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := errors.Join(removeNetwork(), removeCgroups(), os.RemoveAll(c.Dir)); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "Cluster down: %d machines ended, their network namespaces, cgroups and %s removed.\n", len(pids), c.Dir)
	return nil
}

// endMachine kills the process that all others of the machine are below, and returns when it is gone: then they are, too.
func endMachine(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, pidFile))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || !runs(dir, pid) {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	for range 300 {
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // if it is a child of this process
		if !runs(dir, pid) {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("process %d of %s does not end", pid, dir)
}

// Cgroups of a cluster: below cgroupRoot in each hierarchy, one for each machine.
const (
	cgroups    = "/sys/fs/cgroup"
	cgroupRoot = "twill-kube"
)

// hierarchies are the mounts of cgroups here, by the options that they have: that of version 2 has none.
func hierarchies() (map[string]string, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 4 || filepath.Dir(f[1]) != cgroups {
			continue
		}
		switch f[2] {
		case "cgroup2":
			found[f[1]] = ""
		case "cgroup":
			options := strings.Split(f[3], ",")
			options = slices.DeleteFunc(options, func(o string) bool {
				return slices.Contains([]string{"rw", "nosuid", "nodev", "noexec", "relatime", "xattr"}, o) || strings.HasPrefix(o, "release_agent=")
			})
			found[f[1]] = strings.Join(options, ",")
		}
	}
	return found, nil
}

// cgroupsUsable says what is missing.
func cgroupsUsable() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, need := range []string{"cpu", "cpuset", "memory", "pids", "devices", "freezer"} {
		if !slices.ContainsFunc(slicesOf(all), func(o string) bool { return slices.Contains(strings.Split(o, ","), need) }) {
			return fmt.Errorf("no hierarchy of version 1 below %s has the controller %s: a cluster of nodes as namespaces was made for those alone", cgroups, need)
		}
	}
	return nil
}

func slicesOf(m map[string]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// removeCgroups removes what is left of cgroups, from the leaves. A cgroup whose last process has just ended may be busy for a moment.
func removeCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for at := range all {
		top := filepath.Join(at, cgroupRoot)
		var err error
		for range 50 {
			if err = removeTree(top); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, syscall.Rmdir(dir))
}
