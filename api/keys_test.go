package api

import "testing"

func TestKeysReadBackAsTheyWereWritten(t *testing.T) {
	for _, k := range Kinds() {
		r := New(k.Kind)
		r.Meta().Name = "a.b-c"
		if k.Namespaced {
			r.Meta().Namespace = "prod"
		}
		key, err := Key(r)
		if err != nil {
			t.Fatal(err)
		}
		if ref, ok := ParseKey(key); !ok || ref != RefOf(r) {
			t.Errorf("%s: read back as %+v, %v", key, ref, ok)
		}
		if want := KeyPrefix(k.Kind, r.Meta().Namespace) + "a.b-c"; key != want {
			t.Errorf("%s does not begin with its prefix: %s", key, want)
		}
	}
}

func TestWrongKeysAreRefused(t *testing.T) {
	for _, key := range []string{
		"", "/", "/calico/", ResourcesPrefix, ResourcesPrefix + "tiers", ResourcesPrefix + "tiers/", ResourcesPrefix + "tiers/a/b",
		ResourcesPrefix + "networkpolicies/web", ResourcesPrefix + "networkpolicies//web", ResourcesPrefix + "networkpolicies/a/", ResourcesPrefix + "networkpolicies/a/b/c",
		ResourcesPrefix + "livemigrations/x", "/calico/ipam/v2/config",
	} {
		if ref, ok := ParseKey(key); ok {
			t.Errorf("%q read as %+v", key, ref)
		}
	}
	for _, ref := range []Ref{{}, {Kind: "Foo", Name: "a"}, {Kind: KindTier}, {Kind: KindTier, Name: "a/b"}, {Kind: KindTier, Name: "a", Namespace: "b"}, {Kind: KindNetworkPolicy, Name: "a"}} {
		if key, err := ref.Key(); err == nil {
			t.Errorf("%+v has the key %s", ref, key)
		}
	}
}

func TestKindsAreFoundByTheirNamesAndNoNameIsTakenTwice(t *testing.T) {
	seen := map[string]string{}
	for _, k := range Kinds() {
		for _, n := range append([]string{k.Kind, k.Plural}, k.Aliases...) {
			if got, ok := LookupKind(n); !ok || got.Kind != k.Kind {
				t.Errorf("%s is %s, want %s", n, got.Kind, k.Kind)
			}
			if seen[n] != "" {
				t.Errorf("%s is a name of %s and %s", n, seen[n], k.Kind)
			}
			seen[n] = k.Kind
		}
		if New(k.Kind) == nil || shallow(New(k.Kind)) == nil {
			t.Errorf("%s cannot be made", k.Kind)
		}
	}
	for alias, want := range map[string]string{"NP": KindNetworkPolicy, "wep": KindWorkloadEndpoint, "hep": KindHostEndpoint, "gns": KindGlobalNetworkSet, "netset": KindNetworkSet, "Profile": KindProfile, "gnp": KindGlobalNetworkPolicy} {
		if k, _ := LookupKind(alias); k.Kind != want {
			t.Errorf("%s is %q, want %s", alias, k.Kind, want)
		}
	}
}

func TestWorkloadEndpointNames(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec WorkloadEndpointSpec
		want string
	}{
		{"of Kubernetes, with dashes doubled", WorkloadEndpointSpec{Node: "node-1", Orchestrator: "k8s", Pod: "web-0", ContainerID: "c", Endpoint: "eth0"}, "node--1-k8s-web--0-eth0"},
		{"of CNI by its container", WorkloadEndpointSpec{Node: "n", Orchestrator: "cni", ContainerID: "abc", Endpoint: "eth0"}, "n-cni-abc-eth0"},
		{"of Docker", WorkloadEndpointSpec{Node: "n", Orchestrator: "libnetwork", Endpoint: "e"}, "n-libnetwork-libnetwork-e"},
		{"of another by its workload", WorkloadEndpointSpec{Node: "n", Orchestrator: "openstack", Workload: "a-b", Endpoint: "e"}, "n-openstack-a--b-e"},
		{"not without a pod", WorkloadEndpointSpec{Node: "n", Orchestrator: "k8s", Workload: "w", Endpoint: "e"}, ""},
		{"not with a dash at an end, which would be ambiguous", WorkloadEndpointSpec{Node: "n-", Orchestrator: "k8s", Pod: "w", Endpoint: "e"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := WorkloadEndpointName(tt.spec); got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestAWorkloadEndpointsNameIsReadBack(t *testing.T) {
	for _, want := range []WorkloadEndpointParts{
		{"node-1", "k8s", "web-0", "eth0"},
		{"n", "openstack", "a-b-c", "e-1"},
	} {
		name, err := WorkloadEndpointName(WorkloadEndpointSpec{Node: want.Node, Orchestrator: want.Orchestrator, Pod: want.Workload, Workload: want.Workload, Endpoint: want.Endpoint})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := ParseWorkloadEndpointName(name); !ok || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "a", "a-b-c", "a-b-c-d-e", "-b-c-d", "a-b-c-", "a--b--c--d"} {
		if got, ok := ParseWorkloadEndpointName(name); ok {
			t.Errorf("%q: got %+v, want none", name, got)
		}
	}
}
