package wording

import "testing"

// TestDocumentsAreAsCalicoctlPrintsThem: what is always there, and what is never.
func TestDocumentsAreAsCalicoctlPrintsThem(t *testing.T) {
	for _, tt := range []struct {
		name, doc string
		export    bool
		want      string
	}{
		{"a time that is not set", `{"kind":"Tier","apiVersion":"v","metadata":{"name":"a"},"spec":{"order":1}}`, false, `{"kind":"Tier","apiVersion":"v","metadata":{"name":"a","creationTimestamp":null},"spec":{"order":1}}`},
		{"Kubernetes' counter", `{"kind":"Tier","metadata":{"name":"a","generation":3,"creationTimestamp":"t"},"spec":{}}`, false, `{"kind":"Tier","metadata":{"name":"a","creationTimestamp":"t"},"spec":{}}`},
		{"a node's status", `{"kind":"Node","metadata":{"name":"a","creationTimestamp":"t"},"spec":{}}`, false, `{"kind":"Node","metadata":{"name":"a","creationTimestamp":"t"},"spec":{},"status":{}}`},
		{"a status that is set", `{"kind":"Node","metadata":{"name":"a","creationTimestamp":"t"},"spec":{},"status":{"x":1}}`, false, `{"kind":"Node","metadata":{"name":"a","creationTimestamp":"t"},"spec":{},"status":{"x":1}}`},
		{"both ends of a rule", `{"kind":"Profile","metadata":{"name":"a","creationTimestamp":"t"},"spec":{"egress":[{"action":"Allow"}]}}`, false, `{"kind":"Profile","metadata":{"name":"a","creationTimestamp":"t"},"spec":{"egress":[{"action":"Allow","source":{},"destination":{}}]}}`},
		{"for another cluster", `{"kind":"Tier","metadata":{"name":"a","uid":"u","namespace":"n","resourceVersion":"1","creationTimestamp":"t"},"spec":{}}`, true, `{"kind":"Tier","metadata":{"name":"a","creationTimestamp":null},"spec":{}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Document([]byte(tt.doc), tt.export)
			if err != nil || string(got) != tt.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}
