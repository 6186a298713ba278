package crds

import (
	"fmt"
	"strconv"
	"strings"
)

// node is the schema of a value, or of a part of one.
type node map[string]any

// field is the schema of a field of an object.
func (n node) field(name string) node {
	f, ok := n["properties"].(map[string]any)[name].(map[string]any)
	if !ok {
		panic("crds: there is no field " + name) // it has another name in package api now
	}
	return f
}

// each does the same to several fields.
func (n node) each(limit func(node), names ...string) {
	for _, name := range names {
		limit(n.field(name))
	}
}

// items is the schema of the elements of a list.
func (n node) items() node { return n["items"].(map[string]any) }

// values is the schema of the values of a map.
func (n node) values() node { return n["additionalProperties"].(map[string]any) }

// one is that a text is one of several.
func (n node) one(of ...string) node {
	all := make([]any, len(of))
	for i, v := range of {
		all[i] = v
	}
	n["enum"] = all
	return n
}

// perhaps is that a text is one of several, or empty, as if the field were not there.
func (n node) perhaps(of ...string) node { return n.one(append([]string{""}, of...)...) }

// like is that a text, as a whole, matches an expression. It says nothing of a number, where one may stand in place of the text.
func (n node) like(expression string) node {
	n["pattern"] = "^(" + expression + ")$"
	return n
}

// formats is that a text has one of several formats that the API server knows: cidr, ipv4, ipv6.
func (n node) formats(names ...string) node {
	all, _ := n["anyOf"].([]any)
	for _, name := range names {
		all = append(all, map[string]any{"format": name})
	}
	n["anyOf"] = all
	return n
}

// orEmpty is that a text may also be empty, as if the field were not there.
func (n node) orEmpty() node { return n.or(map[string]any{"maxLength": 0}) }

// or is one more that a text may be beside formats.
func (n node) or(schema map[string]any) node {
	n["anyOf"] = append(n["anyOf"].([]any), schema)
	return n
}

// prefix is that a text is a prefix or an address, and address that it is an address.
func (n node) prefix() node  { return n.formats("cidr", "ipv4", "ipv6") }
func (n node) address() node { return n.formats("ipv4", "ipv6") }

// within is that a number is not below low and not above high. It says nothing of a text.
func (n node) within(low, high int64) node {
	n["minimum"], n["maximum"] = low, high
	return n
}

// longest is how many characters a text may have.
func (n node) longest(characters int) node {
	n["maxLength"] = characters
	return n
}

// most is how many elements a list may have.
func (n node) most(elements int) node {
	n["maxItems"] = elements
	return n
}

// notEmpty is that a list has elements.
func (n node) notEmpty() node {
	n["minItems"] = 1
	return n
}

// distinct is that no element is in a list twice.
func (n node) distinct() node {
	n["x-kubernetes-list-type"] = "set"
	return n
}

// unless is the value that a field has if it is left out.
func (n node) unless(given any) node {
	n["default"] = given
	return n
}

// require is that fields are there.
func (n node) require(names ...string) node {
	all, _ := n["required"].([]any)
	for _, name := range names {
		all = append(all, name)
	}
	n["required"] = all
	return n
}

// must is a rule in CEL, and what the API server answers where it does not hold, at a field below, if one is named.
func (n node) must(rule, message string, at ...string) {
	r := map[string]any{"rule": rule, "message": message}
	if len(at) > 0 {
		r["fieldPath"] = "." + strings.Join(at, ".")
	}
	all, _ := n["x-kubernetes-validations"].([]any)
	n["x-kubernetes-validations"] = append(all, r)
}

// mustStay is must of a whole object. Kubernetes takes a part that is wrong and stays as it was, but judges the whole also when labels or a
// status change: so what did not hold before need not hold now.
func (n node) mustStay(rule, message string, at ...string) {
	before := strings.ReplaceAll(rule, "self.spec", "oldSelf.value().spec") // its name was the same
	n.must("("+rule+") || oldSelf.hasValue() && !("+before+")", message, at...)
	all := n["x-kubernetes-validations"].([]any)
	all[len(all)-1].(map[string]any)["optionalOldSelf"] = true
}

// given is that a field is there and not empty; empty is what is written in CEL for an empty value.
func given(field, empty string) string {
	return present(field, fmt.Sprintf("self.%s != %s", field, empty))
}

// listed is that a list is there and has elements.
func listed(field string) string { return present(field, fmt.Sprintf("size(self.%s) > 0", field)) }

// present is that a field is there, with all above it, and that something holds.
func present(field, holds string) string {
	var out strings.Builder
	parts := strings.Split(field, ".")
	for i := range parts {
		out.WriteString("has(self." + strings.Join(parts[:i+1], ".") + ") && ")
	}
	return "(" + out.String() + holds + ")"
}

// protocolIs is that the field protocol is one of several, by name or number.
func protocolIs(numbers ...int) string {
	names := map[int]string{1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}
	var out []string
	for _, n := range numbers {
		out = append(out, fmt.Sprintf("self.protocol == '%s' || self.protocol == '%d' || self.protocol == %d", names[n], n, n))
	}
	return "(has(self.protocol) && (" + strings.Join(out, " || ") + "))"
}

// Expressions of texts, without anchors. RE2 has no limits to their number of states that matter here.
const (
	wordChars = `[A-Za-z0-9_.-]`
	dnsLabel  = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	dnsName   = dnsLabel + `(\.` + dnsLabel + `)*`
	// A word that is no folder: neither . nor ..
	fileName = wordChars + `*[A-Za-z0-9_-]` + wordChars + `*|\.{3,}`
	// The name of an interface; . and .. are left to package api.
	interfaceName = wordChars + `{1,15}`
	labelValue    = `([A-Za-z0-9](` + wordChars + `*[A-Za-z0-9])?)?`
	goDuration    = `0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|ms|s|m|h))+`
)

// Lengths of texts, as Kubernetes has them.
const (
	longestName  = 253
	longestLabel = 63
)

// Expressions of ports, as text. The API server names the expression when it refuses a text, so they are short rather than exact.
var (
	portNumber = `0*` + group(from1(65535))
	portRange  = portNumber + `(:` + portNumber + `)?`
	// The name of a port, which is not a number.
	portName = `[0-9]*[A-Za-z_.-]` + wordChars + `*`
)

// Expressions of numbers of BGP's.
var (
	asNumber  = `[0-9]+(\.[0-9]+)?`
	community = `(` + group(upTo(65535)) + `:` + group(upTo(65535)) + `)|[0-9]{1,10}(:[0-9]{1,10}){2}`
)

func group(expression string) string { return "(" + expression + ")" }

// anyCase is an expression of words in upper or lower case.
func anyCase(words ...string) string { return "(?i:" + strings.Join(words, "|") + ")" }

// upTo is an expression of the decimal numbers from 0 to n, without zeros before them.
func upTo(n uint64) string { return "0|" + from1(n) }

// from1 is an expression of the decimal numbers from 1 to n, without zeros before them.
func from1(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	var out []string
	if len(digits) > 1 {
		out = append(out, fmt.Sprintf("[1-9][0-9]{0,%d}", len(digits)-2))
	}
	for i, d := range []byte(digits) { // as n before this digit, less here, anything after it
		low, rest := byte('0'), len(digits)-1-i
		if i == 0 {
			low = '1'
		}
		if rest > 0 {
			d--
		}
		if d >= low {
			out = append(out, fmt.Sprintf("%s[%c-%c]%s", digits[:i], low, d, strings.Repeat("[0-9]", rest)))
		}
	}
	return strings.Join(out, "|")
}
