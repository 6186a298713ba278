package dhcpd

import (
	"bytes"
	"time"

	"github.com/twillnet/twill/internal/dhcp/advert"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/kernel/linklocal"
)

// advertised is what is advertised to an endpoint's machine, and when it is due again.
type advertised struct {
	advert.Schedule
	end     linkEnd
	running bool // whether the machine's end of the link was up
	what    advert.Advertisement
	payload []byte // of what
	ending  bool   // it is withdrawn, which is sent once
}

// linkEnd is where advertisements go.
type linkEnd struct {
	name  string
	index int
	mac   [6]byte
}

// renew brings sockets and advertisements in line with what is stored and with the interfaces.
func (s *server) renew() {
	if !s.ready {
		return
	}
	wanted := map[string]bool{}
	now := time.Now()
	for key := range s.six.adverts {
		if _, known := s.state.endpoints[key]; !known {
			delete(s.six.adverts, key)
		}
	}
	for key, e := range s.state.endpoints {
		addrs := s.state.assigned(e, false)
		l, up := s.six.up[e.link]
		if !up {
			delete(s.six.adverts, key)
			continue
		}
		what := advert.Of(addrs, e.domain, advert.Router{MAC: hardware(l.MAC), MTU: l.MTU, Lease: s.cfg.Lease})
		if err := s.six.advertise(key, linkEnd{e.link, l.Index, e.mac}, what, now); err != nil {
			s.cfg.Log.Warn("no router advertisements", "interface", e.link, "err", err)
		}
		s.six.cameUp(key, l, now)
		if _, still := s.six.adverts[key]; still || len(addrs) > 0 {
			wanted[e.link] = true
		}
	}
	for _, err := range s.six.listen(wanted) {
		s.cfg.Log.Warn("the machine gets nothing of IPv6 until its interface changes", "err", err)
	}
}

// advertise takes over what an endpoint's machine is to have. If that is nothing any more, what it had is withdrawn.
func (x *six) advertise(key string, to linkEnd, what advert.Advertisement, now time.Time) error {
	payload, err := what.Payload()
	if err != nil {
		return err
	}
	a := x.adverts[key]
	if a == nil || a.end != to {
		delete(x.adverts, key)
		if payload != nil {
			x.adverts[key] = &advertised{end: to, what: what, payload: payload}
		}
		return nil
	}
	if payload == nil {
		if a.ending {
			return nil
		}
		what, a.ending = a.what.Withdrawn(), true
		if payload, err = what.Payload(); err != nil {
			return err
		}
	} else if a.ending = false; bytes.Equal(payload, a.payload) {
		return nil
	}
	a.what, a.payload = what, payload
	a.Changed(now)
	return nil
}

// cameUp sends at once to a machine that starts.
func (x *six) cameUp(key string, l ifmon.Link, now time.Time) {
	if a := x.adverts[key]; a != nil {
		if l.Running && !a.running {
			a.Changed(now)
		}
		a.running = l.Running
	}
}

// solicited sends soon to a machine that asks.
func (s *server) solicited(key string, p linklocal.Packet, now time.Time) {
	if a := s.six.adverts[key]; a != nil && advert.Solicits(p.Payload, p.HopLimit) {
		a.Solicited(now, chance())
	}
}

// advertise sends what is due, and returns in how long something is again.
func (s *server) advertise(now time.Time) time.Duration {
	wait := idle
	for key, a := range s.six.adverts {
		p := s.six.ports[a.end.name]
		if p == nil || !p.from.IsValid() {
			continue // until its interface changes
		}
		if !a.Next().After(now) {
			// To all nodes, but to the machine's hardware address alone (RFC 6085): who has another on this interface gets nothing.
			err := p.sock.Send(linklocal.Packet{MAC: a.end.mac, Src: p.from, Dst: allNodes, HopLimit: advert.HopLimit, Proto: linklocal.ICMPv6, Payload: a.payload})
			s.cfg.Log.Debug("advertised", "interface", a.end.name, "withdrawn", a.ending, "err", err)
			a.Sent(now, chance())
			if a.ending {
				delete(s.six.adverts, key)
				continue
			}
		}
		wait = min(wait, a.Next().Sub(now))
	}
	return wait
}
