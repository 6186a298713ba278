package attach

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/intent"
)

// TestAnAddressThatAnotherEndpointOfThisNodeHasIsRefused: by name, without address management and by it, and nothing of the container is left. One whose
// interface is absent and that was attached by nobody keeps no address from anybody.
func TestAnAddressThatAnotherEndpointOfThisNodeHasIsRefused(t *testing.T) {
	addr := netip.MustParseAddr("10.65.0.7")
	for name, tt := range map[string]struct {
		has     Claimant
		made    func(w *api.WorkloadEndpoint)
		refused bool
	}{
		"its interface is there":                 {Claimant{Endpoint: intent.EndpointID{Namespace: "prod", Name: "h1-k8s-other-eth0"}, Link: "cali9", There: true}, nil, true},
		"it is absent, and it was attached here": {Claimant{Endpoint: intent.EndpointID{Namespace: "prod", Name: "h1-k8s-other-eth0"}, Link: "cali9"}, func(*api.WorkloadEndpoint) {}, true},
		"nobody attached it": {Claimant{Endpoint: intent.EndpointID{Namespace: "prod", Name: "h1-k8s-other-eth0"}, Link: "cali9"}, func(w *api.WorkloadEndpoint) {
			w.Metadata.Annotations, w.Spec.ContainerID = nil, ""
		}, false},
		"it has another address by now": {Claimant{Endpoint: intent.EndpointID{Namespace: "prod", Name: "h1-k8s-other-eth0"}, Link: "cali9"}, func(w *api.WorkloadEndpoint) {
			w.Spec.IPNetworks = []string{"10.65.0.8/32"}
		}, false},
		"it is gone by now":         {Claimant{Endpoint: intent.EndpointID{Namespace: "prod", Name: "h1-k8s-other-eth0"}, Link: "cali9"}, nil, false},
		"it is the container's own": {Claimant{Endpoint: intent.EndpointID{Namespace: "prod", Name: "h1-k8s-web-eth0"}, Link: "cali1", There: true}, nil, false},
	} {
		for way, how := range map[string]func(r *wire.Request){
			"by name":      func(r *wire.Request) { r.IPAM = wire.IPAM{Addrs: []netip.Addr{addr}} },
			"without IPAM": func(r *wire.Request) { r.Addrs = []netip.Addr{addr} },
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				b := newBed(t)
				b.Server.cfg.Claimants = func(a netip.Addr) []Claimant {
					if a != addr {
						return nil
					}
					return []Claimant{tt.has}
				}
				if tt.made != nil {
					w, err := b.endpoint(wire.Request{Ref: wire.Ref{Network: "net", ContainerID: "c-other", Ifname: "eth0", Pod: &wire.Pod{Namespace: "prod", Name: "other"}}, Link: "cali9"}, []netip.Addr{addr})
					b.must(err)
					tt.made(w)
					key, err := api.Key(w)
					b.must(err)
					b.known.Store(key, true)
					b.put(w)
				}
				before := b.left()
				r := wire.Request{Ref: wire.Ref{Network: "net", ContainerID: "c-web", Ifname: "eth0", Pod: &wire.Pod{Namespace: "prod", Name: "web"}}, Link: "cali1", MAC: "02:00:00:00:00:01"}
				how(&r)
				_, err := b.Attach(t.Context(), r)
				if !tt.refused {
					b.must(err)
					return
				}
				var refusal *wire.Refusal
				if !errors.As(err, &refusal) || !strings.Contains(err.Error(), "10.65.0.7 is that of WorkloadEndpoint prod/h1-k8s-other-eth0 on this node, at interface cali9") {
					t.Errorf("attach: %v", err)
				}
				if after := b.left(); !slices.Equal(after, before) {
					t.Errorf("left are %v, before %v", after, before)
				}
			})
		}
	}
}
