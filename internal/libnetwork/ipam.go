package libnetwork

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/internal/attach/wire"
)

// Names of upstream's that dockerd keeps with its networks.
const (
	localSpace  = "CalicoLocalAddressSpace"
	globalSpace = "CalicoGlobalAddressSpace"
	anyPool4    = "CalicoPoolIPv4"
	anyPool6    = "CalicoPoolIPv6"
)

// addressesOf is the network of all addresses of Docker's: it asks for them before it says for which.
const addressesOf = "libnetwork"

var (
	all4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	all6 = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	// any6 stands for all6 in answers. dockerd asks again for what overlaps a nameserver of the host's, until it does not, and lets 0.0.0.0/0 pass alone
	// (moby's libnetwork, ipams/remote RequestPool). Addresses of the pool need not be within it: Docker wants a --subnet for those that users name.
	any6 = netip.PrefixFrom(netip.IPv6Unspecified(), 128)
)

func (p *plugin) ipamCapabilities(context.Context, nothing) (ipamCapabilities, error) {
	return ipamCapabilities{}, nil
}

func (p *plugin) addressSpaces(context.Context, nothing) (addressSpaces, error) {
	return addressSpaces{localSpace, globalSpace}, nil
}

// requestPool answers with an IPPool, or with all of a family. The gateway that it names is none, so that dockerd does not ask for an address for one.
func (p *plugin) requestPool(ctx context.Context, r requestPool) (pool, error) {
	switch {
	case r.SubPool != "":
		return pool{}, fmt.Errorf("--ip-range %s cannot be honoured: addresses are given from whole IPPools; make a smaller IPPool, and name it by --subnet", r.SubPool)
	case len(r.Options) > 0:
		return pool{}, fmt.Errorf("--ipam-opt has no meaning for %s: leave it out (%v)", ipamDriver, r.Options)
	}
	out := pool{PoolID: anyPool4, Pool: all4.String(), Data: map[string]string{dataGateway: all4.String()}}
	if r.V6 {
		out = pool{PoolID: anyPool6, Pool: any6.String(), Data: map[string]string{dataGateway: all6.String()}}
	}
	switch r.Pool {
	case "", out.Pool:
		return out, nil
	case out.Data[dataGateway]: // dockerd was started anew, and has a network of before any6
		out.Pool = r.Pool
		return out, nil
	}
	cidr, err := netip.ParsePrefix(r.Pool)
	if err != nil || cidr.Addr().Is4() == r.V6 {
		return pool{}, fmt.Errorf("--subnet %s: want the cidr of an IPPool", r.Pool)
	}
	if err := wire.Ask(ctx, p.cfg.Agent, wire.PathPool, wire.Pool{CIDR: cidr.Masked()}, nil); err != nil {
		return pool{}, fmt.Errorf("--subnet %s: %w", r.Pool, err)
	}
	out.PoolID, out.Pool = cidr.Masked().String(), cidr.Masked().String()
	return out, nil
}

// requestAddress assigns an address, under a handle of its own.
func (p *plugin) requestAddress(ctx context.Context, r address) (requestedAddress, error) {
	if r.Options[optionRequestType] == dataGateway {
		return requestedAddress{}, fmt.Errorf("--gateway %s cannot be honoured: the gateway of each container is the host's end of its own link, %s or %s", r.Address, gateway4, gateway6)
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return requestedAddress{}, err
	}
	ask := wire.Request{Ref: wire.Ref{Network: addressesOf, ContainerID: hex.EncodeToString(id), Ifname: wire.FirstInterface, Docker: true}}
	if err := wanted(&ask.IPAM, r); err != nil {
		return requestedAddress{}, err
	}
	var out wire.Attached
	if err := wire.Ask(ctx, p.cfg.Agent, wire.PathAssign, ask, &out); err != nil {
		return requestedAddress{}, err
	}
	if len(out.Addrs) != 1 {
		return requestedAddress{}, fmt.Errorf("the agent assigned %v where one address was asked for", out.Addrs)
	}
	return requestedAddress{Address: netip.PrefixFrom(out.Addrs[0], out.Addrs[0].BitLen()).String()}, nil
}

// wanted is what a call asks for: one address, or any of a pool.
func wanted(w *wire.IPAM, r address) error {
	if r.Address != "" {
		addr, err := netip.ParseAddr(r.Address)
		if err != nil {
			return fmt.Errorf("%q is no address", r.Address)
		}
		w.Addrs, w.V4, w.V6 = []netip.Addr{addr.Unmap()}, addr.Unmap().Is4(), addr.Unmap().Is6()
		return nil
	}
	cidr, err := netip.ParsePrefix(r.PoolID)
	switch {
	case r.PoolID == anyPool4:
		w.V4 = true
	case r.PoolID == anyPool6:
		w.V6 = true
	case err != nil:
		return fmt.Errorf("%q is no pool of %s", r.PoolID, ipamDriver)
	case cidr.Addr().Is4():
		w.V4, w.Pools4 = true, []string{r.PoolID}
	default:
		w.V6, w.Pools6 = true, []string{r.PoolID}
	}
	return nil
}

func (p *plugin) releaseAddress(ctx context.Context, r address) (nothing, error) {
	addr, err := netip.ParseAddr(r.Address)
	if err != nil {
		return nothing{}, fmt.Errorf("%q is no address", r.Address)
	}
	if addr.IsUnspecified() { // the gateway of requestPool
		return nothing{}, nil
	}
	return nothing{}, wire.Ask(ctx, p.cfg.Agent, wire.PathFree, wire.Addresses{Network: addressesOf, Addrs: []netip.Addr{addr.Unmap()}}, nil)
}
