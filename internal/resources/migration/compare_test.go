package migration

import (
	"strings"
	"testing"
)

func TestWhatIsLost(t *testing.T) {
	for name, tt := range map[string]struct{ value, kept, says string }{
		"nothing":                   {`{"spec":{"a":1}}`, `{"spec":{"a":1}}`, ""},
		"what the store adds":       {`{"spec":{}}`, `{"spec":{"a":1},"kind":"X"}`, ""},
		"null":                      {`{"affinity":null,"a":[null]}`, `{"a":[null]}`, ""},
		"what it decides":           {`{"metadata":{"name":"x","uid":"u","generation":2}}`, `{"metadata":{"name":"x","uid":"v"}}`, ""},
		"a status":                  {`{"spec":{},"status":{"a":1}}`, `{"spec":{}}`, ""},
		"another way of the number": {`{"spec":{"order":100.0}}`, `{"spec":{"order":100}}`, ""},
		"a field":                   {`{"spec":{"a":{"b":false}}}`, `{"spec":{"a":{}}}`, "spec.a.b false → nothing"},
		"an element":                {`{"spec":{"a":["x","y"]}}`, `{"spec":{"a":["x"]}}`, "spec.a"},
		"an element's field":        {`{"spec":{"a":[{"x":1}]}}`, `{"spec":{"a":[{}]}}`, "spec.a[0].x 1 → nothing"},
		"a number":                  {`{"spec":{"n":9007199254740993}}`, `{"spec":{"n":9007199254740992}}`, "spec.n"},
		"a label":                   {`{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{}}`, `metadata.labels {"a":"b"} → nothing`},
		"bytes":                     {"x", "y", "its bytes differ"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lost([]byte(tt.value), []byte(tt.kept)); (got == "") != (tt.says == "") || !strings.Contains(got, tt.says) {
				t.Errorf("%q, want %q", got, tt.says)
			}
		})
	}
}
