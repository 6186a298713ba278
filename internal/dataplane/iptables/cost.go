package iptables

import (
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// costs implements desired.Coster for the sets of a driver.
type costs struct{ *Driver }

// Rule returns how many rules of iptables render r in both families, and how many nets and ports they ask for. One that has no text costs nothing: what
// renders it says why.
func (c costs) Rule(r rules.Rule) (n, elements int) {
	for _, f := range families {
		of, applies := r.ForFamily(f)
		if !applies {
			continue
		}
		w := newWriter(Renderer{Family: f, Table: Filter})
		if err := w.rule("", r); err != nil {
			continue
		}
		n += len(w.body)
		for _, t := range of.Terms {
			elements += len(t.Nets) + len(t.Ports)
		}
	}
	return n, elements
}

// Set returns how many elements a set has in the kernel's sets of both families.
func (c costs) Set(id intent.SetID) (n int) {
	if s := c.sets[id]; s != nil {
		for _, k := range s.kernel {
			n += len(k.asked)
		}
	}
	return n
}
