package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Point is a world in which changes are measured: each policy applies to one workload of 50, of which the host has 100.
type Point struct{ Policies, Endpoints int }

const (
	workloads    = 100                   // of the host, while changes are measured
	node         = "n0"                  // that host
	probedPolicy = 5                     // the policy whose rule changes
	rest         = 20 * time.Millisecond // at least between two changes; up to twice as long
)

// Changes measures starts, changes and the kernel's memory, for each point in both renderings. What the results had of
// that point is replaced.
func (c Config) Changes(ctx context.Context, r *Results) error {
	for _, at := range c.Points {
		r.Changes = slices.DeleteFunc(r.Changes, func(x Change) bool { return x.Policies == at.Policies && x.Endpoints == at.Endpoints })
		if err := errors.Join(c.changesAt(ctx, r, at), c.Keep()); err != nil {
			return fmt.Errorf("%d policies, %d endpoints: %w", at.Policies, at.Endpoints, err)
		}
	}
	return nil
}

func (c Config) changesAt(ctx context.Context, r *Results, at Point) (err error) {
	e, err := c.Twill.startEtcd(ctx, c.Scratch)
	if err != nil {
		return err
	}
	defer e.close()
	s := &scene{Config: c, etcd: e, world: World{Policies: at.Policies, Endpoints: at.Endpoints}}
	c.Say("%d policies, %d endpoints: writing the datastore", at.Policies, at.Endpoints)
	var locals []api.Update
	for i := range workloads {
		locals = append(locals, local(node, i, false))
	}
	if err := s.world.load(ctx, e.store, []string{node}, locals); err != nil {
		return err
	}
	for round := range c.Rounds {
		for _, i := range rand.Perm(2) {
			way := Ways[4+i]
			c.Say("%d policies, %d endpoints: round %d of %d, %s", at.Policies, at.Endpoints, round+1, c.Rounds, way)
			if err := s.round(ctx, renderings[way], r.change(at, renderings[way])); err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
		}
	}
	return nil
}

// scene is a datastore with a world, and the host that is measured.
type scene struct {
	Config
	etcd  *etcd
	world World
	bed   *bed
	count int // of changes, so that each has addresses and ports of its own
}

// round is the life of one agent.
func (s *scene) round(ctx context.Context, rendering string, into *Change) (err error) {
	if s.bed, err = newBed(ctx); err != nil {
		return err
	}
	defer func() { s.bed.close() }()
	for i := range workloads {
		if err := s.bed.plug(i); err != nil {
			return err
		}
	}
	if err := s.cold(ctx, rendering, into); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	for _, kind := range []struct {
		name   string
		change func(context.Context) (float64, error)
		ms     *Figures
		cpu    *Figures
	}{
		{"a remote endpoint comes", s.remote, &into.Remote, &into.RemoteCPU},
		{"a policy's rule changes", s.rule, &into.Policy, &into.PolicyCPU},
		{"a workload comes", s.workload, &into.New, &into.NewCPU},
	} {
		if err := s.many(ctx, kind.change, kind.ms, kind.cpu); err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	s.list(into)
	return s.memory(ctx, into)
}

// cold starts the agent, and waits until a datagram has reached each workload.
func (s *scene) cold(ctx context.Context, rendering string, into *Change) error {
	p, err := s.bed.probe(remoteAddr(0), portUDP)
	if err != nil {
		return err
	}
	defer p.close()
	began := time.Now()
	if err := s.bed.startAgent(s.Twill, s.etcd, node, rendering); err != nil {
		return err
	}
	reached := map[uint32]bool{}
	if err := await(ctx, "all workloads are reached", s.bed.died, func() (bool, error) {
		for i := range uint32(workloads) {
			if !reached[i] {
				p.send(sockaddr(localAddr(int(i)), portUDP), i)
			}
		}
		for n, ok := p.received(); ok; n, ok = p.received() {
			reached[n] = true
		}
		return len(reached) == workloads, nil
	}); err != nil {
		return err
	}
	into.Cold = append(into.Cold, time.Since(began).Seconds())
	cpu, err1 := s.bed.agent.cpu()
	peak, err2 := s.bed.agent.peak()
	into.ColdCPU, into.PeakMB = append(into.ColdCPU, cpu.Seconds()), append(into.PeakMB, peak)
	return errors.Join(err1, err2)
}

// many makes changes of one kind, each after a rest.
func (s *scene) many(ctx context.Context, change func(context.Context) (float64, error), ms, cpu *Figures) error {
	before, err := s.bed.agent.cpu()
	if err != nil {
		return err
	}
	for range s.Each {
		time.Sleep(rest + rand.N(rest))
		took, err := change(ctx)
		if err := errors.Join(err, s.bed.died()); err != nil {
			return err
		}
		*ms = append(*ms, took)
		s.count++
	}
	time.Sleep(rest)
	after, err := s.bed.agent.cpu()
	*cpu = append(*cpu, float64((after-before).Microseconds())/1000/float64(s.Each))
	return err
}

// enforced writes something and returns the milliseconds from the answer until a datagram from an address arrives.
func (s *scene) enforced(ctx context.Context, from, to string, port int, u api.Update) (float64, error) {
	p, err := s.bed.probe(from, port)
	if err != nil {
		return 0, err
	}
	defer p.close()
	if err := datastore.Put(ctx, s.etcd.store, u); err != nil {
		return 0, err
	}
	began := time.Now()
	at, err := p.arrival(sockaddr(to, port), uint32(s.count)+1_000_000, patience)
	return float64(at.Sub(began).Microseconds()) / 1000, err
}

// remote is an endpoint on another node that comes, and may send to any workload here; it is removed again.
func (s *scene) remote(ctx context.Context) (float64, error) {
	labels := labelsOf(s.count)
	labels["role"] = "prober"
	u := endpoint("r00000", fmt.Sprintf("p%06d", s.count), "calip", macOf(s.count), probeAddr(s.count), labels)
	ms, err := s.enforced(ctx, probeAddr(s.count), localAddr(s.count%workloads), portUDP, u)
	return ms, errors.Join(err, s.etcd.store.Delete(ctx, u.Key, api.Revision{}))
}

// rule is a policy that gets a rule about another port than before. Where there is no other it is the last policy that does.
func (s *scene) rule(ctx context.Context) (float64, error) {
	port := portFirst + s.count
	i := min(probedPolicy, s.world.Policies-1)
	return s.enforced(ctx, remoteAddr(0), localAddr(i), port, s.world.policy(i, port))
}

// workload is one that comes to this host, with its link; both are removed again.
func (s *scene) workload(ctx context.Context) (float64, error) {
	i := 1000 + s.count
	if err := s.bed.plug(i); err != nil {
		return 0, err
	}
	u := endpoint(node, fmt.Sprintf("q%06d", i), linkOf(i), macOf(i), freshAddr(s.count), labelsOf(s.count))
	ms, err := s.enforced(ctx, remoteAddr(0), freshAddr(s.count), portUDP, u)
	return ms, errors.Join(err, s.etcd.store.Delete(ctx, u.Key, api.Revision{}), s.bed.unplug(i))
}

// counter counts what is written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// list has nft print the whole ruleset, as an administrator does. That it fails is a result.
func (s *scene) list(into *Change) {
	var size counter
	cmd := exec.Command("nft", "list", "ruleset")
	cmd.Stdout = &size
	began := time.Now()
	err := s.bed.host.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		into.ListErrors = append(into.ListErrors, err.Error())
		return
	}
	into.ListSeconds, into.ListMB = append(into.ListSeconds, time.Since(began).Seconds()), append(into.ListMB, float64(size)/1e6)
}

// memory ends the agent, and measures what the kernel has free after its table is gone: slabs, pages of the address space for large
// arrays, and what is there for each processor. Frees come late, so it takes the largest of what it sees.
func (s *scene) memory(ctx context.Context, into *Change) error {
	s.bed.agent.kill()
	before, err := kernelMB()
	if err != nil {
		return err
	}
	if out, err := s.bed.host.Output(ctx, "nft", "delete", "table", "inet", "twill"); err != nil {
		return fmt.Errorf("nft delete table: %w: %s", err, out)
	}
	freed := 0.0
	for last := time.Now(); time.Since(last) < 200*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		now, err := kernelMB()
		if err != nil {
			return err
		}
		if before-now > freed+0.1 {
			freed, last = before-now, time.Now()
		}
	}
	into.KernelMB = append(into.KernelMB, freed)
	return nil
}

func kernelMB() (mb float64, err error) {
	for _, line := range []string{"Slab:", "VmallocUsed:", "Percpu:"} {
		kb, err := number("/proc/meminfo", line)
		if err != nil {
			return 0, err
		}
		mb += kb / 1024
	}
	return mb, nil
}
