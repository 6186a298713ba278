package agent

import (
	"time"

	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/orchestrator/endpointapi"
)

// Report is the state of a running agent, as served on its socket and at /status.
type Report struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Ready: calc is in sync, and its result is in force. Else NotReady says why not.
	Ready     bool     `json:"ready"`
	NotReady  []string `json:"notReady,omitempty"`
	Datastore Since    `json:"datastore"`
	// Unwritten is why the node's status cannot be written into the datastore; empty: it can.
	Unwritten string           `json:"unwritten,omitempty"`
	Kernel    Since            `json:"kernel"`
	Counts    Counts           `json:"counts"`
	Repairs   map[string]int   `json:"repairs,omitempty"` // "nft by event" → how many
	Endpoints []EndpointReport `json:"endpoints"`
	Wrong     []Finding        `json:"wrong,omitempty"`    // in resources and settings
	NoEffect  []Finding        `json:"noEffect,omitempty"` // fields of resources without effect; not an error
	Failed    []string         `json:"failed,omitempty"`   // intents that are not in force and belong to no endpoint
	// Unforwarded are the families for which settings turn forwarding off: IPv4, IPv6.
	Unforwarded []string `json:"unforwarded,omitempty"`
	// RouteProtocol is the protocol of routes to workloads, if settings have another than the agent's own.
	RouteProtocol int `json:"routeProtocol,omitempty"`
	// MTU is how large packets may be; nil: it is not known yet.
	MTU *MTUReport `json:"mtu,omitempty"`
	// WireGuard are the devices that settings want, by family, and Others the other hosts to which this agent's routes lead, and how.
	WireGuard []WireGuardReport `json:"wireguard,omitempty"`
	Others    []OtherReport     `json:"others,omitempty"`
	// Plugins is what plugins of the Endpoint API said of this host's interfaces, and those that are nobody's; nil: there never was a plugin.
	Plugins *endpointapi.Report `json:"endpointPlugins,omitempty"`
	// Leftovers are what an upstream agent left in the kernel: its rules apply, too, until they are removed.
	Leftovers []string `json:"leftovers,omitempty"`
}

// MTUReport says how large packets may be, in bytes.
type MTUReport struct {
	Interface string   `json:"interface"` // that leads to other hosts and carries the least; empty: none is known, and Carries is assumed
	Carries   int      `json:"carries"`   // packets between hosts
	Workloads int      `json:"workloads"` // packets of workloads that are attached from now on
	Problems  []string `json:"problems,omitempty"`
}

// WireGuardReport is one device.
type WireGuardReport struct {
	Family           string `json:"family"`
	Interface        string `json:"interface"`
	By               string `json:"by,omitempty"` // kernel or process; empty: see Problem
	Port             int    `json:"port,omitempty"`
	Key              string `json:"key,omitempty"` // the public one
	Peers            int    `json:"peers"`
	AllowUnencrypted bool   `json:"allowUnencrypted,omitempty"` // settings let what is for hosts without a key go in clear
	Problem          string `json:"problem,omitempty"`
}

// Direct is the way to another host by no tunnel.
const Direct = "direct"

// OtherReport is one way to another host. One to whose addresses BGP has the routes, or somebody else, is not listed.
type OtherReport struct {
	Node      string `json:"node"`
	Family    string `json:"family"`
	By        string `json:"by"` // WireGuard, VXLAN, IPIP or direct
	Encrypted bool   `json:"encrypted"`
	Address   string `json:"address,omitempty"` // of the other host, to which packets go; empty: not known
	Blocks    int    `json:"blocks"`            // how many destinations there are
	// Of WireGuard: the other host's public key, the last handshake, and bytes since the device has the key.
	Key       string     `json:"key,omitempty"`
	Handshake *time.Time `json:"handshake,omitempty"`
	Received  int64      `json:"received,omitempty"`
	Sent      int64      `json:"sent,omitempty"`
	// State is what is wrong, and Problem says it to people; empty: nothing is.
	State   doctor.OtherState `json:"state,omitempty"`
	Problem string            `json:"problem,omitempty"`
}

// Since is a state and when it began.
type Since struct {
	State string    `json:"state"`
	Since time.Time `json:"since"`
}

// Counts are the numbers of objects.
type Counts struct {
	Endpoints map[string]int `json:"endpoints"` // by state
	Policies  int            `json:"policies"`  // and profiles in use
	Sets      int            `json:"sets"`      // in use
	Routes    int            `json:"routes"`
	ByChains  int            `json:"byChains"` // groups of endpoints with the same policies that are asked rule by rule, although the settings want look-ups
}

// EndpointReport is one local endpoint.
type EndpointReport struct {
	Name      string    `json:"name"`
	Interface string    `json:"interface"`
	Status    string    `json:"status"`
	Reason    string    `json:"reason,omitempty"`
	Chains    string    `json:"chains,omitempty"` // why its policy is asked rule by rule although the settings want look-ups; empty: it is not so
	Note      string    `json:"note,omitempty"`   // what else there is to say while it is up: that its virtual machine comes from another host
	Since     time.Time `json:"since"`
}

// Finding is a problem in a resource or a setting.
type Finding struct {
	Where  string    `json:"where"` // the key and field, or the source and name
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}
