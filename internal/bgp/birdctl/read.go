package birdctl

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Codes of the lines that are read.
const (
	protocolHead  = 1002
	protocolBody  = 1006
	routeHead     = 1007
	routeType     = 1008
	routeAttrs    = 1012
	statusVersion = 1000
	statusTimes   = 1011
	statusRestart = 24
)

// TimeFormat is how birdconf has BIRD write the times of protocols and its own; Go's form of the same is timeForm.
const (
	TimeFormat = "%FT%T"
	timeForm   = "2006-01-02T15:04:05"
)

// Protocol is one of BIRD's protocols; sessions are some of them.
type Protocol struct {
	Name      string
	Since     time.Time
	Peer      netip.Addr // of BGP
	State     string     // of BGP: the session's state
	LastError string
	Imported  uint64 // routes
	Filtered  uint64 // that were refused
	Exported  uint64
}

// Path is one path to a destination.
type Path struct {
	Dst         netip.Prefix
	Protocol    string // that brought it
	Type        string // BGP, inherit (of the kernel), static, device
	Best        bool
	Stale       bool
	NextHop     netip.Addr
	ASPath      []uint32
	Communities []string
	LocalPref   uint32
}

// Status is how BIRD itself is.
type Status struct {
	Version    string // as it calls itself: BIRD 2.0.12
	Booted     time.Time
	Configured time.Time // when it last read a configuration
	// Recovering: it restarts and keeps stale routes until peers have sent theirs, at most for RecoveryLimit.
	Recovering    bool
	RecoveryLimit time.Duration
}

// GetStatus reads BIRD's own state.
func GetStatus(socket string) (s Status, err error) {
	lines, err := run(socket, "show status")
	for _, l := range lines {
		text := strings.TrimSpace(l.text)
		switch l.code {
		case statusVersion:
			s.Version = text
		case statusTimes:
			s.read(text)
		case statusRestart:
			s.Recovering = true
			if wait, ok := strings.CutPrefix(text, "Wait timer is "); ok {
				left, _, _ := strings.Cut(wait, "/")
				seconds, _ := strconv.ParseFloat(left, 64) // not understood: zero
				s.RecoveryLimit = time.Duration(seconds * float64(time.Second))
			}
		}
	}
	return s, err
}

// read parses one of BIRD's times; one that is not understood stays zero.
func (s *Status) read(text string) {
	for words, at := range map[string]*time.Time{"Last reboot on ": &s.Booted, "Last reconfiguration on ": &s.Configured} {
		if when, ok := strings.CutPrefix(text, words); ok {
			*at, _ = time.ParseInLocation(timeForm, when, time.Local)
		}
	}
}

// Protocols returns all of BIRD's protocols, by name.
func Protocols(socket string) (map[string]Protocol, error) {
	lines, err := run(socket, "show protocols all")
	return readProtocols(lines), err
}

func readProtocols(lines []line) map[string]Protocol {
	out := map[string]Protocol{}
	var p Protocol
	for _, l := range lines {
		switch l.code {
		case protocolHead:
			const name, since = 0, 4
			if f := strings.Fields(l.text); len(f) > since {
				p = Protocol{Name: f[name]}
				p.Since, _ = time.ParseInLocation(timeForm, f[since], time.Local) // not understood: zero
			}
		case protocolBody:
			p.read(l.text)
		}
		if p.Name != "" {
			out[p.Name] = p
		}
	}
	return out
}

// read parses one line about a protocol.
func (p *Protocol) read(text string) {
	key, value, _ := strings.Cut(strings.TrimSpace(text), ":")
	switch value = strings.TrimSpace(value); key {
	case "BGP state":
		p.State = value
	case "Neighbor address":
		p.Peer, _ = netip.ParseAddr(value) // not understood: none
	case "Last error":
		p.LastError = value
	case "Routes":
		for part := range strings.SplitSeq(value, ", ") {
			number, what, _ := strings.Cut(part, " ")
			n, _ := strconv.ParseUint(number, 10, 64)
			switch what {
			case "imported":
				p.Imported = n
			case "filtered":
				p.Filtered = n
			case "exported":
				p.Exported = n
			}
		}
	}
}

// Paths returns all paths that BIRD has accepted.
func Paths(socket string) ([]Path, error) {
	lines, err := run(socket, "show route all")
	return readPaths(lines), err
}

// IsAdvertised reports whether a session advertises a destination.
func IsAdvertised(socket, session string, dst netip.Prefix) bool {
	lines, err := run(socket, "show route "+dst.String()+" export "+session)
	return err == nil && len(readPaths(lines)) > 0 // it is an error if there is no such route or session
}

// pathHeadForm is the first line of a path: prefix (none: that of the one before), kind, protocol, * if it is the best, preference.
var pathHeadForm = regexp.MustCompile(`^(\S*)\s+\S+ \[(\S+) [^\]]*\]( [*!])? \(\d+([^)/]*)`)

func readPaths(lines []line) []Path {
	var out []Path
	var dst netip.Prefix
	for _, l := range lines {
		switch l.code {
		case routeHead:
			m := pathHeadForm.FindStringSubmatch(l.text)
			if m == nil {
				continue // a table's name, or a next hop
			}
			if p, err := netip.ParsePrefix(m[1]); err == nil {
				dst = p
			}
			out = append(out, Path{Dst: dst, Protocol: m[2], Best: m[3] == " *", Stale: strings.Contains(m[4], "s")})
		case routeType, routeAttrs:
			if len(out) > 0 {
				out[len(out)-1].read(l.text)
			}
		}
	}
	return out
}

// read parses one attribute.
func (p *Path) read(text string) {
	key, value, _ := strings.Cut(strings.TrimSpace(text), ": ")
	switch key {
	case "Type":
		p.Type, _, _ = strings.Cut(value, " ")
	case "BGP.next_hop":
		first, _, _ := strings.Cut(value, " ") // the second is link-local
		p.NextHop, _ = netip.ParseAddr(first)
	case "BGP.as_path":
		for f := range strings.FieldsSeq(value) {
			if n, err := strconv.ParseUint(f, 10, 32); err == nil {
				p.ASPath = append(p.ASPath, uint32(n))
			}
		}
	case "BGP.local_pref":
		if n, err := strconv.ParseUint(value, 10, 32); err == nil {
			p.LocalPref = uint32(n)
		}
	case "BGP.community", "BGP.large_community":
		for c := range strings.SplitSeq(strings.ReplaceAll(value, " ", ""), ")") {
			if c = strings.TrimPrefix(c, "("); c != "" {
				p.Communities = append(p.Communities, strings.ReplaceAll(c, ",", ":"))
			}
		}
	}
}
