package api

import (
	"errors"
	"strings"
	"testing"

	"github.com/twillnet/twill/api/apitest"
)

// judgeAll judges cases; what a case wants must be among the errors found.
func judgeAll(t *testing.T, cases []apitest.Case) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { judgeCase(t, c) })
	}
}

// judge decodes, defaults and validates; want is the path of an error that must
// be among those found, empty for none.
func judge(t *testing.T, kind, meta, spec, want string) {
	t.Helper()
	judgeCase(t, apitest.Case{Kind: kind, Meta: meta, Spec: spec, Want: want})
}

func judgeCase(t *testing.T, c apitest.Case) {
	t.Helper()
	var errs FieldErrors
	docs, err := Decode([]byte(c.Document()))
	switch {
	case errors.As(err, &errs):
	case err != nil || len(docs) != 1:
		t.Fatalf("decode: %v", err)
	default:
		Default(docs[0].Resource)
		errs = Validate(docs[0].Resource)
	}
	switch {
	case c.Want == "" && len(errs) > 0:
		t.Errorf("refused: %v", errs)
	case c.Want != "" && !hasPath(errs, c.Want):
		t.Errorf("no error at %s: %v", c.Want, errs)
	}
}

func TestRulesAreValidated(t *testing.T) { judgeAll(t, apitest.Rules()) }

func TestPoliciesAreValidated(t *testing.T) { judgeAll(t, apitest.Policies()) }

func TestNamesAreValidated(t *testing.T) { judgeAll(t, apitest.Names()) }

func TestWorkloadsAreValidated(t *testing.T) {
	const good = "orchestrator: cni, node: n1, containerID: c, endpoint: e, interfaceName: cali1"
	for _, tt := range []struct{ name, meta, spec, want string }{
		{"a good one is named by itself", "", good + ", ipNetworks: [10.0.0.1/32, 'fd00::1/128']", ""},
		{"another name", "name: other", good, "metadata.name"},
		{"no node", "", "orchestrator: cni", "metadata.name"},
		{"a network that is none", "", good + ", ipNetworks: [10.0.0.0/24]", "spec.ipNetworks[0]"},
		{"an address twice", "", good + ", ipNetworks: [10.0.0.1/32, 10.0.0.1/32]", "spec.ipNetworks[1]"},
		{"no interface", "", "orchestrator: cni, node: n1, containerID: c, endpoint: e", "spec.interfaceName"},
		{"an interface's name too long", "", strings.Replace(good, "cali1", "cali0123456789ab", 1), "spec.interfaceName"},
		{"a MAC", "", good + ", mac: 'ee:ee:ee:ee:ee:ee'", ""},
		{"a MAC that is none", "", good + ", mac: 'ee:ee'", "spec.mac"},
		{"a port's name twice", "", good + ", ports: [{name: a, protocol: TCP, port: 1}, {name: a, protocol: TCP, port: 2}]", "spec.ports[1].name"},
		{"a port's name for two protocols", "", good + ", ports: [{name: a, protocol: TCP, port: 1}, {name: a, protocol: UDP, port: 1}]", ""},
		{"a port of ICMP", "", good + ", ports: [{name: a, protocol: ICMP, port: 1}]", "spec.ports[0].protocol"},
		{"port 0", "", good + ", ports: [{name: a, protocol: TCP, port: 0}]", "spec.ports[0].port"},
		{"a port of a protocol in another case", "", good + ", ports: [{name: a, protocol: tcp, port: 1}]", "spec.ports[0].protocol"},
		{"a port without a name that the host has, too", "", good + ", ports: [{protocol: TCP, port: 1, hostPort: 80}]", ""},
		{"a port without a name that nothing can mean", "", good + ", ports: [{protocol: TCP, port: 1}]", "spec.ports[0].name"},
		{"a container's ID as CNI has it", "", strings.Replace(good, "containerID: c", "containerID: 0a_B.c-d", 1), ""},
		{"a container's ID with a space", "", strings.Replace(good, "containerID: c", "containerID: 'a b'", 1), "spec.containerID"},
		{"a container's ID that begins with a dash", "", strings.Replace(good, "containerID: c", "containerID: -a", 1), "spec.containerID"},
		{"a gateway of the other family", "", good + ", ipv4Gateway: 'fd00::1'", "spec.ipv4Gateway"},
		{"a spoofed prefix", "", good + ", allowSpoofedSourcePrefixes: [x]", "spec.allowSpoofedSourcePrefixes[0]"},
		{"a floating address", "", good + ", ipNetworks: [10.0.0.1/32], ipNATs: [{internalIP: 10.0.0.1, externalIP: 192.0.2.1}]", ""},
		{"one twice", "", good + ", ipNetworks: [10.0.0.1/32], ipNATs: [{internalIP: 10.0.0.1, externalIP: 192.0.2.1}, {internalIP: 10.0.0.1, externalIP: 192.0.2.1}]", "spec.ipNATs[1].externalIP"},
		{"one that is none", "", good + ", ipNetworks: [10.0.0.1/32], ipNATs: [{internalIP: 10.0.0.1, externalIP: 192.0.2.1/32}]", "spec.ipNATs[0]"},
		{"one for an address that it has not", "", good + ", ipNetworks: [10.0.0.1/32], ipNATs: [{internalIP: 10.0.0.2, externalIP: 192.0.2.1}]", "spec.ipNATs[0]"},
		{"one of the other family", "", good + ", ipNetworks: [10.0.0.1/32], ipNATs: [{internalIP: 10.0.0.1, externalIP: 'fd00::1'}]", "spec.ipNATs[0]"},
		{"one that is its own", "", good + ", ipNetworks: [10.0.0.1/32], ipNATs: [{internalIP: 10.0.0.1, externalIP: 10.0.0.1}]", "spec.ipNATs[0]"},
		{"one to which nobody can send", "", good + ", ipNetworks: [10.0.0.1/32], ipNATs: [{internalIP: 10.0.0.1, externalIP: 127.0.0.1}]", "spec.ipNATs[0]"},
		{"limits", "", good + ", qosControls: {ingressPacketRate: 1, egressPacketRate: 10000, egressPacketBurst: 10000, ingressMaxConnections: 4294967295}", ""},
		{"bandwidth", "", good + ", qosControls: {ingressBandwidth: 1000, ingressBurst: 34359738360, ingressPeakrate: 1001, ingressMinburst: 1500, egressBandwidth: 1000000000000000, egressPeakrate: 1010000000000000}", ""},
		{"less bandwidth than upstream's least", "", good + ", qosControls: {ingressBandwidth: 999}", "spec.qosControls.ingressBandwidth"},
		{"more than its most", "", good + ", qosControls: {egressBandwidth: 1000000000000001}", "spec.qosControls.egressBandwidth"},
		{"a burst of no bandwidth", "", good + ", qosControls: {ingressBandwidth: 1000, egressBurst: 1000}", "spec.qosControls.egressBurst"},
		{"a burst that the kernel cannot count", "", good + ", qosControls: {ingressBandwidth: 1000, ingressBurst: 34359738361}", "spec.qosControls.ingressBurst"},
		{"a peak that is no more than the bandwidth", "", good + ", qosControls: {ingressBandwidth: 1000, ingressPeakrate: 1000}", "spec.qosControls.ingressPeakrate"},
		{"the least burst of no peak", "", good + ", qosControls: {egressBandwidth: 1000, egressMinburst: 1500}", "spec.qosControls.egressMinburst"},
		{"a code point", "", good + ", qosControls: {dscp: AF11}", ""},
		{"a code point that is none", "", good + ", qosControls: {dscp: 64}", "spec.qosControls.dscp"},
		{"no packet at all", "", good + ", qosControls: {ingressPacketRate: -1}", "spec.qosControls.ingressPacketRate"},
		{"more than the kernel's rates", "", good + ", qosControls: {egressPacketRate: 10001}", "spec.qosControls.egressPacketRate"},
		{"a burst of no rate", "", good + ", qosControls: {ingressPacketRate: 5, egressPacketBurst: 5}", "spec.qosControls.egressPacketBurst"},
		{"a burst that is too large", "", good + ", qosControls: {ingressPacketRate: 5, ingressPacketBurst: 10001}", "spec.qosControls.ingressPacketBurst"},
		{"more connections than can be counted", "", good + ", qosControls: {egressMaxConnections: 4294967296}", "spec.qosControls.egressMaxConnections"},
		{"a label of the namespace", "labels: {pcns.a: b}", good, "metadata.labels[\"pcns.a\"]"},
		{"another namespace's label", "labels: {projectcalico.org/namespace: other}", good, "metadata.labels[\"projectcalico.org/namespace\"]"},
		{"a profile twice", "", good + ", profiles: [a, a]", "spec.profiles[1]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			meta := strings.TrimPrefix(tt.meta+", namespace: prod", ", ")
			judge(t, KindWorkloadEndpoint, meta, "{"+tt.spec+"}", tt.want)
		})
	}
}

func TestReservedLabelsAreRefused(t *testing.T) { judgeAll(t, apitest.Labels()) }

func TestOtherKindsAreValidated(t *testing.T) { judgeAll(t, apitest.Others()) }

func TestStagedKubernetesPoliciesAreValidated(t *testing.T) { judgeAll(t, apitest.StagedKubernetes()) }

func TestPoolsCannotMoveOrOverlap(t *testing.T) {
	pool := func(name, cidr string) *IPPool {
		p := New(KindIPPool).(*IPPool)
		p.Metadata.Name, p.Spec.CIDR = name, cidr
		Default(p)
		return p
	}
	a := pool("a", "10.65.0.0/16")
	if errs := ValidateUpdate(a, pool("a", "10.66.0.0/16")); len(errs) != 1 || errs[0].Path != "spec.cidr" {
		t.Errorf("moved: %v", errs)
	}
	if errs := ValidateUpdate(a, pool("a", "10.65.0.0/16")); len(errs) != 0 {
		t.Errorf("the same: %v", errs)
	}
	for _, tt := range []struct {
		was, is string
		refused bool
	}{
		{"10.65.0.1/16", "10.65.0.0/16", false},
		{"fd65:0:0::/48", "fd65::/48", false},
		{"FD65::/48", "fd65::/48", false},
		{"fd65::1/48", "fd65::/48", false},
		{"10.65.0.0/16", "10.65.0.0/17", true},
		{"everything", "everything", false}, // is refused as it is
		{"everything", "10.65.0.0/16", true},
		{"10.65.0.0/16", "everything", true},
	} {
		if errs := ValidateUpdate(pool("a", tt.was), pool("a", tt.is)); (len(errs) > 0) != tt.refused {
			t.Errorf("%s to %s: %v", tt.was, tt.is, errs)
		}
	}
	finer := pool("a", "10.65.0.0/16")
	finer.Spec.BlockSize = 28
	if errs := ValidateUpdate(a, finer); len(errs) != 1 || errs[0].Path != "spec.blockSize" {
		t.Errorf("with other blocks: %v", errs)
	}
	if errs := ValidateUpdate(&IPPool{Spec: IPPoolSpec{CIDR: "10.65.0.0/16"}}, a); len(errs) != 0 { // as old versions stored it
		t.Errorf("with the blocks that it has by itself: %v", errs)
	}
	balancers := pool("a", "10.65.0.0/16")
	balancers.Spec.AllowedUses = []string{"LoadBalancer"}
	if errs := ValidateUpdate(balancers, a); len(errs) != 1 || errs[0].Path != "spec.allowedUses" {
		t.Errorf("taken from load balancers: %v", errs)
	}
	if errs := ValidateAmong(pool("b", "10.65.1.0/24"), []Resource{a}); len(errs) != 1 {
		t.Errorf("overlap: %v", errs)
	}
	if errs := ValidateAmong(a, []Resource{a, pool("b", "10.66.0.0/16")}); len(errs) != 0 {
		t.Errorf("no overlap: %v", errs)
	}
}

func TestNothingWrongIsNoError(t *testing.T) {
	if err := FieldErrors(nil).Err(); err != nil {
		t.Error(err)
	}
}
