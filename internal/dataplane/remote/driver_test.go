package remote

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/intent"
)

// script is a driver that does what a test says.
type script struct {
	pb.UnimplementedDataplaneServer
	welcome *pb.Welcome
	begun   chan *scriptStream
	latest  *scriptStream // nil: none was looked at
}

// scriptStream is one of its streams.
type scriptStream struct {
	got chan *pb.ToDriver
	say chan *pb.FromDriver // nil ends it
}

// stream is the latest that was looked at, or the first.
func (s *script) stream() *scriptStream {
	if s.latest == nil {
		s.latest = <-s.begun
	}
	return s.latest
}

func (s *script) Program(stream pb.Dataplane_ProgramServer) error {
	if err := stream.Send(&pb.FromDriver{Item: &pb.FromDriver_Welcome{Welcome: s.welcome}}); err != nil {
		return err
	}
	own := &scriptStream{got: make(chan *pb.ToDriver, 100), say: make(chan *pb.FromDriver, 100)}
	s.begun <- own
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			own.got <- m
		}
	}()
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case m := <-own.say:
			if m == nil {
				return errors.New("the driver gives up")
			}
			if err := stream.Send(m); err != nil {
				return err
			}
		}
	}
}

// scripted starts a driver, and returns it with our end.
func scripted(t *testing.T, patience time.Duration) (*script, *Driver) {
	t.Helper()
	dir, err := os.MkdirTemp("", "twill-remote-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &script{welcome: &pb.Welcome{Version: Version, Name: "scripted"}, begun: make(chan *scriptStream, 10)}
	g := grpc.NewServer()
	pb.RegisterDataplaneServer(g, s)
	go func() { _ = g.Serve(l) }()
	d := New(Config{Address: "unix://" + l.Addr().String(), Node: "n", Patience: patience})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() {
		_ = d.Run(ctx)
		close(ran)
	}()
	t.Cleanup(func() {
		cancel()
		<-ran
		g.Stop()
		_ = os.RemoveAll(dir)
	})
	return s, d
}

// next is the next message that is no greeting.
func (s *script) next() *pb.ToDriver {
	for {
		if m := <-s.stream().got; m.GetHello() == nil {
			return m
		}
	}
}

// commit takes all up to a commit, and returns its number and how many items came before.
func (s *script) commit() (sequence uint64, items int) {
	for {
		m := s.next()
		if m.GetCommit() != nil {
			return m.GetSequence(), items
		}
		items++
	}
}

func (s *script) answer(c *pb.Committed) {
	s.stream().say <- &pb.FromDriver{Item: &pb.FromDriver_Committed{Committed: c}}
}

var (
	route   = intent.Route{Dst: netip.MustParsePrefix("10.65.0.1/32"), Link: "cali1"}
	another = intent.Route{Dst: netip.MustParsePrefix("10.65.0.2/32"), Link: "cali2"}
)

// long is a wait that no test sees the end of.
const long = time.Hour

// outcomesOf applies in a goroutine of its own, since a driver answers meanwhile.
func outcomesOf(t *testing.T, d *Driver, meanwhile func()) (map[intent.Key]intent.Outcome, error) {
	t.Helper()
	type result struct {
		list []intent.Outcome
		err  error
	}
	done := make(chan result, 1)
	go func() {
		list, err := d.Apply(t.Context())
		done <- result{list, err}
	}()
	meanwhile()
	r := <-done
	return byKey(r.list), r.err
}

// TestNothingIsSentBeforeAllIsKnown: the first commit is complete.
func TestNothingIsSentBeforeAllIsKnown(t *testing.T) {
	s, d := scripted(t, long)
	d.Merge(intent.Batch{Routes: []intent.Route{route}})
	if out, err := d.Apply(t.Context()); len(out) > 0 || err != nil || d.stream != nil {
		t.Fatal(out, err)
	}
	d.Merge(intent.Batch{Routes: []intent.Route{another}, InSync: true})
	out, err := outcomesOf(t, d, func() {
		n, items := s.commit()
		if items != 2 {
			t.Errorf("%d items, want both routes", items)
		}
		s.answer(&pb.Committed{Sequence: n})
	})
	if err != nil || len(out) != 2 || out[route.ID()].Err != nil {
		t.Fatal(out, err)
	}
}

// TestWhatADriverSaysOfAnItem: in its answer and by itself; what it says of others means nothing, and Retry sends what failed again.
func TestWhatADriverSaysOfAnItem(t *testing.T) {
	s, d := scripted(t, long)
	d.Merge(intent.Batch{Routes: []intent.Route{route, another}, InSync: true})
	fails := func(r intent.Route, why string) *pb.Outcome {
		return &pb.Outcome{Key: encodeKey(r.ID()), Error: why}
	}
	out, err := outcomesOf(t, d, func() {
		n, _ := s.commit()
		s.answer(&pb.Committed{Sequence: n, Outcomes: []*pb.Outcome{fails(route, "no room"), {}, fails(intent.Route{Dst: netip.MustParsePrefix("192.0.2.0/24")}, "none of yours")}})
	})
	if err != nil || len(out) != 2 || out[route.ID()].Err == nil || out[another.ID()].Err != nil {
		t.Fatal(out, err)
	}
	d.Retry()
	if out, err = outcomesOf(t, d, func() {
		n, items := s.commit()
		if items != 1 {
			t.Errorf("%d items are tried again", items)
		}
		s.answer(&pb.Committed{Sequence: n})
	}); err != nil || len(out) != 1 || out[route.ID()].Err != nil {
		t.Fatal(out, err)
	}
	s.stream().say <- &pb.FromDriver{Item: &pb.FromDriver_Changed{Changed: &pb.Outcome{Key: encodeKey(another.ID()), Reason: "interface is absent"}}}
	for len(out) == 0 || out[another.ID()].Reason == "" {
		(<-d.Drift())()
		if out, err = outcomesOf(t, d, func() {}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestADriverThatMakesNoSense: nothing is in force by it, the reason is named, and it is asked again.
func TestADriverThatMakesNoSense(t *testing.T) {
	for name, tt := range map[string]struct {
		welcome *pb.Welcome
		say     func(*script)
		want    string
	}{
		"another version":      {welcome: &pb.Welcome{Version: 2}, want: "version 2 of the protocol"},
		"an answer too many":   {say: func(s *script) { s.answer(&pb.Committed{Sequence: 1000}) }, want: "number 1000, which is not of a commit"},
		"no number":            {say: func(s *script) { s.answer(&pb.Committed{}) }, want: "number 0"},
		"it refuses the whole": {say: func(s *script) { n, _ := s.commit(); s.answer(&pb.Committed{Sequence: n, Error: "out of memory"}) }, want: "out of memory"},
		"it ends":              {say: func(s *script) { s.commit(); s.stream().say <- nil }, want: "the driver gives up"},
	} {
		t.Run(name, func(t *testing.T) {
			s, d := scripted(t, long)
			if tt.welcome != nil {
				s.welcome = tt.welcome
			}
			d.Merge(intent.Batch{Routes: []intent.Route{route}, InSync: true})
			out, err := outcomesOf(t, d, func() {
				if tt.say != nil {
					tt.say(s)
				}
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(out) > 0 {
				t.Fatalf("%v, %v; want %q", out, err, tt.want)
			}
			if _, is := errors.AsType[dataplane.Awaiting](err); !is {
				t.Errorf("%v: nobody says when the driver is there again, so it must be asked for", err)
			}
			if s.welcome.GetVersion() != Version {
				return
			}
			s.stream() // the first
			if out, err = outcomesOf(t, d, func() {
				s.latest = <-s.begun
				n, items := s.commit()
				if items != 1 {
					t.Errorf("%d items on the next stream", items)
				}
				s.answer(&pb.Committed{Sequence: n})
			}); err != nil || len(out) != 1 {
				t.Errorf("on the next stream: %v, %v", out, err)
			}
		})
	}
}

// TestADriverThatIsSlow: Apply says so and is called again; what changed meanwhile is not in force by the earlier answer.
func TestADriverThatIsSlow(t *testing.T) {
	s, d := scripted(t, long)
	d.Merge(intent.Batch{Routes: []intent.Route{route, another}, InSync: true})
	d.cfg.Patience = time.Minute // until it has greeted
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		s.commit()
		cancel()
	}()
	if out, err := d.Apply(ctx); err == nil || len(out) > 0 {
		t.Fatal(out, err)
	}
	moved := route
	moved.Link = "cali9"
	d.Merge(intent.Batch{Routes: []intent.Route{moved}})
	first := d.stream.commit.Load()
	s.answer(&pb.Committed{Sequence: first})
	go func() { // the change is sent after the answer, and its own answer never comes
		s.commit()
		s.stream().say <- nil
	}()
	out, err := d.Apply(t.Context())
	if _, is := byKey(out)[moved.ID()]; err == nil || is || len(out) != 1 {
		t.Fatalf("%+v, %v: want the other route alone to be in force", out, err)
	}
}

func byKey(list []intent.Outcome) map[intent.Key]intent.Outcome {
	m := map[intent.Key]intent.Outcome{}
	for _, o := range list {
		m[o.Key] = o
	}
	return m
}

// TestADriverThatFreezes is found, although nothing changes, when it would be read back if it were in this process.
func TestADriverThatFreezes(t *testing.T) {
	s, d := scripted(t, long)
	d.Merge(intent.Batch{Routes: []intent.Route{route}, InSync: true})
	if _, err := outcomesOf(t, d, func() {
		n, _ := s.commit()
		s.answer(&pb.Committed{Sequence: n})
	}); err != nil {
		t.Fatal(err)
	}
	if out, err := d.Apply(t.Context()); len(out) > 0 || err != nil {
		t.Fatal(out, err)
	}
	if err := d.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if _, items := s.commit(); items != 0 {
			t.Errorf("%d items are sent again", items)
		}
		cancel()
	}()
	if _, err := d.Apply(ctx); err == nil || !strings.Contains(err.Error(), "has not answered") {
		t.Error(err)
	}
}

// TestAddresses: what is no address of a driver is said so, and nothing is called.
func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{"unix:///run/twill/dataplane.sock": true, "unix://dataplane.sock": false, "/usr/bin/driver": false, "127.0.0.1:80": false, "": false} {
		if err := Address(address); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
	d := New(Config{Address: "/usr/bin/driver"})
	d.Merge(intent.Batch{InSync: true})
	if _, err := d.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "unix:///PATH") {
		t.Error(err)
	}
}
