package etcdproxy

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
)

// Local returns an endpoint that is on this host, where clients need no proxy; empty: there is none, or its name cannot be looked up now.
// ctx bounds how long names are looked up.
func Local(ctx context.Context, store datastore.Config) string {
	cfg, err := etcdstore.ClientConfig(ctx, store)
	if err != nil {
		return ""
	}
	own := ownAddresses()
	for _, endpoint := range cfg.Endpoints {
		if strings.HasPrefix(endpoint, "unix:") {
			return endpoint
		}
		u, err := url.Parse(endpoint)
		if err != nil {
			continue
		}
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname()) // of an address: itself
		if err == nil && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(own, a.Unmap().WithZone("")) }) {
			return endpoint
		}
	}
	return ""
}

// ownAddresses are those of this host's interfaces.
func ownAddresses() (out []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}
