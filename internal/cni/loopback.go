package cni

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// loopbackName is the plugin that containerd before 2.0 and CRI-O call for each pod, and fail without. It is here for hosts that have
// none: whoever installs Twill needs nothing of the CNI project.
const loopbackName = "loopback"

// loopback is what the plugin does with a container's lo.
func loopback(args *skel.CmdArgs, do func(nl *rtnl.Handle, lo rtnl.Link) error) error {
	ns, err := netns.OpenPath(args.Netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	nl, err := rtnl.OpenIn(ns)
	if err != nil {
		return err
	}
	defer nl.Close()
	lo, err := nl.Link("lo")
	if err != nil {
		return err
	}
	return do(nl, lo)
}

// loopUp is ADD: the kernel gives the addresses.
func loopUp(args *skel.CmdArgs) error {
	var c types.PluginConf
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return invalid("%v", err)
	}
	if err := version.ParsePrevResult(&c); err != nil {
		return invalid("%v", err)
	}
	return failed(loopback(args, func(nl *rtnl.Handle, lo rtnl.Link) error {
		if err := nl.SetUp(lo.Index, true); err != nil {
			return err
		}
		if c.PrevResult != nil {
			return types.PrintResult(c.PrevResult, c.CNIVersion)
		}
		addrs, err := nl.Addrs()
		if err != nil {
			return err
		}
		result := &current.Result{CNIVersion: current.ImplementedSpecVersion, Interfaces: []*current.Interface{{Name: lo.Name, Mac: "00:00:00:00:00:00", Sandbox: args.Netns}}}
		for _, a := range addrs {
			if a.Link == lo.Index {
				p := a.Prefix
				result.IPs = append(result.IPs, &current.IPConfig{Interface: current.Int(0), Address: net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}})
			}
		}
		return types.PrintResult(result, c.CNIVersion)
	}))
}

// loopDown is DEL: lo goes with the container.
func loopDown(*skel.CmdArgs) error { return nil }

// loopIsUp is CHECK.
func loopIsUp(args *skel.CmdArgs) error {
	return failed(loopback(args, func(_ *rtnl.Handle, lo rtnl.Link) error {
		if !lo.Up {
			return fmt.Errorf("%s of the container is down", lo.Name)
		}
		return nil
	}))
}
