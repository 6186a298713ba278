package wording

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/resources"
)

// WrongFields words what is wrong in a resource that could be read; raw is how the user wrote it.
func WrongFields(errs api.FieldErrors, raw []byte) error {
	var lines []string
	for _, e := range errs {
		lines = append(lines, fieldWords(e, raw))
	}
	if len(lines) == 1 {
		return errors.New("error with field " + lines[0])
	}
	return errors.New("error with the following fields:\n-  " + strings.Join(lines, "\n-  ") + "\n")
}

// fieldWords is a field by its name in Go, its value, and what is wrong.
func fieldWords(e *api.FieldError, raw []byte) string {
	value := valueAt(raw, e.Path)
	name := goName(e.Path)
	reason := e.Reason
	if e.Suggestion != "" {
		reason += "; did you mean " + e.Suggestion + "?"
	}
	if portPath.MatchString(e.Path) {
		if lowest, low := lowPort(value); low {
			return fmt.Sprintf("Port = '%s' (port range invalid, port number must be between 1 and 65535)", lowest)
		}
	}
	if m := icmpPart.FindStringSubmatch(e.Reason); m != nil && strings.HasSuffix(strings.ToLower(e.Path), "icmp") {
		name, value = goName(m[1]), m[2]
	}
	if key, ok := strings.CutPrefix(e.Path, "metadata.labels"); ok {
		name, value, reason = "Labels", labelKey(key), labelWords(labelKey(key), reason)
	}
	if over := len(value) - mostOfName; e.Path == "metadata.name" && over > 0 {
		reason = fmt.Sprintf("name is too long by %d bytes", over)
	}
	if e.Kind == api.KindIPPool && e.Path == "spec.cidr" {
		name, value = "IPPool.Spec.CIDR", masked(value)
		if strings.Contains(e.Reason, "block") {
			reason = "IP pool size is too small for use with Calico IPAM. It must be equal to or greater than the block size."
		}
	}
	if e.Kind == api.KindBGPConfiguration && strings.Contains(e.Reason, api.TierDefault) {
		reason = fmt.Sprintf("Cannot set %s on a non default BGP Configuration.", strings.TrimPrefix(e.Path, "spec."))
	}
	return fmt.Sprintf("%s = '%s' (%s)", name, value, reason)
}

// mostOfName is how long the name of a resource may be.
const mostOfName = 253

// labelKey is the name of a label in the last step of a path: .name, or ["name"] if it has other letters.
func labelKey(step string) string {
	step = strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(step, "["), "]"), ".")
	if key, err := strconv.Unquote(step); err == nil {
		return key
	}
	return step
}

// labelWords are Kubernetes' of a label's name that is none; reason: it is one, and something else is wrong.
func labelWords(key, reason string) string {
	part := key[strings.LastIndex(key, "/")+1:]
	switch {
	case strings.Count(key, "/") > 1, !qualified.MatchString(part):
		return "a qualified name must consist of alphanumeric characters, '-', '_' or '.', begin and end with one of letters and digits, and may have a DNS name and a '/' before it"
	case len(part) > 63:
		return "name part must be no more than 63 characters"
	}
	return reason
}

var qualified = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

var (
	portPath  = regexp.MustCompile(`(?i)ports\[\d+\]$`)
	icmpPart  = regexp.MustCompile(`^(type|code) is (-?\d+):`)
	pathSteps = regexp.MustCompile(`[^.\[\]]+`)
)

// goNames are fields whose name in Go is not the JSON name with a capital.
var goNames = map[string]string{"cidr": "CIDR", "ip": "IP", "asNumber": "ASNumber", "natOutgoing": "NATOutgoing", "ipipMode": "IPIPMode", "vxlanMode": "VXLANMode", "ipNetworks": "IPNetworks", "bgp": "BGP", "icmp": "ICMP"}

// goName is the last name of a path as Go's field is called.
func goName(path string) string {
	names := pathSteps.FindAllString(path, -1)
	for len(names) > 0 {
		last := names[len(names)-1]
		names = names[:len(names)-1]
		if _, err := strconv.Atoi(last); err == nil {
			continue // an element is called as its list
		}
		if n, ok := goNames[last]; ok {
			return n
		}
		return strings.ToUpper(last[:1]) + last[1:]
	}
	return "document"
}

// valueAt is what stands at a path of a document, names in any case; empty: nothing, or it is not known.
func valueAt(raw []byte, path string) string {
	v, err := resources.Tree(raw)
	if err != nil {
		return ""
	}
	for _, step := range pathSteps.FindAllString(path, -1) {
		switch at := v.(type) {
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return ""
			}
			v = at[i]
		case map[string]any:
			v = nil
			for name, e := range at {
				if strings.EqualFold(name, step) {
					v = e
				}
			}
		default:
			return ""
		}
	}
	return resources.Cell(v)
}

// lowPort is a port, or the beginning of a range, that is 0.
func lowPort(value string) (string, bool) {
	first, _, _ := strings.Cut(value, ":")
	n, err := strconv.Atoi(first)
	return first, err == nil && n == 0
}

// Unreadable words what could not be read of a document. It reports whether calicoctl would have read it, and found it wrong later.
func Unreadable(e *api.FieldError, raw []byte) (text string, later bool) {
	value := valueAt(raw, e.Path)
	switch {
	case e.Path == "apiVersion" || e.Path == "kind" || strings.HasSuffix(e.Path, "].apiVersion") || strings.HasSuffix(e.Path, "].kind"):
		at := strings.TrimSuffix(strings.TrimSuffix(e.Path, "apiVersion"), "kind")
		return fmt.Sprintf("Unknown resource type (%s) and/or version (%s)", valueAt(raw, at+"kind"), valueAt(raw, at+"apiVersion")), false
	case strings.HasPrefix(e.Reason, "unknown field"):
		names := pathSteps.FindAllString(e.Path, -1)
		return "field in document is not recognized or is in the wrong location: " + strings.Trim(names[len(names)-1], `"`), false
	case portPath.MatchString(e.Path):
		if text := portWords(value); text != "" {
			return text, false
		}
		return "error with field " + fieldWords(e, raw), true
	case strings.EqualFold(goName(e.Path), "asNumber"):
		return "cannot unmarshal number into Go value of type string: " + e.Error(), false
	case strings.Contains(e.Reason, "true or false"):
		names := pathSteps.FindAllString(e.Path, -1)
		return fmt.Sprintf("cannot parse string '%s' into field %sSpec.%s of type bool", value, e.Kind, names[len(names)-1]), false
	case e.Kind != "" && value != "" && !isContainer(value):
		return "error with field " + fieldWords(e, raw), true
	}
	return e.Error(), false
}

// portWords are calicoctl's of a port that is none; empty: it is one, or is only too low.
func portWords(value string) string {
	first, last, isRange := strings.Cut(value, ":")
	a, err1 := strconv.Atoi(first)
	b, err2 := strconv.Atoi(last)
	const most = 65535
	switch {
	case err1 != nil:
		return ""
	case !isRange && a > most:
		return fmt.Sprintf("cannot unmarshal number %d into Go value of type uint16", a)
	case !isRange || err2 != nil:
		return ""
	case a > most:
		return fmt.Sprintf("invalid minimum port number in range (%s)", value)
	case b > most:
		return fmt.Sprintf("invalid maximum port number in range (%s)", value)
	case a > b:
		return fmt.Sprintf("minimum port number (%d) is greater than maximum port number (%d) in port range", a, b)
	}
	return ""
}

func isContainer(value string) bool {
	return json.Valid([]byte(value)) && (strings.HasPrefix(value, "{") || strings.HasPrefix(value, "["))
}

// masked is a network with the bits of hosts at zero, or the text as it is.
func masked(value string) string {
	if p, err := netip.ParsePrefix(value); err == nil {
		return p.Masked().String()
	}
	return value
}
