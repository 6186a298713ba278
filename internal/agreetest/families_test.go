package agreetest

// What a rule with nets means to each family, by upstream's FilterRuleToIPVersion (felix/rules/policy.go): for a family the
// rule keeps, of each of its four lists of nets, those of this family; it is left out if a list is not empty and has none,
// if a list of notNets has the prefix of everything, or if ipVersion is the other. What is not of the lists (protocol,
// ports, selectors) has no say.
const filtered = "upstream: FilterRuleToIPVersion"

const (
	four, six         = "203.0.113.5", "2001:db8:ffff::5"
	otherFour         = "198.51.100.7"
	otherSix          = "2001:db8:eeee::7"
	tcp4, tcp6        = four + " tcp/80", six + " tcp/80"
	otherTCP4         = otherFour + " tcp/80"
	otherTCP6         = otherSix + " tcp/80"
	allowNotFour      = `{action: Allow, source: {notNets: [203.0.113.0/24]}}`
	denyNotFour       = `{action: Deny, source: {notNets: [203.0.113.0/24]}}, {action: Allow}`
	allowNotFourNoSix = `{action: Allow, source: {notNets: [203.0.113.0/24, "2001:db8:ffff::/48"]}}`
)

var familyCases = []handCase{
	{"an allow with notNets of IPv4 is of IPv4", filtered, allowNotFour, []string{otherTCP4}, []string{tcp4, tcp6, otherTCP6}, ""},
	{"an allow with notNets of IPv6 is of IPv6", filtered, `{action: Allow, source: {notNets: ["2001:db8:ffff::/48"]}}`, []string{otherTCP6}, []string{tcp6, tcp4, otherTCP4}, ""},
	{"a deny with notNets of IPv4 leaves IPv6 alone", filtered, denyNotFour, []string{tcp4, tcp6, otherTCP6}, []string{otherTCP4}, ""},
	{"a pass with notNets of IPv4 does not pass IPv6", filtered, `{action: Pass, source: {notNets: [203.0.113.0/24]}}`, []string{otherTCP4}, []string{tcp4, tcp6}, ""},
	{
		"a deny that rejects is of the family of its notNets, for each protocol", filtered,
		`{action: Deny, metadata: {annotations: {twill.net/reject: "true"}}, source: {notNets: [203.0.113.0/24]}}, {action: Allow}`,
		[]string{tcp6, six + " udp/80", tcp4},
		[]string{otherTCP4, otherFour + " udp/80"},
		"",
	},
	{"notNets of the destination make a rule of their family", filtered, `egress: {action: Allow, destination: {notNets: [203.0.113.0/24]}}`, []string{">" + otherTCP4}, []string{">" + tcp4, ">" + tcp6}, ""},
	{"notNets at the end that everybody shares make it, too", filtered, `{action: Allow, destination: {notNets: [192.0.2.0/24]}}`, []string{tcp4}, []string{tcp6}, ""},
	{"notNets of both families are two rules", filtered, allowNotFourNoSix, []string{otherTCP4, otherTCP6}, []string{tcp4, tcp6}, ""},
	{"nets of both families are two rules", filtered, `{action: Allow, source: {nets: [203.0.113.0/24, "2001:db8:ffff::/48"]}}`, []string{tcp4, tcp6}, []string{otherTCP4, otherTCP6}, ""},
	{"nets of one family are no rule of the other", filtered, `{action: Allow, source: {nets: [203.0.113.0/24]}}`, []string{tcp4}, []string{otherTCP4, tcp6, otherTCP6}, ""},
	{"a deny with nets of one family leaves the other alone", filtered, `{action: Deny, source: {nets: ["::/0"]}}, {action: Allow}`, []string{tcp4, otherTCP4}, []string{tcp6, otherTCP6}, ""},
	{"the prefix of everything is of its family", filtered, `{action: Allow, source: {nets: [0.0.0.0/0]}}`, []string{tcp4, otherTCP4}, []string{tcp6, otherTCP6}, ""},

	{"nets of IPv4 and notNets of IPv6 at one end match nothing", filtered, `{action: Allow, source: {nets: [203.0.113.0/24], notNets: ["2001:db8:eeee::/48"]}}`, nil, []string{tcp4, otherTCP4, tcp6, otherTCP6}, ""},
	{
		"nets of IPv4 at one end and notNets of IPv6 at the other match nothing", filtered,
		`{action: Allow, source: {nets: [203.0.113.0/24]}, destination: {notNets: ["2001:db8:eeee::/48"]}}`, nil,
		[]string{tcp4, otherTCP4, tcp6, otherTCP6},
		"",
	},
	{
		"a deny with notNets of IPv6 at one end and nets of IPv4 at the other denies nothing", filtered,
		`{action: Deny, source: {notNets: ["2001:db8:ffff::/48"]}, destination: {nets: [10.65.0.0/16]}}, {action: Allow}`,
		[]string{tcp4, otherTCP4, tcp6, otherTCP6},
		nil, "",
	},
	{
		"notNets of IPv4 at one end and of IPv6 at the other match nothing", filtered,
		`{action: Allow, source: {notNets: [203.0.113.0/24]}, destination: {notNets: ["2001:db8:eeee::/48"]}}`, nil,
		[]string{tcp4, otherTCP4, tcp6, otherTCP6},
		"",
	},
	{
		"nets of both families at one end and of one at the other are of that one", filtered,
		`{action: Allow, source: {nets: [203.0.113.0/24, "2001:db8:ffff::/48"]}, destination: {nets: [10.65.0.0/16]}}`,
		[]string{tcp4},
		[]string{tcp6, otherTCP4},
		"",
	},
	{
		"nets of both families and notNets of one are of that one", filtered,
		`{action: Allow, source: {nets: [203.0.113.0/24, 198.51.100.0/24, "2001:db8::/32"], notNets: [203.0.113.5/32]}}`,
		[]string{otherTCP4},
		[]string{tcp4, tcp6, otherTCP6},
		"",
	},

	{"not in everything of IPv4 matches nothing at all", filtered, `{action: Allow, source: {notNets: [0.0.0.0/0]}}`, nil, []string{tcp4, otherTCP4, tcp6, otherTCP6}, ""},
	{"not in everything of IPv6 matches nothing at all", filtered, `{action: Allow, source: {notNets: ["::/0"]}}`, nil, []string{tcp4, otherTCP4, tcp6, otherTCP6}, ""},
	{"not in everything of both matches nothing", filtered, `{action: Allow, source: {notNets: [0.0.0.0/0, "::/0"]}}`, nil, []string{tcp4, otherTCP4, tcp6, otherTCP6}, ""},
	{"a deny of what is not in everything denies nothing", filtered, `{action: Deny, source: {notNets: [0.0.0.0/0]}}, {action: Allow}`, []string{tcp4, otherTCP4, tcp6, otherTCP6}, nil, ""},
	{"not in everything of IPv4 and some of IPv6 is of IPv6", filtered, `{action: Allow, source: {notNets: [0.0.0.0/0, "2001:db8:ffff::/48"]}}`, []string{otherTCP6}, []string{tcp4, otherTCP4, tcp6}, ""},
	{"everything among others is everything", filtered, `{action: Allow, source: {notNets: [203.0.113.0/24, 0.0.0.0/0, 198.51.100.0/24]}}`, nil, []string{tcp4, otherTCP4, "192.0.2.77 tcp/80", tcp6}, ""},
	{"in a net and not in everything is nothing", filtered, `{action: Allow, source: {nets: [203.0.113.0/24], notNets: [0.0.0.0/0]}}`, nil, []string{tcp4, otherTCP4, tcp6}, ""},
	{"not in everything at the end that all share matches nothing", filtered, `{action: Allow, destination: {notNets: [0.0.0.0/0]}}`, nil, []string{tcp4, tcp6}, ""},

	{"ipVersion with notNets of its family", filtered, `{action: Allow, ipVersion: 4, source: {notNets: [203.0.113.0/24]}}`, []string{otherTCP4}, []string{tcp4, tcp6, otherTCP6}, ""},
	{"ipVersion with notNets of the other family matches nothing", filtered, `{action: Allow, ipVersion: 6, source: {notNets: [203.0.113.0/24]}}`, nil, []string{tcp4, otherTCP4, tcp6, otherTCP6}, ""},
	{"a deny with ipVersion and notNets of the other family denies nothing", filtered, `{action: Deny, ipVersion: 6, source: {notNets: [203.0.113.0/24]}}, {action: Allow}`, []string{tcp4, otherTCP4, tcp6, otherTCP6}, nil, ""},
	{"ipVersion with notNets of both families takes its own", filtered, `{action: Allow, ipVersion: 6, source: {notNets: [203.0.113.0/24, "2001:db8:ffff::/48"]}}`, []string{otherTCP6}, []string{tcp6, tcp4, otherTCP4}, ""},
	{"ipVersion alone", filtered, `{action: Allow, ipVersion: 6}`, []string{tcp6}, []string{tcp4}, ""},
	{"neither ipVersion nor nets: both families", filtered, `{action: Allow, protocol: TCP}`, []string{tcp4, tcp6}, []string{four + " udp/80", six + " udp/80"}, ""},
	{"empty lists say nothing", filtered, `{action: Allow, protocol: TCP, source: {nets: [], notNets: []}, destination: {nets: [], notNets: []}}`, []string{tcp4, tcp6}, []string{four + " udp/80"}, ""},
	{"an empty list of nets, with notNets of one family", filtered, `{action: Allow, source: {nets: [], notNets: [203.0.113.0/24]}}`, []string{otherTCP4}, []string{tcp4, tcp6}, ""},

	{"ICMP is IPv4's", "api: ICMP is of IPv4, ICMPv6 of IPv6", `{action: Allow, protocol: ICMP}`, []string{four + " icmp/8"}, []string{six + " icmp6/128", tcp4}, ""},
	{"ICMPv6 is IPv6's", "api: ICMP is of IPv4, ICMPv6 of IPv6", `{action: Allow, protocol: ICMPv6}`, []string{six + " icmp6/128"}, []string{four + " icmp/8", tcp6}, ""},
	{"ICMP with notNets of IPv6 matches nothing", filtered, `{action: Allow, protocol: ICMP, source: {notNets: ["2001:db8:ffff::/48"]}}`, nil, []string{four + " icmp/8", otherFour + " icmp/8", otherSix + " icmp6/128"}, ""},
	{"ICMPv6 with notNets of IPv6", filtered, `{action: Allow, protocol: ICMPv6, source: {notNets: ["2001:db8:ffff::/48"]}}`, []string{otherSix + " icmp6/128"}, []string{six + " icmp6/128", otherFour + " icmp/8"}, ""},
	{"not ICMP says nothing of IPv6", "api: ICMP is of IPv4, ICMPv6 of IPv6", `{action: Allow, notProtocol: ICMP}`, []string{six + " icmp6/128", tcp4}, []string{four + " icmp/8"}, ""},
	{"not ICMP with notNets of IPv4 is of IPv4", filtered, `{action: Allow, notProtocol: ICMP, source: {notNets: [203.0.113.0/24]}}`, []string{otherTCP4}, []string{six + " icmp6/128", otherFour + " icmp/8", tcp6}, ""},
	{
		"a type of ICMP that must not be, with notNets", filtered, `{action: Allow, protocol: ICMP, notICMP: {type: 8}, source: {notNets: [203.0.113.0/24]}}`,
		[]string{otherFour + " icmp/13"},
		[]string{otherFour + " icmp/8", four + " icmp/13", otherSix + " icmp6/128"},
		"",
	},

	{
		"a named port with notNets of one family is of that family", filtered, `{action: Allow, protocol: TCP, source: {notNets: [203.0.113.0/24]}, destination: {ports: [web-tcp]}}`,
		[]string{otherTCP4},
		[]string{tcp4, tcp6, otherTCP6, otherFour + " tcp/81"},
		"",
	},
	{"a named port with nets of one family at its end", filtered, `{action: Allow, protocol: TCP, destination: {nets: ["fd00:65::/64"], ports: [web-tcp]}}`, []string{tcp6, otherTCP6}, []string{tcp4, six + " tcp/81"}, ""},
	{
		"a named port that must not be, with notNets of one family", filtered, `{action: Allow, protocol: TCP, source: {notNets: [203.0.113.0/24]}, destination: {notPorts: [web-tcp]}}`,
		[]string{otherFour + " tcp/81"},
		[]string{otherTCP4, otherSix + " tcp/81", four + " tcp/81"},
		"",
	},
	{
		"a named port and a number, with notNets of one family", filtered, `{action: Allow, protocol: TCP, source: {notNets: [203.0.113.0/24]}, destination: {ports: [web-tcp, 81]}}`,
		[]string{otherTCP4, otherFour + " tcp/81"},
		[]string{otherSix + " tcp/81", otherTCP6},
		"",
	},
	{
		"a selector of what has addresses of one family says nothing of the other when negated", "upstream: an IP set for each family, of which one is empty",
		`{action: Allow, source: {notSelector: set == "four"}}`,
		[]string{otherTCP4, tcp6},
		[]string{tcp4},
		"",
	},
	{"a selector and notNets of the other family match nothing", filtered, `{action: Allow, source: {selector: set == "four", notNets: ["2001:db8:eeee::/48"]}}`, nil, []string{tcp4, tcp6}, ""},
}
