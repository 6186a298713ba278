// Package config works out what settings an agent has, and where each came from.
//
// In: a configuration file's text, environment variables, and
// FelixConfigurations with the labels of the node. Out: [Settings], the source
// of each value, and what was wrong; a wrong value counts as not given.
//
// The order, later ones win: defaults, file, environment, the
// FelixConfiguration "default", those whose nodeSelector selects the node, the
// newest first, and "node.<name>"; then those that are known without the datastore
// and are to win over it ([Layer.Over]). In the environment TWILL_… wins over FELIX_…, and
// that over the general names (NODENAME, DATASTORE_TYPE, ETCD_…).
package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
)

// Settings are all parameters in effect. See Params for what they do.
type Settings struct {
	// Known before the datastore is.
	Node          string
	DatastoreType string
	Etcd          Etcd
	Relay         Relay
	LogFormat     string // text or json

	InterfacePrefixes   []string
	EndpointToHost      string // Drop, Return or Accept
	Forwarding          string // Enabled, Disabled
	FloatingIPs         string // Enabled, Disabled
	Metadata            Metadata
	IPv6                bool // forward it
	AllowVXLAN          bool // from workloads
	AllowIPIP           bool // from workloads
	ServiceLoops        string
	LocalSubnet         string
	LocalSubnetAgain    time.Duration
	SkipInvalidCheck    bool
	RevokeFlows         bool
	OwnTable            bool   // nobody else may change the nftables table
	PolicyRendering     string // Compiled or Chains
	Nftables            string // Enabled, Auto; Disabled: policy is in iptables
	IptablesBackend     string // Auto, NFT or Legacy
	IPTables            IPTables
	MarkMask            MarkMask
	InternalDataplane   bool   // false: DataplaneDriver has policy, and all else
	DataplaneDriver     string // unix:///PATH of a driver's socket, or the absolute path of a program; any other text names none
	NAT                 NAT
	VXLAN               VXLAN
	IPIP                IPIP
	Routes              Routes
	WireGuard           WireGuard
	ChecksumsBroken     string         // true or false: the device of a tunnel does them wrong, or right; empty: as the kernel's version says
	ExternalNodes       []netip.Prefix // hosts that are no Nodes, and may send encapsulated packets
	MTULinks            string         // a regular expression of names of interfaces
	ReportFlows         string         // Enabled: also those that policy allows
	EvaluateStaged      string         // Continuous: staged policies judge live flows
	AllowSourceSpoofing bool
	FailsafeIn          []Failsafe
	FailsafeOut         []Failsafe
	InterfaceExclude    []string      // names, and regular expressions between slashes
	PolicyRefresh       time.Duration // zero: never, as for the other two
	SetsRefresh         time.Duration // zero: with the tables
	RouteRefresh        time.Duration
	InterfaceRefresh    time.Duration

	LogSeverity         string // Trace, Debug, Info, Warning, Error, Fatal or None
	LogFile             LogFile
	PolicySync          string // prefix of the directory with sockets for workloads' proxies; empty: none
	EndpointFiles       string // prefix of the directory of files of workloads that are up; empty: none
	Usage               Usage
	HeapProfile         string // the file that SIGUSR1 writes; empty: none
	Region              string
	ReportingInterval   time.Duration // zero: no reports
	ReportingTTL        time.Duration
	ReportEndpoints     bool
	EndpointReportDelay time.Duration
	Health              Listener
	Metrics             Listener
	MetricsTLS          TLS
	Debug               Listener
	Memory              Memory
	HealthTimeouts      map[string]time.Duration // by part
	GoMetrics           bool
	ProcessMetrics      bool
	Log                 Log
}

// Metadata is where requests of workloads for metadata go.
type Metadata struct {
	Addr string // an IPv4 address, or none; empty: see Target
	Port int
}

// OpenStack reports whether this is a host of OpenStack's to upstream: one with workloads whose interfaces have its names, or for which settings name
// another server of metadata than upstream's default, or another port of it. None is no other: upstream takes it for no address.
func (s *Settings) OpenStack() bool {
	a, err := netip.ParseAddr(s.Metadata.Addr)
	return s.tap() || err == nil && a != netip.AddrFrom4([4]byte{127, 0, 0, 1}) || s.Metadata.Port != 0 && s.Metadata.Port != 8775
}

func (s *Settings) tap() bool { return slices.Contains(s.InterfacePrefixes, "tap") }

// Target returns where requests for metadata go; the zero value: they are not translated. Without an address it is upstream's default, where
// workloads' interfaces have OpenStack's names: a port alone names no server.
func (s *Settings) Target() netip.AddrPort {
	text := s.Metadata.Addr
	if text == "" && s.tap() {
		text = "127.0.0.1"
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, uint16(s.Metadata.Port))
}

// MarkMask are the bits of packets' marks that are ours, where policy is in nftables, and where it is in iptables.
type MarkMask struct{ Nftables, Iptables uint32 }

// IPTables says how policy in the tables of iptables goes together with rules of other programs there, and how often they are read back.
type IPTables struct {
	InsertMode  string // Insert or Append
	FilterAllow string // Accept or Return
	MangleAllow string // Accept or Return
	FilterDeny  string // Drop or Reject
	Refresh     time.Duration
}

// VXLAN is how this host's VXLAN tunnels are.
type VXLAN struct {
	Enabled bool // of IPv4: there is one if a pool wants it
	VNI     int
	Port    int
	MTU     [2]int // bytes, of IPv4 and of IPv6; zero: as the host's interface allows
}

// IPIP is how this host's IPIP tunnel is.
type IPIP struct {
	Enabled bool // there is one if a pool wants it
	MTU     int  // bytes; zero: as the host's interfaces allow
}

// Routes is which routes the agent makes, and how those to workloads are.
type Routes struct {
	Off            bool          // none
	RemoveExternal bool          // those of others through workloads' interfaces go
	Source         [2]netip.Addr // of IPv4 and of IPv6: the address from which the host sends to workloads; the zero value: the kernel's choice
	Metric         [2]int        // zero: the kernel's default
	Elevated       [2]int        // of routes to machines that have come from another host; zero: none is better than Metric
	Settle         time.Duration // how long they keep it after the migration
	Protocol       int           // of routes to workloads
	Tables         []TableRange  // of routes to other hosts by WireGuard
	Cluster        string        // EnabledIPIPOnly, EnabledNoEncapOnly, Enabled or Disabled
}

// Direct reports whether the agent makes routes to hosts on this host's network, of pools without a tunnel.
func (r Routes) Direct() bool { return r.Cluster == api.Enabled || r.Cluster == api.EnabledNoEncapOnly }

// WireGuard is how this host's WireGuard tunnels are; what is of a family is of IPv4 and of IPv6.
type WireGuard struct {
	Enabled   [2]bool
	Port      [2]int
	Link      [2]string // the name of the device
	MTU       [2]int    // bytes; zero: as the host's interfaces allow
	Priority  int       // of the rule of policy routing
	KeepAlive time.Duration
	Userspace bool // a process has the tunnel where the kernel has no WireGuard
	Clear     bool // what is for hosts without a key goes unencrypted
	Hosts     bool // what is for other hosts' own addresses is encrypted, too
	Metrics   bool // metrics of the devices are served
	Threads   bool // threads of the kernel's take what its devices receive
}

// TLS is the files of a server; without a certificate it speaks plain HTTP.
type TLS struct{ CertFile, KeyFile, ClientCAFile string }

// Relay says by which relay the datastore is read, and how to reach it.
type Relay struct {
	Address                   string // HOST:PORT or unix://PATH; empty: see Service
	Service, Namespace        string // of Kubernetes, whose endpoints are relays; no service: by none
	CAFile, CertFile, KeyFile string
	CN, URISAN                string // that its certificate must have
	ReadTimeout, Fallback     time.Duration
	Plaintext                 bool
}

// Etcd says how to reach the datastore.
type Etcd struct {
	Endpoints                     []string
	Username, Password            string
	CertFile, KeyFile, CACertFile string
}

// Usage says whether and where the agent reports how much the cluster has.
type Usage struct {
	Enabled  bool
	URL      string        // http or https; empty: nowhere
	Delay    time.Duration // until the first report
	Interval time.Duration // between reports; zero: the first is the last
}

// LogFile says where the agent's own log is written in addition to standard error.
type LogFile struct {
	Path       string // of a log file; empty: none
	Severity   string // of its lines, as LogSeverity
	Sys        string // of lines for syslog, as LogSeverity
	DebugFiles string // a regular expression of names of source files whose lines below Info are written; empty: all
	Wait       bool   // a line waits where one of these is slow, in place of being dropped
}

// Log is how rules with action Log report packets.
type Log struct {
	Prefix string
	Rate   uint32 // packets in Per; zero: no limit
	Per    time.Duration
	Burst  uint32
}

// Memory configures Go's runtime; -1 keeps its default.
type Memory struct{ GCPercent, LimitMB, MaxProcs int }

// Listener is an address to listen at.
type Listener struct {
	Enabled bool
	Host    string // empty: all addresses
	Port    int
}

// Value is one parameter in effect.
type Value struct {
	Param *Param
	Text  string
	From  string // "default", or a layer's name
}

// Effective is what a Resolver answers.
type Effective struct {
	Settings Settings
	Values   []Value // in the order of Params
	Problems []Problem
}

// Problem is a value that could not be used.
type Problem struct {
	From, Name, Reason string
}

// Layer is one source of values, by the names of parameters.
type Layer struct {
	Name   string
	Values map[string]string
	Over   bool // it wins over the datastore, as upstream's file and environment do; among several such layers the order stays

	unusable []Problem // of the datastore: what is no parameter
}

// Resolver holds the layers. One goroutine may use it.
type Resolver struct {
	node   string
	local  []Layer
	labels map[string]string
	stored map[string]stored
}

// New returns a Resolver for a node, with what is known without the datastore, lowest first.
func New(node string, local ...Layer) *Resolver {
	return &Resolver{node: node, local: local, stored: map[string]stored{}}
}

// Set takes over a FelixConfiguration.
func (r *Resolver) Set(f *api.FelixConfiguration) { r.stored[f.Metadata.Name] = storedOf(f) }

// Remove forgets one.
func (r *Resolver) Remove(name string) { delete(r.stored, name) }

// SetLabels says what labels the node has; nodeSelectors look at them.
func (r *Resolver) SetLabels(labels map[string]string) { r.labels = labels }

// Resolve works the settings out.
func (r *Resolver) Resolve() Effective {
	var under, over []Layer
	for _, l := range r.local {
		if l.Over {
			over = append(over, l)
		} else {
			under = append(under, l)
		}
	}
	stored := r.ofStore()
	layers := slices.Concat(under, stored, over)
	var out Effective
	for _, l := range stored {
		out.Problems = append(out.Problems, l.unusable...)
	}
	for i := range params {
		p := &params[i]
		v := Value{Param: p, Text: p.Default, From: "default"}
		if err := p.set(&out.Settings, p.Default); err != nil {
			panic("the default of " + p.Name + ": " + err.Error())
		}
		for n, l := range layers {
			text, given := l.Values[p.Name]
			fromStore := n >= len(under) && n < len(under)+len(stored)
			if !given || p.Local && fromStore {
				continue
			}
			if err := p.set(&out.Settings, text); err != nil {
				out.Problems = append(out.Problems, Problem{l.Name, p.Name, err.Error()})
				_ = p.set(&out.Settings, v.Text) // it was good before
				continue
			}
			v.Text, v.From = text, l.Name
		}
		out.Values = append(out.Values, v)
	}
	out.elevate()
	return out
}
