package calctest

import (
	"fmt"
	"slices"
)

// expectedClaim is one endpoint's to an address.
type expectedClaim struct {
	by     expectedLocal
	shared bool
	to     string
}

// before reports whether one of two endpoints has an address that both claim: who has it for itself before who shares it, the older before the newer, of which
// one without a time is, and then the smaller key.
func (c expectedClaim) before(o expectedClaim) bool {
	switch {
	case c.shared != o.shared:
		return o.shared
	case (c.by.created == "") != (o.by.created == ""):
		return o.by.created == ""
	case c.by.created != o.by.created:
		return c.by.created < o.by.created
	}
	return c.by.key < o.by.key
}

// claimsLine is the first claim, and if there are more all of them, in order.
func claimsLine(all []expectedClaim) string {
	slices.SortFunc(all, func(a, b expectedClaim) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	line := all[0].to
	if len(all) == 1 {
		return line
	}
	for _, c := range all {
		line += fmt.Sprintf(" | %s shared %v: %s", c.by.id, c.shared, c.to)
	}
	return line
}
