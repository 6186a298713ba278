package xtables

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// locked makes the programs of a test use a lock of its own, which the caller holds until it closes the file. That of the machine is one
// for all namespaces, and would stop other tests.
func locked(t *testing.T) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "xtables.lock")
	t.Setenv("XTABLES_LOCKFILE", path)
	lock, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return lock
}

// waitedFor reports whether a process waits in the kernel for a lock, by the arrow in /proc/locks.
func waitedFor(t *testing.T, lock *os.File) bool {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(lock.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, fmt.Sprintf(":%d ", st.Ino)) {
			return true
		}
	}
	return false
}

const oneChain = "*filter\n:cali-FORWARD - [0:0]\nCOMMIT\n"

func TestRestoreWaitsForTheLockOfOthers(t *testing.T) {
	machinetest.Program(t, "iptables-legacy-restore")
	ns := netnstest.New(t)
	lock := locked(t)
	chains := func() (out []Chain, err error) {
		ns.Do(func() { out, err = LegacyChains() })
		return out, err
	}
	ended := make(chan error, 1)
	go ns.Do(func() { ended <- Restore(t.Context(), Legacy, IPv4, oneChain) })
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !waitedFor(t, lock) {
		select {
		case err := <-ended:
			t.Fatalf("it did not wait: %v", err)
		case <-look.C:
		}
	}
	if got, err := chains(); err != nil || len(got) > 0 {
		t.Errorf("while another program has the lock, there is %v, %v", got, err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got, err := chains(); err != nil || len(got) != 1 {
		t.Errorf("afterwards there is %v, %v", got, err)
	}
}

func TestALockThatIsNotLetGoIsAnError(t *testing.T) {
	machinetest.Program(t, "iptables-legacy-restore")
	ns := netnstest.New(t)
	locked(t)
	ns.Do(func() {
		err := restore(t.Context(), Legacy, IPv4, oneChain, 1)
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "fuser /run/xtables.lock") || !strings.Contains(err.Error(), "after 1s") {
			t.Errorf("the error is %v", err)
		}
		if got, err := LegacyChains(); err != nil || len(got) > 0 {
			t.Errorf("there is %v, %v", got, err)
		}
	})
}

func TestBackendNFTNeedsNoLock(t *testing.T) {
	machinetest.Program(t, "iptables-nft-restore")
	ns := netnstest.New(t)
	locked(t)
	ns.Do(func() {
		if err := restore(t.Context(), NFT, IPv4, oneChain, 1); err != nil {
			t.Error(err)
		}
	})
}
