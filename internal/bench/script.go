package bench

import (
	"fmt"
	"strings"
)

// conntrackAlone is the ruleset of a host that follows connections, and has no policy.
const conntrackAlone = `table inet bench { chain forward { type filter hook forward priority filter; ct state established,related accept; ct state invalid drop; }; }
`

// script is a world's policies for one workload, as somebody writes them by hand: a set for each group of peers, a chain for each policy.
type script struct {
	world World
	link  string // of the workload
}

// setName is that of the set of some peers.
func (p peers) setName() string {
	switch {
	case p.isSet:
		return fmt.Sprintf("net%d", p.set)
	case p.app < 0:
		return "everybody"
	}
	return fmt.Sprintf("app%denv%d", p.app, p.env)
}

// policies are the rules of each policy, in order.
func (s script) policies() (out [][]peerRule) {
	for i := range s.world.Policies - 1 {
		out = append(out, rulesOf(i))
	}
	last := rulesOf(s.world.Policies)[:1]
	return append(out, append(last, peerRule{peers{isSet: true}, portUDP}, peerRule{peers{app: -1}, portTCP}))
}

// sets are all peers that policies name, each once, with their addresses.
func (s script) sets(each func(name string, prefixes bool, members []string)) {
	members := map[string][]string{}
	for i := range s.world.Endpoints {
		for _, p := range []peers{{app: -1}, {app: i % apps, env: i / apps % 2}} {
			members[p.setName()] = append(members[p.setName()], remoteAddr(i))
		}
	}
	seen := map[string]bool{}
	for _, rules := range s.policies() {
		for _, r := range rules {
			name := r.peers.setName()
			switch {
			case seen[name]:
				continue
			case r.peers.isSet:
				each(name, true, prefixesOf(r.peers.set))
			default:
				each(name, false, members[name])
			}
			seen[name] = true
		}
	}
}

// ipset is the input of `ipset restore`.
func (s script) ipset() string {
	var b strings.Builder
	s.sets(func(name string, prefixes bool, members []string) {
		kind := "hash:ip"
		if prefixes {
			kind = "hash:net"
		}
		fmt.Fprintf(&b, "create %s %s maxelem 1048576\n", name, kind)
		for _, m := range members {
			fmt.Fprintf(&b, "add %s %s\n", name, m)
		}
	})
	return b.String()
}

// iptables is the input of iptables-restore.
func (s script) iptables() string {
	var b strings.Builder
	fmt.Fprint(&b, "*filter\n:FORWARD ACCEPT\n:workload -\n")
	all := s.policies()
	for i := range all {
		fmt.Fprintf(&b, ":p%d -\n", i)
	}
	fmt.Fprintf(&b, "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n-A FORWARD -m conntrack --ctstate INVALID -j DROP\n-A FORWARD -o %s -j workload\n", s.link)
	for i, rules := range all {
		for _, r := range rules {
			fmt.Fprintf(&b, "-A p%d -p tcp --dport %d -m set --match-set %s src -j ACCEPT\n", i, r.port, r.peers.setName())
		}
		fmt.Fprintf(&b, "-A workload -j p%d\n", i)
	}
	fmt.Fprint(&b, "-A workload -j DROP\nCOMMIT\n")
	return b.String()
}

// nft is the input of `nft -f -`.
func (s script) nft() string {
	var b strings.Builder
	fmt.Fprint(&b, "table inet bench {\n")
	s.sets(func(name string, prefixes bool, members []string) {
		flags := ""
		if prefixes {
			flags = "flags interval; "
		}
		fmt.Fprintf(&b, "set %s { type ipv4_addr; %s", name, flags)
		if len(members) > 0 {
			fmt.Fprintf(&b, "elements = { %s }; ", strings.Join(members, ", "))
		}
		fmt.Fprint(&b, "}\n")
	})
	all := s.policies()
	for i, rules := range all {
		fmt.Fprintf(&b, "chain p%d {\n", i)
		for _, r := range rules {
			fmt.Fprintf(&b, "ip saddr @%s tcp dport %d accept\n", r.peers.setName(), r.port)
		}
		fmt.Fprint(&b, "}\n")
	}
	fmt.Fprint(&b, "chain workload {\n")
	for i := range all {
		fmt.Fprintf(&b, "jump p%d\n", i)
	}
	fmt.Fprintf(&b, "drop\n}\nchain forward { type filter hook forward priority filter; ct state established,related accept; ct state invalid drop; oifname %q jump workload; }\n}\n", s.link)
	return b.String()
}
