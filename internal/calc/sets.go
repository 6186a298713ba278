package calc

import (
	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/calc/ipset"
	"github.com/twillnet/twill/internal/calc/service"
	"github.com/twillnet/twill/internal/intent"
)

// counted adds references to the sets that rules use: of labels, of nodes and of services.
type counted struct {
	sets, hosts *ipset.Index[sourceItem]
	services    *service.Index
	proxies     *proxied
}

func (g *Graph) counted() counted { return counted{g.sets, g.hostSets, g.services, &g.proxies} }

// Use is the set of what a selector selects: of nodes if it demands their label, else of endpoints and network sets.
func (c counted) Use(sel *selector.Selector, ports []string, proto uint8) intent.SetID {
	if sel.Demands(api.LabelNode) {
		return c.hosts.Use(sel, ports, proto)
	}
	return c.sets.Use(sel, ports, proto)
}

// Service is the set of a service's endpoints.
func (c counted) Service(namespace, name string, ports bool) intent.SetID {
	return c.services.Use(namespace, name, ports)
}

// Proxied is the set of workloads whose proxies enforce HTTP.
func (c counted) Proxied() intent.SetID {
	c.proxies.uses++
	return intent.SetProxied
}

// Release drops one reference to a set.
func (c counted) Release(id intent.SetID) {
	switch {
	case id == intent.SetProxied:
		c.proxies.uses--
	case service.Is(id):
		c.services.Release(id)
	case c.hosts.Has(id):
		c.hosts.Release(id)
	default:
		c.sets.Release(id)
	}
}

// named names sets as counted does, without counting.
type named struct{ ipset.Names }

// Service names the set of a service's endpoints.
func (named) Service(namespace, name string, ports bool) intent.SetID {
	return service.ID(namespace, name, ports)
}

// Proxied names the set of workloads whose proxies enforce HTTP.
func (named) Proxied() intent.SetID { return intent.SetProxied }
