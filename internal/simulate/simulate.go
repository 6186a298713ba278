// Package simulate says what a cluster costs that is larger than any at hand.
//
// In: a [Config]: how many nodes, endpoints and policies, and how many changes a second. Out: a [Report]: what the store holds and
// sends, what an agent needs of memory and processor, how long a change takes to be known everywhere, and what is used up first.
//
// Some agents are calculated in full: syncer, calc and the desired state, carried out in memory (dataplane/sim). They run one after the
// other on the same world and the same changes, both of which follow from the seed and are never held as a whole, so that a simulation
// needs the memory of one agent. All other agents are counted: which messages each gets is known, what they make of them is that of the
// calculated ones, by the kind of the change and by whether it is of the node's own ([Report] says of each figure how it is known).
//
// Counts follow from the seed. Times are measured, and what is worked out from them is modelled (convergence, limits): see model.go.
package simulate

import (
	"context"
	"fmt"
	"time"
)

// Config is a cluster, and how to look at it.
type Config struct {
	Nodes, Endpoints, Policies int
	Churn                      float64       // changes a second
	Duration                   time.Duration // of virtual time, in which there are changes
	Seed                       uint64
	Sample                     int // agents that are calculated in full
	// Check calculates all agents in full, and says how far the figures of the sample are from theirs.
	Check bool
	Store StoreCosts

	CPU       func() time.Duration // processor time of this process so far
	Available uint64               // bytes of memory that may be used; zero: nobody knows
	Progress  Progress             // nil: no progress is reported
}

// StoreCosts are what the model of the store goes by.
type StoreCosts struct {
	Send   time.Duration // processor time for one message to one agent
	Cores  float64       // that send messages
	Commit time.Duration // from a write until it may be sent
}

// Progress is told how far a simulation is.
type Progress interface {
	Step()           // an agent is done
	Now(what string) // what is being done
}

// MostInFull is how many agents Check calculates at most.
const MostInFull = 100

// ConfigError is about one of the fields of a Config, by the name of its flag.
type ConfigError struct{ Flag, Want string }

func (e *ConfigError) Error() string { return fmt.Sprintf("--%s: %s", e.Flag, e.Want) }

// MemoryError says that a simulation needs more memory than there is.
type MemoryError struct{ Need, Available uint64 }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("it would need %s of memory, and %s are available: say fewer --endpoints, --policies or --nodes", bytesText(e.Need), bytesText(e.Available))
}

// Validate says what is wrong with a configuration.
func (c Config) Validate() error {
	for _, f := range []struct {
		flag  string
		wrong bool
		want  string
	}{
		{"nodes", c.Nodes < 1, "want at least 1"},
		{"nodes", c.Check && c.Nodes > MostInFull, fmt.Sprintf("--check calculates every node in full, so want at most %d", MostInFull)},
		{"endpoints", c.Endpoints < 1, "want at least 1"},
		{"policies", c.Policies < 0, "want no negative number"},
		{"churn", !(c.Churn > 0 && c.Churn <= 1e6), "want a number of changes a second, at most a million"},
		{"duration", c.Duration <= 0, "want more than 0s"},
		{"duration", c.events() < 1, fmt.Sprintf("no change would happen in %v; want more", c.Duration)},
		{"duration", c.events() > 1_000_000, "more than a million changes would happen; want less"},
		{"sample", c.Sample < 1 || c.Sample > c.Nodes, "want from 1 to as many as there are nodes"},
		{"store-send", c.Store.Send < 0, "want no negative time"},
		{"store-commit", c.Store.Commit < 0, "want no negative time"},
		{"store-cores", !(c.Store.Cores > 0), "want more than 0"},
	} {
		if f.wrong {
			return &ConfigError{f.flag, f.want}
		}
	}
	if w := newWorld(c); w.Nodes*w.blocksPerNode*blockSize > mostAddrs {
		return &ConfigError{"endpoints", fmt.Sprintf("%d blocks of %d addresses do not fit into 10.0.0.0/8", w.Nodes*w.blocksPerNode, blockSize)}
	}
	if need := c.Memory(); c.Available > 0 && need > c.Available {
		return &MemoryError{need, c.Available}
	}
	return nil
}

// events is how many changes there are.
func (c Config) events() int { return int(c.Churn*c.Duration.Seconds() + 0.5) }

// Memory is how much a simulation needs at most, in bytes: measured with room for what Go has not collected yet.
func (c Config) Memory() uint64 {
	return 64<<20 + 5000*uint64(c.Endpoints) + 16000*uint64(c.Policies) + 4000*uint64(c.Nodes) + 16000*uint64(min(c.events(), c.Endpoints)) //nolint:gosec // none is negative
}

// Run simulates. It ends early with the context.
func Run(ctx context.Context, c Config) (*Report, error) {
	if c.Progress == nil {
		c.Progress = silent{}
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	w := newWorld(c)
	p := newPlan(w)
	full := p.sample
	if c.Check {
		full = p.all()
	}
	var done []result
	for _, node := range full {
		r, err := calculate(ctx, p, node)
		if err != nil {
			return nil, fmt.Errorf("agent of %s: %w", w.nodeName(node), err)
		}
		done = append(done, r)
		c.Progress.Step()
	}
	return report(p, done), nil
}

// Agents is how many agents are calculated in full.
func (c Config) Agents() int {
	if c.Check {
		return c.Nodes
	}
	return c.Sample
}

type silent struct{}

func (silent) Step()      {}
func (silent) Now(string) {}
