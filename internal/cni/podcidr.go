package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/twillnet/twill/internal/attach/wire"
)

// Words in the place of host-local's subnets, as upstream has them, whatever their case: a node's prefixes, which only Kubernetes knows.
const (
	podCIDR4 = "usePodCidr"
	podCIDR6 = "usePodCidrIPv6"
)

// podCIDRs asks the agent for the prefixes of its node.
func (c *conf) podCIDRs(ctx context.Context) (out wire.PodCIDRs, err error) {
	err = wire.Ask(ctx, c.Socket, wire.PathPodCIDRs, wire.Ref{Network: c.Name}, &out)
	return out, err
}

// anyPodCIDRs stand for them where host-local does not look at its subnets: whenever it assigns nothing.
func anyPodCIDRs(context.Context) (wire.PodCIDRs, error) {
	return wire.PodCIDRs{V4: netip.PrefixFrom(netip.IPv4Unspecified(), 0), V6: netip.PrefixFrom(netip.IPv6Unspecified(), 0)}, nil
}

// delegated is the configuration for the IPAM plugin, in which the words are replaced.
func (c *conf) delegated(ctx context.Context, cidrs func(context.Context) (wire.PodCIDRs, error)) ([]byte, error) {
	text := strings.ToLower(string(c.raw))
	if c.IPAM.Type != "host-local" || !strings.Contains(text, strings.ToLower(podCIDR4)) {
		return c.raw, nil
	}
	is, err := cidrs(ctx)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(c.raw))
	decoder.UseNumber()
	var whole map[string]any
	if err := decoder.Decode(&whole); err != nil {
		return nil, invalid("%v", err)
	}
	if err := replacePodCIDRs(whole["ipam"], is); err != nil {
		return nil, err
	}
	return json.Marshal(whole)
}

// replacePodCIDRs replaces the words wherever a subnet is: of the whole, and of ranges in lists of lists.
func replacePodCIDRs(part any, is wire.PodCIDRs) error {
	switch part := part.(type) {
	case []any:
		for _, one := range part {
			if err := replacePodCIDRs(one, is); err != nil {
				return err
			}
		}
	case map[string]any:
		if err := replacePodCIDRs(part["ranges"], is); err != nil {
			return err
		}
		subnet, _ := part["subnet"].(string)
		prefix, family := is.V4, "IPv4"
		switch {
		case strings.EqualFold(subnet, podCIDR6):
			prefix, family = is.V6, "IPv6"
		case !strings.EqualFold(subnet, podCIDR4):
			return nil
		}
		if !prefix.IsValid() {
			return &wire.Refusal{Reason: fmt.Sprintf("ipam has the subnet %s, and this node has no %s prefix in spec.podCIDRs", subnet, family), Later: true}
		}
		part["subnet"] = prefix.String()
	}
	return nil
}
