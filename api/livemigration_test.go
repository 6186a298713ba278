package api

import "testing"

func TestLiveMigrationsAreValidated(t *testing.T) {
	const (
		here  = "{hostname: h1, orchestratorID: openstack, workloadID: openstack/vm, endpointID: p}"
		there = "{hostname: h2, orchestratorID: openstack, workloadID: openstack/vm, endpointID: p}"
	)
	for _, c := range []struct{ name, spec, want string }{
		{"of one interface", "{source: {workloadEndpoint: " + here + "}, target: {workloadEndpoint: " + there + "}}", ""},
		{"of all interfaces of a pod", "{source: {workload: {orchestratorID: k8s, workloadID: prod/a}}, target: {selector: \"vm == 'a'\"}}", ""},
		{"a source that is not known yet", "{target: {selector: has(a)}}", ""},
		{"no target", "{source: {workloadEndpoint: " + here + "}}", "spec.target"},
		{"an empty target", "{target: {}}", "spec.target"},
		{"two targets", "{target: {selector: has(a), workloadEndpoint: " + there + "}}", "spec.target"},
		{"two sources", "{source: {workload: {hostname: h1, orchestratorID: o, workloadID: w}, workloadEndpoint: " + here + "}, target: {selector: has(a)}}", "spec.source"},
		{"an empty source", "{source: {}, target: {selector: has(a)}}", "spec.source"},
		{"a target that is the source", "{source: {workloadEndpoint: " + here + "}, target: {workloadEndpoint: " + here + "}}", "spec.target.workloadEndpoint"},
		{"a selector that selects nothing", "{target: {selector: ''}}", "spec.target.selector"},
		{"a selector that is none", "{target: {selector: '('}}", "spec.target.selector"},
		{"no host", "{target: {workloadEndpoint: {orchestratorID: openstack, workloadID: a/b, endpointID: e}}}", "spec.target.workloadEndpoint.hostname"},
		{"no host of a pod", "{target: {workloadEndpoint: {orchestratorID: k8s, workloadID: a/b, endpointID: e}}}", ""},
		{"no orchestrator", "{target: {workloadEndpoint: {hostname: h, workloadID: a/b, endpointID: e}}}", "spec.target.workloadEndpoint.orchestratorID"},
		{"no workload", "{target: {workloadEndpoint: {hostname: h, orchestratorID: o, endpointID: e}}}", "spec.target.workloadEndpoint.workloadID"},
		{"no endpoint", "{target: {workloadEndpoint: {hostname: h, orchestratorID: o, workloadID: w}}}", "spec.target.workloadEndpoint.endpointID"},
		{"half a source", "{source: {workload: {hostname: h}}, target: {selector: has(a)}}", "spec.source.workload.orchestratorID"},
		{"a field that nobody knows", "{destination: {selector: has(a)}}", "spec.destination"},
	} {
		t.Run(c.name, func(t *testing.T) { judge(t, "LiveMigration", "name: a, namespace: b", c.spec, c.want) })
	}
}

func TestAMigrationToNowhereIsClosed(t *testing.T) {
	for spec, closed := range map[string]bool{
		`{"target":{"selector":"has(a)"}}`:                                    false,
		`{"target":{"workloadEndpoint":{"hostname":"h"}}}`:                    false,
		`{"target":{"selector":"has(a)","workloadEndpoint":{}},"later":true}`: false,
		`{}`:                               true,
		`{"target":{}}`:                    true,
		`{"target":{"selector":"("}}`:      true,
		`{"target":[]}`:                    true,
		`{"target":{"selector":7}}`:        true,
		`{"destination":{"selector":"a"}}`: true,
	} {
		s, err := DecodeStored(Update{Key: ResourcesPrefix + "livemigrations/a/b", Value: []byte(`{"kind":"LiveMigration","apiVersion":"projectcalico.org/v3","metadata":{"name":"b","namespace":"a"},"spec":` + spec + `}`)})
		if err != nil || (s.Closed != "") != closed {
			t.Errorf("%s: closed %q, %v", spec, s.Closed, err)
		}
	}
}

func TestAnEndpointsIdentifierIsWhatKeysOfStatusHave(t *testing.T) {
	for _, tt := range []struct {
		spec WorkloadEndpointSpec
		want string
	}{
		{WorkloadEndpointSpec{Node: "h1", Orchestrator: "openstack", Workload: "vm", Endpoint: "p"}, "h1/openstack/ns/vm/p"},
		{WorkloadEndpointSpec{Node: "h1", Orchestrator: "k8s", Pod: "web", ContainerID: "c", Endpoint: "eth0"}, "k8s/ns/web/eth0"},
		{WorkloadEndpointSpec{Node: "h1", Orchestrator: "cni", ContainerID: "c", Endpoint: "eth0"}, "h1/cni/c/eth0"},
		{WorkloadEndpointSpec{Node: "h1", Orchestrator: "libnetwork", Workload: "libnetwork", Endpoint: "e"}, "h1/libnetwork/libnetwork/e"},
	} {
		w := &WorkloadEndpoint{Object: Object{Metadata: ObjectMeta{Namespace: "ns"}}, Spec: tt.spec}
		if got := w.Identifier().String(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
