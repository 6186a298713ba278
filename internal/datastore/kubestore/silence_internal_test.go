package kubestore

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

func TestAServerThatTakesNoConnectionIsDialledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		began := time.Now()
		if _, err := soon(silent)(t.Context(), "tcp", "192.0.2.1:443"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that time is up", err)
		}
		if took := time.Since(began); took != dialWait {
			t.Errorf("given up after %s, want %s", took, dialWait)
		}
	})
}

func TestAConnectionSendsAgainWithinASecond(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := soon((&net.Dialer{}).DialContext)(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var wait int // milliseconds
	if ctl := raw.Control(func(fd uintptr) { wait, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, rtoMax) }); ctl != nil {
		t.Fatal(ctl)
	}
	if errors.Is(err, syscall.ENOPROTOOPT) { // a kernel before 6.15
		machinetest.Supported(t, &kernel.UnsupportedError{Feature: "TCP_RTO_MAX_MS"})
	}
	if err != nil || time.Duration(wait)*time.Millisecond != resendWithin {
		t.Errorf("%d ms, %v; want %s", wait, err, resendWithin)
	}
}
