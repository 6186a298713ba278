package takeover

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/doctor"
)

// Facts are what was gathered.
type Facts struct {
	*doctor.Facts
	HostErr string // why the host could not be read; empty: it was

	AgentErr   string   // why it is not known whether our agent runs; empty: it is
	Kubernetes bool     // the datastore is Kubernetes' API
	Endpoints  []string // of etcd, as this command reads it
	Local      []config.Layer

	Agents []Agent  // upstream's, that run here
	Idle   []string // variables of their environment, other than FELIX_…, that have no effect on Twill
	File   File     // of upstream's settings
	Pins   []string
	BPFErr string // why pins could not be looked for

	Force    bool     // what Drops says is known, and provided for
	Drops    []string // chains of the host that drop what upstream's rules accept now
	RulesErr []string // why that could not be seen, for each backend of iptables

	Networks    []Network // of container runtimes, in the order in which these take them
	NetworksErr string
	Plugins     []Plugin // binaries by upstream's names

	Blocks, OwnBlocks int // of addresses, and those with an affinity to this node
	IPAM              []Inconsistency
	IPAMErr           string

	Reports    map[string]Reporting // by node
	ReportsErr string

	Plan    plan.Plan
	Secrets map[plan.Secret]string // why a password could not be read; empty: it was

	listed  map[string]int    // resources by kind
	failed  map[string]string // kinds that could not be listed, and why
	unknown map[string]int    // keys of kinds that Twill does not know
	noted   []*note
	notes   map[noteID]*note
	felix   []*api.FelixConfiguration
	own     []*api.WorkloadEndpoint // of this node
	hosts   int                     // host endpoints of this node
}

// Agent is a process of upstream's agent.
type Agent struct {
	Name       string
	PID        int
	Environ    []string // NAME=value
	EnvironErr string   // why it could not be read
}

// File is a file of settings; no Err and no Text: there is none.
type File struct{ Path, Text, Err string }

// Network is a file in which a container runtime finds a network.
type Network struct {
	File, Name string
	Types      []string // of its plugins, in order
	IPAM       string   // of the first
	Err        string
	Idle       []string // keys on which Twill's plugin does not act
}

// Plugin is a binary that runtimes call.
type Plugin struct {
	Name       string
	There, Our bool
}

// Inconsistency is one of addresses, as `twill ipam check` finds them.
type Inconsistency struct {
	Of      string // an address, a block, a handle
	Problem string
	Proof   string
	Broken  bool // a value that cannot be read
}

// Reporting is whose agent reports from a node.
type Reporting string

// Whose. Upstream's says no version in its report.
const (
	Nobodys   Reporting = ""
	Twills    Reporting = "twill"
	Upstreams Reporting = "upstream"
)

// note is what is said of resources in the same words.
type note struct {
	kind, field, reason string
	do                  string // empty: what is said of the grade
	grade               Grade
	edit                bool // it matters only to who writes it again
	names               []string
}

// noteID identifies a note.
type noteID struct {
	kind, field, reason string
	edit                bool
}

// ListFailed notes that the resources of a kind could not be listed.
func (f *Facts) ListFailed(kind, why string) {
	if f.failed == nil {
		f.failed = map[string]string{}
	}
	f.failed[kind] = why
}

// Add takes a resource of the datastore, as it is stored.
func (f *Facts) Add(u api.Update) {
	if f.listed == nil {
		f.listed, f.unknown = map[string]int{}, map[string]int{}
	}
	f.Nodes.Update(u)
	f.AddPool(u)
	s, err := api.DecodeStored(u)
	if err != nil {
		if ref, ok := api.ParseKey(u.Key); ok {
			f.listed[ref.Kind]++
			f.note(note{kind: ref.Kind, reason: "cannot be read: " + strings.TrimPrefix(err.Error(), u.Key+": "), grade: Blocks}, ref.String())
			return
		}
		kind, _, _ := strings.Cut(strings.TrimPrefix(u.Key, api.ResourcesPrefix), "/")
		f.unknown[kind]++
		return
	}
	f.listed[s.Ref.Kind]++
	f.judge(s)
	f.typesOf(s)
	f.strict(u, s)
	switch r := s.Resource.(type) {
	case *api.FelixConfiguration:
		f.felix = append(f.felix, r)
	case *api.WorkloadEndpoint:
		if r.Spec.Node == f.Node {
			f.own = append(f.own, r)
		}
	case *api.HostEndpoint:
		if r.Spec.Node == f.Node {
			f.hosts++
		}
	case *api.ClusterInformation:
		f.Store.Frozen = f.Store.Frozen || r.Spec.Locked()
	}
}

// judge notes what the agent would say of a resource. One that is closed has a problem that says why.
func (f *Facts) judge(s api.Stored) {
	for _, p := range s.Problems {
		n := note{kind: s.Ref.Kind, field: withoutIndex(p.Field), reason: p.Reason, grade: Blocks}
		if p.NoEffect {
			n.grade = Changes
		}
		f.note(n, s.Ref.String())
	}
	for _, c := range api.Conditional(s.Resource) {
		f.note(note{kind: s.Ref.Kind, field: withoutIndex(c.Path), reason: c.Reason, grade: Changes}, s.Ref.String())
	}
}

// typesOf notes a policy that governs fewer directions than with upstream's agent, which takes no types for both. Its client and its API server
// write them, so such a policy came another way.
func (f *Facts) typesOf(s api.Stored) {
	var types []api.PolicyType
	var in, out []api.Rule
	switch p := s.Resource.(type) {
	case *api.NetworkPolicy:
		types, in, out = p.Spec.Types, p.Spec.Ingress, p.Spec.Egress
	case *api.GlobalNetworkPolicy:
		types, in, out = p.Spec.Types, p.Spec.Ingress, p.Spec.Egress
	default:
		return
	}
	ours := api.DefaultTypes(len(in) > 0, len(out) > 0)
	if len(types) > 0 || len(ours) > 1 || s.Closed != "" || madeOfKubernetes(s.Ref) {
		return
	}
	there, other := "are no egress rules", "egress"
	if ours[0] == api.Egress {
		there, other = "are egress rules alone", "ingress"
	}
	f.note(note{
		kind: s.Ref.Kind, field: "spec.types", grade: Changes, do: "write spec.types before, [Ingress, Egress] to have it as it is",
		reason: fmt.Sprintf("is not there, and there %s: Calico's agent takes that for Ingress and Egress, and denies %s; Twill takes it for %s, as Calico documents it, and leaves %s to other policies and profiles",
			there, other, ours[0], other),
	}, s.Ref.String())
}

// notEdited are kinds that daemons write, or that are made of objects of Kubernetes.
var notEdited = []string{
	api.KindClusterInformation, api.KindNode, api.KindProfile, api.KindWorkloadEndpoint, api.KindCalicoNodeStatus, api.KindBlockAffinity,
	api.KindKubernetesEndpointSlice, api.KindKubernetesService, api.KindLiveMigration,
}

// ofKubernetes begin the names of policies that are made of Kubernetes' own.
var ofKubernetes = []string{"knp.", "kcnp.", "kanp.", "kbanp."}

// madeOfKubernetes reports whether a policy is a copy of one of Kubernetes' own.
func madeOfKubernetes(ref api.Ref) bool {
	return slices.ContainsFunc(ofKubernetes, func(p string) bool { return strings.HasPrefix(ref.Name, p) })
}

// strict notes what would be refused if the resource came from a user, who reads it, changes it and writes it again. What was found
// already is not repeated.
func (f *Facts) strict(u api.Update, s api.Stored) {
	if len(s.Problems) > 0 || s.Closed != "" || slices.Contains(notEdited, s.Ref.Kind) || madeOfKubernetes(s.Ref) {
		return
	}
	text, err := api.UserJSON(u)
	if err == nil {
		var docs []api.Document
		if docs, err = api.Decode(text); err == nil && len(docs) == 1 {
			api.Default(docs[0].Resource)
			if errs := api.Validate(docs[0].Resource); len(errs) > 0 {
				err = errs
			}
		}
	}
	if err != nil {
		n := note{kind: s.Ref.Kind, reason: err.Error(), grade: Changes, edit: true}
		if errs := api.FieldErrors(nil); errors.As(err, &errs) && len(errs) > 0 {
			n.field, n.reason = withoutIndex(errs[0].Path), errs[0].Reason
		}
		f.note(n, s.Ref.String())
	}
}

// withoutIndex is a path without the numbers of elements, so that the same of many is said once.
func withoutIndex(path string) string {
	var b strings.Builder
	in := false
	for _, r := range path {
		switch {
		case r == '[':
			in = true
		case r == ']':
			in = false
			b.WriteString("[]")
		case !in:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (f *Facts) note(n note, name string) {
	id := noteID{n.kind, n.field, n.reason, n.edit}
	had := f.notes[id]
	if had == nil {
		if f.notes == nil {
			f.notes = map[noteID]*note{}
		}
		had = &n
		f.notes[id], f.noted = had, append(f.noted, had)
	}
	if len(had.names) == 0 || had.names[len(had.names)-1] != name {
		had.names = append(had.names, name)
	}
}

// seen is the agent that runs and whose environment could be read; false: there is none.
func (f *Facts) seen() (Agent, bool) {
	i := slices.IndexFunc(f.Agents, func(a Agent) bool { return a.EnvironErr == "" })
	if i < 0 {
		return Agent{}, false
	}
	return f.Agents[i], true
}

// variable is one of upstream's agent.
func (f *Facts) variable(name string) string {
	a, _ := f.seen()
	for _, e := range a.Environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// ours reports whether an agent of ours answers.
func (f *Facts) ours() bool { return f.Agent.Err == "" }

// ready reports whether it guards workloads.
func (f *Facts) ready() bool { return f.ours() && len(f.Agent.NotReady) == 0 }

// upstreamIs are the agents that run, for people.
func (f *Facts) upstreamIs() string {
	pids := map[string][]string{}
	for _, p := range f.Processes {
		if slices.Contains(doctor.UpstreamAgents(), p.Name) {
			pids[p.Name] = append(pids[p.Name], fmt.Sprint(p.PID))
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(pids)) {
		out = append(out, fmt.Sprintf("%s (pid %s)", name, list(pids[name], 3)))
	}
	return strings.Join(out, " and ")
}
