package agreetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/dataplane/remote"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/verdict"
)

// inFar is a driver in a process of its own, behind the protocol (docs/remote-dataplane.md), which programs the kernel of its host: what `twill
// dataplane` is. What the protocol loses or changes is seen by packets.
const inFar = "remote"

// asFarDriver names, in the environment of this binary, the socket at which it is such a driver.
const asFarDriver = "TWILL_AGREETEST_DRIVER"

func TestMain(m *testing.M) {
	path := os.Getenv(asFarDriver)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := beFarDriver(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beFarDriver serves the protocol until its standard input ends: so it ends with the test, however that does.
func beFarDriver(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := (&remote.Server{Name: "twill", Kernel: true, Target: agent.KernelDriver{Log: log}}).Serve(ctx, l); ctx.Err() == nil {
		return err
	}
	return nil
}

// farHost is the process that programs a node's kernel.
type farHost struct {
	n      *node
	path   string         // of its socket
	shadow *nftables.Conn // in a namespace that has nothing else
	log    bytes.Buffer   // what it wrote, once end has returned
	end    func()
}

func newFarHost(n *node) *farHost {
	dir, err := os.MkdirTemp("", "twill-far-") // the path of a socket must be short
	must(n.t, err)
	f := &farHost{n: n, path: filepath.Join(dir, "s")}
	t := n.t
	netnstest.New(t).Do(func() {
		f.shadow, err = nftables.Open()
		must(t, err)
	})
	f.begin()
	t.Cleanup(func() {
		f.end()
		f.shadow.Close()
		must(t, os.RemoveAll(dir))
		if t.Failed() {
			t.Logf("the driver wrote:\n%s", f.log.String())
		}
	})
	return f
}

// begin starts the process.
func (f *farHost) begin() {
	exe, err := os.Executable()
	must(f.n.t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), asFarDriver+"="+f.path)
	cmd.Stdout, cmd.Stderr = &f.log, &f.log
	alive, err := cmd.StdinPipe()
	must(f.n.t, err)
	must(f.n.t, f.n.host.Handle().Start(cmd))
	f.end = sync.OnceFunc(func() {
		_ = alive.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.Remove(f.path)
	})
}

// farPolicy is an agent's half of the protocol. The reports of the other half have names that say nothing of what they stand for, and an agent has no
// table of them: a driver that is given the same without the protocol, in the shadow, knows the names that they should have.
type farPolicy struct {
	*remote.Driver
	t      *testing.T
	shadow *nft.Driver
}

// connect returns the driver of an agent that begins.
func (f *farHost) connect() *farPolicy {
	n := f.n
	d := &farPolicy{remote.New(remote.Config{Address: "unix://" + f.path, Node: nodeName}), n.t, nft.New(f.shadow, nft.Config{Names: n.names, Recheck: true})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		_ = d.Run(ctx)
		close(ended)
	}()
	if n.farAgent != nil {
		n.farAgent()
	}
	n.farAgent = func() {
		cancel()
		<-ended
	}
	n.t.Cleanup(cancel)
	return d
}

func (d *farPolicy) Resync(ctx context.Context) error {
	must(d.t, d.shadow.Resync(ctx))
	return d.Driver.Resync(ctx)
}

// Links tells the shadow alone: the process sees interfaces itself.
func (d *farPolicy) Links(l []ifmon.Change) { d.shadow.Links(l) }

// Merge has no route wait until a machine that moves here is seen: workloads here say nothing of themselves.
func (d *farPolicy) Merge(b intent.Batch) {
	b.Routes = slices.Clone(b.Routes)
	for i := range b.Routes {
		b.Routes[i].Move = intent.Stays
	}
	d.Driver.Merge(b)
	b.Policies = slices.Clone(b.Policies)
	for i, p := range b.Policies {
		b.Policies[i].Ingress, b.Policies[i].Egress = withoutRequests(p.Ingress), withoutRequests(p.Egress)
	}
	d.shadow.Merge(b)
}

// withoutRequests are rules as the protocol has them: what they ask of HTTP requests is not for a kernel, and is not sent. Names of rules depend on it.
func withoutRequests(rs []intent.Rule) []intent.Rule {
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].Requests = nil
	}
	return rs
}

// Apply returns once the process has answered.
func (d *farPolicy) Apply(ctx context.Context) ([]intent.Outcome, error) {
	outcomes, err := d.shadow.Apply(ctx)
	must(d.t, err)
	for _, o := range outcomes {
		must(d.t, o.Err)
	}
	for began := time.Now(); ; {
		outcomes, err = d.Driver.Apply(ctx)
		if err == nil || time.Since(began) > netnstest.Patience {
			return outcomes, err
		}
	}
}

// reports reports whether a rule is who drops a packet. On interfaces that had an endpoint once, a driver of the whole host leaves rp_filter, which drops what comes
// from there before a rule does.
func (n *node) reports(v verdict.Verdict) bool {
	return n.far == nil || v.Reason != intent.ReasonUnknownLink
}
