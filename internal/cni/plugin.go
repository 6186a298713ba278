// Package cni is the plugin that container runtimes call: CNI 1.1, and the older versions that they still speak.
//
// In: CNI's environment and a network's configuration on standard input. Out: a link with addresses and routes in the
// container's namespace, and the result as JSON; or an error, and nothing of it is left. Addresses and policy are the
// agent's, which is asked over its socket: the plugin has no credentials, and nothing passes before policy is in force.
package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/twillnet/twill/internal/attach/wire"
)

// Names by which runtimes call the binary; those of Calico's plugins are among them, so that its configurations work.
var (
	pluginNames = map[string]bool{"twill": true, "calico": true}
	ipamNames   = map[string]bool{"twill-ipam": true, "calico-ipam": true}
)

// Called reports whether the program was called by a runtime, by its name and environment.
func Called(argv0 string) bool {
	name := filepath.Base(argv0)
	return os.Getenv("CNI_COMMAND") != "" && (pluginNames[name] || ipamNames[name] || name == loopbackName)
}

// Main runs a CNI command and returns the exit code.
func Main(argv0, release string) int {
	funcs := skel.CNIFuncs{Add: add, Del: del, Check: check, GC: collect, Status: status}
	switch name := filepath.Base(argv0); {
	case name == loopbackName:
		funcs = skel.CNIFuncs{Add: loopUp, Del: loopDown, Check: loopIsUp}
	case ipamNames[name]:
		funcs = skel.CNIFuncs{Add: assign, Del: releaseAddresses, Check: assigned, GC: collect, Status: status}
	}
	if e := skel.PluginMainFuncsWithError(funcs, version.All, "twill "+release); e != nil {
		_ = e.Print() // best effort
		return 1
	}
	return 0
}

// commandTimeout is for one command; runtimes give up after minutes.
const commandTimeout = 90 * time.Second

// withConf runs a command with a network's configuration, and converts its error to CNI's form.
func withConf(args *skel.CmdArgs, do func(context.Context, *conf) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	c, err := readConf(args)
	if err == nil {
		err = do(ctx, c)
	}
	return failed(err)
}

// withContainer is withConf for a command about one container.
func withContainer(args *skel.CmdArgs, do func(context.Context, *conf, wire.Request) error) error {
	return withConf(args, func(ctx context.Context, c *conf) error {
		r, err := c.request(args)
		if err != nil {
			return err
		}
		return do(ctx, c, r)
	})
}

// checkKeys refuses a configuration with keys that must not be ignored, and reports ignored keys on standard error, which runtimes log.
func (c *conf) checkKeys() error {
	idles, err := keysWithoutEffect(c.raw)
	if err != nil {
		return invalid("%v", err)
	}
	if len(idles) > 0 {
		fmt.Fprintf(os.Stderr, "twill: no effect in the configuration of network %s: %s\n", c.Name, strings.Join(idles, ", "))
	}
	return nil
}

func add(args *skel.CmdArgs) error {
	return withContainer(args, func(ctx context.Context, c *conf, r wire.Request) error {
		if err := errors.Join(c.checkKeys(), c.awaitGates(ctx)); err != nil {
			return err
		}
		e, err := open(args.Netns, r)
		if err != nil {
			return err
		}
		defer e.close()
		if err := errors.Join(e.free(), e.checkDistinct()); err != nil {
			return err
		}
		result, err := c.attach(ctx, e)
		switch {
		case errors.Is(err, wire.ErrNoAgent):
			return errors.Join(err, e.removeOwn()) // no agent knows it
		case err != nil:
			return errors.Join(err, c.detach(ctx, e))
		}
		return types.PrintResult(result, c.CNIVersion)
	})
}

// attach makes the whole attachment. The link is made while the agent brings routes and policy into force; the container's end gets
// its addresses, and is set up, when they are.
func (c *conf) attach(ctx context.Context, e *linkPair) (result *current.Result, err error) {
	r := &e.request
	result = &current.Result{CNIVersion: current.ImplementedSpecVersion, DNS: c.DNS}
	if !c.IPAM.ours() {
		if err := wire.Ask(ctx, c.Socket, wire.PathStatus, r.Ref, nil); err != nil {
			return nil, err // before the other plugin did anything
		}
		if result, err = c.delegate(ctx); err != nil {
			return nil, err
		}
		for _, ip := range result.IPs {
			a, _ := netip.AddrFromSlice(ip.Address.IP)
			r.Addrs = append(r.Addrs, a.Unmap())
		}
		for _, route := range result.Routes { // their gateways mean nothing here: the host is the only neighbour
			dst, err := netip.ParsePrefix(route.Dst.String())
			if err != nil {
				return nil, fmt.Errorf("IPAM plugin %s: route to %s: %w", c.IPAM.Type, &route.Dst, err)
			}
			c.routes = append(c.routes, dst.Masked())
		}
	}
	if r.MAC, err = wire.NewMAC(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var out wire.Attached
	asked := make(chan error, 1)
	go func(r wire.Request) { asked <- wire.Ask(ctx, c.Socket, wire.PathAttach, r, &out) }(*r)
	if err := e.connect(c); err != nil {
		cancel()
		<-asked // so that it does not attach what is being detached
		return nil, err
	}
	if err := <-asked; err != nil {
		return nil, err
	}
	if err := e.follow(out, c); err != nil {
		return nil, err
	}
	if err := e.configure(out.Addrs, c); err != nil {
		return nil, err
	}
	return e.result(result, out.Addrs, c), nil
}

// delegate gets addresses from another plugin.
func (c *conf) delegate(ctx context.Context) (*current.Result, error) {
	raw, err := c.delegated(ctx, c.podCIDRs)
	if err != nil {
		return nil, err
	}
	r, err := invoke.DelegateAdd(ctx, c.IPAM.Type, raw, nil)
	if err != nil {
		return nil, err
	}
	out, err := current.NewResultFromResult(r)
	if err == nil && len(out.IPs) == 0 {
		err = types.NewError(types.ErrInvalidNetworkConfig, "IPAM plugin "+c.IPAM.Type+" assigned no address", "")
	}
	return out, err
}

// delegateOther calls another plugin for anything but addresses.
func (c *conf) delegateOther(ctx context.Context, call func(context.Context, string, []byte, invoke.Exec) error) error {
	raw, err := c.delegated(ctx, anyPodCIDRs)
	if err != nil {
		return err
	}
	return call(ctx, c.IPAM.Type, raw, nil)
}

// result returns the CNI result for the runtime and chained plugins.
func (e *linkPair) result(out *current.Result, addrs []netip.Addr, c *conf) *current.Result {
	near, far := e.hostLink, e.containerLink
	const inside = 1 // the index of the container's end
	out.Interfaces = []*current.Interface{{Name: near.Name, Mac: near.MAC, Mtu: near.MTU}, {Name: far.Name, Mac: far.MAC, Mtu: far.MTU, Sandbox: e.path}}
	out.IPs, out.Routes = nil, nil
	done := map[netip.Addr]bool{}
	for _, a := range addrs {
		gateway, world := gatewayOf(a)
		whole := net.CIDRMask(a.BitLen(), a.BitLen())
		out.IPs = append(out.IPs, &current.IPConfig{Interface: current.Int(inside), Address: net.IPNet{IP: a.AsSlice(), Mask: whole}})
		if done[gateway] {
			continue
		}
		done[gateway] = true
		for _, dst := range c.destinations(world, !e.apart[gateway]) {
			out.Routes = append(out.Routes, &types.Route{Dst: net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), a.BitLen())}, GW: gateway.AsSlice()})
		}
	}
	return out
}

func del(args *skel.CmdArgs) error {
	return withContainer(args, func(ctx context.Context, c *conf, r wire.Request) error {
		e, err := open(args.Netns, r)
		if err != nil { // the container is gone; the rest goes, too
			e, err = open("", r)
		}
		if err != nil {
			return err
		}
		defer e.close()
		return c.detach(ctx, e)
	})
}

// detach removes everything. The agent detaches first, so that it does not miss a link that it still wants; packets
// over a link that it does not know are dropped.
func (c *conf) detach(ctx context.Context, e *linkPair) error {
	err := wire.Ask(ctx, c.Socket, wire.PathDetach, e.request.Ref, nil)
	if errors.Is(err, wire.ErrNoAgent) {
		err = wire.LeaveNote(c.Socket, e.request.Ref)
	}
	if err = errors.Join(err, e.removeOwn()); err == nil && !c.IPAM.ours() {
		err = c.delegateOther(ctx, invoke.DelegateDel)
	}
	return err
}

func check(args *skel.CmdArgs) error {
	return withContainer(args, func(ctx context.Context, c *conf, r wire.Request) error {
		var err error
		if r.Addrs, err = c.previous(); err != nil {
			return err
		}
		e, err := open(args.Netns, r)
		if err != nil {
			return err
		}
		defer e.close()
		if err := e.check(r.Addrs); err != nil {
			return err
		}
		if !c.IPAM.ours() {
			if err := c.delegateOther(ctx, invoke.DelegateCheck); err != nil {
				return err
			}
		}
		return wire.Ask(ctx, c.Socket, wire.PathCheck, r, nil)
	})
}

// previous returns the addresses of ADD's result, as the runtime has stored it.
func (c *conf) previous() (out []netip.Addr, err error) {
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return nil, invalid("prevResult: %v", err)
	}
	if c.PrevResult == nil {
		return nil, invalid("prevResult is missing: CHECK compares with it")
	}
	previous, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return nil, invalid("prevResult: %v", err)
	}
	for _, ip := range previous.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		out = append(out, a.Unmap())
	}
	return out, nil
}

// collect is GC: it removes attachments without a container.
func collect(args *skel.CmdArgs) error {
	return withConf(args, func(ctx context.Context, c *conf) error {
		v := wire.Valid{Network: c.Name}
		for _, a := range c.ValidAttachments {
			v.Refs = append(v.Refs, wire.Ref{Network: c.Name, ContainerID: a.ContainerID, Ifname: a.IfName})
		}
		err := sweep(c.Name, v.Refs)
		err = errors.Join(err, wire.Ask(ctx, c.Socket, wire.PathGC, v, nil))
		if !c.IPAM.ours() {
			err = errors.Join(err, c.delegateOther(ctx, invoke.DelegateGC))
		}
		return err
	})
}

func status(args *skel.CmdArgs) error {
	return withConf(args, func(ctx context.Context, c *conf) error {
		if err := wire.Ask(ctx, c.Socket, wire.PathStatus, wire.Ref{Network: c.Name}, nil); err != nil {
			return types.NewError(types.ErrPluginNotAvailable, err.Error(), "")
		}
		if !c.IPAM.ours() {
			return c.delegateOther(ctx, invoke.DelegateStatus)
		}
		return nil
	})
}
