package wg

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// control calls do with a socket of the namespace.
func (h *Handle) control(do func(*wgctrl.Client) error) error {
	return h.ns.Do(func() error {
		c, err := wgctrl.New()
		if err != nil {
			return err
		}
		return errors.Join(do(c), c.Close())
	})
}

func (h *Handle) readKernel(name string) (State, error) {
	var s State
	err := h.control(func(c *wgctrl.Client) error {
		d, err := c.Device(name)
		if err != nil {
			return err
		}
		s = State{Public: Key(d.PublicKey), Port: d.ListenPort, Mark: uint32(d.FirewallMark)}
		if d.PrivateKey == (wgtypes.Key{}) {
			s.Public = Key{}
		}
		for _, p := range d.Peers {
			out := Peer{Key: Key(p.PublicKey), KeepAlive: p.PersistentKeepaliveInterval, Handshake: p.LastHandshakeTime, Received: p.ReceiveBytes, Sent: p.TransmitBytes}
			if p.Endpoint != nil {
				at := p.Endpoint.AddrPort()
				out.Host = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
			}
			for _, n := range p.AllowedIPs {
				a, ok := netip.AddrFromSlice(n.IP)
				ones, bits := n.Mask.Size()
				if bits == 32 {
					a = a.Unmap()
				}
				if ok {
					out.Allowed = append(out.Allowed, netip.PrefixFrom(a, ones))
				}
			}
			s.Peers = append(s.Peers, out)
		}
		return nil
	})
	return s, named(name, err)
}

func (h *Handle) changeKernel(name string, c Change) error {
	var conf wgtypes.Config
	if c.Private != (Key{}) {
		conf.PrivateKey = (*wgtypes.Key)(&c.Private)
	}
	if c.Port != 0 {
		conf.ListenPort = &c.Port
	}
	if mark := int(c.Mark); mark != 0 {
		conf.FirewallMark = &mark
	}
	for _, k := range c.Remove {
		conf.Peers = append(conf.Peers, wgtypes.PeerConfig{PublicKey: wgtypes.Key(k), Remove: true})
	}
	for _, p := range c.Set {
		out := wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Key), ReplaceAllowedIPs: true, PersistentKeepaliveInterval: &p.KeepAlive}
		if p.Host.IsValid() {
			out.Endpoint = net.UDPAddrFromAddrPort(p.Host)
		}
		for _, a := range p.Allowed {
			out.AllowedIPs = append(out.AllowedIPs, net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())})
		}
		conf.Peers = append(conf.Peers, out)
	}
	return named(name, h.control(func(ctl *wgctrl.Client) error { return ctl.ConfigureDevice(name, conf) }))
}

func named(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("device %s: %w", name, ErrNoDevice)
	}
	return fmt.Errorf("device %s: %w", name, err)
}
