// Package flows reports what the kernel's rules dropped and, on request, allowed or logged: the packet, the endpoints,
// and the rule and policy that decided.
//
// In: reports of the kernel (package nflog), the names under which they come (package attribution), endpoints and
// interfaces. Out: a [Flow] for each report, to all listeners, and the last ones to new listeners. For endpoints
// with staged policies it also has what those would have decided, and counts that.
//
// It follows package dataplane's loop, and writes nothing to the kernel. A report is of one packet: a sender that tries
// again is reported again, and an allowed flow once for each endpoint whose policy it passes.
package flows

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nflog"
	"github.com/twillnet/twill/internal/verdict"
)

// Flow is the report of one packet.
type Flow struct {
	Time     time.Time  `json:"time"`
	Allowed  bool       `json:"allowed"`
	Logged   bool       `json:"logged,omitempty"`   // by a rule with action Log: nothing was decided, and Allowed has no meaning
	Prefix   string     `json:"prefix,omitempty"`   // under which that rule reports, as the settings have it
	Reason   string     `json:"reason"`             // "rule", or why without one
	Endpoint string     `json:"endpoint,omitempty"` // the endpoint of the decision: namespace/workload, or the host endpoint
	Dir      string     `json:"direction"`          // of that endpoint: Ingress or Egress
	Tier     string     `json:"tier,omitempty"`
	Policy   string     `json:"policy,omitempty"`  // kind/namespace/name, or kind/name
	Rule     int        `json:"rule"`              // its index in that direction; -1: no rule
	Changed  bool       `json:"changed,omitempty"` // the rules of the policy have changed since
	Src      netip.Addr `json:"src"`
	Dst      netip.Addr `json:"dst"`
	From     string     `json:"from,omitempty"` // the endpoint of this node that has Src, if any
	To       string     `json:"to,omitempty"`
	Proto    uint8      `json:"proto"`
	SrcPort  uint16     `json:"srcPort,omitempty"`
	DstPort  uint16     `json:"dstPort,omitempty"`
	ICMPType uint8      `json:"icmpType,omitempty"`
	ICMPCode uint8      `json:"icmpCode,omitempty"`
	In       string     `json:"in,omitempty"`  // interface, by #index if its name is not known; empty: from a process of the host, or open at this stage
	Out      string     `json:"out,omitempty"` // likewise
	// Missed is how many flows between this one and the last were not delivered to this reader, who was too slow for them.
	Missed uint64 `json:"missed,omitempty"`
	// Staged is what staged policies would have decided, if that differs.
	Staged *Would `json:"staged,omitempty"`
}

// Would is a decision of staged policies, which is not enforced.
type Would struct {
	Allowed  bool   `json:"allowed"`
	Reason   string `json:"reason"`
	Endpoint string `json:"endpoint,omitempty"`
	Dir      string `json:"direction"`
	Tier     string `json:"tier,omitempty"`
	Policy   string `json:"policy,omitempty"`
	Rule     int    `json:"rule"`
}

// Source delivers reports; *nflog.Conn implements it.
type Source interface {
	Receive(deadline time.Time) (nflog.Packet, bool, error)
	Lost() uint64
	Close() error
}

// Config is the settings of a Collector.
type Config struct {
	Names  *attribution.Table
	Open   func() (Source, error)
	Staged func(verdict.Packet) verdict.Verdict // returns the verdict on a packet if staged policies were enforced
	Retry  time.Duration                        // wait until the source is opened again after a failure; zero means 5s
	Log    *slog.Logger                         // nil: nothing is logged
	What   string                               // is reported, for Log; empty means "what policy drops"
	Print  *slog.Logger                         // where flows are also logged, a line each, as far as [Budget] allows; nil: not
}

// Kept is how many flows are kept for later listeners.
const Kept = 1000

// Collector collects the kernel's reports. Use New; it works while Run runs.
type Collector struct {
	cfg Config

	mu        sync.Mutex
	endpoints map[intent.EndpointID]endpoint
	byLink    map[string]intent.EndpointID // of workloads, and of host endpoints that name an interface
	byAddr    map[netip.Addr]string        // the owner of an address, if it is of this node
	links     map[int]string               // by index
	staged    int                          // number of endpoints with staged policies
	ring      []Flow
	next      int // in ring, once it is full
	listeners map[chan Flow]*uint64
	counts    Counts
	prefix    intent.LogSettings // of rules with action Log
	journal   journal            // Run's
}

// endpoint is what flows have of an endpoint.
type endpoint struct {
	label  string
	link   string
	addrs  []netip.Addr
	staged bool
	asks   *intent.Group
}

// New returns a collector without flows.
func New(cfg Config) *Collector {
	if cfg.Retry == 0 {
		cfg.Retry = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.What = cmp.Or(cfg.What, "what policy drops")
	return &Collector{
		journal: journal{out: cfg.Print},
		cfg:     cfg, endpoints: map[intent.EndpointID]endpoint{}, byLink: map[string]intent.EndpointID{}, byAddr: map[netip.Addr]string{},
		links: map[int]string{}, listeners: map[chan Flow]*uint64{}, counts: Counts{Staged: map[Would]uint64{}},
	}
}

// InForce takes endpoints whose policy is in force; the kernel's reports are of these alone.
func (c *Collector) InForce(b intent.Batch, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.Host != nil {
		c.prefix = b.Host.Log
	}
	for _, e := range b.Endpoints {
		c.forget(e.ID)
		label := e.Label
		if label == "" {
			label = e.ID.Namespace + "/" + e.ID.Name
		}
		if e.ID.Kind == intent.Host {
			label = "host/" + e.ID.Name
		}
		n := endpoint{label: label, link: e.Link, addrs: e.Addrs, staged: e.Policies().Staged != nil, asks: e.Policies()}
		c.endpoints[e.ID] = n
		if _, taken := c.byLink[e.Link]; e.Link != "" && (e.Closed == "" || !taken) { // an open one comes first
			c.byLink[e.Link] = e.ID
		}
		if e.ID.Kind == intent.Workload {
			for _, a := range e.Addrs {
				c.byAddr[a] = label
			}
		}
		if n.staged {
			c.staged++
		}
	}
	for _, k := range b.Removed {
		switch id := k.(type) {
		case intent.PolicyID:
			maps.DeleteFunc(c.counts.Staged, func(w Would, _ uint64) bool { return w.Policy == id.String() })
		case intent.EndpointID:
			c.forget(id)
		}
	}
}

func (c *Collector) forget(id intent.EndpointID) {
	n, known := c.endpoints[id]
	if !known {
		return
	}
	delete(c.endpoints, id)
	if c.byLink[n.link] == id {
		delete(c.byLink, n.link)
	}
	for _, a := range n.addrs {
		if c.byAddr[a] == n.label {
			delete(c.byAddr, a)
		}
	}
	if n.staged {
		c.staged--
	}
}

// Links takes the names of interfaces.
func (c *Collector) Links(changes []ifmon.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range changes {
		if ch.Gone {
			delete(c.links, ch.Index)
		} else {
			c.links[ch.Index] = ch.Name
		}
	}
}

// link names an interface. An unknown one is no workload's, but not the host itself either.
func (c *Collector) link(index int) string {
	name, known := c.links[index]
	if !known && index != 0 {
		return "#" + strconv.Itoa(index)
	}
	return name
}

// Run reads reports until the context ends. Without them, everything else goes on.
func (c *Collector) Run(ctx context.Context) error {
	for {
		if err := c.follow(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Warn(c.cfg.What+" is not reported", "err", err, "retry_in", c.cfg.Retry)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(c.cfg.Retry):
		}
	}
}

func (c *Collector) follow(ctx context.Context) error {
	s, err := c.cfg.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	c.mu.Lock()
	before := c.counts.Lost // of sources that were closed
	c.mu.Unlock()
	const look = time.Second // the longest delay after the end of the context
	for ctx.Err() == nil {
		p, ok, err := s.Receive(time.Now().Add(look))
		if err != nil {
			return err
		}
		if ok {
			c.report(p)
		}
		c.journal.turn(time.Now())
		c.mu.Lock()
		c.counts.Lost = before + s.Lost()
		c.mu.Unlock()
	}
	return nil
}
