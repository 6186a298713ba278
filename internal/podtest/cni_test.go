package podtest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kubetest"
)

// plugin calls the CNI plugin on a node.
type plugin struct {
	*node
	bin  string
	ipam string // of the network's configuration
	conf string // more keys of it, each with a comma before it
}

// debian is where Debian has the CNI project's plugins.
const debian = "/usr/lib/cni"

func (n *node) plugin() plugin {
	n.t.Helper()
	bin := n.t.TempDir()
	for _, name := range []string{"twill", "twill-ipam"} {
		if err := os.Symlink(program(n.t, "twill-cni"), filepath.Join(bin, name)); err != nil {
			n.t.Fatal(err)
		}
	}
	return plugin{node: n, bin: bin, ipam: `{"type":"twill-ipam"}`}
}

// call runs the plugin as a runtime does, and returns what it printed.
func (p plugin) call(command, ns, name, container string, inside *netnstest.NS) (string, error) {
	p.t.Helper()
	cmd := exec.Command(filepath.Join(p.bin, "twill"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+container, "CNI_IFNAME=eth0", "CNI_PATH="+p.bin+":"+debian,
		fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), inside.Handle().FD()), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE="+ns+";K8S_POD_NAME="+name)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"k8s-pod-network","type":"twill","socket":%q,"ipam":%s%s}`, p.socket, p.ipam, p.conf))
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	var err error
	p.Do(func() { err = cmd.Start() })
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), err
}

// add makes a pod in the API server, and has the plugin attach it.
func (p plugin) add(ns, name, labels string) pod {
	p.t.Helper()
	p.create(ns, name, labels)
	return p.attach(ns, name)
}

// attach has the plugin attach a pod that is in the API server.
func (p plugin) attach(ns, name string) pod {
	p.t.Helper()
	return p.attachAs(ns, name, "c-"+name)
}

// attachAs is attach with a container's ID.
func (p plugin) attachAs(ns, name, container string) pod {
	p.t.Helper()
	out := pod{NS: netnstest.New(p.t)}
	text, err := p.call("ADD", ns, name, container, out.NS)
	if err != nil {
		p.t.Fatalf("ADD %s: %v\n%s", name, err, text)
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil || len(result.IPs) == 0 {
		p.t.Fatalf("ADD %s: %v in %s", name, err, text)
	}
	for _, ip := range result.IPs {
		out.addrs = append(out.addrs, ip.Address.Addr())
	}
	out.addr = out.addrs[0]
	return out
}

// guarded makes a namespace in which pods with app=web receive from those with app=client alone.
func guarded(t *testing.T, s *kubetest.Server) (ns string) {
	t.Helper()
	ns = s.Namespace(t)
	guard(t, s, ns)
	return ns
}

// guard makes a namespace such a one.
func guard(t *testing.T, s *kubetest.Server, ns string) {
	t.Helper()
	s.Apply(t, strings.ReplaceAll(`apiVersion: v1
kind: ServiceAccount
metadata: {name: sa, namespace: NS}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: NS}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]
`, "NS", ns))
}

func TestAPodIsProtectedWhenThePluginReturns(t *testing.T) {
	s := kubetest.Start(t)
	n := newNode(t, s, "n2")
	n.define()
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.66.0.0/24, blockSize: 26, nodeSelector: all()}\n")
	ns := guarded(t, s)
	n.agent(s.Kubeconfig)
	n.ready()
	p := n.plugin()
	web := p.add(ns, "web", "app: web")
	client, other := p.add(ns, "client", "app: client"), p.add(ns, "other", "app: other")

	// No waiting: what policies say of its labels is in force when the plugin returns.
	probe := netnstest.Probe{From: client.NS, To: web.NS, Proto: "tcp", Dst: netip.AddrPortFrom(web.addr, 8080)}
	probe.WantReach(t)
	probe.From = other.NS
	probe.WantBlocked(t)

	// Upstream's notes are on the pod, and its address is a block's of the cluster.
	var o struct {
		Metadata struct{ Annotations map[string]string }
	}
	path := "/api/v1/namespaces/" + ns + "/pods/web"
	if err := s.Admin().Call(t.Context(), "GET", path, nil, &o); err != nil || o.Metadata.Annotations["cni.projectcalico.org/podIP"] != web.addr.String()+"/32" ||
		o.Metadata.Annotations["cni.projectcalico.org/containerID"] != "c-web" {
		t.Errorf("annotations %v, error %v", o.Metadata.Annotations, err)
	}
	handle := "/apis/projectcalico.org/v3/ipamhandles/k8s-pod-network.c-web"
	if err := s.Admin().Call(t.Context(), "GET", handle, nil, nil); err != nil {
		t.Errorf("the handle of its address: %v", err)
	}
	for range 2 { // a runtime may call it again
		if text, err := p.call("DEL", ns, "web", "c-web", web.NS); err != nil {
			t.Errorf("DEL: %v\n%s", err, text)
		}
	}
	if err := s.Admin().Call(t.Context(), "GET", handle, nil, nil); err == nil {
		t.Error("the address is not given back")
	}
}

func TestHostLocalGivesAddressesOfThePrefixThatKubernetesGaveTheNode(t *testing.T) {
	s := kubetest.Start(t)
	n := newNode(t, s, "n5")
	n.define()
	ns := s.Namespace(t)
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: "+ns+"}\n")
	n.agent(s.Kubeconfig)
	n.ready()
	p := n.plugin()
	p.ipam = fmt.Sprintf(`{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"usePodCidr"}],[{"subnet":"usePodCidrIPv6"}]]}`, t.TempDir())
	p.create(ns, "early", "app: web")
	if text, err := p.call("ADD", ns, "early", "c-early", netnstest.New(t)); err == nil || !strings.Contains(text, "node n5 has no prefix of its own for pods (spec.podCIDRs)") {
		t.Errorf("ADD before the node has a prefix: %v\n%s", err, text)
	}
	n.patch("/api/v1/nodes/n5", map[string]any{"spec": map[string]any{"podCIDR": "10.70.5.0/24", "podCIDRs": []string{"10.70.5.0/24", "fd70:5::/64"}}})
	web, client := p.add(ns, "web", "app: web"), p.add(ns, "client", "app: client")
	if got := fmt.Sprint(web.addrs); !strings.HasPrefix(got, "[10.70.5.") || !strings.Contains(got, " fd70:5::") {
		t.Errorf("it has %s", got)
	}
	for _, addr := range web.addrs {
		netnstest.Probe{From: client.NS, To: web.NS, Proto: "tcp", Dst: netip.AddrPortFrom(addr, 8080)}.WantReach(t)
	}
	for _, c := range []pod{web, client} { // what DEL gives back is host-local's
		name := map[bool]string{true: "web", false: "client"}[c.addr == web.addr]
		if text, err := p.call("DEL", ns, name, "c-"+name, c.NS); err != nil {
			t.Errorf("DEL: %v\n%s", err, text)
		}
	}
}
