package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/twillnet/twill/internal/attach/wire"
)

// conf is a network's configuration, in the form of Calico's plugin. How to reach a datastore is not read: only the
// agent connects to it.
type conf struct {
	types.PluginConf
	MTU    int      `json:"mtu"`
	Queues int      `json:"num_queues"` // of both ends of the link, each way; zero: the kernel's default
	Socket string   `json:"socket"`     // the agent's
	IPAM   ipamConf `json:"ipam"`

	Policy struct {
		Type string `json:"type"` // of the policy engine; if set, the user makes the network's profile
	} `json:"policy"`
	FeatureControl struct {
		IPAddrsNoIPAM bool `json:"ip_addrs_no_ipam"`
	} `json:"feature_control"`
	ReadinessGates    []string `json:"readiness_gates"` // URLs
	ContainerSettings struct {
		AllowIPForwarding bool `json:"allow_ip_forwarding"`
	} `json:"container_settings"`
	IncludeDefaultRoutes *bool `json:"include_default_routes"` // default: unless the IPAM plugin returned routes
	Args                 struct {
		CNI struct {
			Labels []label      `json:"labels"`
			IPs    []netip.Addr `json:"ips"` // exactly these
		} `json:"cni"`
	} `json:"args"`

	raw    []byte
	routes []netip.Prefix // destinations of the routes that the IPAM plugin returned, of both families
}

// destinations returns what the container routes over this link in one family, of which all is the default route's destination. That is
// one of them if the configuration says so; if it says nothing, by default.
func (c *conf) destinations(all netip.Prefix, byDefault bool) (out []netip.Prefix) {
	for _, dst := range c.routes {
		if dst.Addr().Is4() == all.Addr().Is4() && dst != all {
			out = append(out, dst)
		}
	}
	byDefault = byDefault && len(c.routes) == 0
	if c.IncludeDefaultRoutes != nil {
		byDefault = *c.IncludeDefaultRoutes
	}
	if byDefault || slices.Contains(c.routes, all) {
		out = append(out, all)
	}
	return out
}

type label struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type ipamConf struct {
	Type       string   `json:"type"`
	AssignIPv4 *boolean `json:"assign_ipv4"`
	AssignIPv6 *boolean `json:"assign_ipv6"`
	IPv4Pools  []string `json:"ipv4_pools"`
	IPv6Pools  []string `json:"ipv6_pools"`
}

// boolean is true, or the text "true": upstream's configurations have both.
type boolean bool

func (b *boolean) UnmarshalJSON(data []byte) error {
	v, err := strconv.ParseBool(strings.Trim(string(data), `"`))
	if err != nil {
		return fmt.Errorf("%s: want true or false", data)
	}
	*b = boolean(v)
	return nil
}

// Names of the IPAM that the agent has; any other is a plugin.
func (c ipamConf) ours() bool {
	return c.Type == "" || c.Type == "twill-ipam" || c.Type == "calico-ipam"
}

func readConf(args *skel.CmdArgs) (*conf, error) {
	c := &conf{Socket: wire.DefaultSocket, raw: args.StdinData}
	// PluginConf reads some of it by a method of its own, which would hide our fields.
	if err := json.Unmarshal(args.StdinData, &c.PluginConf); err != nil {
		return nil, invalid("%v", err)
	}
	type fields conf
	rest := (*fields)(c)
	if err := json.Unmarshal(args.StdinData, rest); err != nil {
		return nil, invalid("%v", err)
	}
	if c.MTU < 0 || c.MTU > 65535 {
		return nil, invalid("mtu is %d: want 68 to 65535", c.MTU)
	}
	if c.Queues < 0 || c.Queues > maxQueues {
		return nil, invalid("num_queues is %d: want 1 to %d", c.Queues, maxQueues)
	}
	return c, nil
}

// maxQueues is what the kernel takes (rtnl_create_link).
const maxQueues = 4096

func invalid(format string, args ...any) *types.Error {
	return types.NewError(types.ErrInvalidNetworkConfig, "the network's configuration cannot be used", fmt.Sprintf(format, args...))
}

// podArgs are what Kubernetes' runtimes pass in CNI_ARGS.
type podArgs struct {
	types.CommonArgs
	IP                         types.UnmarshallableString
	K8S_POD_NAME               types.UnmarshallableString
	K8S_POD_NAMESPACE          types.UnmarshallableString
	K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString
	K8S_POD_UID                types.UnmarshallableString
}

// request returns the request to the agent.
func (c *conf) request(args *skel.CmdArgs) (r wire.Request, err error) {
	r.Ref = wire.Ref{Network: c.Name, ContainerID: args.ContainerID, Ifname: args.IfName}
	pod := podArgs{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err := types.LoadArgs(args.Args, &pod); err != nil {
		return r, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS cannot be read", err.Error())
	}
	if pod.K8S_POD_NAME != "" {
		r.Pod = &wire.Pod{Namespace: string(pod.K8S_POD_NAMESPACE), Name: string(pod.K8S_POD_NAME)}
	}
	r.Link, r.NoProfile, r.AllowNoIPAM = r.Ref.Link(), c.Policy.Type != "", c.FeatureControl.IPAddrsNoIPAM
	r.Labels = map[string]string{}
	for _, l := range c.Args.CNI.Labels {
		r.Labels[l.Key] = l.Value
	}
	r.IPAM = wire.IPAM{V4: true, Pools4: c.IPAM.IPv4Pools, Pools6: c.IPAM.IPv6Pools}
	if c.IPAM.AssignIPv4 != nil {
		r.IPAM.V4 = bool(*c.IPAM.AssignIPv4)
	}
	if c.IPAM.AssignIPv6 != nil {
		r.IPAM.V6 = bool(*c.IPAM.AssignIPv6)
	}
	r.IPAM.Addrs = c.Args.CNI.IPs
	if pod.IP != "" {
		a, err := netip.ParseAddr(string(pod.IP))
		if err != nil {
			return r, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS cannot be used", "IP="+string(pod.IP)+": want an address")
		}
		r.IPAM.Addrs = []netip.Addr{a}
	}
	return r, nil
}

// failed converts an error to CNI's form.
func failed(err error) error {
	var known *types.Error
	var refusal *wire.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &refusal) && refusal.Later, errors.Is(err, wire.ErrNoAgent):
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	}
	return types.NewError(types.ErrInternal, err.Error(), "")
}
