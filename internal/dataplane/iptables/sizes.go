package iptables

import "github.com/twillnet/twill/internal/intent"

// Sizes is how much of ours is in the kernel.
type Sizes struct {
	Tables []Size
	Sets   map[intent.Family]int
}

// Size is how much of ours is in a table of a family: chains, and rules in them, with those by which the kernel's chains call ours.
type Size struct {
	Family        intent.Family
	Table         Table
	Chains, Rules int
}

// Sizes returns what the kernel had when the driver read or changed it last; nothing before the first Apply. Any goroutine may call it. Nobody may change the answer.
func (d *Driver) Sizes() Sizes {
	if s := d.sizes.Load(); s != nil {
		return *s
	}
	return Sizes{}
}

// measure takes what is there now for Sizes, if anything is other than it was.
func (d *Driver) measure() {
	if d.measured {
		return
	}
	d.measured = true
	out := Sizes{Sets: map[intent.Family]int{intent.IPv4: 0, intent.IPv6: 0}}
	for i, f := range families {
		for _, name := range tableOrder {
			has := d.have[i][name]
			s := Size{Family: f, Table: name, Chains: len(has.chains)}
			for _, rules := range has.chains {
				s.Rules += len(rules)
			}
			for _, c := range has.calls {
				s.Rules += c.n
			}
			out.Tables = append(out.Tables, s)
		}
	}
	for _, k := range d.ksets {
		if k.exists && k.ID != "" {
			out.Sets[k.Family]++
		}
	}
	d.sizes.Store(&out)
}
