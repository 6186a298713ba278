package shape

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// header is the most that a link adds to a packet of its MTU: Ethernet's header, and a tag (IEEE 802.1Q).
const header = 18

// Defaults of what users do not say.
const (
	burstTime = 0.1  // seconds of the rate that may be sent at once
	queueTime = 0.05 // seconds that a packet may wait, besides the burst
	leastHeld = 20   // packets that may wait, however slow the rate is
)

// Shaper returns the bucket for a bandwidth on a link whose packets have at most mtu bytes. A burst that holds no packet of that size would let none
// pass, so it is one packet at least; and it is no more than the kernel can count.
func Shaper(b intent.Bandwidth, mtu int) rtnl.Shaper {
	if b.Rate == 0 {
		return rtnl.Shaper{}
	}
	packet := uint64(mtu + header)
	rate := b.Rate / 8
	s := rtnl.Shaper{Rate: rate, Peak: b.Peak / 8}
	s.Burst = b.Burst / 8
	if b.Burst == 0 {
		s.Burst = max(uint64(float64(rate)*burstTime), 10*packet)
	}
	s.Burst = max(min(s.Burst, rate*rtnl.MaxBurst), packet)
	queue := max(uint64(float64(rate)*queueTime), leastHeld*packet)
	s.Queue = uint32(min(queue+s.Burst, math.MaxUint32))
	if s.Peak > 0 {
		s.PeakBurst = uint32(max(b.PeakBurst, packet))
	}
	return s
}

// Device is the name of the device through which what a workload sends goes, by that of its interface.
func Device(link string) string {
	return fmt.Sprintf("twbw%x", sha256.Sum256([]byte(link)))[:14]
}

// step is one change of the kernel.
type step struct {
	what   string            // what it changes, for people; empty: part of another
	of     intent.EndpointID // whose limit; the zero value: nobody's any more
	link   string            // the interface, with its index; empty: none
	index  int
	repair bool // it was as wanted before
	do     func() error
}

// now is the kernel's state.
type now struct {
	links   map[string]rtnl.Link
	shapers map[int]rtnl.Shaper
}

func (d *Driver) read() (n now, err error) {
	links, err := d.rtnl.Links()
	if err != nil {
		return n, err
	}
	n.links = map[string]rtnl.Link{}
	for _, l := range links {
		n.links[l.Name] = l
	}
	n.shapers, err = d.rtnl.Shapers()
	return n, err
}

// plan returns what must be changed, in order.
func (d *Driver) plan() ([]step, error) {
	n, err := d.read()
	var lacks *kernel.UnsupportedError
	if errors.As(err, &lacks) && len(d.endpoints) == 0 { // nobody wants what the kernel lacks
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var todo []step
	wanted := map[string]made{} // by interface
	for _, e := range d.endpoints {
		l, there := n.links[e.Link]
		if !there { // package host says so
			continue
		}
		m := made{l.Index, Shaper(e.QoS.Bandwidth[intent.Ingress], l.MTU), Shaper(e.QoS.Bandwidth[intent.Egress], l.MTU)}
		s := step{of: e.ID, link: e.Link, index: l.Index, repair: d.made[e.Link] == m}
		todo = append(todo, d.receives(s, n, m)...)
		more, err := d.sends(s, n, m)
		if err != nil {
			return nil, err
		}
		todo = append(todo, more...)
		wanted[e.Link] = m
	}
	var gone []step
	if d.inSync {
		gone, err = d.sweep(n, wanted)
	}
	d.made = wanted
	return append(todo, gone...), err
}

// receives returns the step for what a workload receives.
func (d *Driver) receives(s step, n now, m made) []step {
	if is, there := n.shapers[m.index]; m.in == (rtnl.Shaper{}) || there && m.in.Same(is) && (m.in.Peak == 0 || s.repair) {
		return nil
	}
	s.what, s.do = "bandwidth of what "+s.link+" sends to its workload", func() error { return d.rtnl.SetShaper(m.index, m.in) }
	return []step{s}
}

// sends returns the steps for what a workload sends. The device can carry packets before the filter leads to it.
func (d *Driver) sends(s step, n now, m made) (todo []step, err error) {
	if m.out == (rtnl.Shaper{}) {
		return nil, nil
	}
	name := Device(s.link)
	ifb, there := n.links[name]
	is, shaped := n.shapers[ifb.Index]
	to, err := d.rtnl.Redirected(m.index)
	if err != nil {
		return nil, err
	}
	alias := kernel.BandwidthAlias + s.link
	if there && ifb.Kind == "ifb" && ifb.Up && ifb.Alias == alias && shaped && m.out.Same(is) && to == ifb.Index && (m.out.Peak == 0 || s.repair) {
		return nil, nil
	}
	s.what = "bandwidth of what " + s.link + " receives from its workload"
	s.do = func() error {
		if !there {
			if err := d.rtnl.AddIFB(name); err != nil {
				return err
			}
			if ifb, err = d.rtnl.Link(name); err != nil {
				return err
			}
		}
		if ifb.Kind != "ifb" || there && ifb.Alias != alias && ifb.Alias != "" {
			return fmt.Errorf("link %s is another's", name)
		}
		for _, do := range []func() error{
			func() error { return d.rtnl.SetAlias(ifb.Index, alias) },
			func() error { return d.rtnl.SetShaper(ifb.Index, m.out) },
			func() error { return d.rtnl.SetUp(ifb.Index, true) },
		} {
			if err := do(); err != nil {
				return err
			}
		}
		if to == ifb.Index {
			return nil
		}
		return d.rtnl.Redirect(m.index, ifb.Index)
	}
	return []step{s}, nil
}

// sweep returns the steps that remove what is ours and nobody wants: filters before the devices to which they lead.
func (d *Driver) sweep(n now, wanted map[string]made) (todo []step, err error) {
	var devices []step
	for _, l := range n.links {
		of, ours := strings.CutPrefix(l.Alias, kernel.BandwidthAlias)
		ours = ours && l.Kind == "ifb"
		switch m := wanted[l.Name]; {
		case ours && wanted[of].out == (rtnl.Shaper{}):
			devices = append(devices, step{what: "device " + l.Name, do: func() error { return d.rtnl.DeleteLink(l.Index) }})
		case ours:
		default:
			if _, shaped := n.shapers[l.Index]; shaped && m.in == (rtnl.Shaper{}) {
				todo = append(todo, step{what: "bandwidth of what " + l.Name + " sends", link: l.Name, index: l.Index, do: func() error { return d.rtnl.DeleteShaper(l.Index) }})
			}
			had := d.whole && l.Kind == "veth" || d.made[l.Name].out != (rtnl.Shaper{})
			if !had || m.out != (rtnl.Shaper{}) {
				continue
			}
			to, err := d.rtnl.Redirected(l.Index)
			if err != nil {
				return nil, err
			}
			if to != 0 {
				todo = append(todo, step{what: "bandwidth of what " + l.Name + " receives", link: l.Name, index: l.Index, do: func() error { return d.rtnl.DeleteRedirect(l.Index) }})
			}
		}
	}
	slices.SortFunc(devices, func(a, b step) int { return strings.Compare(a.what, b.what) })
	return append(todo, devices...), nil
}
