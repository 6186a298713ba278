// Package verdict evaluates packets by intents: what a node that has programmed
// them must do with a packet that comes in and goes out by given links.
//
// In: [intent.Batch] values, merged into a [State]; then a [Packet].
// Out: a [Verdict] with the rule that decided and the stages that were passed.
//
// It follows the stages of docs/design/stages.md: untracked, pre-DNAT, host and workload.
// Not in it, since intents do not have it: the services that a workload's host
// always answers (DHCP, neighbour discovery).
// Spoofed sources are left to the reverse path check.
//
// A State has one owner; it is pure, and its answer depends on what was merged,
// never on the order.
package verdict

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/members"
)

// ConnState is the state of a packet's connection in conntrack.
type ConnState uint8

// States of a packet's connection.
const (
	New ConnState = iota
	Established
	Invalid
	Untracked
)

// Packet is a packet at this node. All addresses are of one family; Proto is IANA's protocol number. Ports are zero if the protocol has none.
type Packet struct {
	InLink, OutLink    string     // interface names; empty: from or to a local process
	Src, Dst           netip.Addr // Dst is after DNAT
	OrigDst            netip.Addr // before DNAT; the zero value means Dst
	Proto              uint8
	SrcPort, DstPort   uint16
	OrigDstPort        uint16 // before DNAT; used only if OrigDst is valid
	ICMPType, ICMPCode uint8
	State              ConnState
}

// Verdict is the result for a packet.
type Verdict struct {
	intent.Decision
	Rejected bool   // the sender gets a TCP reset or an ICMP error (docs/reject.md)
	Trace    []Step // all that was evaluated, in order; the last one decided
}

// Step is the result of one stage, tier or profile.
type Step struct {
	Stage    string // untracked, pre-DNAT, host, forward, workload
	Endpoint intent.EndpointID
	Tier     string // empty: profiles, or none
	Outcome  string // allow, deny, pass, or a reason
	By       intent.RuleID
	Reject   bool // the sender gets an answer
}

// State is the intents of a node. The zero value is empty, and drops
// what any workload sends or receives.
type State struct {
	// WorkloadPrefixes are prefixes of the names of interfaces that only workloads have;
	// nil means "cali". An interface with such a name and no endpoint is closed.
	WorkloadPrefixes []string
	// IgnoreHosts leaves host endpoints out.
	IgnoreHosts bool

	addrs     map[string][]netip.Addr // of the host's own interfaces
	sets      members.Store
	policies  map[intent.PolicyID]*policy
	endpoints map[intent.EndpointID]intent.Endpoint
	links     map[string]intent.EndpointID // of workloads and named host interfaces
	host      intent.HostSettings
	dirty     bool // links must be computed again
	staged    bool // true during JudgeStaged
}

// SetLink sets the addresses of an interface of the host, by which host endpoints that name no interface are found; none: the interface
// is gone or has no address.
func (s *State) SetLink(name string, addrs []netip.Addr) {
	if s.addrs == nil {
		s.addrs = map[string][]netip.Addr{}
	}
	if s.addrs[name] = addrs; len(addrs) == 0 {
		delete(s.addrs, name)
	}
	s.dirty = true
}

// Merge merges a batch: a new value replaces the one of the same key. Members of an unknown set are ignored.
func (s *State) Merge(b intent.Batch) {
	if s.policies == nil {
		s.policies = map[intent.PolicyID]*policy{}
		s.endpoints = map[intent.EndpointID]intent.Endpoint{}
	}
	s.sets.Merge(b)
	for _, p := range b.Policies {
		s.policies[p.ID] = &policy{Policy: p}
	}
	for _, e := range b.Endpoints {
		s.endpoints[e.ID] = e
		s.dirty = true
	}
	if b.Host != nil {
		s.host, s.dirty = *b.Host, true
	}
	for _, k := range b.Removed {
		s.remove(k)
	}
}

func (s *State) remove(k intent.Key) {
	switch id := k.(type) {
	case intent.PolicyID:
		delete(s.policies, id)
	case intent.EndpointID:
		delete(s.endpoints, id)
		s.dirty = true
	}
}

// onLink returns the endpoint of a link. If several claim it, a workload, then one that is not closed, then the smallest name, so that
// the order of arrival does not matter.
func (s *State) onLink(link string) (intent.Endpoint, bool) {
	if s.dirty || s.links == nil {
		s.links = map[string]intent.EndpointID{}
		for id, e := range s.endpoints {
			for _, link := range s.linksOf(e) {
				if had, ok := s.links[link]; !ok || better(e, s.endpoints[had]) {
					s.links[link] = id
				}
			}
		}
		s.dirty = false
	}
	id, ok := s.links[link]
	if s.staged {
		return s.endpoints[id].AsStaged(), ok
	}
	return s.endpoints[id], ok
}

// linksOf returns the links that an endpoint names, or has by an address.
func (s *State) linksOf(e intent.Endpoint) []string {
	if e.Link != "" {
		return []string{e.Link}
	}
	var out []string
	for link, addrs := range s.addrs {
		if e.ID.Kind == intent.Host && !excludes(s.host.Exclude, link) && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return slices.Contains(e.Addrs, a) }) {
			out = append(out, link)
		}
	}
	return out
}

// excludes reports whether settings exclude a link from host endpoints by address: by its name, or by a regular expression
// between slashes, which was checked when the settings were read.
func excludes(words []string, link string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		pattern, ok := strings.CutPrefix(word, "/")
		if !ok {
			return word == link
		}
		matched, err := regexp.MatchString(strings.TrimSuffix(pattern, "/"), link)
		return err == nil && matched
	})
}

func better(a, b intent.Endpoint) bool {
	if a.ID.Kind != b.ID.Kind {
		return a.ID.Kind == intent.Workload // its interface is under no host endpoint but that for all
	}
	if (a.Closed == "") != (b.Closed == "") {
		return a.Closed == ""
	}
	return a.ID.String() < b.ID.String()
}

// workloadLink reports whether only a workload can be on link.
func (s *State) workloadLink(link string) bool {
	prefixes := s.WorkloadPrefixes
	if prefixes == nil {
		prefixes = []string{"cali"}
	}
	for _, p := range prefixes {
		if strings.HasPrefix(link, p) {
			return true
		}
	}
	return false
}

// workload returns the workload on link. bound is true if link is a workload's;
// then ok is false if the link must carry nothing.
func (s *State) workload(link string) (e intent.Endpoint, bound, ok bool) {
	if link == "" {
		return e, false, false
	}
	e, ok = s.onLink(link)
	if ok && e.ID.Kind == intent.Workload {
		return e, true, e.Closed == ""
	}
	return intent.Endpoint{}, s.workloadLink(link), false
}

// hostEndpoint returns the host endpoint of a link: its own, or the
// one for all links.
func (s *State) hostEndpoint(link string) (intent.Endpoint, bool) {
	if e, ok := s.onLink(link); ok && e.ID.Kind == intent.Host {
		return e, !s.IgnoreHosts
	}
	e, ok := s.onLink("*")
	return e, ok && e.ID.Kind == intent.Host && !s.IgnoreHosts
}
