package rules

import (
	"github.com/twillnet/twill/internal/intent"
)

// Stage is one at which the policy of a host endpoint is asked (docs/design/stages.md).
type Stage uint8

// Stages.
const (
	HostNormal  Stage = iota // to or from a process of the host
	HostForward              // through the host
	PreDNAT                  // before destinations are rewritten
	Untracked                // before conntrack
)

// String is the prefix in the names of the stage's chains.
func (s Stage) String() string { return [...]string{"", "fwd-", "pre-", "raw-"}[s&3] }

// early stages decide by rules only: neither the end of a tier nor that of the chain drops.
func (s Stage) early() bool { return s >= PreDNAT }

// Tiers returns the tiers of a host endpoint at a stage.
func (s Stage) Tiers(e intent.Endpoint) []intent.Tier {
	g := e.Policies()
	return [...][]intent.Tier{g.Normal, g.Forward, g.PreDNAT, g.Untracked}[s&3]
}

// HostChain returns the name of the chain of a host endpoint at a stage.
func HostChain(id intent.EndpointID, s Stage, dir intent.Direction) string {
	return Name("hep-"+s.String()+inOut(dir)+"-", id.Name, id.String())
}

// HostEndpoint returns the chain of a host endpoint at a stage. That of a closed endpoint drops what is to or from the
// host or goes through it, and decides nothing at the early stages. A chain without rules is not needed.
func HostEndpoint(e intent.Endpoint, s Stage, dir intent.Direction) Chain {
	c := Chain{Name: HostChain(e.ID, s, dir), Comment: shorten("host endpoint "+e.ID.Name, " "+direction(dir))}
	if e.Closed != "" {
		if !s.early() {
			c.Rules = []Rule{{Action: Deny, Comment: shorten(e.ID.Name+": "+e.Closed, ""), By: end(e.ID, dir, intent.ReasonClosed)}}
		}
		return c
	}
	for _, t := range s.Tiers(e) {
		if s.early() {
			t.Default = intent.Pass
		}
		rs := tier(e.ID, t, dir)
		if len(rs) == 0 {
			continue
		}
		begin := Rule{Action: Next}
		if len(c.Rules) == 0 {
			begin.Action = Begin
		}
		c.Rules = append(append(c.Rules, begin), rs...)
	}
	switch {
	case s == HostForward && len(c.Rules) > 0:
		c.Rules = append(c.Rules, Rule{Action: Accept, Comment: shorten(e.ID.Name, ": nothing denies what is forwarded")})
	case s == HostNormal:
		if len(c.Rules) == 0 {
			c.Rules = append(c.Rules, Rule{Action: Begin})
		}
		c.Rules = append(c.Rules, profiles(e, dir)...)
		c.Rules = append(c.Rules, Rule{Action: Deny, Comment: shorten(e.ID.Name, ": no profile matched"), By: end(e.ID, dir, intent.ReasonNoProfileMatch)})
	}
	return c
}

// profiles asks the profiles in order; a packet that none decides about goes on.
func profiles(e intent.Endpoint, dir intent.Direction) []Rule {
	var rs []Rule
	for _, id := range e.Policies().Profiles {
		rs = append(rs,
			Rule{Action: Jump, Target: PolicyChain(id, dir), Comment: shorten(policyName(id), "")},
			Rule{Terms: []Term{{Kind: Allowed}}, Action: Return})
	}
	return rs
}
