package translate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/twillnet/twill/api"
)

// Prefixes of the profiles' names, and the labels under which they give their
// own names on.
const (
	NamespacePrefix      = "kns."
	ServiceAccountPrefix = "ksa."
)

// Namespace translates a namespace into the profile of its pods: its labels,
// and that everything is allowed which no policy speaks of.
func Namespace(ns *corev1.Namespace) (*api.Profile, error) {
	o := &object{kind: "Namespace", meta: ns}
	out := &api.Profile{Object: o.head(api.KindProfile, "", NamespacePrefix+ns.Name)}
	out.Spec.Ingress, out.Spec.Egress = []api.Rule{{Action: api.Allow}}, []api.Rule{{Action: api.Allow}}
	// Kubernetes writes this label itself, so files often lack it.
	labels := with(ns.Labels, corev1.LabelMetadataName, ns.Name)
	out.Spec.LabelsToApply = o.inherited(api.NamespaceLabelPrefix, labels)
	return out, o.errs.Err()
}

// ServiceAccount translates a service account into a profile that has its labels and no rules.
func ServiceAccount(sa *corev1.ServiceAccount) (*api.Profile, error) {
	o := &object{kind: "ServiceAccount", meta: sa}
	out := &api.Profile{Object: o.head(api.KindProfile, "", accountProfile(sa.Namespace, sa.Name))}
	out.Spec.LabelsToApply = o.inherited(api.ServiceAccountLabelPrefix, sa.Labels)
	return out, o.errs.Err()
}

func accountProfile(namespace, account string) string {
	return ServiceAccountPrefix + namespace + "." + account
}

// inherited are the labels that pods get, under a prefix that their own labels cannot have.
func (o *object) inherited(prefix string, labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range o.labels(labels) {
		out[prefix+key] = value
	}
	out[prefix+api.LabelName] = o.meta.GetName()
	return out
}

// labels are those that can be labels.
func (o *object) labels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at := "metadata.labels." + key
		if !o.refuse(at, key, content.IsLabelKey(key)) && !o.refuse(at, labels[key], content.IsLabelValue(labels[key])) {
			out[key] = labels[key]
		}
	}
	return out
}
