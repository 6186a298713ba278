package agreetest

import (
	"strconv"
	"strings"
)

// Rules that name ports, or types of ICMP, and no protocol.
const (
	anyProtocol = "upstream: pull request 11916: the port's own protocol, whatever it is"
	needsICMP   = "upstream: validateRule refuses icmp without a protocol, and iptables refuses notICMP (libcalico-go issue 657); decision 016"
	needsPorts  = "upstream: validateRule wants a protocol with numbers"
	manyPorts   = "upstream: a rule has up to 50 ports, each a number or a range; iptables' multiport takes 15 at a time"
	isUDPLite   = "IANA: protocol numbers; RFC 3828"
)

// letInvalidPass: conntrack calls each packet of UDP-Lite invalid whose checksum is right, since it sums UDP's number where
// RFC 3828 (3.1) has UDP-Lite's (udplite_error, Linux 6.18).
const letInvalidPass = "- {kind: FelixConfiguration, metadata: {name: default}, spec: {disableConntrackInvalidCheck: true}}\n"

// fiftyPorts are 101 to 149, and a range.
var fiftyPorts = func() string {
	ports := []string{`"1001:1009"`}
	for port := 101; port < 150; port++ {
		ports = append(ports, strconv.Itoa(port))
	}
	return strings.Join(ports, ", ")
}()

var protocolCases = []handCase{
	{
		"a named port without a protocol has its own", anyProtocol, `{action: Allow, destination: {ports: [web-tcp]}}`,
		[]string{tcp4, tcp6},
		[]string{four + " udp/80", four + " sctp/80", four + " tcp/81", six + " udp/80", four + " icmp/8"},
		"",
	},
	{
		"one that is of two protocols is of both", anyProtocol, `{action: Allow, destination: {ports: [both]}}`,
		[]string{four + " tcp/53", four + " udp/53", six + " udp/53"},
		[]string{four + " tcp/80", four + " sctp/53", six + " icmp6/128"},
		"",
	},
	{"SCTP's is of SCTP", anyProtocol, `{action: Allow, destination: {ports: [sctp]}}`, []string{four + " sctp/80", six + " sctp/80"}, []string{tcp4, four + " udp/80"}, ""},
	{"several names of several protocols", anyProtocol, `{action: Allow, destination: {ports: [web-tcp, sctp]}}`, []string{tcp4, four + " sctp/80"}, []string{four + " udp/80", four + " tcp/53"}, ""},
	{"a deny of one denies its protocol alone", anyProtocol, `{action: Deny, destination: {ports: [web-udp]}}, {action: Allow}`, []string{tcp4, tcp6, four + " udp/81", four + " icmp/8"}, []string{four + " udp/80", six + " udp/80"}, ""},
	{
		"a deny that rejects", anyProtocol, `{action: Deny, metadata: {annotations: {twill.net/reject: "true"}}, destination: {ports: [both]}}, {action: Allow}`,
		[]string{tcp4, four + " udp/80"},
		[]string{four + " tcp/53", four + " udp/53"},
		"",
	},
	{
		"a named port that must not be leaves all else", anyProtocol, `{action: Allow, destination: {notPorts: [web-tcp]}}`,
		[]string{four + " udp/80", four + " sctp/80", four + " tcp/81", four + " icmp/8", six + " icmp6/128"},
		[]string{tcp4, tcp6},
		"",
	},
	{
		"a deny of all but a named port", anyProtocol, `{action: Deny, destination: {notPorts: [both]}}, {action: Allow}`,
		[]string{four + " tcp/53", four + " udp/53"},
		[]string{tcp4, four + " icmp/8", six + " icmp6/128", four + " sctp/53"},
		"",
	},
	{"one name that must be and one that must not", anyProtocol, `{action: Allow, destination: {ports: [both, web-tcp], notPorts: [web-tcp]}}`, []string{four + " udp/53"}, []string{tcp4}, ""},
	{"a source's named port", anyProtocol, `egress: {action: Allow, source: {ports: [web-udp]}}`, []string{">" + four + " udp/9 from 80"}, []string{">" + four + " tcp/9 from 80", ">" + four + " udp/9 from 81"}, ""},
	{"a named port and what its protocol must not be", anyProtocol, `{action: Allow, notProtocol: UDP, destination: {ports: [both]}}`, []string{four + " tcp/53"}, []string{four + " udp/53"}, ""},
	{"a named port that must not be and what the protocol must not be", anyProtocol, `{action: Allow, notProtocol: ICMP, destination: {notPorts: [both]}}`, []string{tcp4, six + " icmp6/128"}, []string{four + " udp/53", four + " icmp/8"}, ""},
	{"a named port of whom a selector selects", anyProtocol, `{action: Allow, destination: {selector: app == "other", ports: [both]}}`, nil, []string{four + " udp/53", four + " tcp/53"}, ""},
	{
		"a named port without a protocol, with notNets of one family", anyProtocol, `{action: Allow, source: {notNets: [203.0.113.0/24]}, destination: {ports: [both]}}`,
		[]string{otherFour + " udp/53"},
		[]string{four + " udp/53", otherSix + " udp/53"},
		"",
	},
	{"a name that nobody has", anyProtocol, `{action: Allow, destination: {ports: [ghost]}}`, nil, []string{tcp4, four + " udp/53"}, ""},

	{"an allow with a number and no protocol matches nothing", needsPorts, `{action: Allow, destination: {ports: [80]}}`, nil, []string{tcp4, four + " udp/80"}, ""},
	{"nor with a number and a name", needsPorts, `{action: Allow, destination: {ports: [web-tcp, 81]}}`, nil, []string{tcp4, four + " tcp/81"}, ""},
	{"a deny with a number and no protocol denies all", needsPorts, `{action: Deny, destination: {ports: [81]}}, {action: Allow}`, nil, []string{tcp4, four + " icmp/8"}, ""},
	{
		"a deny with a name and a protocol that nobody knows loses both", "wrong-input: a Deny keeps the conditions that are understood",
		`{action: Deny, protocol: DCCP, destination: {ports: [web-tcp]}}, {action: Allow}`, nil,
		[]string{tcp4, four + " udp/9"},
		"",
	},

	{
		"as many ports as a rule may have, and ranges among them", manyPorts, `{action: Allow, protocol: TCP, destination: {ports: [` + fiftyPorts + `]}}`,
		[]string{four + " tcp/101", four + " tcp/124", six + " tcp/149", four + " tcp/1001", four + " tcp/1005", six + " tcp/1009"},
		[]string{four + " tcp/150", four + " tcp/100", four + " tcp/1000", four + " tcp/1010", four + " udp/101", six + " tcp/1010"},
		"",
	},
	{
		"as many ports as a rule may have, and none of them", manyPorts, `{action: Allow, protocol: TCP, destination: {notPorts: [` + fiftyPorts + `]}}`,
		[]string{four + " tcp/150", six + " tcp/1010"},
		[]string{four + " tcp/101", four + " tcp/149", six + " tcp/1005"},
		"",
	},

	{
		"UDPLite is 136", isUDPLite, `{action: Allow, protocol: UDPLite}`,
		[]string{four + " udplite/80", six + " udplite/80"},
		[]string{four + " udp/80", six + " udp/80", tcp4},
		letInvalidPass,
	},
	{
		"what is not UDPLite is all else", isUDPLite, `{action: Allow, notProtocol: UDPLite}`,
		[]string{four + " udp/80", tcp6},
		[]string{four + " udplite/80", six + " udplite/80"},
		letInvalidPass,
	},

	{"an allow with a type of ICMP and no protocol matches nothing", needsICMP, `{action: Allow, icmp: {type: 8}}`, nil, []string{four + " icmp/8", tcp4}, ""},
	{"an allow with a type that must not be and no protocol matches nothing", needsICMP, `{action: Allow, notICMP: {type: 8}}`, nil, []string{four + " icmp/13", four + " icmp/8", six + " icmp6/128", tcp4}, ""},
	{"a deny with a type of ICMP and no protocol denies all", needsICMP, `{action: Deny, icmp: {type: 13}}, {action: Allow}`, nil, []string{four + " icmp/8", tcp4}, ""},
	{"a deny with a type that must not be and no protocol denies all", needsICMP, `{action: Deny, notICMP: {type: 8}}, {action: Allow}`, nil, []string{four + " icmp/8", tcp4}, ""},
}
