package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// DecodeStored reads a value of the datastore. It closes what it does not
// understand, see [Stored]. An error means that the value is not JSON, or the
// key is not that of a resource, or the update has no value, or it is a network
// set beyond the limits of limits.go: then there is nothing to build on, and the
// caller keeps what it had.
//
// The resource is made for those who decide on packets: addresses without a
// length have theirs, what must not be believed is gone. Show users the stored
// document itself, see [UserJSON].
func DecodeStored(u Update) (Stored, error) { return decodeStored(u, nil) }

// decodeStored is DecodeStored with memory for a workload endpoint, see [AdmitInto].
func decodeStored(u Update, into *Scratch) (Stored, error) {
	ref, ok := ParseKey(u.Key)
	if !ok {
		return Stored{}, fmt.Errorf("%s: not the key of a resource", u.Key)
	}
	if u.Value == nil {
		return Stored{}, fmt.Errorf("%s: no value", u.Key)
	}
	tooMuch := beyond(ref.Kind, u.Value)
	if tooMuch != "" && isSet(ref.Kind) {
		return Stored{}, fmt.Errorf("%s: %s", u.Key, tooMuch)
	}
	d := decoder{Stored: Stored{Key: u.Key, Ref: ref}}
	if into != nil && ref.Kind == KindWorkloadEndpoint {
		w := &into.workload
		*w = WorkloadEndpoint{}
		*w.Type() = TypeMeta{Kind: ref.Kind, APIVersion: GroupVersion}
		d.Resource = w
	} else {
		d.Resource = New(ref.Kind)
	}
	if tooMuch != "" {
		d.identify()
		d.shut("", tooMuch)
		return d.Stored, nil
	}
	if w, ok := d.Resource.(*WorkloadEndpoint); !ok || !quickWorkload(u.Value, w, into) {
		if !json.Valid(u.Value) {
			return Stored{}, fmt.Errorf("%s: not JSON", u.Key)
		}
		d.read(u.Value)
	}
	d.identify()
	d.close()
	return d.Stored, nil
}

// read takes in all that can be read, and notes what cannot.
func (d *decoder) read(data []byte) {
	d.Resource = New(d.Ref.Kind)
	if readStored(data, d.Resource) == nil {
		return
	}
	d.Resource = New(d.Ref.Kind)
	w := walker{}
	w.read(data, reflect.ValueOf(d.Resource).Elem(), "")
	d.found = w.found
	if isNull(data) {
		d.found = []finding{{reason: want("an object", data)}}
	}
}

// readStored is the way that nearly all documents take: an error if anything is
// amiss or unknown.
func readStored(data []byte, r Resource) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if string(bytes.TrimSpace(data)) == "null" {
		return fmt.Errorf("is null")
	}
	return dec.Decode(r)
}

// decoder turns what was found amiss in a document into what to do about it.
type decoder struct {
	Stored
	found   []finding
	notices []Notice
}

// unhonoured notes a value on which nothing acts.
func (d *decoder) unhonoured(n Notice) {
	had := len(d.Problems)
	d.problem(n.Path, n.Reason())
	if len(d.Problems) > had && n.Fate == Warned {
		d.Problems[had].NoEffect = true
	}
}

func (d *decoder) problem(field, reason string) {
	switch n := len(d.Problems); {
	case n == MaxProblems:
		field, reason = "", fmt.Sprintf("more than %d things are wrong; the others are not listed", MaxProblems)
	case n > MaxProblems:
		return
	}
	field, reason = clip(field), clip(reason)
	d.Problems = append(d.Problems, Problem{Key: d.Key, Field: field, Reason: reason})
}

// shut closes the resource as a whole; the first reason is kept.
func (d *decoder) shut(field, reason string) {
	d.problem(field, reason)
	if d.Closed == "" {
		d.Closed = strings.TrimPrefix(clip(field)+": "+clip(reason), ": ")
	}
}

// identify makes the resource say what its key says, and finds the user's name.
func (d *decoder) identify() {
	t, m := d.Resource.Type(), d.Resource.Meta()
	if t.Kind != "" && t.Kind != d.Ref.Kind {
		d.NoObject = true
		d.shut("kind", fmt.Sprintf("is %q, but the key is that of a %s", t.Kind, d.Ref.Kind))
	}
	if t.APIVersion != "" && t.APIVersion != GroupVersion {
		d.problem("apiVersion", fmt.Sprintf("is %q, not %s; read as if it were", t.APIVersion, GroupVersion))
	}
	*t = TypeMeta{Kind: d.Ref.Kind, APIVersion: GroupVersion}
	m.Namespace = d.Ref.Namespace
	if p, ok := policyOf(d.Resource); ok {
		name, problem := userName(d.Ref.Name, *p.tier, m.Annotations)
		if problem != "" {
			d.problem(join("metadata.annotations", AnnotationMetadata), problem)
		}
		d.Ref.Name = name
	}
	m.Name = d.Ref.Name
}

// close does to each kind what wrong input must do to it.
func (d *decoder) close() {
	if r, ok := d.Resource.(*Profile); ok {
		d.closePasses(r)
	}
	for _, l := range rulesOf(d.Resource) {
		d.closeRules(l)
	}
	d.notices = Notices(d.Resource)
	for _, n := range d.notices {
		d.unhonoured(n)
	}
	d.closeLabels()
	switch r := d.Resource.(type) {
	case *Profile:
		d.findings("spec", "spec.ingress", "spec.egress", "spec.labelsToApply*")
	case *Tier:
		d.findings("spec", "spec.order")
		d.closeTier(r)
	case *WorkloadEndpoint:
		d.findings("spec", "metadata", "metadata.labels*", "spec.node", "spec.interfaceName", "spec.profiles*",
			"spec.serviceAccountName", "spec.ipNetworks")
		d.closeWorkload(r)
	case *HostEndpoint:
		d.closeHost(r)
	case *NetworkSet:
		d.findings(setFatal...)
		r.Spec.Nets = d.nets("spec.nets", r.Spec.Nets)
	case *GlobalNetworkSet:
		d.findings(setFatal...)
		r.Spec.Nets = d.nets("spec.nets", r.Spec.Nets)
	case *LiveMigration:
		d.findings("spec", "spec.target*")
		d.closeMigration(&r.Spec)
	case *IPPool, *Node, *ClusterInformation, *BGPConfiguration, *BGPPeer, *BGPFilter:
		d.closeRouting()
	case *IPReservation:
		d.findings("spec", "spec.reservedCIDRs")
		r.Spec.ReservedCIDRs = d.nets("spec.reservedCIDRs", r.Spec.ReservedCIDRs)
	case *KubeControllersConfiguration:
		d.findings("spec", "spec.controllers", "spec.controllers.node", hostEndpointPath+"*")
		d.closeControllers(r)
	case *FelixConfiguration:
		d.findings("spec")
		d.closeSettings(r)
	case *StagedKubernetesNetworkPolicy:
		d.findings("spec*")
	default:
		if p, ok := policyOf(r); ok {
			d.findings("spec", "spec.tier", "spec.order", "spec.selector", "spec.types*", "spec.serviceAccountSelector",
				"spec.namespaceSelector", "spec.doNotTrack", "spec.preDNAT", "spec.applyOnForward", "spec.ingress", "spec.egress",
				"spec.stagedAction")
			d.closePolicy(p)
			return
		}
		d.findings("spec")
	}
}

func (d *decoder) closeHost(r *HostEndpoint) {
	d.findings("spec", "metadata", "metadata.labels*", "spec.node", "spec.interfaceName", "spec.profiles*", "spec.expectedIPs")
	d.addresses("spec.expectedIPs", r.Spec.ExpectedIPs)
	d.dscp(join("metadata.annotations", AnnotationDSCP), new(DSCP(r.Metadata.Annotations[AnnotationDSCP]))) // one that is none has no value
	r.Spec.ExpectedIPs = slices.DeleteFunc(r.Spec.ExpectedIPs, func(s string) bool {
		p, reason := prefixOf(s)
		return reason != "" || !p.IsSingleIP()
	})
	r.Spec.Ports = closePorts(d, r.Spec.Ports, func(p EndpointPort) (string, Protocol) { return p.Name, p.Protocol })
}

// setFatal is what of a network set cannot be missing: without it, nobody would be denied as one of its nets.
var setFatal = []string{"spec", "spec.nets", "metadata", "metadata.labels*"}

// findings reports what was found amiss. Whatever hits one of the fatal paths
// closes the resource; a * at the end takes in all that is below.
func (d *decoder) findings(fatal ...string) {
	for _, f := range d.found {
		if f.path == "" || !f.unknown && hits(f.path, fatal) {
			d.NoObject = d.NoObject || f.path == "" || f.path == "spec"
			d.shut(f.path, f.reason)
			continue
		}
		reason := f.reason
		if f.unknown {
			if strings.HasPrefix(f.path, "metadata") {
				continue // bookkeeping of Kubernetes' that is no concern of ours
			}
			reason = "unknown field; kept, but not honoured"
		}
		d.problem(f.path, reason)
	}
}

func hits(path string, fatal []string) bool {
	for _, f := range fatal {
		if prefix, below := strings.CutSuffix(f, "*"); path == f || below && within(path, prefix) {
			return true
		}
	}
	return false
}

// within reports whether path is prefix or something below it.
func within(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func (d *decoder) closePolicy(p policyView) {
	for _, s := range []struct {
		field string
		text  *string
	}{
		{"spec.selector", p.selector},
		{"spec.serviceAccountSelector", p.serviceAccountSelector},
		{"spec.namespaceSelector", p.namespaceSelector},
	} {
		if s.text == nil {
			continue
		}
		if reason := checkSelector(*s.text, false); reason != "" {
			d.shut(s.field, reason)
		}
	}
	for i, t := range *p.types {
		if t != Ingress && t != Egress && d.Closed == "" {
			d.shut(fmt.Sprintf("spec.types[%d]", i), fmt.Sprintf("is %q: want Ingress or Egress", t))
		}
	}
}

func (d *decoder) closeTier(r *Tier) {
	a := r.Spec.DefaultAction
	if a != nil && *a != Deny && *a != Pass {
		d.problem("spec.defaultAction", fmt.Sprintf("is %q: want Deny or Pass; taken as Deny", *a))
		deny := Deny
		r.Spec.DefaultAction = &deny
	}
}

// closePasses makes a Deny of each rule of a profile that passes: nothing comes after profiles, and what the rules before it
// did not decide must not be allowed by those after it. It comes before [decoder.closeRules], which widens a Deny and voids a Pass.
func (d *decoder) closePasses(r *Profile) {
	for _, l := range rulesOf(r) {
		for i := range *l.rules {
			if rule := &(*l.rules)[i]; rule.Action == Pass {
				d.problem(fmt.Sprintf("%s[%d].action", l.path, i), "is Pass: nothing comes after profiles; the rule denies")
				rule.Action = Deny
			}
		}
	}
}

// closeWorkload keeps what can be read of a workload.
func (d *decoder) closeWorkload(r *WorkloadEndpoint) {
	r.Spec.IPNetworks = d.addresses("spec.ipNetworks", r.Spec.IPNetworks)
	if len(r.Spec.IPNetworks) == 0 && d.Closed == "" {
		d.shut("spec.ipNetworks", "no address that can be read")
	}
	r.Spec.IPNATs = slices.DeleteFunc(r.Spec.IPNATs, func(n IPNAT) bool {
		reason := n.Bad(r.Spec.IPNetworks)
		if reason != "" {
			d.problem("spec.ipNATs", reason+"; ignored")
		}
		return reason != ""
	})
	d.limits(r.Spec.QoSControls)
	r.Spec.AllowSpoofedSourcePrefixes = d.nets("spec.allowSpoofedSourcePrefixes", r.Spec.AllowSpoofedSourcePrefixes)
	if r.Spec.MAC != "" && !validMAC(r.Spec.MAC) {
		d.problem("spec.mac", fmt.Sprintf("is %q: want six bytes such as ee:ee:ee:ee:ee:ee; ignored", r.Spec.MAC))
		r.Spec.MAC = ""
	}
	r.Spec.Ports = closePorts(d, r.Spec.Ports, func(p WorkloadEndpointPort) (string, Protocol) { return p.Name, p.Protocol })
}

// closePorts keeps the ports that rules can ask for. Unnamed ones say nothing.
func closePorts[P any](d *decoder, in []P, parts func(P) (string, Protocol)) []P {
	var out []P
	unreadable := d.elementsOf("spec.ports")
	for i, p := range in {
		name, proto := parts(p)
		if !hasPorts(&proto) {
			d.problem(fmt.Sprintf("spec.ports[%d].protocol", i), "is none that has ports; the port is ignored")
			continue
		}
		// A port whose number could not be read has none, and must not become port 0.
		if name != "" && !unreadable[strconv.Itoa(i)] {
			out = append(out, p)
		}
	}
	return out
}

// elementsOf are the elements of a list, by index, in which something could not be read.
func (d *decoder) elementsOf(list string) map[string]bool {
	out := map[string]bool{}
	for _, f := range d.found {
		if rest, ok := strings.CutPrefix(f.path, list+"["); ok && !f.unknown {
			index, _, _ := strings.Cut(rest, "]")
			out[index] = true
		}
	}
	return out
}

// addresses keeps those that are one address each, as prefixes of full length.
func (d *decoder) addresses(path string, in []string) []string {
	var out []string
	for i, s := range in {
		p, reason := prefixOf(s)
		if reason == "" && !p.IsSingleIP() {
			reason = fmt.Sprintf("is %q: want one address (/32 or /128)", s)
		}
		if reason != "" {
			d.problem(fmt.Sprintf("%s[%d]", path, i), reason+"; ignored")
			continue
		}
		out = append(out, p.String())
	}
	return out
}

// nets keeps the prefixes that can be read. One with bits beyond its length
// stays as it is written.
func (d *decoder) nets(path string, in []string) []string {
	var out []string
	for i, s := range in {
		p, reason := prefixOf(s)
		if reason != "" {
			d.problem(fmt.Sprintf("%s[%d]", path, i), reason+"; ignored")
			continue
		}
		out = append(out, p.String())
	}
	return out
}

// closeSettings gives each bad setting back its default.
func (d *decoder) closeSettings(r *FelixConfiguration) {
	v := reflect.ValueOf(&r.Spec).Elem()
	for _, e := range validateFelix(r) {
		name, ok := strings.CutPrefix(e.Path, "spec.")
		if !ok {
			continue
		}
		d.problem(e.Path, e.Reason+"; the default is used")
		name, _, _ = strings.Cut(name, "[")
		if i := fieldByName(v.Type(), name); i != nil {
			v.FieldByIndex(i).SetZero()
		}
	}
}
