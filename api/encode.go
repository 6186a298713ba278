package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Prepare makes a new resource ready to be stored: uid and creation time (RFC
// 3339, UTC) if it has none, and what upstream writes on policies and endpoints
// (annotation with the name, label with the tier; labels with namespace and
// orchestrator).
func Prepare(r Resource, uid, now string) {
	m := r.Meta()
	if m.UID == "" {
		m.UID = uid
	}
	if m.CreationTimestamp == "" {
		m.CreationTimestamp = now
	}
	decorate(r)
}

// decorate writes the annotation and labels that upstream always writes. The
// maps are replaced, never changed: others may hold them.
func decorate(r Resource) {
	m := r.Meta()
	if k, ok := kindOf(r.Type().Kind); ok && k.Policy {
		text, _ := json.Marshal(nameAnnotation{m.Name}) // a string always encodes
		m.Annotations = with(m.Annotations, AnnotationMetadata, string(text))
		m.Labels = with(m.Labels, LabelTier, tierOf(r))
	}
	if w, ok := r.(*WorkloadEndpoint); ok {
		m.Labels = with(m.Labels, LabelNamespace, m.Namespace)
		if w.Spec.Orchestrator != "" {
			m.Labels = with(m.Labels, LabelOrchestrator, w.Spec.Orchestrator)
		}
	}
}

type nameAnnotation struct {
	Name string `json:"name"`
}

func with(m map[string]string, key, value string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}

func tierOf(r Resource) string {
	if p, ok := policyOf(r); ok && *p.tier != "" {
		return *p.tier
	}
	return TierDefault
}

// EncodeStored returns the stored form, byte-equal with upstream's. Policies and
// endpoints get their annotation and labels here too. It does not change r. A
// resource with a Void rule is refused: it came from DecodeStored, and storing
// it would lose what was not understood.
func EncodeStored(r Resource) ([]byte, error) {
	c, err := clone(r)
	if err != nil {
		return nil, err
	}
	decorate(c)
	c.Meta().ResourceVersion = "" // the store keeps that itself
	return json.Marshal(c)
}

// clone returns a copy with metadata of its own; specs are shared.
func clone(r Resource) (Resource, error) {
	if r == nil {
		return nil, fmt.Errorf("encode: no resource")
	}
	kind := r.Type().Kind
	if New(kind) == nil {
		return nil, fmt.Errorf("encode %s: kind %q is unknown", r.Meta().Name, kind)
	}
	for _, rules := range rulesOf(r) {
		for i, rule := range *rules.rules {
			if rule.Void {
				return nil, fmt.Errorf("encode %s: %s[%d] was not understood when it was read; edit the stored document instead", RefOf(r), rules.path, i)
			}
		}
	}
	if f, ok := r.(*BGPFilter); ok {
		for _, l := range bgpRules(&f.Spec) {
			if i := slices.IndexFunc(l.rules, func(r BGPFilterRule) bool { return r.Void }); i >= 0 {
				return nil, fmt.Errorf("encode %s: %s[%d] was not understood when it was read; edit the stored document instead", RefOf(r), l.path, i)
			}
		}
	}
	c := shallow(r)
	if c == nil {
		return nil, fmt.Errorf("encode %s: kind %q is not the kind of a %T", r.Meta().Name, kind, r)
	}
	return c, nil
}

// shallow copies a resource one level deep; nil if kind and Go type disagree.
func shallow(r Resource) Resource {
	c := New(r.Type().Kind)
	if !assign(c, r) {
		return nil
	}
	if r.Type().APIVersion == "" {
		c.Type().APIVersion = GroupVersion
	}
	return c
}

// userName returns the name that a user gave to a stored policy. Without the
// annotation a policy of tier default loses the prefix that old versions of
// upstream gave it.
func userName(stored, tier string, annotations map[string]string) (name, problem string) {
	text, ok := annotations[AnnotationMetadata]
	if ok {
		var a nameAnnotation
		err := json.Unmarshal([]byte(text), &a)
		if err == nil && a.Name != "" && len(a.Name) <= maxName && !strings.Contains(a.Name, "/") {
			return a.Name, ""
		}
		problem = "does not hold a name; the name is taken from the key"
	}
	if tier == "" || tier == TierDefault {
		if rest, cut := strings.CutPrefix(stored, TierDefault+"."); cut && rest != "" {
			return rest, problem
		}
	}
	return stored, problem
}
