package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"strings"

	"github.com/twillnet/twill/api"
)

// typed is what begins each resource.
type typed struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

type peer struct {
	typed
	Metadata struct {
		Scope  string `json:"scope"`
		Node   string `json:"node"`
		PeerIP string `json:"peerIP"`
	} `json:"metadata"`
	Spec struct {
		ASNumber json.RawMessage `json:"asNumber"`
	} `json:"spec"`
}

func (p *peer) v3() (string, object, object, error) {
	m := p.Metadata
	ip, err := netip.ParseAddr(m.PeerIP)
	if err != nil {
		return "", nil, nil, wrong("PeerIP", m.PeerIP)
	}
	name, node := addrName(ip), normal(m.Node)
	switch {
	case m.Scope == "global" && m.Node != "":
		return "", nil, nil, errors.New("a peer of scope global is of no node")
	case m.Scope == "node" && node == "":
		return "", nil, nil, errors.New("a peer of scope node needs the name of the node")
	case m.Scope != "global" && m.Scope != "node":
		return "", nil, nil, fmt.Errorf("insufficient identifiers, missing 'scope': it is %q, and may be global or node", m.Scope)
	case m.Scope == "node":
		name = node + "." + name
	}
	return api.KindBGPPeer, object{"name": name}, object{"asNumber": p.Spec.ASNumber, "node": node, "peerIP": ip.String()}, nil
}

type pool struct {
	typed
	Metadata struct {
		CIDR string `json:"cidr"`
	} `json:"metadata"`
	Spec struct {
		IPIP struct {
			Enabled bool   `json:"enabled"`
			Mode    string `json:"mode"`
		} `json:"ipip"`
		NATOutgoing bool `json:"nat-outgoing"`
		Disabled    bool `json:"disabled"`
	} `json:"spec"`
}

func (p *pool) v3() (string, object, object, error) {
	cidr, err := netip.ParsePrefix(p.Metadata.CIDR)
	if err != nil {
		return "", nil, nil, wrong("CIDR", p.Metadata.CIDR)
	}
	cidr = cidr.Masked()
	mode := "Never"
	switch ipip := p.Spec.IPIP; {
	case ipip.Mode != "" && ipip.Mode != "always" && ipip.Mode != "cross-subnet":
		return "", nil, nil, wrong("Mode", ipip.Mode)
	case ipip.Enabled && ipip.Mode == "cross-subnet":
		mode = "CrossSubnet"
	case ipip.Enabled:
		mode = "Always"
	}
	size := 26
	if cidr.Addr().Is6() {
		size = 122
	}
	return api.KindIPPool, object{"name": cidrName(cidr)}, object{
		"cidr": cidr.String(), "ipipMode": mode, "vxlanMode": "Never", "natOutgoing": p.Spec.NATOutgoing, "disabled": p.Spec.Disabled,
		"nodeSelector": "all()", "allowedUses": []string{"Workload", "Tunnel"}, "assignmentMode": api.AssignAutomatic, "blockSize": size,
	}, nil
}

type node struct {
	typed
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		BGP *struct {
			ASNumber    json.RawMessage `json:"asNumber"`
			IPv4Address string          `json:"ipv4Address"`
			IPv6Address string          `json:"ipv6Address"`
		} `json:"bgp"`
		OrchRefs []struct {
			NodeName     string `json:"nodeName"`
			Orchestrator string `json:"orchestrator"`
		} `json:"orchRefs"`
	} `json:"spec"`
}

func (n *node) v3() (string, object, object, error) {
	spec := object{}
	if bgp := n.Spec.BGP; bgp != nil {
		if bgp.IPv4Address == "" && bgp.IPv6Address == "" {
			return "", nil, nil, fmt.Errorf("node %s: spec.bgp has no address", n.Metadata.Name)
		}
		of := object{"asNumber": bgp.ASNumber}
		for name, text := range map[string]string{"ipv4Address": bgp.IPv4Address, "ipv6Address": bgp.IPv6Address} {
			if text == "" {
				continue
			}
			p, err := parseNet(name, text)
			if err != nil {
				return "", nil, nil, err
			}
			of[name] = p.String()
		}
		spec["bgp"] = of.set()
	}
	var refs []object
	for _, r := range n.Spec.OrchRefs {
		refs = append(refs, object{"nodeName": r.NodeName, "orchestrator": r.Orchestrator}.set())
	}
	spec["orchRefs"] = refs
	return api.KindNode, object{"name": normal(n.Metadata.Name)}, spec, nil
}

// port is a named port of an endpoint.
type port struct {
	Name     string          `json:"name"`
	Protocol json.RawMessage `json:"protocol"`
	Port     json.RawMessage `json:"port"`
}

type hostEndpoint struct {
	typed
	Metadata struct {
		Name   string            `json:"name"`
		Node   string            `json:"node"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		InterfaceName string   `json:"interfaceName"`
		ExpectedIPs   []string `json:"expectedIPs"`
		Profiles      []string `json:"profiles"`
		Ports         []port   `json:"ports"`
	} `json:"spec"`
}

func (h *hostEndpoint) v3() (string, object, object, error) {
	var ips []netip.Addr
	for _, text := range h.Spec.ExpectedIPs {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return "", nil, nil, wrong("ExpectedIPs", text)
		}
		ips = append(ips, ip)
	}
	var texts []string
	for _, ip := range sorted(ips, netip.Addr.Is4) {
		texts = append(texts, ip.String())
	}
	ports, err := portsOf(h.Spec.Ports)
	node := normal(h.Metadata.Node)
	// The name is made of two, of which the first is a node's: only the second can have changed it.
	return api.KindHostEndpoint, object{"name": named(node + "." + h.Metadata.Name), "labels": h.Metadata.Labels}.set(), object{
		"node": node, "interfaceName": h.Spec.InterfaceName, "expectedIPs": texts, "profiles": profileNames(h.Spec.Profiles), "ports": ports,
	}, err
}

func portsOf(ports []port) (out []object, err error) {
	for _, p := range ports {
		protocol, err := protocolOf(p.Protocol)
		if err != nil {
			return nil, err
		}
		out = append(out, object{"name": p.Name, "port": p.Port, "protocol": protocol}.set())
	}
	return out, nil
}

type workloadEndpoint struct {
	typed
	Metadata struct {
		Name             string            `json:"name"`
		Workload         string            `json:"workload"`
		Orchestrator     string            `json:"orchestrator"`
		Node             string            `json:"node"`
		ActiveInstanceID string            `json:"activeInstanceID"`
		Labels           map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		IPNetworks []string `json:"ipNetworks"`
		IPNATs     []struct {
			InternalIP string `json:"internalIP"`
			ExternalIP string `json:"externalIP"`
		} `json:"ipNATs"`
		IPv4Gateway   string   `json:"ipv4Gateway"`
		IPv6Gateway   string   `json:"ipv6Gateway"`
		Profiles      []string `json:"profiles"`
		InterfaceName string   `json:"interfaceName"`
		MAC           string   `json:"mac"`
		Ports         []port   `json:"ports"`
	} `json:"spec"`
}

// Labels of a workload's namespace.
const (
	oldNamespaceLabel = "calico/k8s_ns"
	newNamespaceLabel = api.LabelNamespace
)

func (w *workloadEndpoint) v3() (string, object, object, error) {
	m, s := w.Metadata, w.Spec
	id := api.WorkloadEndpointSpec{Node: normal(m.Node), Orchestrator: named(m.Orchestrator), Endpoint: named(m.Name)}
	namespace := "default"
	switch m.Orchestrator {
	case "k8s":
		var ok bool
		if namespace, id.Pod, ok = strings.Cut(m.Workload, "."); !ok {
			return "", nil, nil, fmt.Errorf("malformed k8s workload ID '%s': workload was not added through the Calico CNI plugin and cannot be converted", m.Workload)
		}
		id.ContainerID = m.ActiveInstanceID
	case "cni":
		id.ContainerID = m.Workload
	case "libnetwork":
		id.Workload = "libnetwork"
	default:
		id.Workload = named(m.Workload)
	}
	for field, value := range map[string]string{"node": id.Node, "orchestrator": id.Orchestrator, "endpoint": id.Endpoint, "pod": id.Pod, "containerID": id.ContainerID} {
		if strings.HasPrefix(value, "-") {
			return "", nil, nil, fmt.Errorf("error with field %s = '%s' (field must not begin with a '-')", field, value)
		}
	}
	name, err := api.WorkloadEndpointName(id)
	if err != nil {
		return "", nil, nil, err
	}
	nets, err := w.nets()
	if err != nil {
		return "", nil, nil, err
	}
	nats := make([]object, 0, len(s.IPNATs))
	for _, n := range s.IPNATs {
		nats = append(nats, object{"internalIP": n.InternalIP, "externalIP": n.ExternalIP})
	}
	nats = sorted(nats, func(o object) bool { return !strings.Contains(o["internalIP"].(string), ":") })
	ports, err := portsOf(s.Ports)
	labels := maps.Clone(m.Labels)
	if ns, ok := labels[oldNamespaceLabel]; ok {
		delete(labels, oldNamespaceLabel)
		labels[newNamespaceLabel] = ns
	}
	return api.KindWorkloadEndpoint, object{"name": name, "namespace": namespace, "labels": labels}.set(), object{
		"node": id.Node, "orchestrator": id.Orchestrator, "endpoint": id.Endpoint, "pod": id.Pod, "containerID": id.ContainerID, "workload": id.Workload,
		"ipNetworks": nets, "ipNATs": nats, "ipv4Gateway": s.IPv4Gateway, "ipv6Gateway": s.IPv6Gateway,
		"profiles": profileNames(s.Profiles), "interfaceName": s.InterfaceName, "mac": s.MAC, "ports": ports,
	}, err
}

func (w *workloadEndpoint) nets() (out []string, err error) {
	var nets []netip.Prefix
	for _, text := range w.Spec.IPNetworks {
		p, err := parseNet("IPNetworks", text)
		if err != nil {
			return nil, err
		}
		nets = append(nets, p.Masked())
	}
	for _, p := range sorted(nets, func(p netip.Prefix) bool { return p.Addr().Is4() }) {
		out = append(out, p.String())
	}
	return out, nil
}

type profile struct {
	typed
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
		Tags   []string          `json:"tags"`
	} `json:"metadata"`
	Spec struct {
		Ingress []rule `json:"ingress"`
		Egress  []rule `json:"egress"`
	} `json:"spec"`
}

// tagName is what a tag may be called. It becomes part of a selector, so that nothing else may stand there.
var tagName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`)

func (p *profile) v3() (string, object, object, error) {
	labels := map[string]string{}
	maps.Copy(labels, p.Metadata.Labels)
	for _, t := range p.Metadata.Tags {
		if !tagName.MatchString(t) {
			return "", nil, nil, wrong("Tag", t)
		}
		if v, ok := labels[t]; ok {
			return "", nil, nil, fmt.Errorf("Tag: '%s' and Label '%s == %s' have the same value for Profile: %s. Change the Label key before proceeding", t, t, v, profileName(p.Metadata.Name))
		}
		labels[t] = ""
	}
	ingress, err := rulesOf(p.Spec.Ingress)
	if err != nil {
		return "", nil, nil, err
	}
	egress, err := rulesOf(p.Spec.Egress)
	return api.KindProfile, object{"name": profileName(p.Metadata.Name)}, object{"labelsToApply": labels, "ingress": ingress, "egress": egress}, err
}
