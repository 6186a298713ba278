// Package lab makes a network of hosts on this one machine, to see Twill work.
//
// In: a [Spec] of hosts and workloads. Out: network namespaces, one for each
// host with a real `twill node` in it, one for each workload behind a veth;
// and answers measured with real connections. Down leaves no trace.
package lab

import (
	"crypto/sha1" //nolint:gosec // names interfaces as upstream does; nothing secret
	_ "embed"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
)

//go:embed demo/policies.yaml
var demoPolicies []byte

// Spec is a lab: hosts on one link, and workloads on them.
type Spec struct {
	Prefix    string     `json:"prefix"` // begins the names of all its network namespaces
	Hosts     []Host     `json:"hosts"`
	Workloads []Workload `json:"workloads"`
	StorePID  int        `json:"storePID,omitempty"` // of the store, where it is not in a host
	Manifests []byte     `json:"-"`                  // resources to apply after those of hosts and workloads
}

// Host is a network namespace with a twill node in it.
type Host struct {
	Name string          `json:"name"`
	V4   netip.Addr      `json:"v4"`
	V6   netip.Addr      `json:"v6"`
	Nets [2]netip.Prefix `json:"nets"`          // its workloads' addresses, v4 and v6
	PID  int             `json:"pid,omitempty"` // of its twill node, once up
	// Reflector: it reflects and does nothing else. Its twill node registers it.
	Reflector bool `json:"reflector,omitempty"`
}

// Workload is a network namespace behind a veth of its host.
type Workload struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Host      string            `json:"host"`
	V4        netip.Addr        `json:"v4"`
	V6        netip.Addr        `json:"v6"`
	Labels    map[string]string `json:"labels"`
	Profiles  []string          `json:"profiles,omitempty"` // nil: kns.NAMESPACE
	Port      uint16            `json:"port"`               // the one that its service listens on
	PortName  string            `json:"portName,omitempty"` // of that port
}

// String is namespace/name.
func (w Workload) String() string { return w.Namespace + "/" + w.Name }

// link is the host's end of the veth, named as upstream's CNI does, so that
// the agent knows it for a workload's.
func (w Workload) link() string {
	sum := sha1.Sum([]byte(w.Namespace + "." + w.Name)) //nolint:gosec // see above
	return "cali" + hex.EncodeToString(sum[:])[:11]
}

// endpointName is the name of the workload's resource.
func (w Workload) endpointName() string {
	double := func(s string) string { return strings.ReplaceAll(s, "-", "--") }
	return double(w.Host) + "-k8s-" + double(w.Name) + "-eth0"
}

// workloadNS and hostNS name network namespaces.
func (s *Spec) workloadNS(w Workload) string { return s.Prefix + w.Namespace + "." + w.Name }
func (s *Spec) hostNS(h Host) string         { return s.Prefix + h.Name }
func (s *Spec) switchNS() string             { return s.Prefix + "switch" } // holds the bridge that is the hosts' link

// defaultPrefix is that of the lab that `twill lab up` makes.
const defaultPrefix = "twl-"

// plan gives hosts their addresses and their workloads' nets, by the order of their names.
func plan(names ...string) []Host {
	var hosts []Host
	for i, name := range names {
		hosts = append(hosts, Host{
			Name: name,
			V4:   netip.MustParseAddr(fmt.Sprintf("172.30.0.%d", i+1)),
			V6:   netip.MustParseAddr(fmt.Sprintf("fd30::%d", i+1)),
			Nets: [2]netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.65.%d.0/24", i+1)), netip.MustParsePrefix(fmt.Sprintf("fd65:0:0:%d::/64", i+1))},
		})
	}
	return hosts
}

// Demo is three hosts and six workloads with policies that are small but real.
func Demo() Spec {
	s := Spec{Prefix: defaultPrefix, Manifests: demoPolicies, Hosts: plan("h1", "h2", "h3")}
	add := func(host int, namespace, name string, port uint16, portName string, labels map[string]string) {
		n := len(s.Workloads) + 2
		s.Workloads = append(s.Workloads, Workload{
			Namespace: namespace, Name: name, Host: s.Hosts[host].Name, Port: port, PortName: portName, Labels: labels,
			V4: netip.MustParseAddr(fmt.Sprintf("10.65.%d.%d", host+1, n)),
			V6: netip.MustParseAddr(fmt.Sprintf("fd65:0:0:%d::%d", host+1, n)),
		})
	}
	add(0, "demo", "client", 22, "", map[string]string{"app": "client"})
	add(0, "demo", "web", 80, "http", map[string]string{"app": "web"})
	add(1, "demo", "api", 8080, "", map[string]string{"app": "api"})
	add(1, "demo", "admin", 22, "", map[string]string{"app": "admin", "role": "admin"})
	add(2, "demo", "db", 5432, "", map[string]string{"app": "db"})
	add(2, "other", "stranger", 80, "", map[string]string{"app": "stranger"})
	return s
}

// host returns a host of the lab by name.
func (s *Spec) host(name string) (*Host, bool) {
	for i := range s.Hosts {
		if s.Hosts[i].Name == name {
			return &s.Hosts[i], true
		}
	}
	return nil, false
}

// end is where a flow begins or ends: a host or a workload.
type end struct {
	ns     string // its network namespace
	v4, v6 netip.Addr
}

func (e end) addr(v6 bool) netip.Addr { return pick(v6, e.v4, e.v6) }

// find returns a host or workload, by name or namespace/name.
func (s *Spec) find(name string) (end, error) {
	if h, ok := s.host(name); ok {
		return end{s.hostNS(*h), h.V4, h.V6}, nil
	}
	var known []string
	var found []end
	for _, h := range s.Hosts {
		known = append(known, h.Name)
	}
	for _, w := range s.Workloads {
		known = append(known, w.String())
		if w.String() == name || w.Name == name {
			found = append(found, end{s.workloadNS(w), w.V4, w.V6})
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return end{}, fmt.Errorf("no host or workload %q in this lab; there are %s", name, strings.Join(known, ", "))
	}
	return end{}, fmt.Errorf("%q is several workloads; name one as namespace/name", name)
}

// Netns is the network namespace of a host or workload, by its name or namespace/name.
func (s *Spec) Netns(name string) (string, error) {
	e, err := s.find(name)
	return e.ns, err
}

// infrastructure is what there is before any workload: nodes, and pools of addresses.
func (s *Spec) infrastructure() string {
	var b strings.Builder
	for _, h := range s.Hosts {
		if !h.Reflector {
			b.WriteString(h.resource(s.reflects(h)))
		}
	}
	b.WriteString(s.bgpResources())
	for name, cidr := range pools {
		fmt.Fprintf(&b, "---\napiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: %s}\nspec: {cidr: %q}\n", name, cidr)
	}
	return b.String()
}

// pools hold the addresses of all workloads.
var pools = map[string]string{"ipv4": "10.65.0.0/16", "ipv6": "fd65::/48"}

func (h Host) resource(reflects bool) string {
	labels, cluster := "", ""
	if reflects {
		labels, cluster = `, labels: {route-reflector: ""}`, ", routeReflectorClusterID: 244.0.0.1"
	}
	return fmt.Sprintf("---\napiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: %s%s}\nspec: {bgp: {ipv4Address: %s/24, ipv6Address: \"%s/64\"%s}}\n", h.Name, labels, h.V4, h.V6, cluster)
}

func (w Workload) profiles() []string {
	if w.Profiles == nil {
		return []string{"kns." + w.Namespace}
	}
	return w.Profiles
}

// resource is the endpoint of a workload that the CNI plugin has not attached: some other orchestrator's.
func (w Workload) resource() string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: projectcalico.org/v3\nkind: WorkloadEndpoint\nmetadata:\n  name: %s\n  namespace: %s\n  labels:\n    projectcalico.org/orchestrator: k8s\n", w.endpointName(), w.Namespace)
	for k, v := range w.Labels {
		fmt.Fprintf(&b, "    %s: %q\n", k, v)
	}
	fmt.Fprintf(&b, "spec:\n  orchestrator: k8s\n  node: %s\n  pod: %s\n  endpoint: eth0\n  interfaceName: %s\n  ipNetworks: [%s/32, \"%s/128\"]\n  profiles: [%s]\n",
		w.Host, w.Name, w.link(), w.V4, w.V6, strings.Join(w.profiles(), ", "))
	if w.PortName != "" {
		fmt.Fprintf(&b, "  ports: [{name: %s, protocol: TCP, port: %d}]\n", w.PortName, w.Port)
	}
	return b.String()
}
