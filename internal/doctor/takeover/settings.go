package takeover

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/config"
)

// resolve works out settings from FelixConfigurations and what a host says.
func (f *Facts) resolve(local ...config.Layer) config.Effective {
	r := config.New(f.Node, local...)
	for _, c := range f.felix {
		r.Set(c)
	}
	if n := f.Nodes.Node(f.Node); n != nil {
		r.SetLabels(n.Metadata.Labels)
	}
	return r.Resolve()
}

// effective are the settings that Twill would have.
func (f *Facts) effective() config.Effective { return f.resolve(f.Local...) }

// upstreams are what upstream's agent has from its file and its environment, which win over the datastore, and what of it Twill does not have.
func (f *Facts) upstreams() (layers []config.Layer, idle []config.Problem) {
	if f.File.Text != "" {
		l, problems := config.FromFile(f.File.Path, f.File.Text)
		l.Over = true
		layers, idle = append(layers, l), append(idle, problems...)
	}
	if a, ok := f.seen(); ok {
		l, problems := config.FromEnv(upper(a.Environ))
		l.Name, l.Over = "environment of "+a.Name, true
		layers, idle = append(layers, l), append(idle, problems...)
	}
	return layers, idle
}

// upper has names of upstream's settings in capitals: its agent reads them in any case of letters. TWILL_ means nothing to it.
func upper(env []string) (out []string) {
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		switch capital := strings.ToUpper(name); {
		case strings.HasPrefix(capital, "FELIX_"):
			out = append(out, capital+"="+value)
		case !strings.HasPrefix(capital, "TWILL_"):
			out = append(out, e)
		}
	}
	return out
}

// typha are upstream's settings that say where Typha is.
const typha = "typha"

func settings(f *Facts) (out []Finding) {
	if f.File.Err != "" {
		out = append(out, blocks("run this as root", "%s cannot be read, and what it sets is not known: %s", f.File.Path, f.File.Err))
	}
	for _, a := range f.Agents {
		if a.EnvironErr != "" {
			out = append(out, blocks("run this as root, where processes of the host can be seen (hostPID)", "the environment of %s (pid %d) cannot be read, and what it sets is not known: %s", a.Name, a.PID, a.EnvironErr))
			break
		}
	}
	layers, idle := f.upstreams()
	if len(f.Idle) > 0 {
		out = append(out, changes(AtStart, "leave them out: docs/calico-node.md says of each why", "variables of the environment of Calico's agent that have no effect: %s", strings.Join(f.Idle, ", ")))
	}
	if len(layers) == 0 {
		return out
	}
	out = append(out, f.typhas(layers, idle)...)
	for _, p := range idle {
		switch name := setting(p.Name); {
		case strings.HasPrefix(name, typha), strings.HasPrefix(name, "bpf") && bpfWanted(f) != "":
		default:
			out = append(out, changes(AtStart, "leave it out, or see docs/fields.md for what Twill does instead", "%s of %s: %s", p.Name, where(p.From, layers), p.Reason))
		}
	}
	return append(out, f.otherwise(layers)...)
}

// otherwise are the settings that upstream's agent has from its file or environment, and that Twill would not have.
func (f *Facts) otherwise(layers []config.Layer) (out []Finding) {
	theirs, ours := f.resolve(layers...), f.effective()
	for _, p := range theirs.Problems {
		out = append(out, changes(AtStart, "give it a value that the page of settings has (docs/settings.md)", "%s of %s is not understood: %s", p.Name, p.From, p.Reason))
	}
	alike, text, ourText := 0, config.Upstream(theirs.Values), config.Upstream(ours.Values)
	for i, v := range theirs.Values {
		own, name := ours.Values[i], v.Param.Name
		if v.Param.Local || !fromHost(v.From, layers) {
			continue
		}
		if key := strings.ToUpper(name[:1]) + name[1:]; strings.EqualFold(text[key], ourText[key]) { // 60 is 60s, and ACCEPT is Accept
			alike++
			continue
		}
		do := fmt.Sprintf("put %s = %s into /etc/twill/twill.conf (docs/settings.md), or into a FelixConfiguration", name, v.Text)
		if strings.HasPrefix(own.From, "FelixConfiguration") {
			do = fmt.Sprintf("put it into a FelixConfiguration node.%s: under the name twill the datastore wins over what a host says (docs/calico-node.md)", f.Node)
		}
		d := changes(AtStart, do, "%s is %s by %s, and Twill would have %s (%s)", name, shown(v.Text), v.From, shown(own.Text), own.From)
		switch {
		case name == "defaultEndpointToHostAction" && strings.EqualFold(own.Text, "Drop"):
			d = blocks(do, "%s: what workloads send to this host would be dropped", d.Found)
		case strings.HasPrefix(name, "failsafe") && f.hosts > 0:
			d = blocks(do, "%s: policy of this host would close ports that are open now, or open others", d.Found)
		}
		out = append(out, d)
	}
	if alike > 0 {
		out = append(out, same("%s of this host alone, which Twill has, too", count(alike, "setting", "settings")))
	}
	return out
}

// setting is a variable's name without what it begins with, in small letters.
func setting(name string) string { return strings.TrimPrefix(strings.ToLower(name), "felix_") }

// where is the source of a problem, for people.
func where(from string, layers []config.Layer) string {
	if from != "environment" {
		return from
	}
	return layers[len(layers)-1].Name
}

func shown(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

func fromHost(from string, layers []config.Layer) bool {
	return slices.ContainsFunc(layers, func(l config.Layer) bool { return l.Name == from })
}

// typhas: Twill cannot read the datastore by upstream's Typha, whose protocol is another one.
func (f *Facts) typhas(layers []config.Layer, idle []config.Problem) []Finding {
	names := map[string]bool{}
	for _, l := range layers {
		for name, value := range l.Values {
			if strings.HasPrefix(name, typha) && value != "" {
				names[name] = true
			}
		}
	}
	for _, p := range idle {
		if strings.HasPrefix(setting(p.Name), typha) {
			names[p.Name] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	if at := readsBy(f.effective().Settings.Relay); at != "" && at == readsBy(f.resolve(layers...).Settings.Relay) && !f.ready() {
		return []Finding{blocks("leave typhaAddr and typhaK8sServiceName out of Twill's settings, or name relays of Twill's (docs/relay.md)", "Twill would read by %s, which is Calico's Typha, whose protocol it does not speak", at)}
	}
	return []Finding{changes(AtStart, "leave these out: Twill then reads the datastore itself; in a large cluster run twill relay, and name that (docs/relay.md)",
		"Calico's agent reads by Typha (%s), whose protocol Twill does not speak", strings.Join(slices.Sorted(maps.Keys(names)), ", "))}
}

// readsBy is the relay that settings name, by its address or its Service; empty: none.
func readsBy(r config.Relay) string {
	if r.Address == "" && r.Service != "" {
		return "the Service " + r.Namespace + "/" + r.Service
	}
	return r.Address
}

// sameDatastore compares where the agent that runs reads with where this command did.
func sameDatastore(f *Facts) (out []Finding) {
	layers, _ := f.upstreams()
	if _, runs := f.seen(); !runs {
		return nil // a file alone may be of a time before
	}
	theirs := f.resolve(layers...).Settings
	if f.Kubernetes != (theirs.DatastoreType == "kubernetes") {
		what := map[bool]string{true: "Kubernetes' API", false: "etcd"}
		return []Finding{blocks("call this with DATASTORE_TYPE="+theirs.DatastoreType+", and write the same into /etc/twill/node.env", "Calico's agent has its data in %s, and this command read %s", what[!f.Kubernetes], what[f.Kubernetes])}
	}
	if a, b := places(theirs.Etcd.Endpoints), places(f.Endpoints); !f.Kubernetes && len(a) > 0 && !meet(a, b) {
		out = append(out, blocks("name the same ones with --etcd, here and for twill node install", "Calico's agent reads etcd at %s, and this command did at %s", list(a, most), list(b, most)))
	}
	return out
}

// places are endpoints without what may be written or left out.
func places(endpoints []string) (out []string) {
	for _, e := range endpoints {
		out = append(out, strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(e, "http://"), "https://"), "/"))
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// meet reports whether one is in both: members of one cluster have the same data.
func meet(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}
