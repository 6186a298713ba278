package api

import (
	"strings"
	"testing"
)

// Admitted: what was there before is replaced. Else it stays, and the reason says so.
func TestWhatWasThereStaysWhenAValueMeansNothing(t *testing.T) {
	for _, tt := range []struct {
		name, tail, doc string
		admitted        bool
	}{
		{"a pool that is a list", "ippools/p", `[]`, false},
		{"a pool that is null", "ippools/p", `null`, false},
		{"a pool that is another kind", "ippools/p", `{"kind":"Node","spec":{"cidr":"10.65.0.0/16"}}`, false},
		{"a pool without a range", "ippools/p", `{"spec":{}}`, false},
		{"a pool whose NAT is no boolean", "ippools/p", `{"spec":{"cidr":"10.65.0.0/16","natOutgoing":"yes"}}`, false},
		{"a pool with a field of another version", "ippools/p", `{"spec":{"cidr":"10.65.0.0/16","sky":"blue"}}`, true},
		{"a node whose spec is a text", "nodes/h1", `{"spec":"x"}`, false},
		{"a node whose BGP is a list", "nodes/h1", `{"spec":{"bgp":[]}}`, false},
		{"a node whose address is a number", "nodes/h1", `{"spec":{"bgp":{"ipv4Address":7}}}`, false},
		{"a node whose address is none", "nodes/h1", `{"spec":{"bgp":{"ipv4Address":"ten"}}}`, false},
		{"a node whose labels are a list", "nodes/h1", `{"metadata":{"labels":["a"]},"spec":{"bgp":{"ipv4Address":"192.0.2.1"}}}`, false},
		{"a node without addresses", "nodes/h1", `{"spec":{}}`, true},
		{"a node whose wireguard means nothing", "nodes/h1", `{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"},"wireguard":7}}`, true},
		{"a BGP configuration that is a text", "bgpconfigurations/default", `"x"`, false},
		{"a BGP configuration whose AS number is none", "bgpconfigurations/default", `{"spec":{"asNumber":"x"}}`, false},
		{"a BGP configuration whose mesh is no boolean", "bgpconfigurations/default", `{"spec":{"nodeToNodeMeshEnabled":"no"}}`, false},
		{"a BGP configuration with a community that is none", "bgpconfigurations/default", `{"spec":{"communities":[{"name":"a","value":"1:x"}]}}`, true},
		{"a BGP configuration that asks for what is not honoured", "bgpconfigurations/default", `{"spec":{"programClusterRoutes":"EnabledVXLANOnly"}}`, true},
		{"a peer with an AS number that is none", "bgppeers/p", `{"spec":{"peerIP":"192.0.2.9","asNumber":[]}}`, false},
		{"a peer with no AS number is of the cluster's", "bgppeers/p", `{"spec":{"peerIP":"192.0.2.9"}}`, true},
		{"a peer whose address is none", "bgppeers/p", `{"spec":{"peerIP":"tor","asNumber":1}}`, false},
		{"a peer whose selector is none", "bgppeers/p", `{"spec":{"peerSelector":"a =="}}`, false},
		{"a peer with a password that means nothing", "bgppeers/p", `{"spec":{"peerIP":"192.0.2.9","asNumber":1,"password":7}}`, true},
		{"a filter that is a list", "bgpfilters/f", `[]`, false},
		{"a filter with a list that is none", "bgpfilters/f", `{"spec":{"exportV4":{}}}`, false},
		{"a filter with a rule that is none", "bgpfilters/f", `{"spec":{"exportV4":[7]}}`, true},
		{"settings that are a list", "felixconfigurations/default", `[]`, false},
		{"settings whose spec is a text", "felixconfigurations/default", `{"spec":"x"}`, false},
		{"settings of which one is wrong", "felixconfigurations/default", `{"spec":{"defaultEndpointToHostAction":"Perhaps"}}`, true},
		{"a cluster of which nobody knows whether it is ready", "clusterinformations/default", `{"spec":{"datastoreReady":"no"}}`, false},
		{"a policy that is a list", "networkpolicies/a/p", `[]`, false},
		{"a policy whose spec is a list", "networkpolicies/a/p", `{"spec":[]}`, false},
		{"a policy whose spec is null has none", "networkpolicies/a/p", `{"spec":null}`, true},
		{"a policy that is another kind", "networkpolicies/a/p", `{"kind":"Pod","spec":{}}`, false},
		{"a policy whose selector means nothing is closed and not kept", "networkpolicies/a/p", `{"spec":{"selector":"a =="}}`, true},
		{"a global policy that is a list", "globalnetworkpolicies/p", `[]`, false},
		{"a global policy that is null", "globalnetworkpolicies/p", `null`, false},
		{"a global policy whose spec is a text", "globalnetworkpolicies/p", `{"spec":"x"}`, false},
		{"a global policy that is another kind", "globalnetworkpolicies/p", `{"kind":"Pod","spec":{}}`, false},
		{"a global policy whose selector means nothing", "globalnetworkpolicies/p", `{"spec":{"selector":"a =="}}`, false},
		{"a global policy whose types mean nothing", "globalnetworkpolicies/p", `{"spec":{"types":["Sideways"]}}`, false},
		{"a global policy whose tier is a number", "globalnetworkpolicies/p", `{"spec":{"tier":7}}`, false},
		{"a global policy with a rule that means nothing", "globalnetworkpolicies/p", `{"spec":{"ingress":[7]}}`, true},
		{"a global policy with a field of another version", "globalnetworkpolicies/p", `{"spec":{"sky":"blue"}}`, true},
		{"a staged policy that is a list", "stagednetworkpolicies/a/p", `[]`, false},
		{"a staged global policy whose spec is a list", "stagedglobalnetworkpolicies/p", `{"spec":[]}`, false},
		{"a staged global policy whose selector means nothing does nothing", "stagedglobalnetworkpolicies/p", `{"spec":{"selector":"a =="}}`, true},
		{"a tier whose spec is a list", "tiers/t", `{"spec":[]}`, false},
		{"a tier whose order means nothing is an unknown one", "tiers/t", `{"spec":{"order":"soon"}}`, true},
		{"a profile that is a number", "profiles/p", `17`, false},
		{"a profile whose labels are a text denies", "profiles/p", `{"spec":{"labelsToApply":"x"}}`, true},
		{"a set that is a list", "networksets/a/s", `[]`, false},
		{"a set whose nets are a text", "networksets/a/s", `{"spec":{"nets":"10.0.0.0/8"}}`, false},
		{"a set whose labels are a list", "networksets/a/s", `{"metadata":{"labels":["a"]},"spec":{"nets":["10.0.0.0/8"]}}`, false},
		{"a set with a net that is none", "networksets/a/s", `{"spec":{"nets":["ten"]}}`, true},
		{"a global set whose spec is a list", "globalnetworksets/s", `{"spec":[]}`, false},
		{"a global set whose nets are an object", "globalnetworksets/s", `{"spec":{"nets":{}}}`, false},
		{"an endpoint that is a list is closed and not kept", "workloadendpoints/a/w", `[]`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Admit(Update{Key: ResourcesPrefix + tt.tail, Value: []byte(tt.doc)})
			if (err == nil) != tt.admitted || err != nil && !strings.Contains(err.Error(), tt.tail) {
				t.Errorf("%v, want admitted %v", err, tt.admitted)
			}
			if s.Resource == nil {
				t.Error("what could be read of it is missing")
			}
		})
	}
}

// A password is wanted and cannot be had: it must never become no password.
func TestAPasswordThatCannotBeReadIsNeverNone(t *testing.T) {
	for _, tt := range []struct{ name, password, want string }{
		{"no secret", `{}`, "secretKeyRef: is missing"},
		{"a secret that is null", `{"secretKeyRef":null}`, "secretKeyRef: is missing"},
		{"a secret of another name", `{"secretRef":{"name":"a","key":"b"}}`, "unknown field"},
		{"a secret without name and key", `{"secretKeyRef":{}}`, "secretKeyRef.name"},
		{"a secret without a key", `{"secretKeyRef":{"name":"a"}}`, "secretKeyRef.key"},
		{"a key that is a number", `{"secretKeyRef":{"name":"a","key":7}}`, "secretKeyRef.key"},
		{"a key that leaves its folder", `{"secretKeyRef":{"name":"a","key":".."}}`, "secretKeyRef.key"},
		{"a name that leaves its folder", `{"secretKeyRef":{"name":"../a","key":"b"}}`, "secretKeyRef.name"},
		{"a text", `"sesame"`, "want an object"},
		{"a list", `[]`, "want an object"},
		{"a secret that is a text", `{"secretKeyRef":"a"}`, "want an object"},
		{"one that can be read", `{"secretKeyRef":{"name":"a","key":"b"}}`, ""},
		{"one with a field more", `{"secretKeyRef":{"name":"a","key":"b","optional":true},"sky":1}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			peer := stored(t, "bgppeers/p", `{"spec":{"peerIP":"192.0.2.9","asNumber":1,"password":`+tt.password+`}}`)
			mesh := stored(t, "bgpconfigurations/default", `{"spec":{"nodeMeshPassword":`+tt.password+`}}`)
			for what, got := range map[string]*BGPPassword{
				"peer": peer.Resource.(*BGPPeer).Spec.Password, "mesh": mesh.Resource.(*BGPConfiguration).Spec.NodeMeshPassword,
			} {
				if got == nil || (got.Unread == "") != (tt.want == "") || !strings.Contains(got.Unread, tt.want) {
					t.Errorf("%s: %+v, want unread for %q", what, got, tt.want)
				}
			}
			if tt.want != "" && (len(peer.Problems) == 0 || len(mesh.Problems) == 0) {
				t.Errorf("nobody hears of it: %v, %v", peer.Problems, mesh.Problems)
			}
		})
	}
	if p := stored(t, "bgppeers/p", `{"spec":{"peerIP":"192.0.2.9","asNumber":1,"password":null}}`).Resource.(*BGPPeer).Spec.Password; p != nil {
		t.Errorf("null is %+v", p)
	}
}

func TestABGPConfigurationKeepsWhatMeansSomething(t *testing.T) {
	s := stored(t, "bgpconfigurations/default", `{"spec":{"communities":[{"name":"a","value":"1:2"},{"name":"b","value":"1:2)); evil"}],
		"prefixAdvertisements":[{"cidr":"10.0.0.0/8","communities":["a","7:8)); evil","7:9"]}],"ignoredInterfaces":["eth9","a\"b","cali*"],
		"nodeMeshMaxRestartTime":"9000s","bindMode":"All"}}`)
	c := s.Resource.(*BGPConfiguration).Spec
	if s.Closed != "" || len(s.Problems) != 5 {
		t.Errorf("closed %q, %d problems: %v", s.Closed, len(s.Problems), s.Problems)
	}
	if len(c.Communities) != 1 || c.Communities[0].Name != "a" {
		t.Errorf("communities %v", c.Communities)
	}
	if got := strings.Join(c.PrefixAdvertisements[0].Communities, " "); got != "a 7:9" {
		t.Errorf("advertised with %s", got)
	}
	if got := strings.Join(c.IgnoredInterfaces, " "); got != "eth9 cali*" {
		t.Errorf("interfaces %s", got)
	}
	if c.NodeMeshMaxRestartTime != "" || c.BindMode != "" {
		t.Errorf("%q, %q", c.NodeMeshMaxRestartTime, c.BindMode)
	}
}
