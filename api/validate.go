package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Limits of names and selectors.
const (
	maxName     = 253
	maxLabel    = 63
	maxSelector = 1024
	// maxAnnotations is how many bytes an object's annotations may have, names and values together: Kubernetes has the same limit.
	maxAnnotations = 256 << 10
)

// Validate returns what is wrong in a resource, each with the field, the reason
// and what to write instead. Call [Default] first.
func Validate(r Resource) FieldErrors {
	v := validator{r: r}
	if New(r.Type().Kind) == nil || shallow(r) == nil {
		v.fail("kind", fmt.Sprintf("is %q: want one of %s", r.Type().Kind, kindNames()))
		return v.errs
	}
	v.metadata()
	v.spec()
	return v.errs
}

type validator struct {
	r    Resource
	errs FieldErrors
}

func (v *validator) fail(path, reason string) { v.suggest(path, reason, "") }

func (v *validator) suggest(path, reason, suggestion string) {
	kind := v.r.Type().Kind
	name := strings.TrimPrefix(RefOf(v.r).String(), kind+" ")
	v.errs = append(v.errs, &FieldError{Kind: kind, Name: name, Path: path, Reason: reason, Suggestion: suggestion})
}

// check fails unless the reason is empty, as the checks of meaning.go return it.
func (v *validator) check(path, reason string) {
	if reason != "" {
		v.fail(path, reason)
	}
}

// oneOf fails unless value is among those allowed.
func (v *validator) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		reason := fmt.Sprintf("is %q: want %s", value, strings.Join(allowed, ", "))
		if value == "" {
			reason = "is missing: want " + strings.Join(allowed, ", ")
		}
		v.suggest(path, reason, nearest(value, allowed))
	}
}

// optionally is oneOf for a field that may be empty.
func (v *validator) optionally(path, value string, allowed ...string) {
	if value != "" {
		v.oneOf(path, value, allowed...)
	}
}

// unique fails at each element that was there before.
func (v *validator) unique(path string, list []string) {
	seen := make(map[string]bool, len(list))
	for i, s := range list {
		if seen[s] {
			v.fail(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%q is there twice", s))
		}
		seen[s] = true
	}
}

func (v *validator) selector(path, text string, globalAllowed bool) {
	if len(text) > maxSelector {
		v.fail(path, fmt.Sprintf("has %d characters: at most %d are possible", len(text), maxSelector))
		return
	}
	v.check(path, checkSelector(text, globalAllowed))
}

func (v *validator) spec() {
	if p, ok := policyOf(v.r); ok {
		v.policy(p)
		return
	}
	switch r := v.r.(type) {
	case *StagedKubernetesNetworkPolicy:
		v.kubePolicy(r)
	case *Tier:
		v.tier(r)
	case *Profile:
		v.profile(r)
	case *NetworkSet:
		v.nets("spec.nets", r.Spec.Nets)
		v.unique("spec.nets", r.Spec.Nets)
	case *GlobalNetworkSet:
		v.nets("spec.nets", r.Spec.Nets)
		v.unique("spec.nets", r.Spec.Nets)
	case *WorkloadEndpoint:
		v.workload(r)
	case *HostEndpoint:
		v.host(r)
	case *LiveMigration:
		v.migration(&r.Spec)
	case *IPPool:
		v.pool(&r.Spec)
	case *IPAMConfiguration:
		v.ipam(r)
	case *BlockAffinity:
		v.fail("kind", "is a view of who has which block: nobody writes it")
	case *IPReservation:
		v.nets("spec.reservedCIDRs", r.Spec.ReservedCIDRs)
	case *Node:
		v.node(&r.Spec)
		v.wireguardKey("status.wireguardPublicKey", r.Status.WireguardPublicKey)
		v.wireguardKey("status.wireguardPublicKeyV6", r.Status.WireguardPublicKeyV6)
	case *CalicoNodeStatus:
		v.nodeStatus(&r.Spec)
	case *BGPConfiguration:
		v.bgpConfiguration(r)
		v.bfd(r.Metadata.Annotations)
	case *BGPPeer:
		v.bgpPeer(&r.Spec)
		v.bfd(r.Metadata.Annotations)
	case *BGPFilter:
		v.bgpFilter(&r.Spec)
	case *FelixConfiguration:
		v.errs = append(v.errs, validateFelix(r)...)
		v.felixWritten(&r.Spec)
	case *KubeControllersConfiguration:
		v.errs = append(v.errs, validateControllers(r)...)
	case *ClusterInformation:
		if r.Metadata.Name != "default" {
			v.fail("metadata.name", fmt.Sprintf("is %q: there is only one, with the name default", r.Metadata.Name))
		}
	}
}

func (v *validator) metadata() {
	m := v.r.Meta()
	if t := v.r.Type(); t.APIVersion != GroupVersion {
		v.fail("apiVersion", fmt.Sprintf("is %q: want %s", t.APIVersion, GroupVersion))
	}
	k, _ := kindOf(v.r.Type().Kind)
	switch {
	case m.Name == "" && m.GenerateName != "":
		v.fail("metadata.generateName", "is not possible here: give metadata.name")
	case m.Name == "":
		v.fail("metadata.name", "is missing")
	case k.Kind == KindWorkloadEndpoint: // its own rule, see workload
	case k.Kind == KindTier:
		v.check("metadata.name", badLabelName(m.Name))
	case k.Policy:
		v.check("metadata.name", badPolicyName(m.Name, k.Namespaced))
	default:
		v.check("metadata.name", badName(m.Name))
	}
	switch {
	case k.Namespaced && m.Namespace == "":
		v.fail("metadata.namespace", "is missing")
	case k.Namespaced:
		v.check("metadata.namespace", badLabelName(m.Namespace))
	case m.Namespace != "":
		v.fail("metadata.namespace", fmt.Sprintf("is %q: a %s has no namespace; remove it", m.Namespace, k.Kind))
	}
	v.labels("metadata.labels", m.Labels)
	v.reservedLabels()
	v.annotations("metadata.annotations", m.Annotations)
}

// annotations have names as labels do, in any case, and values of any form.
func (v *validator) annotations(path string, annotations map[string]string) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		v.check(join(path, key), badLabelKey(strings.ToLower(key)))
		size += len(key) + len(annotations[key])
	}
	if size > maxAnnotations {
		v.fail(path, fmt.Sprintf("have %d bytes: at most %d are possible", size, maxAnnotations))
	}
}

func (v *validator) labels(path string, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		v.check(join(path, key), badLabelKey(key))
		v.check(join(path, key), badLabelValue(labels[key]))
	}
}

// badName says what is wrong with a DNS-1123 subdomain.
func badName(s string) string {
	if len(s) > maxName {
		return fmt.Sprintf("has %d characters: at most %d are possible", len(s), maxName)
	}
	for part := range strings.SplitSeq(s, ".") {
		if !dnsLabel(part) {
			return fmt.Sprintf("is %q: want lower-case letters, digits, dashes and dots; each part begins and ends with a letter or digit", s)
		}
	}
	return ""
}

// badPolicyName says what is wrong with a policy's name. A dot in it parted tier and name once, so there is at most one;
// but for the policies that are made of Kubernetes' and OpenStack's own.
func badPolicyName(s string, namespaced bool) string {
	if reason := badName(s); reason != "" || strings.Count(s, ".") <= 1 {
		return reason
	}
	foreign := []string{"kcnp.", "kanp.adminnetworkpolicy.", "kbanp.baselineadminnetworkpolicy."}
	if namespaced {
		foreign = []string{"knp.default.", "ossg.default."}
	}
	if slices.ContainsFunc(foreign, func(begin string) bool { return strings.HasPrefix(s, begin) }) {
		return ""
	}
	return fmt.Sprintf("is %q: want at most one dot", s)
}

// badLabelName says what is wrong with a DNS-1123 label.
func badLabelName(s string) string {
	switch {
	case len(s) > maxLabel:
		return fmt.Sprintf("has %d characters: at most %d are possible", len(s), maxLabel)
	case !dnsLabel(s):
		return fmt.Sprintf("is %q: want lower-case letters, digits and dashes, a letter or digit at both ends", s)
	}
	return ""
}

func dnsLabel(s string) bool {
	return s != "" && only(s, lower+digits+"-") && s[0] != '-' && s[len(s)-1] != '-'
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
	word   = lower + upper + digits + "_.-"
)

func only(s, chars string) bool {
	return strings.Trim(s, chars) == "" // what is in the middle of s ends s from both sides
}

// badLabelKey says what is wrong with a label's name: a word, perhaps after a
// DNS name and a slash.
func badLabelKey(s string) string {
	name := s
	if prefix, rest, ok := strings.Cut(s, "/"); ok {
		if prefix == "" || badName(prefix) != "" {
			return fmt.Sprintf("%q: what stands before the / must be a DNS name", s)
		}
		name = rest
	}
	if name == "" || len(name) > maxLabel || !only(name, word) || strings.Trim(name, "_.-") != name {
		return fmt.Sprintf("%q is no name for a label: want 1 to %d letters, digits, dashes, dots and underscores, a letter or digit at both ends", s, maxLabel)
	}
	return ""
}

func badLabelValue(s string) string {
	if s == "" {
		return ""
	}
	if len(s) > maxLabel || !only(s, word) || strings.Trim(s, "_.-") != s {
		return fmt.Sprintf("has the value %q: want at most %d letters, digits, dashes, dots and underscores, a letter or digit at both ends", s, maxLabel)
	}
	return ""
}
