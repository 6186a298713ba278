package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
)

// Failsafe is a port of this host, or of others, that no policy can close.
type Failsafe struct {
	Protocol uint8
	Port     uint16
	Net      netip.Prefix // of the other end; the zero value: any
}

// What stays within reach by default: what a host needs to be repaired from afar (SSH, DHCP), and to stay in the
// cluster (BGP, etcd, Typha, the Kubernetes API: upstream's defaults; and BFD, which upstream has not: it would say that
// a host is dead to which policy closes the port).
const (
	failsafeIn  = "tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,udp:3784,tcp:5473,tcp:6443,tcp:6666,tcp:6667"
	failsafeOut = "udp:53,udp:67,tcp:179,tcp:2379,tcp:2380,udp:3784,tcp:5473,tcp:6443,tcp:6666,tcp:6667"
)

func failsafes(name, value, help string, field func(*Settings) *[]Failsafe) Param {
	return Param{
		Name: name, Type: "list of protocol:port or protocol:net:port, or none", Default: value, Help: help,
		set: func(s *Settings, text string) error {
			var out []Failsafe
			if !strings.EqualFold(text, "none") {
				for _, w := range words(text) {
					f, err := failsafe(w)
					if err != nil {
						return err
					}
					out = append(out, f)
				}
			}
			*field(s) = out
			return nil
		},
	}
}

// failsafe reads tcp:22, tcp:192.0.2.0/24:22, tcp:[2001:db8::/64]:22, or a bare port of TCP.
func failsafe(text string) (f Failsafe, err error) {
	wrong := fmt.Errorf("has %q: want protocol:port, such as tcp:22, or protocol:net:port", text)
	proto, rest, ok := strings.Cut(text, ":")
	if !ok {
		proto, rest = "tcp", text
	}
	switch strings.ToLower(proto) {
	case "tcp":
		f.Protocol = 6
	case "udp":
		f.Protocol = 17
	case "sctp":
		f.Protocol = 132
	default:
		return f, wrong
	}
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		net, ok := prefixOf(strings.Trim(rest[:i], "[]"))
		if !ok {
			return f, wrong
		}
		f.Net, rest = net, rest[i+1:]
	}
	port, err := strconv.ParseUint(rest, 10, 16)
	if err != nil {
		return f, wrong
	}
	f.Port = uint16(port)
	return f, nil
}

// prefixOf reads a prefix, or an address, which is one of itself.
func prefixOf(text string) (netip.Prefix, bool) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	net, err := netip.ParsePrefix(text)
	return net.Masked(), err == nil
}

// failsafeText is how a FelixConfiguration's list would be written in the environment.
func failsafeText(ports []api.ProtoPort) string {
	if len(ports) == 0 {
		return "none"
	}
	var out []string
	for _, p := range ports {
		proto := strings.ToLower(p.Protocol)
		if proto == "" {
			proto = "tcp"
		}
		if p.Net != nil {
			out = append(out, fmt.Sprintf("%s:[%s]:%d", proto, *p.Net, p.Port))
		} else {
			out = append(out, fmt.Sprintf("%s:%d", proto, p.Port))
		}
	}
	return strings.Join(out, ",")
}
