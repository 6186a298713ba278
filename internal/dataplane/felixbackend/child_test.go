package felixbackend

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestMain makes this binary a driver, too: one that knows the protocol by numbers alone, through protobuf's generic decoder, and none of our code for it.
func TestMain(m *testing.M) {
	if does := os.Getenv("FELIX_DRIVER_DOES"); does != "" {
		driver(does)
	}
	os.Exit(m.Run())
}

// publicKey is what the driver says of its end of WireGuard.
const publicKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// program is a driver that does something; it adds what it was sent to the log.
func program(t *testing.T, does string) (path, log string) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path, log = filepath.Join(dir, "driver"), filepath.Join(dir, "log")
	script := fmt.Sprintf("#!/bin/sh\nexport FELIX_DRIVER_DOES='%s' FELIX_DRIVER_LOG=%s\necho $$ >%s/pid\nexec %s\n", does, log, dir, self)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path, log
}

// driver is the program.
func driver(does string) {
	in, out := os.NewFile(3, "from the agent"), os.NewFile(4, "to the agent")
	log, err := os.OpenFile(os.Getenv("FELIX_DRIVER_LOG"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		os.Exit(9)
	}
	write := func(b []byte) { _, _ = out.Write(frame(b)) }
	switch does {
	case "exits":
		os.Exit(3)
	case "deaf":
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		<-end
	case "garbage":
		write([]byte("\xff\xff\xff\xff garbage"))
	case "huge":
		_, _ = out.Write(binary.LittleEndian.AppendUint64(nil, 1<<40))
	case "closes":
		_ = out.Close()
	case "flood":
		go func() {
			for {
				write(protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), nil))
			}
		}()
	case "ok":
		key := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), publicKey)
		write(protowire.AppendBytes(protowire.AppendTag(nil, 9, protowire.BytesType), protowire.AppendVarint(protowire.AppendTag(key, 2, protowire.VarintType), 6)))
	case "nonsense":
		write(nil)
		write(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("x")))
		write(status(6, []byte("\x12\x01k\x1a\x05ns/no\x22\x04eth0"), "up"))
		write(status(4, []byte("\x12\x02no"), "up"))
		write(protowire.AppendBytes(protowire.AppendTag(nil, 9, protowire.BytesType), []byte("\x0a\x03key")))
	}
	for r := bufio.NewReader(in); ; {
		b, err := next(r)
		if err != nil {
			os.Exit(0)
		}
		_, _ = log.Write(frame(b))
		word, is := map[string]string{"ok": "up", "nonsense": "up", "flood": "up", "down": "down", "error": "error", "odd": "fine?"}[does]
		if id, endpoint := at(b, 11, 1); endpoint && is {
			write(status(6, id, word))
		}
		if id, endpoint := at(b, 9, 1); endpoint && is {
			write(status(4, id, word))
		}
		if _, synced := at(b, 1); synced && does == "in sync" {
			write(protowire.AppendBytes(protowire.AppendTag(nil, 10, protowire.BytesType), nil))
		}
	}
}

// status is a message that an endpoint has a state.
func status(field protowire.Number, id []byte, word string) []byte {
	m := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	m = protowire.AppendBytes(protowire.AppendTag(m, 2, protowire.BytesType), protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), word))
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), m)
}

func frame(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...)
}

func next(r io.Reader) ([]byte, error) {
	var size [8]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.LittleEndian.Uint64(size[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

// all are the values of a field, as bytes, or as decimal digits of a number.
func all(b []byte, field protowire.Number) (out [][]byte) {
	for len(b) > 0 {
		n, kind, head := protowire.ConsumeTag(b)
		size := protowire.ConsumeFieldValue(n, kind, b[max(head, 0):])
		if head < 0 || size < 0 {
			return nil
		}
		value := b[head : head+size]
		b = b[head+size:]
		if n != field {
			continue
		}
		if kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(value)
			out = append(out, fmt.Append(nil, v))
			continue
		}
		v, _ := protowire.ConsumeBytes(value)
		out = append(out, v)
	}
	return out
}

// at is the first value at a path of fields.
func at(b []byte, path ...protowire.Number) ([]byte, bool) {
	for _, field := range path {
		found := all(b, field)
		if len(found) == 0 {
			return nil, false
		}
		b = found[0]
	}
	return b, true
}

// value is that value as a text.
func value(b []byte, path ...protowire.Number) string {
	v, _ := at(b, path...)
	return string(v)
}

// received are the messages in a driver's log.
func received(t *testing.T, log string) (out [][]byte) {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil {
		return nil
	}
	for r := strings.NewReader(string(b)); ; {
		m, err := next(r)
		if err != nil {
			return out
		}
		out = append(out, m)
	}
}

// receivedAll waits until that is all of some first states, each of which ends with InSync.
func receivedAll(t *testing.T, log string, states int) (out [][]byte) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); runtime.Gosched() {
		out = received(t, log)
		n := 0
		for _, m := range out {
			if _, is := at(m, 1); is {
				n++
			}
		}
		if n == states {
			return out
		}
	}
	t.Fatalf("it was sent %d messages, and not InSync", len(out))
	return nil
}
