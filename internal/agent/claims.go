package agent

import (
	"context"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/orchestrator/endpointapi"
)

// claims joins the Endpoint API: what plugins say, the host's interfaces, and endpoints that are written and brought into force.
func (d *calcLoop) claims(cfg Config, store datastore.Store, handles kernelHandles, know func(context.Context, ...string) error) *endpointapi.Server {
	writer := endpointapi.NewWriter(endpointapi.Writer{Store: store, Kernel: attached{d, d.watch}, Know: know, Address: ipam.New(store, ipam.Config{}).QueryIP})
	s := endpointapi.NewServer(endpointapi.Config{
		Node: cfg.Node, Version: cfg.Version, Socket: endpointapi.SocketOf(cfg.Socket), Interfaces: ifmon.New(handles.rtnl), Link: handles.rtnl.Link, Do: writer.Do, Log: cfg.Log.With("part", "endpoint plugins"),
	})
	d.keep, d.watch.plugins = append(d.keep, s), s.Report
	return s
}
