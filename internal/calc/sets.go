package calc

import (
	"github.com/twillnet/twill/internal/calc/ipset"
	"github.com/twillnet/twill/internal/calc/service"
	"github.com/twillnet/twill/internal/intent"
)

// counted adds references to the sets that rules use: of labels and of services.
type counted struct {
	*ipset.Index[sourceItem]
	services *service.Index
}

// Service is the set of a service's endpoints.
func (c counted) Service(namespace, name string, ports bool) intent.SetID {
	return c.services.Use(namespace, name, ports)
}

// Release drops one reference to a set.
func (c counted) Release(id intent.SetID) {
	if service.Is(id) {
		c.services.Release(id)
		return
	}
	c.Index.Release(id)
}

// named names sets as counted does, without counting.
type named struct{ ipset.Names }

// Service names the set of a service's endpoints.
func (named) Service(namespace, name string, ports bool) intent.SetID {
	return service.ID(namespace, name, ports)
}
