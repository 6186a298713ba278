package agreetest

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/remote"
	"github.com/twillnet/twill/internal/dataplane/remote/reference"
	"github.com/twillnet/twill/internal/dataplane/sim"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// TestRemoteAgrees: a driver in another process, behind the protocol, does to packets what verdict and world say, in worlds that change step by step,
// while it dies and begins with nothing, and while its stream is cut. It refuses what comes out of order.
func TestRemoteAgrees(t *testing.T) {
	seed := seedtest.New(t)
	asked, begun := 0, 0
	for i := range max(*worlds/8, 2) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		far := newFarNode(t, rng)
		m := memoryOf(t, rng, far.take)
		for range memorySteps {
			n, _ := m.agrees(t)
			if asked += n; t.Failed() {
				t.Fatalf("world %d", i)
			}
			m.walk(t)
		}
		begun += far.begun
		far.stop()
	}
	if asked == 0 || begun < *worlds/8 {
		t.Errorf("%d packets, and a driver that began %d times: too few to show anything", asked, begun)
	}
}

// farNode is a node whose dataplane is behind a socket.
type farNode struct {
	t      *testing.T
	rng    *rand.Rand
	path   string
	driver *remote.Driver
	server *reference.Node
	begun  int // drivers
	stop   func()
}

func newFarNode(t *testing.T, rng *rand.Rand) *farNode {
	dir, err := os.MkdirTemp("", "twill-far-") // the path of a socket must be short
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	f := &farNode{t: t, rng: rng, path: filepath.Join(dir, "s")}
	f.driver = remote.New(remote.Config{Address: "unix://" + f.path, Node: nodeName})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { _ = f.driver.Run(ctx) }()
	f.begin()
	return f
}

// begin starts a driver with nothing.
func (f *farNode) begin() {
	f.server = &reference.Node{Interfaces: ownLinks()}
	l, err := net.Listen("unix", f.path)
	must(f.t, err)
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	go func() {
		_ = (&remote.Server{Name: "reference", Target: f.server}).Serve(ctx, l)
		close(ended)
	}()
	f.begun++
	f.stop = func() {
		cancel()
		<-ended
	}
}

// take passes a batch on, with a fault now and then, and returns what is in force once the driver has answered.
func (f *farNode) take(b intent.Batch) *sim.Dataplane {
	f.driver.Merge(b)
	if f.rng.IntN(4) == 0 {
		f.stop()
		if _, err := f.driver.Apply(f.t.Context()); err == nil && !b.Empty() {
			f.t.Error("what no driver has is called in force")
		}
		f.begin()
	}
	for {
		outcomes, err := f.driver.Apply(f.t.Context())
		for _, o := range outcomes {
			if o.Err != nil {
				f.t.Errorf("%v: %v", o.Key, o.Err)
			}
		}
		if node := f.server.Dataplane(); err == nil && node != nil {
			return node
		}
		if err == nil { // the end of the former driver is not noticed yet
			(<-f.driver.Drift())()
		}
	}
}
