package migration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/resources/migration"
)

// cluster is what an etcd of Kubernetes holds, of which a node is called otherwise in Kubernetes.
func cluster() []migration.Entry {
	var out []migration.Entry
	put := func(key, value string) {
		out = append(out, migration.Entry{Key: key, Value: []byte(value)})
	}
	put(api.IPAMPrefix+"assignment/ipv4/block/10.65.0.0-26", `{"cidr":"10.65.0.0/26","affinity":"host:old","affinity_claim_time":"2026-01-01T00:00:00Z","allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"vxlan-tunnel-addr-old","secondary":{"node":"old","type":"vxlanTunnelAddress"}}],"sequenceNumber":18446744073709551615,"deleted":false,"newer":1}`)
	put(api.IPAMConfigKey, `{"strict_affinity":true,"auto_allocate_blocks":true}`)
	put(api.HandlePrefix+"k8s-pod-network.abc", `{"block":{"10.65.0.0/26":1},"deleted":false}`)
	put(api.HandlePrefix+"vxlan-tunnel-addr-old", `{"block":{"10.65.0.0/26":1},"deleted":false}`)
	put(api.IPAMPrefix+"host/h2/ipv4/block/10.65.0.64-26", `{"state":"confirmed","deleted":false}`)
	put(api.IPAMPrefix+"host/old/ipv4/block/10.65.0.0-26", `{"state":"confirmed","deleted":false}`)
	put(prefix+"bgppeers/p1", `{"kind":"BGPPeer","metadata":{"name":"p1"},"spec":{"node":"old","peerIP":"192.0.2.9","asNumber":64512}}`)
	put(prefix+"clusterinformations/default", `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","uid":"u"},"spec":{"clusterGUID":"g","datastoreReady":false}}`)
	put(prefix+"felixconfigurations/node.old", `{"kind":"FelixConfiguration","metadata":{"name":"node.old"},"spec":{"logSeverityScreen":"Debug","ofLaterVersions":"x"}}`)
	put(prefix+"globalnetworkpolicies/default.web", `{"kind":"GlobalNetworkPolicy","metadata":{"name":"default.web","uid":"u2","creationTimestamp":"2020-01-01T00:00:00Z","labels":{"projectcalico.org/tier":"default"},"annotations":{"projectcalico.org/metadata":"{\"name\":\"web\"}"}},"spec":{"tier":"default","selector":"all()","types":["Ingress"]}}`)
	put(prefix+"globalnetworksets/text", `{"kind":"GlobalNetworkSet","metadata":{"name":"text","annotations":{"a":"x\n===\ny"}},"spec":{"nets":["10.0.0.0/8"]}}`)
	put(prefix+"hostendpoints/eth0", `{"kind":"HostEndpoint","metadata":{"name":"eth0"},"spec":{"node":"old","interfaceName":"eth0"}}`)
	put(prefix+"networkpolicies/prod/knp.default.copy", `{"kind":"NetworkPolicy","metadata":{"name":"knp.default.copy","namespace":"prod"},"spec":{"types":["Ingress"]}}`)
	put(prefix+"nodes/h2", `{"kind":"Node","metadata":{"name":"h2"},"spec":{"bgp":{"ipv4Address":"192.0.2.2/24"}}}`)
	put(prefix+"nodes/old", `{"kind":"Node","metadata":{"name":"old"},"spec":{"orchRefs":[{"orchestrator":"k8s","nodeName":"new"}]}}`)
	put(prefix+"profiles/kns.prod", `{"kind":"Profile","metadata":{"name":"kns.prod"},"spec":{}}`)
	put(prefix+"profiles/mine", `{"kind":"Profile","metadata":{"name":"mine"},"spec":{}}`)
	put(prefix+"tiers/default", `{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","uid":"u3"},"spec":{"order":1000000,"defaultAction":"Deny"}}`)
	put(prefix+"unknowns/a", "no\x00json")
	put(prefix+"workloadendpoints/prod/h2-k8s-web-eth0", `{"kind":"WorkloadEndpoint","metadata":{"name":"h2-k8s-web-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s"}}`)
	return out
}

// file writes entries in upstream's form.
func file(t *testing.T, es []migration.Entry) (migration.Upstream, string) {
	t.Helper()
	u, err := migration.ToUpstream(es)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := u.Write(&b, yaml.JSONToYAML); err != nil {
		t.Fatal(err)
	}
	return u, b.String()
}

// TestUpstreamsFormIsAsUpstreamReadsIt: upstream divides the file at each ===, applies the YAML of the first part, and reads the others as JSON.
func TestUpstreamsFormIsAsUpstreamReadsIt(t *testing.T) {
	u, text := file(t, cluster())
	parts := strings.Split(text, "===\n")
	if len(parts) != 3 {
		t.Fatalf("%d parts:\n%s", len(parts), text)
	}
	docs, err := api.Decode([]byte(strings.Replace(parts[0], "ofLaterVersions: x", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range docs {
		got = append(got, api.RefOf(d.Resource).String())
		if m := d.Resource.Meta(); m.UID+m.ResourceVersion+m.CreationTimestamp != "" {
			t.Errorf("%s has metadata of its old store: %+v", m.Name, m)
		}
	}
	want := []string{"FelixConfiguration node.new", "Node h2", "Node new", "BGPPeer p1", "Tier default", "GlobalNetworkSet text", "GlobalNetworkPolicy web", "HostEndpoint eth0"}
	if !slices.Equal(got, want) {
		t.Errorf("resources %q, want %q", got, want)
	}
	var info struct{ Spec struct{ ClusterGUID string } }
	if err := json.Unmarshal([]byte(parts[1]), &info); err != nil || info.Spec.ClusterGUID != "g" {
		t.Errorf("the second part is %s, error %v", parts[1], err)
	}
	if strings.Contains(strings.ReplaceAll(text, "nodeName: new", ""), "old") {
		t.Errorf("something has the node's old name:\n%s", text)
	}
	for _, want := range []string{
		`"Key": "/calico/ipam/v2/host/new/ipv4/block/10.65.0.0-26"`, `"affinity": "host:new"`, `"node": "new"`, `"handle_id": "vxlan-tunnel-addr-new"`, `"TTL": 0`,
		`"Key": "/calico/ipam/v2/handle/vxlan-tunnel-addr-new"`, `"sequenceNumber": 18446744073709551615`, `"newer": 1`, `"block_affinities": [`, `"blocks": [`, `"handles": [`, `"config": {`,
	} {
		if !strings.Contains(parts[2], want) {
			t.Errorf("the third part lacks %s:\n%s", want, parts[2])
		}
	}
	var notes []string
	for _, s := range u.LeftOut {
		if s.Note != "" {
			notes = append(notes, s.Name())
		}
	}
	if len(u.LeftOut) != 5 || !slices.Equal(notes, []string{"profile/mine", "/calico/resources/v3/projectcalico.org/unknowns/a"}) {
		t.Errorf("left out are %+v", u.LeftOut)
	}
	if len(u.Nodes) != 2 || !strings.HasPrefix(u.Nodes[0], "node/h2 says no name in Kubernetes") || u.Nodes[1] != "node/old is called new in the file, as in Kubernetes" {
		t.Errorf("of nodes it says %q", u.Nodes)
	}
}

// TestAFileOfUpstreamsFormIsImportedAgainAndAgain, and gives the same file where it was imported.
func TestValuesThatVersion1HadInCapitalsAreAsUpstreamTakesThem(t *testing.T) {
	es := append(cluster(), migration.Entry{Key: prefix + "felixconfigurations/default", Value: []byte(`{"kind":"FelixConfiguration","metadata":{"name":"default"},"spec":{"defaultEndpointToHostAction":"RETURN","iptablesFilterAllowAction":"ACCEPT","iptablesMangleAllowAction":"Return","iptablesFilterDenyAction":"DROP","interfacePrefix":"CALI","chainInsertMode":"APPEND"}}`)})
	_, text := file(t, es)
	for _, want := range []string{"defaultEndpointToHostAction: Return\n", "iptablesFilterAllowAction: Accept\n", "iptablesMangleAllowAction: Return\n", "iptablesFilterDenyAction: Drop\n", "interfacePrefix: CALI\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

func TestAFileOfUpstreamsFormIsImportedAgainAndAgain(t *testing.T) {
	_, text := file(t, cluster())
	s := storetest.New(t)
	for round := range 2 {
		es, err := migration.FromUpstream([]byte(text)) // with other uids each time
		if err != nil {
			t.Fatal(err)
		}
		plan, err := migration.Prepare(t.Context(), s, es, nothing)
		if err == nil {
			err = plan.Carry(t.Context(), s, nothing)
		}
		if err != nil || round == 1 && plan.Count(migration.Unchanged) != len(es)-1 {
			t.Fatalf("round %d: %v of %d, error %v", round, plan, len(es), err)
		}
		if v, err := migration.Verify(t.Context(), s, es, nothing); err != nil || v.Equal != len(es) || v.Addresses == 0 {
			t.Errorf("verified %+v of %d, error %v", v, len(es), err) // a handle that has no addresses
		}
	}
	var es []migration.Entry
	snap, err := s.List(t.Context(), api.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range snap.Sorted() {
		es = append(es, migration.Entry{Key: u.Key, Value: u.Value})
		var doc struct {
			Metadata struct{ UID, CreationTimestamp string }
		}
		if strings.HasPrefix(u.Key, prefix) && (json.Unmarshal(u.Value, &doc) != nil || doc.Metadata.UID == "" || doc.Metadata.CreationTimestamp == "") {
			t.Errorf("%s has no uid or time: %s", u.Key, u.Value)
		}
	}
	if _, again := file(t, es); withoutMade(again) != withoutMade(text) {
		t.Errorf("exported again:\n%s\nwant\n%s", again, text)
	}
}

// withoutMade is a file without what is decided anew: in the ClusterInformation upstream has it, too.
func withoutMade(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, `"uid"`) && !strings.Contains(line, `"creationTimestamp"`) {
			out = append(out, strings.TrimRight(strings.TrimSpace(line), ",")) // fields of JSON may have another order
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// upstreams is a file as upstream's command writes it.
const upstreams = `apiVersion: projectcalico.org/v3
items:
- apiVersion: projectcalico.org/v3
  kind: IPPool
  metadata:
    creationTimestamp: null
    name: default-ipv4-ippool
  spec:
    blockSize: 26
    cidr: 192.168.0.0/16
    ipipMode: Always
    natOutgoing: true
    nodeSelector: all()
    vxlanMode: Never
kind: IPPoolList
metadata:
  resourceVersion: "1234"
---
apiVersion: projectcalico.org/v3
items: []
kind: BGPPeerList
metadata: {}
---
apiVersion: projectcalico.org/v3
items:
- apiVersion: projectcalico.org/v3
  kind: NetworkPolicy
  metadata:
    creationTimestamp: null
    name: web
    namespace: prod
  spec:
    ingress:
    - action: Allow
      destination: {}
      source: {}
    selector: app == 'web'
    types:
    - Ingress
kind: NetworkPolicyList
metadata: {}
---
===
{
  "kind": "ClusterInformation",
  "apiVersion": "projectcalico.org/v3",
  "metadata": {
    "name": "default",
    "uid": "4cb8f8c9-cf64-4c3e-a4c0-8a9a4a0d1c3e",
    "resourceVersion": "77",
    "creationTimestamp": "2020-06-25T21:49:02Z"
  },
  "spec": {
    "clusterGUID": "a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4",
    "calicoVersion": "v3.30.0",
    "datastoreReady": false
  }
}
===
{
  "block_affinities": [
    {
      "Key": "/calico/ipam/v2/host/n1/ipv4/block/192.168.1.0-26",
      "Value": {
        "state": "confirmed",
        "deleted": false
      },
      "TTL": 0
    }
  ],
  "blocks": [
    {
      "Key": "/calico/ipam/v2/assignment/ipv4/block/192.168.1.0-26",
      "Value": {
        "cidr": "192.168.1.0/26",
        "affinity": "host:n1",
        "allocations": [],
        "unallocated": [],
        "attributes": [],
        "sequenceNumber": 0,
        "sequenceNumberForAllocation": {},
        "deleted": false
      },
      "TTL": 0
    }
  ],
  "config": {
    "Key": "/calico/ipam/v2/config",
    "Value": {
      "auto_allocate_blocks": true
    },
    "TTL": 0
  }
}
`

func TestAFileThatUpstreamWroteIsRead(t *testing.T) {
	es, err := migration.FromUpstream([]byte(upstreams))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, e := range es {
		keys = append(keys, strings.TrimPrefix(e.Key, api.Root))
	}
	const of = "resources/v3/projectcalico.org/"
	want := []string{of + "ippools/default-ipv4-ippool", of + "networkpolicies/prod/web", of + "clusterinformations/default", "ipam/v2/host/n1/ipv4/block/192.168.1.0-26", "ipam/v2/assignment/ipv4/block/192.168.1.0-26", "ipam/v2/config"}
	if !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
	st, err := api.DecodeStored(api.Update{Key: es[1].Key, Value: es[1].Value})
	m := st.Resource.Meta()
	if err != nil || st.Ref.Name != "web" || m.UID == "" || m.Labels[api.LabelTier] != "default" || m.Annotations[api.AnnotationMetadata] != `{"name":"web"}` || m.CreationTimestamp == "" || m.ResourceVersion != "" {
		t.Errorf("the policy is %s, error %v", es[1].Value, err)
	}
	if got := string(es[3].Value); got != `{"state":"confirmed","deleted":false}` {
		t.Errorf("the affinity is %s", got)
	}
}

func TestAFileOfUpstreamsFormThatIsNotUnderstoodIsRefusedByName(t *testing.T) {
	for _, tt := range []struct{ name, old, now, want string }{
		{"a part is missing", "===\n{\n  \"block", "{\n  \"block", "has 2 parts, want three"},
		{"a kind that nobody knows", "kind: NetworkPolicy\n", "kind: FuturePolicy\n", `knows no kind "FuturePolicy"`},
		{"another version", "- apiVersion: projectcalico.org/v3\n  kind: NetworkPolicy", "- apiVersion: projectcalico.org/v4\n  kind: NetworkPolicy", "apiVersion is projectcalico.org/v4"},
		{"no namespace", "    namespace: prod\n", "", "namespace is empty"},
		{"no name", "    name: web\n", "", "name is empty"},
		{"no YAML", "blockSize: 26", "blockSize: [", "no YAML"},
		{"text in the place of a resource", "items: []", "items: [x]", `x is no resource`},
		{"another kind in the second part", `"kind": "ClusterInformation"`, `"kind": "Node"`, "the second part is a Node"},
		{"no JSON in the second part", `"spec": {`, `"spec": `, "the second part"},
		{"a list of address management that nobody knows", `"blocks": [`, `"bricks": [`, `unknown field "bricks"`},
		{"a block among the affinities", "ipam/v2/host/n1/ipv4/block", "ipam/v2/assignment/ipv4/block", "block_affinities has the key"},
		{"no value", `"Value": {
        "state": "confirmed",
        "deleted": false
      }`, `"Value": null`, "its value is no object"},
		{"what would go by itself", `"TTL": 0`, `"TTL": 5`, "its TTL is 5"},
		{"more behind it", "", "", "there is more behind it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(upstreams, tt.old, tt.now, 1)
			if tt.old == "" {
				text += "{}"
			}
			if _, err := migration.FromUpstream([]byte(text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
	twice := strings.Replace(upstreams, "items: []\nkind: BGPPeerList", "items: [{metadata: {name: default-ipv4-ippool}}]\nkind: IPPoolList", 1)
	if _, err := migration.FromUpstream([]byte(twice)); err == nil || !strings.Contains(err.Error(), "ippool/default-ipv4-ippool is there twice") {
		t.Errorf("one resource twice: %v", err)
	}
}

// TestWhatUpstreamsFormCannotHoldIsRefusedBeforeAnythingIsWritten names all of it at once.
func TestWhatUpstreamsFormCannotHoldIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	_, err := migration.ToUpstream([]migration.Entry{
		{Key: api.HandlePrefix + "x", Value: []byte("not json")},
		{Key: prefix + "globalnetworksets/broken", Value: []byte("7")},
		{Key: prefix + "nodes/a", Value: []byte(`{"metadata":{"name":"a"},"spec":{"orchRefs":[{"orchestrator":"k8s","nodeName":"c"}]}}`)},
		{Key: prefix + "nodes/b", Value: []byte(`{"metadata":{"name":"b"},"spec":{"orchRefs":[{"orchestrator":"k8s","nodeName":"c"}]}}`)},
	})
	var refused *migration.RefusedError
	if !errors.As(err, &refused) || len(refused.Problems) != 4 {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"/calico/ipam/v2/handle/x cannot be read", "globalnetworkset/broken cannot be read", "node/a and node/b are both called c in Kubernetes", "there is no clusterinformation/default: lock the datastore first"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v", want, err)
		}
	}
}

// TestANodeThatIsAnothersIsLeftOut: of two nodes that Kubernetes calls by one name, one has it anyway. The other is left out if nothing but
// its own settings names it, which are then those of the first; else it is refused, for whose addresses would those be?
func TestANodeThatIsAnothersIsLeftOut(t *testing.T) {
	const of4 = `{"metadata":{"name":"node4"},"spec":{"orchRefs":[{"orchestrator":"k8s","nodeName":"node4"}]}}`
	for _, tt := range []struct {
		name, key, value string // of one more entry
		want             string // of the error; empty: none
	}{
		{"nothing names it", "ippools/p", `{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/16"}}`, ""},
		{"its settings", "bgpconfigurations/node.node5", `{"metadata":{"name":"node.node5"},"spec":{"logSeverityScreen":"Debug"}}`, ""},
		{"a peer of it", "bgppeers/p", `{"metadata":{"name":"p"},"spec":{"node":"node5","peerIP":"192.0.2.1"}}`, "node/node4 and node/node5 are both called node4 in Kubernetes"},
		{"its block", "../../../ipam/v2/host/node5/ipv4/block/10.0.0.0-26", `{"state":"confirmed"}`, "are both called node4"},
		{"an address of it", "../../../ipam/v2/assignment/ipv4/block/10.0.0.0-26", `{"cidr":"10.0.0.0/26","affinity":"host:node5"}`, "are both called node4"},
		{"the address of its tunnel", "../../../ipam/v2/handle/vxlan-tunnel-addr-node5", `{"handleID":"vxlan-tunnel-addr-node5"}`, "are both called node4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u, err := migration.ToUpstream([]migration.Entry{
				{Key: prefix + "clusterinformations/default", Value: []byte(`{"metadata":{"name":"default"},"spec":{"datastoreReady":false}}`)},
				{Key: prefix + "nodes/node4", Value: []byte(of4)},
				{Key: prefix + "nodes/node5", Value: []byte(strings.Replace(of4, `"name":"node4"`, `"name":"node5"`, 1))},
				{Key: path.Clean(prefix + tt.key), Value: []byte(tt.value)},
			})
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want an error with %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			file := string(bytes.Join(u.Lists, nil))
			if strings.Contains(file, `"name":"node5"`) || strings.Contains(file, "node.node5") || strings.Count(file, `"name":"node4"`) != 1 || len(u.LeftOut) != 1 || !strings.Contains(u.LeftOut[0].Note, "node/node4") {
				t.Errorf("got %s\nleft out: %+v", file, u.LeftOut)
			}
			if is := strings.Contains(file, "node.node4"); is != strings.HasPrefix(tt.key, "bgpconf") {
				t.Errorf("settings of node4 are there: %v\n%s", is, file)
			}
		})
	}
	_, err := migration.ToUpstream([]migration.Entry{
		{Key: prefix + "clusterinformations/default", Value: []byte(`{"metadata":{"name":"default"}}`)},
		{Key: prefix + "nodes/node4", Value: []byte(of4)},
		{Key: prefix + "nodes/node5", Value: []byte(strings.Replace(of4, `"name":"node4"`, `"name":"node5"`, 1))},
		{Key: prefix + "felixconfigurations/node.node4", Value: []byte(`{"metadata":{"name":"node.node4"}}`)},
		{Key: prefix + "felixconfigurations/node.node5", Value: []byte(`{"metadata":{"name":"node.node5"}}`)},
	})
	if want := "felixconfiguration/node.node5 and felixconfiguration/node.node4 have one name in the file"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("settings of both: %v, want %q", err, want)
	}
}

// TestWhatIsNotAsItWasWrittenIsFound: somebody else writes between the import and the look, or takes something away.
func TestWhatIsNotAsItWasWrittenIsFound(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(datastore.Store) error
		want   string
	}{
		{"gone", func(s datastore.Store) error {
			return s.Delete(t.Context(), prefix+"globalnetworksets/a", api.Revision{})
		}, "globalnetworkset/a is not there"},
		{"another", func(s datastore.Store) error {
			return datastore.Put(t.Context(), s, api.Update{Key: prefix + "globalnetworksets/a", Value: []byte(`{"spec":{"nets":[]}}`)})
		}, "globalnetworkset/a is there already, and is another"},
		{"more", func(s datastore.Store) error {
			return datastore.Put(t.Context(), s, api.Update{Key: prefix + "globalnetworksets/b", Value: []byte(`{}`)})
		}, "globalnetworkset/b is there already, and is not in the export"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := storetest.New(t)
			if _, err := into(t, s); err != nil {
				t.Fatal(err)
			}
			if v, err := migration.Verify(t.Context(), s, export(), nothing); err != nil || v != (migration.Verified{Equal: len(export())}) {
				t.Errorf("as it was: %+v, error %v", v, err)
			}
			if err := tt.change(s); err != nil {
				t.Fatal(err)
			}
			if _, err := migration.Verify(t.Context(), s, export(), nothing); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
}
