package calc

import (
	"fmt"
	"slices"
	"strings"
)

// Attached notes that a plugin of this host made an interface for a workload, whatever its name. Only the host can know
// that: it cannot be claimed in a resource (decision 018).
func (g *Graph) Attached(link string) {
	if !g.attached[link] {
		g.attached[link] = true
		g.linkChanged(link)
	}
}

// refused returns why no workload may have an interface; empty: one may. What a driver does to a workload's interface
// (sysctls, addresses, a drop of all that policy does not allow) would cut the host itself off from its network.
func (g *Graph) refused(link string) string {
	prefixes := g.config.Settings.InterfacePrefixes
	begins := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(link, p) })
	switch {
	case link == "lo":
		return "interface lo is the host's own, and no workload's; it is not touched"
	case len(link) > maxLink || strings.ContainsAny(link, "/ \t\n\v\f\r:"):
		return fmt.Sprintf("interface %s is no name that the kernel allows", link)
	case !begins && !g.attached[link]:
		return fmt.Sprintf("interface %s is not a workload's, and is not touched: its name begins with none of interfacePrefix (%s), and no plugin of this host made it",
			link, strings.Join(prefixes, ", "))
	}
	return ""
}

const maxLink = 15 // IFNAMSIZ less the zero byte; the other limits are those of dev_valid_name in net/core/dev.c
