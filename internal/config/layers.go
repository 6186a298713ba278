package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// byName finds a parameter whatever the case, and with the endings that upstream's files and environment have.
func byName(name string) *Param {
	name = strings.ToLower(strings.ReplaceAll(name, "_", ""))
	if a, ok := aliases[name]; ok {
		name = a
	}
	for i := range params {
		if n := strings.ToLower(params[i].Name); n == name || n+"secs" == name {
			return &params[i]
		}
	}
	return nil
}

var aliases = map[string]string{"node": "nodename", "felixhostname": "nodename", "etcdcacertfile": "etcdcafile", "etcdaddr": "etcdendpoints", "loglevel": "logseverityscreen", "ipinipenabled": "ipipenabled", "ipinipmtu": "ipipmtu", "routetablerange": "routetableranges"}

// FromFile reads a file of lines `name = value`. Headings such as [global] are passed over, as upstream's felix.cfg has
// them; # and ; begin a comment.
func FromFile(name, content string) (Layer, []Problem) {
	l := Layer{Name: name, Values: map[string]string{}}
	var problems []Problem
	var scheme Problem // where it was found, and what
	for i, line := range strings.Split(content, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") || strings.HasPrefix(line, "[") {
			continue
		}
		at := fmt.Sprintf("%s:%d", name, i+1)
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			problems = append(problems, Problem{at, line, "want name = value"})
			continue
		}
		key, value = strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"'`)
		if strings.EqualFold(key, etcdScheme) {
			scheme = Problem{at, key, value}
			continue
		}
		p := byName(key)
		if p == nil {
			problems = append(problems, Problem{at, key, unknown(key)})
			continue
		}
		if value != "" { // templates of manifests leave such lines, and upstream's agent passes them over
			l.Values[p.Name] = value
		}
	}
	return l, l.withScheme(scheme, problems)
}

// noSettings are variables that say where things are, and what `twill node` runs beside the agent.
var noSettings = []string{"CONFIG", "SETTINGS_ORDER", "SOCKET", "LOG_DIR", "DHCP", "BGP", "BGP_SOCKET", "BFD_SOCKET", "RELAY_SOCKET", "CLUSTER_ID", "SECRETS_DIR", "ETCD_PROXY", "ETCD_ENDPOINTS_FILE", "BIRD_CONF", "BIRD_SOCKET", "CONFDIR", "DATASTORE_MASTERS"}

// FromEnv reads environment variables, given as NAME=value.
func FromEnv(environ []string) (Layer, []Problem) {
	l := Layer{Name: "environment", Values: map[string]string{}}
	var problems []Problem
	var scheme Problem
	rank := map[string]int{}
	put := func(p *Param, value string, r int) {
		if value != "" && r >= rank[p.Name] {
			l.Values[p.Name], rank[p.Name] = value, r
		}
	}
	for _, e := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(e, "=")
		for i := range params {
			if slices.Contains(params[i].Env, name) {
				put(&params[i], value, 1)
			}
		}
		for r, prefix := range []string{"FELIX_", "TWILL_"} {
			rest, ok := strings.CutPrefix(name, prefix)
			if !ok || slices.Contains(noSettings, rest) {
				continue
			}
			switch p := byName(rest); {
			case p != nil:
				put(p, value, 2+r)
			case strings.EqualFold(rest, etcdScheme):
				scheme = Problem{"environment", name, value}
			default:
				problems = append(problems, Problem{"environment", name, unknown(rest)})
			}
		}
	}
	return l, l.withScheme(scheme, problems)
}

// unknown says why a name is no parameter. Felix's own names have their unit at the end.
func unknown(name string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "_", ""))
	for _, unit := range []string{"", "secs", "millis"} {
		if stem, ok := strings.CutSuffix(name, unit); ok {
			if why, known := api.KnownSetting(stem); known {
				return cmp.Or(why, "this version honours it in a FelixConfiguration alone")
			}
		}
	}
	return "there is no such parameter; `twill config params` lists those there are"
}

// etcdScheme is upstream's name of what stands before etcdAddr, which is HOST:PORT.
const etcdScheme = "etcdscheme"

// withScheme puts the scheme that was found, if there was one, before each endpoint that has no scheme, and adds to the problems.
func (l Layer) withScheme(found Problem, problems []Problem) []Problem {
	scheme := strings.ToLower(found.Reason)
	switch scheme {
	case "":
		return problems
	case "http", "https":
	default:
		found.Reason = fmt.Sprintf("is %q: want http or https", found.Reason)
		return append(problems, found)
	}
	endpoints := strings.Split(l.Values["etcdEndpoints"], ",")
	for i, e := range endpoints {
		if e = strings.TrimSpace(e); e != "" && !strings.Contains(e, "://") {
			endpoints[i] = scheme + "://" + e
		}
	}
	if all := strings.Join(endpoints, ","); all != "" {
		l.Values["etcdEndpoints"] = all
	}
	return problems
}

// stored is a FelixConfiguration.
type stored struct {
	selector *selector.Selector // nil: its name says where it holds
	created  string             // when it was, RFC 3339; empty: not known
	values   map[string]string
	unusable []Problem // annotations that are no parameters
}

// annotated begins annotations of FelixConfigurations that have the name of a parameter at their end. Upstream's agents read them.
const annotated = "config.projectcalico.org/"

// annotations takes over parameters that are given in annotations, which win over the same resource's fields.
func (s *stored) annotations(f *api.FelixConfiguration) {
	for _, name := range slices.Sorted(maps.Keys(f.Metadata.Annotations)) {
		of, is := strings.CutPrefix(name, annotated)
		if !is {
			continue
		}
		from := "FelixConfiguration " + f.Metadata.Name
		switch p := byName(of); {
		case p == nil:
			s.unusable = append(s.unusable, Problem{from, "annotation " + name, unknown(of)})
		case p.Local:
			s.unusable = append(s.unusable, Problem{from, "annotation " + name, "this one is set on the host alone"})
		case f.Metadata.Annotations[name] == "": // says nothing
		default:
			if err := p.set(new(Settings), f.Metadata.Annotations[name]); err != nil { // the field counts, if there is one
				s.unusable = append(s.unusable, Problem{from, "annotation " + name, err.Error()})
				continue
			}
			s.values[p.Name] = f.Metadata.Annotations[name]
		}
	}
}

func storedOf(f *api.FelixConfiguration) stored {
	s := stored{values: map[string]string{}, created: f.Metadata.CreationTimestamp}
	if f.Spec.NodeSelector != "" {
		s.selector, _ = selector.Parse(f.Spec.NodeSelector) // one that cannot be read selects nothing: see ofStore
	}
	var fields map[string]json.RawMessage
	if b, err := json.Marshal(f.Spec); err != nil || json.Unmarshal(b, &fields) != nil {
		return s
	}
	for i := range params {
		raw, ok := fields[params[i].Name]
		if !ok {
			continue
		}
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw) // a number, true or false
		}
		s.values[params[i].Name] = text
	}
	for name, list := range map[string]*[]api.ProtoPort{
		"failsafeInboundHostPorts": f.Spec.FailsafeInboundHostPorts, "failsafeOutboundHostPorts": f.Spec.FailsafeOutboundHostPorts,
	} {
		if delete(s.values, name); list != nil {
			s.values[name] = failsafeText(*list)
		}
	}
	list := f.Spec.RouteTableRanges
	if r := f.Spec.RouteTableRange; r != nil && list == nil {
		list = &[]api.RouteTableRange{*r}
	}
	if delete(s.values, "routeTableRanges"); list != nil && len(*list) > 0 {
		s.values["routeTableRanges"] = tablesText(*list)
	}
	if list := f.Spec.ExternalNodesList; list != nil {
		s.values["externalNodesList"] = strings.Join(*list, ",")
	}
	if list := f.Spec.HealthTimeoutOverrides; list != nil {
		s.values["healthTimeoutOverrides"] = timeoutsText(list)
	}
	s.annotations(f)
	return s
}

// ofStore are the layers of the datastore that hold for this node, lowest first.
func (r *Resolver) ofStore() []Layer {
	var out []Layer
	add := func(name string) {
		if s, ok := r.stored[name]; ok {
			out = append(out, Layer{Name: "FelixConfiguration " + name, Values: s.values, unusable: s.unusable})
		}
	}
	own := "node." + r.node
	add("default")
	names := slices.Sorted(maps.Keys(r.stored))
	slices.SortStableFunc(names, func(a, b string) int { // the oldest last, which wins
		return strings.Compare(r.stored[b].created, r.stored[a].created)
	})
	for _, name := range names {
		s := r.stored[name]
		if name != "default" && name != own && s.selector != nil && s.selector.Match(r.labels) {
			add(name)
		}
	}
	add(own)
	return out
}
