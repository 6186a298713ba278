package form_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// kindOf is the kind of a group that holds a key.
func kindOf(t *testing.T, g form.Group, key string) form.Kind {
	t.Helper()
	for _, k := range form.Kinds(g) {
		if _, _, ok := k.Name(key); ok && k.Prefix != "" {
			return k
		}
	}
	t.Fatalf("%s: nothing holds %s", g, key)
	return form.Kind{}
}

func same(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatalf("%s: %v in %s", what, err, got)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

const prefix = "/calico/resources/v3/projectcalico.org/"

// objects that upstream's tools and controllers write, and what etcd would hold.
var objects = []struct {
	name   string
	group  form.Group
	object string
	key    string
	value  string
}{
	{
		"a policy as users write it", form.V3,
		`{"apiVersion":"projectcalico.org/v3","kind":"NetworkPolicy","metadata":{"name":"sec.np","namespace":"prod","uid":"u","resourceVersion":"5","generation":3,
			"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"b"},"managedFields":[{"manager":"kubectl"}],
			"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}},"spec":{"tier":"sec","later":{"x":1}},"status":{"conditions":[]}}`,
		prefix + "networkpolicies/prod/sec.np",
		`{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"sec.np","namespace":"prod","uid":"u","generation":3,
			"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"b"},"annotations":{"projectcalico.org/metadata":"{\"name\":\"sec.np\"}"}},
			"spec":{"tier":"sec","later":{"x":1}},"status":{"conditions":[]}}`,
	}, {
		"a policy of a cluster that runs Calico now: its metadata is in an annotation, its name has the tier", form.V1,
		`{"apiVersion":"crd.projectcalico.org/v1","kind":"NetworkPolicy","metadata":{"name":"default.web","namespace":"prod","uid":"u","resourceVersion":"5",
			"creationTimestamp":"2026-01-02T03:04:06Z","labels":{"projectcalico.org/tier":"default"},
			"annotations":{"projectcalico.org/metadata":"{\"name\":\"web\",\"creationTimestamp\":\"2026-01-02T03:04:05Z\",\"labels\":{\"a\":\"b\",\"projectcalico.org/tier\":\"default\"},\"annotations\":{\"c\":\"d\"}}"}},
			"spec":{"tier":"default"}}`,
		prefix + "networkpolicies/prod/default.web",
		`{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"default.web","namespace":"prod","uid":"u",
			"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"b","projectcalico.org/tier":"default"},
			"annotations":{"c":"d","projectcalico.org/metadata":"{\"name\":\"web\"}"}},"spec":{"tier":"default"}}`,
	}, {
		"one of an older version, whose labels are on the object, and of which no name was kept", form.V1,
		`{"apiVersion":"crd.projectcalico.org/v1","kind":"GlobalNetworkPolicy","metadata":{"name":"default.web","resourceVersion":"5","labels":{"a":"b"},
			"annotations":{"c":"d","projectcalico.org/metadata":"{\"creationTimestamp\":null}"}},"spec":{}}`,
		prefix + "globalnetworkpolicies/default.web",
		`{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"default.web","labels":{"a":"b"},"annotations":{"c":"d"}},"spec":{}}`,
	}, {
		"a pool that was written with kubectl", form.V1,
		`{"apiVersion":"crd.projectcalico.org/v1","kind":"IPPool","metadata":{"name":"p","resourceVersion":"5","annotations":{"projectcalico.org/metadata":"no JSON"}},"spec":{"cidr":"10.0.0.0/16"}}`,
		prefix + "ippools/p",
		`{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/16"}}`,
	}, {
		"a block", form.V1,
		`{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMBlock","metadata":{"name":"10-65-0-0-30","resourceVersion":"5"},"spec":{"cidr":"10.65.0.0/30","affinity":"host:n1","affinityClaimTime":"2026-01-02T03:04:05Z",
			"allocations":[0,null,null,null],"unallocated":[1,2,3],"attributes":[{"handle_id":"k8s-pod-network.x","secondary":{"pod":"p"}}],"deleted":false,"sequenceNumber":7,"sequenceNumberForAllocation":{"0":7},"strictAffinity":false}}`,
		"/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-30",
		`{"cidr":"10.65.0.0/30","affinity":"host:n1","affinity_claim_time":"2026-01-02T03:04:05Z","allocations":[0,null,null,null],"unallocated":[1,2,3],
			"attributes":[{"handle_id":"k8s-pod-network.x","secondary":{"pod":"p"}}],"deleted":false,"sequenceNumber":7,"sequenceNumberForAllocation":{"0":7},"strictAffinity":false}`,
	}, {
		"a block that is nobody's", form.V3,
		`{"apiVersion":"projectcalico.org/v3","kind":"IPAMBlock","metadata":{"name":"fd00---122","resourceVersion":"5"},"spec":{"cidr":"fd00::/122","allocations":[],"unallocated":[],"attributes":[]}}`,
		"/calico/ipam/v2/assignment/ipv6/block/fd00::-122",
		`{"cidr":"fd00::/122","affinity":null,"allocations":[],"unallocated":[],"attributes":[]}`,
	}, {
		"an affinity: deleted is a text here", form.V1,
		`{"apiVersion":"crd.projectcalico.org/v1","kind":"BlockAffinity","metadata":{"name":"n1-10-65-0-0-26","resourceVersion":"5"},"spec":{"cidr":"10.65.0.0/26","node":"n1","state":"confirmed","deleted":"false"}}`,
		"/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-26",
		`{"state":"confirmed","deleted":false}`,
	}, {
		"an affinity of a controller", form.V3,
		`{"apiVersion":"projectcalico.org/v3","kind":"BlockAffinity","metadata":{"name":"load-balancer-10-65-0-0-26","resourceVersion":"5"},"spec":{"cidr":"10.65.0.0/26","node":"load-balancer","type":"virtual","state":"pending","deleted":false}}`,
		"/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.65.0.0-26",
		`{"state":"pending","deleted":false}`,
	}, {
		"a handle: names of objects have no capital letters", form.V1,
		`{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMHandle","metadata":{"name":"net.abc","resourceVersion":"5"},"spec":{"handleID":"net.ABC","block":{"10.65.0.0/26":1},"deleted":false}}`,
		"/calico/ipam/v2/handle/net.ABC",
		`{"block":{"10.65.0.0/26":1},"deleted":false}`,
	}, {
		"the configuration of address management", form.V1,
		`{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMConfig","metadata":{"name":"default","resourceVersion":"5"},"spec":{"strictAffinity":true,"autoAllocateBlocks":true,"maxBlocksPerHost":3}}`,
		"/calico/ipam/v2/config",
		`{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":3}`,
	}, {
		"the same, of new clusters", form.V3,
		`{"apiVersion":"projectcalico.org/v3","kind":"IPAMConfiguration","metadata":{"name":"default","resourceVersion":"5"},"spec":{"strictAffinity":false,"autoAllocateBlocks":true}}`,
		"/calico/ipam/v2/config",
		`{"strict_affinity":false,"auto_allocate_blocks":true}`,
	},
}

func TestObjectsAreWhatEtcdWouldHold(t *testing.T) {
	for _, tt := range objects {
		t.Run(tt.name, func(t *testing.T) {
			k := kindOf(t, tt.group, tt.key)
			e, err := k.Object([]byte(tt.object))
			if err != nil || e.Key != tt.key || e.Version != "5" {
				t.Fatalf("key %q, version %q, error %v", e.Key, e.Version, err)
			}
			same(t, "value", e.Value, tt.value)
			var list form.Page
			list, err = k.List([]byte(`{"metadata":{"resourceVersion":"9","continue":"more"},"items":[` + tt.object + `]}`))
			if err != nil || list.Version != "9" || list.Next != "more" || len(list.Entries) != 1 || list.Entries[0].Key != tt.key {
				t.Errorf("list: %+v, error %v", list, err)
			}
		})
	}
}

func TestAValueComesBackAsItWasWritten(t *testing.T) {
	for _, tt := range objects {
		t.Run(tt.name, func(t *testing.T) {
			k := kindOf(t, tt.group, tt.key)
			first, err := k.Object([]byte(tt.object))
			if err != nil {
				t.Fatal(err)
			}
			created, err := k.Create(api.Update{Key: tt.key, Value: first.Value})
			if err != nil || created.Method != "POST" || created.Name != "" {
				t.Fatalf("%+v, error %v", created, err)
			}
			replaced, err := k.Replace(api.Update{Key: tt.key, Value: first.Value, Revision: api.RevisionOf("4")}, []byte(tt.object))
			if err != nil || replaced.Method != "PUT" {
				t.Fatalf("%+v, error %v", replaced, err)
			}
			if !strings.Contains(string(replaced.Body), `"resourceVersion":"4"`) {
				t.Errorf("the request says nothing of the revision: %s", replaced.Body)
			}
			again, err := k.Object(replaced.Body)
			if err != nil || again.Key != tt.key {
				t.Fatalf("key %q, error %v", again.Key, err)
			}
			same(t, "value", unstamped(t, again.Value), string(unstamped(t, first.Value)))
		})
	}
}

// unstamped is a value without what the API server gives an object.
func unstamped(t *testing.T, value []byte) []byte {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(value, &doc); err != nil {
		t.Fatal(err)
	}
	if m, ok := doc["metadata"].(map[string]any); ok {
		for _, name := range []string{"uid", "generation", "creationTimestamp"} {
			delete(m, name)
		}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWhatUpstreamMarkedAsDeletedIsGone(t *testing.T) {
	for _, text := range []string{`"true"`, `true`} {
		k := kindOf(t, form.V1, "/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-26")
		e, err := k.Object([]byte(`{"metadata":{"name":"n1-10-65-0-0-26","resourceVersion":"5"},"spec":{"cidr":"10.65.0.0/26","node":"n1","state":"confirmed","deleted":` + text + `}}`))
		if err != nil || e.Key == "" || e.Value != nil {
			t.Errorf("deleted %s: %+v, error %v", text, e, err)
		}
	}
}

func TestAnObjectThatIsNotWhatItsNameSaysIsOfNoKey(t *testing.T) {
	for _, tt := range []struct{ key, object string }{
		{"/calico/ipam/v2/handle/a", `{"metadata":{"name":"b","resourceVersion":"5"},"spec":{"handleID":"a"}}`},
		{"/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26", `{"metadata":{"name":"10-65-0-64-26","resourceVersion":"5"},"spec":{"cidr":"10.65.0.0/26"}}`},
		{"/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26", `{"metadata":{"name":"10-65-0-0-26","resourceVersion":"5"},"spec":{"cidr":"no prefix"}}`},
		{"/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26", `{"metadata":{"name":"10-65-0-0-26","resourceVersion":"5"}}`},
		{prefix + "networkpolicies/prod/a", `{"metadata":{"name":"knp.default.a","namespace":"prod","resourceVersion":"5"},"spec":{}}`},
		{prefix + "globalnetworkpolicies/a", `{"metadata":{"name":"kcnp.a","resourceVersion":"5"},"spec":{}}`},
		{prefix + "globalnetworkpolicies/a", `{"metadata":{"name":"kanp.adminnetworkpolicy.a","resourceVersion":"5"},"spec":{}}`},
		{prefix + "globalnetworkpolicies/a", `{"metadata":{"name":"kbanp.baselineadminnetworkpolicy.default","resourceVersion":"5"},"spec":{}}`},
	} {
		e, err := kindOf(t, form.V1, tt.key).Object([]byte(tt.object))
		if err != nil || e.Key != "" || e.Value != nil || e.Version != "5" {
			t.Errorf("%s: %+v, error %v", tt.object, e, err)
		}
	}
}

func TestWhatKubernetesHasItselfIsAView(t *testing.T) {
	for _, tt := range []struct{ kind, object, key, contains string }{
		{
			"pods", `{"metadata":{"name":"web-0","namespace":"prod","labels":{"app":"web"},"resourceVersion":"5"},"spec":{"nodeName":"n-1","serviceAccountName":"sa"},"status":{"podIPs":[{"ip":"10.65.0.1"}]}}`,
			prefix + "workloadendpoints/prod/n--1-k8s-web--0-eth0", `"ipNetworks":["10.65.0.1/32"]`,
		},
		{
			"pods", `{"metadata":{"name":"web-0","namespace":"prod","resourceVersion":"5"},"spec":{"nodeName":"n-1"},"status":{"phase":"Succeeded","podIPs":[{"ip":"10.65.0.1"}]}}`,
			prefix + "workloadendpoints/prod/n--1-k8s-web--0-eth0", "",
		},
		{"pods", `{"metadata":{"name":"web-0","namespace":"prod","resourceVersion":"5"},"spec":{}}`, "", ""},
		{"namespaces", `{"metadata":{"name":"prod","labels":{"a":"b"},"resourceVersion":"5"}}`, prefix + "profiles/kns.prod", `"pcns.a":"b"`},
		{"serviceaccounts", `{"metadata":{"name":"my.sa","namespace":"prod","resourceVersion":"5"}}`, prefix + "profiles/ksa.prod.my.sa", `"pcsa.projectcalico.org/name":"my.sa"`},
		{
			"networkpolicies.networking.k8s.io", `{"metadata":{"name":"web","namespace":"prod","resourceVersion":"5"},"spec":{"podSelector":{}}}`,
			prefix + "networkpolicies/prod/knp.default.web", `"order":1000`,
		},
		{
			"clusternetworkpolicies.policy.networking.k8s.io", `{"metadata":{"name":"a.b","resourceVersion":"5"},"spec":{"tier":"Baseline","priority":7,"subject":{"namespaces":{}}}}`,
			prefix + "globalnetworkpolicies/kcnp.a.b", `"tier":"kube-baseline","order":7`,
		},
		{
			"clusternetworkpolicies.policy.networking.k8s.io", `{"metadata":{"name":"later","resourceVersion":"5"},"spec":{"tier":["Admin"],"ingress":[{"action":"Deny"}]}}`,
			prefix + "globalnetworkpolicies/kcnp.later", `"ingress":[{"action":"Deny"}]`,
		},
		{
			"adminnetworkpolicies.policy.networking.k8s.io", `{"metadata":{"name":"a","resourceVersion":"5"},"spec":{"priority":7,"subject":{"namespaces":{}}}}`,
			prefix + "globalnetworkpolicies/kanp.adminnetworkpolicy.a", `"tier":"kube-admin","order":7`,
		},
		{
			"baselineadminnetworkpolicies.policy.networking.k8s.io", `{"metadata":{"name":"default","resourceVersion":"5"},"spec":{"subject":{"namespaces":{}}}}`,
			prefix + "globalnetworkpolicies/kbanp.baselineadminnetworkpolicy.default", `"tier":"kube-baseline","order":1000`,
		},
		{"endpointslices.discovery.k8s.io", `{"metadata":{"name":"s-1","namespace":"prod","resourceVersion":"5"},"addressType":"IPv4"}`, prefix + "kubernetesendpointslices/prod/s-1", `"addressType":"IPv4"`},
		{
			"services", `{"metadata":{"name":"s","namespace":"prod","resourceVersion":"5","annotations":{"large":"x"}},"spec":{"type":"LoadBalancer","clusterIP":"10.96.0.9","clusterIPs":["10.96.0.9"],"externalIPs":["198.51.100.9"],
			"externalTrafficPolicy":"Local","ports":[{"port":80}],"selector":{"app":"web"}},"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.9","ipMode":"VIP"},{"hostname":"lb"}]}}}`,
			prefix + "kubernetesservices/prod/s", `"metadata":{"name":"s","namespace":"prod"},"spec":{"type":"LoadBalancer","clusterIPs":["10.96.0.9"],"externalIPs":["198.51.100.9"],"externalTrafficPolicy":"Local"},` +
				`"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.9"}]}}`,
		},
		{
			"nodes", `{"metadata":{"name":"n1","resourceVersion":"5","labels":{"zone":"a"},"annotations":{"projectcalico.org/IPv4Address":"192.0.2.1/24","projectcalico.org/ASNumber":"1.10","projectcalico.org/labels":"{\"rack\":\"r\"}"}},
			"spec":{"podCIDRs":["10.1.0.0/24"]},"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"},{"type":"Hostname","address":"n1"}]}}`,
			prefix + "nodes/n1", `"bgp":{"asNumber":65546,"ipv4Address":"192.0.2.1/24"}`,
		},
	} {
		for _, k := range form.Kinds(form.V1) {
			if k.ID() != tt.kind {
				continue
			}
			e, err := k.Object([]byte(tt.object))
			if err != nil || e.Key != tt.key || e.Version != "5" || (e.Value != nil) != (tt.contains != "") || !strings.Contains(string(e.Value), tt.contains) {
				t.Errorf("%s: key %q, value %s, error %v; want %q, %s", tt.kind, e.Key, e.Value, err, tt.key, tt.contains)
			}
			if e.Key == "" {
				continue
			}
			if _, err := k.Remove(e.Key, api.Revision{}); (err == nil) != (tt.kind == "pods") {
				t.Errorf("%s: remove: %v", tt.kind, err)
			}
		}
	}
}

// Each key is one object's, and clusters without Kubernetes' cluster-wide policies are whole.
func TestAClusterWidePolicyHasAPlaceOfItsOwn(t *testing.T) {
	for key, want := range map[string]string{
		"a": "globalnetworkpolicies", "kcnp": "globalnetworkpolicies", "kcnp.a": "clusternetworkpolicies", "kanp.adminnetworkpolicy.a.b": "adminnetworkpolicies",
		"kbanp.baselineadminnetworkpolicy.default": "baselineadminnetworkpolicies", "kbanp.a": "globalnetworkpolicies",
	} {
		var holders []string
		for _, k := range form.Kinds(form.V3) {
			if _, _, ok := k.Name(prefix + "globalnetworkpolicies/" + key); !ok || k.Prefix == "" {
				continue
			}
			holders = append(holders, k.Plural)
			if k.Optional != (k.Plural != "globalnetworkpolicies") {
				t.Errorf("%s: optional is %v", k.Plural, k.Optional)
			}
			list, err := k.List([]byte(`{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","resourceVersion":"5"},"spec":{}}]}`))
			if err != nil || list.Version != "9" || len(list.Entries) != 1 || list.Entries[0].Version != "5" || list.Entries[0].Value == nil {
				t.Errorf("%s: list %+v, error %v", k.Plural, list, err)
			}
			u := api.Update{Key: prefix + "globalnetworkpolicies/" + key, Value: []byte(`{}`)}
			var readOnly *form.ReadOnlyError
			_, created := k.Create(u)
			_, replaced := k.Replace(u, []byte(`{"metadata":{"name":"a"}}`))
			if view := k.Plural != "globalnetworkpolicies"; errors.As(created, &readOnly) != view || errors.As(replaced, &readOnly) != view {
				t.Errorf("%s: create: %v; replace: %v", k.Plural, created, replaced)
			}
		}
		if strings.Join(holders, " ") != want {
			t.Errorf("%s is held by %v, want %s", key, holders, want)
		}
	}
}

func TestANodesLabelsOfKubernetesStayThere(t *testing.T) {
	const was = `{"metadata":{"name":"n1","resourceVersion":"5","labels":{"zone":"a"},"annotations":{"projectcalico.org/labels":"{\"rack\":\"r\"}","projectcalico.org/IPv4Address":"192.0.2.1/24","projectcalico.org/Interfaces":"[{\"name\":\"eth0\",\"addresses\":[\"192.0.2.1\"]},{\"name\":\"eth1\"}]"}}}`
	k := kindOf(t, form.V1, prefix+"nodes/n1")
	e, err := k.Object([]byte(was))
	if err != nil {
		t.Fatal(err)
	}
	req, err := k.Replace(api.Update{Key: e.Key, Value: e.Value}, []byte(was))
	if err != nil || req.Method != "PATCH" || req.Subresource != "status" {
		t.Fatalf("%+v, error %v", req, err)
	}
	var patch struct {
		Metadata struct{ Annotations map[string]*string }
	}
	if err := json.Unmarshal(req.Body, &patch); err != nil {
		t.Fatal(err)
	}
	a := patch.Metadata.Annotations
	if l := a["projectcalico.org/labels"]; l == nil || *l != `{"rack":"r"}` {
		t.Errorf("labels: %s", req.Body)
	}
	if v := a["projectcalico.org/IPv4Address"]; v == nil || *v != "192.0.2.1/24" {
		t.Errorf("address: %s", req.Body)
	}
	const interfaces = `[{"name":"eth0","addresses":["192.0.2.1"]},{"name":"eth1"}]`
	if v := a["projectcalico.org/Interfaces"]; v == nil || *v != interfaces || !strings.Contains(string(e.Value), `"interfaces":`+interfaces) {
		t.Errorf("interfaces: %s of %s", req.Body, e.Value)
	}
	if v, has := a["projectcalico.org/ASNumber"]; !has || v != nil {
		t.Errorf("what is not set must be removed: %s", req.Body)
	}
	if v, has := a["projectcalico.org/annotations"]; !has || v != nil {
		t.Errorf("our own note of Kubernetes' labels was written: %s", req.Body)
	}
}

// TestALabelThatKubernetesTookAwayStaysAway: the value is older than the Node, as that of an export.
func TestALabelThatKubernetesTookAwayStaysAway(t *testing.T) {
	k := kindOf(t, form.V3, prefix+"nodes/n1")
	kv := api.Update{Key: prefix + "nodes/n1", Value: []byte(`{"metadata":{"name":"n1","labels":{"zone":"a","gone":"x","rack":"r","ours":"z"},"annotations":{"projectcalico.org/kube-labels":"{\"zone\":\"a\",\"gone\":\"x\",\"ours\":\"y\"}"}}}`)}
	req, err := k.Replace(kv, []byte(`{"metadata":{"name":"n1","resourceVersion":"5","labels":{"zone":"b"}}}`))
	if want := `"projectcalico.org/labels":"{\"ours\":\"z\",\"rack\":\"r\"}"`; err != nil || !strings.Contains(string(req.Body), want) {
		t.Errorf("%s, error %v, want %s", req.Body, err, want)
	}
}

// TestWhatIsUnknownOfLabelsIsNotWritten: without the note, a label that Kubernetes took away would come back as Calico's, and with it what selects the node by it.
func TestWhatIsUnknownOfLabelsIsNotWritten(t *testing.T) {
	k := kindOf(t, form.V3, prefix+"nodes/n1")
	for _, note := range []string{`{`, `[\"zone\"]`, `{\"zone\":1}`} {
		kv := api.Update{Key: prefix + "nodes/n1", Value: []byte(`{"metadata":{"name":"n1","labels":{"zone":"a"},"annotations":{"projectcalico.org/kube-labels":"` + note + `"}}}`)}
		req, err := k.Replace(kv, []byte(`{"metadata":{"name":"n1","resourceVersion":"5"}}`))
		if err == nil || !strings.Contains(err.Error(), "annotation projectcalico.org/kube-labels") {
			t.Errorf("note %s: %s, error %v", note, req.Body, err)
		}
	}
	const broken = `{"metadata":{"name":"n1","labels":{"zone":"b"},"annotations":{"projectcalico.org/kube-labels":"{","projectcalico.org/labels":"[","projectcalico.org/annotations":"{\"projectcalico.org/kube-labels\":\"{\"}"}}}`
	e, err := k.Object([]byte(broken))
	if want := `"projectcalico.org/kube-labels":"{\"zone\":\"b\"}"`; err != nil || !strings.Contains(string(e.Value), want) {
		t.Errorf("a Node whose annotations are broken: %s, error %v, want it with %s", e.Value, err, want)
	}
}

// TestLabelsOfNodesCannotBeTurnedOff: a Node is Kubernetes' own, with its labels. Who writes something else in a resource that says so already may.
func TestLabelsOfNodesCannotBeTurnedOff(t *testing.T) {
	const key = prefix + "kubecontrollersconfigurations/default"
	document := func(labels, level string) []byte {
		return []byte(`{"metadata":{"name":"default","resourceVersion":"5"},"spec":{"logSeverityScreen":"` + level + `","controllers":{"node":{"syncLabels":"` + labels + `"}}}}`)
	}
	for _, g := range []form.Group{form.V3, form.V1} {
		k := kindOf(t, g, key)
		for _, tt := range []struct{ was, labels, wrong string }{
			{"", "Enabled", ""},
			{"", "Disabled", "spec.controllers.node.syncLabels is Disabled"},
			{"Enabled", "Disabled", "spec.controllers.node.syncLabels is Disabled"},
			{"Disabled", "Disabled", ""},
			{"Disabled", "Enabled", ""},
		} {
			kv, err := api.Update{Key: key, Value: document(tt.labels, "Debug")}, error(nil)
			if tt.was == "" {
				_, err = k.Create(kv)
			} else {
				_, err = k.Replace(kv, document(tt.was, "Info"))
			}
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Errorf("in %s, %q after %q: %v, want %q", g, tt.labels, tt.was, err, tt.wrong)
			}
		}
	}
}

func TestARecordKeepsAnyKeyAndAnyBytes(t *testing.T) {
	var k form.Kind
	for _, k = range form.Kinds(form.V3) {
		if k.Prefix == "" {
			break
		}
	}
	kv := api.Update{Key: "/calico/felix/v2/é%2F/x", Value: []byte("\x00\xff")}
	req, err := k.Create(kv)
	if err != nil {
		t.Fatal(err)
	}
	e, err := k.Object(req.Body)
	if err != nil || e.Key != kv.Key || string(e.Value) != string(kv.Value) {
		t.Errorf("%+v, error %v", e, err)
	}
	if _, name, _ := k.Name(kv.Key); !strings.Contains(string(req.Body), name) {
		t.Errorf("the object of the key is %s, its name not in %s", name, req.Body)
	}
}

// TestPodsOfAnotherPluginHaveItsLinks, and the addresses that it notes before kubelet does, until it gave them back.
func TestPodsOfAnotherPluginHaveItsLinks(t *testing.T) {
	pod := func(more string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"podname","namespace":"namespace"` + more + `,"spec":{"nodeName":"n","containers":[{"name":"c"}]}`
	}
	for _, tt := range []struct{ name, links, object, want string }{
		{"ours", "", pod(`},"status":{"podIP":"10.0.0.1"}`) + "}", "cali82111e10a96 [10.0.0.1/32]"},
		{"another's", "eni", pod(`},"status":{"podIP":"10.0.0.1"}`) + "}", "eni82111e10a96 [10.0.0.1/32]"},
		{"noted", "eni", pod(`,"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.2,fd00::2"}}`) + "}", "eni82111e10a96 [10.0.0.2/32 fd00::2/128]"},
		{"noted, and kubelet knows better", "eni", pod(`,"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.2"}},"status":{"podIP":"10.0.0.1"}`) + "}", "eni82111e10a96 [10.0.0.1/32]"},
		{"given back", "eni", pod(`,"deletionTimestamp":"2026-01-01T00:00:00Z","annotations":{"vpc.amazonaws.com/pod-ips":""}},"status":{"podIP":"10.0.0.1"}`) + "}", ""},
		{"empty, and it runs", "eni", pod(`,"annotations":{"vpc.amazonaws.com/pod-ips":""}},"status":{"podIP":"10.0.0.1"}`) + "}", "eni82111e10a96 [10.0.0.1/32]"},
		{"Calico's plugin gave it back once, and another attached it", "eni", pod(`,"annotations":{"cni.projectcalico.org/podIP":"","cni.projectcalico.org/podIPs":""}},"status":{"podIP":"10.0.0.1"}`) + "}", "eni82111e10a96 [10.0.0.1/32]"},
		{"Calico's plugin gave it back, and nobody attached it again", "", pod(`,"annotations":{"cni.projectcalico.org/podIP":"","cni.projectcalico.org/podIPs":""}},"status":{"podIP":"10.0.0.1"}`) + "}", ""},
		{"noted where nobody asked", "", pod(`,"annotations":{"vpc.amazonaws.com/pod-ips":"10.0.0.2"}}`) + "}", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, k := range form.KindsWith(form.V3, tt.links) {
				if k.Plural != "pods" {
					continue
				}
				e, err := k.Object([]byte(tt.object))
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				if len(e.Value) > 0 {
					var w api.WorkloadEndpoint
					if err := json.Unmarshal(e.Value, &w); err != nil {
						t.Fatal(err)
					}
					got = fmt.Sprint(w.Spec.InterfaceName, " ", w.Spec.IPNetworks)
				}
				if got != tt.want {
					t.Errorf("it is %q, want %q", got, tt.want)
				}
			}
		})
	}
}
