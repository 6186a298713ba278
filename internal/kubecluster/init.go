package kubecluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// stageVariable says that a machine's process has cgroups of its own.
const stageVariable = "KUBECLUSTER_STAGE"

// Machine is the process that all others of a machine are below, the first of its PID namespace. It returns an exit code only if it
// cannot begin.
func Machine(dir string) int {
	m, err := readMachine(dir)
	if err == nil && os.Getenv(stageVariable) == "" {
		err = m.enterCgroups() // returns only an error
	}
	var running map[int]*started
	if err == nil {
		err = m.mount()
	}
	if err == nil {
		running, err = m.startServices()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	reap(running)
	return 0
}

func readMachine(dir string) (m machine, err error) {
	text, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(text, &m)
}

// enterCgroups goes into a cgroup of the machine's in each hierarchy, makes that the root of what the machine sees, and begins again: a
// thread alone can enter a cgroup namespace, and only the thread that executes a program stays.
func (m machine) enterCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for at := range all {
		if err := joinCgroup(at, m.Name); err != nil {
			return err
		}
	}
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("a cgroup namespace: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(exe, os.Args, append(os.Environ(), stageVariable+"=2"))
}

func joinCgroup(at, name string) error {
	for _, dir := range []string{filepath.Join(at, cgroupRoot), filepath.Join(at, cgroupRoot, name)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		// A cpuset begins empty, and takes no process until it has processors and memory.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if have, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file)); err == nil && len(have) > 1 {
				if err := os.WriteFile(filepath.Join(dir, file), have, 0o644); err != nil {
					return err
				}
			}
		}
	}
	return os.WriteFile(filepath.Join(at, cgroupRoot, name, "cgroup.procs"), []byte("0"), 0o644)
}

// sysctls are those of the whole machine that a kubelet wants, and sets. It finds them set, in a file of its own over each, so that
// nothing of this machine changes.
var sysctls = map[string]string{
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

// mount makes the file systems of a machine. None is seen outside, and all go with its last process.
func (m machine) mount() error {
	if err := syscall.Sethostname([]byte(m.Name)); err != nil {
		return err
	}
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if err := errors.Join(mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), mount("proc", "/proc", "proc", 0, ""), mount("sysfs", "/sys", "sysfs", 0, "")); err != nil {
		return err
	}
	if err := mount("tmpfs", cgroups, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for at, options := range all {
		kind := "cgroup"
		if options == "" {
			kind = "cgroup2"
		}
		if strings.HasPrefix(options, "name=") {
			options = "none," + options
		}
		if err := errors.Join(os.Mkdir(at, 0o755), mount(kind, at, kind, 0, options)); err != nil {
			return err
		}
	}
	if m.Node {
		if err := m.mountNode(); err != nil {
			return err
		}
	}
	return mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
}

// layered are directories of which a node sees this machine's, and changes its own copy. owned are those that are its own.
var (
	layered = []string{"etc", "opt", "var"}
	owned   = map[string]string{"containerd": "/var/lib/containerd", "kubelet": "/var/lib/kubelet", "run": "/run"}
)

func (m machine) mountNode() error {
	for _, d := range layered {
		up, work := filepath.Join(m.Dir, "up", d), filepath.Join(m.Dir, "work", d)
		if err := errors.Join(os.MkdirAll(up, 0o755), os.MkdirAll(work, 0o755)); err != nil {
			return err
		}
		if err := mount("overlay", "/"+d, "overlay", 0, fmt.Sprintf("lowerdir=/%s,upperdir=%s,workdir=%s", d, up, work)); err != nil {
			return err
		}
	}
	for path, value := range sysctls {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		file := filepath.Join(m.Dir, "sysctl"+strings.ReplaceAll(path, "/", "_"))
		if err := errors.Join(os.WriteFile(file, []byte(value+"\n"), 0o644), mount(file, path, "", syscall.MS_BIND, "")); err != nil {
			return err
		}
	}
	for name, at := range owned { // /run, with m.Dir, is seen no more once it is its own
		if err := errors.Join(os.MkdirAll(filepath.Join(m.Dir, name), 0o755), os.MkdirAll(at, 0o755)); err != nil {
			return err
		}
	}
	for _, name := range []string{"containerd", "kubelet", "run"} {
		if err := mount(filepath.Join(m.Dir, name), owned[name], "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}

// started is a service that runs.
type started struct {
	service
	log *os.File
}

func (m machine) startServices() (map[int]*started, error) {
	running := map[int]*started{}
	for _, s := range m.Services {
		log, err := os.OpenFile(m.logFile(s.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		if err := start(running, &started{s, log}); err != nil {
			return nil, err
		}
	}
	return running, nil
}

// logFile is where the log of a service is; on a node its directory is not to be seen any more, but in /run/log.
func (m machine) logFile(name string) string {
	if m.Node {
		_ = os.MkdirAll("/run/log", 0o755) // what fails here fails once more
		return "/run/log/" + name + ".log"
	}
	return filepath.Join(m.Dir, name+".log")
}

func start(running map[int]*started, s *started) error {
	env := append(os.Environ(), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
	p, err := os.StartProcess(s.Args[0], s.Args, &os.ProcAttr{Env: env, Dir: "/", Files: []*os.File{nil, s.log, s.log}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	running[p.Pid] = s
	return nil
}

// restartAfter is how long a service that ended waits until it is started again.
const restartAfter = time.Second

// reap is what the first process of a PID namespace must do: all that lose their parent are its children. It starts services again.
func reap(running map[int]*started) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "wait:", err)
			return
		}
		s := running[pid]
		if s == nil {
			continue
		}
		delete(running, pid)
		fmt.Fprintf(os.Stderr, "%s ended with %d (signal %d); it is started again\n", s.Name, status.ExitStatus(), status.Signal())
		time.Sleep(restartAfter)
		if err := start(running, s); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
