package takeover

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

func storeAnswers(f *Facts) (out []Finding) {
	if f.Store.Err != "" {
		return []Finding{blocks("name the datastore that Calico has (--etcd …, or DATASTORE_TYPE=kubernetes and KUBECONFIG), and see that it answers", "%s", f.Store.Err)}
	}
	for _, m := range f.Store.Members {
		switch {
		case m.Full:
			out = append(out, blocks("`twill etcd defrag --compact`, then `twill etcd alarm disarm`", "%s is full: nothing can be written, so no address can be assigned", m.Endpoint))
		case m.Err != "":
			out = append(out, changes(AtStart, "see to that member first: with fewer members the next fault stops all writes", "%s does not answer: %s", m.Endpoint, m.Err))
		}
	}
	if f.Store.Frozen {
		out = append(out, blocks("let whoever moves the data finish; if nobody does: twill datastore unlock", "the datastore is locked (datastoreReady is false): neither agent changes anything, and a take-over cannot be checked"))
	}
	for _, kind := range slices.Sorted(maps.Keys(f.failed)) {
		out = append(out, blocks("give this account the right to list them, or use the one of the agent", "%s cannot be listed: %s", kind, f.failed[kind]))
	}
	return out
}

// most is how many names a finding has, and mostResources how many findings of a grade are listed of resources.
const (
	most          = 4
	mostResources = 20
)

func resources(f *Facts) (out []Finding) {
	if f.Store.Err != "" {
		return nil // the check of the store says so
	}
	shown := map[Grade]int{}
	for _, n := range f.noted {
		if strings.HasPrefix(n.field, "spec.bpf") && bpfWanted(f) != "" && len(ebpf(f)) > 0 {
			continue // the check of eBPF says more
		}
		if shown[n.grade]++; shown[n.grade] > mostResources {
			continue
		}
		text := n.reason
		if n.field != "" {
			text = n.field + " " + n.reason
		}
		text = fmt.Sprintf("%s: %s", list(n.names, most), text)
		switch {
		case n.edit:
			out = append(out, changes(AtEdit, "change it so that `twill validate` takes it, before somebody has to edit it", "%s; it acts as it is stored, and a change of it would be refused", text))
		case n.grade == Blocks:
			out = append(out, blocks(f.closes(n.kind), "%s", text))
		default:
			out = append(out, changes(AtStart, cmp.Or(n.do, "leave it, if nobody depends on it: docs/fields.md has each field"), "%s", text))
		}
	}
	for _, g := range []Grade{Blocks, Changes} {
		if n := shown[g] - mostResources; n > 0 {
			out = append(out, Finding{Grade: g, Found: fmt.Sprintf("%d more of that grade, of resources, which are not listed", n), Do: "put these right first, and run this again"})
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(f.unknown)) {
		out = append(out, changes(AtStart, "nothing, unless somebody depends on them: they stay as they are stored", "%s of a kind that Twill does not know, %s, have no effect", count(f.unknown[kind], "resource", "resources"), kind))
	}
	return append(out, f.counts()...)
}

// closes says what to do about a resource that is not read as it is written.
func (f *Facts) closes(kind string) string {
	switch kind {
	case api.KindNetworkPolicy, api.KindGlobalNetworkPolicy:
		return "change it so that `twill validate` takes it: a rule that is not understood allows nothing, and one that denies does so without the condition (docs/wrong-input.md)"
	case api.KindWorkloadEndpoint, api.KindHostEndpoint:
		return "put it right: an endpoint that is not understood carries no traffic (docs/wrong-input.md)"
	}
	return "change it so that `twill validate` takes it; what a broken resource does is in docs/wrong-input.md"
}

// counted are the kinds that are counted, in this order.
var counted = []struct{ kind, one, many string }{
	{api.KindTier, "tier", "tiers"},
	{api.KindGlobalNetworkPolicy, "global policy", "global policies"},
	{api.KindNetworkPolicy, "policy in a namespace", "policies in namespaces"},
	{api.KindStagedGlobalNetworkPolicy, "staged global policy", "staged global policies"},
	{api.KindStagedNetworkPolicy, "staged policy", "staged policies"},
	{api.KindStagedKubernetesNetworkPolicy, "staged policy of Kubernetes", "staged policies of Kubernetes"},
	{api.KindGlobalNetworkSet, "global network set", "global network sets"},
	{api.KindNetworkSet, "network set", "network sets"},
	{api.KindProfile, "profile", "profiles"},
	{api.KindHostEndpoint, "host endpoint", "host endpoints"},
	{api.KindWorkloadEndpoint, "workload endpoint", "workload endpoints"},
	{api.KindNode, "node", "nodes"},
	{api.KindIPPool, "pool", "pools"},
	{api.KindBGPPeer, "BGP peer", "BGP peers"},
	{api.KindBGPFilter, "BGP filter", "BGP filters"},
}

// counts are what carries over, with those that have a fault.
func (f *Facts) counts() []Finding {
	var words []string
	for _, c := range counted {
		if n := f.listed[c.kind]; n > 0 {
			words = append(words, count(n, c.one, c.many))
		}
	}
	if len(words) == 0 {
		return []Finding{changes(AtStart, "if Calico has resources, this is not its datastore: name it with --etcd, or DATASTORE_TYPE=kubernetes", "the datastore has no resources")}
	}
	return []Finding{same("%s: read where they are, by the same keys", list(words, len(words)))}
}

func addresses(f *Facts) (out []Finding) {
	switch {
	case f.Store.Err != "":
		return nil
	case f.IPAMErr != "":
		return []Finding{blocks("see that blocks, handles and affinities can be read; twill ipam check", "addresses cannot be checked: %s", f.IPAMErr)}
	}
	var problems []string
	of, proof := map[string][]string{}, map[string]string{}
	for _, p := range f.IPAM {
		if p.Broken {
			out = append(out, blocks("twill ipam check; compare it with a backup: addresses that it has might be given out again", "%s (%s)", p.Problem, p.Proof))
			continue
		}
		if of[p.Problem] == nil {
			problems, proof[p.Problem] = append(problems, p.Problem), p.Proof
		}
		of[p.Problem] = append(of[p.Problem], p.Of)
	}
	for _, p := range problems {
		out = append(out, changes(AtStart, "twill ipam check has all of it; with --fix it repairs what is proven", "%s: each %s (the first: %s)", list(of[p], most), p, proof[p]))
	}
	if f.Blocks > 0 {
		out = append(out, same("%s of addresses, %d of this node: addresses, handles and affinities are used as they are", count(f.Blocks, "block", "blocks"), f.OwnBlocks))
	}
	return out
}

// cluster is which nodes have which agent.
func cluster(f *Facts) (out []Finding) {
	if f.Store.Err != "" {
		return nil
	}
	if f.ReportsErr != "" {
		return []Finding{changes(AtStart, "give this account the right to read them", "which nodes Twill has is not known: %s", f.ReportsErr)}
	}
	by := map[Reporting][]string{}
	for _, n := range f.Nodes.Nodes() {
		name := n.Metadata.Name
		who := f.Reports[name]
		switch { // a report of this node may be of before
		case name != f.Node || f.HostErr != "":
		case f.ours():
			who = Twills
		case f.UpstreamAgent() != "":
			who = Upstreams
		default:
			who = Nobodys
		}
		by[who] = append(by[who], name)
	}
	all := len(f.Nodes.Nodes())
	switch done := len(by[Twills]); {
	case all == 0:
	case done == all:
		out = append(out, same("Twill's agent reports from all of %s", count(all, "node", "nodes")))
	default:
		text := fmt.Sprintf("Twill's agent reports from %d of %s", done, count(all, "node", "nodes"))
		for _, who := range []struct {
			by   Reporting
			text string
		}{{Twills, "Twill's: "}, {Upstreams, "Calico's: "}, {Nobodys, "no agent, or one that reports nothing, as Calico's outside of OpenStack: "}} {
			if names := by[who.by]; len(names) > 0 {
				text += "; " + who.text + list(names, most)
			}
		}
		out = append(out, same("%s", text))
	}
	return out
}
