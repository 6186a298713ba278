package api

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/api/apitest"
)

func TestNodeStatusesAreValidated(t *testing.T) { judgeAll(t, apitest.NodeStatuses()) }

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
