package translate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/twillnet/twill/api"
)

// AnnotationSourcePrefixes are prefixes that a pod may send from besides its own addresses, as JSON. The setting
// workloadSourceSpoofing says whether any may.
const AnnotationSourcePrefixes = "cni.projectcalico.org/allowedSourcePrefixes"

// AnnotationFloating are addresses by which a pod is reached besides its own, as JSON. The setting floatingIPs says whether it is.
const AnnotationFloating = "cni.projectcalico.org/floatingIPs"

// ListOf reads an annotation that is a list of texts, as JSON. A list of none is an error: an annotation that is empty asks for
// nothing, and so does none.
func ListOf(annotation string) ([]string, error) {
	var out []*string
	if err := json.Unmarshal([]byte(annotation), &out); err != nil {
		return nil, fmt.Errorf(`is %.100q: want a list as JSON, such as ["a", "b"]`, annotation)
	}
	if len(out) == 0 {
		return nil, errors.New("is a list of none: remove it, or name one")
	}
	texts := make([]string, len(out))
	for i, text := range out {
		if text == nil {
			return nil, errors.New("has null in its list")
		}
		texts[i] = *text
	}
	return texts, nil
}

// SourcePrefixes reads the annotation AnnotationSourcePrefixes.
func SourcePrefixes(annotation string) ([]string, error) {
	if annotation == "" {
		return nil, nil
	}
	out, err := ListOf(annotation)
	if err != nil {
		return nil, err
	}
	for i, text := range out {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Errorf("has %.100q: want a prefix such as 192.0.2.0/24 or 2001:db8::/64", text)
		}
		out[i] = p.Masked().String()
	}
	return out, nil
}

// sourcePrefixes are those that a pod may send from; none, if what it says cannot be read.
func (o *object) sourcePrefixes(p *corev1.Pod) []string {
	out, err := SourcePrefixes(p.Annotations[AnnotationSourcePrefixes])
	if err != nil {
		o.fail("metadata.annotations."+AnnotationSourcePrefixes, "%v", err)
	}
	return out
}

// FloatingIPs reads the annotation AnnotationFloating.
func FloatingIPs(annotation string) (out []netip.Addr, err error) {
	if annotation == "" {
		return nil, nil
	}
	list, err := ListOf(annotation)
	for _, text := range list {
		a, bad := netip.ParseAddr(text)
		if bad != nil || a.Zone() != "" || a.Is4In6() || !a.IsGlobalUnicast() || slices.Contains(out, a) {
			return nil, fmt.Errorf("has %.100q: want addresses such as 192.0.2.7 or 2001:db8::7, each once", text)
		}
		out = append(out, a)
	}
	return out, err
}

// floating are the floating addresses of a pod, each for its address of the family; none, if what it says cannot be read.
func (o *object) floating(p *corev1.Pod, networks []string) (out []api.IPNAT) {
	all, err := FloatingIPs(p.Annotations[AnnotationFloating])
	if err != nil {
		o.fail("metadata.annotations."+AnnotationFloating, "%v", err)
	}
	for _, a := range all {
		at := slices.IndexFunc(networks, func(text string) bool { return netip.MustParsePrefix(text).Addr().Is4() == a.Is4() })
		switch {
		case at >= 0:
			out = append(out, api.IPNAT{InternalIP: netip.MustParsePrefix(networks[at]).Addr().String(), ExternalIP: a.String()})
		case len(networks) > 0:
			o.fail("metadata.annotations."+AnnotationFloating, "has %s, and the pod has no address of its family", a)
		}
	}
	return out
}
