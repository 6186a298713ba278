package felixbackend

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	pb "github.com/twillnet/twill/api/felixpb"
)

// A frame is 8 bytes, little-endian, with the length of what follows, and one message of protobuf.
const header = 8

// largestFrame is the most bytes of a driver's message: they are about one endpoint, or one key.
const largestFrame = 1 << 20

// readFrame reads one message. It reserves no more memory than the bound allows, whatever a length says.
func readFrame(r io.Reader) (*pb.FromDataplane, error) {
	var size [header]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > largestFrame {
		return nil, fmt.Errorf("a message of %d bytes, and more than %d is none", n, largestFrame)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("a message of %d bytes that ends too early: %w", n, err)
	}
	m := &pb.FromDataplane{}
	if err := proto.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%d bytes that are no message: %w", n, err)
	}
	return m, nil
}

// appendFrame appends one message.
func appendFrame(b []byte, m *pb.ToDataplane) ([]byte, error) {
	at := len(b)
	b, err := proto.MarshalOptions{}.MarshalAppend(append(b, make([]byte, header)...), m)
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint64(b[at:], uint64(len(b)-at-header))
	return b, nil
}
