package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// DSCP is a differentiated services code point (RFC 2474), by its name or as a number from 0 to 63; empty: none. JSON may have a number or a text.
type DSCP string

// AnnotationDSCP is that of a pod and of a HostEndpoint.
const AnnotationDSCP = "qos.projectcalico.org/dscp"

// code points by their names: RFC 2474, 2597, 3246, 5865, 8622.
var codePoints = map[string]uint8{
	"DF": 0, "LE": 1, "EF": 46, "VA": 44,
	"CS0": 0, "CS1": 8, "CS2": 16, "CS3": 24, "CS4": 32, "CS5": 40, "CS6": 48, "CS7": 56,
	"AF11": 10, "AF12": 12, "AF13": 14, "AF21": 18, "AF22": 20, "AF23": 22, "AF31": 26, "AF32": 28, "AF33": 30, "AF41": 34, "AF42": 36, "AF43": 38,
}

// Value is the number; set is false if there is none.
func (d DSCP) Value() (value uint8, set bool) {
	if d.Bad() != "" || d == "" {
		return 0, false
	}
	if n, named := codePoints[strings.ToUpper(string(d))]; named {
		return n, true
	}
	n, err := strconv.ParseUint(string(d), 10, 6)
	return uint8(n), err == nil
}

// Bad says what is wrong with it; empty: nothing.
func (d DSCP) Bad() string {
	_, named := codePoints[strings.ToUpper(string(d))]
	if _, err := strconv.ParseUint(string(d), 10, 6); d != "" && !named && err != nil {
		return fmt.Sprintf("is %q: want 0–63, or a name such as EF, AF11 or CS0", clip(string(d)))
	}
	return ""
}

// UnmarshalJSON takes a number or a text.
func (d *DSCP) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		*d = DSCP(strings.TrimSpace(text))
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(raw, &n); err != nil {
		return fmt.Errorf("want 0–63, or a name such as EF")
	}
	*d = DSCP(n.String())
	return nil
}

// MarshalJSON writes a number as one.
func (d DSCP) MarshalJSON() ([]byte, error) {
	if n, err := strconv.ParseUint(string(d), 10, 6); err == nil {
		return json.Marshal(n)
	}
	return json.Marshal(string(d))
}
