package serve

import (
	"net"
	"os"
	"syscall"
)

// rootOnly is a unix listener that hangs up on whoever is neither root nor the
// user of this process: the mode of the socket is one guard, this is the other.
type rootOnly struct{ net.Listener }

// Accept waits for the next connection of root.
func (l rootOnly) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, err := peerOf(c); err == nil && (uid == 0 || int(uid) == os.Geteuid()) {
			return c, nil
		}
		c.Close()
	}
}

func peerOf(c net.Conn) (uint32, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return cred.Uid, nil
}
