package proxy

import (
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

// TestWorkloadsThatAreGoneAreForgotten: each has an interface with a name of its own, so that what is kept of them would grow for ever.
func TestWorkloadsThatAreGoneAreForgotten(t *testing.T) {
	d := New(nil, nil)
	id := intent.EndpointID{Kind: intent.Workload, Name: "a"}
	d.Merge(intent.Batch{Endpoints: []intent.Endpoint{{ID: id, Link: "cali1"}}})
	d.Merge(intent.Batch{Removed: []intent.Key{id}})
	if len(d.workloads) != 0 {
		t.Errorf("%v is kept", d.workloads)
	}
}
