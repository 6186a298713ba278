package felixbackend

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"

	pb "github.com/twillnet/twill/api/felixpb"
)

func TestFrames(t *testing.T) {
	up := status(6, []byte("\x12\x01k\x1a\x05ns/no\x22\x04eth0"), "up")
	for _, tt := range []struct {
		name string
		in   []byte
		err  string
	}{
		{"a message", frame(up), ""},
		{"nothing in it", frame(nil), ""},
		{"nothing", nil, "EOF"},
		{"half a length", frame(up)[:5], "unexpected EOF"},
		{"half a message", frame(up)[:12], "ends too early"},
		{"a length that nobody has memory for", binary.LittleEndian.AppendUint64(nil, 1<<63), "and more than"},
		{"one byte too long", binary.LittleEndian.AppendUint64(nil, largestFrame+1), "and more than"},
		{"no message", frame([]byte{0xff}), "that are no message"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := readFrame(iotest.OneByteReader(bytes.NewReader(tt.in)))
			if got := errText(err); !strings.Contains(got, tt.err) || (got == "") != (tt.err == "") {
				t.Errorf("%v, want %q", err, tt.err)
			}
			if (m == nil) != (tt.err != "") {
				t.Errorf("message %v", m)
			}
		})
	}
}

// TestAFrameIsLittleEndian: the bytes of a message of two, with a number, as upstream's protocol says they are.
func TestAFrameIsLittleEndian(t *testing.T) {
	b, err := appendFrame(nil, &pb.ToDataplane{SequenceNumber: 5, Payload: &pb.ToDataplane_InSync{InSync: &pb.InSync{}}})
	m, ok := b[header:], err == nil && string(b[:header]) == "\x04\x00\x00\x00\x00\x00\x00\x00"
	if _, synced := at(m, 1); !ok || len(m) != 4 || !synced || value(m, 15) != "5" {
		t.Errorf("%x, %v", b, err)
	}
}

// FuzzReadFrame: whatever comes, there is a message or an error, and never more than the bound is kept.
func FuzzReadFrame(f *testing.F) {
	f.Add(frame(status(6, []byte("\x12\x01k"), "up")))
	f.Add(frame(nil))
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<63))
	f.Add(append(frame([]byte{0x1a, 0x02, 0x0a, 0x00}), 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for range 100 {
			m, err := readFrame(r)
			if err != nil {
				if m != nil {
					t.Error("a message and an error")
				}
				return
			}
			if again, err := proto.Marshal(m); err != nil || len(again) > largestFrame*2 {
				t.Errorf("%d bytes, %v", len(again), err)
			}
		}
	})
}
