package kubecluster

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// places are where a cluster could leave something; of others' namespaces and mounts, those of pods and of its own machines.
var places = []string{
	"/run/*", "/run/netns/cni-*", "/run/netns/" + nsPrefix + "*", "/etc/cni/*", "/etc/cni/*/*", "/etc/kubernetes/*", "/opt/*", "/opt/cni/*", "/opt/cni/bin/*", "/usr/libexec/kubernetes/*",
	"/var/lib/*", "/var/lib/cni/*", "/var/lib/twill/*", "/var/log/*", "/sys/class/net/" + userLink, cgroups + "/*/*kube*", cgroups + "/*/k8s.io*",
}

// global are settings of the whole machine that kubelets and proxies of others change.
var global = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max"}

// traces are what is in these places, and mounted there, and the settings' values.
func traces(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, pattern := range places {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			out[n] = true
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] != "nsfs" { // namespaces are in the list above
			out["mount "+f[1]] = true
		}
	}
	for _, name := range global {
		if text, err := os.ReadFile("/proc/sys/" + name); err == nil {
			out[name+" is "+string(text)] = true
		}
	}
	delete(out, "/run/twill-lab") // of make up, which others may run meanwhile
	return out
}

// TestNothingIsLeft takes the cluster down that tests began. It is the last test of the last file.
func TestNothingIsLeft(t *testing.T) {
	c := theCluster(t)
	if during := traces(t); !during[DefaultDir] || !during["/run/netns/"+controlNS] || !during["/sys/class/net/"+userLink] || shared.before[DefaultDir] {
		t.Fatalf("a cluster is not seen where it is: %v", during)
	}
	pids := map[string]int{}
	for _, name := range append(c.workers(), "control") {
		pid, err := c.Pid(name)
		if err != nil {
			t.Fatal(err)
		}
		pids[name] = pid
	}
	inside := processesOf(t, pids)
	if len(inside) < 4*len(pids) {
		t.Fatalf("only %d processes are seen in %d machines", len(inside), len(pids))
	}
	c.Out = io.Discard
	if err := c.Down(); err != nil {
		t.Fatal(err)
	}
	shared.began = false
	for ns := range inside {
		if _, err := os.Stat(ns); err == nil {
			if text, _ := os.ReadFile(ns + "/cmdline"); strings.Contains(string(text), "twill") || strings.Contains(string(text), "containerd") {
				t.Errorf("%s runs still: %q", ns, text)
			}
		}
	}
	for what := range traces(t) {
		if !shared.before[what] {
			t.Errorf("left: %s", what)
		}
	}
}

// processesOf are the directories below /proc of all that is in the PID namespaces of machines.
func processesOf(t *testing.T, machines map[string]int) map[string]bool {
	t.Helper()
	namespaces := map[string]bool{}
	for name, pid := range machines {
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		namespaces[ns] = true
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, p := range all {
		for ns := range namespaces {
			// A pod's processes have a namespace below their machine's; its shim has the machine's.
			if at, err := os.Readlink(p + "/ns/pid"); err == nil && at == ns {
				out[p] = true
			}
		}
	}
	return out
}
