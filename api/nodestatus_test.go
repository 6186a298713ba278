package api

import (
	"strings"
	"testing"
)

func TestNodeStatusesAreValidated(t *testing.T) {
	for _, tt := range []struct{ name, spec, want string }{
		{"right", "{node: h1, classes: [Agent, BGP, Routes], updatePeriodSeconds: 0}", ""},
		{"no node", "{classes: [Agent], updatePeriodSeconds: 1}", "spec.node"},
		{"no classes", "{node: h1, updatePeriodSeconds: 1}", "spec.classes"},
		{"no period", "{node: h1, classes: [Agent]}", "spec.updatePeriodSeconds"},
		{"a bad name", "{node: H1_, classes: [Agent], updatePeriodSeconds: 1}", "spec.node"},
		{"a class that there is not", "{node: h1, classes: [Birds], updatePeriodSeconds: 1}", "spec.classes[0]"},
		{"a class twice", "{node: h1, classes: [BGP, BGP], updatePeriodSeconds: 1}", "spec.classes[1]"},
		{"more than a day", "{node: h1, classes: [BGP], updatePeriodSeconds: 86401}", "spec.updatePeriodSeconds"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			judge(t, KindCalicoNodeStatus, "name: s", tt.spec, tt.want)
		})
	}
}

func TestAStatusOutlivesWhatUsersWrite(t *testing.T) {
	old := `{"kind":"CalicoNodeStatus","metadata":{"name":"s"},"spec":{"node":"h1"},"status":{"lastUpdated":"2026-01-02T03:05:05Z","agent":{"birdV4":{"state":"Ready"}},"sky":1}}`
	r := New(KindCalicoNodeStatus).(*CalicoNodeStatus)
	r.Metadata.Name, r.Spec.Node = "s", "h2"
	got, err := MergeRaw([]byte(old), r)
	if want := `"spec":{"node":"h2"},"status":{"lastUpdated":"2026-01-02T03:05:05Z","agent":{"birdV4":{"state":"Ready"}},"sky":1}}`; err != nil || !strings.HasSuffix(string(got), want) {
		t.Errorf("(%v) %s\nwant at its end %s", err, got, want)
	}
	r.Status.BGP.NumberEstablishedV4 = 1
	if got, err = MergeRaw([]byte(old), r); err != nil || strings.Contains(string(got), "2026") || !strings.Contains(string(got), `"sky":1`) {
		t.Errorf("a status that says something (%v): %s", err, got)
	}
}
