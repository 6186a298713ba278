package calc

import (
	"net/netip"
	"slices"
	"unique"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/ipset"
)

func (g *Graph) putSource(key string, labels map[string]string, parents []string, src ipset.Source) {
	old := g.sources.Get(key)
	if old == nil {
		g.tally(key, 1)
	}
	g.sets.Replaced(old, g.sources.Put(key, labels, parents, src))
}

func (g *Graph) removeSource(key string) {
	if old := g.sources.Remove(key); old != nil {
		g.tally(key, -1)
		g.sets.Replaced(old, nil)
	}
}

func sourceOf(addrs []string, ports []ipset.Port) ipset.Source {
	src := ipset.Source{Addrs: ipset.Pack(prefixes(addrs))}
	if len(ports) > 0 {
		src.Ports = &ports
	}
	return src
}

func workloadPorts(w *api.WorkloadEndpoint) []ipset.Port {
	var out []ipset.Port
	for _, p := range w.Spec.Ports {
		out = appendPort(out, p.Name, p.Protocol, p.Port)
	}
	return slices.Clip(out)
}

func hostPorts(h *api.HostEndpoint) []ipset.Port {
	var out []ipset.Port
	for _, p := range h.Spec.Ports {
		out = appendPort(out, p.Name, p.Protocol, p.Port)
	}
	return slices.Clip(out)
}

// appendPort leaves out ports that rules cannot refer to. All endpoints share one copy of a name.
func appendPort(out []ipset.Port, name string, proto api.Protocol, port uint16) []ipset.Port {
	if n, ok := proto.Number(); ok && name != "" {
		out = append(out, ipset.Port{Name: unique.Make(name).Value(), Proto: n, Port: port})
	}
	return out
}

// forced sets a label that follows from the resource's namespace or account, overriding what is stored;
// an empty value deletes it. It changes the resource.
func forced(labels map[string]string, name, value string) map[string]string {
	switch {
	case value == "":
		delete(labels, name)
		return labels
	case labels == nil:
		return map[string]string{name: value}
	}
	labels[name] = value
	return labels
}

// prefixes parses nets, masked; the decoder has reported those that are invalid.
func prefixes(texts []string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(texts))
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if err != nil {
			a, err := netip.ParseAddr(t)
			if err != nil {
				continue
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p.Masked())
	}
	return out
}
