package cni

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/attach/wire"
)

func TestHostLocalHasThePrefixesOfItsNode(t *testing.T) {
	node := func(context.Context) (wire.PodCIDRs, error) {
		return wire.PodCIDRs{V4: netip.MustParsePrefix("10.44.7.0/24")}, nil
	}
	six := func(context.Context) (wire.PodCIDRs, error) {
		return wire.PodCIDRs{V4: netip.MustParsePrefix("10.44.7.0/24"), V6: netip.MustParsePrefix("fd44:7::/64")}, nil
	}
	later := &wire.Refusal{Later: true}
	for _, tt := range []struct {
		name, conf, want string // none: it is tried again later
		cidrs            func(context.Context) (wire.PodCIDRs, error)
	}{
		{"of its own", `{"ipam":{"type":"host-local","subnet":"10.0.0.0/8"}}`, `{"ipam":{"type":"host-local","subnet":"10.0.0.0/8"}}`, nil},
		{"another plugin", `{"ipam":{"type":"other","subnet":"usePodCidr"}}`, `{"ipam":{"type":"other","subnet":"usePodCidr"}}`, nil},
		{"a subnet, and what is beside it", `{"big":12345678901234567,"ipam":{"type":"host-local","subnet":"usepodcidr","dataDir":"/d"}}`, `{"big":12345678901234567,"ipam":{"dataDir":"/d","subnet":"10.44.7.0/24","type":"host-local"}}`, node},
		{
			"ranges", `{"ipam":{"type":"host-local","ranges":[[{"subnet":"usePodCidr"},{"subnet":"10.1.0.0/16"}],[{"subnet":"usePodCidrIPv6"}]]}}`,
			`{"ipam":{"ranges":[[{"subnet":"10.44.7.0/24"},{"subnet":"10.1.0.0/16"}],[{"subnet":"fd44:7::/64"}]],"type":"host-local"}}`, six,
		},
		{"a family that the node has not", `{"ipam":{"type":"host-local","subnet":"usePodCidrIPv6"}}`, "", node},
		{"what it does not look at", `{"ipam":{"type":"host-local","ranges":[[{"subnet":"usePodCidrIPv6"}],7,{"ranges":"x"}]}}`, `{"ipam":{"ranges":[[{"subnet":"::/0"}],7,{"ranges":"x"}],"type":"host-local"}}`, anyPodCIDRs},
		{"no answer", `{"ipam":{"type":"host-local","subnet":"usePodCidr"}}`, "", func(context.Context) (wire.PodCIDRs, error) { return wire.PodCIDRs{}, later }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &conf{raw: []byte(tt.conf)}
			if err := json.Unmarshal(c.raw, &struct{ IPAM *ipamConf }{&c.IPAM}); err != nil {
				t.Fatal(err)
			}
			got, err := c.delegated(t.Context(), tt.cidrs)
			if tt.want == "" {
				var refusal *wire.Refusal
				if !errors.As(err, &refusal) || !refusal.Later {
					t.Errorf("got %s, %v", got, err)
				}
				return
			}
			if err != nil || string(got) != tt.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}
