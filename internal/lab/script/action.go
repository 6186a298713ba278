package script

import (
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// Action is what a step does: one of the types below.
type Action any

// Hosts makes the hosts, each with a twill node, and the store. Dedicated reflectors are the last of the names.
type Hosts struct {
	Names, Reflectors []string
	Store             string // the host that has the store; empty: it is on none of them
}

// Link makes another link between two hosts.
type Link struct{ A, B, Name string }

// Workload makes a workload behind an interface of a host, and its endpoint
// in the store unless it is bare.
type Workload struct {
	Host, Namespace, Name string
	V4, V6                netip.Addr // V6 zero: derived from V4
	Labels                map[string]string
	Profiles              []string
	PortName              string // and Port: a named port, TCP
	Port                  uint16
	Bare                  bool
}

// Endpoint writes the endpoint of a workload that was made bare.
type Endpoint struct{ Workload string }

// Apply runs `twill apply`; Not: it must be refused.
type Apply struct {
	Not   bool
	Files []string
}

// Delete runs `twill delete`; a word after -f is a file.
type Delete struct {
	Not  bool
	Args []string
}

// Put writes a raw value to the store; an empty File deletes the key.
type Put struct{ Key, File string }

// Flow is what reach and stream try.
type Flow struct {
	Src, Dst string
	Proto    string // tcp, udp or icmp
	Port     uint16
	V4, V6   bool
}

// Reach awaits that a flow passes; Not: that it does not.
type Reach struct {
	Not bool
	Flow
}

// Stream starts a flow of numbered words.
type Stream struct {
	Name string
	Flow
}

// StreamCheck judges a stream: lossless, alive, stopped or silent.
type StreamCheck struct{ Name, Want string }

// Restart ends a process and awaits its successor.
type Restart struct{ Who, What string }

// Kill ends a daemon of a host and awaits nothing.
type Kill struct {
	Host string
	What string // agent, bgp (which may be BIRD), bfd or confd
	Hard bool   // SIGKILL instead of SIGTERM
}

// Cut takes a connection away; Heal gives it back.
type Cut struct {
	Heal bool
	Host string // from the store; empty: Link is cut
	Link string
	// Silent: packets are lost, and both ends have their carrier.
	Silent bool
}

// Busy keeps all processors busy for a while.
type Busy struct{ For time.Duration }

// BGP says who speaks BGP for a host; its node is started again if it runs.
type BGP struct{ Host, Mode string }

// Compact makes the store forget its history.
type Compact struct{}

// Empty deletes all that the store holds.
type Empty struct{}

// Power stops or starts a host's twill node, or the store.
type Power struct {
	On  bool
	Who string   // a host, or store
	Env []string // NAME=VALUE, for the host's node
}

// Exec runs a program in a host or workload; Not: it must fail.
type Exec struct {
	Not   bool
	Where string
	Argv  []string
}

// Match checks what the last program wrote.
type Match struct {
	Not     bool
	Stream  string // stdout or stderr
	Pattern *regexp.Regexp
}

// String is the match as a scenario has it, but for quotes.
func (m Match) String() string {
	s := m.Stream + " " + strings.TrimPrefix(m.Pattern.String(), multiline)
	if m.Not {
		return "! " + s
	}
	return s
}

// Status awaits that `twill status` of a host succeeds and matches.
type Status struct {
	Host    string
	Pattern *regexp.Regexp // nil: anything
}

// Capture records the packets that arrive on a link.
type Capture struct {
	Where, Link, Name string
	Proto             string // empty: all
	Port              uint16 // 0: all
}

// CaptureCheck compares how many packets were recorded.
type CaptureCheck struct {
	Name string
	Compare
}

// Compare is an operator and a number.
type Compare struct {
	Op string
	N  float64
}

// Holds reports whether the comparison holds for v.
func (c Compare) Holds(v float64) bool {
	switch c.Op {
	case "==":
		return v == c.N
	case ">=":
		return v >= c.N
	case "<=":
		return v <= c.N
	case ">":
		return v > c.N
	}
	return v < c.N
}

// WaitAgent awaits that a host's agent runs and its kernel is what the store asks for.
type WaitAgent struct{ Host string }

// WaitSettled awaits the same of all hosts that can know what the store asks for.
type WaitSettled struct{}

// WaitStatus awaits the status of a workload's endpoint in the store.
type WaitStatus struct{ Host, Workload, Want string }

// WaitLog awaits a line in the log of a host or of the store.
type WaitLog struct {
	Who     string
	Pattern *regexp.Regexp
}

// WaitMetric awaits a value of a metric of a host's agent.
type WaitMetric struct {
	Host, Name string
	Labels     map[string]string
	Compare
}

// WaitExec awaits that a program succeeds, or fails if that is wanted, and writes what the matches after it ask for.
type WaitExec struct {
	Exec
	Writes []Match
}
