package api

import (
	"fmt"
	"slices"
	"testing"
)

// TestStoredLimits: what cannot be understood of limits limits nothing, is reported, and neither closes the workload nor costs the others.
func TestStoredLimits(t *testing.T) {
	for _, tt := range []struct {
		name, stored string
		want         QoSControls
		problems     []string
	}{
		{"all right", `{"ingressPacketRate": 7, "ingressPacketBurst": 8, "egressMaxConnections": 9}`, QoSControls{IngressPacketRate: 7, IngressPacketBurst: 8, EgressMaxConnections: 9}, nil},
		{"out of bounds", `{"ingressPacketRate": 10001, "egressMaxConnections": 9}`, QoSControls{EgressMaxConnections: 9}, []string{"spec.qosControls.ingressPacketRate"}},
		{"a burst whose rate is ignored", `{"ingressPacketRate": -1, "ingressPacketBurst": 9}`, QoSControls{}, []string{"spec.qosControls.ingressPacketRate", "spec.qosControls.ingressPacketBurst"}},
		{"a code point that is none", `{"dscp": "AF44", "egressMaxConnections": 9}`, QoSControls{EgressMaxConnections: 9}, []string{"spec.qosControls.dscp"}},
		{"a text", `{"ingressPacketRate": "many", "egressMaxConnections": 9}`, QoSControls{EgressMaxConnections: 9}, []string{"spec.qosControls.ingressPacketRate"}},
		{"a fraction", `{"ingressPacketRate": 1.5, "egressMaxConnections": 9}`, QoSControls{EgressMaxConnections: 9}, []string{"spec.qosControls.ingressPacketRate"}},
		{"what is not known", `{"ingressCrystals": 1, "egressMaxConnections": 9}`, QoSControls{EgressMaxConnections: 9}, []string{"spec.qosControls.ingressCrystals"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stored(t, "workloadendpoints/b/n-cni-c-eth0",
				`{"spec":{"node":"n","orchestrator":"cni","containerID":"c","endpoint":"eth0","interfaceName":"cali1","ipNetworks":["10.0.0.1/32"],"qosControls":`+tt.stored+`}}`)
			if s.Closed != "" {
				t.Fatalf("closed: %s", s.Closed)
			}
			if got := s.Resource.(*WorkloadEndpoint).Spec.QoSControls; got == nil || fmt.Sprint(*got) != fmt.Sprint(tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			var at []string
			for _, p := range s.Problems {
				at = append(at, p.Field)
			}
			if !slices.Equal(at, tt.problems) {
				t.Errorf("problems %v, want of %q", s.Problems, tt.problems)
			}
		})
	}
}
