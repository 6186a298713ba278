package rtnl

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of the ioctl SIOCETHTOOL (linux/ethtool.h): whether the device, and not the kernel before it, fills in checksums of what it sends.
const (
	getTxChecksum = 0x16
	setTxChecksum = 0x17
)

// ethtoolValue is struct ethtool_value.
type ethtoolValue struct{ cmd, data uint32 }

// ethtoolRequest is struct ifreq with a pointer, as large as with what else may be in it.
type ethtoolRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// TxChecksum reports whether a link leaves the checksums of what it sends to its device.
func (h *Handle) TxChecksum(name string) (bool, error) {
	v := ethtoolValue{cmd: getTxChecksum}
	err := h.ethtool(name, &v)
	return v.data != 0, wrap(err, "checksums of %s", name)
}

// SetTxChecksum says whether it does. What depends on that, such as large segments, follows.
func (h *Handle) SetTxChecksum(name string, on bool) error {
	v := ethtoolValue{cmd: setTxChecksum}
	if on {
		v.data = 1
	}
	return wrap(h.ethtool(name, &v), "checksums of %s: %t", name, on)
}

func (h *Handle) ethtool(name string, v *ethtoolValue) error {
	r := ethtoolRequest{data: unsafe.Pointer(v)}
	if copy(r.name[:unix.IFNAMSIZ-1], name) < len(name) {
		return unix.ENAMETOOLONG
	}
	return h.ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
		runtime.KeepAlive(v)
		if errno != 0 {
			return errno
		}
		return nil
	})
}
