package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Protocol is an IP protocol, by number (1–255) or by name (TCP, UDP, ICMP,
// ICMPv6, SCTP, UDPLite). As in Calico it is a number or a string in JSON.
type Protocol struct {
	Name string // as written; empty if Number was
	Num  uint8  // as written; 0 if Name was
}

var protocolNumbers = map[string]uint8{"ICMP": 1, "TCP": 6, "UDP": 17, "ICMPv6": 58, "SCTP": 132, "UDPLite": 136}

// Number returns the protocol's IANA number; false if the name is unknown.
func (p Protocol) Number() (uint8, bool) {
	if p.Name == "" {
		return p.Num, p.Num != 0
	}
	for name, n := range protocolNumbers {
		if strings.EqualFold(name, p.Name) {
			return n, true
		}
	}
	n, err := strconv.ParseUint(p.Name, 10, 8)
	return uint8(n), err == nil && n != 0
}

// String is the protocol as it was written.
func (p Protocol) String() string {
	if p.Name != "" {
		return p.Name
	}
	return strconv.Itoa(int(p.Num))
}

// MarshalJSON writes a number or a string, as it was read.
func (p Protocol) MarshalJSON() ([]byte, error) {
	if p.Name != "" {
		return json.Marshal(p.Name)
	}
	return json.Marshal(p.Num)
}

// UnmarshalJSON reads a number or a string.
func (p *Protocol) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &p.Name)
	}
	if err := json.Unmarshal(b, &p.Num); err != nil {
		return fmt.Errorf("protocol %s: want a name or 1–255", b)
	}
	return nil
}

// Port is a port, a range of ports, or the name of a port of an endpoint. In
// JSON: 80, "80:90", "http".
type Port struct {
	Min, Max uint16 // both set unless Name is
	Name     string
}

// String is the port as it is written in YAML.
func (p Port) String() string {
	switch {
	case p.Name != "":
		return p.Name
	case p.Min == p.Max:
		return strconv.Itoa(int(p.Min))
	}
	return fmt.Sprintf("%d:%d", p.Min, p.Max)
}

// MarshalJSON writes a number for a single port, a string otherwise.
func (p Port) MarshalJSON() ([]byte, error) {
	if p.Name == "" && p.Min == p.Max {
		return json.Marshal(p.Min)
	}
	return json.Marshal(p.String())
}

// UnmarshalJSON reads a number, a range or a name.
func (p *Port) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '"' {
		var n uint16
		if err := json.Unmarshal(b, &n); err != nil || string(b) == "null" {
			return fmt.Errorf("port %s: want 0–65535, a range \"a:b\" or a name", b)
		}
		*p = Port{Min: n, Max: n}
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := ParsePort(s)
	if err == nil {
		*p = v
	}
	return err
}

// ParsePort reads "80", "80:90" or a name.
func ParsePort(s string) (Port, error) {
	if s == "" {
		return Port{}, fmt.Errorf("port is empty: want 0–65535, a range \"a:b\" or a name")
	}
	if n, err := strconv.ParseUint(s, 10, 16); err == nil {
		return Port{Min: uint16(n), Max: uint16(n)}, nil
	}
	lo, hi, ok := strings.Cut(s, ":")
	if !ok {
		if s[0] >= '0' && s[0] <= '9' && strings.Trim(s, "0123456789") == "" {
			return Port{}, fmt.Errorf("port %s: above 65535", s)
		}
		return Port{Name: s}, nil
	}
	a, err1 := strconv.ParseUint(lo, 10, 16)
	b, err2 := strconv.ParseUint(hi, 10, 16)
	if err1 != nil || err2 != nil || a > b {
		return Port{}, fmt.Errorf("port range %q: want two numbers, the lower first", s)
	}
	return Port{Min: uint16(a), Max: uint16(b)}, nil
}

// ASNumber is a BGP autonomous system's number. It is read from a number, or
// from text, plain or dotted ("64512", "1.10"), and written as a number.
type ASNumber uint32

// UnmarshalJSON reads a number or text.
func (a *ASNumber) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	}
	bits := 32
	hi, lo, dotted := strings.Cut(s, ".")
	var high uint64
	if dotted {
		bits = 16
		n, err := strconv.ParseUint(hi, 10, bits)
		if err != nil {
			return fmt.Errorf("AS number %s: want 0–4294967295 or two numbers 0–65535 with a dot between", b)
		}
		high, s = n, lo
	}
	n, err := strconv.ParseUint(s, 10, bits)
	if err != nil {
		return fmt.Errorf("AS number %s: want 0–4294967295 or two numbers 0–65535 with a dot between", b)
	}
	*a = ASNumber(high<<16 | n)
	return nil
}
