package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api/relaypb"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// TestASlowClientIsSentTheLastOfEachKeyAlone, of what it lacks; who is quick is sent each change, and who is of an older version, too.
func TestASlowClientIsSentTheLastOfEachKeyAlone(t *testing.T) {
	inWorld(t, 1<<20, func(w *world) {
		slow := w.agent(ClientConfig{})
		slow.takes(long)
		w.freeze(func() bool { return true })
		quick := w.agent(ClientConfig{})
		quick.takes(time.Second)
		older := make(chan uint64, 2000) // the numbers of what it is sent
		synctest.Wait()
		at := w.server.chains["/x/"]
		begin := &relaypb.FollowRequest{Prefix: "/x/", Epoch: at.epoch, Number: at.number}
		go func() {
			_ = w.server.follow(w.Context(), begin, func(f *relaypb.Frame) error {
				if f.Spans != 0 {
					w.Errorf("a client that does not know it was sent %d changes in one", f.Spans)
				}
				older <- f.Number
				return nil
			})
		}()
		before := quick.count
		for i := range 500 {
			w.write("/x/k", fmt.Sprint(i))
			quick.takes(time.Millisecond)
		}
		w.write("/x/gone", "1")
		quick.takes(time.Millisecond)
		w.write("/x/gone", "")
		quick.takes(time.Millisecond)
		if quick.count != before+502 {
			w.Errorf("the quick one was given %d changes", quick.count-before)
		}
		w.meter.of(&w.meter.sent, "delta")
		before = slow.count
		w.freeze(func() bool { return false })
		slow.takes(long)
		slow.equals("once it goes on")
		if deltas, snapshots, n := w.meter.of(&w.meter.sent, "delta"), w.meter.of(&w.meter.sent, "snapshot"), slow.count-before; deltas > 2 || n > 3 {
			w.Errorf("the slow one was sent %d changes and %d snapshots, and given %d updates; want one that it held, and one of all the others", deltas, snapshots, n)
		}
		if n := len(older); n != 503 { // the first says where it begins
			w.Errorf("one of an older version was sent %d frames", n)
		}
		if n := w.meter.of(&w.meter.ended, "too far behind"); n != 0 {
			w.Errorf("%d streams ended", n)
		}
	})
}

// TestChangesOfManyKeysAreSentOneByOne: there is nothing to gain, and what is encoded for one client alone is bounded.
func TestChangesOfManyKeysAreSentOneByOne(t *testing.T) {
	for name, write := range map[string]func(w *world, i int){
		"each of another key": func(w *world, i int) { w.write(fmt.Sprint("/x/k", i), "1") },
		"large ones":          func(w *world, i int) { w.write(fmt.Sprint("/x/k", i%3), fmt.Sprintf("%030000d", i)) },
		"too few":             func(w *world, i int) { w.write("/x/k", fmt.Sprint(i%2)) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1<<30, func(w *world) {
				slow := w.agent(ClientConfig{})
				slow.takes(long)
				w.freeze(func() bool { return true })
				n := 40
				if name == "too few" {
					n = mergeFrom // one of which it holds
				}
				w.meter.of(&w.meter.sent, "delta")
				for i := range n {
					write(w, i)
					<-time.After(time.Second)
				}
				w.freeze(func() bool { return false })
				slow.takes(long)
				slow.equals("once it goes on")
				if sent, merged := w.meter.of(&w.meter.sent, "delta"), w.meter.of(&w.meter.made, "merged"); sent < n || merged != 0 {
					w.Errorf("%d parts of changes were sent, and %d were made of several; want %d, and none", sent, merged, n)
				}
			})
		})
	}
}

// canned is a stream of a relay's with these frames.
type canned []*relaypb.Frame

// Recv implements [frames].
func (c *canned) Recv() (*relaypb.Frame, error) {
	if len(*c) == 0 {
		return nil, io.EOF
	}
	f := (*c)[0]
	*c = (*c)[1:]
	return f, nil
}

// TestAChangeIsUsedOnlyIfItFollowsWhatTheClientHas: number 5.
func TestAChangeIsUsedOnlyIfItFollowsWhatTheClientHas(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frames []*relaypb.Frame
		want   uint64 // the position; 0: it is refused
	}{
		{"the next", []*relaypb.Frame{{Number: 6}}, 6},
		{"the next but one", []*relaypb.Frame{{Number: 7}}, 0},
		{"the same again", []*relaypb.Frame{{Number: 5}}, 0},
		{"three in one", []*relaypb.Frame{{Number: 8, Spans: 3}}, 8},
		{"three in one, of which the client has one", []*relaypb.Frame{{Number: 7, Spans: 3}}, 0},
		{"three in one, after others that it lacks", []*relaypb.Frame{{Number: 9, Spans: 3}}, 0},
		{"one in one", []*relaypb.Frame{{Number: 6, Spans: 1}}, 6},
		{"more than there can be", []*relaypb.Frame{{Number: 4, Spans: math.MaxUint32}}, 0},
		{"in two parts", []*relaypb.Frame{{Number: 8, Spans: 3, More: true}, {Number: 8, Spans: 3}}, 8},
		{"parts of different changes", []*relaypb.Frame{{Number: 8, Spans: 3, More: true}, {Number: 9, Spans: 4}}, 0},
		{"parts that do not agree on what they are", []*relaypb.Frame{{Number: 8, Spans: 3, More: true}, {Number: 8, Spans: 2}}, 0},
		{"of another relay's life", []*relaypb.Frame{{Epoch: "b", Number: 6}}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream := &canned{{Epoch: "a", Number: 5}}
			for _, f := range tt.frames {
				f.Epoch = cmp.Or(f.Epoch, "a")
				*stream = append(*stream, f)
			}
			c := newClient(memstore.New(), ClientConfig{}, func(context.Context, *relaypb.FollowRequest) (frames, error) { return stream, nil }, nil)
			w, err := c.Watch(t.Context(), "/x/", positionOf("a", 5, ""))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			changes, err := w.Next(t.Context())
			switch at, _ := placeOf(changes.Position); {
			case tt.want == 0 && !errors.Is(err, errOrder):
				t.Errorf("%v, %v; want that it is out of order", changes, err)
			case tt.want > 0 && (err != nil || at.number != tt.want):
				t.Errorf("%v, %v; want position %d", changes, err, tt.want)
			}
		})
	}
}
