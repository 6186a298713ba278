package libnetwork

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/attach/wire"
)

// made are the endpoints that this process made: Join does not say their addresses again.
type made struct {
	mu        sync.Mutex
	endpoints map[string]endpoint // by ID
}

type endpoint struct {
	addrs   []netip.Addr
	sandbox string // of the container that it is in; empty: of none
}

func (m *made) put(id string, addrs []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endpoints == nil {
		m.endpoints = map[string]endpoint{}
	}
	m.endpoints[id] = endpoint{addrs: addrs}
}

// join puts an endpoint into a container, and returns its addresses.
func (m *made) join(id, sandbox string) ([]netip.Addr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.endpoints[id]
	if !ok {
		return nil, errors.New("the plugin was started anew while this endpoint was made: start the container again")
	}
	for other, has := range m.endpoints {
		if other != id && sandbox != "" && has.sandbox == sandbox {
			return nil, errTwoNetworks
		}
	}
	e.sandbox = sandbox
	m.endpoints[id] = e
	return e.addrs, nil
}

// errTwoNetworks: the gateway of both networks is the same address, to which libnetwork adds a route for each; it takes the second for a failure (EEXIST).
var errTwoNetworks = errors.New("a container can be in one network of " + networkDriver + ": policy, not networks, says who reaches it; leave the other networks out")

func (m *made) leave(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.endpoints[id]; ok {
		e.sandbox = ""
		m.endpoints[id] = e
	}
}

func (m *made) drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.endpoints, id)
}

// ref names an endpoint's attachment.
func ref(network, endpoint string) (wire.Ref, error) {
	if !validID.MatchString(network) || !validID.MatchString(endpoint) {
		return wire.Ref{}, fmt.Errorf("%q and %q are not the IDs of a network and an endpoint", network, endpoint)
	}
	return wire.Ref{Network: network, ContainerID: endpoint, Ifname: wire.FirstInterface, Docker: true}, nil
}

const undoTimeout = 10 * time.Second

// createEndpoint makes the link, and returns when its policy is in force.
func (p *plugin) createEndpoint(ctx context.Context, r createEndpoint) (out createdEndpoint, err error) {
	ask, err := p.request(ctx, r)
	if err != nil {
		return out, err
	}
	if r.Interface.MacAddress == "" {
		out.Interface.MacAddress = ask.MAC
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, p.detach(ctx, ask.Ref))
		}
	}()
	if err := connect(ask, p.cfg.MTU); err != nil {
		return out, err
	}
	var attached wire.Attached
	if err := wire.Ask(ctx, p.cfg.Agent, wire.PathAttach, ask, &attached); err != nil {
		return out, err
	}
	if p.cfg.MTU == 0 && attached.MTU != 0 {
		if err := setMTU(ask, attached.MTU); err != nil {
			return out, err
		}
	}
	p.made.put(r.EndpointID, ask.Addrs)
	return out, nil
}

// request is what the agent is asked for.
func (p *plugin) request(ctx context.Context, r createEndpoint) (ask wire.Request, err error) {
	if ask.Ref, err = ref(r.NetworkID, r.EndpointID); err != nil {
		return ask, err
	}
	ask.Link, ask.MAC = ask.Ref.Link(), r.Interface.MacAddress
	for _, text := range []string{r.Interface.Address, r.Interface.AddressIPv6} {
		if text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return ask, fmt.Errorf("%q is no address of an interface", text)
		}
		ask.Addrs = append(ask.Addrs, prefix.Addr().Unmap())
	}
	if len(ask.Addrs) == 0 {
		return ask, fmt.Errorf("the endpoint has no address: create its network with --ipam-driver %s", ipamDriver)
	}
	if ask.MAC == "" {
		ask.MAC, err = wire.NewMAC()
	} else if mac, wrong := net.ParseMAC(ask.MAC); wrong != nil || len(mac) != 6 || mac[0]&1 != 0 {
		err = fmt.Errorf("--mac-address %s: want six bytes of which the first is even", ask.MAC)
	}
	if err != nil || p.cfg.NoProfiles {
		return ask, err
	}
	ask.Profile, err = p.networks.name(ctx, r.NetworkID)
	return ask, err
}

// deleteEndpoint reverts createEndpoint, also that of upstream's plugin.
func (p *plugin) deleteEndpoint(ctx context.Context, r endpointID) (nothing, error) {
	of, err := ref(r.NetworkID, r.EndpointID)
	if err != nil {
		return nothing{}, err
	}
	p.made.drop(r.EndpointID)
	return nothing{}, errors.Join(p.detach(ctx, of), disconnectUpstreams(of))
}

// detach removes everything. The agent detaches first, so that it does not miss a link that it still wants.
func (p *plugin) detach(ctx context.Context, of wire.Ref) error {
	err := wire.Ask(ctx, p.cfg.Agent, wire.PathDetach, of, nil)
	if errors.Is(err, wire.ErrNoAgent) {
		err = wire.LeaveNote(p.cfg.Agent, of)
	}
	return errors.Join(err, disconnect(of))
}

func (p *plugin) endpointInfo(context.Context, endpointID) (endpointInfo, error) {
	return endpointInfo{Value: map[string]any{}}, nil
}

// join says what dockerd puts into the container, and how this routes.
func (p *plugin) join(_ context.Context, r join) (out joined, err error) {
	of, err := ref(r.NetworkID, r.EndpointID)
	if err != nil {
		return out, err
	}
	addrs, err := p.made.join(r.EndpointID, r.SandboxKey)
	if err != nil {
		return out, err
	}
	out.InterfaceName = interfaceName{SrcName: innerLink(of), DstPrefix: p.cfg.IfPrefix}
	out.DisableGatewayService = true
	for _, a := range addrs {
		gateway := gateway6
		if a.Is4() {
			gateway, out.Gateway = gateway4, gateway4.String()
		} else {
			out.GatewayIPv6 = gateway6.String()
		}
		out.StaticRoutes = append(out.StaticRoutes, staticRoute{Destination: netip.PrefixFrom(gateway, gateway.BitLen()).String(), RouteType: routeConnected})
	}
	return out, nil
}

// leave leaves the link, which dockerd takes out of the container: next it deletes the endpoint, or has it join again.
func (p *plugin) leave(_ context.Context, r endpointID) (nothing, error) {
	p.made.leave(r.EndpointID)
	return nothing{}, nil
}

// publish refuses to publish ports: an address of a container is reached as it is.
func (p *plugin) publish(_ context.Context, r externalConnectivity) (nothing, error) {
	if len(r.Options.Ports) > 0 {
		return nothing{}, errors.New("published ports (--publish) are not made in a network of " + networkDriver + ": the container is reached by its own address, as policy allows; leave them out")
	}
	return nothing{}, nil
}
