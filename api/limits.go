package api

import (
	"fmt"
	"strings"
)

// Limits of what is taken from the datastore, so that no single value costs
// memory or time without bound. What users write has narrower ones, see
// [Validate]. A value beyond them is closed as one that cannot be read; a
// network set stays as it was, since an empty one would open what it denies.
const (
	MaxValue    = 4 << 20 // bytes of a value; etcd's own default is 1.5 MiB
	MaxDepth    = 64      // objects and lists within each other
	MaxText     = 1 << 18 // bytes of one text, escapes and all; as many as Kubernetes has for annotations
	MaxMembers  = 1024    // of one object: labels, annotations, fields
	MaxElements = 1 << 16 // of all lists of a resource, which is what costs: rules, ports, profiles
	MaxNets     = 1 << 18 // the same, of a network set
	MaxSelector = 4096    // bytes of one selector; for its depth see selector.MaxDepth
	MaxPorts    = 1024    // of one side of a rule: names are looked for at each port of an endpoint
	MaxProblems = 100     // reported of one resource
	maxReason   = 500     // bytes of one reason, and of a field's path
)

// small values cannot reach a limit that matters, and need not be looked through.
const small = 16 << 10

// beyond says which limit a value exceeds. It reads on over what is no JSON:
// the decoder will say so.
func beyond(kind string, value []byte) string {
	if len(value) <= small {
		return ""
	}
	if len(value) > MaxValue {
		return fmt.Sprintf("has %d bytes: at most %d are read", len(value), MaxValue)
	}
	most := MaxElements
	if isSet(kind) {
		most = MaxNets
	}
	return measure(value, most)
}

func isSet(kind string) bool { return kind == KindNetworkSet || kind == KindGlobalNetworkSet }

// measure counts depth, members and elements by their punctuation.
func measure(value []byte, most int) string {
	var open [MaxDepth]struct {
		object bool
		commas int
	}
	depth, elements := 0, 0
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			from := i
			if i = endOfText(value, i); i-from > MaxText {
				return fmt.Sprintf("has a text with more than %d bytes", MaxText)
			}
		case '{', '[':
			if depth == MaxDepth {
				return fmt.Sprintf("is nested deeper than %d", MaxDepth)
			}
			open[depth].object, open[depth].commas = value[i] == '{', 0
			depth++
		case '}', ']':
			depth = max(depth-1, 0)
		case ',':
			if depth == 0 {
				continue
			}
			in := &open[depth-1]
			in.commas++
			if in.object && in.commas >= MaxMembers {
				return fmt.Sprintf("has an object with more than %d members", MaxMembers)
			}
			if !in.object {
				if elements++; elements >= most {
					return fmt.Sprintf("has more than %d elements in its lists", most)
				}
			}
		}
	}
	return ""
}

// endOfText returns where the text that begins at i ends.
func endOfText(value []byte, i int) int {
	for i++; i < len(value) && value[i] != '"'; i++ {
		if value[i] == '\\' {
			i++
		}
	}
	return i
}

// clip shortens what a hostile document would have us repeat.
func clip(s string) string {
	if len(s) <= maxReason {
		return s
	}
	return strings.ToValidUTF8(s[:maxReason], "") + "…"
}
