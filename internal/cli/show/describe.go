package show

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/translate"
	"github.com/twillnet/twill/internal/verdict/world"
)

// Description is what is known of one resource.
type Description struct {
	Resource string  `json:"resource"` // kind/namespace/name
	Fields   []Field `json:"fields"`
	Text     string  `json:"-"` // for people
}

// Field is one thing that is known of a resource: a value, or several lines.
type Field struct {
	Name  string   `json:"name"`
	Value string   `json:"value,omitempty"`
	Lines []string `json:"lines,omitempty"`
}

// Describer writes about resources of one state of the datastore.
type Describer struct {
	w         *world.World
	tiers     []world.Tier
	workloads []*api.WorkloadEndpoint
	parties   map[string]world.Party // by namespace/name of the endpoint
	keys      map[string]bool
	problems  map[string][]string // by key
	fields    []Field
	b         bytes.Buffer
}

// NewDescriber reads that state.
func NewDescriber(us []api.Update) *Describer {
	d := &Describer{w: world.New(us), parties: map[string]world.Party{}, keys: map[string]bool{}, problems: map[string][]string{}}
	d.tiers = d.w.Tiers()
	for _, p := range d.w.Parties() {
		d.parties[p.Endpoint] = p
	}
	for _, p := range d.w.Problems() {
		d.problems[p.Key] = append(d.problems[p.Key], strings.TrimPrefix(p.Field+": "+p.Reason, ": "))
	}
	for _, u := range us {
		d.keys[u.Key] = true
		if !strings.HasPrefix(u.Key, api.KeyPrefix(api.KindWorkloadEndpoint, "")) {
			continue
		}
		if st, err := api.DecodeStored(u); err == nil { // else its own description says so
			if w, ok := st.Resource.(*api.WorkloadEndpoint); ok {
				d.workloads = append(d.workloads, w)
			}
		}
	}
	return d
}

// line writes a name and its value, unless there is none.
func (d *Describer) line(name, value string) {
	if value != "" {
		d.fields = append(d.fields, Field{Name: name, Value: value})
		fmt.Fprintf(&d.b, "%-11s %s\n", name+":", value)
	}
}

// part writes a heading and what is below it.
func (d *Describer) part(name string, lines []string, none string) {
	if len(lines) == 0 {
		d.line(name, none)
		return
	}
	d.fields = append(d.fields, Field{Name: name, Lines: lines})
	fmt.Fprintf(&d.b, "%s:\n", name)
	for _, l := range lines {
		fmt.Fprintf(&d.b, "  %s\n", l)
	}
}

// Describe says what is known of one resource.
func (d *Describer) Describe(f Found) Description {
	d.b.Reset()
	d.fields = nil
	d.line("Name", f.Ref.Name)
	d.line("Namespace", f.Ref.Namespace)
	d.line("Kind", f.Ref.Kind)
	if f.Builtin {
		d.line("Built in", "yes; nothing is stored")
	} else {
		d.line("Key", f.Value.Key)
		d.line("Revision", fmt.Sprint(f.Value.Revision))
	}
	if f.Res != nil {
		m := f.Res.Meta()
		if !f.Builtin {
			d.line("Created", m.CreationTimestamp)
		}
		d.line("Labels", Pairs(m.Labels))
		d.body(f)
	}
	d.part("Findings", d.findings(f), "none")
	return Description{Resource: resources.Short(f.Ref), Fields: d.fields, Text: d.b.String()}
}

func (d *Describer) body(f Found) {
	switch r := f.Res.(type) {
	case *api.NetworkPolicy:
		d.policy(f.Ref, r.Spec.Order, r.Spec.Types, Applies(r.Spec.Selector, "", r.Spec.ServiceAccountSelector))
		d.rules(r.Spec.Ingress, r.Spec.Egress)
		d.list("Applies to", d.w.Selected(f.Ref), "no workload")
	case *api.GlobalNetworkPolicy:
		d.policy(f.Ref, r.Spec.Order, r.Spec.Types, Applies(r.Spec.Selector, r.Spec.NamespaceSelector, r.Spec.ServiceAccountSelector))
		d.rules(r.Spec.Ingress, r.Spec.Egress)
		d.list("Applies to", d.w.Selected(f.Ref), "no workload")
	case *api.StagedNetworkPolicy:
		d.line("Staged", "it is not enforced")
		d.rules(r.Spec.Ingress, r.Spec.Egress)
	case *api.StagedKubernetesNetworkPolicy:
		p, _ := translate.Staged(r) // what it closes is among the findings
		d.line("Staged", "it is not enforced")
		d.rules(p.Spec.Ingress, p.Spec.Egress)
	case *api.StagedGlobalNetworkPolicy:
		d.line("Staged", "it is not enforced")
		d.rules(r.Spec.Ingress, r.Spec.Egress)
	case *api.Tier:
		d.tier(f.Ref.Name, r.Spec)
	case *api.Profile:
		d.line("Gives", Pairs(r.Spec.LabelsToApply))
		d.rules(r.Spec.Ingress, r.Spec.Egress)
		d.list("Used by", d.those(func(w *api.WorkloadEndpoint) bool { return slices.Contains(w.Spec.Profiles, f.Ref.Name) }), "no workload")
	case *api.Node:
		d.spec(f)
		d.list("Runs", d.those(func(w *api.WorkloadEndpoint) bool { return w.Spec.Node == f.Ref.Name }), "none")
	case *api.WorkloadEndpoint:
		d.endpoint(f.Ref.Namespace+"/"+f.Ref.Name, r)
	default:
		d.spec(f)
	}
}

// policy writes where a policy stands.
func (d *Describer) policy(ref api.Ref, order *float64, types []api.PolicyType, selector string) {
	for i, t := range d.tiers {
		for j, p := range t.Policies {
			if ref == (api.Ref{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}) {
				d.line("Tier", fmt.Sprintf("%s: tier %d of %d, %s", t.Name, i+1, len(d.tiers), t.Outcome))
				d.line("Order", fmt.Sprintf("%s: policy %d of %d in its tier", Number(order), j+1, len(t.Policies)))
			}
		}
	}
	var names []string
	for _, t := range types {
		names = append(names, string(t))
	}
	d.line("Types", strings.Join(names, ", "))
	d.line("Selector", selector)
}

func (d *Describer) rules(in, out []api.Rule) {
	texts := func(rs []api.Rule) (lines []string) {
		for i, r := range rs {
			lines = append(lines, fmt.Sprintf("%d  %s", i, world.RuleText(r)))
		}
		return lines
	}
	d.part("Ingress", texts(in), "no rules")
	d.part("Egress", texts(out), "no rules")
}

func (d *Describer) tier(name string, spec api.TierSpec) {
	d.line("Order", Number(spec.Order))
	d.line("Default", string(TierAction(spec)))
	for i, t := range d.tiers {
		if t.Name == name {
			d.line("Place", fmt.Sprintf("%d of %d", i+1, len(d.tiers)))
			d.part("Policies", policyNames(t), "none")
		}
	}
}

func policyNames(t world.Tier) (out []string) {
	for _, p := range t.Policies {
		out = append(out, resources.Short(api.Ref{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}))
	}
	return out
}

// endpoint writes what a workload's packets meet.
func (d *Describer) endpoint(name string, r *api.WorkloadEndpoint) {
	d.line("In force", Pairs(d.w.Labels(name)))
	d.line("Node", r.Spec.Node)
	d.line("Interface", r.Spec.InterfaceName)
	d.line("Networks", strings.Join(r.Spec.IPNetworks, ", "))
	for _, dir := range []api.PolicyType{api.Ingress, api.Egress} {
		var lines []string
		end := "profiles: "
		for _, t := range d.w.Ladder(name, dir) {
			lines = append(lines, fmt.Sprintf("tier %s: %s; %s", t.Name, strings.Join(policyNames(t), ", "), t.Outcome))
			if t.Outcome != world.OutcomeEndPass {
				end = "profiles, only after a Pass rule: "
			}
		}
		if len(r.Spec.Profiles) == 0 {
			end += "none, deny"
		}
		lines = append(lines, end+strings.Join(r.Spec.Profiles, ", "))
		d.part(string(dir), lines, "")
	}
}

// those are the workloads whose endpoints fulfil a condition.
func (d *Describer) those(want func(*api.WorkloadEndpoint) bool) (out []world.Party) {
	for _, w := range d.workloads {
		if want(w) {
			out = append(out, d.parties[w.Metadata.Namespace+"/"+w.Metadata.Name])
		}
	}
	return out
}

// mostWorkloads bounds what is listed; the number is always said.
const mostWorkloads = 20

func (d *Describer) list(name string, ps []world.Party, none string) {
	var lines []string
	for i, p := range ps {
		if i == mostWorkloads {
			lines = append(lines, fmt.Sprintf("and %d more", len(ps)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("%s  on %s  %s", p.Name, p.Node, Addrs(p)))
	}
	if len(ps) > 0 {
		name += " " + console.Count(len(ps), "workload")
	}
	d.part(name, lines, none)
}

// spec writes the body of a resource as it is stored.
func (d *Describer) spec(f Found) {
	top, _ := f.Tree().(map[string]any)
	text, err := yaml.Marshal(top["spec"])
	if err != nil || top["spec"] == nil {
		return
	}
	var lines []string
	for l := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimRight(l, "\n"))
	}
	d.part("Spec", lines, "")
}

// findings are what is wrong in a resource, or with what it refers to.
func (d *Describer) findings(f Found) []string {
	out := slices.Clone(d.problems[f.Value.Key])
	if f.Note != "" && !slices.Contains(out, f.Note) {
		out = append(out, f.Note)
	}
	if f.Res != nil {
		if closed := f.Res.Meta().Annotations[api.AnnotationNotTranslated]; closed != "" {
			out = append(out, "what could not be translated from Kubernetes is closed: "+closed)
		}
	}
	if t := resources.TierName(f.Res); t != "" && !d.stored(api.KindTier, t) {
		out = append(out, fmt.Sprintf("spec.tier: tier %q does not exist: it comes after all others and ends in deny", t))
	}
	if w, ok := f.Res.(*api.WorkloadEndpoint); ok {
		for _, p := range w.Spec.Profiles {
			if !d.stored(api.KindProfile, p) {
				out = append(out, fmt.Sprintf("spec.profiles: profile %q does not exist, which denies", p))
			}
		}
	}
	return out
}

// stored reports whether a resource without a namespace exists.
func (d *Describer) stored(kind, name string) bool {
	for _, r := range resources.Builtins(kind) {
		if r.Meta().Name == name {
			return true
		}
	}
	return d.keys[api.KeyPrefix(kind, "")+name]
}

// Addrs are the addresses of a party in one line.
func Addrs(p world.Party) string {
	if len(p.Addrs) == 0 {
		return "no known address"
	}
	var out []string
	for _, a := range p.Addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}
