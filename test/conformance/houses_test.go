package conformance

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	manifests "sigs.k8s.io/network-policy-api/conformance"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	"sigs.k8s.io/network-policy-api/conformance/utils/config"
	suiteapply "sigs.k8s.io/network-policy-api/conformance/utils/kubernetes"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"

	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"

	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/kubetest"
)

// hostPorts are those of pods in their hosts' networks, as the suite has them.
const firstHostPort, hostPorts = 34345, 8

// TestClusterNetworkPoliciesOnAPIServer runs the conformance tests of those who make that API. They change policies in the API server,
// and say of each connection, by `kubectl exec` in a pod, whether it must come about. This test makes the pods, of the stateful sets that the
// tests apply, and is their kubelet.
func TestClusterNetworkPoliciesOnAPIServer(t *testing.T) {
	s := kubetest.New(t, kubetest.Config{})
	dir := strings.TrimSpace(output(t, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api"))
	definition, err := os.ReadFile(filepath.Join(dir, "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"))
	must(t, err)
	s.Apply(t, string(definition))
	h := &houses{served: newServed(t, s)}
	h.ports = []int{53, 80, 5353, 8080}
	conf, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	must(t, err)
	conf.QPS = -1 // no limit
	h.client, err = client.New(conf, client.Options{})
	must(t, err)
	must(t, v1alpha2.Install(h.client.Scheme()))
	kubelet := httptest.NewServer(h)
	t.Cleanup(kubelet.Close)
	there := rest.Config{Host: kubelet.URL}
	execs, err := kubernetes.NewForConfig(&there)
	must(t, err)
	all := suite.New(suite.Options{
		Client: h.client, ClientSet: execs, KubeConfig: there, EnableAllSupportedFeatures: true,
		TimeoutConfig: config.TimeoutConfig{PokeInterval: 10 * time.Millisecond, PokeTimeout: 3 * time.Minute},
	})
	for _, n := range h.hosts {
		node := "apiVersion: v1\nkind: Node\nmetadata: {name: " + n.name + ", labels: {kubernetes.io/os: linux}}\nstatus: {addresses: [{type: InternalIP, address: " + n.uplink.String() + "}]}\n"
		s.Apply(t, node)
		s.ApplyStatus(t, node)
	}
	// As Calico's manifests for Kubernetes have it: else no pod reaches its own host, whatever policy says.
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: {defaultEndpointToHostAction: Accept}\n")
	h.populate()
	all.Setup(t)
	all.Run(t, tests.ConformanceTests)
	if h.allowed == 0 || h.denied == 0 {
		t.Error("nothing was asked, or the answer is always the same")
	}
	t.Logf("%d connections came about, and %d were dropped, each as it must", h.allowed, h.denied)
}

// houses is the cluster of those tests. It answers `kubectl exec`.
type houses struct {
	*served
	client          client.Client
	mu              sync.Mutex // of one connection at a time
	allowed, denied int
}

// populate makes the pods of the stateful sets that Setup is going to apply, and says that they are ready.
func (h *houses) populate() {
	t := h.t
	base := suiteapply.Applier{FS: manifests.Manifests, HostNetworkPorts: make([]int, hostPorts)}
	for i := range base.HostNetworkPorts {
		base.HostNetworkPorts[i] = firstHostPort + i
	}
	base.MustApplyWithCleanup(t, h.client, config.DefaultTimeoutConfig(), "base/manifests.yaml", false)
	var stateful appsv1.StatefulSetList
	must(t, h.client.List(t.Context(), &stateful))
	slices.SortStableFunc(stateful.Items, func(a, b appsv1.StatefulSet) int { // those in hosts' networks last: see home
		return cmp.Compare(lateness(a), lateness(b))
	})
	for _, set := range stateful.Items {
		must(t, h.client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: "default"}}))
		for i := range *set.Spec.Replicas {
			h.makePod(&set, int(i))
		}
		set.Status = appsv1.StatefulSetStatus{Replicas: *set.Spec.Replicas, ReadyReplicas: *set.Spec.Replicas}
		must(t, h.client.Status().Update(t.Context(), &set))
	}
	if len(stateful.Items) == 0 {
		t.Error("there are no stateful sets")
	}
}

func lateness(s appsv1.StatefulSet) int {
	return map[bool]int{true: 1}[s.Spec.Template.Spec.HostNetwork]
}

// home is a host as a pod in its network. That which is asked for SCTP is asked by the second client, which must be on the other host: what
// comes from a pod of this one is seen to arrive, whatever policy does to it then. The first is on the same host.
func (h *houses) home(key string, number int) *pod {
	client := h.pods[fmt.Sprintf("network-policy-conformance-gryffindor/harry-potter-%d", 1-number)]
	p := &pod{NS: client.host.NS, key: key, host: client.host, addrs: [2]netip.Addr{client.host.uplink, uplink6(client.host)}}
	h.pods[key] = p
	p.Do(func() {
		var err error
		p.wire, err = packet.Open()
		must(h.t, err)
	})
	h.t.Cleanup(func() { must(h.t, p.wire.Close()) })
	var all []int
	for i := range hostPorts {
		all = append(all, firstHostPort+i)
	}
	p.serve(h.t, all)
	return p
}

// makePod makes the pod of that number of a set, in the API server and in the kernel.
func (h *houses) makePod(set *appsv1.StatefulSet, number int) {
	no, name := false, fmt.Sprintf("%s-%d", set.Name, number)
	o := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: name, Labels: set.Spec.Template.Labels},
		Spec:       *set.Spec.Template.Spec.DeepCopy(),
	}
	var p *pod
	if key := set.Namespace + "/" + name; o.Spec.HostNetwork {
		p = h.home(key, number)
	} else {
		p = h.pod(key)
	}
	on, addr := p.host, p.addrs[0]
	o.Spec.NodeName, o.Spec.AutomountServiceAccountToken = on.name, &no
	o.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr.String(), PodIPs: []corev1.PodIP{{IP: addr.String()}}}
	text, err := yaml.Marshal(o)
	must(h.t, err)
	h.server.Apply(h.t, string(text))
	h.server.ApplyStatus(h.t, string(text))
}

// ServeHTTP answers the exec of a command in a pod, as a kubelet does: by streams of SPDY.
func (h *houses) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV2Name}); err != nil {
		return // it has answered
	}
	came := make(chan httpstream.Stream, 3)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		came <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for len(streams) < cap(came) {
		select {
		case s := <-came:
			streams[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return
		}
	}
	_, _ = io.WriteString(streams[corev1.StreamTypeStderr], h.exec(r))
	for _, s := range streams {
		_ = s.Close()
	}
	<-conn.CloseChan() // the other side has read it
}

// exec does what agnhost's connect does in a pod, and returns what that writes to its standard error: nothing if the connection comes about.
func (h *houses) exec(r *http.Request) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := strings.Split(r.URL.Path, "/") // /api/v1/namespaces/NAMESPACE/pods/POD/exec
	command := r.URL.Query()["command"]
	if len(at) != 8 || len(command) != 5 || command[1] != "connect" || h.pods[at[4]+"/"+at[6]] == nil {
		return fmt.Sprintf("nobody knows how to do %v at %s", command, r.URL.Path)
	}
	to, err := netip.ParseAddrPort(command[4])
	if err != nil {
		return err.Error()
	}
	job := &probe.Job{FromKey: at[4] + "/" + at[6], ResolvedPort: int(to.Port()), Protocol: corev1.Protocol(strings.ToUpper(strings.TrimPrefix(command[3], "--protocol=")))}
	x := &cell{job: job, from: h.pods[job.FromKey]}
	for key, p := range h.pods {
		if p.addrs[0] == to.Addr() {
			job.ToKey, x.to = key, p
		}
	}
	if x.to == nil || protocols[string(job.Protocol)] == 0 {
		return "nobody knows " + strings.Join(command, " ")
	}
	h.settle()
	h.connect(0, []*cell{x})
	if x.fate(h.t) {
		h.allowed++
		return ""
	}
	h.denied++
	return "TIMEOUT\n"
}
