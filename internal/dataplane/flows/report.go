package flows

import (
	"maps"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nflog"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/verdict"
)

// Counts is the number of reports since the start.
type Counts struct {
	Allowed, Dropped uint64 // reports
	Logged           uint64 // reports by rules with action Log
	Unknown          uint64 // reports under unknown names, such as those of a chain that an earlier agent wrote
	Lost             uint64 // times at which the kernel dropped reports, since they came too fast
	// Staged are packets for which staged policies would have decided otherwise, by their decision, whatever
	// the endpoint: so there are as many entries as rules, however many pods come and go. Those of a removed policy are removed.
	Staged map[Would]uint64
}

// Counts returns the number of reports since the start.
func (c *Collector) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.counts
	out.Staged = maps.Clone(out.Staged)
	return out
}

// report makes a flow of a report, and delivers it.
func (c *Collector) report(p nflog.Packet) {
	d, current, known := c.cfg.Names.Reported(p.Prefix, p.Mark)
	ip, isIP := packet.ParseIP(p.Payload)
	if !known || !isIP {
		c.mu.Lock()
		c.counts.Unknown++
		c.mu.Unlock()
		return
	}
	c.mu.Lock()
	f := c.flow(d, ip, c.link(p.In), c.link(p.Out))
	f.Changed = !current
	staged := c.staged > 0 && c.cfg.Staged != nil && !f.Logged && !p.Early // before routing, the outgoing interface is not known
	c.mu.Unlock()
	if staged {
		f.Staged = c.would(f, ip)
	}
	c.keep(f)
	c.journal.print(f)
}

// keep counts a flow, and delivers it.
func (c *Collector) keep(f Flow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case f.Logged:
		c.counts.Logged++
	case f.Allowed:
		c.counts.Allowed++
	default:
		c.counts.Dropped++
	}
	if f.Staged != nil && f.Staged.Allowed != f.Allowed {
		w := *f.Staged
		w.Endpoint = ""
		c.counts.Staged[w]++
	}
	c.hand(f)
}

// flow makes a flow of the packet and its decision.
func (c *Collector) flow(d intent.Decision, ip packet.Packet, in, out string) Flow {
	f := Flow{
		Time: time.Now(), Allowed: d.Allowed, Reason: d.Reason, Dir: d.Rule.Direction.String(), Tier: d.Tier, Rule: d.Rule.Index,
		Src: ip.Src, Dst: ip.Dst, From: c.byAddr[ip.Src], To: c.byAddr[ip.Dst], Proto: ip.Proto, SrcPort: ip.SrcPort, DstPort: ip.DstPort,
		ICMPType: ip.ICMPType, ICMPCode: ip.ICMPCode, In: in, Out: out,
	}
	if d.Rule.Policy != (intent.PolicyID{}) {
		f.Policy = d.Rule.Policy.String()
	}
	if f.Logged = d.Reason == intent.ReasonLogged; f.Logged {
		f.Prefix = c.prefix.Begin(d.Tier, d.Rule.Policy)
	}
	if d.Rule.Index == intent.NoRule && d.Endpoint == (intent.EndpointID{}) && d.Rule.Policy == (intent.PolicyID{}) && d.Reason != intent.ReasonNoProfileMatch {
		// One of the rules that all endpoints share: the endpoint follows from the interfaces.
		if _, sends := c.byLink[in]; sends {
			f.Dir = intent.Egress.String()
		}
	}
	id := d.Endpoint
	if id == (intent.EndpointID{}) {
		id = c.asked(d.Rule.Policy, d.Rule.Direction, in, out)
	}
	if id == (intent.EndpointID{}) {
		link := out
		if f.Dir == intent.Egress.String() {
			link = in
			if in == "" { // sent by the host: the endpoint is that of its own interface
				link = out
			}
		} else if out == "" {
			link = in // received by the host
		}
		if id = c.byLink[link]; id == (intent.EndpointID{}) && d.Reason != intent.ReasonUnknownLink { // that is a workload's interface
			id = c.byLink["*"]
		}
	}
	f.Endpoint = c.endpoints[id].label
	return f
}

// asked is the endpoint that has a policy at a stage of a packet's way, by which the policy decided about it; zero: none is known to have it. What comes in
// meets the host endpoint first, what goes out the workload that sends it. A workload's interface has the host endpoint for all interfaces.
func (c *Collector) asked(p intent.PolicyID, dir intent.Direction, in, out string) intent.EndpointID {
	host := func(link string) intent.EndpointID {
		if id := c.byLink[link]; link == "" || id.Kind == intent.Host {
			return id
		}
		return c.byLink["*"]
	}
	ids := []intent.EndpointID{host(in), c.byLink[out]}
	if dir == intent.Egress {
		ids = []intent.EndpointID{c.byLink[in], host(out)}
	}
	for _, id := range ids {
		g := c.endpoints[id].asks
		if g == nil {
			continue
		}
		stages := [][]intent.Tier{g.Untracked, g.PreDNAT, g.Forward, g.Normal}
		if id.Kind == intent.Host && in != "" && out != "" {
			stages = stages[:3] // what is forwarded
		}
		for _, t := range slices.Concat(stages...) {
			if slices.Contains([...][]intent.PolicyID{intent.Ingress: t.Ingress, intent.Egress: t.Egress}[dir], p) {
				return id
			}
		}
	}
	return intent.EndpointID{}
}

// would returns what staged policies would have decided about a packet: nil if the same. It is called for the stage that decides about
// one endpoint, so that a packet that passes two is not counted twice.
func (c *Collector) would(f Flow, ip packet.Packet) *Would {
	v := c.cfg.Staged(verdict.Packet{
		InLink: f.In, OutLink: f.Out, Src: ip.Src, Dst: ip.Dst, Proto: ip.Proto, SrcPort: ip.SrcPort, DstPort: ip.DstPort,
		ICMPType: ip.ICMPType, ICMPCode: ip.ICMPCode,
	})
	policy := ""
	if v.Rule.Policy != (intent.PolicyID{}) {
		policy = v.Rule.Policy.String()
	}
	c.mu.Lock()
	w := Would{
		Allowed: v.Allowed, Reason: v.Reason, Endpoint: c.endpoints[v.Endpoint].label, Dir: v.Rule.Direction.String(),
		Tier: v.Tier, Policy: policy, Rule: v.Rule.Index,
	}
	c.mu.Unlock()
	switch turned, here := w.Allowed != f.Allowed, w.Endpoint == f.Endpoint && w.Dir == f.Dir; {
	case turned && (w.Allowed || here), !turned && here && v.Rule.Policy.Staged():
		return &w
	}
	return nil // the same, or the other stage reports it
}

// hand delivers a flow to all listeners. A listener that is too slow misses it, and gets the number of missed flows with the next one.
func (c *Collector) hand(f Flow) {
	if len(c.ring) < Kept {
		c.ring = append(c.ring, f)
	} else {
		c.ring[c.next] = f
		c.next = (c.next + 1) % Kept
	}
	for ch, missed := range c.listeners {
		f.Missed = *missed
		select {
		case ch <- f:
			*missed = 0
		default:
			*missed++
		}
	}
}

// Last returns up to n flows, the oldest first.
func (c *Collector) Last(n int) []Flow {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append(append([]Flow{}, c.ring[c.next:]...), c.ring[:c.next]...)
	return all[len(all)-min(max(n, 0), len(all)):]
}

// waiting is how many flows are queued for a listener.
const waiting = 1024

// Listen returns a channel of all flows from now on, and a function that ends it.
func (c *Collector) Listen() (<-chan Flow, func()) {
	ch := make(chan Flow, waiting)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners[ch] = new(uint64)
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listeners, ch)
	}
}
