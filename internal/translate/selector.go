package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// anyPod is what a pod is to a selector. Without it a selector that demands
// nothing, or only that a label is absent, would mean network sets too.
const anyPod = api.LabelOrchestrator + " == '" + Orchestrator + "'"

// anyNode is what a node is to a selector.
const anyNode = "has(" + api.LabelNode + ")"

// nodes is a selector of nodes; an empty one means them all.
func (o *object) nodes(path string, s *metav1.LabelSelector) (string, bool) {
	terms, ok := o.terms(path, s)
	return o.joined(path, append([]string{anyNode}, terms...), ok)
}

// pods is a selector of pods; nil, as an empty one, means them all.
func (o *object) pods(path string, s *metav1.LabelSelector) (string, bool) {
	terms, ok := o.terms(path, s)
	return o.joined(path, append([]string{anyPod}, terms...), ok)
}

// namespaces is a selector of namespaces: nil does not speak of them, an empty one means them all.
func (o *object) namespaces(path string, s *metav1.LabelSelector) (string, bool) {
	terms, ok := o.terms(path, s)
	if s != nil && len(terms) == 0 {
		terms = []string{"all()"}
	}
	return o.joined(path, terms, ok)
}

// joined is a selector of which all terms must be true. It is read again, since
// one that nobody can read would close more than the rule in which it stands.
func (o *object) joined(path string, terms []string, ok bool) (string, bool) {
	text := strings.Join(terms, " && ")
	if !ok {
		return "", false
	}
	if len(text) > api.MaxSelector {
		o.fail(path, "makes a selector of %d bytes: at most %d are read", len(text), api.MaxSelector)
		return "", false
	}
	if _, err := selector.Parse(text); err != nil {
		o.fail(path, "makes the selector %s: %v", text, err)
		return "", false
	}
	return text, true
}

// terms are in the order of keys, then as they are written, so that the same
// selector always makes the same text. False: something in it means nothing.
func (o *object) terms(path string, s *metav1.LabelSelector) (out []string, ok bool) {
	if s == nil {
		return nil, true
	}
	before := len(o.errs)
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		at := fmt.Sprintf("%s.matchLabels[%q]", path, key)
		o.refuse(at, key, content.IsLabelKey(key))
		o.refuse(at, s.MatchLabels[key], content.IsLabelValue(s.MatchLabels[key]))
		out = append(out, fmt.Sprintf("%s == '%s'", key, s.MatchLabels[key]))
	}
	demands := slices.Clone(s.MatchExpressions)
	slices.SortStableFunc(demands, func(a, b metav1.LabelSelectorRequirement) int { return strings.Compare(a.Key, b.Key) })
	for _, d := range demands {
		i := slices.IndexFunc(s.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return e.Key == d.Key })
		out = append(out, o.term(fmt.Sprintf("%s.matchExpressions[%d]", path, i), d))
	}
	return out, len(o.errs) == before
}

// term is one expression. In both languages NotIn is true of what lacks the label.
func (o *object) term(path string, d metav1.LabelSelectorRequirement) string {
	o.refuse(path+".key", d.Key, content.IsLabelKey(d.Key))
	values := slices.Clone(d.Values)
	for i, v := range values {
		o.refuse(fmt.Sprintf("%s.values[%d]", path, i), v, content.IsLabelValue(v))
	}
	slices.Sort(values)
	set := "{'" + strings.Join(slices.Compact(values), "', '") + "'}"
	listed := false
	text := ""
	switch d.Operator {
	case metav1.LabelSelectorOpIn:
		listed, text = true, d.Key+" in "+set
	case metav1.LabelSelectorOpNotIn:
		listed, text = true, d.Key+" not in "+set
	case metav1.LabelSelectorOpExists:
		text = "has(" + d.Key + ")"
	case metav1.LabelSelectorOpDoesNotExist:
		text = "!has(" + d.Key + ")"
	default:
		o.fail(path+".operator", "is %q: want In, NotIn, Exists or DoesNotExist", d.Operator)
		return ""
	}
	switch {
	case listed && len(d.Values) == 0:
		o.fail(path+".values", "is empty: %s needs at least one", d.Operator)
	case !listed && len(d.Values) > 0:
		o.fail(path+".values", "must be empty with %s", d.Operator)
	}
	return text
}
