package netns_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func links(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDoIsInsideAndTheCallerStaysOutside(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("inside0", "inside1")
	before := links(t)
	ns.Do(func() {
		if !strings.Contains(links(t), "inside0") {
			t.Error("Do does not run inside")
		}
	})
	if got := links(t); got != before && strings.Contains(got, "inside0") {
		t.Error("the caller is inside after Do")
	}
}

func TestDoPassesErrorsAndPanicsThrough(t *testing.T) {
	ns := netnstest.New(t).Handle()
	want := errors.New("inner")
	if err := ns.Do(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("Do = %v, want %v", err, want)
	}
	defer func() {
		if got := recover(); got != "crash" {
			t.Errorf("recovered %v, want crash", got)
		}
	}()
	_ = ns.Do(func() error { panic("crash") })
}

// An agent reads ten settings for each endpoint, in the namespace in which it is.
func TestDoStaysOnAThreadThatIsInsideAlready(t *testing.T) {
	ns := netnstest.New(t).Handle()
	other := netnstest.New(t).Handle()
	err := ns.Do(func() error {
		outer := unix.Gettid()
		return errors.Join(
			ns.Do(func() error {
				if unix.Gettid() != outer {
					t.Error("Do has left the thread that was in the namespace")
				}
				return nil
			}),
			other.Do(func() error {
				here, err := netns.Current()
				if err != nil {
					return err
				}
				defer here.Close()
				if unix.Gettid() == outer || !here.Same(other) {
					t.Error("Do for another namespace is not on a thread of its own in that")
				}
				return nil
			}),
		)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNamedNamespaceIsSeenByIPAndDeleted(t *testing.T) {
	host := netnstest.New(t)
	name := fmt.Sprintf("twill-netns-test-%d", os.Getpid()) // the same test may run twice on a machine
	_ = netns.Delete(name)                                  // of an earlier run that was killed
	h, err := netns.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := netns.Create(name); !errors.Is(err, os.ErrExist) {
		t.Errorf("second Create = %v, want %v", err, os.ErrExist)
	}
	again, err := netns.Open(name)
	if err != nil || !again.Same(h) || again.Same(host.Handle()) {
		t.Errorf("Open = %v, or it is another namespace", err)
	}
	_ = again.Close()
	if out := host.Run("ip", "netns", "list"); !strings.Contains(out, name) {
		t.Errorf("ip netns list does not show it: %s", out)
	}
	if names, err := netns.List(); err != nil || !slices.Contains(names, name) {
		t.Errorf("List = %v, %v", names, err)
	}
	if err := netns.Delete(name); err != nil {
		t.Error(err)
	}
	if _, err := netns.Open(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open after Delete = %v", err)
	}
}

func TestNamesThatArePathsAreRefused(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../x"} {
		if _, err := netns.Create(name); err == nil {
			t.Errorf("Create(%q) is accepted", name)
		}
	}
	if _, err := netns.OpenPath("/etc/passwd"); err == nil {
		t.Error("a plain file is taken for a namespace")
	}
}

func TestChildrenStartInside(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("inside0", "inside1")
	out, err := ns.Handle().Output(t.Context(), "ip", "-o", "link")
	if err != nil || !strings.Contains(out, "inside0") {
		t.Errorf("ip link = %s, %v", out, err)
	}
	cmd, err := ns.Handle().Exec(t.Context(), "true")
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
