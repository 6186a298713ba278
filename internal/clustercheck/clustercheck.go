// Package clustercheck tries the network of a Kubernetes cluster from pods that it starts: whether they reach each other, services, names, nodes and the world, with
// packets of full size, and whether policies hold.
//
// In: how to ask the API server, and an image that has twill. Out: what was tried, and how it went. It makes one namespace with all that it needs, and deletes it.
package clustercheck

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// API is the cluster, as somebody with kubectl reaches it. Paths are those of the API server.
type API interface {
	Read(ctx context.Context, path string, params map[string]string, into any) error
	Create(ctx context.Context, path string, object any) error
	Delete(ctx context.Context, path string) error // that there is none is no error
	Exec(ctx context.Context, namespace, pod string, command []string) ([]byte, error)
	Gone(error) bool // an error of Read says that there is no such object
}

// Config says what to try.
type Config struct {
	API    API
	Image  string        // of pods; empty: that of Twill's own on this cluster
	Nodes  int           // how many of those that are ready take part, by chance; 0: all
	Egress string        // HOST:PORT outside of the cluster that pods should reach; empty: not tried
	Keep   bool          // leave the namespace, for looking at it; as it was when something failed: then nothing more is tried
	Start  time.Duration // how long pods may take until they are Ready
	Settle time.Duration // how long a policy may take until it is in force, and anything else to be as it should be
	Now    func(doing string)
}

// How a test went.
const (
	OK      = "ok"
	Failed  = "failed"
	Skipped = "skipped"
)

// Result is one try from one place to another.
type Result struct {
	Test   string        `json:"test"`
	From   string        `json:"from,omitempty"` // the node, or the pod's node
	To     string        `json:"to,omitempty"`
	Result string        `json:"result"`           // ok, failed or skipped
	Took   time.Duration `json:"took,omitempty"`   // the try; of a policy: until it was in force
	Detail string        `json:"detail,omitempty"` // why it failed or was skipped; else what was found
	Why    string        `json:"why,omitempty"`    // with Keep, of a try between pods and nodes that failed: a call that says whether policy has denied it
}

// ErrNoImage: the cluster runs no pods of Twill whose image could be taken.
var ErrNoImage = errors.New("no DaemonSet of this cluster runs twill: name an image that has /usr/bin/twill (--image)")

// check is one run.
type check struct {
	Config
	namespace string
	peers     []peer
	results   []Result
	broken    map[way]bool // ways that do not work without a policy
}

// peer is a node with its two pods: a asks, and b is asked.
type peer struct {
	node string
	host netip.Addr
	a, b pod
}

type pod struct {
	name  string
	addrs []netip.Addr
}

// Run tries everything. An error means that it could not be tried; what was found until then is returned with it.
func Run(ctx context.Context, cfg Config) (results []Result, err error) {
	if cfg.Now == nil {
		cfg.Now = func(string) {}
	}
	c := &check{Config: cfg, namespace: fmt.Sprintf("twill-check-%08x", rand.Uint32())}
	cfg.Now("nodes")
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if !cfg.Keep {
			cfg.Now("removing what was made")
			err = errors.Join(err, c.remove(context.WithoutCancel(ctx)))
		}
	}()
	if err := c.start(ctx); err != nil {
		return c.results, err
	}
	if err := c.paths(ctx); err != nil {
		return c.results, err
	}
	if c.stops("policies") {
		return c.results, ctx.Err()
	}
	err = c.policies(ctx)
	return c.results, errors.Join(err, ctx.Err())
}

// stops reports, and says in the results, that what comes next is not tried: something has failed, and what is there is to be looked at.
func (c *check) stops(before string) bool {
	is := c.Keep && slices.ContainsFunc(c.results, func(r Result) bool { return r.Result == Failed })
	if is {
		c.skip(before, "something failed before, and is left as it was then (--keep)")
	}
	return is
}

// prepare finds the nodes and the image.
func (c *check) prepare(ctx context.Context) error {
	var nodes struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ Unschedulable bool }
			Status   struct {
				Conditions []struct{ Type, Status string }
				Addresses  []struct{ Type, Address string }
				NodeInfo   struct{ OperatingSystem string }
			}
		}
	}
	if err := c.API.Read(ctx, "/api/v1/nodes", nil, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes.Items {
		ready := slices.ContainsFunc(n.Status.Conditions, func(x struct{ Type, Status string }) bool { return x.Type == "Ready" && x.Status == "True" })
		if !ready || n.Spec.Unschedulable || n.Status.NodeInfo.OperatingSystem == "windows" {
			why := "it is not Ready"
			if ready {
				why = "it takes no pods"
			}
			c.results = append(c.results, Result{Test: "node takes part", From: n.Metadata.Name, Result: Skipped, Detail: why})
			continue
		}
		p := peer{node: n.Metadata.Name}
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == "InternalIP" && !p.host.IsValid() {
				p.host = addr
			}
		}
		c.peers = append(c.peers, p)
	}
	if len(c.peers) == 0 {
		return errors.New("no node of the cluster is Ready and takes pods")
	}
	if c.Nodes > 0 && c.Nodes < len(c.peers) {
		rand.Shuffle(len(c.peers), func(i, j int) { c.peers[i], c.peers[j] = c.peers[j], c.peers[i] })
		c.peers = c.peers[:c.Nodes]
	}
	slices.SortFunc(c.peers, func(a, b peer) int { return strings.Compare(a.node, b.node) })
	if c.Image != "" {
		return nil
	}
	return c.findImage(ctx)
}

func (c *check) findImage(ctx context.Context) error {
	var sets struct {
		Items []struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct{ Name, Image string }
					}
				}
			}
		}
	}
	for _, label := range []string{"twill-node", "calico-node"} {
		if err := c.API.Read(ctx, "/apis/apps/v1/daemonsets", map[string]string{"labelSelector": "k8s-app=" + label}, &sets); err != nil {
			return fmt.Errorf("list DaemonSets: %w", err)
		}
		for _, s := range sets.Items {
			for _, x := range s.Spec.Template.Spec.Containers {
				if strings.Contains(x.Image, "twill") {
					c.Image = x.Image
					return nil
				}
			}
		}
	}
	return ErrNoImage
}

// next is the peer on another node; without one, false.
func (c *check) next(i int) (peer, bool) { return c.peers[(i+1)%len(c.peers)], len(c.peers) > 1 }

func at(a netip.Addr, port int) string { return net.JoinHostPort(a.String(), fmt.Sprint(port)) }

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
