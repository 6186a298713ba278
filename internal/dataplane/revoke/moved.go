package revoke

import (
	"net/netip"
	"time"

	"github.com/twillnet/twill/internal/intent"
)

// abroad is what routes say about where addresses are that no workload of this host has. A workload that gets an address which was another
// host's may have flows here: those of this host's workloads, of the host, and what it forwards.
type abroad struct {
	blocks map[netip.Prefix]bool     // of this host
	single map[netip.Addr]bool       // addresses that have a route to another host of their own
	coming map[netip.Prefix][]string // interfaces of machines that come from another host, where their flows go on, by their addresses
}

func newAbroad() abroad {
	return abroad{blocks: map[netip.Prefix]bool{}, single: map[netip.Addr]bool{}, coming: map[netip.Prefix][]string{}}
}

// Routes takes routes as they come to be wanted, which is before workloads of the same batch are prepared. It implements dataplane.Routed.
func (d *Driver) Routes(routes []intent.Route, removed []intent.Key) {
	d.mu.Lock()
	claimsOf(d.contested, routes, removed)
	d.mu.Unlock()
	x := d.absence
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range removed {
		if id, ok := k.(intent.RouteID); ok {
			delete(x.abroad.blocks, id.Prefix)
			delete(x.abroad.coming, id.Prefix)
			x.comeFrom(id.Prefix)
		}
	}
	for _, r := range routes {
		if x.abroad.coming[r.Dst] = r.Coming(); len(x.abroad.coming[r.Dst]) == 0 {
			delete(x.abroad.coming, r.Dst)
		}
		if delete(x.abroad.blocks, r.Dst); r.Kind == intent.RouteBlackhole {
			x.abroad.blocks[r.Dst] = true
		}
		switch toHost := r.Kind == intent.RouteTunnel || r.Kind == intent.RouteDirect || r.Kind == intent.RouteEncrypted; {
		case !toHost:
			x.comeFrom(r.Dst)
		case r.Dst.IsSingleIP():
			x.abroad.single[r.Dst.Addr()] = true
		}
	}
}

// comeFrom notes that an address is no other host's any more: it has flows, if somebody gets it soon.
func (x *absence) comeFrom(p netip.Prefix) {
	a := p.Addr()
	if !p.IsSingleIP() || !x.abroad.single[a] {
		return
	}
	delete(x.abroad.single, a)
	if x.parted[a] == nil && x.holders[a] == 0 {
		x.parted[a] = &parting{since: time.Now(), noted: noted{many: true}}
	}
}

// foreign reports whether an address is in no block of this host, though it has some: it is, or was, another's.
func (x *absence) foreign(a netip.Addr) bool {
	some := false
	for b := range x.abroad.blocks {
		if b.Contains(a) {
			return false
		}
		some = some || b.Addr().Is4() == a.Is4()
	}
	return some
}

// moved returns how an address was lost that a workload gets from another host; nil: it is not known to come from one.
func (x *absence) moved(a netip.Addr) *parting {
	if x.holders[a] > 0 || !x.foreign(a) {
		return nil
	}
	p := &parting{since: time.Now(), noted: noted{many: true}}
	x.parted[a] = p
	return p
}
