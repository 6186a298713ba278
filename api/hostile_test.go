package api

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twillnet/twill/internal/seedtest"
)

// repeatedly repeats an element with commas between.
func repeatedly(element string, n int) string {
	return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
}

// numberedMembers are "x0":"v","x1":"v",…
func numberedMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"x%d":"v",`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func TestAValueBeyondALimitIsClosedAndTheLimitIsNamed(t *testing.T) {
	const np, wep = "networkpolicies/a/default.b", "workloadendpoints/a/b"
	for _, tt := range []struct {
		name, key, value, reason string
	}{
		{"many megabytes", np, `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 16<<20) + `"}}}`, "has 16777253 bytes: at most 4194304 are read"},
		{"one long text", np, `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 1<<20) + `"}}}`, "has a text with more than 262144 bytes"},
		{"100,000 labels", wep, `{"metadata":{"labels":{` + numberedMembers(100_000) + `}},"spec":{"ipNetworks":["10.0.0.1/32"]}}`, "has an object with more than 1024 members"},
		{"objects nested 100,000 deep", np, `{"spec":` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000) + `}`, "is nested deeper than 64"},
		{"lists nested 100,000 deep and never closed", np, `{"spec":` + strings.Repeat("[", 100_000), "is nested deeper than 64"},
		{"100,000 rules", np, `{"spec":{"ingress":[` + repeatedly(`{"action":"Allow"}`, 100_000) + `]}}`, "has more than 65536 elements in its lists"},
		{"1,000,000 profiles", wep, `{"spec":{"ipNetworks":["10.0.0.1/32"],"profiles":[` + repeatedly(`"a"`, 1_000_000) + `]}}`, "has more than 65536 elements in its lists"},
		{"a selector of 1 MB", np, `{"spec":{"selector":"` + strings.Repeat("a == 'b' || ", 20_000) + `c == 'd'"}}`, "spec.selector: has 240008 bytes: at most 4096 are read"},
		{"a selector nested 10,000 deep", np, `{"spec":{"selector":"` + strings.Repeat("(", 10_000) + "all()" + strings.Repeat(")", 10_000) + `"}}`, "spec.selector: has 20005 bytes: at most 4096 are read"},
		{"a selector nested as deep as its length allows", np, `{"spec":{"selector":"` + strings.Repeat("(", 2000) + "all()" + strings.Repeat(")", 2000) + `"}}`, "nested deeper than 512"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := DecodeStored(Update{Key: ResourcesPrefix + tt.key, Value: []byte(tt.value)})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(s.Closed, tt.reason) || len(s.Problems) == 0 {
				t.Errorf("closed because %q, problems %v; want the reason %q", clip(s.Closed), s.Problems, tt.reason)
			}
		})
	}
}

func TestWithinTheLimitsNothingIsClosed(t *testing.T) {
	for _, tt := range []struct{ name, key, value string }{
		{
			"a policy of 1,024 rules with 50 ports each", "networkpolicies/a/default.b",
			`{"spec":{"ingress":[` + repeatedly(`{"action":"Allow","protocol":"TCP","destination":{"ports":[`+repeatedly("80", 50)+`]}}`, 1024) + `]}}`,
		},
		{"a set of 250,000 nets", "globalnetworksets/a", `{"spec":{"nets":[` + repeatedly(`"10.0.0.0/8"`, 250_000) + `]}}`},
		{
			"1,024 labels, and text with quotes and brackets in it", "workloadendpoints/a/b",
			`{"metadata":{"annotations":{"q":"` + strings.Repeat(`\"[{,`, 20_000) + `"},"labels":{` + numberedMembers(1024) + `}},"spec":{"ipNetworks":["10.0.0.1/32"]}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := DecodeStored(Update{Key: ResourcesPrefix + tt.key, Value: []byte(tt.value)})
			if err != nil || s.Closed != "" || len(s.Problems) > 0 {
				t.Errorf("%v, closed because %q, problems %v", err, s.Closed, s.Problems)
			}
		})
	}
}

func TestANetworkSetBeyondALimitStaysAsItWas(t *testing.T) {
	_, err := DecodeStored(Update{Key: ResourcesPrefix + "networksets/a/b", Value: []byte(`{"spec":{"nets":[` + repeatedly(`"1.2.3.4"`, 300_000) + `]}}`)})
	if err == nil || !strings.Contains(err.Error(), "has more than 262144 elements") {
		t.Errorf("got error %v", err)
	}
}

func TestARuleWithTooManyPortsIsClosedByItself(t *testing.T) {
	rule := `{"action":%q,"protocol":"TCP","destination":{"ports":[` + repeatedly(`"a"`, MaxPorts+1) + `]}}`
	s, err := DecodeStored(Update{
		Key:   ResourcesPrefix + "networkpolicies/a/default.b",
		Value: fmt.Appendf(nil, `{"spec":{"ingress":[`+rule+`,`+rule+`]}}`, "Allow", "Deny"),
	})
	if err != nil || s.Closed != "" {
		t.Fatal(err, s.Closed)
	}
	in := s.Resource.(*NetworkPolicy).Spec.Ingress
	if !in[0].Void || in[1].Void || in[1].Destination.Ports != nil {
		t.Errorf("got %+v", in)
	}
	if !strings.Contains(s.Problems[0].Reason, "has 1025 ports: at most 1024 are read") {
		t.Errorf("got %+v", s.Problems)
	}
}

// shape is a JSON document that puts a value at a path; what is below lists of objects is in their first element.
type shape struct{ path, before, after string }

// lists are all places of a type where a list or a map can stand.
func lists(typ reflect.Type, at shape) (out []shape) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if reflect.PointerTo(typ).Implements(unmarshaler) {
		return nil
	}
	switch typ.Kind() {
	case reflect.Struct:
		for _, f := range fieldsOf(typ) {
			out = append(out, lists(f.typ, shape{join(at.path, f.name), at.before + `{"` + f.name + `":`, "}" + at.after})...)
		}
	case reflect.Slice:
		out = append(lists(typ.Elem(), shape{at.path + "[0]", at.before + "[", "]" + at.after}), at)
	case reflect.Map:
		out = append(out, at)
	}
	return out
}

// elements is a part of what the limits let in, so that the test is quick.
const elements = MaxElements / 8

// hostileFillings are what stands there, right and wrong.
var hostileFillings = map[string]string{
	"objects":   `[` + repeatedly(`{}`, elements) + `]`,
	"texts":     `[` + repeatedly(`"a"`, elements) + `]`,
	"bad texts": `[` + repeatedly(`"\ud800\u0000!,,"`, elements) + `]`,
	"numbers":   `[` + repeatedly(`1e999`, elements) + `]`,
	"nulls":     `[` + repeatedly(`null`, elements) + `]`,
	"lists":     `[` + repeatedly(`[]`, elements) + `]`,
	"unknown":   `[` + repeatedly(`{"`+strings.Repeat("u", 40)+`":1}`, elements) + `]`,
	"members":   `{` + numberedMembers(MaxMembers) + `}`,
	"a text":    `"` + strings.Repeat("!,", MaxText/2-1) + `"`,
	"a number":  strings.Repeat("9", MaxText),
}

// TestHostileValuesCostBoundedMemory puts much of what the limits let in at
// each place of each kind: of the fillings two for each place, others in each
// run. What is allocated in all, most of it garbage at once, is a generous
// multiple of the largest value.
func TestHostileValuesCostBoundedMemory(t *testing.T) {
	rng := seedtest.Rand(t)
	names := slices.Sorted(maps.Keys(hostileFillings))
	for _, k := range kinds {
		if strings.HasPrefix(k.Kind, "Staged") || strings.HasPrefix(k.Kind, "Global") {
			continue // made of the same types as others
		}
		key := ResourcesPrefix + k.Plural + "/a"
		if k.Namespaced {
			key += "/b"
		}
		for _, at := range lists(reflect.TypeOf(k.new()).Elem(), shape{}) {
			if strings.HasPrefix(at.path, "metadata.") && k.Kind != KindWorkloadEndpoint {
				continue // one kind stands for all
			}
			for _, n := range rng.Perm(len(names))[:2] {
				name := names[n]
				value := []byte(at.before + hostileFillings[name] + at.after)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				began := time.Now()
				s, err := DecodeStored(Update{Key: key, Value: value})
				runtime.ReadMemStats(&after)
				if took := time.Since(began); took > time.Second {
					t.Logf("%s %s with %s: %s", k.Kind, at.path, name, took) // not judged: the machine may be busy
				}
				if got := after.TotalAlloc - before.TotalAlloc; got > 16*MaxValue {
					t.Errorf("%s %s with %s: %d MiB allocated for a value of %d KiB", k.Kind, at.path, name, got>>20, len(value)>>10)
				}
				if err == nil {
					checkProblems(t, s)
				}
			}
		}
	}
}

func checkProblems(t *testing.T, s Stored) {
	t.Helper()
	if len(s.Problems) > MaxProblems+1 {
		t.Errorf("%s: %d problems", s.Key, len(s.Problems))
	}
	for _, p := range append(s.Problems, Problem{Reason: s.Closed}) {
		if len(p.Reason) > 3*maxReason || len(p.Field) > 2*maxReason || !utf8.ValidString(p.Reason) {
			t.Errorf("%s: problem of %d bytes at %d bytes: %q", s.Key, len(p.Reason), len(p.Field), clip(p.Reason))
		}
	}
}
