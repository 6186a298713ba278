package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/datastore"
)

// storage is what a scenario's resources are in.
type storage interface {
	// start returns when it answers.
	start(ctx context.Context) error
	stop() error
	// close ends what the scenario has of it.
	close() error
	// config is how this process reaches it.
	config() datastore.Config
	// env is the environment of programs on this machine that use it, and hostEnv what is other on a host.
	env() []string
	hostEnv() []string
	// nodeArgs are arguments of `twill node`.
	nodeArgs() []string
	// node and endpoint make what an orchestrator makes there, before any of Twill's own tools: of a host, and of a workload.
	node(h Host) error
	endpoint(ctx context.Context, w Workload) error
}

// etcd is one of the scenario's own, in the store's namespace.
type etcd struct {
	c     *scenario
	p     *process
	peers bool // others may join it, at port 2380
}

func (e *etcd) start(ctx context.Context) error {
	dir := filepath.Join(e.c.Dir, storeName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	args := []string{"etcd", "--data-dir", filepath.Join(dir, "etcd"), "--listen", e.url(), "--listen", e.c.Socket()}
	if e.peers {
		args = append(args, "--name", storeName, "--listen-peer", "http://"+netip.AddrPortFrom(e.c.storeAddr(), 2380).String())
	}
	p, err := launch(e.c.storeNS(), e.c.Exe, e.c.logFile(storeName), nil, args)
	if err != nil {
		return err
	}
	e.p, e.c.Spec.StorePID = p, p.cmd.Process.Pid
	ctx, cancel := context.WithTimeout(ctx, scenarioPatience)
	defer cancel()
	store, err := e.c.store(ctx)
	if err != nil {
		return fmt.Errorf("the store does not answer: %w", err)
	}
	return store.Close()
}

func (e *etcd) url() string { return "http://" + netip.AddrPortFrom(e.c.storeAddr(), 2379).String() }

func (e *etcd) stop() error { return e.p.stop() }

func (e *etcd) close() error {
	if !e.c.runs {
		return nil
	}
	return e.stop()
}

func (e *etcd) config() datastore.Config { return e.c.Lab.config() }
func (e *etcd) env() []string            { return []string{"ETCD_ENDPOINTS=" + e.c.Socket()} }
func (e *etcd) hostEnv() []string        { return nil }
func (e *etcd) nodeArgs() []string       { return []string{"--etcd", e.url()} }
func (e *etcd) node(Host) error          { return nil }

func (e *etcd) endpoint(ctx context.Context, w Workload) error {
	return e.c.applyText(ctx, w.resource())
}

// Cluster is an API server of Kubernetes, in which a scenario keeps what is in an etcd of its own else: hosts are Nodes, and workloads are Pods. It has
// the definitions of resources and nothing else in it, and one scenario at a time.
type Cluster struct {
	Kubeconfig  string                                   // of an administrator on this machine
	At          func(address string) (kubeconfig string) // the same for who reaches the server at another HOST:PORT
	Forward     func(net.Listener)                       // passes connections on to the server, until the listener is closed
	Apply       func(manifests string)                   // creates or changes objects
	ApplyStatus func(manifests string)                   // changes their status
	Stop, Start func()
}

// cluster is that API server, at the store's address on the hosts' link.
type cluster struct {
	*Cluster
	c        *scenario
	listener net.Listener // nil: nothing is passed on yet
	onHosts  string       // kubeconfig
}

// clusterPort is where the hosts reach it.
const clusterPort = 6443

func (k *cluster) start(context.Context) error {
	if k.listener != nil {
		k.Start()
		return nil
	}
	at := netip.AddrPortFrom(k.c.storeAddr(), clusterPort).String()
	k.onHosts = k.At(at)
	err := inside(k.c.storeNS(), func() (err error) {
		k.listener, err = net.Listen("tcp", at)
		return err
	})
	if err == nil {
		go k.Forward(k.listener)
	}
	return err
}

func (k *cluster) stop() error {
	k.Stop()
	return nil
}

// close has the server run for the next scenario.
func (k *cluster) close() (err error) {
	if k.listener != nil {
		err = k.listener.Close()
	}
	if !k.c.runs {
		k.Start()
	}
	return err
}

func (k *cluster) config() datastore.Config {
	return datastore.Config{Type: "kubernetes", Kubeconfig: k.Kubeconfig, QPS: 10_000, RequestTimeout: time.Minute}
}

func (k *cluster) env() []string {
	return []string{"DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + k.Kubeconfig}
}

func (k *cluster) hostEnv() []string {
	return []string{"DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + k.onHosts}
}

func (k *cluster) nodeArgs() []string { return nil }

func (k *cluster) node(h Host) error {
	k.Apply("apiVersion: v1\nkind: Node\nmetadata: {name: " + h.Name + "}\n")
	return nil
}

func (k *cluster) endpoint(_ context.Context, w Workload) error {
	if strings.Join(w.profiles(), ",") != "projectcalico-default-allow" {
		return errors.New("in Kubernetes a workload's profiles are its namespace's and its account's")
	}
	k.Apply(fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %[1]s}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: %[1]s}\n", w.Namespace))
	k.Apply(w.pod())
	k.ApplyStatus(w.pod())
	return nil
}

// pod is the workload as Kubernetes has it once it runs.
func (w Workload) pod() string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n  namespace: %s\n  labels: {", w.Name, w.Namespace)
	for k, v := range w.Labels {
		fmt.Fprintf(&b, "%q: %q, ", k, v)
	}
	ports := ""
	if w.PortName != "" {
		ports = fmt.Sprintf(", ports: [{name: %s, containerPort: %d}]", w.PortName, w.Port)
	}
	fmt.Fprintf(&b, "}\nspec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i%s}]}\n", w.Host, ports)
	fmt.Fprintf(&b, "status: {phase: Running, podIP: %s, podIPs: [{ip: %s}, {ip: %q}]}\n", w.V4, w.V4, w.V6)
	return b.String()
}
