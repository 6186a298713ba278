package podtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kubetest"
)

// cluster is an API server with nodes and pods, and the controllers as programs of their own, with the rights of their role alone.
type cluster struct {
	*testing.T
	s          *kubetest.Server
	store      datastore.Client // the administrator's
	addresses  *ipam.Allocator
	group      form.Group
	twill, ns  string
	kubeconfig string // of the controllers' account
	env        []string
}

func newCluster(t *testing.T, s *kubetest.Server, g form.Group) *cluster {
	t.Helper()
	c := &cluster{T: t, s: s, group: g, twill: program(t, "twill")}
	for _, args := range [][]string{{"kube", "crds"}, {"kube", "controllers"}} {
		out, err := exec.Command(c.twill, append(args, "--group", string(g))...).Output()
		if err != nil {
			t.Fatal(err)
		}
		s.Apply(t, string(out))
	}
	store, err := stores.Open(t.Context(), datastore.Config{Type: "kubernetes", Kubeconfig: s.Kubeconfig, Group: string(g), QPS: 1000, RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	c.store, c.addresses = store, ipam.New(store, ipam.Config{})
	c.put("ippools/pods", `{"kind":"IPPool","metadata":{"name":"pods"},"spec":{"cidr":"10.67.0.0/24","blockSize":30,"nodeSelector":"all()"}}`)
	c.configure("1h")
	c.ns = s.Namespace(t)
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: "+c.ns+"}\n")
	for _, n := range []string{"n1", "n2", "f1", "f2", "f3"} {
		s.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: "+n+"}\n")
	}
	c.kubeconfig = s.KubeconfigFor(t, "kube-system", "twill-kube-controllers")
	return c
}

func (c *cluster) put(key, value string) {
	c.Helper()
	if err := datastore.Put(c.Context(), c.store, api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)}); err != nil {
		c.Fatal(err)
	}
}

// configure says how long an address must be nobody's.
func (c *cluster) configure(grace string) {
	c.Helper()
	c.put("kubecontrollersconfigurations/default", `{"kind":"KubeControllersConfiguration","metadata":{"name":"default"},`+
		`"spec":{"prometheusMetricsPort":0,"controllers":{"node":{"reconcilerPeriod":"1s","leakGracePeriod":"`+grace+`"},"loadBalancer":{}}}}`)
}

// assign gives a pod of a node an address. With a note the pod has an endpoint as long as it has the address.
func (c *cluster) assign(node, pod, note string) string {
	c.Helper()
	attrs := map[string]string{
		api.AttributeNode: node, api.AttributePod: pod, api.AttributeNamespace: c.ns, api.AttributeNote: note,
		api.AttributeTimestamp: time.Now().UTC().Format("2006-01-02 15:04:05.999999999 -0700 MST"),
	}
	got, err := c.addresses.Assign(c.Context(), ipam.AutoArgs{Node: node, Handle: "h-" + pod, Num4: 1, Attributes: attrs})
	if err != nil {
		c.Fatal(err)
	}
	return got[0].Addr.String()
}

// pod makes one that has an address.
func (c *cluster) pod(node, name string) {
	c.Helper()
	addr := c.assign(node, name, ipam.NoteContainer)
	c.s.Apply(c.T, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, annotations: {cni.projectcalico.org/podIP: %s/32, cni.projectcalico.org/podIPs: %s/32}}
spec: {serviceAccountName: sa, nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}
`, name, c.ns, addr, addr, node))
}

func (c *cluster) remove(path string) {
	c.Helper()
	now := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
	if err := c.s.Admin().Call(c.Context(), "DELETE", path, now, nil); err != nil {
		c.Fatal(err)
	}
}

// keys are all of address management, host endpoints and records.
func (c *cluster) keys() (out []string) {
	c.Helper()
	for _, prefix := range []string{api.IPAMPrefix, api.KeyPrefix(api.KindHostEndpoint, ""), api.Root + "felix/"} {
		snap, err := c.store.List(c.Context(), prefix)
		if err != nil {
			c.Fatal(err)
		}
		for _, u := range snap.Items {
			out = append(out, u.Key)
		}
	}
	slices.Sort(out)
	return out
}

// owners are the handles of all addresses in use.
func (c *cluster) owners() (out []string) {
	c.Helper()
	v, err := c.addresses.ReadSurvey(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	for _, b := range v.Blocks {
		for _, l := range ipam.Allocations(b) {
			out = append(out, ipam.HandleOf(l))
		}
	}
	slices.Sort(out)
	return out
}

// await waits until something holds.
func (c *cluster) await(what string, holds func() bool) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 2*patience)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-ctx.Done():
			c.Fatalf("waited for %s; keys are %v, in use %v", what, c.keys(), c.owners())
		}
	}
}

// replica is one process of the controllers.
type replica struct {
	c      *cluster
	cmd    *exec.Cmd
	health string

	mu  sync.Mutex
	log bytes.Buffer
}

func (r *replica) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *replica) logged(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.log.String(), text)
}

// start runs one until the test ends, and waits until it is ready.
func (c *cluster) start() *replica {
	c.Helper()
	r := &replica{c: c, health: machinetest.Address(c.T)}
	r.cmd = exec.Command(c.twill, "kube-controllers", "--health", r.health)
	r.cmd.Env = append(os.Environ(), "DATASTORE_TYPE=kubernetes", "CALICO_API_GROUP="+string(c.group), "KUBECONFIG="+c.kubeconfig)
	r.cmd.Env = append(r.cmd.Env, c.env...)
	r.cmd.Stdout, r.cmd.Stderr = r, r
	if err := r.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		if c.Failed() {
			c.Logf("a replica said:\n%s", r.log.String())
		}
	})
	c.await("a replica that is ready", func() bool { return r.check() == nil })
	return r
}

func (r *replica) check(args ...string) error {
	out, err := exec.Command(r.c.twill, append([]string{"kube-controllers", "check", "--health", r.health}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// populate gives nodes what can hang on them, and n2 addresses that nobody has.
func (c *cluster) populate() {
	for _, n := range []string{"n1", "n2"} {
		c.pod(n, n+"web")
		c.put("hostendpoints/"+n+"-auto-hep", `{"kind":"HostEndpoint","metadata":{"name":"`+n+`-auto-hep","labels":{"projectcalico.org/created-by":"calico-kube-controllers"}},"spec":{"node":"`+n+`","interfaceName":"*"}}`)
		key := api.Root + "felix/v2/no-region/host/" + n + "/last_reported_status"
		if err := datastore.Put(c.Context(), c.store, api.Update{Key: key, Value: []byte(`{}`)}); err != nil {
			c.Fatal(err)
		}
	}
	c.assign("n2", "leaked", ipam.NoteContainer)
	c.assign("n2", "gone", "") // which only Kubernetes can say
	c.s.DefineKubeVirt(c)
	c.s.Machine(c, c.ns, "vm")
	for _, machine := range []string{"vm", "no-vm"} {
		attrs := map[string]string{api.AttributeInstance: machine, api.AttributeNamespace: c.ns, api.AttributeNode: "n1"}
		if _, err := c.addresses.Assign(c.Context(), ipam.AutoArgs{Node: "n1", Handle: c.handleOf(machine), Num4: 1, Attributes: attrs}); err != nil {
			c.Fatal(err)
		}
	}
}

// handleOf is the handle of a virtual machine's addresses.
func (c *cluster) handleOf(machine string) string {
	return ipam.Machine{Namespace: c.ns, Name: machine}.Handle("net")
}

// stopMachine has a virtual machine deleted, which no pod runs.
func (c *cluster) stopMachine() {
	c.Helper()
	for _, plural := range []string{"virtualmachineinstances", "virtualmachines"} {
		if got := c.owners(); !slices.Contains(got, c.handleOf("vm")) {
			c.Errorf("the address of a virtual machine is released while there is one of %s", plural)
		}
		c.remove("/apis/kubevirt.io/v1/namespaces/" + c.ns + "/" + plural + "/vm")
	}
	c.await("the address of a virtual machine that is gone to be released", func() bool { return !slices.Contains(c.owners(), c.handleOf("vm")) })
}

// rareControllers are requests that are made only where data disagree, or many change them at once, which ipam's tests have; and those by which a policy
// of an older version gets the name that users know, which policynames' tests have.
var rareControllers = []string{
	"create ipamhandles", "update ipamhandles", "create blockaffinities", "update blockaffinities",
	"create networkpolicies", "delete networkpolicies", "create globalnetworkpolicies", "delete globalnetworkpolicies",
	"create stagednetworkpolicies", "delete stagednetworkpolicies", "create stagedglobalnetworkpolicies", "delete stagedglobalnetworkpolicies",
}

// TestControllersActOneAtATimeWithTheirRoleAlone: with nodes and pods what hung on them goes, and nothing else; a second process takes over
// from one that is killed; settings change live; and what the role allows is what is asked for.
func TestControllersActOneAtATimeWithTheirRoleAlone(t *testing.T) {
	for _, g := range []form.Group{form.V3, form.V1} {
		t.Run(string(g), func(t *testing.T) {
			s, log := audited(t)
			s.DefineClusterWidePolicies(t)
			c := newCluster(t, s, g)
			c.env = append(c.env, "AUTO_HOST_ENDPOINTS=enabled")
			c.populate()
			c.report(holds, "f1", "f3")
			c.report(0, "f2") // whose agent has ended
			before := c.keys()
			first := c.start()
			c.await("a leader", func() bool { return first.logged("msg=leads") })
			second := c.start()
			c.hostEndpointsAreKept("f1")
			c.policiesAreReportedOn()
			c.policiesAreRealised("f1", "f3")
			c.nodesAreReportedOn("f1", "f2", "f3")

			c.remove("/api/v1/namespaces/" + c.ns + "/pods/n1web")
			c.remove("/api/v1/nodes/n1")
			want := slices.DeleteFunc(before, func(k string) bool { return strings.Contains(k, "n1") || strings.HasPrefix(k, api.BlockPrefix) })
			c.await("what hung on n1 to go, and nothing else", func() bool {
				now := slices.DeleteFunc(c.keys(), func(k string) bool {
					return strings.HasPrefix(k, api.BlockPrefix) || strings.Contains(k, "/hostendpoints/f") // of agents that end, and begin again
				})
				return slices.Equal(now, want)
			})
			if got := c.owners(); !slices.Equal(got, []string{"h-gone", "h-leaked", "h-n2web", c.handleOf("no-vm"), c.handleOf("vm")}) {
				t.Errorf("in use are addresses of %v", got)
			}
			if second.logged("msg=leads") || second.logged("has left Kubernetes") {
				t.Error("the second acts, too")
			}

			_ = first.cmd.Process.Kill()
			c.await("the second to take over", func() bool { return second.logged("msg=leads") })
			c.configure("2s")
			c.await("leaked addresses to be freed", func() bool { return slices.Equal(c.owners(), []string{"h-n2web", c.handleOf("vm")}) })
			c.stopMachine()
			if err := second.check("--live"); err != nil {
				t.Error(err)
			}
			if err := first.check(); err == nil {
				t.Error("the first is dead, and ready")
			}
			c.serveBalancers()
			c.holdTier()
			c.holdPool()
			c.configurationIsMadeAgain()
			c.roleIsRight(log, rareControllers...)
		})
	}
}

// hostEndpointsAreKept has the controllers keep those of nodes without an agent, as their environment says, and the configuration say what is in effect.
// Those of a node whose agent reports are left to it.
func (c *cluster) hostEndpointsAreKept(withAgent string) {
	c.Helper()
	const configuration, made = "kubecontrollersconfigurations/default", "hostendpoints/h1-auto-hep"
	c.await("the status of the configuration", func() bool {
		return c.has(configuration, `"environmentVars":{"AUTO_HOST_ENDPOINTS":"enabled"`) && c.has(configuration, `"runningConfig"`)
	})
	node := func(rack string) {
		c.Helper()
		c.s.Apply(c.T, "apiVersion: v1\nkind: Node\nmetadata: {name: h1, labels: {rack: "+rack+"}}\n")
		c.await("a host endpoint of a node without an agent, and its labels", func() bool { return c.has(made, `"rack":"`+rack+`"`) })
	}
	node("a")
	node("b")
	if c.has("hostendpoints/"+withAgent+"-auto-hep", "") {
		c.Errorf("node %s has an agent, and a host endpoint of the controllers", withAgent)
	}
	c.remove("/api/v1/nodes/h1")
	c.await("the host endpoint of a node that is gone to go", func() bool { return !c.has(made, "") })
}

// configurationIsMadeAgain has the configuration deleted.
func (c *cluster) configurationIsMadeAgain() {
	c.Helper()
	key := api.KeyPrefix(api.KindKubeControllersConfiguration, "") + "default"
	if err := c.store.Delete(c.Context(), key, api.Revision{}); err != nil {
		c.Fatal(err)
	}
	c.await("the default configuration, with what is in effect", func() bool {
		return c.has("kubecontrollersconfigurations/default", `"assignIPs":"AllServices"`) && c.has("kubecontrollersconfigurations/default", `"runningConfig"`)
	})
}

// ingress are the addresses of load balancers that a service has.
func (c *cluster) ingress(name string) (out []string) {
	c.Helper()
	var s struct {
		Status struct {
			LoadBalancer struct{ Ingress []struct{ IP string } }
		}
	}
	if err := c.s.Admin().Call(c.Context(), "GET", "/api/v1/namespaces/"+c.ns+"/services/"+name, nil, &s); err != nil {
		c.Fatal(err)
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		out = append(out, i.IP)
	}
	return out
}

// service makes a service of load balancers, or changes it.
func (c *cluster) service(name, annotations string) {
	c.Helper()
	c.s.Apply(c.T, "apiVersion: v1\nkind: Service\nmetadata: {name: "+name+", namespace: "+c.ns+", annotations: {"+annotations+"}}\n"+
		"spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80, protocol: TCP}]}\n")
}

func (c *cluster) hasIngress(name, want string) func() bool {
	return func() bool { return strings.Join(c.ingress(name), " ") == want }
}

// serveBalancers has services get addresses, ask for others, and go.
func (c *cluster) serveBalancers() {
	c.Helper()
	c.service("web", "")
	c.put("ippools/lb", `{"kind":"IPPool","metadata":{"name":"lb"},"spec":{"cidr":"203.0.113.0/28","blockSize":28,"nodeSelector":"all()","allowedUses":["LoadBalancer"]}}`)
	c.await("an address of a service that was there before its pool", c.hasIngress("web", "203.0.113.0"))
	c.service("api", `projectcalico.org/loadBalancerIPs: '["203.0.113.9"]'`)
	c.await("the address that a service asks for", c.hasIngress("api", "203.0.113.9"))
	c.service("web", `projectcalico.org/loadBalancerIPs: '["203.0.113.2"]'`)
	c.await("another address", c.hasIngress("web", "203.0.113.2"))
	c.remove("/api/v1/namespaces/" + c.ns + "/services/api")
	c.await("the address of a service that is gone to be released", func() bool { return len(c.balanced()) == 1 })
}

// administrator runs a command on the cluster, and returns all that it prints.
func (c *cluster) administrator(args ...string) string {
	c.Helper()
	cmd := exec.Command(c.twill, args...)
	cmd.Env = append(os.Environ(), "DATASTORE_TYPE=kubernetes", "CALICO_API_GROUP="+string(c.group), "KUBECONFIG="+c.s.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.Fatalf("twill %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// holdTier has a tier deleted in which there is a policy, as kubectl does it.
func (c *cluster) holdTier() {
	c.Helper()
	const tier, policy = "tiers/held", "globalnetworkpolicies/held.one"
	c.put(tier, `{"kind":"Tier","metadata":{"name":"held"},"spec":{"order":7}}`)
	c.put(policy, `{"kind":"GlobalNetworkPolicy","metadata":{"name":"held.one"},"spec":{"tier":"held","order":1,"selector":"all()","types":["Ingress"]}}`)
	c.await("the tier's finalizer", func() bool { return c.has(tier, api.FinalizerTier) })
	if err := c.store.Delete(c.Context(), api.ResourcesPrefix+tier, api.Revision{}); err != nil {
		c.Fatal(err)
	}
	c.await("the tier's condition", func() bool {
		return c.has(tier, "deletionTimestamp") && c.has(tier, "1 of them, globalnetworkpolicy/held.one")
	})
	if err := c.store.Delete(c.Context(), api.ResourcesPrefix+policy, api.Revision{}); err != nil {
		c.Fatal(err)
	}
	c.await("the end of the tier", func() bool { return !c.has(tier, "") })
}

// holdPool has a pool deleted of which a service has an address.
func (c *cluster) holdPool() {
	c.Helper()
	const pool, another = "ippools/lb", "ippools/more"
	c.put(another, `{"kind":"IPPool","metadata":{"name":"more"},"spec":{"cidr":"203.0.113.16/28","blockSize":28,"nodeSelector":"all()","allowedUses":["LoadBalancer"]}}`)
	for _, p := range []string{pool, another} {
		c.await("the pool's condition", func() bool { return c.has(p, api.FinalizerIPPool) && c.has(p, `"reason":"OK"`) })
	}
	if out := c.administrator("delete", "ippool", "lb"); !strings.Contains(out, "ippool/lb terminating") || !strings.Contains(out, api.FinalizerIPPool) {
		c.Errorf("twill delete says %s", out)
	}
	c.await("the pool's condition, which a service names", func() bool { return c.has(pool, "1 of them are in use") && c.has(pool, "Terminating") })
	c.service("any", "")
	c.await("an address of the other pool", c.hasIngress("any", "203.0.113.16"))
	c.remove("/api/v1/namespaces/" + c.ns + "/services/web")
	c.await("the end of the pool", func() bool { return !c.has(pool, "") })
	c.administrator("delete", "ippool", "more")
	c.await("the end of the last pool", func() bool { return !c.has(another, "") })
	c.await("a service without an address", c.hasIngress("any", ""))
}

// balanced are the handles of services' addresses.
func (c *cluster) balanced() []string {
	c.Helper()
	return slices.DeleteFunc(c.owners(), func(h string) bool { return !strings.HasPrefix(h, "lb-") })
}

// roleIsRight compares what was asked for with what is allowed.
func (c *cluster) roleIsRight(log string, rare ...string) {
	c.Helper()
	may := append(allowed(c.T, c.s, "clusterroles/twill-kube-controllers"), allowed(c.T, c.s, "namespaces/kube-system/roles/twill-kube-controllers")...)
	did, refused := asked(c.T, log)
	var unused []string
	for _, a := range may {
		seldom := slices.ContainsFunc(rare, func(r string) bool { return strings.HasPrefix(a, r+".") })
		if !did[a] && !seldom {
			unused = append(unused, a)
		}
	}
	if len(unused) > 0 || len(refused) > 0 {
		text, _ := json.Marshal(refused)
		c.Errorf("allowed, and not asked for: %q; asked for, and refused: %s", unused, text)
	}
}
