// Package podtest runs the agent on a real API server: pods and policies live there, packets go through a kernel.
package podtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/translate"
)

func TestMain(m *testing.M) {
	os.Exit(kubetest.Main(func() int {
		defer os.RemoveAll(programs)
		return m.Run()
	}, kubetest.Config{}))
}

// programs is the directory of our programs, once one is needed.
var programs string

// program builds our programs once, and is the path of one of them.
func program(t testing.TB, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(programs, name)
}

var build = sync.OnceValue(func() (err error) {
	if programs, err = os.MkdirTemp("", "podtest"); err != nil {
		return err
	}
	const cmd = "github.com/twillnet/twill/cmd/"
	if out, err := exec.Command("go", "build", "-o", programs, cmd+"twill", cmd+"twill-cni").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// patience bounds what is awaited, on a machine that has much else to do.
const patience = 2 * time.Minute

// node is a host of the cluster: a namespace, in which the API server is at the address that its kubeconfig names.
type node struct {
	*netnstest.NS
	t        testing.TB
	s        *kubetest.Server
	name     string
	group    form.Group // of the cluster's resources
	twill    string     // the program
	socket   string     // of its agent
	log      string
	process  *os.Process   // what start started
	received *atomic.Int64 // bytes that came from the API server
}

// newNode makes a host without an agent.
func newNode(t testing.TB, s *kubetest.Server, name string) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{NS: netnstest.New(t), t: t, s: s, name: name, group: form.V3, twill: program(t, "twill"), socket: filepath.Join(dir, "agent.sock"), log: filepath.Join(dir, "log"), received: &atomic.Int64{}}
	n.Forward()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := n.ListenTCP(netip.MustParseAddrPort(u.Host))
	if err != nil {
		t.Fatal(err)
	}
	go serve(l, u.Host, n.received)
	s.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: "+name+"}\n")
	t.Cleanup(func() { // another test's node may have the same address
		if err := s.Admin().Call(context.WithoutCancel(t.Context()), http.MethodDelete, "/api/v1/nodes/"+name, nil, nil); err != nil {
			t.Error(err)
		}
	})
	return n
}

// serve passes on connections to an address outside, and counts what comes back.
func serve(l net.Listener, to string, received *atomic.Int64) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(in, io.TeeReader(out, counter{received}))
		}()
	}
}

// counter counts the bytes that are written to it.
type counter struct{ *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.Add(int64(len(p)))
	return len(p), nil
}

// agent runs the agent alone until the test ends.
func (n *node) agent(kubeconfig string) { n.start("agent", kubeconfig) }

// whole runs all that a node does, until the test ends; env is more of its environment.
func (n *node) whole(kubeconfig string, env ...string) { n.start("node", kubeconfig, env...) }

func (n *node) start(command, kubeconfig string, env ...string) {
	n.t.Helper()
	log, err := os.Create(n.log)
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.Command(n.twill, command, "--node", n.name, "--data-dir", filepath.Dir(n.log))
	cmd.Env = append(append(os.Environ(), "DATASTORE_TYPE=kubernetes", "CALICO_API_GROUP="+string(n.group), "KUBECONFIG="+kubeconfig, "TWILL_SOCKET="+n.socket), env...)
	cmd.Stdout, cmd.Stderr = log, log
	n.Do(func() { err = cmd.Start() })
	if err != nil {
		n.t.Fatal(err)
	}
	n.process = cmd.Process
	n.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if text, _ := os.ReadFile(n.log); n.t.Failed() {
			n.t.Logf("%s said:\n%s", n.name, text)
		}
	})
}

// logged reports whether the log has a text.
func (n *node) logged(text string) bool {
	n.t.Helper()
	log, err := os.ReadFile(n.log)
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.Contains(string(log), text)
}

// pod is one that runs: in the API server, and as a namespace with a link.
type pod struct {
	*netnstest.NS
	addr  netip.Addr
	addrs []netip.Addr // all that the plugin gave
}

// block is the block that the pod's address is from.
func (p pod) block() string {
	block, _ := p.addr.Prefix(26) // an address of IPv4
	return block.String()
}

// run makes a pod on this node, with what a plugin would make.
func (n *node) run(ns, name, labels, addr string) pod {
	n.t.Helper()
	return n.runBy(translate.InterfaceName(ns, name), ns, name, labels, addr)
}

// runBy is run with a name for the host's end of the pod's link.
func (n *node) runBy(link, ns, name, labels, addr string) pod {
	n.t.Helper()
	p := pod{NS: netnstest.New(n.t), addr: netip.MustParseAddr(addr)}
	n.create(ns, name, labels)
	n.VethTo(p.NS, link, "eth0")
	p.Addr("eth0", addr+"/32")
	p.Route("169.254.1.1 dev eth0 scope link")
	p.Route("default via 169.254.1.1 dev eth0")
	status := map[string]any{"status": map[string]any{"podIP": addr, "podIPs": []any{map[string]any{"ip": addr}}, "phase": "Running"}}
	n.patch("/api/v1/namespaces/"+ns+"/pods/"+name+"/status", status)
	return p
}

// create makes a pod of this node in the API server.
func (n *node) create(ns, name, labels string) {
	n.t.Helper()
	n.s.Apply(n.t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {%s}}
spec: {serviceAccountName: sa, nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}
`, name, ns, labels, n.name))
}

// define applies the definitions that a cluster needs.
func (n *node) define() {
	n.t.Helper()
	out, err := exec.Command(n.twill, "kube", "crds", "--group", string(n.group)).Output()
	if err != nil {
		n.t.Fatal(err)
	}
	n.s.Apply(n.t, string(out))
}

// ready waits until the agent says that it is ready.
func (n *node) ready() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	for {
		out, err := exec.CommandContext(ctx, n.twill, "status", "--socket", n.socket).CombinedOutput()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			n.t.Fatalf("the agent is not ready: %v\n%s", err, out)
		}
		<-time.After(100 * time.Millisecond)
	}
}

func (n *node) patch(path string, body map[string]any) {
	n.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		n.t.Fatal(err)
	}
	resp, err := n.s.Admin().Do(n.t.Context(), "PATCH", path, "application/merge-patch+json", text)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode >= http.StatusMultipleChoices {
		n.t.Fatalf("patch %s: %s", path, answer)
	}
}

// await waits until a connection from one pod to another opens, or does not.
func (p pod) await(t testing.TB, to pod, open bool) {
	t.Helper()
	probe := netnstest.Probe{From: p.NS, To: to.NS, Proto: "tcp", Dst: netip.AddrPortFrom(to.addr, 8080)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		within := 5 * time.Second // for one of several tries
		if !open {
			within = netnstest.Silence
		}
		err := probe.Try(within)
		if (err == nil) == open {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: open should be %v: %v", probe, open, errors.Join(err, ctx.Err()))
		}
		<-time.After(20 * time.Millisecond)
	}
}

func TestAPodIsProtectedByPoliciesOfTheAPIServer(t *testing.T) {
	s := kubetest.Start(t)
	n := newNode(t, s, "n1")
	n.define()
	s.Clear(t, "twill.net/v1", "records") // of nodes of other tests, whose agents have ended
	ns := s.Namespace(t)
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: "+ns+"}\n")
	n.agent(s.Kubeconfig)
	web, client, other := n.run(ns, "web", "app: web", "10.65.0.2"), n.run(ns, "client", "app: client", "10.65.0.3"), n.run(ns, "other", "app: other", "10.65.0.4")

	client.await(t, web, true) // nothing is forbidden in a namespace without a policy
	other.await(t, web, true)

	s.Apply(t, strings.ReplaceAll(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: NS}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 8080}]}]
`, "NS", ns))
	other.await(t, web, false)
	client.await(t, web, true)

	n.patch("/api/v1/namespaces/"+ns+"/pods/other", map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "client"}}})
	other.await(t, web, true)

	// A policy of Calico's, before those of Kubernetes.
	s.Apply(t, `apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: quarantine}
spec: {order: 1, selector: "app == 'web'", types: [Ingress], ingress: [{action: Deny, source: {selector: "app == 'client'"}}]}
`)
	client.await(t, web, false)
	if err := s.Admin().Call(t.Context(), "DELETE", "/apis/projectcalico.org/v3/globalnetworkpolicies/quarantine", nil, nil); err != nil {
		t.Fatal(err)
	}
	client.await(t, web, true)
	// Who applies a policy learns when it is in force, and all that the node reports is three objects, however many pods there are.
	n.cli("apply", "-f", "testdata/web.yaml", "--wait")
	if out := n.cli("get", "globalnetworkpolicies", "web", "-o", "wide"); !strings.Contains(out, " 1/1 ") {
		t.Errorf("on how many nodes it is in force:\n%s", out)
	}
	if out := n.kubectl("twill", "get", "globalnetworkpolicies", "web", "-o", "name"); out != "globalnetworkpolicy/web\n" {
		t.Errorf("as a plugin of kubectl: %q", out)
	}
	var records struct{ Items []json.RawMessage }
	if err := s.Admin().Call(t.Context(), "GET", "/apis/twill.net/v1/records", nil, &records); err != nil || len(records.Items) != 3 {
		t.Errorf("%d records, error %v", len(records.Items), err)
	}
}

// cli runs a command with the rights of an administrator.
func (n *node) cli(args ...string) string {
	n.t.Helper()
	cmd := exec.Command(n.twill, args...)
	cmd.Env = append(os.Environ(), "DATASTORE_TYPE=kubernetes", "KUBECONFIG="+n.s.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.t.Fatalf("twill %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// kubectl runs a command of kubectl, which finds twill as a plugin.
func (n *node) kubectl(args ...string) string {
	n.t.Helper()
	dir := n.t.TempDir()
	if err := os.Symlink(n.twill, filepath.Join(dir, "kubectl-twill")); err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.Command(kubetest.Program(n.t, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+n.s.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
