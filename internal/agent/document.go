package agent

import "time"

// Report is what a running agent says of itself, on its socket and at /status.
type Report struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Ready: all that is known is in force, and it is known well enough. Else NotReady says why not.
	Ready     bool     `json:"ready"`
	NotReady  []string `json:"notReady,omitempty"`
	Datastore Since    `json:"datastore"`
	// Unwritten is why what the node is to say of itself cannot be written into the datastore; empty: it can.
	Unwritten string           `json:"unwritten,omitempty"`
	Kernel    Since            `json:"kernel"`
	Counts    Counts           `json:"counts"`
	Repairs   map[string]int   `json:"repairs,omitempty"` // "nft by event" → how many
	Endpoints []EndpointReport `json:"endpoints"`
	Wrong     []Finding        `json:"wrong,omitempty"`    // in resources and settings
	NoEffect  []Finding        `json:"noEffect,omitempty"` // fields of resources on which nothing acts; nothing is wrong
	Failed    []string         `json:"failed,omitempty"`   // not in force, and not an endpoint's
	// Unforwarded are the families that settings do not want to be forwarded: IPv4, IPv6.
	Unforwarded []string `json:"unforwarded,omitempty"`
	// Leftovers are what an upstream agent left in the kernel: its rules decide about packets, too, until they are removed.
	Leftovers []string `json:"leftovers,omitempty"`
}

// Since is a state and when it began.
type Since struct {
	State string    `json:"state"`
	Since time.Time `json:"since"`
}

// Counts says how much there is of everything.
type Counts struct {
	Endpoints map[string]int `json:"endpoints"` // by state
	Policies  int            `json:"policies"`  // and profiles, that these use
	Sets      int            `json:"sets"`      // of addresses, that the policies use
	Routes    int            `json:"routes"`
}

// EndpointReport is one local endpoint.
type EndpointReport struct {
	Name      string    `json:"name"`
	Interface string    `json:"interface"`
	Status    string    `json:"status"`
	Reason    string    `json:"reason,omitempty"`
	Since     time.Time `json:"since"`
}

// Finding is something wrong in a resource or a setting.
type Finding struct {
	Where  string    `json:"where"` // the key and field, or the source and name
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}
