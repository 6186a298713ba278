package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/twillnet/twill/api"
)

// The ways through a host that are compared.
const (
	WayPlain     = "plain forwarding"
	WayConntrack = "conntrack alone"
	WayIPTables  = "iptables and ipset"
	WayNFT       = "nft script"
	WayChains    = "Twill, chains"
	WayCompiled  = "Twill, compiled"
)

// Ways are all of them, as tables have them.
var Ways = []string{WayPlain, WayConntrack, WayIPTables, WayNFT, WayChains, WayCompiled}

// renderings are the values of the setting policyRendering by way.
var renderings = map[string]string{WayChains: "Chains", WayCompiled: "Compiled"}

const peersOfConnections = 1000 // endpoints on other nodes, while connections are measured

// Config says what to measure.
type Config struct {
	Twill    Twill
	Scratch  string                        // a directory for etcd's data; better in memory
	Policies []int                         // how many apply, while connections are measured
	Pairs    int                           // rounds
	Block    int                           // connections in a row, at most; fewer where they take longer than a second
	Stream   int                           // bytes of a stream
	Points   []Point                       // worlds in which changes are measured
	Rounds   int                           // starts of each agent in each
	Each     int                           // changes of each kind in a round
	Say      func(format string, a ...any) // progress
	Keep     func() error                  // is called when the results have one more number of policies, or world
}

// Connections measures new connections, their processor time, and one stream, by each way and number of policies. What the results had of
// that number is replaced.
func (c Config) Connections(ctx context.Context, r *Results) error {
	for _, policies := range c.Policies {
		r.Connections = slices.DeleteFunc(r.Connections, func(p Path) bool { return p.Policies == policies })
		if err := errors.Join(c.connectionsOf(ctx, r, policies), c.Keep()); err != nil {
			return fmt.Errorf("%d policies: %w", policies, err)
		}
	}
	return nil
}

func (c Config) connectionsOf(ctx context.Context, r *Results, policies int) (err error) {
	e, err := c.Twill.startEtcd(ctx, c.Scratch)
	if err != nil {
		return err
	}
	defer e.close()
	world := World{Policies: policies, Endpoints: peersOfConnections, All: true}
	c.Say("%d policies: writing the datastore", policies)
	nodes := []string{}
	for i := range Ways {
		nodes = append(nodes, nodeOf(i))
	}
	if err := world.load(ctx, e.store, nodes, nil); err != nil {
		return err
	}
	lanes := make([]*lane, len(Ways))
	defer func() {
		for _, l := range lanes {
			if l != nil {
				l.close()
				l.bed.close()
			}
		}
	}()
	for i, way := range Ways {
		c.Say("%d policies: %s", policies, way)
		if lanes[i], err = c.prepare(ctx, e, world, i); err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
	return c.rounds(ctx, r, policies, lanes)
}

func nodeOf(i int) string { return fmt.Sprintf("n%d", i) }

// prepare makes a host with a way, and waits until its workload is reached.
func (c Config) prepare(ctx context.Context, e *etcd, world World, i int) (l *lane, err error) {
	b, err := newBed(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	addr := localAddr(i)
	if err := b.plug(i); err != nil {
		return nil, err
	}
	by := script{world, linkOf(i)}
	switch way := Ways[i]; way {
	case WayPlain, WayConntrack, WayIPTables, WayNFT:
		err = b.route(i, addr)
		if err == nil && way == WayConntrack {
			err = b.run(conntrackAlone, "nft", "-f", "-")
		}
		if err == nil && way == WayNFT {
			err = b.run(by.nft(), "nft", "-f", "-")
		}
		if err == nil && way == WayIPTables {
			if err = b.run(by.ipset(), "ipset", "restore"); err == nil {
				err = b.run(by.iptables(), "iptables-nft-restore")
			}
		}
	default:
		if err = putAll(ctx, e.store, []api.Update{local(nodeOf(i), i, false)}); err == nil {
			err = b.startAgent(c.Twill, e, nodeOf(i), renderings[way])
		}
	}
	if err != nil {
		return nil, err
	}
	if l, err = b.listen(addr); err != nil {
		return nil, err
	}
	if err := l.opened(ctx); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// rounds measures all lanes of one number of policies in turn.
func (c Config) rounds(ctx context.Context, r *Results, policies int, lanes []*lane) error {
	blocks := make([]int, len(lanes))
	for i, l := range lanes { // also warms
		first, err := l.connections(100, clients)
		if err != nil {
			return err
		}
		blocks[i] = min(c.Block, max(100, int(first.PerSecond)))
	}
	for round := range c.Pairs {
		c.Say("%d policies: round %d of %d", policies, round+1, c.Pairs)
		for _, i := range rand.Perm(len(lanes)) {
			load, err := lanes[i].connections(blocks[i], clients)
			if err := errors.Join(err, ctx.Err(), lanes[i].bed.died()); err != nil {
				return err
			}
			gbps, err := lanes[i].stream(c.Stream)
			if err != nil {
				return fmt.Errorf("%s: %w", Ways[i], err)
			}
			p := r.path(policies, Ways[i])
			p.PerSecond, p.CPU, p.Gbps = append(p.PerSecond, load.PerSecond), append(p.CPU, load.CPU), append(p.Gbps, gbps)
			p.Failed += load.Failed
		}
	}
	return nil
}
