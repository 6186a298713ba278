package plan

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// Rule accepts or rejects routes. All conditions that are set must match.
type Rule struct {
	Name      string       // the resource it is from
	Prefix    netip.Prefix `json:",omitzero"`  // invalid: any
	Not       bool         `json:",omitempty"` // Prefix, Min and Max must not match
	Min, Max  int          // bounds of the route's length
	Learned   bool         `json:",omitempty"` // only learned routes
	Own       bool         `json:",omitempty"` // only routes that this node originates
	Covered   bool         `json:",omitempty"` // only routes of this node within a wider one that it originates: workloads' in its blocks
	Foreign   bool         `json:",omitempty"` // only routes that this node originates since a filter accepts them: neither the agent's nor of services
	Interface string       `json:",omitempty"` // only this node's own routes, through such an interface; * and ? are wildcards
	Community string       `json:",omitempty"`
	ASPath    []uint32     `json:",omitempty"` // the path begins so
	Priority  uint32       `json:",omitempty"` // the route's
	Accept    bool         `json:",omitempty"`
	Continue  bool         `json:",omitempty"` // it only adds communities, and rules after it decide

	Add     []string `json:",omitempty"` // communities
	Prepend []uint32 `json:",omitempty"` // in the order of the resulting path
	// SetPriority is the route's priority from then on; 0: it stays.
	SetPriority uint32 `json:",omitempty"`
}

// Route is what rules match.
type Route struct {
	Dst         netip.Prefix
	Learned     bool
	Covered     bool   // see Rule
	Foreign     bool   // see Rule
	Link        string // the interface of this node's own route
	Communities []string
	ASPath      []uint32
	Priority    uint32 // 0: that of no route
}

// Matches reports whether a rule matches a route.
func (r Rule) Matches(t Route) bool {
	if r.Prefix.IsValid() {
		in := Covers(r.Prefix, t.Dst) && t.Dst.Bits() >= r.Min && t.Dst.Bits() <= r.Max
		if in == r.Not {
			return false
		}
	}
	return (!r.Learned || t.Learned) && (!r.Own || !t.Learned) && (!r.Covered || t.Covered) && (!r.Foreign || t.Foreign) &&
		(r.Interface == "" || !t.Learned && NameMatches(r.Interface, t.Link)) &&
		(r.Priority == 0 || r.Priority == t.Priority) &&
		(r.Community == "" || slices.Contains(t.Communities, r.Community)) &&
		len(t.ASPath) >= len(r.ASPath) && slices.Equal(t.ASPath[:len(r.ASPath)], r.ASPath)
}

// NameMatches reports whether a rule's Interface is that of a link. No link has no name.
func NameMatches(pattern, link string) bool {
	ok, err := path.Match(pattern, link)
	return ok && err == nil && link != ""
}

// Decide returns the first of the rules that matches and decides; false if none does.
func Decide(rules []Rule, t Route) (Rule, bool) {
	i := slices.IndexFunc(rules, func(r Rule) bool { return !r.Continue && r.Matches(t) })
	if i < 0 {
		return Rule{}, false
	}
	return rules[i], true
}

// String describes the rule for messages.
func (r Rule) String() string {
	what := "rejects"
	if r.Accept {
		what = "accepts"
	}
	return r.Name + " " + what
}

// filterRules are the rules of one list of a filter, for sessions of one kind.
func filterRules(name string, list []api.BGPFilterRule, internal bool) []Rule {
	var out []Rule
	for i, r := range list {
		if r.Void || r.PeerType == "eBGP" && internal || r.PeerType == "iBGP" && !internal {
			continue
		}
		rule := Rule{Name: fmt.Sprintf("BGPFilter %s[%d]", name, i), Learned: r.Source == "RemotePeers", Interface: r.Interface, Accept: r.Action == "Accept"}
		if p, err := netip.ParsePrefix(r.CIDR); err == nil {
			rule.prefix(p.Masked(), r)
		}
		if r.Communities != nil && len(r.Communities.Values) > 0 {
			rule.Community = r.Communities.Values[0]
		}
		for _, as := range r.ASPathPrefix {
			rule.ASPath = append(rule.ASPath, uint32(as))
		}
		if r.Priority != nil {
			rule.Priority = uint32(*r.Priority)
		}
		for _, o := range r.Operations {
			rule.operation(o)
		}
		out = append(out, rule)
	}
	return out
}

func (r *Rule) prefix(p netip.Prefix, from api.BGPFilterRule) {
	r.Prefix, r.Min, r.Max = p, p.Bits(), p.Addr().BitLen()
	if l := from.PrefixLength; l != nil {
		if l.Min != nil {
			r.Min = max(int(*l.Min), p.Bits())
		}
		if l.Max != nil {
			r.Max = int(*l.Max)
		}
	}
	if strings.HasSuffix(from.MatchOperator, "Equal") {
		r.Max = min(r.Max, p.Bits())
	}
	r.Not = strings.HasPrefix(from.MatchOperator, "Not")
}

// operation adds what an operation does. Of several prepends the last stands first.
func (r *Rule) operation(o api.BGPFilterOperation) {
	switch {
	case o.AddCommunity != nil:
		r.Add = append(r.Add, o.AddCommunity.Value)
	case o.PrependASPath != nil:
		var front []uint32
		for _, as := range o.PrependASPath.Prefix {
			front = append(front, uint32(as))
		}
		r.Prepend = append(front, r.Prepend...)
	case o.SetPriority != nil:
		r.SetPriority = uint32(o.SetPriority.Value)
	}
}

// within is a rule for all of a prefix.
func within(name string, p netip.Prefix, accept bool) Rule {
	return Rule{Name: name, Prefix: p, Min: p.Bits(), Max: p.Addr().BitLen(), Accept: accept}
}
