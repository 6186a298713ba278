package attach

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
)

// Given are the addresses that this node gave to an endpoint which its datastore makes of a pod, where the pod still has others: the kubelet reports
// those of the pod's last sandbox until all containers of the new one are started.
type Given struct {
	Container string
	Networks  []string
	Instead   []string // of these, as the datastore has them
}

// of returns an update of an endpoint with these addresses, if it is the container's and has the others; else false.
func (g Given) of(u api.Update) (api.Update, bool) {
	st, err := api.DecodeStored(u)
	w, ok := st.Resource.(*api.WorkloadEndpoint)
	if err != nil || !ok || w.Spec.ContainerID != g.Container || !slices.Equal(w.Spec.IPNetworks, g.Instead) {
		return u, false
	}
	w.Spec.IPNetworks = g.Networks
	for i, n := range w.Spec.IPNATs {
		if addr := g.ofFamily(n.InternalIP); addr != "" {
			w.Spec.IPNATs[i].InternalIP = addr
		}
	}
	value, err := api.EncodeStored(w)
	if err != nil {
		return u, false
	}
	u.Value = value
	return u, true
}

// ofFamily is the address of the same family as another; empty: there is none.
func (g Given) ofFamily(addr string) string {
	was, err := netip.ParseAddr(addr)
	for _, text := range g.Networks {
		if p, wrong := netip.ParsePrefix(text); err == nil && wrong == nil && p.Addr().Is4() == was.Is4() {
			return p.Addr().String()
		}
	}
	return ""
}

// Give notes addresses that the updates of an endpoint are to have, until one says anything else of them.
func (o *Overlay) Give(key string, g Given) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.given == nil {
		o.given = map[string]Given{}
	}
	o.given[key] = g
}

// with returns an update of the datastore with the addresses that its endpoint was given. The lock is held.
func (o *Overlay) with(u api.Update) api.Update {
	g, has := o.given[u.Key]
	if !has {
		return u
	}
	u, same := g.of(u)
	if !same {
		delete(o.given, u.Key)
	}
	return u
}
