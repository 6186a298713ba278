package libnetwork

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// The next hop of all containers; the agent answers for it on the host's end of each link.
var (
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fe80::1")
)

// innerLink is the name of the container's end of a link until dockerd moves it: upstream's, too.
func innerLink(of wire.Ref) string { return "temp" + of.Link()[len("cali"):] }

// onHost does something in the namespace of this process, which must be dockerd's.
func onHost(do func(*rtnl.Handle) error) error {
	host, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer host.Close()
	return do(host)
}

// connect makes the link. The container's end is down and has no address, so that nothing can pass.
func connect(r wire.Request, mtu int) error {
	return onHost(func(host *rtnl.Handle) error {
		err := host.AddVeth(rtnl.Veth{Name: r.Link, Peer: innerLink(r.Ref), PeerMAC: r.MAC, MTU: mtu})
		if errors.Is(err, rtnl.ErrExists) {
			return fmt.Errorf("a link %s or %s is there already: %w", r.Link, innerLink(r.Ref), err)
		}
		if err != nil {
			return err
		}
		near, err := host.Link(r.Link)
		if err != nil {
			return err
		}
		return errors.Join(host.SetAlias(near.Index, r.Ref.Alias()), host.SetUp(near.Index, true))
	})
}

// setMTU changes that of both ends, of which dockerd has not moved one yet.
func setMTU(r wire.Request, mtu int) error {
	return onHost(func(host *rtnl.Handle) error {
		for _, name := range []string{r.Link, innerLink(r.Ref)} {
			l, err := host.Link(name)
			if err == nil && l.MTU != mtu {
				err = host.SetMTU(l.Index, mtu)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// disconnect deletes an endpoint's link, and no other.
func disconnect(of wire.Ref) error {
	return deleteLink(of, func(l rtnl.Link) bool { return l.Alias == of.Alias() })
}

// disconnectUpstreams deletes the link that upstream's plugin made for an endpoint: it has the same name, and no mark.
func disconnectUpstreams(of wire.Ref) error {
	return deleteLink(of, func(l rtnl.Link) bool { return l.Alias == "" && l.Kind == "veth" })
}

func deleteLink(of wire.Ref, which func(rtnl.Link) bool) error {
	return onHost(func(host *rtnl.Handle) error {
		l, err := host.Link(of.Link())
		if err == nil && which(l) {
			err = host.DeleteLink(l.Index)
		}
		if errors.Is(err, rtnl.ErrNotFound) {
			return nil
		}
		return err
	})
}
