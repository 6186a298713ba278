package relay

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/relaypb"
)

const (
	partBytes = 1 << 20  // of values in a frame, before it is compressed, unless one value has more
	mostBytes = 64 << 20 // of a frame, before and after; what claims more is refused
)

// One of each is enough, since both are stateless: EncodeAll and DecodeAll are safe for concurrent use.
var (
	encoder = used(must(zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))))
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(mostBytes)))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // of constants
	}
	return v
}

// used is an encoder that has made what it makes at its first use: tests in virtual time share it.
func used(e *zstd.Encoder) *zstd.Encoder {
	e.EncodeAll(nil, nil)
	return e
}

// encode makes frames with bodies alone; none of no updates.
func encode(updates []api.Update) []*relaypb.Frame {
	var frames []*relaypb.Frame
	part, size := &relaypb.Updates{}, 0
	flush := func() {
		raw, _ := proto.Marshal(part) // cannot fail: it has no strings, which must be UTF-8
		frames = append(frames, &relaypb.Frame{Body: encoder.EncodeAll(raw, nil)})
		part, size = &relaypb.Updates{}, 0
	}
	for _, u := range updates {
		part.Updates = append(part.Updates, &relaypb.Update{Key: []byte(u.Key), Revision: []byte(u.Revision.String()), Value: u.Value, Gone: u.Value == nil})
		if size += len(u.Key) + len(u.Value); size >= partBytes {
			flush()
		}
	}
	if len(part.Updates) > 0 {
		flush()
	}
	return frames
}

// decode is the updates of a body.
func decode(body []byte) ([]api.Update, error) {
	if len(body) == 0 {
		return nil, nil
	}
	raw, err := decoder.DecodeAll(body, nil)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	var part relaypb.Updates
	if err := proto.Unmarshal(raw, &part); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	out := make([]api.Update, len(part.Updates))
	for i, u := range part.Updates {
		out[i] = api.Update{Key: string(u.Key), Revision: api.RevisionOf(string(u.Revision)), Value: u.Value}
		switch {
		case u.Gone:
			out[i].Value = nil
		case u.Value == nil:
			out[i].Value = []byte{} // nil says that it is gone
		}
	}
	return out, nil
}
