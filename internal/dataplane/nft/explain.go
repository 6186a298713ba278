package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent/match"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// Flow is a kind of packets.
type Flow struct {
	Proto uint8
	Port  uint16 // the destination's, of a protocol that has ports
}

// Way is what becomes of packets of one kind between an address and some interfaces, of workloads or of a host endpoint, as the kernel's table
// has it.
type Way struct {
	Peer       netip.Addr `json:"peer"`
	Direction  string     `json:"direction"`              // of the workload or host endpoint: receives or sends
	Host       string     `json:"hostEndpoint,omitempty"` // whose policy it is; none: workloads'
	Stage      string     `json:"stage,omitempty"`        // the chain that leads to a host endpoint's; its other rules pass what no policy is asked about
	Interfaces []string   `json:"interfaces"`
	Chain      string     `json:"chain"`             // that the interfaces lead to
	Policies   string     `json:"policies"`          // that it asks, by its comment
	ByChains   []string   `json:"byChains"`          // not empty: these are asked one after another, in place of look-ups
	Class      string     `json:"class,omitempty"`   // of the address; none: it is in no set
	ClassMap   string     `json:"classMap"`          // where that stands
	Addresses  string     `json:"addresses"`         // of the class, by the comment of the group's entry
	Program    string     `json:"program,omitempty"` // of the group for the class
	Packets    string     `json:"packets"`           // of which kind
	Code       string     `json:"code,omitempty"`    // of the program for them
	Answer     string     `json:"answer"`            // allow, deny, or ask: the rules of a chain
	By         []string   `json:"by"`                // what decides, by comments
}

// What a Way says of packets.
const (
	wayAllows = "allow"
	wayDenies = "deny"
	wayAsks   = "ask"
)

// Explain finds the ways of packets between an address and each workload and host endpoint through a table that was read from the kernel. Flow nil: of all kinds
// of packets of which the table makes a difference.
func Explain(rs *nftables.Ruleset, peer netip.Addr, flow *Flow) ([]Way, error) {
	t := tableOf(rs)
	var out []Way
	for m, direction := range [...]string{desired.Receives: "receives", desired.Sends: "sends"} {
		leads := map[string][]string{}
		for key, el := range t.sets[mapNames[m]] {
			if el.Verdict != nil {
				leads[el.Verdict.Chain] = append(leads[el.Verdict.Chain], strings.TrimRight(key, "\x00"))
			}
		}
		chains := make([]string, 0, len(leads))
		for chain, links := range leads {
			slices.Sort(links)
			chains = append(chains, chain)
		}
		slices.Sort(chains)
		for _, chain := range chains {
			w := Way{Peer: peer, Direction: direction, Interfaces: leads[chain], Chain: chain, Policies: t.chains[chain].Comment, ByChains: []string{}, By: []string{}}
			ways, err := t.ways(w, chain, flow)
			if err != nil {
				return nil, err
			}
			out = append(out, ways...)
		}
	}
	hosts, err := t.hostWays(peer, flow)
	return append(out, hosts...), err
}

// hostWays follows the packets between an address and each host endpoint, at each stage at which it has policy.
func (t readTable) hostWays(peer netip.Addr, flow *Flow) (out []Way, err error) {
	for _, st := range desired.HostStages() {
		leads := map[string]*Way{}
		var chains []string
		for _, r := range t.rules[st.Chain] {
			chain, link := leadsTo(r)
			if chain == "" {
				continue
			}
			if leads[chain] == nil {
				chains = append(chains, chain)
				leads[chain] = &Way{
					Peer: peer, Direction: st.Direction, Host: r.Comment, Stage: st.Chain, Chain: chain, Policies: t.chains[chain].Comment, ByChains: []string{}, By: []string{},
				}
			}
			leads[chain].Interfaces = append(leads[chain].Interfaces, link)
		}
		for _, chain := range chains {
			ways, err := t.ways(*leads[chain], st.Maps(chain), flow)
			if err != nil {
				return nil, err
			}
			out = append(out, ways...)
		}
	}
	return out, nil
}

// leadsTo returns the chain that a rule goes to, and the interface of the packets that do: any without one of its own is "*". Empty: it goes nowhere.
func leadsTo(r nftables.Rule) (chain, link string) {
	link = "*"
	for _, x := range r.Exprs {
		switch x := x.(type) {
		case nftables.Cmp:
			link = strings.TrimRight(string(x.Data), "\x00")
		case nftables.Verdict:
			if x.Code == nftables.VerdictGoto {
				chain = x.Chain
			}
		}
	}
	return chain, link
}

// readTable is a table, by names and keys.
type readTable struct {
	sets   map[string]map[string]nftables.Element
	chains map[string]nftables.Chain
	rules  map[string][]nftables.Rule
}

func tableOf(rs *nftables.Ruleset) readTable {
	t := readTable{map[string]map[string]nftables.Element{}, map[string]nftables.Chain{}, map[string][]nftables.Rule{}}
	for _, s := range rs.Sets {
		t.sets[s.Name] = map[string]nftables.Element{}
		for _, el := range s.Elements {
			t.sets[s.Name][elementID(el)] = el
		}
	}
	for _, c := range rs.Chains {
		t.chains[c.Name] = c
	}
	for _, r := range rs.Rules {
		t.rules[r.Chain] = append(t.rules[r.Chain], r)
	}
	return t
}

// ways follows the packets between w.Peer and w.Interfaces. The names of the maps that their chain asks begin with maps.
func (t readTable) ways(w Way, maps string, flow *Flow) ([]Way, error) {
	family := slot(w.Peer)
	group, compiled := t.sets[groupMap(maps, family)]
	if !compiled {
		w.Packets, w.Answer = "all", wayAsks
		for _, r := range t.rules[w.Chain] {
			if asked := jumps(r); len(asked) > 0 {
				w.ByChains = append(w.ByChains, asked...)
			} else if r.Comment != "" {
				w.By = append(w.By, r.Comment)
			}
		}
		return []Way{w}, nil
	}
	class := t.classOf(&w)
	entry, own := group[class]
	if !own {
		entry = group[""]
	}
	if w.Addresses = entry.Comment; len(entry.Data) != 4 {
		return nil, fmt.Errorf("the map %s has no program for %s: run twill verify", groupMap(maps, family), w.Peer)
	}
	w.Program = hexOf(string(entry.Data))
	var out []Way
	for _, c := range t.cells(string(entry.Data), flow) {
		out = append(out, t.decide(w, c))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no map has a code for program %s: run twill verify", w.Program)
	}
	return out, nil
}

// jumps returns the chains that a rule calls.
func jumps(r nftables.Rule) (out []string) {
	for _, x := range r.Exprs {
		if v, ok := x.(nftables.Verdict); ok && v.Code == nftables.VerdictJump {
			out = append(out, v.Chain)
		}
	}
	return out
}

// classOf returns the class of the peer, as the chains of classes find it; empty: it has none.
func (t readTable) classOf(w *Way) string {
	i := slot(w.Peer)
	for bits := w.Peer.BitLen(); bits >= 0; bits-- {
		name := hostMaps[i]
		if bits < w.Peer.BitLen() {
			name = prefixMap(i, bits)
		}
		net, _ := w.Peer.Prefix(bits)
		if el, ok := t.sets[name][string(net.Addr().AsSlice())]; ok {
			w.Class, w.ClassMap = hexOf(string(el.Data)), name
			return string(el.Data)
		}
	}
	return ""
}

// decided is a kind of packets, and their code.
type decided struct {
	packets string
	code    string
}

// cells returns the kinds of packets of which a program makes a difference, the special first; or what it says of one kind.
func (t readTable) cells(program string, flow *Flow) (out []decided) {
	key := func(more ...[]byte) string {
		return string(nftables.KeyConcat(append([][]byte{[]byte(program)}, more...)...))
	}
	if flow != nil {
		name := protoName(flow.Proto)
		if match.HasPorts(flow.Proto) {
			name += "/" + strconv.Itoa(int(flow.Port))
		}
		for _, at := range []struct{ name, key string }{
			{mapPorts, key(nftables.KeyProto(flow.Proto), nftables.KeyPort(flow.Port))}, {mapProtos, key(nftables.KeyProto(flow.Proto))}, {mapPrograms, key()},
		} {
			if el, ok := t.sets[at.name][at.key]; ok {
				return []decided{{name, string(el.Data)}}
			}
		}
		return nil
	}
	for k, el := range t.sets[mapPorts] {
		if strings.HasPrefix(k, program) {
			out = append(out, decided{fmt.Sprintf("%s/%d", protoName(k[4]), int(k[8])<<8|int(k[9])), string(el.Data)})
		}
	}
	slices.SortFunc(out, func(a, b decided) int { return compareNatural(a.packets, b.packets) })
	n := len(out)
	for k, el := range t.sets[mapProtos] {
		if strings.HasPrefix(k, program) {
			out = append(out, decided{"all else of " + protoName(k[4]), string(el.Data)})
		}
	}
	slices.SortFunc(out[n:], func(a, b decided) int { return strings.Compare(a.packets, b.packets) })
	if el, ok := t.sets[mapPrograms][program]; ok {
		out = append(out, decided{"all else", string(el.Data)})
	}
	return out
}

// decide says what becomes of packets with a code.
func (t readTable) decide(w Way, c decided) Way {
	w.Packets, w.Code, w.Answer, w.By = c.packets, hexOf(c.code), wayDenies, []string{}
	if el, ok := t.sets[setCounts][c.code]; ok && el.Comment != "" {
		w.By = append(w.By, el.Comment)
	}
	el, ok := t.sets[mapActions][c.code]
	if !ok {
		el, ok = t.sets[mapRejects][c.code]
	}
	if _, allowed := t.sets[setAllowed][c.code]; allowed {
		w.Answer = wayAllows
	} else if ok && el.Verdict != nil {
		w.Answer = wayAsks
		for _, r := range t.rules[el.Verdict.Chain] {
			if n := len(w.By); r.Comment != "" && (n == 0 || w.By[n-1] != r.Comment) {
				w.By = append(w.By, r.Comment)
			}
		}
	}
	return w
}

// hexOf is a number as nft lists it.
func hexOf(key string) string {
	n := uint32(codeOf(key))
	return fmt.Sprintf("%x:%x", n>>16, n&0xffff)
}

func protoName(proto uint8) string {
	if name, ok := map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp", 136: "udplite"}[proto]; ok {
		return name
	}
	return "protocol " + strconv.Itoa(int(proto))
}

// compareNatural compares proto/port by the number.
func compareNatural(a, b string) int {
	if len(a) != len(b) && strings.SplitN(a, "/", 2)[0] == strings.SplitN(b, "/", 2)[0] {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
