package agent

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/metrics"
)

// TestPacketsThatAreTooLargeAreNamed, each with what is to be done; what fits is not.
func TestPacketsThatAreTooLargeAreNamed(t *testing.T) {
	r := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, memstore.New(), metrics.New(prometheus.NewRegistry()))
	var links []rtnl.Link
	var failed error
	r.links = func() ([]rtnl.Link, error) { return links, failed }
	if got := r.report().MTU; got != nil || r.mtu() != 0 {
		t.Errorf("before it is known: %+v", got)
	}
	r.decided(webBatch, time.Now())
	both := intent.MTUSettings{Wanted: [intent.TunnelKinds]bool{intent.VXLAN: true, intent.IPIP: true}}
	large := both
	large.Tunnels[intent.VXLAN], large.Tunnels[intent.VXLAN6] = 1451, 9000
	for _, tt := range []struct {
		name  string
		size  tunnel.MTU
		links []rtnl.Link
		err   error
		want  []string // how problems begin
	}{
		{"all fits", tunnel.MTU{Link: "eth0", Carries: 1500, Workloads: 1450, Settings: both}, []rtnl.Link{{Name: "cali1", MTU: 1450}, {Name: "eth0", MTU: 1500}}, nil, nil},
		{"a workload from before", tunnel.MTU{Link: "eth0", Carries: 1500, Workloads: 1450, Settings: both}, []rtnl.Link{{Name: "cali1", MTU: 1451}}, nil, []string{"prod/web: its interface cali1 takes packets of 1451 bytes"}},
		{"a setting, of a kind that is wanted", tunnel.MTU{Link: "eth0", Carries: 1500, Workloads: 1480, Settings: large}, nil, nil, []string{"VXLAN takes packets of 1451 bytes, and eth0 leaves it 1450"}},
		{"IPv6 needs more than is left", tunnel.MTU{Link: "eth0", Carries: 1300, Workloads: 1280, Settings: intent.MTUSettings{Wanted: [intent.TunnelKinds]bool{intent.VXLAN6: true}}}, nil, nil, []string{"VXLAN IPv6 takes packets of 1280 bytes, and eth0 leaves it 1230"}},
		{"no interface", tunnel.MTU{Carries: 1460, Workloads: 1410, Settings: both}, nil, nil, []string{"no interface that is up matches"}},
		{"no file", tunnel.MTU{Link: "eth0", Carries: 1500, Workloads: 1500, Unwritten: "read-only"}, nil, errors.New("netlink"), []string{"the size is not written down for other plugins: read-only"}},
	} {
		r.sized(tt.size)
		links, failed = tt.links, tt.err
		got := r.report().MTU
		if got == nil || got.Carries != tt.size.Carries || got.Workloads != tt.size.Workloads || r.mtu() != tt.size.Workloads || !slices.EqualFunc(got.Problems, tt.want, strings.HasPrefix) {
			t.Errorf("%s: %+v, want %q", tt.name, got, tt.want)
		}
	}
}
