package world

import (
	"maps"
	"net/netip"
	"strings"

	"github.com/twillnet/twill/api"
)

// selectable is what a rule's selector can match: an endpoint or a network set.
type selectable struct {
	labels   map[string]string
	prefixes []netip.Prefix
	ports    []api.EndpointPort // an endpoint's named ports
}

// endpoint is a workload endpoint or a host endpoint.
type endpoint struct {
	selectable
	key       string
	namespace string // empty for a host's
	name      string // namespace/name of the resource
	label     string // namespace/pod, for people
	spec      api.WorkloadEndpointSpec
	created   string
	addrs     []netip.Addr
	closed    string
	host      bool
}

// label makes endpoints and sets, once all profiles are known, in the order of keys.
func (w *World) label(stored []api.Stored) {
	for _, s := range stored {
		switch r := s.Resource.(type) {
		case *api.WorkloadEndpoint:
			w.workloads = append(w.workloads, w.workload(s, r))
		case *api.HostEndpoint:
			e := &endpoint{key: s.Key, name: "host/" + s.Ref.Name, label: s.Ref.Name, host: true, closed: s.Closed}
			e.spec = api.WorkloadEndpointSpec{Node: r.Spec.Node, InterfaceName: r.Spec.InterfaceName, Profiles: r.Spec.Profiles}
			e.labels = w.inherit(ownLabels(r.Metadata.Labels), r.Spec.Profiles)
			e.prefixes = readPrefixes(r.Spec.ExpectedIPs)
			e.ports = r.Spec.Ports
			w.hosts = append(w.hosts, e)
		case *api.NetworkSet:
			labels := w.inherit(ownLabels(r.Metadata.Labels), []string{"kns." + s.Ref.Namespace})
			labels[api.LabelNamespace] = s.Ref.Namespace
			w.sets = append(w.sets, selectable{labels: labels, prefixes: readPrefixes(r.Spec.Nets)})
		case *api.GlobalNetworkSet:
			labels := ownLabels(r.Metadata.Labels)
			w.sets = append(w.sets, selectable{labels: labels, prefixes: readPrefixes(r.Spec.Nets)})
		}
	}
}

func (w *World) workload(s api.Stored, r *api.WorkloadEndpoint) *endpoint {
	e := &endpoint{key: s.Key, namespace: s.Ref.Namespace, name: s.Ref.Namespace + "/" + s.Ref.Name, spec: r.Spec, closed: s.Closed, created: r.Metadata.CreationTimestamp}
	e.label = e.name
	if n := workloadName(r.Spec); n != "" {
		e.label = e.namespace + "/" + n
	}
	e.labels = w.inherit(ownLabels(r.Metadata.Labels), r.Spec.Profiles)
	e.labels[api.LabelNamespace] = e.namespace
	if o := r.Metadata.Labels[api.LabelOrchestrator]; o != "" && o == r.Spec.Orchestrator {
		e.labels[api.LabelOrchestrator] = o
	}
	if r.Spec.ServiceAccountName != "" {
		e.labels[api.LabelServiceAccount] = r.Spec.ServiceAccountName
	}
	e.prefixes = readPrefixes(r.Spec.IPNetworks)
	for _, p := range e.prefixes {
		e.addrs = append(e.addrs, p.Addr())
	}
	for _, p := range r.Spec.Ports {
		e.ports = append(e.ports, api.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	if e.closed == "" && len(e.addrs) == 0 {
		e.closed = "it has no address"
	}
	if e.closed == "" {
		e.closed = refusedName(r.Spec.InterfaceName)
	}
	return e
}

// refusedName returns why no node accepts an interface of this name for a workload (decision 018). Other names are refused
// by the settings and plugins of each node.
func refusedName(link string) string {
	switch {
	case link == "lo":
		return "interface lo is the host's own, and no workload's"
	case len(link) > 15 || strings.ContainsAny(link, "/ \t\n\v\f\r:"):
		return "interface " + link + " is no name that the kernel allows"
	}
	return ""
}

// workloadName returns the name for people: the pod, or the workload.
func workloadName(s api.WorkloadEndpointSpec) string {
	if s.Pod != "" {
		return s.Pod
	}
	return s.Workload
}

// ownLabels returns the labels that a resource may give itself. Others would make it match selectors for a namespace, a service
// account or an orchestrator to which it does not belong: these come from its place, and from profiles.
func ownLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if !strings.HasPrefix(k, api.NamespaceLabelPrefix) && !strings.HasPrefix(k, api.ServiceAccountLabelPrefix) && !placeLabel(k) {
			out[k] = v
		}
	}
	return out
}

// placeLabel reports whether a label names the place of a resource, which no profile may give either.
func placeLabel(key string) bool {
	return key == api.LabelNamespace || key == api.LabelServiceAccount || key == api.LabelOrchestrator
}

// inherit returns own labels and those of profiles: own ones have precedence, then those of
// an earlier profile.
func (w *World) inherit(own map[string]string, profiles []string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, own)
	for _, name := range profiles {
		for k, v := range w.profiles[name].spec.LabelsToApply {
			if _, had := out[k]; !had && !placeLabel(k) {
				out[k] = v
			}
		}
	}
	return out
}

// closeDuplicates closes all but the newest endpoint if several claim one interface of one node: of those that are equally new,
// all but that of the smallest key. One that says no time is the oldest.
func (w *World) closeDuplicates() {
	place := func(e *endpoint) [2]string { return [2]string{e.spec.Node, e.spec.InterfaceName} }
	newest := map[[2]string]*endpoint{}
	for _, e := range w.workloads { // in the order of keys
		if had := newest[place(e)]; had == nil || e.created > had.created {
			newest[place(e)] = e
		}
	}
	for _, e := range w.workloads {
		if has := newest[place(e)]; has != e && e.closed == "" && e.spec.InterfaceName != "" {
			e.closed = "interface " + e.spec.InterfaceName + " belongs to " + has.name
			w.problem(e.key, "%s", e.closed)
		}
	}
}

// readPrefixes returns those that can be parsed, masked; an address becomes a prefix of full length.
func readPrefixes(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		} else if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
