package wg

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"
)

// ready is what a process says when it serves; anything else is why it does not.
const ready = "ready"

// firstMTU is what the device has until somebody who knows better changes it.
const firstMTU = 1280

// Started returns the pipe in which a process that [Handle.Start] began reports that it serves, or why it does not. In a process that was started
// in another way, the descriptor may be that of Go's own poller: nothing is written then.
func Started() io.WriteCloser {
	const fd = 3 // the first of exec.Cmd.ExtraFiles
	var s unix.Stat_t
	if unix.Fstat(fd, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFIFO {
		return discard{}
	}
	return os.NewFile(fd, "started")
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

// Serve makes a device in the namespace of this process, and serves it at a socket that root alone may use, until the context ends, or the
// device or the socket is deleted: nobody could say then what it is to do. Once it serves, or why it cannot, is written into started, which is then closed.
func Serve(ctx context.Context, name, socket string, started io.WriteCloser) error {
	err := serve(ctx, name, socket, started)
	if err != nil {
		_, _ = io.WriteString(started, err.Error()) // without effect if it is closed
		_ = started.Close()
	}
	return err
}

func serve(ctx context.Context, name, socket string, started io.WriteCloser) error {
	link, err := tun.CreateTUN(name, firstMTU)
	if err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	d := device.NewDevice(link, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	defer d.Close()
	_ = os.Remove(socket) // of a process that was killed; while another serves the device, making it failed
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false) // at the end, it may be the socket of a process that serves the next device of this name
	if err := os.Chmod(socket, 0o600); err != nil {
		return err
	}
	s := &server{device: d}
	go s.accept(l)
	if _, err := io.WriteString(started, ready); err != nil {
		return err
	}
	if err := started.Close(); err != nil {
		return err
	}
	own, err := os.Stat(socket)
	if err != nil {
		return err
	}
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.Wait():
			return nil
		case <-ticks.C:
			if is, err := os.Stat(socket); errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(own, is) {
				return nil
			}
		}
	}
}

// server answers at the socket.
type server struct{ device *device.Device }

func (s *server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		go s.answer(c)
	}
}

// answer answers one request, of at most as many bytes as peers of the largest cluster need.
func (s *server) answer(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	r := bufio.NewReader(io.LimitReader(c, 1<<28))
	verb, err := r.ReadString('\n')
	var out bytes.Buffer
	switch {
	case err != nil:
		return
	case verb == "get=1\n":
		err = s.get(&out)
	case verb == "set=1\n":
		err = s.set(r)
	default:
		err = errors.New("no such request")
	}
	code := int64(0)
	var known *device.IPCError
	if errors.As(err, &known) {
		code = known.ErrorCode()
	} else if err != nil {
		code = ipc.IpcErrorProtocol
	}
	fmt.Fprintf(&out, "errno=%d\n\n", code)
	_, _ = c.Write(out.Bytes())
}

// get writes what the device has, but for its private key.
func (s *server) get(w io.Writer) error {
	var all bytes.Buffer
	if err := s.device.IpcGetOperation(&all); err != nil {
		return err
	}
	for line := range strings.Lines(all.String()) {
		if private, is := strings.CutPrefix(line, "private_key="); is {
			k, err := parseHex(strings.TrimSpace(private))
			if err != nil {
				return err
			}
			public := k.Public()
			line = ownKey + "=" + hex.EncodeToString(public[:]) + "\n"
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}

// set reads a change up to the empty line, whole before anything of it is made.
func (s *server) set(r *bufio.Reader) error {
	var all bytes.Buffer
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if line == "\n" {
			return s.device.IpcSetOperation(&all)
		}
		all.WriteString(line)
	}
}
