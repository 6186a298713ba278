package conformance

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/dataplane/remote"
	"github.com/twillnet/twill/internal/dataplane/remote/reference"
	"github.com/twillnet/twill/internal/intent"
)

// fault is that of a driver that is right otherwise: a change of what it gets, or of what it says.
type fault struct {
	want   string // in the reason of the case
	begin  func(*faulty) (pb.DataplaneServer, error)
	got    func(*between, *pb.ToDriver) []*pb.ToDriver // numbered afterwards, unless nil
	says   func(*between, *pb.FromDriver) []*pb.FromDriver
	silent bool // the driver does not answer
}

// faulty is the reference driver behind a fault.
type faulty struct {
	pb.UnimplementedDataplaneServer
	fault
	right *remote.Server

	mu      sync.Mutex
	streams int
	kept    []*pb.ToDriver // of a stream before, for faults that keep something
}

func (f *faulty) Program(s pb.Dataplane_ProgramServer) error {
	f.mu.Lock()
	f.streams++
	n := f.streams
	f.mu.Unlock()
	var server pb.DataplaneServer = f.right
	if f.begin != nil {
		other, err := f.begin(f)
		if err != nil {
			return err
		}
		if other != nil {
			server = other
		}
	}
	return server.Program(&between{Dataplane_ProgramServer: s, faulty: f, stream: n})
}

// between is a stream with the fault.
type between struct {
	pb.Dataplane_ProgramServer
	*faulty
	stream int
	queue  []*pb.ToDriver
	theirs []uint64 // the agent's number of each message, from 1
	hello  uint32   // its version
	items  int
}

func (b *between) Recv() (*pb.ToDriver, error) {
	if b.got == nil {
		return b.Dataplane_ProgramServer.Recv()
	}
	for len(b.queue) == 0 {
		m, err := b.Dataplane_ProgramServer.Recv()
		if err != nil {
			return nil, err
		}
		number := m.GetSequence()
		for _, x := range b.got(b, m) {
			b.mu.Lock()
			b.theirs = append(b.theirs, number)
			x.Sequence = uint64(len(b.theirs))
			b.mu.Unlock()
			b.queue = append(b.queue, x)
		}
	}
	m := b.queue[0]
	b.queue = b.queue[1:]
	return m, nil
}

func (b *between) Send(m *pb.FromDriver) error {
	if c := m.GetCommitted(); c != nil && b.got != nil {
		b.mu.Lock()
		c.Sequence = b.theirs[c.GetSequence()-1]
		b.mu.Unlock()
	}
	list := []*pb.FromDriver{m}
	if b.says != nil {
		list = b.says(b, m)
	}
	for _, x := range list {
		if err := b.Dataplane_ProgramServer.Send(x); err != nil {
			return err
		}
	}
	return nil
}

// serve serves a driver, and returns the address.
func serve(t *testing.T, d pb.DataplaneServer) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "twill-conf-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	pb.RegisterDataplaneServer(g, d)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		_ = os.RemoveAll(dir)
	})
	return "unix://" + l.Addr().String()
}

func referenceDriver() *remote.Server {
	return &remote.Server{Name: "reference", Target: &reference.Node{}}
}

// TestTheReferenceDriverConforms in each case.
func TestTheReferenceDriverConforms(t *testing.T) {
	results, err := Run(t.Context(), Config{Address: serve(t, referenceDriver()), Patience: time.Minute})
	if err != nil || len(results) != len(cases) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if !r.OK {
			t.Errorf("%s: %s", r.Case, r.Reason)
		}
	}
}

// TestADriverOfThisHostsKernelIsLeftAlone unless that is asked for.
func TestADriverOfThisHostsKernelIsLeftAlone(t *testing.T) {
	committed := false
	d := &remote.Server{Name: "kernel", Kernel: true, Target: &reference.Node{Committed: func(string, intent.Batch) { committed = true }}}
	if _, err := Run(t.Context(), Config{Address: serve(t, d)}); err == nil || !strings.Contains(err.Error(), "--kernel") || committed {
		t.Errorf("%v; committed: %t", err, committed)
	}
}

// TestEachFaultIsFound: each case has a driver that fails it, and says why.
func TestEachFaultIsFound(t *testing.T) {
	for _, c := range cases {
		f, there := faults[c.name]
		if !there {
			t.Errorf("nothing shows that case %s can fail", c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			patience := time.Minute
			if f.silent {
				patience = 5 * time.Second
			}
			s := &suite{Config{Address: serve(t, &faulty{fault: f, right: referenceDriver()}), Patience: patience}}
			if err := s.try(t.Context(), c); err == nil || !strings.Contains(err.Error(), f.want) {
				t.Errorf("%v, want %s", err, f.want)
			}
		})
	}
}

// welcome changes the greeting.
func welcome(change func(*between, *pb.Welcome)) func(*between, *pb.FromDriver) []*pb.FromDriver {
	return func(b *between, m *pb.FromDriver) []*pb.FromDriver {
		if w := m.GetWelcome(); w != nil {
			change(b, w)
		}
		return []*pb.FromDriver{m}
	}
}

// committed changes an answer.
func committed(change func(*pb.Committed)) func(*between, *pb.FromDriver) []*pb.FromDriver {
	return func(_ *between, m *pb.FromDriver) []*pb.FromDriver {
		if c := m.GetCommitted(); c != nil {
			change(c)
		}
		return []*pb.FromDriver{m}
	}
}

// callsAllInForce is the fault of a driver that does not look.
var callsAllInForce = committed(func(c *pb.Committed) { c.Error, c.Outcomes = "", nil })

// dropped passes on all messages but some.
func dropped(drop func(*pb.ToDriver) bool) func(*between, *pb.ToDriver) []*pb.ToDriver {
	return func(_ *between, m *pb.ToDriver) []*pb.ToDriver {
		if drop(m) {
			return nil
		}
		return []*pb.ToDriver{m}
	}
}

// keeping is the fault of a driver that has the policies of a former stream in the first commit of the next, too.
func keeping(b *between, m *pb.ToDriver) []*pb.ToDriver {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.GetPolicy() != nil && b.stream == 1 {
		b.kept = append(b.kept, m)
	}
	if m.GetCommit() == nil || b.stream != 2 {
		return []*pb.ToDriver{m}
	}
	kept := b.kept
	b.kept = nil
	return append(kept, m)
}

// faults are one for each case, by its name.
var faults = map[string]fault{
	"greeting": {want: "no name", says: welcome(func(_ *between, w *pb.Welcome) { w.Name = "" })},
	"version": {
		want: "answers version 2",
		got: func(b *between, m *pb.ToDriver) []*pb.ToDriver {
			if h := m.GetHello(); h != nil {
				b.hello, h.Version = h.GetVersion(), remote.Version
			}
			return []*pb.ToDriver{m}
		},
		says: welcome(func(b *between, w *pb.Welcome) { w.Version = b.hello }),
	},
	"no-greeting": {
		want: "a commit before Hello",
		got: func(b *between, m *pb.ToDriver) []*pb.ToDriver {
			if b.items++; b.items == 1 && m.GetHello() == nil {
				return []*pb.ToDriver{hello(remote.Version), m}
			}
			return []*pb.ToDriver{m}
		},
		says: func(_ *between, m *pb.FromDriver) []*pb.FromDriver {
			if m.GetWelcome() != nil {
				return nil
			}
			return []*pb.FromDriver{m}
		},
	},
	"kinds": {want: "is not in force: no", says: committed(func(c *pb.Committed) {
		c.Outcomes = append(c.Outcomes, &pb.Outcome{Key: setGoes("s").GetRemoved(), Error: "no"})
	})},
	"empty": {want: "does not answer", silent: true, says: func(_ *between, m *pb.FromDriver) []*pb.FromDriver {
		if m.GetCommitted() != nil {
			return nil
		}
		return []*pb.FromDriver{m}
	}},
	"one-answer": {want: "waits, and it answers", says: func(_ *between, m *pb.FromDriver) []*pb.FromDriver {
		if m.GetCommitted() != nil {
			return []*pb.FromDriver{m, m}
		}
		return []*pb.FromDriver{m}
	}},
	"changes": {want: "refuses a right commit", got: dropped(func(m *pb.ToDriver) bool { return m.GetIpSet().GetId() == "new" })},
	"large": {want: "ended the stream", got: func(b *between, m *pb.ToDriver) []*pb.ToDriver {
		if b.items++; b.items > 100 {
			return []*pb.ToDriver{{}} // which ends the stream
		}
		return []*pb.ToDriver{m}
	}},
	"sequence": {want: "a message is missing", got: dropped(func(*pb.ToDriver) bool { return false })},
	"reconnect": {want: "once only", begin: func(f *faulty) (pb.DataplaneServer, error) {
		if f.streams > 1 {
			return nil, status.Error(codes.Unavailable, "once only")
		}
		return nil, nil //nolint:nilnil // as it is
	}},
	"first-commit": {want: "of the stream before", got: keeping},
	"cut":          {want: "of the stream before", got: keeping},
	"replace":      {want: "on the former stream", begin: func(*faulty) (pb.DataplaneServer, error) { return referenceDriver(), nil }},
	"removed":      {want: "that was removed", got: dropped(func(m *pb.ToDriver) bool { return m.GetRemoved() != nil })},
	"order":        {want: "calls in force", says: callsAllInForce},
	"nonsense": {want: "calls in force", got: dropped(func(m *pb.ToDriver) bool {
		return m.GetHello() == nil && m.GetCommit() == nil && remote.Add(&intent.Batch{}, m) != nil
	})},
}

// TestAFailedCaseLeavesNothing: what a case had in force when it failed goes by one more commit, that of nothing.
func TestAFailedCaseLeavesNothing(t *testing.T) {
	c := cases[len(cases)-1]
	commits := func(run func(*suite)) int {
		var n atomic.Int32
		node := &reference.Node{Committed: func(string, intent.Batch) { n.Add(1) }}
		run(&suite{Config{Address: serve(t, &faulty{fault: faults[c.name], right: &remote.Server{Name: "reference", Target: node}}), Patience: time.Minute}})
		return int(n.Load())
	}
	alone := commits(func(s *suite) {
		if err := c.run(t.Context(), s); err == nil {
			t.Error("it did not fail")
		}
	})
	all := commits(func(s *suite) {
		if r, err := s.all(t.Context(), []aCase{c}); err != nil || r[0].OK {
			t.Errorf("%+v, %v", r, err)
		}
	})
	if all != alone+1 {
		t.Errorf("%d commits, and %d of the case alone", all, alone)
	}
}
