package caliconode

import (
	"context"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/node"
	"github.com/twillnet/twill/internal/nodekeep"
)

// startup is what the start of upstream's node makes in the datastore, by this host and its environment.
func startup(ctx context.Context, e *conn.Env, l conn.Local) (node.Startup, error) {
	s := node.Startup{Node: l.Node, Log: e.Log(), PerNode: !l.Kubernetes()}
	if l.Kubernetes() {
		s.Datastore = "kdd"
	}
	s.Pools.Unasked = true
	_, err := os.Stat("/proc/sys/net/ipv6")
	s.Pools.IPv6 = err == nil
	if s.Pools.Host, err = hostNetworks(ctx); err != nil {
		return s, err
	}
	if cfg, is := l.Cluster(&e.Conn); is {
		s.Kubernetes = func(ctx context.Context) (node.Kubernetes, error) { return installedBy(ctx, cfg) }
	}
	asked := s.Pools
	asked.Host = nil // whether one is free is of no matter where there is a pool
	_, err = asked.Wanted()
	return s, err
}

// hostNetworks are the networks in which this host has addresses.
func hostNetworks(ctx context.Context) (out []netip.Prefix, err error) {
	h, err := rtnl.Open()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	host, err := nodekeep.Look(ctx, h)
	for _, i := range host.Interfaces {
		for _, a := range i.Addrs {
			out = append(out, a.Prefix.Masked())
		}
	}
	return out, err
}

// installedBy reads what the installers of clusters, kubeadm and Rancher, leave in a cluster.
func installedBy(ctx context.Context, cfg datastore.Config) (k node.Kubernetes, err error) {
	c, err := apiserver.New(cfg)
	if err != nil {
		return k, err
	}
	data, is, err := c.ConfigMap(ctx, "kube-system", "kubeadm-config")
	if err != nil {
		return k, err
	}
	if is {
		k.Types, k.Subnets = append(k.Types, "kubeadm"), podSubnets(data)
	}
	if _, is, err = c.ConfigMap(ctx, "kube-system", "full-cluster-state"); is {
		k.Types = append(k.Types, "rancher")
	}
	return k, err
}

// podSubnets are the ranges of networking.podSubnet of kubeadm's ClusterConfiguration; what is no range is left out.
func podSubnets(data map[string]string) (out []netip.Prefix) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, line := range strings.Split(data[key], "\n") {
			text, is := strings.CutPrefix(strings.TrimSpace(line), "podSubnet:")
			for _, one := range strings.Split(text, ",") {
				if p, err := netip.ParsePrefix(strings.Trim(one, ` "'`)); is && err == nil {
					out = append(out, p.Masked())
				}
			}
		}
	}
	return out
}
