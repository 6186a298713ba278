package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/terminal"
	"github.com/twillnet/twill/internal/verdict/world"
)

// Lab is a lab on this machine.
type Lab struct {
	Dir      string    // state, logs and the datastore; empty means DefaultDir
	Exe      string    // the binary that its hosts run; empty means this one
	Out      io.Writer // what was done
	Progress io.Writer // where progress of long work is shown; nil: nowhere
	Spec     Spec
}

// ErrUp means that there is one already.
var ErrUp = errors.New("a lab is up already: look at it with `twill lab status`, or take it down with `twill lab down`")

// DefaultDir is where the lab keeps its state.
const DefaultDir = "/run/twill-lab"

func (l *Lab) defaults() error {
	if l.Dir == "" {
		l.Dir = DefaultDir
	}
	if l.Exe == "" {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find own binary: %w", err)
		}
		l.Exe = exe
	}
	if l.Spec.Prefix == "" {
		l.Spec.Prefix = defaultPrefix
	}
	if l.Out == nil {
		l.Out = io.Discard
	}
	return nil
}

func (l *Lab) stateFile() string { return filepath.Join(l.Dir, "lab.json") }

// Socket is the datastore of a lab, reachable from any network namespace.
func (l *Lab) Socket() string { return "unix://" + filepath.Join(l.Dir, "etcd.sock") }

// AgentSocket is where the agent of a host answers.
func (l *Lab) AgentSocket(host string) string { return filepath.Join(l.Dir, host, "agent.sock") }

// etcdURL is the datastore as the hosts reach it, over the lab's own link.
func (l *Lab) etcdURL() string {
	return "http://" + netip.AddrPortFrom(l.Spec.Hosts[0].V4, 2379).String()
}

// Open finds the lab that runs on this machine.
func Open(dir string) (*Lab, error) {
	l := &Lab{Dir: dir}
	if err := l.defaults(); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(l.stateFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no lab is up in %s; start one with `twill lab up`", l.Dir)
	}
	if err != nil {
		return nil, err
	}
	return l, json.Unmarshal(b, &l.Spec)
}

func (l *Lab) save() error {
	b, err := json.MarshalIndent(l.Spec, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(l.stateFile(), b, 0o600)
}

// step prints what happens, and how long it took.
func (l *Lab) step(p *terminal.Progress, what string, do func() error) error {
	begin := time.Now()
	p.Now(what)
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	p.Step()
	fmt.Fprintf(p.Above(l.Out), "  %-52s %s\n", what, time.Since(begin).Round(time.Millisecond))
	return nil
}

// Up makes the lab. What a failed Up leaves behind, Down removes.
func (l *Lab) Up(ctx context.Context) error {
	if err := l.defaults(); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("a lab makes network namespaces: run it as root")
	}
	if _, err := os.Stat(l.stateFile()); err == nil {
		return ErrUp
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	if err := l.save(); err != nil { // first: Down must find what a crash here leaves
		return err
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{fmt.Sprintf("%d hosts on one link", len(l.Spec.Hosts)), l.makeHosts},
		{"a datastore in " + l.Spec.Hosts[0].Name + ", a twill node in each host", func() error { return l.startNodes(ctx) }},
		{"pools and policy into the datastore", func() error { return l.apply(ctx) }},
		{fmt.Sprintf("%d workloads, by the CNI plugin", len(l.Spec.Workloads)), func() error { return l.attachWorkloads(ctx) }},
		{"routes of all hosts in all kernels, by BGP", func() error { return l.awaitRoutes(ctx, l.Spec.Hosts) }},
	}
	p := terminal.Begin(l.Progress, "steps done", len(steps))
	defer p.End()
	for _, s := range steps {
		if err := l.step(p, s.what, s.do); err != nil {
			return err
		}
	}
	return nil
}

// nodeEnv is the environment of all nodes of a lab: the lab itself writes their Nodes.
var nodeEnv = []string{"ETCD_ENDPOINTS=", "IP=none", "IP6=none", "AS="}

// startNodes starts `twill node` in every host, and waits for the datastore.
func (l *Lab) startNodes(ctx context.Context) error {
	for i := range l.Spec.Hosts {
		h := &l.Spec.Hosts[i]
		dir := filepath.Join(l.Dir, h.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		args := []string{"node", "--node", h.Name, "--data-dir", dir, "--etcd", l.etcdURL()}
		if i == 0 {
			args = append(args, "--etcd-listen", l.etcdURL(), "--etcd-listen", l.Socket())
		}
		if err := l.startNode(h, args); err != nil {
			return fmt.Errorf("twill node in %s: %w", h.Name, err)
		}
		if err := l.save(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, scenarioPatience)
	defer cancel()
	store, err := l.store(ctx)
	if err != nil {
		return fmt.Errorf("datastore of the lab (see %s): %w", filepath.Join(l.Dir, l.Spec.Hosts[0].Name, "node.log"), err)
	}
	store.Close()
	return nil
}

func (l *Lab) startNode(h *Host, args []string) error {
	log, err := os.OpenFile(filepath.Join(l.Dir, h.Name, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(l.Exe, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(append(os.Environ(), nodeEnv...), "TWILL_SOCKET="+l.AgentSocket(h.Name))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // outlives `lab up`
	ns, err := netns.Open(l.Spec.hostNS(*h))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := ns.Start(cmd); err != nil {
		return err
	}
	h.PID = cmd.Process.Pid
	return cmd.Process.Release()
}

// store waits until the lab's datastore answers.
func (l *Lab) store(ctx context.Context) (datastore.Client, error) { return answering(ctx, l.config()) }

func (l *Lab) config() datastore.Config {
	return datastore.Config{Endpoints: []string{l.Socket()}, DialTimeout: 20 * time.Second, RequestTimeout: time.Minute}
}

// answering opens a datastore, and waits until it answers.
func answering(ctx context.Context, cfg datastore.Config) (datastore.Client, error) {
	for {
		store, err := stores.Open(ctx, cfg)
		if err == nil {
			if _, err = store.List(ctx, "/calico/resources/v3/projectcalico.org/clusterinformations/"); err == nil {
				return store, nil
			}
			store.Close()
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// apply writes the lab's resources with the command line that users have.
func (l *Lab) apply(ctx context.Context) error {
	for _, doc := range [][]byte{[]byte(l.Spec.infrastructure()), l.Spec.Manifests} {
		if len(doc) == 0 {
			continue
		}
		cmd := exec.CommandContext(ctx, l.Exe, "--etcd", l.Socket(), "--timeout", scenarioPatience.String(), "apply", "-f", "-")
		cmd.Stdin = bytes.NewReader(doc)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("twill apply: %w\n%s", err, out)
		}
	}
	return nil
}

// Matrix measures who reaches whom with real connections, and asks the oracle what the datastore's content says of each.
func (l *Lab) Matrix(ctx context.Context) ([]Cell, error) {
	if err := l.defaults(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, scenarioPatience)
	defer cancel()
	store, err := l.store(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	snap, err := store.List(ctx, "/calico/resources/")
	if err != nil {
		return nil, err
	}
	w := world.New(snap.Items)
	cells := l.Spec.questions()
	for i := range cells {
		if err := expect(w, &cells[i]); err != nil {
			return nil, err
		}
	}
	p := terminal.Begin(l.Progress, "trying who reaches whom", 0)
	defer p.End()
	return cells, measure(ctx, &l.Spec, cells)
}
