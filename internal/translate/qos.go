package translate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/twillnet/twill/api"
)

// qosDomain is that of annotations of pods that limit what they receive and send, each by the name of a field of [api.QoSControls].
const qosDomain = "qos.projectcalico.org/"

// Wrong is an annotation that cannot be honoured as it is written.
type Wrong struct{ Annotation, Reason string }

// IsLimit reports whether an annotation is one that [Limits] reads.
func IsLimit(annotation string) bool {
	for _, l := range new(api.QoSControls).Limits() {
		if annotation == qosDomain+l.Field {
			return true
		}
	}
	return annotation == api.AnnotationDSCP || slices.Contains(slices.Collect(maps.Values(otherNames)), annotation)
}

// otherNames are those that Kubernetes' own bandwidth plugin reads, by field. The annotation with the name of the field counts, if there are both.
var otherNames = map[string]string{"ingressBandwidth": "kubernetes.io/ingress-bandwidth", "egressBandwidth": "kubernetes.io/egress-bandwidth"}

// Limits reads what annotations of a pod limit; nil: nothing. Values are Kubernetes' quantities, such as 100 or 10k. What is wrong limits nothing.
func Limits(annotations map[string]string) (*api.QoSControls, []Wrong) {
	q := &api.QoSControls{}
	var wrong []Wrong
	for _, l := range q.Limits() {
		name := qosDomain + l.Field
		text := strings.TrimSpace(annotations[name])
		if other := otherNames[l.Field]; text == "" && other != "" {
			name, text = other, strings.TrimSpace(annotations[other])
		}
		if text == "" {
			continue
		}
		n, err := resource.ParseQuantity(text)
		whole := err == nil
		if whole {
			*l.Value, whole = n.AsInt64()
		}
		if !whole {
			*l.Value = 0
			wrong = append(wrong, Wrong{name, "is " + clipped(text) + ": want a whole number such as 100 or 10k"})
		} else if reason := l.Bad(); reason != "" {
			*l.Value = 0
			wrong = append(wrong, Wrong{name, reason})
		}
	}
	q.DSCP = api.DSCP(strings.TrimSpace(annotations[api.AnnotationDSCP]))
	if reason := q.DSCP.Bad(); reason != "" {
		q.DSCP = ""
		wrong = append(wrong, Wrong{api.AnnotationDSCP, reason})
	}
	if q.DSCP != "" {
		return q, wrong
	}
	for _, l := range q.Limits() {
		if *l.Value != 0 {
			return q, wrong
		}
	}
	return nil, wrong
}

// clipped is a text in quotes, without what is beyond 100 bytes of it.
func clipped(text string) string {
	return `"` + strings.ToValidUTF8(text[:min(len(text), 100)], "") + `"`
}

// qos are the limits of a pod, without those that are wrong.
func (o *object) qos(p *corev1.Pod) *api.QoSControls {
	q, wrong := Limits(p.Annotations)
	for _, w := range wrong {
		o.fail("metadata.annotations."+w.Annotation, "%s", w.Reason)
	}
	return q
}
