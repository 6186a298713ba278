package kubecontrollers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

// populate gives a node what can hang on it.
func (b *bench) populate(node string) {
	b.Helper()
	b.endpoint(node, node+"web", b.assign(node, node+"web", ""))
	b.assign(node, node+"late", "") // its pod has no endpoint yet
	b.set(func() { b.pods["prod/"+node+"late"] = true })
	b.put("hostendpoints/"+node+"-auto-hep", `{"metadata":{"labels":{"projectcalico.org/created-by":"calico-kube-controllers"}},"spec":{"node":"`+node+`","interfaceName":"*"}}`)
	b.put("bgppeers/"+node+"-tor", `{"spec":{"node":"`+node+`","peerIP":"192.0.2.1","asNumber":64512}}`)
	b.putIn(b.store, "/calico/felix/v2/no-region/host/"+node+"/last_reported_status", `{}`)
}

// TestANodeThatLeftKubernetesGoesWithWhatHangsOnIt: its pods go, then it has nothing any more but what users made; of another nothing goes.
func TestANodeThatLeftKubernetesGoesWithWhatHangsOnIt(t *testing.T) {
	run(t, false, func(b *bench) {
		b.populate("n1")
		b.populate("n2")
		b.after(time.Hour)
		other := b.of("n2")
		if len(b.of("n1")) != len(other) || len(other) < 8 {
			t.Fatalf("n1 has %v, n2 %v", b.of("n1"), other)
		}
		b.remove(b.kube, "nodes/n1")
		b.after(time.Hour)
		if got := b.of("n1"); len(got) != len(other)-1 || !strings.Contains(b.log.String(), "1 pods on it are still there") {
			b.Errorf("a pod is on it, and of it is left only %v", got)
		}
		b.remove(b.kube, "workloadendpoints/prod/n1-k8s-n1web-eth0")
		b.after(time.Minute)
		if got, want := b.of("n1"), []string{api.ResourcesPrefix + "bgppeers/n1-tor"}; !slices.Equal(got, want) {
			b.Errorf("left of it is %v, want %v", got, want)
		}
		if got := b.of("n2"); !slices.Equal(got, other) {
			b.Errorf("n2 has %v, had %v", got, other)
		}
		if len(b.inUse()) != 2 || b.deleted != 1 || !strings.Contains(b.log.String(), "left=bgppeer/n1-tor") {
			b.Errorf("%v are in use; %d nodes deleted", b.inUse(), b.deleted)
		}
	})
}

func TestANodeWithAnAgentThatLivesStays(t *testing.T) {
	run(t, false, func(b *bench) {
		b.assign("n1", "web", "")
		b.putIn(b.store, "/calico/felix/v2/no-region/host/n1/status", `{"expires":"`+time.Now().Add(20*time.Minute).UTC().Format(time.RFC3339)+`"}`)
		b.remove(b.kube, "nodes/n1")
		b.after(15 * time.Minute)
		if b.deleted != 0 || len(b.inUse()) != 1 || !strings.Contains(b.log.String(), "its agent lives") {
			b.Errorf("%d nodes are deleted; in use are %v", b.deleted, b.inUse())
		}
		b.after(10 * time.Minute)
		if got := b.of("n1"); b.deleted != 1 || len(got) != 0 {
			b.Errorf("%d nodes are deleted; left is %v", b.deleted, got)
		}
	})
}

// TestWithoutAnyNodeNothingIsDeleted: a cluster has some, and who says otherwise is another's API server, or a broken one.
func TestWithoutAnyNodeNothingIsDeleted(t *testing.T) {
	for _, etcd := range []bool{false, true} {
		run(t, etcd, func(b *bench) {
			b.put("nodes/n1", `{"spec":{"orchRefs":[{"nodeName":"n1","orchestrator":"k8s"}]}}`)
			b.assign("n1", "web", "")
			if !etcd {
				b.remove(b.kube, "nodes/n1")
				b.remove(b.kube, "nodes/n2")
			}
			b.after(time.Hour)
			if b.deleted != 0 || len(b.inUse()) != 1 || !strings.Contains(b.log.String(), "it has no nodes") {
				b.Errorf("%d nodes are deleted; in use are %v", b.deleted, b.inUse())
			}
		})
	}
}

func TestANodeThatOnlySeemsToBeGoneStays(t *testing.T) {
	run(t, false, func(b *bench) {
		b.populate("n1")
		b.remove(b.kube, "workloadendpoints/prod/n1-k8s-n1web-eth0")
		b.after(time.Minute)
		before := b.of("n1")
		if why, err := b.nodes.remove(b.Context(), "n1", "n1"); err != nil || why != "" {
			b.Errorf("%q, %v", why, err)
		}
		if got := b.of("n1"); !slices.Equal(got, before) {
			b.Errorf("it has %v, had %v", got, before)
		}
	})
}

// TestANodeUnderAnotherNameStays: addresses were allocated for n1.example, and Kubernetes calls it n1.
func TestANodeUnderAnotherNameStays(t *testing.T) {
	run(t, false, func(b *bench) {
		on := b.settings.Node
		b.set(func() { b.settings.Node = nil }) // until the endpoint has the address
		b.endpoint("n1", "web", b.assign("n1.example", "web", ""))
		b.set(func() { b.settings.Node = on })
		b.nodes.again()
		before := b.of("n1.example")
		b.after(time.Hour)
		if got := b.of("n1.example"); !slices.Equal(got, before) || len(b.inUse()) != 1 || !strings.Contains(b.log.String(), "addresses that were allocated for it: [10.0.0") {
			b.Errorf("it has %v, had %v; in use %v", got, before, b.inUse())
		}
	})
}

func TestAHostThatWasNeverTheClustersStays(t *testing.T) {
	run(t, false, func(b *bench) {
		b.put("hostendpoints/gateway-eth0", `{"spec":{"node":"gateway","interfaceName":"eth0"}}`)
		b.putIn(b.store, "/calico/felix/v2/no-region/host/gateway/last_reported_status", `{}`)
		b.after(time.Hour)
		if got := b.of("gateway"); len(got) != 2 {
			b.Errorf("left is %v", got)
		}
	})
}

// TestContainersOfAHostThatWasNeverTheClustersKeepTheirAddresses: nothing says that the host is gone. Once its agent has reported, and does no
// more, something does.
func TestContainersOfAHostThatWasNeverTheClustersKeepTheirAddresses(t *testing.T) {
	for _, etcd := range []bool{false, true} {
		t.Run(fmt.Sprint("etcd ", etcd), func(t *testing.T) { testContainersOfAHostWithoutANode(t, etcd) })
	}
}

func testContainersOfAHostWithoutANode(t *testing.T, etcd bool) {
	run(t, etcd, func(b *bench) {
		if etcd { // which has Nodes of its own, and Kubernetes others
			b.putIn(b.kube, api.ResourcesPrefix+"nodes/kube1", `{}`)
		}
		container := attributes("gateway", "")
		delete(container, api.AttributePod)
		delete(container, api.AttributeNamespace)
		kept := b.assignTo("gateway", "net.container", container)
		b.assign("gateway", "web", "") // .1: a pod's, of a node that is gone
		b.after(time.Hour)
		b.wantInUse("nothing says that the host is gone", kept)
		if got := b.of("gateway"); len(got) != 1 {
			b.Errorf("of its claims are left %v", got)
		}
		if !etcd && !strings.Contains(b.log.String(), "neither a pod's nor a tunnel's: ["+kept+"]") {
			b.Error("the log does not name the address")
		}
		b.putIn(b.store, "/calico/felix/v2/no-region/host/gateway/last_reported_status", `{}`)
		b.after(time.Hour)
		b.wantInUse("its last report has expired")
	})
}

// TestWithEtcdNodesFollowKubernetes: labels are copied, and a node goes, if it is Kubernetes'.
func TestWithEtcdNodesFollowKubernetes(t *testing.T) {
	run(t, true, func(b *bench) {
		b.put("nodes/n1", `{"metadata":{"labels":{"own":"1","rack":"z"}},"spec":{"orchRefs":[{"nodeName":"kube1","orchestrator":"k8s"}]}}`)
		b.put("nodes/n3", `{"spec":{"orchRefs":[{"nodeName":"kube3","orchestrator":"k8s"}]}}`)
		b.populate("n3")
		b.putIn(b.kube, api.ResourcesPrefix+"nodes/kube1", `{"metadata":{"labels":{"rack":"a","zone":"x"}}}`)
		b.putIn(b.kube, api.ResourcesPrefix+"nodes/kube3", `{}`)
		b.after(time.Minute)
		labels := func() map[string]string {
			b.Helper()
			u, err := b.store.Get(b.Context(), api.ResourcesPrefix+"nodes/n1")
			if err != nil {
				b.Fatal(err)
			}
			st, err := api.DecodeStored(u)
			if err != nil {
				b.Fatal(err)
			}
			return st.Resource.(*api.Node).Metadata.Labels
		}
		if l := labels(); len(l) != 3 || l["own"] != "1" || l["rack"] != "a" || l["zone"] != "x" {
			b.Errorf("labels are %v", l)
		}
		b.putIn(b.kube, api.ResourcesPrefix+"nodes/kube1", `{"metadata":{"labels":{"rack":"b"}}}`)
		b.after(2 * time.Second)
		if l := labels(); len(l) != 2 || l["own"] != "1" || l["rack"] != "b" {
			b.Errorf("labels are %v", l)
		}
		b.set(func() { b.settings.Node.Labels = false })
		b.putIn(b.kube, api.ResourcesPrefix+"nodes/kube1", `{"metadata":{"labels":{"rack":"c"}}}`)
		b.after(time.Hour)
		if l := labels(); l["rack"] != "b" {
			b.Errorf("syncLabels is off, and labels are %v", l)
		}
		b.remove(b.kube, "nodes/kube3")
		b.after(time.Minute)
		if got, want := b.of("n3"), []string{api.ResourcesPrefix + "bgppeers/n3-tor"}; !slices.Equal(got, want) {
			b.Errorf("left of n3 is %v, want %v", got, want)
		}
		if got := b.of("nodes/n2"); len(got) != 1 { // which is not Kubernetes'
			b.Errorf("n2 is gone: %v", got)
		}
	})
}
