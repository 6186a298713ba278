package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
)

// NAT says how packets of pools with natOutgoing leave.
type NAT struct {
	Addr       netip.Addr // the zero value: the interface's
	Ports      [2]uint16  // first and last; zeroes: any
	Exclusions string
	Link       string // empty: any; * at its end: any that begins so
}

func natAddress() Param {
	return Param{
		Name: "natOutgoingAddress", Type: "IPv4 address", Help: "the address with which they leave instead of that of the interface; it must be this host's",
		set: func(s *Settings, text string) (err error) {
			if s.NAT.Addr = (netip.Addr{}); text == "" {
				return nil
			}
			a, err := netip.ParseAddr(text)
			if err != nil || !a.Is4() {
				return fmt.Errorf("is %q: want an IPv4 address", text)
			}
			s.NAT.Addr = a
			return nil
		},
	}
}

func metadataAddress() Param {
	return Param{
		Name: "metadataAddr", Type: "IPv4 address, or none", Help: "where the requests of workloads for metadata (TCP port 80 of 169.254.169.254) go, as docs/metadata.md says; empty means 127.0.0.1 if interfacePrefix has tap, and else none; another address than that makes the host one of OpenStack, as docs/openstack.md says",
		set: func(s *Settings, text string) error {
			if reason := api.BadMetadataAddr(text); reason != "" {
				return errors.New(reason)
			}
			s.Metadata.Addr = text
			return nil
		},
	}
}

func natPorts() Param {
	return Param{
		Name: "natPortRange", Type: "first:last", Help: "the source ports that they may get, of TCP and UDP; empty means any",
		set: func(s *Settings, text string) error {
			if s.NAT.Ports = [2]uint16{}; text == "" {
				return nil
			}
			first, last, ranged := strings.Cut(text, ":")
			if !ranged {
				last = first
			}
			a, err := strconv.ParseUint(first, 10, 16)
			b, err2 := strconv.ParseUint(last, 10, 16)
			if errors.Join(err, err2) != nil || a == 0 || b < a {
				return fmt.Errorf("is %q: want a range such as 32768:65535", text)
			}
			s.NAT.Ports = [2]uint16{uint16(a), uint16(b)}
			return nil
		},
	}
}

func natLink() Param {
	return Param{
		Name: "iptablesNATOutgoingInterfaceFilter", Type: "name, with + at its end for any that begins so", Help: "the interface by which they leave; by others they keep their address",
		set: func(s *Settings, text string) error {
			if s.NAT.Link = ""; text == "" {
				return nil
			}
			if err := interfaces(strings.TrimSuffix(text, "+")); err != nil {
				return err
			}
			s.NAT.Link = text
			if name, any := strings.CutSuffix(text, "+"); any {
				s.NAT.Link = name + "*"
			}
			return nil
		},
	}
}
