package chaostest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/lab"
	"github.com/twillnet/twill/internal/lab/script"
	"github.com/twillnet/twill/internal/outagetest"
)

const (
	storeAddr = "172.30.0.250:2379" // where the lab has its store
	apiAddr   = "172.30.0.250:6443" // or an API server
	quota     = 24 << 20            // bytes that the store may take: soon filled
)

var hosts = []string{"h1", "h2", "h3"}

// network is the lab under chaos, with the processes that were started after it was made.
type network struct {
	*lab.Lab
	exe   string
	store datastore.Client // past the proxy
	proxy *outagetest.Proxy
	etcd  *process
	kube  *kube               // nil: resources are in that etcd
	nodes map[string]*process // those that were started here; the lab started the first ones
}

// process is a daemon that was started here.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// scenario builds the lab: on each host a client, a server, one whose policy changes, a stranger whom no server admits, and
// a client that may send nothing. toggle is the policy that changes.
func scenario(toggle string) string {
	var b strings.Builder
	b.WriteString("# A network for chaos.\nhosts h1 h2 h3\n")
	for i, h := range hosts {
		for j, w := range []string{"c app=client trusted=yes", "s app=server", "t app=toggle", "x app=stranger", "j app=client jailed=yes"} {
			name, labels, _ := strings.Cut(w, " ")
			fmt.Fprintf(&b, "workload %s %s%d 10.65.%d.%d %s\n", h, name, i+1, i+1, 11+j, labels)
		}
	}
	b.WriteString("apply chaos.yaml\nreach c1 s2 tcp/80\n! reach x1 s2 tcp/80\n-- chaos.yaml --\n")
	return b.String() + resources + toggle + fmt.Sprintf(ownership, ownerWanted())
}

// ownerWanted: half of the seeds have agents own their table, as by default, and half have tables that anybody may change.
func ownerWanted() bool { return *seed%2 == 0 }

// newNetwork makes the lab with a proxy before its store: an API server, or an etcd of its own if that is nil.
func newNetwork(t *testing.T, exe string, s *kubetest.Server) *network {
	t.Helper()
	n := &network{exe: exe, nodes: map[string]*process{}}
	var cluster *lab.Cluster
	toggle := decides
	if s != nil {
		cluster, toggle = n.onAPIServer(t, s), passesOn
	}
	text, err := script.Parse("chaos.txt", scenario(toggle))
	must(t, err)
	var output bytes.Buffer
	res := lab.Runner{Exe: exe, Out: &output, Verbose: true, Keep: true, Cluster: cluster}.Run(t.Context(), text)
	if res.Err != nil {
		t.Fatalf("%v\n%s", res.Err, output.String())
	}
	n.Lab, err = lab.Open(res.Kept)
	must(t, err)
	t.Cleanup(func() { n.down(t) })
	cfg := datastore.Config{Endpoints: []string{n.Socket()}}
	if s == nil {
		n.ownStore(t)
	} else {
		cfg = datastore.Config{Type: "kubernetes", Kubeconfig: s.Kubeconfig, QPS: 10_000}
	}
	cfg.RequestTimeout = 30 * time.Second
	n.store, err = stores.Open(t.Context(), cfg)
	must(t, err)
	for _, h := range hosts {
		for _, w := range append(workloadsOf(h), h) {
			ns, err := n.Spec.Netns(w)
			must(t, err)
			must(t, inside(ns, patient))
		}
	}
	return n
}

// ownStore starts an etcd in the place of the lab's, behind a proxy.
func (n *network) ownStore(t *testing.T) {
	t.Helper()
	must(t, syscall.Kill(n.Spec.StorePID, syscall.SIGKILL))
	must(t, until(t.Context(), time.Minute, func() error {
		return inside(n.storeNS(), func() error {
			l, err := net.Listen("tcp", storeAddr) // the former store's port is free when that has gone
			if err == nil {
				n.proxy = outagetest.Serve(l, n.Socket())
			}
			return err
		})
	}))
	must(t, n.startStore(t.Context()))
}

// patient has connections of a namespace outlive any fault, and try again within a second of its end: after an outage
// they would wait as long again, by their own doing. Kernels before 6.15 lack the latter.
func patient() error {
	_ = os.WriteFile("/proc/sys/net/ipv4/tcp_rto_max_ms", []byte("1000"), 0o600)
	return os.WriteFile("/proc/sys/net/ipv4/tcp_retries2", []byte("255"), 0o600)
}

func workloadsOf(host string) (out []string) {
	for _, w := range []string{"c", "s", "t", "x", "j"} {
		out = append(out, w+host[1:])
	}
	return out
}

func (n *network) storeNS() string { return n.Spec.Prefix + "store" }

func (n *network) log(who string) string { return filepath.Join(n.Dir, who, "node.log") }

// down ends all that runs, and leaves no trace.
func (n *network) down(t *testing.T) {
	for _, h := range n.Spec.Hosts {
		_ = syscall.Kill(h.PID, syscall.SIGCONT)
	}
	for _, p := range n.nodes {
		p.end(syscall.SIGTERM)
	}
	if n.store != nil {
		_ = n.store.Close()
	}
	if n.proxy != nil {
		n.proxy.Close()
	}
	if err := n.Down(); err != nil { // before the store goes: nodes that the lab started are still there
		t.Error(err)
	}
	if n.etcd != nil {
		n.etcd.end(syscall.SIGKILL)
	}
}

func (p *process) end(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// launch starts twill in a namespace.
func (n *network) launch(who, ns string, env []string, args ...string) (*process, error) {
	out, err := os.OpenFile(n.log(who), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(n.exe, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := inside(ns, cmd.Start); err != nil {
		return nil, err
	}
	p := &process{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// startStore starts etcd behind the proxy, and waits until it answers.
func (n *network) startStore(ctx context.Context) (err error) {
	n.etcd, err = n.launch("store", n.storeNS(), nil, "etcd", "--data-dir", filepath.Join(n.Dir, "store", "etcd"), "--listen", n.Socket(), "--quota", fmt.Sprint(quota))
	if err != nil {
		return err
	}
	return until(ctx, time.Minute, func() error {
		c, err := net.Dial("unix", strings.TrimPrefix(n.Socket(), "unix://"))
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// startNode starts `twill node` on a host where none runs, as the lab does.
func (n *network) startNode(host string) error {
	env := []string{"NODENAME=" + host, "TWILL_SOCKET=" + n.AgentSocket(host), "ETCD_ENDPOINTS=", "IP=none", "IP6=none", "AS="}
	args := []string{"node", "--node", host, "--data-dir", filepath.Join(n.Dir, host), "--bgp", "on"}
	if n.kube != nil {
		env = append(env, "DATASTORE_TYPE=kubernetes", "KUBECONFIG="+n.kube.onHosts)
	} else {
		args = append(args, "--etcd", "http://"+storeAddr)
	}
	p, err := n.launch(host, n.Spec.Prefix+host, env, args...)
	if err != nil {
		return err
	}
	n.nodes[host] = p
	for i := range n.Spec.Hosts {
		if n.Spec.Hosts[i].Name == host {
			n.Spec.Hosts[i].PID = p.cmd.Process.Pid
		}
	}
	return nil
}

// node is the process id of a host's `twill node`.
func (n *network) node(host string) int {
	for _, h := range n.Spec.Hosts {
		if h.Name == host {
			return h.PID
		}
	}
	return 0
}

// pid is that of a daemon of a host; 0 if it does not run.
func (n *network) pid(host, what string) int {
	if what == "node" {
		return n.node(host)
	}
	return n.Daemon(host, what)
}

// at is a workload's end of a flow.
func (n *network) at(name string, v6 bool) (end, error) {
	ns, err := n.Spec.Netns(name)
	if err != nil {
		return end{}, err
	}
	for _, w := range n.Spec.Workloads {
		if w.Name == name {
			if v6 {
				return end{ns, w.V6}, nil
			}
			return end{ns, w.V4}, nil
		}
	}
	return end{}, fmt.Errorf("no workload %s", name)
}

// run runs a program in a namespace of the lab, named without the lab's prefix.
func (n *network) run(ctx context.Context, ns string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := inside(n.Spec.Prefix+ns, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s on %s: %w: %s", strings.Join(argv, " "), ns, err, strings.TrimSpace(out.String()))
	}
	return out.String(), err
}

// ask reads an answer of a daemon at its socket.
func ask(ctx context.Context, socket, path string) ([]byte, error) {
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, b)
	}
	return b, err
}

// askInto is ask for what is JSON.
func askInto(ctx context.Context, socket, path string, into any) error {
	b, err := ask(ctx, socket, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

func (n *network) bgpSocket(host string) string {
	return filepath.Join(filepath.Dir(n.AgentSocket(host)), "bgp.sock")
}

// throughProxy asks the store as a host does, and says how long the answer took.
func (n *network) throughProxy(host string, wait time.Duration) (time.Duration, error) {
	began := time.Now()
	addr, url := storeAddr, "http://"+storeAddr+"/health"
	if n.kube != nil {
		addr, url = apiAddr, "https://"+apiAddr+"/readyz"
	}
	insecure := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // that it answers is asked, not what
	client := http.Client{Timeout: wait, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: insecure, DialContext: func(context.Context, string, string) (c net.Conn, err error) {
		err = inside(n.Spec.Prefix+host, func() error { c, err = net.DialTimeout("tcp", addr, wait); return err })
		return c, err
	}}}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	return time.Since(began), err
}

// inside runs f in a namespace.
func inside(ns string, f func() error) error {
	h, err := netns.Open(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Do(f)
}

// until looks again until it is so; else it returns what the last look saw.
func until(ctx context.Context, patience time.Duration, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (waited %s)", err, patience)
		case <-tick.C:
		}
	}
}

// wait lets time pass: the length of a fault is its own, and there is nothing to await.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

var errStill = errors.New("it is still there")

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// prefix is an address with a mask.
func prefix(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }
