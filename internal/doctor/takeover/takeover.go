// Package takeover judges what happens when Twill takes the place of an upstream agent (Calico's) on a host: what blocks it, what
// changes and when, what stays the same, and what to do next.
//
// In: [Facts], gathered by others before, while or after that is done. Out: [Finding]s, some for each of a fixed list of checks, in
// its order ([Judge]), and the steps that are left ([Next]). What could not be read is a finding, too.
package takeover

import (
	"fmt"
	"slices"
	"strings"
)

// Grade is what a finding means for a take-over.
type Grade string

// Grades. Blocks: to be put right first. Changes: it will be otherwise afterwards. Same: it carries over.
const (
	Blocks  Grade = "blocks"
	Changes Grade = "changes"
	Same    Grade = "same"
)

// When a change takes place.
const (
	AtStart   = "when Twill starts"
	AtEnd     = "when the leftovers go"
	Between   = "until the leftovers go"
	AtEdit    = "when it is edited"
	AtInstall = "when the plugin is installed"
)

// Finding is what one check has to say.
type Finding struct {
	Check string `json:"check"`
	Grade Grade  `json:"grade"`
	Found string `json:"found"`
	When  string `json:"when,omitempty"` // of what changes
	Do    string `json:"do,omitempty"`
}

// check looks at one thing.
type check struct {
	name  string
	about string
	judge func(*Facts) []Finding
}

// checks are in the order in which a reader needs them.
var checks = []check{
	{"store", "the datastore answers, and is not locked or full", storeAnswers},
	{"host", "this host can be read: kernel, processes, files", hostIsRead},
	{"node", "this host has the Node that upstream's agent is", nodeIs},
	{"agent", "which agent runs, and not both", agents},
	{"datastore", "upstream's agent reads the datastore that Twill will read", sameDatastore},
	{"ebpf", "policy is not in upstream's eBPF programs, which packets pass before our table", ebpf},
	{"kernel", "this kernel has tables, and the tunnels that pools and settings want", kernelHas},
	{"resources", "Twill reads each resource, and acts on all of it", resources},
	{"settings", "settings of upstream's agent that Twill would not have", settings},
	{"addresses", "blocks, handles and endpoints agree about addresses", addresses},
	{"encryption", "hosts without a key of WireGuard", encryption},
	{"bgp", "sessions, passwords and routes by BGP", speaks},
	{"workloads", "endpoints of this node have interfaces, and interfaces have endpoints", workloads},
	{"cni", "which plugin a container runtime calls, now and then", plugins},
	{"rules", "rules of upstream's agent, and chains of the host that drop", rules},
	{"cluster", "which nodes Twill has, by what their agents report", cluster},
}

// Judge runs all checks. What blocks comes first, then what changes; each in the order of the checks.
func Judge(f *Facts) (out []Finding) {
	for _, c := range checks {
		found := c.judge(f)
		for i := range found {
			found[i].Check = c.name
			if found[i].When == AtStart && f.ours() {
				found[i].When = "" // it has
			}
		}
		out = append(out, found...)
	}
	order := []Grade{Blocks, Changes, Same}
	slices.SortStableFunc(out, func(a, b Finding) int { return slices.Index(order, a.Grade) - slices.Index(order, b.Grade) })
	return out
}

// About is a line for each check: its name and what it looks at.
func About() (out []string) {
	for _, c := range checks {
		out = append(out, fmt.Sprintf("%-11s %s", c.name, c.about))
	}
	return out
}

// Blocked reports whether something is to be put right first.
func Blocked(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Grade == Blocks })
}

func blocks(do, format string, args ...any) Finding {
	return Finding{Grade: Blocks, Found: fmt.Sprintf(format, args...), Do: do}
}

func changes(when, do, format string, args ...any) Finding {
	return Finding{Grade: Changes, When: when, Found: fmt.Sprintf(format, args...), Do: do}
}

func same(format string, args ...any) Finding {
	return Finding{Grade: Same, Found: fmt.Sprintf(format, args...)}
}

// list has the first few words, and how many more there are.
func list(words []string, most int) string {
	if len(words) <= most {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
}

// count is a number of things.
func count(n int, thing, things string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %s", n, things)
}
