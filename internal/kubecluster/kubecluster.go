// Package kubecluster runs a Kubernetes cluster on this machine: its own programs, three nodes, each with a network, processes, file
// systems and cgroups of its own, and Twill, installed by its own manifest.
//
// In: programs that make kube built, and a binary of twill. Out: a cluster that is ready, and a kubeconfig. [Cluster.Down] leaves nothing
// of it: all that a machine of the cluster does is below one process, whose end the kernel makes that of all others and of their mounts.
//
// Needs root, containerd, runc and cgroups of version 1 (kernels that have controllers in version 2 alone are refused by name).
package kubecluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/twillnet/twill/internal/kubetest/binaries"
)

// DefaultDir is where a cluster keeps its state.
const DefaultDir = "/run/twill-kube"

// Cluster is a cluster on this machine.
type Cluster struct {
	Dir     string    // all that it keeps; empty: DefaultDir
	Twill   string    // the binary that its nodes run; twill-cni is beside it
	Probe   string    // the program of hack/kubecluster/probe
	Exe     string    // the program of hack/kubecluster, which is started once more in each machine
	Workers int       // nodes; zero: three
	Out     io.Writer // what was done

	api, nodes binaries.Set
}

// ErrUp means that there is one already.
var ErrUp = errors.New("a cluster is up already: make kube-down takes it down")

// Networks of the cluster. That of its machines is of RFC 2544, which no other network here has.
var (
	control      = netip.MustParseAddr("198.18.0.1")
	user         = netip.MustParseAddr("198.18.0.254") // this machine's, for who runs kubectl here
	podRange     = "10.244.0.0/16"
	serviceRange = "10.96.0.0/16"
)

const (
	prefixLength = 24
	apiPort      = 6443
	imageTag     = "kube" // of the images, which are made anew each time
	startTimeout = 3 * time.Minute
)

func (c *Cluster) defaults() {
	if c.Dir == "" {
		c.Dir = DefaultDir
	}
	if c.Workers == 0 {
		c.Workers = 3
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
}

func (c *Cluster) in(parts ...string) string {
	return filepath.Join(append([]string{c.Dir}, parts...)...)
}

// Kubeconfig is the file of an administrator.
func (c *Cluster) Kubeconfig() string { c.defaults(); return c.in("kubeconfig") }

// Kubectl is Kubernetes' own program.
func (c *Cluster) Kubectl() string { return c.api.Path("kubectl") }

// worker is a node by its number, from 1.
func worker(n int) string { return fmt.Sprintf("n%d", n) }

func (c *Cluster) workers() (names []string) {
	for n := range c.Workers {
		names = append(names, worker(n+1))
	}
	return names
}

// address is that of a node by its number.
func address(n int) netip.Addr {
	a := control.As4()
	a[3] = byte(10 + n)
	return netip.AddrFrom4(a)
}

// Up makes the cluster, and returns when each node is Ready and runs Twill. What a failed Up leaves, Down removes.
func (c *Cluster) Up(ctx context.Context) error {
	c.defaults()
	if os.Geteuid() != 0 {
		return errors.New("a cluster has network namespaces, mounts and cgroups of its own: run it as root")
	}
	if _, err := os.Stat(c.Dir); err == nil {
		return ErrUp
	}
	if err := cgroupsUsable(); err != nil {
		return err
	}
	if err := c.find(); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{fmt.Sprintf("%d nodes and a control plane on one link", c.Workers), c.makeNetwork},
		{"images of twill and of a probe", c.makeImages},
		{"etcd, API server, controllers, scheduler", c.startControl},
		{"containerd, kubelet and kube-proxy on each node", c.startNodes},
		{"Twill, by its own manifest", c.install},
		{"each node Ready, and Twill on it", c.awaitReady},
	}
	for _, s := range steps {
		begin := time.Now()
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		fmt.Fprintf(c.Out, "  %-52s %s\n", s.what, time.Since(begin).Round(100*time.Millisecond))
	}
	return nil
}

// find looks for the programs of Kubernetes.
func (c *Cluster) find() (err error) {
	if c.api, err = binaries.API.Find(); err != nil {
		return err
	}
	if c.nodes, err = binaries.Nodes.Find(); err != nil {
		return err
	}
	return errors.Join(c.api.Ready(), c.nodes.Ready())
}

// await asks until something is so, each tenth of a second; what was not so last is in the error.
func await(ctx context.Context, is func(context.Context) error) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		err := is(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
