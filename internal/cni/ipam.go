package cni

import (
	"context"
	"net"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/twillnet/twill/internal/attach/wire"
)

// assign is ADD of the IPAM plugin, for networks of others.
func assign(args *skel.CmdArgs) error {
	return withContainer(args, func(ctx context.Context, c *conf, r wire.Request) error {
		var out wire.Attached
		if err := wire.Ask(ctx, c.Socket, wire.PathAssign, r, &out); err != nil {
			return err
		}
		result := &current.Result{CNIVersion: current.ImplementedSpecVersion}
		for _, a := range out.Addrs {
			result.IPs = append(result.IPs, &current.IPConfig{Address: net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}})
		}
		return types.PrintResult(result, c.CNIVersion)
	})
}

// assigned is CHECK of the IPAM plugin.
func assigned(args *skel.CmdArgs) error {
	return withContainer(args, func(ctx context.Context, c *conf, r wire.Request) (err error) {
		if r.Addrs, err = c.previous(); err != nil {
			return err
		}
		return wire.Ask(ctx, c.Socket, wire.PathAssigned, r, nil)
	})
}

// releaseAddresses is DEL of the IPAM plugin.
func releaseAddresses(args *skel.CmdArgs) error {
	return withContainer(args, func(ctx context.Context, c *conf, r wire.Request) error {
		return wire.Ask(ctx, c.Socket, wire.PathRelease, r.Ref, nil)
	})
}
