package nodekeep

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/nodeaddr"
)

const lookUp = 5 * time.Second // for names

// Look reads the interfaces of a namespace.
func Look(ctx context.Context, h *rtnl.Handle) (nodeaddr.Host, error) {
	links, err := h.Links()
	if err != nil {
		return nodeaddr.Host{}, err
	}
	addrs, err := h.Addrs()
	if err != nil {
		return nodeaddr.Host{}, err
	}
	host := nodeaddr.Host{SourceTo: func(dst string, four bool) (netip.Addr, error) { return sourceTo(ctx, h, dst, four) }}
	slices.SortFunc(links, func(a, b rtnl.Link) int { return a.Index - b.Index })
	for _, l := range links {
		i := nodeaddr.Interface{Name: l.Name, Up: l.Up}
		for _, a := range addrs {
			if a.Link == l.Index {
				i.Addrs = append(i.Addrs, nodeaddr.Addr{Prefix: a.Prefix, Unsuitable: unfit(a), Secondary: a.Secondary, Lasting: a.Lasting})
			}
		}
		host.Interfaces = append(host.Interfaces, i)
	}
	return host, nil
}

// Watch signals changes of links or addresses, which are then read again.
func Watch(ctx context.Context, h *rtnl.Handle, changed chan<- struct{}) error {
	w, err := h.Watch(rtnl.WatchLinks | rtnl.WatchAddrs)
	if err != nil {
		return err
	}
	defer w.Close()
	defer context.AfterFunc(ctx, func() { _ = w.Close() })()
	for {
		if _, err := w.Receive(); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil && !errors.Is(err, rtnl.ErrOverrun) {
			return err
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

func unfit(a rtnl.Addr) string {
	switch {
	case a.Duplicate:
		return "is in use by another host on the link"
	case a.Tentative:
		return "is still being checked for duplicates"
	case a.Transient:
		return "is temporary or deprecated"
	case a.LinkScope:
		return "holds on one link only"
	}
	return ""
}

// sourceTo returns the kernel's source address towards an address, or towards the first reachable one of a name.
func sourceTo(ctx context.Context, h *rtnl.Handle, dst string, four bool) (netip.Addr, error) {
	to, err := resolve(ctx, dst, four)
	if err != nil {
		return netip.Addr{}, err
	}
	var errs []error
	for _, a := range to {
		r, err := h.RouteTo(a)
		if err == nil && r.Kind == rtnl.Unicast && r.Source.IsValid() {
			return r.Source, nil
		}
		if err == nil {
			err = fmt.Errorf("%s is an address of this host", a)
		}
		errs = append(errs, err)
	}
	return netip.Addr{}, errors.Join(errs...)
}

func resolve(ctx context.Context, dst string, four bool) (out []netip.Addr, err error) {
	if a, err := netip.ParseAddr(dst); err == nil {
		if a.Is4() != four {
			return nil, fmt.Errorf("%s is of the other family", dst)
		}
		return []netip.Addr{a}, nil
	}
	network := "ip6"
	if four {
		network = "ip4"
	}
	ctx, cancel := context.WithTimeout(ctx, lookUp)
	defer cancel()
	if out, err = net.DefaultResolver.LookupNetIP(ctx, network, dst); err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = out[i].Unmap()
	}
	return out, nil
}
