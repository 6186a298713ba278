package endpointapi

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/internal/attach/wire"
)

// annotationPlugin names, at an endpoint, the plugin that had it written: nobody else's is touched.
const annotationPlugin = "twill.net/endpoint-plugin"

// Bounds of one endpoint.
const (
	maxName      = 63 // of a plugin or an orchestrator, bytes
	maxAddresses = 64
	maxProfiles  = 256
	maxLabels    = 256
	maxNATs      = 64
	maxSources   = 256
	maxGroupsOf  = 64
)

// reserved are orchestrators of which others write the endpoints.
var reserved = []string{"k8s", "cni", "libnetwork"}

func checkRegister(r *endpointpb.Register) error {
	switch name, o := r.GetName(), r.GetOrchestrator(); {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("name %q: want one of 1 to %d bytes", name, maxName)
	case o == "" || len(o) > maxName:
		return fmt.Errorf("orchestrator %q: want one of 1 to %d bytes", o, maxName)
	case slices.Contains(reserved, o):
		return fmt.Errorf("orchestrator %q: its endpoints are those of the CNI plugin, or of Docker", o)
	}
	return nil
}

// judge makes an endpoint of what a plugin says of an interface, or says why that does not count.
func (c *Core) judge(p *plugin, name string, e *endpointpb.Endpoint) (*api.WorkloadEndpoint, error) {
	if err := c.mayHave(p, name); err != nil {
		return nil, err
	}
	if e == nil {
		return nil, errors.New("there is no endpoint in it")
	}
	w, err := workload(c.node, p, name, e)
	if err != nil {
		return nil, err
	}
	key, err := api.Key(w)
	if err != nil {
		return nil, err
	}
	if s, is := c.stored[key]; is && s.plugin != p.name {
		return nil, notThePlugins(w)
	}
	for _, o := range c.claims {
		if o.link != name && o.want != nil && o.key == key {
			return nil, fmt.Errorf("WorkloadEndpoint %s is that of interface %s", nameOf(w), o.link)
		}
	}
	return w, c.free(name, addrsOf(w))
}

// mayHave returns an error if an interface is none to which a plugin may give an endpoint.
func (c *Core) mayHave(p *plugin, name string) error {
	if !c.likely(name) {
		return fmt.Errorf("interface %q is no workload's: names of these begin with %s (interfacePrefix)", name, strings.Join(c.prefixes, ", "))
	}
	if l := c.links[name]; l != nil && strings.HasPrefix(l.Alias, wire.AliasPrefix) {
		return fmt.Errorf("the CNI plugin has made interface %s", name)
	}
	if cl := c.claims[name]; cl != nil && cl.plugin != p.name {
		return fmt.Errorf("interface %s is that of plugin %s", name, cl.plugin)
	}
	for k := range c.on[name] {
		if s := c.stored[k]; s.plugin != p.name {
			return fmt.Errorf("interface %s is that of WorkloadEndpoint %s", name, nameOf(s.resource))
		}
	}
	if n := len(c.claims); c.claims[name] == nil && n >= maxClaims {
		return fmt.Errorf("%d interfaces of this host have endpoints of plugins, and no more may", n)
	}
	return nil
}

// free returns an error if addresses are those of the host, or of another endpoint of it.
func (c *Core) free(name string, addrs []netip.Addr) error {
	for _, a := range addrs {
		if !a.IsGlobalUnicast() && !a.IsPrivate() {
			return fmt.Errorf("address %s: want one that others can send to", a)
		}
		for link, addrs := range c.own {
			if slices.Contains(addrs, a) {
				return fmt.Errorf("address %s is the host's own, of %s", a, link)
			}
		}
		for _, s := range c.stored {
			if s.link != name && slices.Contains(s.addrs, a) {
				return fmt.Errorf("address %s is that of WorkloadEndpoint %s", a, nameOf(s.resource))
			}
		}
		for _, o := range c.claims {
			if o.link != name && o.want != nil && slices.Contains(addrsOf(o.want), a) {
				return fmt.Errorf("address %s is that of interface %s", a, o.link)
			}
		}
	}
	return nil
}

// workload makes a WorkloadEndpoint of what a plugin says of an interface.
func workload(node string, p *plugin, name string, e *endpointpb.Endpoint) (*api.WorkloadEndpoint, error) {
	for _, b := range []struct {
		what      string
		has, most int
	}{
		{"addresses", len(e.GetAddresses()), maxAddresses},
		{"profiles", len(e.GetProfiles()), maxProfiles},
		{"labels", len(e.GetLabels()), maxLabels},
		{"nats", len(e.GetNats()), maxNATs},
		{"allowed_sources", len(e.GetAllowedSources()), maxSources},
		{"groups", len(e.GetGroups()), maxGroupsOf},
	} {
		if b.has > b.most {
			return nil, fmt.Errorf("%d %s: want at most %d", b.has, b.what, b.most)
		}
	}
	if len(e.GetAddresses()) == 0 {
		return nil, errors.New("no addresses: want at least one")
	}
	w := &api.WorkloadEndpoint{Spec: api.WorkloadEndpointSpec{
		Orchestrator: p.orchestrator, Node: node, Workload: e.GetWorkload(), Endpoint: e.GetEndpoint(), InterfaceName: name, MAC: e.GetMac(),
		IPv4Gateway: e.GetGateway4(), IPv6Gateway: e.GetGateway6(), Profiles: slices.Clone(e.GetProfiles()), AllowSpoofedSourcePrefixes: slices.Clone(e.GetAllowedSources()),
	}}
	for _, text := range e.GetAddresses() {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return nil, fmt.Errorf("address %q: want one address, without a length", text)
		}
		a = a.Unmap()
		w.Spec.IPNetworks = append(w.Spec.IPNetworks, netip.PrefixFrom(a, a.BitLen()).String())
	}
	for _, n := range e.GetNats() {
		w.Spec.IPNATs = append(w.Spec.IPNATs, api.IPNAT{InternalIP: n.GetInternal(), ExternalIP: n.GetExternal()})
	}
	wepName, err := api.WorkloadEndpointName(w.Spec)
	if err != nil {
		return nil, err
	}
	namespace, labels := e.GetNamespace(), map[string]string{}
	if namespace == "" {
		namespace = "default"
	}
	maps.Copy(labels, e.GetLabels())
	if err := addGroups(labels, groupID{namespace, p.orchestrator, ""}, e); err != nil {
		return nil, err
	}
	labels[api.LabelNamespace], labels[api.LabelOrchestrator] = namespace, p.orchestrator
	w.TypeMeta = api.TypeMeta{Kind: api.KindWorkloadEndpoint, APIVersion: api.GroupVersion}
	w.Metadata = api.ObjectMeta{Name: wepName, Namespace: namespace, Labels: labels, Annotations: map[string]string{annotationPlugin: p.name}}
	return w, api.Validate(w).Err()
}

func notThePlugins(w *api.WorkloadEndpoint) error {
	return fmt.Errorf("WorkloadEndpoint %s is not this plugin's", nameOf(w))
}

func nameOf(w *api.WorkloadEndpoint) string { return w.Metadata.Namespace + "/" + w.Metadata.Name }

// addrsOf returns the addresses of an endpoint.
func addrsOf(w *api.WorkloadEndpoint) (out []netip.Addr) {
	for _, text := range w.Spec.IPNetworks {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Addr())
		}
	}
	return out
}

// same reports whether two endpoints are the same to a plugin: what the datastore adds does not count.
func same(a, b *api.WorkloadEndpoint) bool {
	return nameOf(a) == nameOf(b) && reflect.DeepEqual(a.Metadata.Labels, b.Metadata.Labels) && reflect.DeepEqual(a.Spec, b.Spec)
}
