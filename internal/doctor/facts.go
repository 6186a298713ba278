package doctor

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/nodeaddr"
)

// Facts are what was gathered on a host.
type Facts struct {
	Node       string // this host's name in the datastore
	Kernel     Kernel
	Sysctl     map[string]string // by path below /proc/sys/net; absent: the kernel has none
	Store      Store
	Agent      Agent
	BGP        BGP
	Nodes      nodeaddr.Registry // addresses of all Nodes
	Pools      []netip.Prefix
	Tunnels    map[string][]string // kind of device that pools want → their names
	Links      []Link
	Duplicates []Duplicate // of this node's addresses on their links
	Listeners  []Listener
	Peers      []Peer // whose port was tried
	Paths      []Path
	Routes     []Route      // of main
	Neighbours []Neighbours // none: the kernel does not say, as in a network namespace
	// Source is from where the kernel has the host send to its workloads over IPv4; unspecified: from no address. The zero value: there is no
	// workload, or the route to it says from where.
	Source    netip.Addr
	Processes []Process
	Networkd  *Networkd // nil: systemd-networkd does not run here
	Chains    []Chain
	Tables    []Table    // of nftables
	Sets      []string   // names of ipset's
	Health    []Listener // on the port at which agents say how they are
}

// Neighbours are those of a family in the kernel's table, which is one for all network namespaces, and how often there was no room for one more since the
// machine started (table_fulls of /proc/net/stat).
type Neighbours struct {
	Family     string // ipv4 or ipv6
	Count, Max int    // Max is gc_thresh3 of arp(7)
	Full       int
}

// Kernel is what the kernel can.
type Kernel struct {
	Release string
	Err     string // why the least table and a veth pair could not be made in a namespace of their own
	Lacks   []Lack // of kinds of devices
}

// Lack is a kind of device that could not be made in a namespace of its own.
type Lack struct {
	Device, Module string // VXLAN, vxlan
	Err            string
}

// Store is how the datastore answers.
type Store struct {
	Err     string
	Latency time.Duration // of a small read
	Members []Member
	Frozen  bool // it says that it is not ready
	// Unsaid is why it does not say whether it is ready; empty: it does.
	Unsaid string
}

// Member is one endpoint.
type Member struct {
	Endpoint, Version, Err string
	Full                   bool // its quota is used up, and the cluster takes no writes
}

// Agent is what the agent says of itself.
type Agent struct {
	Err      string // it does not answer
	NotReady []string
	Wrong    []string
	NoEffect []string // fields of resources on which nothing acts
	// Unforwarded are the families that settings do not want to be forwarded: IPv4, IPv6.
	Unforwarded []string
	// RouteProtocol is that of routes to workloads, if settings have another than the agent's own.
	RouteProtocol int
	Errors        []string // endpoints of this node that carry nothing, and why
	Others        []Other  // ways to other hosts
	Encryption    []Encryption
}

// Other is a way to another host, as the agent's routes have it.
type Other struct {
	Node, Family string // the family is IPv4 or IPv6
	By           string // WireGuard, VXLAN, IPIP or direct
	Encrypted    bool
	State        OtherState
	Problem      string // what is wrong, for people; empty: nothing
}

// OtherState is what is wrong with a way to another host; empty: nothing.
type OtherState string

// States of ways to other hosts.
const (
	InClear     OtherState = "in clear"     // settings want what goes there to be encrypted, and it is not
	NoHandshake OtherState = "no handshake" // WireGuard there does not answer
	Unreachable OtherState = "unreachable"  // nothing goes there
)

// Encryption is of a family that settings want encrypted between hosts.
type Encryption struct {
	Family, Interface, Problem string
	Port                       int
	AllowClear                 bool // what is for a host without a key goes in clear
}

// BGP is what the speaker says of itself.
type BGP struct {
	Mode     string // which speaker is to run, as in `twill node --bgp`: on (ours), bird, reflector (ours), bird-reflector, off
	Err      string // it does not answer
	Off      string
	Sessions []Session
	Problems []string
	Listen   []netip.AddrPort // as the plan wants it
	Wanted   []netip.AddrPort // the peers' ends, as the plan has them
}

// byBIRD reports whether BIRD is to speak.
func (b BGP) byBIRD() bool { return b.Mode == "bird" || b.Mode == "bird-reflector" }

// Session is one of its sessions.
type Session struct {
	Peer  netip.Addr
	Node  string
	State string
	Up    bool
	Why   string
}

// Link is an interface.
type Link struct {
	Name     string
	Kind     string
	Up       bool
	Workload bool // it leads to one, by its name
	Held     bool // our table has it as a workload's
	Ours     bool // it is a tunnel of our agent
	MTU      int
	Addrs    []netip.Prefix
}

// Networkd is what systemd-networkd does, by its settings, to what others program, when it starts and when it sets an interface up anew.
type Networkd struct {
	RemovesRoutes bool // ManageForeignRoutes: of interfaces that it manages
	RemovesRules  bool // ManageForeignRoutingPolicyRules
}

// Duplicate is another host with an address of this node on its link; no MAC: there is none.
type Duplicate struct {
	Addr netip.Addr
	Link string
	MAC  string
	Err  string // the probe failed
}

// Listener is a process that waits for connections on BGP's port.
type Listener struct {
	At      netip.AddrPort
	Process string // empty: not known
	PID     int
	Ours    bool
}

// Peer is a peer without a session, whose port was tried.
type Peer struct {
	At     netip.AddrPort
	Node   string
	Result PortResult
}

// PortResult is what became of a try to connect.
type PortResult string

// Results.
const (
	PortOpen    PortResult = "open"
	PortRefused PortResult = "refused"
	PortSilent  PortResult = "silent"
)

// Path is the way to another node.
type Path struct {
	Node    string
	Addr    netip.Addr
	Link    string
	MTU     int // of the link
	Largest int // the largest packet that came back whole; 0: none did
	// Behind is the last host or router that a packet as large as the link takes came to, if a smaller one went farther: on the next link it is lost.
	// Says: it answered that the next link takes less.
	Behind netip.Addr
	Says   bool
}

// Route is a route of the kernel.
type Route struct {
	Dst       netip.Prefix
	Gateway   netip.Addr // the zero value: the destination is on the link
	Protocol  int
	Metric    int
	Link      string
	Blackhole bool // packets are dropped
}

// String is how ip names it, and all that tells it from others.
func (r Route) String() string {
	var b strings.Builder
	if r.Blackhole {
		b.WriteString("blackhole ")
	}
	b.WriteString(r.Dst.String())
	if r.Gateway.IsValid() {
		b.WriteString(" via " + r.Gateway.String())
	}
	if r.Link != "" {
		b.WriteString(" dev " + r.Link)
	}
	return b.String() + " proto " + strconv.Itoa(r.Protocol)
}

// Process is one that runs in this network namespace.
type Process struct {
	Name string
	PID  int
}

// Chain is a chain of nftables, where those of iptables-nft are, or one that somebody made in iptables-legacy.
type Chain struct {
	Family, Table, Name string
	Legacy              bool
	Hook                string // prerouting, input, forward, output, postrouting; empty: none
	Drop                bool   // what nothing accepts is dropped
}

// in is where it is.
func (c Chain) in() string {
	in := c.Family + " " + c.Table
	if c.Legacy {
		in += " of iptables-legacy"
	}
	return in
}

// Table is a table of nftables.
type Table struct{ Family, Name string }

// AddPool takes a pool of addresses, and what its mode needs of the kernel. Another update has no effect.
func (f *Facts) AddPool(u api.Update) {
	s, err := api.DecodeStored(u)
	if err != nil {
		return
	}
	pool, ok := s.Resource.(*api.IPPool)
	if !ok {
		return
	}
	if p, err := netip.ParsePrefix(pool.Spec.CIDR); err == nil {
		f.Pools = append(f.Pools, p.Masked())
	}
	if f.Tunnels == nil {
		f.Tunnels = map[string][]string{}
	}
	for device, mode := range map[string]string{VXLAN: pool.Spec.VXLANMode, IPIP: pool.Spec.IPIPMode} {
		if mode != "" && mode != "Never" {
			f.Tunnels[device] = append(f.Tunnels[device], s.Ref.Name)
		}
	}
}
