package nodeaddr

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/twillnet/twill/api"
)

// List is what a Node says of its host's interfaces (spec.interfaces), from which host endpoints may be made: those with an address by
// which others can reach the host, sorted by name, but the ones that containers, tunnels and bridges have. Of n, which may be nil, the
// names stay for as long as the interfaces exist: one that has no address for a while must not lose its host endpoint.
func List(n *api.Node, h Host) (out []api.NodeInterface) {
	for _, i := range h.Interfaces {
		if slices.ContainsFunc(leftOut, func(p *regexp.Regexp) bool { return p.MatchString(i.Name) }) {
			continue
		}
		entry := api.NodeInterface{Name: i.Name}
		for _, a := range i.Addrs {
			if a.Unsuitable == "" && unsuitable(a.Prefix.Addr()) == "" {
				entry.Addresses = append(entry.Addresses, a.Prefix.Addr().String())
			}
		}
		listed := n != nil && slices.ContainsFunc(n.Spec.Interfaces, func(was api.NodeInterface) bool { return was.Name == i.Name })
		if listed || len(entry.Addresses) > 0 {
			slices.Sort(entry.Addresses)
			out = append(out, entry)
		}
	}
	slices.SortFunc(out, func(a, b api.NodeInterface) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
