// Package doctor judges a host: what keeps it from doing its work, and what to do about it.
//
// In: [Facts], gathered by others. Out: [Finding]s, some for each of a fixed list of checks, in its order ([Judge]).
package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is how bad a finding is.
type Verdict string

// Verdicts. Fail: something does not work. Warn: it may not, or not for long.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn"
	Fail Verdict = "fail"
)

// Finding is what one check has to say.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	Fix     string  `json:"fix,omitempty"`
}

// check looks at one thing.
type check struct {
	name  string
	about string
	judge func(*Facts) []Finding
}

// checks are in the order in which one thing needs the other.
var checks = []check{
	{"kernel", "tables, connection tracking and veth pairs can be made", kernelHas},
	{"conntrack", "there is room for more connections", conntrackRoom},
	{"neighbours", "there is room for more neighbours", neighbourRoom},
	{"store", "the datastore answers, in time", storeAnswers},
	{"agent", "the agent runs and is ready", agentReady},
	{"fields", "resources ask for nothing that Twill does not do", fieldsWithoutEffect},
	{"endpoints", "endpoints carry traffic, and none has an interface of the host itself", endpoints},
	{"forwarding", "the host forwards packets", forwards},
	{"reverse-path", "answers that take another way back are not dropped", reversePath},
	{"node", "this host has a Node with an address of its own", nodeHas},
	{"duplicates", "nobody else has this node's address: in Nodes, or on the link", duplicates},
	{"source", "workloads know this host by its Node's address", source},
	{"bgp", "twill bgp runs, and its sessions are up", bgpUp},
	{"port", "BGP's port is ours here, and answers there", ports},
	{"tunnels", "other hosts are reached, and encrypted where settings want it", tunnels},
	{"path-mtu", "packets as large as the links and tunnels take reach other nodes", pathMTU},
	{"routes", "nobody else routes within our pools", foreignRoutes},
	{"writers", "no other network's daemon programs this host", writers},
	{"leftovers", "nothing of an upstream agent is left in the kernel", leftovers},
	{"chains", "no rules of others that drop our packets, or are left over", foreignChains},
	{"services", "kube-proxy translates services in a way in which policy is asked", services},
	{"devices", "no interfaces are left over from other networks", devices},
}

// Judge runs all checks.
func Judge(f *Facts) (out []Finding) {
	for _, c := range checks {
		found := c.judge(f)
		for i := range found {
			found[i].Check = c.name
		}
		out = append(out, found...)
	}
	return out
}

// About is a line for each check: its name and what is right if it is ok.
func About() (out []string) {
	for _, c := range checks {
		out = append(out, fmt.Sprintf("%-13s %s", c.name, c.about))
	}
	return out
}

// Failed reports whether something does not work.
func Failed(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Verdict == Fail })
}

func one(v Verdict, fix, format string, args ...any) []Finding {
	return []Finding{{Verdict: v, Found: fmt.Sprintf(format, args...), Fix: fix}}
}

// list has the first few words, and how many more there are.
func list(words []string, most int) string {
	if len(words) <= most {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
}
