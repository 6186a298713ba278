package nlsock_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/nlsock"
)

func TestASocketIsClosedOnce(t *testing.T) {
	machinetest.Root(t)
	s, err := nlsock.Open(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := unix.GetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil || n < 1<<20 {
		t.Errorf("room for %d bytes, %v", n, err)
	}
	for range 2 {
		if err := s.Close(); err != nil || s.FD() != -1 {
			t.Errorf("close: %v, descriptor %d", err, s.FD())
		}
	}
}

func TestErrno(t *testing.T) {
	for _, tt := range []struct {
		name string
		body []byte
		want error
	}{
		{"none", []byte{0, 0, 0, 0}, nil},
		{"not there", binary.NativeEndian.AppendUint32(nil, ^uint32(unix.ENOENT)+1), unix.ENOENT},
		{"cut off", []byte{0xfe}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := nlsock.Errno(tt.body); !errors.Is(got, tt.want) {
				t.Errorf("Errno(% x) = %v, want %v", tt.body, got, tt.want)
			}
		})
	}
}
