package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/lab/script"
	"github.com/twillnet/twill/internal/terminal"
)

// Runner runs scenarios, each on hosts of its own that are gone afterwards.
type Runner struct {
	Exe      string    // the binary that the hosts run; empty means this one
	Out      io.Writer // results
	Progress io.Writer // progress of long work; may be nil
	Verbose  bool      // print each step, and the output of programs
	Bundle   string    // where a failed scenario leaves what it knows; empty means the system's temporary directory
	BIRD     []string  // hosts for which BIRD speaks BGP from the begin; AllHosts means all
	Cluster  *Cluster  // where scenarios keep their resources; nil: in an etcd of their own
	Relay    bool      // hosts read the datastore by a relay (twill relay), beside the datastore
	Proxy    bool      // hosts reach etcd by a proxy of their own (twill etcd proxy)
	// Dataplane is where all hosts have policy, whatever settings of the datastore say: one of Dataplanes. Empty: as those say.
	Dataplane string
	Keep      bool // leave hosts and processes as they are at the end, as a lab that Down removes
}

// Dataplanes are those that a runner may choose for all hosts.
var Dataplanes = []string{"nftables", "iptables-nft", "iptables-legacy"}

// settingsOf are, for each, the variables of the environment by which a host has it: they go before what the datastore says.
var settingsOf = map[string][]string{
	"":                nil,
	"nftables":        {"FELIX_NFTABLESMODE=Enabled"},
	"iptables-nft":    {"FELIX_NFTABLESMODE=Disabled", "FELIX_IPTABLESBACKEND=NFT"},
	"iptables-legacy": {"FELIX_NFTABLESMODE=Disabled", "FELIX_IPTABLESBACKEND=Legacy"},
}

// AllHosts stands for every host of a scenario.
const AllHosts = "all"

// Result is what came of a scenario.
type Result struct {
	Name   string
	Steps  int // that were done
	Took   time.Duration
	Err    error  // nil: passed; else it begins with file and line
	Bundle string // of a failed one
	Kept   string // directory of the lab that was kept
}

// RunAll runs scenarios one after the other, and prints how many passed and failed.
func (r Runner) RunAll(ctx context.Context, scripts []*script.Script) (passed, failed int) {
	if r.Out == nil {
		r.Out = io.Discard
	}
	for _, s := range scripts {
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(r.Out, "%s: %s\n", scenarioName(s), s.Title)
		res := r.Run(ctx, s)
		if res.Err == nil {
			passed++
			fmt.Fprintf(r.Out, "  passed, %d steps, %s\n", res.Steps, res.Took.Round(10*time.Millisecond))
		} else {
			failed++
			fmt.Fprintf(r.Out, "  FAILED: %s\n", strings.ReplaceAll(res.Err.Error(), "\n", "\n    "))
		}
		for _, left := range []struct{ what, dir string }{{"bundle", res.Bundle}, {"kept", res.Kept}} {
			if left.dir != "" {
				fmt.Fprintf(r.Out, "  %s: %s\n", left.what, left.dir)
			}
		}
	}
	fmt.Fprintf(r.Out, "%d passed, %d failed\n", passed, failed)
	return passed, failed
}

func scenarioName(s *script.Script) string {
	return strings.TrimSuffix(filepath.Base(s.File), filepath.Ext(s.File))
}

// scenarios counts those of this process, for names that nobody else has.
var scenarios atomic.Int64

// Run runs one scenario. Several may run at once.
func (r Runner) Run(ctx context.Context, s *script.Script) Result {
	begin := time.Now()
	res := Result{Name: scenarioName(s)}
	if os.Geteuid() != 0 {
		res.Err = errors.New("a lab makes network namespaces: run it as root")
		return res
	}
	p := terminal.Begin(r.Progress, "steps of "+res.Name, len(s.Steps))
	defer p.End()
	if r.Out != nil {
		r.Out = p.Above(r.Out)
	}
	c, err := r.newScenario(s)
	if err != nil {
		res.Err = err
		return res
	}
	for _, step := range s.Steps {
		p.Now(step.Text)
		if err := c.step(ctx, step); err != nil {
			res.Err = fmt.Errorf("%s:%d: %s: %w", s.File, step.Line, step.Text, err)
			break
		}
		res.Steps++
		p.Step()
	}
	if res.Err != nil {
		res.Bundle = c.bundle(r.Bundle, res.Err)
	}
	end := c.close
	if r.Keep {
		end, res.Kept = c.save, c.Dir
	}
	c.quiet()
	if err := end(); err != nil && res.Err == nil {
		res.Err = fmt.Errorf("%s: clean up: %w", s.File, err)
	}
	res.Took = time.Since(begin)
	return res
}

// scenario is a script while it runs.
type scenario struct {
	*Lab
	script   *script.Script
	verbose  io.Writer
	log      strings.Builder // each step and how long it took, for the bundle
	kept     storage
	storeOn  string   // the host that has it; empty: none
	runs     bool     // kept does
	ready    bool     // it said whether it is, at some time
	relayed  bool     // as the runner has it
	proxied  bool     // likewise
	settings []string // of the environment of hosts, for the dataplane of the runner
	relay    *process
	nodes    map[string]*process
	bird     []string          // as the runner has it
	bgp      map[string]string // by host, where a step said who speaks BGP
	cut      map[string]bool   // hosts that the store cannot answer
	settled  bool              // nothing was changed since all kernels were seen to be right
	streams  map[string]*watched
	captures map[string]*capture
	links    map[string]script.Link
	stdout   string // of the last program
	stderr   string
}

// newScenario makes a place for files and names; the hosts come with the first step.
func (r Runner) newScenario(s *script.Script) (*scenario, error) {
	settings, known := settingsOf[r.Dataplane]
	if !known {
		return nil, fmt.Errorf("no dataplane %q: %s", r.Dataplane, strings.Join(Dataplanes, ", "))
	}
	dir, err := os.MkdirTemp("", "twill-lab-")
	if err != nil {
		return nil, err
	}
	c := &scenario{
		Lab: &Lab{Dir: dir, Exe: r.Exe, Spec: Spec{Prefix: fmt.Sprintf("twt%d.%d-", os.Getpid(), scenarios.Add(1))}}, script: s, verbose: io.Discard, bird: r.BIRD, relayed: r.Relay, proxied: r.Proxy, settings: settings, bgp: map[string]string{},
		nodes: map[string]*process{}, cut: map[string]bool{}, streams: map[string]*watched{}, captures: map[string]*capture{}, links: map[string]script.Link{},
	}
	c.kept = &etcd{c: c}
	if r.Cluster != nil {
		c.kept = &cluster{Cluster: r.Cluster, c: c}
	}
	if r.Verbose && r.Out != nil {
		c.verbose = r.Out
	}
	return c, c.defaults()
}

// step runs one line, and logs it.
func (c *scenario) step(ctx context.Context, s script.Step) error {
	if err := ctx.Err(); err != nil {
		return errors.New("interrupted")
	}
	begin := time.Now()
	err := c.do(ctx, s.Do)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	line := fmt.Sprintf("  %4d  %-64s %s\n", s.Line, s.Text, time.Since(begin).Round(time.Millisecond))
	c.log.WriteString(line)
	fmt.Fprint(c.verbose, line)
	return err
}

// do does what a step says. Whatever may change something makes kernels unsettled.
func (c *scenario) do(ctx context.Context, a script.Action) error {
	if done, err := c.observe(ctx, a); done {
		return err
	}
	c.settled = false
	switch a := a.(type) {
	case script.Hosts:
		return c.hosts(ctx, a)
	case script.Link:
		return c.link(a)
	case script.Workload:
		return c.workload(ctx, a)
	case script.Endpoint:
		return c.endpoint(ctx, a)
	case script.Apply:
		return c.applyFiles(ctx, a)
	case script.Delete:
		return c.deleteSome(ctx, a)
	case script.Put:
		return c.put(ctx, a)
	case script.Restart:
		return c.restart(ctx, a)
	case script.Kill:
		return c.kill(ctx, a)
	case script.Busy:
		return c.busy(ctx, a)
	case script.BGP:
		return c.switchBGP(a)
	case script.Cut:
		return c.cutOrHeal(a)
	case script.Compact:
		return c.compact(ctx)
	case script.Empty:
		return c.empty(ctx)
	case script.Power:
		return c.power(ctx, a)
	case script.Exec:
		return c.exec(ctx, a)
	}
	return fmt.Errorf("no way to do %T", a)
}

// observe does the steps that only look.
func (c *scenario) observe(ctx context.Context, a script.Action) (done bool, err error) {
	switch a := a.(type) {
	case script.Reach:
		return true, c.reach(ctx, a)
	case script.Stream:
		return true, c.stream(ctx, a)
	case script.StreamCheck:
		return true, c.checkStream(ctx, a)
	case script.Match:
		return true, c.match(a)
	case script.Status:
		return true, c.status(ctx, a)
	case script.Capture:
		return true, c.capture(a)
	case script.CaptureCheck:
		return true, c.checkCapture(ctx, a)
	case script.WaitAgent:
		return true, c.waitAgent(ctx, a.Host)
	case script.WaitSettled:
		return true, c.settle(ctx)
	case script.WaitStatus:
		return true, c.waitStatus(ctx, a)
	case script.WaitLog:
		return true, c.waitLog(ctx, a)
	case script.WaitMetric:
		return true, c.waitMetric(ctx, a)
	case script.WaitExec:
		return true, c.waitExec(ctx, a)
	}
	return false, nil
}

// quiet ends streams and captures, which live in this process.
func (c *scenario) quiet() {
	for _, s := range c.streams {
		s.stopSending()
		s.close()
	}
	for _, p := range c.captures {
		p.close()
	}
}

// killAll ends what programs of the scenario left running in a namespace of its own: daemons that have no parent any more.
func killAll(ns string) error {
	pids, err := netns.Processes(ns)
	for _, pid := range pids {
		if kerr := syscall.Kill(pid, syscall.SIGKILL); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, kerr)
		}
	}
	return err
}

// close stops and removes all that the scenario made.
func (c *scenario) close() error {
	// The nodes may end together, and the store after them.
	ends := make(chan error)
	for _, p := range c.nodes {
		go func() { ends <- p.stop() }()
	}
	var errs []error
	for range c.nodes {
		errs = append(errs, <-ends)
	}
	if c.relay != nil {
		errs = append(errs, c.relay.stop())
	}
	errs = append(errs, c.kept.close())
	names, err := netns.List()
	errs = append(errs, err)
	for _, n := range names {
		if strings.HasPrefix(n, c.Spec.Prefix) {
			errs = append(errs, killAll(n), netns.Delete(n))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(c.Dir))...)
}
