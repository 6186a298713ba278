// Package machinetest checks that the machine has what a test needs.
//
// In: a test, and what it cannot do without. Out: the test goes on, or skips and says what is lacking; with
// REQUIRE_ROOT=1 the lack is a failure. No test skips for anything else of the machine, and none in another way.
package machinetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twillnet/twill/internal/kernel"
)

// Root is for tests that make namespaces or program a kernel.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "root")
	}
	neighbours()
}

// neighbours has the machine keep more neighbours (arp(7): gc_thresh2 and gc_thresh3), until it is started again. One table of each family is that of all network
// namespaces. Packages whose tests run at the same time fill the 1,024 entries of the default: then sending over IPv6 fails with EINVAL (ip6_finish_output2),
// packets of IPv4 are lost, and entries that a test waits for are thrown out. Where the settings cannot be written, as in a namespace, they stay.
var neighbours = sync.OnceFunc(func() {
	for setting, want := range map[string]int{"gc_thresh2": 1 << 14, "gc_thresh3": 1 << 15} {
		for _, family := range []string{"ipv4", "ipv6"} {
			path := "/proc/sys/net/" + family + "/neigh/default/" + setting
			text, err := os.ReadFile(path)
			if is, bad := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && bad == nil && is < want {
				_ = os.WriteFile(path, []byte(strconv.Itoa(want)), 0o644)
			}
		}
	}
})

// Program is for tests that call a program of others; it returns its path.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, name)
	}
	return path
}

// Installed is for tests of what a machine has of another's program, and of nothing where it has none: such a test
// skips even with REQUIRE_ROOT=1.
func Installed(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

// Supported skips if err says that this kernel lacks a feature, which no setting of the machine could give it. With REQUIRE_KERNEL=1, as in
// the virtual machine of make vm, the lack is a failure.
func Supported(t testing.TB, err error) {
	t.Helper()
	var lack *kernel.UnsupportedError
	if errors.As(err, &lack) {
		if os.Getenv("REQUIRE_KERNEL") == "1" {
			t.Fatal(lack)
		}
		t.Skip(lack)
	}
}

// Expensive is for tests that take long, or much; -short leaves them out.
func Expensive(t testing.TB, cost string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short leaves out what %s", cost)
	}
}

// Cluster is for tests on a Kubernetes cluster of this machine, which take minutes of all its processors: they run where REQUIRE_CLUSTER=1
// asks for them, as make kube-test does, and are skipped else.
func Cluster(t testing.TB) {
	t.Helper()
	if os.Getenv("REQUIRE_CLUSTER") != "1" {
		t.Skip("needs a cluster: make kube-test")
	}
	Root(t)
}

// Docker is for tests with Debian's dockerd, which take minutes: they run where REQUIRE_DOCKER=1 asks for them, as make docker does.
func Docker(t testing.TB) {
	t.Helper()
	if os.Getenv("REQUIRE_DOCKER") != "1" {
		t.Skip("runs dockerd: make docker")
	}
	Root(t)
	Program(t, "dockerd")
	Program(t, "docker-compose")
}

func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_ROOT") == "1" {
		t.Fatalf("needs %s, and REQUIRE_ROOT=1 forbids to skip", what)
	}
	t.Skipf("needs %s", what)
}

// Address is one of the loopback on which nothing listens, the test's own until it ends: its port is below those that the kernel gives to
// connections (ip_local_port_range), and no other test of this machine gets it, since an abstract socket (unix(7)) of that name is held.
func Address(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(10_000)
		held, err := net.Listen("unix", fmt.Sprintf("@twill-test-port-%d", port))
		if err != nil {
			continue
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if l, err := net.Listen("tcp", addr); err == nil {
			t.Cleanup(func() { held.Close() })
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return addr
		}
		held.Close()
	}
	t.Fatal("no port between 10000 and 20000 is free")
	return ""
}

// Kubernetes is for tests that run Kubernetes' own programs; err says why they cannot, nil that they can. They run with REQUIRE_KUBE=1
// alone, which make kube-api sets: make test would do the same work again.
func Kubernetes(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("REQUIRE_KUBE") != "1" {
		t.Skip("runs on a real API server: make kube-api")
	}
	if err != nil {
		t.Fatal(err)
	}
}
